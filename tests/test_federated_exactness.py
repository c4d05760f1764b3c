"""The delta rule leaves the exact posterior invariant with any agents absent; mutants and the paper's blend do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from enumeration import exact_posterior, labeling_index
from federations import FIXED, hierarchy_of, in_process, run_rounds, server_for
from problems import tiny_table
from test_exactness import distance_to

from fedhlcr.datasets.hierarchical import HierarchicalData
from fedhlcr.federation import rules
from fedhlcr.federation.rules import DeltaRule
from fedhlcr.federation.run import run_round
from fedhlcr.priors import ModelSpec
from fedhlcr.samplers.merging import Merger, MergeSchedule
from fedhlcr.samplers.state import Entities
from fedhlcr.streams import Stream


def tiny(seed=4, sizes=(3, 2, 1), n_events=2):
    X, y, agent, entity = tiny_table(seed, sizes, n_events)
    return HierarchicalData(X, y, agent, entity, ("x",))


def federation(table, *, seed=1, failure_rate=0.0, **params):
    """A server past its survey, without surplus clusters to merge, and its engine."""
    server = server_for(1, seed=seed, n_clusters=2, rounds=10**9, patience=None, standardize=False, **FIXED, **params)
    engine = in_process(table, failure_rate=failure_rate, seed=seed)
    while server.rule is None:
        run_round(server, engine)
    if server.settings.rule == "delta":
        merger = Merger(MergeSchedule(0), 2, over=True)
        server.rule = DeltaRule(server.settings.layout, ModelSpec(**FIXED), 2, merger, Stream(seed))
    return server, engine


def total_variation(table, n_visits=20_000, **params):
    """Distance of the labelings the server knows of from the enumerated posterior, and of as many independent draws.

    They are looked at as often as every agent has been heard on average.
    """
    server, engine = federation(table, **params)
    share_heard = params.get("participation", 1.0) * (1.0 - params.get("failure_rate", 0.0))
    pause, everyone = round(1.0 / share_heard), engine.everyone
    run_rounds(server, engine, 100 * pause)
    entities = Entities(server.settings.layout, hierarchy_of(table).index, everyone.grams)
    _, exact = exact_posterior(entities, 2, *FIXED.values())
    visits = np.zeros(len(exact))
    for _ in range(n_visits):
        run_rounds(server, engine, pause)
        labels = everyone.labels_at(server.registry.accepted_round)
        visits[labeling_index(labels, 2)] += 1
    return distance_to(exact, visits)


CASES = {
    "all agents": {},
    "one of three agents": {"participation": 0.33},
    "two of three agents, a third of them failing": {"participation": 0.67, "failure_rate": 0.33},
}


@pytest.mark.parametrize("case", CASES)
def test_delta_samples_the_exact_posterior(case):
    distance, floor = total_variation(tiny(), 5_000 if CASES[case] else 10_000, **CASES[case])
    assert distance < 2 * floor


BLEND = {"rule": "blend", "learning_rate": 1.0}


def test_the_papers_blend_does_not():
    distance, floor = total_variation(tiny(), 5_000, **BLEND)
    assert distance > 3 * floor


def forget_who_is_absent(monkeypatch):
    open_round = DeltaRule.open

    def mutant(self, round_number):
        law = open_round(self, round_number)
        self.ledger = rules.Ledger(2, self._layout.packed_size)
        self.ledger.grow(3)
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


@pytest.mark.parametrize("mutate", [forget_who_is_absent, draw_weights_from_tables_of_those_present])
def test_mutants_are_caught(mutate, monkeypatch):
    mutate(monkeypatch)
    distance, floor = total_variation(tiny(), 5_000, participation=0.33)
    assert distance > 3 * floor


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", [5, 6])
def test_delta_on_other_data_and_longer(case, seed):
    distance, floor = total_variation(tiny(seed, (2, 2, 2), 3), 20_000, seed=seed, **CASES[case])
    assert distance < 2 * floor
