"""An agent alone: the same as in company, at home with any number of events, and safe from restarts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from fedhlcr import FedHLCRRegressor
from fedhlcr.datasets import make_hlcr
from fedhlcr.federation.agent import Agent
from fedhlcr.federation.run import run_round
from tests.federations import OneByOneEngine, agents_of, assert_same_server, in_process, run_rounds, server_for


@pytest.fixture(scope="module")
def few(small):
    """Few agents, for runs in which every message goes through bytes."""
    table, _ = small
    return table[table.agent < 12]


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("participation", [1.0, 0.3])
def test_agents_alone_equal_agents_in_shards(few, participation):
    """Bit for bit: messages through bytes one by one, in any order, against stacked arrays on threads."""
    table = few
    servers = []
    for engine in (
        in_process(table),
        in_process(table, n_threads=2),
        OneByOneEngine(agents_of(table)),
        OneByOneEngine(agents_of(table), shuffle=5),
    ):
        server = server_for(3, seed=2, participation=participation, rounds=40, patience=None)
        run_rounds(server, engine, 40)
        servers.append(server)
    for other in servers[1:]:
        assert_same_server(servers[0], other)


@pytest.mark.slow
def test_agents_alone_equal_agents_in_several_shards():
    table, _ = make_hlcr(1100, 2, 2, 1, 2, 0.5, random_state=3)
    servers = []
    for engine in (in_process(table, n_threads=2), OneByOneEngine(agents_of(table), shuffle=1)):
        server = server_for(1, seed=2, participation=0.7, max_clusters=4, rounds=3, patience=None)
        run_rounds(server, engine, 4)
        assert len(server.rule.account.pages) == 3
        servers.append(server)
    assert_same_server(*servers)


@pytest.mark.slow
@pytest.mark.parametrize("take_part", [True, False])
def test_an_agent_predicts_for_itself_as_the_estimator_does(few, take_part):
    """From what is public and its own matrices, whether it took part or not."""
    table = few
    model = FedHLCRRegressor(rounds=40, patience=None, random_state=3)
    model.fit(table.X, table.y, agent=table.agent, entity=table.entity)
    agents = agents_of(table)
    if take_part:
        server = server_for(3, seed=3, rounds=40, patience=None)
        run_rounds(server, OneByOneEngine(agents), 41)
    else:
        server = model.server_
    own = table.agent == table.agent[0]
    for entity, ids in [
        (table.entity[own], {"entity": table.entity[own]}),
        (np.full(own.sum(), "new"), {}),
        (None, {}),
    ]:
        moments = agents[0].predict(server.model(), table.X[own], entity)
        mean, std = model.predict(table.X[own], agent=table.agent[own], return_std=True, **ids)
        np.testing.assert_array_equal(moments.mean, mean)
        np.testing.assert_array_equal(moments.std, std)


def test_ids_of_any_type_are_accepted_unless_missing():
    for name in (("NY", "UA"), 7, 7.5, "x", np.datetime64("2024-01-02")):
        agent = Agent(name, np.eye(3), [1.0, 2.0, 3.0], ["a", "b", "c"])
        assert len(agent.accepted_labels) == 3
    for name in (None, float("nan")):
        for n_events in (0, 2):
            with pytest.raises(ValueError, match="`agent` is missing"):
                Agent(name, np.eye(2)[:n_events], [1.0, 2.0][:n_events])


@pytest.mark.slow
def test_any_number_of_events_is_accepted(rng):
    """None, one, and a hundred thousand, beside ordinary agents."""

    def agent_with(name, n_events, n_entities):
        entity = np.arange(n_events) % max(n_entities, 1)
        X = rng.normal(size=(n_events, 2))
        slopes = np.array([[1.0, 2.0], [-2.0, 0.5]])[entity % 2]
        y = (slopes * X).sum(axis=1) + 0.1 * rng.normal(size=n_events)
        return Agent(name, X, y, entity, disclosure=None)

    agents = [agent_with("none", 0, 0), agent_with("one", 1, 1), agent_with("many", 100_000, 50)]
    agents += [agent_with(f"ordinary {i}", 40, 8) for i in range(10)]
    server, engine = server_for(2, seed=1, rounds=60, patience=None), OneByOneEngine(agents)
    run_rounds(server, engine, 61)
    record = server.history.records[-1]
    assert record.n_accepted == 13
    assert record.n_refused == 0
    assert record.n_clusters == 2
    assert record.shared["noise_scale"] == pytest.approx(0.1, rel=0.05)
    model = server.model()
    X = np.array([[1.0, 0.0], [0.0, 1.0]])
    for agent in agents:
        assert np.isfinite(agent.predict(model, X, ["0", "1"]).mean).all()
    known = agents[2].predict(model, X, ["0", "1"])
    np.testing.assert_allclose(known.mean, [1.0, 0.5], atol=0.05)
    assert agents[0].predict(model, X).std.min() > known.std.max()


def test_an_agent_without_any_event_joins_no_cluster():
    agent = Agent("none", np.empty((0, 2)), [])
    other = Agent("some", np.eye(2), [1.0, 2.0], ["a", "b"], disclosure=None)
    server, engine = server_for(2, max_clusters=2), OneByOneEngine([agent, other])
    run_rounds(server, engine, 3)
    assert server.history.records[-1].n_accepted == 2
    assert server.rule.account.total().entity_counts.sum() == 2


def test_a_run_with_only_empty_agents_is_an_error():
    agents = [Agent(name, np.empty((0, 2)), []) for name in "ab"]
    server, engine = server_for(2), OneByOneEngine(agents)
    with pytest.raises(RuntimeError, match="no agent has reported an event in 100 surveys"):
        run_rounds(server, engine, 101)


def test_columns_must_agree():
    agent = Agent("a", np.eye(2), [1.0, 2.0], disclosure=None)
    call = server_for(3).open_round(["a"])
    with pytest.raises(ValueError, match="3 features, but the agents here have 2"):
        agent.round(call.broadcast)


def test_a_broadcast_that_comes_late_is_not_answered(small):
    """It would overwrite labels the server has accepted since."""
    table, _ = small
    agents = agents_of(table)
    server, engine = server_for(3, max_clusters=6), OneByOneEngine(agents)
    run_rounds(server, engine, 3)
    old = server.open_round(engine.agents()).broadcast.acknowledging(server.round)
    server.close_round()
    run_rounds(server, engine, 2)
    held = agents[0].shard.pending.copy()
    with pytest.raises(ValueError, match="older than one that was answered already"):
        agents[0].round(old)
    np.testing.assert_array_equal(agents[0].shard.pending, held)


def test_an_agent_of_one_run_refuses_another(small):
    table, _ = small
    agents = agents_of(table)
    run_rounds(server_for(3, seed=1), OneByOneEngine(agents), 2)
    other = server_for(3, seed=2)
    with pytest.raises(ValueError, match="another run"):
        run_round(other, OneByOneEngine(agents))


@pytest.mark.slow
def test_agents_outlive_their_server(few):
    """One that begins anew, with nothing kept, hears from the same agents what it heard at first."""
    table = few
    agents = agents_of(table)
    models = []
    for n_rounds in (20, 5, 20):
        server = server_for(3, seed=1, rounds=20, patience=None)
        run_rounds(server, OneByOneEngine(agents), 1 + n_rounds)
        models.append(server.model())
        np.testing.assert_allclose(server.units.standardization.scale[:-1], table.X.std(axis=0))
    np.testing.assert_allclose(models[0].draws.coef, models[2].draws.coef, rtol=1e-6, atol=1e-9)


def test_an_agent_predicts_with_the_model_of_another_run(few):
    table = few
    own = table.agent == table.agent[0]
    events = table.X[own], table.entity[own]
    units_like = make_hlcr(40, 4, 6, 3, 3, 0.3, random_state=11)[0]
    other = server_for(3, seed=5, rounds=20)
    run_rounds(other, OneByOneEngine(agents_of(units_like[units_like.agent < 10])), 21)
    fresh, busy = agents_of(table)[0], agents_of(table)
    run_rounds(server_for(3, seed=6), OneByOneEngine(busy), 3)
    expected = fresh.predict(other.model(), *events)
    np.testing.assert_allclose(busy[0].predict(other.model(), *events).mean, expected.mean, rtol=1e-6)


def test_agents_belong_to_one_engine(small):
    table, _ = small
    engine = in_process(table)
    with pytest.raises(ValueError, match="belong to an engine already"):
        type(engine)(engine.everyone)


@pytest.mark.slow
def test_a_saved_agent_goes_on_as_if_never_stopped(few, tmp_path):
    table = few
    servers = []
    for restart in (False, True):
        agents = agents_of(table)
        server = server_for(3, seed=4, rounds=30, patience=None)
        for number in range(30):
            run_round(server, OneByOneEngine(agents))
            if restart and number in (0, 3, 17):
                for position, agent in enumerate(agents):
                    agent.save(tmp_path / f"{position}.state")
                agents = [
                    Agent.load(tmp_path / f"{position}.state", disclosure=None) for position in range(len(agents))
                ]
        servers.append(server)
    assert_same_server(*servers)


def test_a_damaged_state_gives_way_to_the_one_before(small, tmp_path):
    table, _ = small
    agents = agents_of(table)
    server, engine = server_for(3), OneByOneEngine(agents)
    path = tmp_path / "agent.state"
    run_rounds(server, engine, 3)
    agents[0].save(path)
    before = agents[0].accepted_labels
    run_rounds(server, engine, 3)
    agents[0].save(path)
    path.write_bytes(path.read_bytes()[:200])
    assert Agent.load(path).accepted_labels == before


KEEPER = """
import sys
import numpy as np
from fedhlcr.federation.agent import Agent
rng = np.random.default_rng(0)
agent = Agent("a", rng.normal(size=(3000, 10)), rng.normal(size=3000), np.arange(3000) // 3)
while True:
    agent.save(sys.argv[1])
    print("saved", flush=True)
"""


@pytest.mark.slow
def test_an_agent_killed_while_saving_can_be_restored(tmp_path):
    path = tmp_path / "agent.state"
    rng = np.random.default_rng(8)
    process = None
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", KEEPER, str(path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(rng.uniform(0.0, 0.03))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert Agent.load(path).name == "a"
