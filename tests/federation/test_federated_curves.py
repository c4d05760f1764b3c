"""Curves in a federation: quantiles in the survey, expanded matrices at the agents, the same chain as centralised."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

import fedhlcr
from fedhlcr import FedHLCRRegressor, HLCRRegressor
from fedhlcr._support.streams import Stream
from fedhlcr.datasets.hierarchical import HierarchicalData
from fedhlcr.exceptions import ArgumentError, BroadcastError
from fedhlcr.federation.agent import Agent
from fedhlcr.federation.messages import Broadcast, Contribution
from fedhlcr.federation.server import Server
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.model.curves import N_QUANTILES
from fedhlcr.model.gram import GramLayout, entity_grams
from fedhlcr.model.priors import ModelSpec
from fedhlcr.posterior import PublicModel
from fedhlcr.samplers.state import EntityData
from tests.federations import FIXED, OneByOneEngine, agents_of, centralised_states, hierarchy_of, in_process, run_rounds


@pytest.fixture(scope="module")
def bent():
    """Two clusters that bend in the first of three columns; the last column has two values."""
    rng = np.random.default_rng(3)
    n_agents, n_entities, n_events = 20, 4, 10
    n = n_agents * n_entities * n_events
    agent, entity = np.repeat(np.arange(n_agents), n // n_agents), np.repeat(np.arange(n_agents * n_entities), n_events)
    cluster = rng.integers(0, 2, n_agents * n_entities)[entity]
    X = np.column_stack([50.0 + 10.0 * rng.normal(size=n), rng.normal(size=n), rng.integers(0, 2, n)])
    t = (X[:, 0] - 50.0) / 10.0
    y = np.where(cluster == 0, t**2 + X[:, 1], -(t**2) - X[:, 1]) + 0.3 * rng.normal(size=n)
    return HierarchicalData(X, y, agent.astype(str), entity.astype(str), ("age", "height", "member"))


def server_with_curves(curves=(0, 1, 2), **settings):
    return Server(FederationSettings(GramLayout(3), curves=curves, **settings))


def test_with_all_agents_it_is_the_centralised_chain(bent):
    """Given the units of the survey, labels are equal and coefficients agree to rounding errors."""
    server, engine = server_with_curves(seed=5, max_clusters=12, patience=None), in_process(bent)
    run_rounds(server, engine, 1)
    units, hierarchy = server.units.standardization, hierarchy_of(bent)
    layout = server.likelihood.layout
    assert layout.curve_groups == (4, 4)
    expanded = replace(hierarchy, X=units.expand(hierarchy.X))
    grams = units.rescale(layout, entity_grams(expanded, layout, units.shift))
    entities = EntityData(server.likelihood, hierarchy.index, grams)
    spec = ModelSpec(target_spread=server.units.target_spread)
    for state in islice(centralised_states(entities, spec, 12, Stream(5)), 80):
        run_rounds(server, engine, 1)
        np.testing.assert_array_equal(server.rule.cluster_of[engine.everyone.pending], state.labels)
        np.testing.assert_allclose(server.kept_draws[-1].globals.coef, state.globals.coef, rtol=1e-9, atol=1e-9)


def test_estimators_agree_if_the_knots_agree(bent, monkeypatch):
    ids = {"agent": bent.agent, "entity": bent.entity}
    federated = FedHLCRRegressor(2, curves="auto", rounds=40, patience=None).fit(bent.X, bent.y, **ids)
    quantiles = np.zeros((3, N_QUANTILES))
    quantiles[federated.curves_.columns] = federated.curves_.quantiles
    monkeypatch.setattr("fedhlcr.estimators.training.column_quantiles", lambda *_: quantiles)
    central = HLCRRegressor(2, curves="auto", n_sweeps=40).fit(bent.X, bent.y, **ids)
    np.testing.assert_allclose(
        federated.posterior_.memory.entities.grams, central.posterior_.memory.entities.grams, atol=1e-8
    )
    np.testing.assert_allclose(federated.coef_, central.coef_, rtol=0.1, atol=0.02)
    np.testing.assert_allclose(federated.curve_coef_, central.curve_coef_, atol=0.05)
    assert federated.score(bent.X, bent.y, **ids) == pytest.approx(central.score(bent.X, bent.y, **ids), abs=0.005)


def test_partial_participation_and_failures(bent):
    ids = {"agent": bent.agent, "entity": bent.entity}
    options = {"participation": 0.4, "failure_rate": 0.2, "rounds": 60}
    bending = FedHLCRRegressor(2, curves=[0], **options).fit(bent.X, bent.y, **ids)
    straight = FedHLCRRegressor(2, **options).fit(bent.X, bent.y, **ids)
    assert bending.curves_.columns.tolist() == [0]
    assert bending.score(bent.X, bent.y, **ids) > straight.score(bent.X, bent.y, **ids) + 0.2


def test_messages_through_bytes_give_the_same_run(bent):
    by_bytes, by_arrays = (server_with_curves(seed=2, max_clusters=6) for _ in range(2))
    run_rounds(by_bytes, OneByOneEngine(agents_of(bent)), 6)
    run_rounds(by_arrays, in_process(bent), 6)
    one, other = by_bytes.kept_draws[-1].globals, by_arrays.kept_draws[-1].globals
    np.testing.assert_array_equal(one.coef, other.coef)


def test_bytes_are_counted(bent):
    server, engine = server_with_curves(max_clusters=6), in_process(bent)
    for _ in range(2):
        call = server.open_round(engine.agents())
        replies = list(engine.deliver(call))
        assert sum(len(one.to_bytes()) for reply in replies for one in reply) == sum(
            reply.encoded_size() for reply in replies
        )
        for reply in replies:
            server.accept(reply)
        server.close_round()


def test_messages_without_curves_do_not_mention_them(bent):
    server, agent = server_with_curves(()), agents_of(bent)[0]
    for _ in range(2):
        call = server.open_round([agent.name])
        reply = agent.round(call.broadcast)
        assert b"curve" not in call.broadcast.to_bytes()
        assert b"quantiles" not in reply.to_bytes()
        server.accept(reply)
        server.close_round()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda q: q[:, ::-1],
        lambda q: np.full_like(q, np.nan),
        lambda q: 1e200 * np.arange(1.0, N_QUANTILES + 1) + 0.0 * q,
        lambda q: q[:1],
        lambda q: q.astype(np.int64),
    ],
)
def test_impossible_quantiles_are_refused(bent, spoil):
    server, agent = server_with_curves(), agents_of(bent)[0]
    reply = agent.round(server.open_round([agent.name]).broadcast)
    spoiled = replace(reply, quantiles=np.ascontiguousarray(spoil(reply.quantiles)))
    assert server.accept(Contribution.from_bytes(spoiled.to_bytes())) == 0
    assert server.accept(reply) == 1


def test_events_are_kept_only_as_long_as_they_are_needed(bent):
    for curves, needed in (((), False), ((0,), True)):
        agent, server = agents_of(bent)[0], server_with_curves(curves)
        assert agent.shard.events is not None
        run_rounds(server, OneByOneEngine([agent]), 2)
        assert (agent.shard.events is not None) == needed
        assert any(name.startswith("events.") for name in agent.to_record()) == needed


@pytest.mark.parametrize("saved_after", [0, 1, 3])
def test_a_saved_agent_goes_on_as_if_nothing_had_happened(bent, tmp_path, saved_after):
    def run(server, agents, n_rounds):
        run_rounds(server, OneByOneEngine(agents), n_rounds)

    kept, server = agents_of(bent), server_with_curves(seed=4, max_clusters=6)
    run(server, kept, 6)
    agents, resumed = agents_of(bent), server_with_curves(seed=4, max_clusters=6)
    run(resumed, agents, saved_after)
    for number, agent in enumerate(agents):
        agent.save(tmp_path / str(number))
    loaded = [Agent.load(tmp_path / str(number), disclosure=None) for number in range(len(agents))]
    run(resumed, loaded, 6 - saved_after)
    np.testing.assert_array_equal(resumed.kept_draws[-1].globals.coef, server.kept_draws[-1].globals.coef)


def test_a_restored_server_continues(bent):
    settings = FederationSettings(GramLayout(3), seed=4, max_clusters=6, curves=(0, 1))
    whole, engine = Server(settings), in_process(bent)
    run_rounds(whole, engine, 6)
    server, engine = Server(settings), in_process(bent)
    for _ in range(6):
        server = Server.from_bytes(settings, server.to_bytes())
        run_rounds(server, engine, 1)
    np.testing.assert_array_equal(server.kept_draws[-1].globals.coef, whole.kept_draws[-1].globals.coef)


def test_a_new_server_surveys_agents_that_have_curves_already(bent):
    first, second = server_with_curves(), server_with_curves()
    engine = in_process(bent)
    run_rounds(first, engine, 3)
    run_rounds(second, engine, 1)
    one, other = first.units.standardization, second.units.standardization
    np.testing.assert_array_equal(one.shift, other.shift)
    np.testing.assert_array_equal(one.curves.quantiles, other.curves.quantiles)


@pytest.mark.slow
def test_a_public_model_predicts_at_agents_and_loads(bent, tmp_path):
    server, agents = server_with_curves(seed=1, n_clusters=2, rounds=30), agents_of(bent)
    run_rounds(server, OneByOneEngine(agents[1:]), 25)
    server.model().save(tmp_path / "model")
    public = PublicModel.load(tmp_path / "model")
    own = bent.agent == agents[0].name
    # the first agent has taken no part, and has its events still
    moments = agents[0].predict(public, bent.X[own], bent.entity[own])
    assert np.corrcoef(moments.mean, bent.y[own])[0, 1] > 0.95
    loaded = fedhlcr.load(tmp_path / "model")
    assert loaded.n_features_in_ == 3
    assert loaded.curves == [0, 1]
    adapted = loaded.adapt(bent.X[own], bent.y[own], agent=bent.agent[own], entity=bent.entity[own])
    predicted = adapted.predict(bent.X[own], agent=bent.agent[own], entity=bent.entity[own])
    assert np.corrcoef(predicted, moments.mean)[0, 1] > 0.99


def test_agents_without_events_cannot_make_curves(bent):
    agent = agents_of(bent)[0]
    agent.shard.events = None
    with pytest.raises(BroadcastError, match="not kept theirs"):
        agent.round(server_with_curves().open_round([agent.name]).broadcast)


def test_an_agent_without_rows_takes_part(bent):
    agents = [*agents_of(bent), Agent("nobody", np.empty((0, 3)), np.empty(0))]
    server = server_with_curves(max_clusters=4)
    run_rounds(server, OneByOneEngine(agents), 3)
    assert len(server.history.records) == 3


def test_a_checkpoint_resumes_with_curves(bent, tmp_path):
    ids = {"agent": bent.agent, "entity": bent.entity}
    whole = FedHLCRRegressor(2, curves="auto", rounds=12).fit(bent.X, bent.y, **ids)
    part = FedHLCRRegressor(2, curves="auto", rounds=12, checkpoint=tmp_path / "run")
    part.fit(bent.X, bent.y, **ids)
    resumed = part.fit(bent.X, bent.y, **ids, resume=True)
    np.testing.assert_array_equal(resumed.curve_coef_, whole.curve_coef_)


def test_settings_refuse_what_cannot_be():
    with pytest.raises(ArgumentError, match="positions of columns, from 0 to 2"):
        server_with_curves((3,))
    with pytest.raises(ArgumentError, match="rule='blend' does not support `curves`"):
        server_with_curves((1,), rule="blend", n_clusters=2, **FIXED)


def test_broadcasts_are_checked(bent):
    server = server_with_curves()
    call = server.open_round(["0"])
    assert Broadcast.from_bytes(call.broadcast.to_bytes()).curve_columns == (0, 1, 2)


def test_columns_that_cannot_bend_are_refused_before_the_run(bent):
    with pytest.raises(ArgumentError, match="too few distinct values"):
        FedHLCRRegressor(curves=[2]).fit(bent.X, bent.y, agent=bent.agent, entity=bent.entity)
