"""With effects and noise of entities the chain, centralised or federated, reaches the enumerated posterior."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from fedhlcr._support.streams import Stream
from fedhlcr.datasets.hierarchical import HierarchicalData
from fedhlcr.federation.rules import DeltaRule
from fedhlcr.federation.run import run_round
from fedhlcr.model.priors import ModelSpec
from fedhlcr.samplers.merging import Merger, MergeSchedule
from tests.effects_enumeration import FIXED, FixedLaws, K, centralised_visits, deviations, exact, observed, tiny
from tests.enumeration import labeling_index
from tests.federation.test_federated_exactness import sampling_error
from tests.federations import in_process, run_rounds, server_for
from tests.samplers.test_exactness import distance_to

SPEC = ModelSpec(**FIXED)


@cache
def truth(seed=4):
    return exact(*tiny(seed))


def distances(labels, values, seed=4):
    """Total variation of the labelings and what to expect of it, and the largest deviation of a mean, in errors."""
    probabilities, means = truth(seed)
    path = np.array([labeling_index(row, K) for row in labels])
    distance, floor = distance_to(probabilities, np.bincount(path, minlength=len(probabilities)))
    return distance, max(floor, sampling_error(path, len(probabilities))), np.abs(deviations(values, means)).max()


def federated_visits(events, y, n_visits, *, seed=1, spacing=2, failure_rate=0.0, participation=1.0):
    """The same of a federation; looked at whenever every agent has been heard `spacing` times on average."""
    agent, entity = (np.repeat(of, y.shape[1]) for of in (events.owner, np.arange(len(y))))
    table = HierarchicalData(events.X.reshape(y.size, -1), y.ravel(), agent, entity, ("x",))
    settings = {"seed": seed, "n_clusters": K, "rounds": 10**9, "patience": None, "standardize": False, **FIXED}
    server = server_for(1, likelihood=FixedLaws.name, participation=participation, **settings)
    engine = in_process(table, failure_rate=failure_rate, seed=seed)
    while server.rule is None:
        run_round(server, engine)
    rule = DeltaRule(server.likelihood, SPEC, K, Merger(MergeSchedule(0), K, over=True), Stream(seed))
    server.rule, everyone, labels, values = rule, engine.everyone, [], []
    share = participation * (1.0 - failure_rate)
    pause = 1 if share == 1.0 else round(spacing / share)
    run_rounds(server, engine, 30 * pause)
    np.testing.assert_allclose(everyone.grams, events.grams(server.likelihood.layout, y), atol=1e-12)
    for _ in range(n_visits):
        run_rounds(server, engine, pause)
        acknowledged, agent_state, state = server.registry.accepted_round, engine._shards[0].agent_state, rule._state
        arrived = np.repeat(acknowledged == everyone.pending_round, events.sizes)
        variance = np.where(arrived, agent_state.pending["variance"], agent_state.accepted["variance"])
        labels.append(everyone.labels_at(acknowledged))
        values.append(observed(server.likelihood, state.globals.coef, state.sums.blocks, labels[-1], variance))
    return np.array(labels), np.array(values)


def assert_exact(labels, values, seed=4):
    distance, floor, deviation = distances(labels, values, seed)
    assert distance < 2 * floor
    assert deviation < 4


CASES = {
    "all agents": {},
    "one of three agents, some replies lost": {"participation": 0.33, "failure_rate": 0.2},
}


@pytest.mark.slow
@pytest.mark.ci
def test_a_chain_with_effects_reaches_the_exact_posterior():
    assert_exact(*centralised_visits(*tiny(), SPEC, 4_000))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_federation_with_effects_reaches_the_exact_posterior(case):
    assert_exact(*federated_visits(*tiny(), 600 if CASES[case] else 1_500, **CASES[case]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [5, 6])
def test_chains_with_effects_on_other_data_and_longer(seed):
    assert_exact(*centralised_visits(*tiny(seed), SPEC, 40_000, seed), seed)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_federations_with_effects_on_other_data_and_longer(case):
    assert_exact(*federated_visits(*tiny(5), 10_000, seed=5, **CASES[case]), 5)
