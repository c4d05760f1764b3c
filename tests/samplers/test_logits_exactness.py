"""With yes-or-no targets and counts the chain, centralised or federated, reaches the enumerated posterior."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from fedhlcr._support.streams import Stream
from fedhlcr.engines.in_process import InProcessEngine
from fedhlcr.federation.agent_state import AgentState
from fedhlcr.federation.rules import DeltaRule
from fedhlcr.federation.run import run_round
from fedhlcr.federation.shard import AgentShard
from fedhlcr.model.priors import ModelSpec
from fedhlcr.samplers.merging import Merger, MergeSchedule
from tests.effects_enumeration import deviations
from tests.enumeration import labeling_index
from tests.federation.test_federated_exactness import sampling_error
from tests.federations import run_rounds, server_for
from tests.logits_enumeration import FIXED, LIKELIHOODS, K, centralised_visits, exact, observed, tiny
from tests.samplers.test_exactness import distance_to

EFFECTS = ("none", "entity+agent")


@cache
def truth(target, effects, seed=4):
    return exact(tiny(target, seed), target, effects)


def largest_deviation(values, means) -> float:
    """The largest difference between a chain's mean and the exact one, in standard errors; some never vary."""
    varies = values.std(axis=0) > 1e-9
    return float(np.abs(deviations(values[:, varies], means[varies])).max())


def federated_visits(target, effects, n_visits, *, data=4, seed=1, spacing=2, failure_rate=0.0, participation=1.0):
    """As `centralised_visits`, looked at whenever every agent has been heard `spacing` times on average."""
    hierarchy = tiny(target, data)
    settings = {"seed": seed, "n_clusters": K, "rounds": 10**9, "patience": None, "standardize": False, **FIXED}
    name = LIKELIHOODS[target].name
    server = server_for(1, likelihood=name, effects=effects, participation=participation, **settings)
    engine = InProcessEngine(AgentShard.from_hierarchy(hierarchy), failure_rate=failure_rate, seed=seed)
    while server.rule is None:
        run_round(server, engine)
    spec, merger = ModelSpec(**FIXED, effects=effects), Merger(MergeSchedule(0), K, over=True)
    server.rule = rule = DeltaRule(server.likelihood, spec, K, merger, Stream(seed))
    share = participation * (1.0 - failure_rate)
    pause = 1 if share == 1.0 else round(spacing / share)
    run_rounds(server, engine, 30 * pause)
    np.testing.assert_allclose(server.units.standardization.shift, 0.0, atol=1e-12)
    labels, values, everyone = [], [], engine.everyone
    (shard,) = engine._shards
    for _ in range(n_visits):
        run_rounds(server, engine, pause)
        heard = server.registry.accepted_round
        labels.append(everyone.labels_at(heard))
        agent_state = state_at(shard.agent_state, heard == everyone.pending_round)
        drawn = rule._state.globals.coef, rule._state.sums.blocks, labels[-1], agent_state
        values.append(observed(server.likelihood, hierarchy, *drawn))
    return np.array(labels), np.array(values)


def state_at(agent_state: AgentState, arrived):
    """The state that goes with the sums that the server has: that of the last answer where it arrived."""
    rows = {field.name: agent_state._rows(field, arrived) for field in agent_state.likelihood.own_state}
    accepted = {name: values.copy() for name, values in agent_state.accepted.items()}
    for name, chosen in rows.items():
        accepted[name][chosen] = agent_state.pending[name][chosen]
    return accepted


def assert_exact(labels, values, expected):
    probabilities, means = expected
    path = np.array([labeling_index(row, K) for row in labels])
    distance, floor = distance_to(probabilities, np.bincount(path, minlength=len(probabilities)))
    assert distance < 2 * max(floor, sampling_error(path, len(probabilities)))
    assert largest_deviation(values, means) < 4


# Lost replies: labels, effects, sizes and weights settle together.
CASES = {
    "all agents": {},
    "two fifths of the agents, some replies lost": {"participation": 0.4, "failure_rate": 0.2},
}


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("effects", EFFECTS)
@pytest.mark.parametrize("target", LIKELIHOODS)
def test_a_chain_reaches_the_exact_posterior(target, effects):
    assert_exact(*centralised_visits(tiny(target), target, effects, 1_000), truth(target, effects))


@pytest.mark.slow
@pytest.mark.parametrize("target", LIKELIHOODS)
def test_a_federation_reaches_the_exact_posterior(target):
    case = CASES["two fifths of the agents, some replies lost"]
    assert_exact(*federated_visits(target, "entity+agent", 200, **case), truth(target, "entity+agent"))


@pytest.mark.slow
@pytest.mark.parametrize("effects", EFFECTS)
@pytest.mark.parametrize("target", LIKELIHOODS)
def test_chains_on_other_data_and_longer(target, effects):
    assert_exact(*centralised_visits(tiny(target, 5), target, effects, 20_000, 5), truth(target, effects, 5))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("effects", EFFECTS)
@pytest.mark.parametrize("target", LIKELIHOODS)
def test_federations_on_other_data_and_longer(target, effects, case):
    labels, values = federated_visits(target, effects, 4_000, data=5, seed=5, **CASES[case])
    assert_exact(labels, values, truth(target, effects, 5))
