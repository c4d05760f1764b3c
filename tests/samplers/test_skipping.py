"""Skipping entities whose labels are certain changes no label, pays where labels are certain, and stops elsewhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedhlcr._support.streams import Stream
from fedhlcr.datasets import make_hlcr
from fedhlcr.kernels.skipping import EVERYONE, REMEMBER, SKIP
from fedhlcr.model.gaussian import Gaussian
from fedhlcr.model.mixed import MixedEntityNoise
from fedhlcr.model.priors import ModelSpec
from fedhlcr.reference import relabel_agents, square_roots
from fedhlcr.samplers import blocked, skipping
from fedhlcr.samplers.chain import ChainPlan, run_chain
from fedhlcr.samplers.skipping import CertainLabels
from fedhlcr.samplers.state import label_law
from tests.mutants import SKIPPING_MUTATIONS, skipping_mutant
from tests.problems import entities_from

# agents, entities, events, features, clusters, noise
SIZES = {"S": (64, 8, 5, 4, 5, 0.3), "H": (100, 8, 3, 3, 4, 1.5), "one": (40, 1, 6, 2, 3, 0.3)}


def problem(name, seed=0, likelihood=Gaussian, n_threads=1):
    table, _ = make_hlcr(*SIZES[name], random_state=seed)
    entities = entities_from(table.X, table.y, table.agent, table.entity)
    return replace(entities, likelihood=likelihood(entities.layout), n_threads=n_threads)


class Counting(CertainLabels):
    """Notes the modes and the shares of entities scored."""

    def __init__(self, n_entities):
        super().__init__(n_entities)
        self.modes, self.shares = [], []

    def after(self, remembered, labels, n_scored):
        self.modes.append(remembered.mode)
        self.shares.append(n_scored / len(labels))
        super().after(remembered, labels, n_scored)


@pytest.fixture
def counting(monkeypatch):
    """All certainties of chains, in the order in which they were made."""
    made = []

    def make(n_entities):
        made.append(Counting(n_entities))
        return made[-1]

    monkeypatch.setattr(blocked, "CertainLabels", make)
    return made


def chain(entities, seed=0, n_clusters=None, n_sweeps=50):
    return run_chain(entities, ModelSpec(), ChainPlan(n_sweeps, 20, n_clusters, max_clusters=12), Stream(seed))


@pytest.mark.parametrize("likelihood", [Gaussian, MixedEntityNoise])
@pytest.mark.parametrize("n_clusters", [None, 4])
@pytest.mark.parametrize("name", SIZES)
def test_chain_with_skipping_is_the_chain_without(name, n_clusters, likelihood, counting, monkeypatch):
    """Merging included, bit for bit, on one and on two threads."""
    found = [chain(problem(name, 1, likelihood, n_threads), 1, n_clusters) for n_threads in (1, 2)]
    assert name == "H" or SKIP in counting[0].modes
    assert counting[0].shares == counting[1].shares
    monkeypatch.setattr(blocked, "CertainLabels", lambda n_entities: CertainLabels(0 * n_entities))
    expected = chain(problem(name, 1, likelihood), 1, n_clusters)
    for result in found:
        assert result.trace == expected.trace
        for draw, wanted in zip(result.kept, expected.kept, strict=True):
            np.testing.assert_array_equal(draw.labels, wanted.labels)
            np.testing.assert_array_equal(draw.globals.coef, wanted.globals.coef)


def test_it_pays_where_labels_are_certain(counting):
    chain(problem("S"), n_sweeps=100)
    assert counting[0].modes[-30:].count(SKIP) >= 25
    assert np.mean(counting[0].shares[-30:]) < 0.3


def test_it_switches_itself_off_where_labels_are_not(counting):
    chain(problem("H"), n_sweeps=200)
    modes = np.array(counting[0].modes)
    assert (modes == REMEMBER).any()
    assert np.mean(modes[-100:] == EVERYONE) > 0.9


def sweeps_that_only_skip():
    """Sweeps whose coefficients move away from those that are remembered, and back; labels against the oracle's."""
    table, truth = make_hlcr(*SIZES["S"], random_state=2)
    entities, stream, spec = entities_from(table.X, table.y, table.agent, table.entity), Stream(3), ModelSpec()
    state = blocked.state_from_labels(entities, spec, truth.labels, SIZES["S"][4], stream)
    shortcuts = blocked.Shortcuts(entities)
    shortcuts.certainty = Counting(len(entities))
    centre, direction = state.globals.coef, np.random.default_rng(4).normal(size=state.globals.coef.shape)
    for distance in (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 0.8, 0.4, 0.1, 0.0, 0.0):
        drawn = replace(state.globals, coef=centre + distance * direction)
        before, state = state, blocked.step(entities, spec, state, stream, drawn, shortcuts)
        law = label_law(entities.likelihood, drawn, state.round)
        np.testing.assert_array_equal(state.labels, relabel_agents(entities.arrays(stream), law, before.labels)[0])
    return shortcuts.certainty


@pytest.fixture
def stubborn(monkeypatch):
    """Skipping goes on however many entities must be scored."""
    monkeypatch.setattr(skipping, "MOST_SCORED", 1.0)
    monkeypatch.setattr(skipping, "MOST_WASTE", np.inf)


def test_skipped_sweeps_equal_the_readable_version(stubborn):
    del stubborn
    certainty = sweeps_that_only_skip()
    assert certainty.modes == [REMEMBER] + [SKIP] * 11
    assert min(certainty.shares) < 0.5
    assert max(certainty.shares[1:]) > 0.9


def check_worst_case(is_certain):
    """Entities with a single event, whose roots move as far as the bound allows: the own one up, all others down."""
    rng, n_certain = np.random.default_rng(5), 0
    for _ in range(3000):
        own, gap, reach, half = rng.uniform(0, 2), rng.uniform(0, 5), rng.uniform(0.5, 2), rng.uniform(0.5, 3)
        moved, prior, beta, n = rng.uniform(0, 0.5, 2), np.array([0.7, 0.3]), 1.0, 4
        at_label, other = own + reach * moved[0], max(own + gap - reach * moved.max(), 0.0)
        # the other cluster has all that the agent's entities and the prior can give it
        weights = np.array([prior[0], n - 1 + prior[1]]) * np.exp(-half * np.array([at_label, other]) ** 2)
        share = weights[0] / weights.sum()
        uniform = rng.choice([share, 1.0 - share]) * rng.uniform(0.5, 1.5)
        roots, most_odds = (own, own + gap, reach), (n + beta) / prior[0]
        if is_certain(roots, (moved[0], moved.max()), (half, 1.0, 6.0), uniform, most_odds):
            n_certain += 1
            assert 1.0 - share <= uniform < share
    assert n_certain > 100


@pytest.mark.parametrize("name", [None, *SKIPPING_MUTATIONS])
def test_a_changed_line_is_caught(name, stubborn, tmp_path):
    del stubborn
    with skipping_mutant(name, tmp_path) as mutated:
        if name is None:
            check_worst_case(mutated.is_certain)
            sweeps_that_only_skip()
        else:
            with pytest.raises(AssertionError):  # noqa: PT012
                check_worst_case(mutated.is_certain)
                sweeps_that_only_skip()


def test_roots_bound_the_readable_ones():
    """What is remembered errs on the safe side, by no more than single precision."""
    entities, stream = problem("S"), Stream(1)
    state = blocked.initial_state(entities, ModelSpec(), 5, stream)
    certainty = CertainLabels(len(entities))
    blocked.relabel_agents(entities.likelihood, entities.part({}, 1, stream), state.globals, state.labels, certainty)
    own, other, reach = certainty._roots
    best, second, trace = square_roots(entities.layout, entities.grams, state.globals.coef)
    kept = np.isfinite(own)
    assert kept.any()
    for found, exact, above in ((own, best, True), (other, second, False), (reach, trace, True)):
        assert ((found >= exact) if above else (found <= exact))[kept].all()
        np.testing.assert_allclose(found[kept], exact[kept], rtol=1e-5, atol=1e-5)
