"""Student-t noise in a federation: the same chain as centralised, and weights that never leave the agents."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from fedhlcr import FedHLCRRegressor
from fedhlcr._support.streams import Stream
from fedhlcr.datasets.hierarchical import HierarchicalData
from fedhlcr.exceptions import BroadcastError
from fedhlcr.federation.agent import Agent
from fedhlcr.federation.run import Checkpoints, run_federation, run_round
from fedhlcr.model.gram import entity_grams, standard_events
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.schema import GRAMS, Stage
from fedhlcr.model.student import EVENT_WEIGHTS
from fedhlcr.posterior import PublicModel
from fedhlcr.samplers.state import EntityData
from tests.federations import (
    OneByOneEngine,
    agents_of,
    centralised_states,
    hierarchy_of,
    in_process,
    run_rounds,
    server_for,
)

STUDENT = {"noise": "student", "seed": 5, "max_clusters": 6, "patience": None}


@pytest.fixture(scope="module")
def heavy():
    """Two clusters of lines with Student-t noise."""
    rng = np.random.default_rng(3)
    n_agents, n_entities, n_events = 12, 4, 6
    entity = np.repeat(np.arange(n_agents * n_entities), n_events)
    agent, slope = entity // n_entities, np.where(rng.integers(0, 2, n_agents * n_entities) == 0, 2.0, -2.0)[entity]
    X = rng.normal(size=(len(entity), 2))
    y = 1.0 + slope * X[:, 0] + X[:, 1] + 0.3 * rng.standard_t(3.0, size=len(entity))
    return HierarchicalData(X, y, agent.astype(str), entity.astype(str), ("a", "b"))


def entities_of(table, server) -> EntityData:
    units, hierarchy = server.units.standardization, hierarchy_of(table)
    grams = units.rescale(server.likelihood.layout, entity_grams(hierarchy, server.likelihood.layout, units.shift))
    return EntityData(server.likelihood, hierarchy.index, grams, events=standard_events(hierarchy.events, units))


@pytest.mark.parametrize("effects", ["auto", "none", "entity+agent"])
def test_with_all_agents_it_is_the_centralised_chain(heavy, effects):
    """Labels are equal, and coefficients and weights agree to rounding errors, through all stages."""
    server, engine = server_for(2, effects=effects, **STUDENT), in_process(heavy)
    run_rounds(server, engine, 1)
    entities, stages = entities_of(heavy, server), set()
    spec = ModelSpec(target_spread=server.units.target_spread, effects=effects)
    for state in islice(centralised_states(entities, spec, 6, Stream(5)), 140):
        run_rounds(server, engine, 1)
        stages.add(state.globals.stage)
        np.testing.assert_array_equal(server.rule.cluster_of[engine.everyone.pending], state.labels)
        found = server.rule._state.globals
        np.testing.assert_allclose(found.coef, state.globals.coef, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(found.noise_shape, state.globals.noise_shape)
        agent_state = np.concatenate([shard.agent_state.pending[EVENT_WEIGHTS] for shard in engine._shards])
        np.testing.assert_allclose(agent_state, state.agent_state[EVENT_WEIGHTS], rtol=1e-7)
    assert stages >= {Stage.PLAIN, Stage.MERGING, Stage.EXACT}
    assert (state.agent_state[EVENT_WEIGHTS] < 0.3).any()


def test_the_account_agrees_with_the_weights_that_agents_continue_from(heavy):
    """With a third of the agents and lost replies, sums from scratch equal the account."""
    server = server_for(2, effects="none", participation=0.34, rounds=120, **STUDENT)
    engine = in_process(heavy, failure_rate=0.3, seed=2)
    run_rounds(server, engine, 110)
    assert server.rule._state.globals.stage == Stage.EXACT
    entities = entities_of(heavy, server)
    everyone = np.arange(entities.index.n_agents)
    labels = engine.everyone.labels_at(server.registry.accepted_round)
    for shard in engine._shards:
        shard._settle(everyone, server.registry.accepted_round)
    weights = np.concatenate([shard.agent_state.accepted[EVENT_WEIGHTS] for shard in engine._shards])
    assert (weights != 1.0).all()
    part = entities.part({**entities.start_state(), EVENT_WEIGHTS: weights}, 0, Stream(0))
    grams = entities.likelihood._weighted(part).entities.grams
    total = server.rule.account.total()
    expected = np.zeros_like(total.blocks[GRAMS])
    np.add.at(expected, labels, grams)
    np.testing.assert_allclose(total.blocks[GRAMS], expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(total.scalars["event_weights"], weights.sum())
    np.testing.assert_allclose(total.scalars["log_event_weights"], np.log(weights).sum())
    assert total.scalars["weighted_events"] == total.scalars["events"] == len(heavy)


def test_a_run_resumed_in_any_round_is_the_same(heavy, tmp_path):
    params = {**STUDENT, "participation": 0.5, "rounds": 60}
    faults = {"failure_rate": 0.3, "seed": 9}
    expected = server_for(2, **params)
    run_federation(expected, in_process(heavy, **faults))
    checkpoints = Checkpoints(tmp_path / "run")
    server, engine = server_for(2, **params), in_process(heavy, **faults)
    checkpoints.save(server, engine)
    while not server.finished:
        engine = in_process(heavy, **faults)
        server = checkpoints.resume(server.settings, engine)
        for _ in range(7):
            if not server.finished:
                run_round(server, engine)
        checkpoints.save(server, engine)
    assert server.model().to_bytes() == expected.model().to_bytes()


@pytest.mark.slow
def test_agents_alone_draw_as_in_a_simulation_and_survive_their_files(heavy, tmp_path):
    """One by one, through bytes, and saved and loaded in the middle of the run."""
    params = {**STUDENT, "rounds": 50}
    together, apart = server_for(2, **params), server_for(2, **params)
    run_federation(together, in_process(heavy))
    engine = OneByOneEngine(agents_of(heavy), shuffle=1)
    run_rounds(apart, engine, 40)
    for number, (name, agent) in enumerate(engine.by_name.items()):
        agent.save(tmp_path / str(number))
        engine.by_name[name] = Agent.load(tmp_path / str(number), disclosure=None)
    run_federation(apart, engine)
    assert apart.model().to_bytes() == together.model().to_bytes()
    agent, own = engine.by_name["0"], heavy.agent == "0"
    model = PublicModel.from_bytes(apart.model().to_bytes())
    predicted = agent.predict(model, heavy.X[own], heavy.entity[own]).mean
    assert np.median(np.abs(predicted - heavy.y[own])) < 0.4


def test_agents_without_their_events_say_so(heavy):
    server, engine = server_for(2, **STUDENT), in_process(heavy)
    run_rounds(server, engine, 2)
    for shard in engine._shards:
        shard.events = shard.run_events = None
    with pytest.raises(BroadcastError, match="need events"):
        run_rounds(server, engine, 1)


def test_the_estimator_runs_with_some_agents_and_a_validation_set(heavy):
    ids = {"agent": heavy.agent, "entity": heavy.entity}
    test = heavy.X[:60], heavy.y[:60], heavy.agent[:60], heavy.entity[:60]
    model = FedHLCRRegressor(2, noise="student", participation=0.5, failure_rate=0.1, rounds=80, patience=None)
    model.fit(heavy.X, heavy.y, **ids, validation=test)
    assert np.abs(np.sort(model.coef_[:, 0]) - [-2.0, 2.0]).max() < 0.15
    assert model.history_["validation_mse"][-1] < 1.0
    assert np.median(np.abs(model.predict(heavy.X, **ids) - heavy.y)) < 0.3
