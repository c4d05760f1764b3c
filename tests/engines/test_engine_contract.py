"""The contract of engines: whatever carries the messages, the model is the same and faults only delay."""

from __future__ import annotations

import logging
from functools import partial

import numpy as np
import pytest

from fedhlcr import FedHLCRRegressor
from fedhlcr.datasets import make_hlcr
from fedhlcr.engines.in_process import InProcessEngine
from fedhlcr.federation.run import Checkpoints, CountsBytes, run_round
from tests.engines.contract import CARRIERS, Tampered, forged, single
from tests.federations import OneByOneEngine, agents_of, assert_same_server, run_rounds, server_for

TABLE, _ = make_hlcr(12, 3, 5, 2, 2, 0.4, random_state=3)
PARAMS = {"seed": 3, "max_clusters": 6, "patience": None, "rounds": 100}


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL)


@pytest.fixture(params=CARRIERS)
def make(request, tmp_path):
    """How to make a carrier; its files are in a folder of its own."""
    if request.param == "flower":
        # its time limits are short, and a busy machine must not spend them
        request.getfixturevalue("clock")
    return partial(CARRIERS[request.param], TABLE, tmp_path)


@pytest.fixture
def carrier(make):
    return make()


def fresh(**params):
    return server_for(2, **{**PARAMS, **params})


def expected_after(n_rounds, **params):
    """The server after rounds with all agents one by one: the plainest engine there is."""
    server = fresh(**params)
    run_rounds(server, OneByOneEngine(agents_of(TABLE)), n_rounds)
    return server


def state_of(server):
    """All that later rounds depend on; not what was counted on the way."""
    return {name: np.asarray(value).tolist() for name, value in server.rule.to_record().items()}


def events_in(server):
    return server.rule.account.total().grams[:, 0].sum()


@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_the_same_seed_gives_the_same_model(carrier, participation):
    server = fresh(participation=participation)
    run_rounds(server, carrier.engine, 20)
    expected = expected_after(20, participation=participation)
    assert server.model().to_bytes() == expected.model().to_bytes()
    np.testing.assert_array_equal(
        [record.log_joint for record in server.history.records],
        [record.log_joint for record in expected.history.records],
    )


@pytest.mark.parametrize("fate", ["silent", "late", "away"])
def test_missing_replies_only_delay(carrier, fate):
    """Its last contribution stays, and it continues from there when it answers again."""
    server, gone = fresh(), carrier.devices[1]
    run_rounds(server, carrier.engine, 4)
    before = server.registry.accepted_round.copy()
    carrier.disturb(1, fate)
    run_round(server, carrier.engine)
    assert server.history.records[-1].n_accepted == 12 - len(gone)
    assert events_in(server) == pytest.approx(len(TABLE)), "the labels of those that are away stay in the sums"
    positions = server.registry.find(sorted(gone))
    np.testing.assert_array_equal(server.registry.accepted_round[positions], before[positions])
    carrier.disturb(1, "fine")
    # a device may need a round to be found again
    run_rounds(server, carrier.engine, 2)
    assert server.history.records[-1].n_accepted == 12
    assert set(server.registry.accepted_round) == {server.round}
    assert events_in(server) == pytest.approx(len(TABLE))


def test_late_replies_are_refused(carrier):
    server = fresh()
    run_rounds(server, carrier.engine, 3)
    carrier.disturb(2, "late")
    run_round(server, carrier.engine)
    carrier.disturb(2, "fine")
    assert server.history.records[-1].n_refused == 0
    run_round(server, carrier.engine)
    assert server.history.records[-1].n_refused == len(carrier.devices[2])


def test_a_dead_agents_labels_survive_many_rounds(carrier):
    server, gone = fresh(), carrier.devices[0]
    run_rounds(server, carrier.engine, 4)
    carrier.disturb(0, "away")
    run_rounds(server, carrier.engine, 6)
    assert events_in(server) == pytest.approx(len(TABLE))
    assert {server.history.records[row].n_asked for row in (-1, -2, -3)} == {12 - len(gone)}
    carrier.disturb(0, "fine")
    run_rounds(server, carrier.engine, 2)
    assert set(server.registry.accepted_round) == {server.round}


def test_a_withdrawn_agent_is_forgotten(carrier):
    server, expected, one_by_one = fresh(), fresh(), OneByOneEngine(agents_of(TABLE))
    leaver = sorted(carrier.devices[1])[0]
    for one, engine in ((server, carrier.engine), (expected, one_by_one)):
        run_rounds(one, engine, 5)
        one.forget(leaver)
        run_rounds(one, engine, 5)
    n_events = (TABLE.agent == int(leaver)).sum()
    assert events_in(server) == pytest.approx(len(TABLE) - n_events)
    assert server.history.records[-1].n_asked == 11
    assert state_of(server) == state_of(expected)


def test_a_resumed_run_is_the_same_bit_for_bit(make, carrier, tmp_path):
    whole, server = fresh(), fresh()
    checkpoints = Checkpoints(tmp_path / "checkpoint")
    run_rounds(server, carrier.engine, 6)
    checkpoints.save(server, carrier.engine)
    carrier.restart()
    server = checkpoints.resume(server.settings, carrier.engine)
    run_rounds(server, carrier.engine, 6)
    (tmp_path / "whole").mkdir()
    run_rounds(whole, make.func(TABLE, tmp_path / "whole").engine, 12)
    assert_same_server(server, whole, same_bytes=not isinstance(carrier.engine, CountsBytes))


def test_the_order_of_replies_does_not_matter(carrier):
    rng = np.random.default_rng(5)
    server = fresh()
    shuffled = Tampered(carrier.engine, lambda replies: [replies[i] for i in rng.permutation(len(replies))])
    run_rounds(server, shuffled, 8)
    assert state_of(server) == state_of(expected_after(8))


def test_duplicates_and_replies_of_earlier_rounds_are_refused(carrier):
    old = []

    def replay(replies):
        again = [*old, *replies, *replies]
        old[:] = replies
        return again

    server = fresh()
    run_rounds(server, Tampered(carrier.engine, replay), 8)
    assert [record.n_refused for record in server.history.records] == [12] + [24] * 7
    assert [record.n_accepted for record in server.history.records] == [12] * 8
    assert state_of(server) == state_of(expected_after(8))


def test_broken_replies_are_refused_and_harm_nobody(carrier):
    server, n_forged = fresh(), []

    def forge(replies):
        n_forged.append(len(forged(replies[0])))
        return [*forged(replies[0]), *replies]

    run_rounds(server, carrier.engine, 2)
    run_rounds(server, Tampered(carrier.engine, forge), 6)
    assert [record.n_refused for record in server.history.records] == [0, 0, *n_forged]
    assert state_of(server) == state_of(expected_after(8))


def test_bytes_are_counted_for_each_device(carrier):
    """One copy of the broadcast for a device, however many agents it has; every contribution counts."""
    sizes, server = [], fresh(participation=0.5)

    def weigh(replies):
        sizes.append(sum(len(one.to_bytes()) for one in replies))
        return replies

    engine = Tampered(carrier.engine, weigh)
    while server.rule is None:
        run_round(server, engine)
    sizes.clear()
    for _ in range(4):
        call = server.open_round(engine.agents())
        asked = sum(not names.isdisjoint(call.agents) for names in carrier.devices)
        server.count_sent(engine.n_copies(call))
        for reply in engine.deliver(call):
            server.accept(reply)
        record = server.close_round()
        assert record.bytes_down == asked * len(call.broadcast.to_bytes())
        assert record.bytes_up == sizes[-1]


def test_mods_run_at_the_agents(make):
    seen = []

    def witness(broadcast, answer):
        contributions = answer(broadcast)
        seen.append((broadcast.round, frozenset(contributions.agents)))
        return contributions

    carrier, server = make([witness]), fresh()
    run_rounds(server, carrier.engine, 4)
    for number in range(4):
        agents = [names for round_number, names in seen if round_number == number]
        assert frozenset().union(*agents) == frozenset().union(*carrier.devices)
    assert state_of(server) == state_of(expected_after(4))


def test_an_estimator_takes_an_engine_of_ones_own(carrier):
    """The factory is given the table's events, and what the estimator was told of faults and threads."""
    given = {}

    def factory(hierarchy, **params):
        given.update(params)
        assert len(hierarchy.y) == len(TABLE)
        here = InProcessEngine.from_hierarchy(hierarchy, **params)
        carried = Tampered(carrier.engine, list)
        carried.entity_grams = here.entity_grams
        return carried

    fields = {"X": TABLE.X, "y": TABLE.y, "agent": TABLE.agent, "entity": TABLE.entity}
    own = FedHLCRRegressor(engine=factory, rounds=8, n_threads=1, random_state=7).fit(**fields)
    plain = FedHLCRRegressor(rounds=8, random_state=7).fit(**fields)
    assert given == {"failure_rate": 0.0, "seed": 7, "n_threads": 1}
    np.testing.assert_array_equal(own.posterior_.draws.coef, plain.posterior_.draws.coef)
    predicted = (model.predict(TABLE.X, TABLE.agent, TABLE.entity) for model in (own, plain))
    np.testing.assert_allclose(*predicted)


def test_replies_can_be_told_apart(carrier):
    """The suite's own splitting of replies loses nobody."""
    server = fresh()
    call = server.open_round(carrier.engine.agents())
    names = [one.agent for reply in carrier.engine.deliver(call) for one in single(reply)]
    assert sorted(names) == sorted(call.agents)
