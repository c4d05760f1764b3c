"""The delta rule leaves the exact posterior invariant with any agents absent; mutants and the paper's blend do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedhlcr._support.streams import Stream
from fedhlcr.datasets.hierarchical import HierarchicalData
from fedhlcr.federation import rules
from fedhlcr.federation.rules import DeltaRule
from fedhlcr.federation.run import run_round
from fedhlcr.model.priors import ModelSpec
from fedhlcr.samplers.merging import Merger, MergeSchedule
from fedhlcr.samplers.state import EntityData
from tests.enumeration import exact_posterior, labeling_index
from tests.federations import FIXED, hierarchy_of, in_process, run_rounds, server_for
from tests.problems import PAPER, tiny_table
from tests.samplers.test_exactness import distance_to, folded


def tiny(seed=4, sizes=(3, 2, 1), n_events=2):
    X, y, agent, entity = tiny_table(seed, sizes, n_events)
    return HierarchicalData(X, y, agent, entity, ("x",))


def federation(table, *, seed=1, failure_rate=0.0, **params):
    """A server past its survey, without surplus clusters to merge, and its engine."""
    fixed = {"n_clusters": 2, "rounds": 10**9, "patience": None, "standardize": False, **PAPER, **FIXED}
    server = server_for(1, seed=seed, **fixed, **params)
    engine = in_process(table, failure_rate=failure_rate, seed=seed)
    while server.rule is None:
        run_round(server, engine)
    if server.settings.rule == "delta":
        merger = Merger(MergeSchedule(0), 2, over=True)
        server.rule = DeltaRule(server.likelihood, ModelSpec(**FIXED), 2, merger, Stream(seed))
    return server, engine


def sample_labelings(table, n_visits, spacing=2, **params):
    """The enumerated posterior, and the labelings the server knew of.

    They are looked at whenever every agent has been heard `spacing` times on average; with all agents, in every round.
    """
    server, engine = federation(table, **params)
    share_heard = params.get("participation", 1.0) * (1.0 - params.get("failure_rate", 0.0))
    pause, everyone = 1 if share_heard == 1.0 else round(spacing / share_heard), engine.everyone
    run_rounds(server, engine, 100 * pause)
    entities = EntityData(server.likelihood, hierarchy_of(table).index, everyone.grams)
    _, exact = exact_posterior(entities, 2, *FIXED.values())
    path = np.empty(n_visits, dtype=np.int64)
    for visit in range(n_visits):
        run_rounds(server, engine, pause)
        path[visit] = labeling_index(everyone.labels_at(server.registry.accepted_round), 2)
    return exact, path


def total_variation(table, n_visits=20_000, **params):
    """Distance of the sampled labelings from the enumerated posterior, and of as many independent draws."""
    exact, path = sample_labelings(table, n_visits, **params)
    return distance_to(exact, np.bincount(path, minlength=len(exact)))


def sampling_error(path, n_labelings, n_batches=20):
    """The distance to expect of an exact chain that is as sluggish as this one, from the scatter of its parts."""
    parts = np.array([folded(np.bincount(part, minlength=n_labelings)) for part in np.split(path, n_batches)])
    errors = (parts / parts.sum(axis=1, keepdims=True)).std(axis=0, ddof=1) / np.sqrt(n_batches)
    return 0.5 * np.sqrt(2.0 / np.pi) * errors.sum()


CASES = {
    "all agents": {},
    "one of three agents": {"participation": 0.33},
    "two of three agents, a third of them failing": {"participation": 0.67, "failure_rate": 0.33},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "n_visits"),
    [
        pytest.param("all agents", 3_000, marks=pytest.mark.ci),
        ("one of three agents", 2_000),
        pytest.param("two of three agents, a third of them failing", 2_000, marks=pytest.mark.ci),
    ],
)
def test_delta_samples_the_exact_posterior(case, n_visits):
    distance, floor = total_variation(tiny(), n_visits, **CASES[case])
    assert distance < 2 * floor


BLEND = {"rule": "blend", "learning_rate": 1.0}


@pytest.mark.slow
@pytest.mark.ci
def test_paper_blend_is_not_exact():
    distance, floor = total_variation(tiny(), 5_000, **BLEND)
    assert distance > 3 * floor


def forget_who_is_absent(monkeypatch):
    open_round = DeltaRule.open

    def mutant(self, round_number):
        law = open_round(self, round_number)
        self.account = rules.Ledger(2, self._likelihood.sum_schema)
        self.account.grow(3)
        return law

    monkeypatch.setattr(DeltaRule, "open", mutant)


def draw_weights_from_tables_of_those_present(monkeypatch):
    """ψ from the round's tables only: close to exact, but not."""
    absorb, total = DeltaRule.absorb, rules.Ledger.total
    present: list[np.ndarray] = []

    def mutant_total(self):
        sums = total(self)
        tables = sum(np.bincount(part.clusters, part.table_counts, 2) for part in present)
        present.clear()
        return replace(sums, table_counts=np.zeros(2) + tables)

    def mutant_absorb(self, agents, sums):
        present.append(sums)
        absorb(self, agents, sums)

    monkeypatch.setattr(DeltaRule, "absorb", mutant_absorb)
    monkeypatch.setattr(rules.Ledger, "total", mutant_total)


@pytest.mark.parametrize(
    ("mutate", "n_visits"),
    [
        pytest.param(forget_who_is_absent, 1_000, marks=(pytest.mark.slow, pytest.mark.ci)),
        pytest.param(draw_weights_from_tables_of_those_present, 2_000, marks=pytest.mark.slow),
    ],
)
def test_mutants_are_caught(mutate, n_visits, monkeypatch):
    mutate(monkeypatch)
    distance, floor = total_variation(tiny(), n_visits, spacing=1, participation=0.33)
    assert distance > 3 * floor


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "case"), [(s, c) for s in (5, 6) for c in CASES])
def test_delta_on_other_data_and_longer(case, seed):
    """Some of these mix slowly, so they are held against their own scatter."""
    exact, path = sample_labelings(tiny(seed, (2, 2, 2), 3), 10_000, seed=seed, **CASES[case])
    distance, floor = distance_to(exact, np.bincount(path, minlength=len(exact)))
    assert distance < 2 * max(floor, sampling_error(path, len(exact)))
