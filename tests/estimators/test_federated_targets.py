"""Yes-or-no targets and counts in a federation: the same chain as centralised, through all stages."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from sklearn.base import clone

from fedhlcr import FedHLCRClassifier, FedHLCRCountRegressor, HLCRClassifier, HLCRCountRegressor
from fedhlcr._support.streams import Stream
from fedhlcr.datasets import make_hlcr
from fedhlcr.datasets.hierarchical import HierarchicalData
from fedhlcr.model.counts import LOG_SIZE
from fedhlcr.model.gram import entity_grams
from fedhlcr.model.mixed_globals import EVENT_WEIGHTS
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.schema import GRAMS, Stage
from fedhlcr.samplers.state import EntityData
from tests.federations import centralised_states, hierarchy_of, in_process, run_rounds, server_for
from tests.logits_problems import LIKELIHOODS

PAIRS = {
    "binary": (HLCRClassifier, FedHLCRClassifier),
    "count": (HLCRCountRegressor, FedHLCRCountRegressor),
}


def several_clusters(target: str) -> HierarchicalData:
    return make_hlcr(10, 4, 12, 2, 2, target=target, random_state=3)[0]


def one_cluster(target: str) -> HierarchicalData:
    """Entities that differ in all coefficients and have few events: plain clusters are many at first."""
    rng, n_entities, n_events = np.random.default_rng(2), 60, 8
    entity = np.repeat(np.arange(n_entities), n_events)
    own = (np.array([0.3, 1.0, -0.5]) + rng.normal(size=(n_entities, 3)) * [1.0, 0.7, 0.5])[entity]
    X = rng.normal(size=(len(entity), 2))
    eta = own[:, 0] + (own[:, 1:] * X).sum(axis=1)
    y = rng.random(len(eta)) < 1.0 / (1.0 + np.exp(-eta)) if target == "binary" else rng.poisson(np.exp(eta))
    return HierarchicalData(X, y.astype(float), entity // 5, entity, ("u", "v"))


def entities_of(table, server) -> EntityData:
    units, hierarchy, likelihood = server.units.standardization, hierarchy_of(table), server.likelihood
    grams = units.rescale(likelihood.layout, entity_grams(hierarchy, likelihood.layout, units.shift))
    return EntityData(likelihood, hierarchy.index, grams, events=likelihood.events_in(hierarchy.events, units))


def assert_centralised(table, target, n_rounds, effects="auto", seed=5):
    """Labels are equal, and everything else agrees to rounding errors; returns stages and numbers of clusters."""
    # `centralised_states` merges until half of 200 sweeps
    settings = {"seed": seed, "max_clusters": 6, "patience": None, "effects": effects, "rounds": 200}
    server, engine = server_for(2, likelihood=LIKELIHOODS[target].name, **settings), in_process(table)
    run_rounds(server, engine, 1)
    entities, stages, n_clusters = entities_of(table, server), [], []
    spec = ModelSpec(target_spread=server.units.target_spread, effects=effects)
    for state in islice(centralised_states(entities, spec, 6, Stream(seed)), n_rounds):
        run_rounds(server, engine, 1)
        np.testing.assert_array_equal(server.rule.cluster_of[engine.everyone.pending], state.labels)
        drawn, expected = server.rule._state.globals, state.globals
        for q in drawn.quantities():
            np.testing.assert_allclose(getattr(drawn, q.name), getattr(expected, q.name), rtol=1e-9, atol=1e-9)
        pending = [shard.agent_state.pending for shard in engine._shards]
        for name in {EVENT_WEIGHTS, LOG_SIZE} & set(state.agent_state):
            kept = np.concatenate([agent_state[name] for agent_state in pending])
            np.testing.assert_allclose(kept, state.agent_state[name], rtol=1e-8, atol=1e-9)
        sums = server.rule.account.total().regroup(server.rule.cluster_of)
        np.testing.assert_allclose(sums.blocks[GRAMS], state.sums.blocks[GRAMS], rtol=1e-7, atol=1e-7)
        stages.append(state.globals.stage)
        n_clusters.append(state.globals.n_clusters)
    return stages, n_clusters


@pytest.mark.parametrize("effects", ["auto", "entity+agent"])
@pytest.mark.parametrize("target", LIKELIHOODS)
def test_with_all_agents_it_is_the_centralised_chain(target, effects):
    stages, _ = assert_centralised(several_clusters(target), target, 125, effects)
    assert set(stages) >= {Stage.PLAIN, Stage.MERGING, Stage.EXACT}


@pytest.mark.parametrize("target", LIKELIHOODS)
def test_with_all_agents_it_is_the_centralised_chain_through_the_comparison(target):
    stages, n_clusters = assert_centralised(one_cluster(target), target, 125)
    assert Stage.WEIGHING in stages
    # of events with two outcomes one cluster describes the entities best; counts say more, and may keep two
    assert n_clusters[-1] <= (1 if target == "binary" else 2)
    assert max(n_clusters[50:]) > 1


@pytest.mark.slow
@pytest.mark.parametrize("target", LIKELIHOODS)
def test_it_predicts_as_the_centralised_fit_does(target):
    table = several_clusters(target)
    ids = {"agent": table.agent, "entity": table.entity}
    central, federated = (kind(random_state=1) for kind in PAIRS[target])
    central.fit(table.X, table.y, **ids)
    for model in (federated, clone(federated).set_params(participation=0.5, failure_rate=0.2)):
        model.fit(table.X, table.y, **ids)
        losses = [-one.log_density(table.X, table.y, **ids).mean() for one in (model, central)]
        assert losses[0] < 1.03 * losses[1]
