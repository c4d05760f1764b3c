"""The engine on a grid without sockets: nodes that fail, come late, or disagree about columns."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the flower extra is not installed")


from fedhlcr.engines.flower import client_app
from fedhlcr.engines.flower.engine import FlowerEngine, NotEnoughNodesError
from fedhlcr.engines.flower.pauses import WaitTimes
from fedhlcr.engines.flower.records import RequestType
from fedhlcr.federation.messages import Contribution
from fedhlcr.federation.run import run_round
from tests.federations import server_for
from tests.flower_grid import LocalGrid, LocalNode, assert_same_model, history_of, run_app, state_of

pytestmark = pytest.mark.usefixtures("clock")


def test_node_killed_in_a_round_continues_from_its_labels(nodes, table, tmp_path, logged):
    victim = nodes[101]
    held = {}

    def dies(message):
        if message.metadata.group_id == "4" and not held:
            held["labels"], held["round"] = state_of(victim).shard.pending.copy(), 3
            return True
        return False

    def comes_back(message):
        if message.metadata.group_id == "6":
            victim.online = True
        return False

    victim.dies_at, nodes[100].dies_at = dies, comes_back
    run_app(nodes, tmp_path, rounds=10)
    assert "node 101 does not take part now: NodeUnavailable" in logged.text
    history = history_of(tmp_path)
    assert [record["n_accepted"] for record in history[1:]] == [12, 12, 12, 8, 8, 8, 12, 12, 12, 12]
    first_back = next(m for m in victim.requests if m.metadata.group_id == "7")
    assert set(first_back.content.config_records["Letter"]["acknowledged"]) == {held["round"]}
    shard = state_of(victim).shard
    assert set(shard.accepted_round) == {9}
    assert "start again" not in logged.text


def test_replies_that_arrived_while_others_were_asked_count(nodes, tmp_path, clock, logged):
    """However long it takes to ask all nodes: here, longer than a request is valid."""
    for node in nodes.values():

        def handle(node_id, message, handle=node.handle):
            clock.sleep(3.0)
            return handle(node_id, message)

        node.handle = handle
    run_app(nodes, tmp_path, round_timeout=1.0)
    assert [record["n_accepted"] for record in history_of(tmp_path)] == [12] * 9
    assert "does not take part now" not in logged.text


def test_labels_of_a_reply_that_was_never_sent_are_given_up(nodes, tmp_path):
    """The server never heard of them, so nobody may go on from them."""
    victim = nodes[101]
    before = {}

    def handle(node_id, message, handle=victim.handle):
        victim.silent = message.metadata.group_id == "4"
        if victim.silent:
            before["accepted"] = state_of(victim).shard.pending.copy()
        reply = handle(node_id, message)
        if message.metadata.group_id == "5":
            before["told"] = message.content.config_records["Letter"]["acknowledged"]
            before["went on from"] = state_of(victim).shard.accepted.copy()
        return reply

    victim.handle = handle
    run_app(nodes, tmp_path)
    assert set(before["told"]) == {3}
    np.testing.assert_array_equal(before["went on from"], before["accepted"])


def test_node_whose_reply_is_lost_continues_from_accepted_labels(nodes, tmp_path, logged):
    late = nodes[102]

    def slow(message):
        late.late_by = 1000 if message.metadata.group_id == "3" else 0
        return False

    late.dies_at = slow
    run_app(nodes, tmp_path, rounds=12)
    assert "node 102 does not take part now: Silence" in logged.text
    history = history_of(tmp_path)
    assert history[3]["n_accepted"] == 8
    assert history[-1]["n_accepted"] == 12, "it is asked again once it has answered a roll call"
    told = [
        message.content.config_records["Letter"]["acknowledged"]
        for message in late.requests
        if message.metadata.message_type == RequestType.ROUND and int(message.metadata.group_id) > 3
    ]
    assert set(told[0]) == {2}, "round 3 was never accepted"


def test_late_reply_is_delivered_and_refused(nodes, table, tmp_path):
    carrier = FlowerEngine(LocalGrid(nodes), "experiment", WaitTimes(3, 5.0, 0.3))
    carrier.gather()
    server = server_for(table.X.shape[1], seed=3, rounds=6)
    records = []
    for number in range(4):
        nodes[102].late_by = 5 if number == 1 else 0
        records.append(run_round(server, carrier))
    assert [record.n_accepted for record in records] == [12, 8, 12, 12]
    assert [record.n_refused for record in records] == [0, 0, 4, 0]


def test_late_reply_of_some_agents_brings_back_the_whole_node(nodes, table, tmp_path):
    carrier = FlowerEngine(LocalGrid(nodes), "experiment", WaitTimes(3, 5.0, 0.3))
    carrier.gather()

    def deaf_to_roll_calls(message):
        nodes[102].silent = message.metadata.message_type == RequestType.ROLL_CALL
        return False

    nodes[102].dies_at = deaf_to_roll_calls
    server = server_for(table.X.shape[1], seed=3, rounds=6, participation=0.5)
    for number in range(5):
        # the survey asks half of the agents, and then the others
        nodes[102].late_by = 5 if number == 2 else 0
        run_round(server, carrier)
    assert carrier.present[102] == {"2", "5", "8", "11"}


def test_node_that_joins_late_or_under_a_new_number_takes_part(nodes, tmp_path, logged):
    late = nodes.pop(102)

    def joins(message):
        if message.metadata.group_id == "3":
            nodes[102] = late
        if message.metadata.group_id == "5":
            nodes[101].online = False
            nodes[777] = LocalNode(nodes[101].config)
        return False

    nodes[100].dies_at = joins
    run_app(nodes, tmp_path, rounds=9)
    history = history_of(tmp_path)
    assert history[2]["n_asked"] == 8
    assert history[-1]["n_accepted"] == 12
    assert "node 777 is ready: 4 agents" in logged.text
    assert set(state_of(nodes[777]).shard.accepted_round) == {8}


def test_two_nodes_cannot_hold_one_agent(nodes, tmp_path, logged):
    nodes[103] = LocalNode({**nodes[100].config, "state-dir": str(tmp_path / "another")})
    run_app(nodes, tmp_path)
    assert "node 103 does not take part now: DoubleAgent: 4 of its agents are at another node already" in logged.text


def test_node_cannot_reply_for_agents_of_another_node(nodes, tmp_path, monkeypatch):
    """A contribution in the name of another node's agent is not handed over."""
    honest = client_app.Node.answer

    def forge(self, request):
        answers = honest(self, request)
        one = Contribution.from_bytes(answers[0])
        stolen = "0" if one.agent != "0" else "1"
        return [*answers, replace(one, agent=stolen).to_bytes()]

    monkeypatch.setattr(client_app.Node, "answer", forge)
    carrier = FlowerEngine(LocalGrid(nodes), "experiment", WaitTimes(3, 5.0, 1.0))
    carrier.gather()
    server = server_for(7, seed=3)
    handed = [reply.agent for reply in carrier.deliver(server.open_round(carrier.agents()))]
    assert sorted(handed, key=int) == [str(i) for i in range(12)]


def test_broken_replies_do_not_stop_the_other_nodes(nodes, tmp_path, monkeypatch, logged):
    honest = client_app.Node.answer

    def answer(self, request):
        answers = honest(self, request)
        return [b"nonsense", answers[0][:-3]] if self.options.data_path.stem == "0" else answers

    monkeypatch.setattr(client_app.Node, "answer", answer)
    run_app(nodes, tmp_path)
    history = history_of(tmp_path)
    assert all(record["n_accepted"] == 8 for record in history)


def test_columns_of_most_nodes_are_used_in_any_order(nodes, table, tmp_path, logged):
    expected = run_app(nodes, tmp_path)
    names = table.feature_names
    nodes[101].config["features"] = ",".join(reversed(names))
    assert_same_model(run_app(nodes, tmp_path, experiment="turned"), expected, tolerance=0)
    nodes[101].config["features"] = ",".join(names[1:])
    run_app(nodes, tmp_path, experiment="fewer")
    assert f"ColumnsError: the federation uses the columns {', '.join(names)}" in logged.text


def test_columns_of_most_nodes_are_used_whoever_answers_first(nodes, table, tmp_path, logged):
    nodes[101].config["features"] = ",".join(table.feature_names[1:])
    nodes[102].late_by = 3
    run_app(nodes, tmp_path)
    assert "2 nodes with 8 agents take part; columns: x0," in logged.text
    assert "node 101 does not take part now: ColumnsError" in logged.text


def test_run_fails_when_nodes_use_different_columns(nodes, table, tmp_path):
    nodes[101].config["features"] = ",".join(table.feature_names[1:])
    with pytest.raises(NotEnoughNodesError, match="3 nodes would be ready, but they use different columns"):
        run_app(nodes, tmp_path, min_nodes=3, wait_for_nodes=1.0)


def test_too_few_nodes_fail_after_the_waiting_time(nodes, tmp_path):
    nodes[102].config["features"] = "nonsense"
    with pytest.raises(NotEnoughNodesError, match=r"2 nodes are ready after 1 seconds, but at least 3 .*node 102"):
        run_app(nodes, tmp_path, min_nodes=3, wait_for_nodes=1.0)
    with pytest.raises(NotEnoughNodesError, match="0 nodes are ready"):
        run_app({}, tmp_path, wait_for_nodes=0.2)


def test_nodes_that_are_all_slow_are_asked_again_at_once(nodes, table, tmp_path):
    carrier = FlowerEngine(LocalGrid(nodes), "experiment", WaitTimes(3, 2.0, 0.2))
    carrier.gather()
    server = server_for(table.X.shape[1], seed=3, rounds=60)
    run_round(server, carrier)
    for node in nodes.values():
        node.dies_at = lambda message, node=node: setattr(
            node, "late_by", 6 if message.metadata.message_type == RequestType.ROUND else 0
        )
    for _ in range(3):
        assert run_round(server, carrier).n_accepted == 0
    for node in nodes.values():
        node.late_by, node.dies_at = 0, lambda message: False
    for _ in range(2):
        last = run_round(server, carrier)
    assert last.n_accepted == 12


def test_silent_node_delays_one_round_only(nodes, tmp_path, logged):
    def falls_silent(message):
        nodes[102].silent |= message.metadata.group_id == "2"
        return False

    nodes[102].dies_at = falls_silent
    run_app(nodes, tmp_path)
    history = history_of(tmp_path)
    assert [record["n_asked"] for record in history] == [12, 12, 12, *[8] * 6]
    assert logged.text.count("Silence") == 1


@pytest.mark.parametrize("late_by", [4, 8, 1000])
def test_slow_node_is_asked_less_and_less_often(late_by, nodes, table, clock):
    carrier = FlowerEngine(LocalGrid(nodes), "experiment", WaitTimes(3, 5.0, 0.2))
    carrier.gather()
    server = server_for(table.X.shape[1], seed=3, rounds=60)

    def slow(message):
        nodes[102].late_by = late_by if message.metadata.message_type == RequestType.ROUND else 0
        return False

    run_round(server, carrier)
    nodes[102].dies_at = slow
    begin = clock.monotonic()
    asked = []
    for _ in range(40):
        asked.append(run_round(server, carrier).n_asked)
        # what a round takes without waiting
        clock.sleep(0.05)
    assert asked.count(12) <= 5
    assert clock.monotonic() - begin < 40 * 0.2
