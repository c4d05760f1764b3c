"""Secure aggregation on a grid without sockets: nodes that fail in any of the four exchanges, and servers that lie."""

import stat

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the flower extra is not installed")

from fedhlcr.engines.flower import client_app
from fedhlcr.engines.flower.engine import FlowerEngine, NotEnoughNodesError
from fedhlcr.engines.flower.node import Node
from fedhlcr.engines.flower.node_options import NodeOptions
from fedhlcr.engines.flower.open_sum import KIND, VERSION, OpenSum
from fedhlcr.engines.flower.options import RunOptions
from fedhlcr.engines.flower.pauses import WaitTimes
from fedhlcr.engines.flower.peers import NodeIdentity
from fedhlcr.engines.flower.records import RequestType, SumMessage
from fedhlcr.federation.run import run_round
from fedhlcr.privacy import terms as terms_module
from fedhlcr.privacy.roster import Roster
from fedhlcr.privacy.secure_sum import SecureSum
from fedhlcr.privacy.terms import SumStage, write_request
from fedhlcr.storage import codec
from fedhlcr.storage.records import to_record
from tests.federations import server_for
from tests.flower_grid import LocalGrid, LocalNode, history_of, node_config, run_app, state_of, write_table
from tests.flower_keys import assert_nodes_hold_the_total, keyed_nodes, server_at

pytestmark = pytest.mark.usefixtures("clock")

OPTIONS = {"aggregation": "secure", "min-cohort": 3}
STAGES = [stage.value for stage in SumStage if stage is not SumStage.OVER]


@pytest.fixture
def nodes(tmp_path, table):
    """Four nodes with three agents each, and the keys of all."""
    return keyed_nodes(tmp_path, table)


def engine_for(nodes, seconds=5.0):
    engine = FlowerEngine(LocalGrid(nodes), "experiment", WaitTimes(3, 5.0, seconds, 3))
    engine.gather()
    return engine


def secure_server(**more):
    return server_for(7, aggregation="secure", min_cohort=3, seed=3, max_clusters=8, patience=None, **more)


def stage_of(message):
    """The stage of a message of a secure sum, or nothing."""
    record = message.content.config_records.get("SumMessage")
    return "" if record is None else codec.kind_of(record["message"]).removeprefix("secure-sum-ask-")


def options_of(node):
    return NodeOptions.from_context(node.config, {})


def node_of(node):
    return Node(options_of(node), "experiment")


@pytest.mark.slow
def test_a_run_gives_the_total_that_nodes_hold(nodes, tmp_path):
    run_app(nodes, tmp_path, **OPTIONS)
    history = history_of(tmp_path)
    assert [record["n_accepted"] for record in history] == [24, *[12] * 8], "the survey has two sums"
    settings = RunOptions.from_config({**OPTIONS, "rounds": 8, "seed": 3}).settings(7)
    assert_nodes_hold_the_total(nodes, server_at(tmp_path / "out" / "experiment.checkpoint", settings))


def test_simulated_nodes_take_part_without_keys(table, tmp_path):
    path = write_table(tmp_path / "all.csv", table)
    config = {f"simulation.{name}": value for name, value in node_config(path, table).items()}
    config["output-dir"] = str(tmp_path / "out")
    nodes = {200 + i: LocalNode({"partition-id": i, "num-partitions": 3}, run_config=config) for i in range(3)}
    run_app(nodes, tmp_path, rounds=2, **OPTIONS, **config)
    assert [record["n_accepted"] for record in history_of(tmp_path)] == [24, 12, 12]


def test_a_node_that_signs_wrongly_does_not_spoil_the_round(nodes, logged, monkeypatch):
    server, engine = secure_server(), engine_for(nodes)
    honest, options = NodeIdentity.sign, options_of(nodes[101])
    wrong = NodeIdentity.read(options.key_path, None, options.state_dir).key.private_numbers()

    def sign(self, data):
        return honest(self, data[1:] if self.key.private_numbers() == wrong else data)

    monkeypatch.setattr(NodeIdentity, "sign", sign)
    run_round(server, engine)
    assert "round 0: wrong messages came from 101." in logged.text
    assert server.history.records[-1].n_accepted == 9


def test_nothing_but_masked_sums_leaves_a_node_in_a_round(nodes, tmp_path):
    run_app(nodes, tmp_path, **OPTIONS)
    for node in nodes.values():
        kinds = {message.metadata.message_type for message in node.requests}
        assert kinds == {RequestType.ROLL_CALL, RequestType.SUM, RequestType.MODEL}


def test_replies_have_the_same_size_at_all_nodes(nodes, monkeypatch):
    sizes = {}
    honest = Node.add_up

    def add_up(self, asked, request):
        reply = honest(self, asked, request)
        kind, terms = codec.kind_of(reply), self.open_sum._last()
        sizes.setdefault((kind, terms.round, terms.epoch), set()).add(len(reply))
        return reply

    monkeypatch.setattr(Node, "add_up", add_up)
    server, engine = secure_server(), engine_for(nodes)
    for _ in range(4):
        run_round(server, engine)
    masked = [found for (kind, *_), found in sizes.items() if kind == "secure-sum-masked"]
    assert len(masked) == 4
    # signatures vary by a few bytes, whatever is signed
    assert all(len(found) == 1 for key, found in sizes.items() if key[0] != "secure-sum-keys")


@pytest.mark.parametrize(
    "fault",
    ["silent", "crashed", *(pytest.param(fault, marks=pytest.mark.slow) for fault in ("gone", "late"))],
)
@pytest.mark.parametrize("stage", STAGES)
def test_a_node_may_fail_in_any_exchange(stage, fault, nodes, monkeypatch):
    server, engine = secure_server(), engine_for(nodes, 0.3)
    for _ in range(4):
        run_round(server, engine)
    victim, honest = nodes[102], nodes[102].handle

    def handle(node_id, message):
        if stage_of(message) == stage and fault == "silent":
            # it has done its work, and the reply is lost
            victim.silent = True
        victim.late_by = 5 if stage_of(message) == stage and fault == "late" else 0
        if stage_of(message) == stage and fault == "crashed":
            with monkeypatch.context() as patch:
                # killed after the labels are saved, but before the secrets are
                patch.setattr(OpenSum, "_write", lambda self, terms, device: 1 / 0)
                return honest(node_id, message)
        return honest(node_id, message)

    victim.handle = handle
    victim.dies_at = lambda message: fault == "gone" and stage_of(message) == stage
    record = run_round(server, engine)
    assert record.n_accepted == (12 if stage == "unmasking" else 9), "who has sent masked values counts"
    assert_nodes_hold_the_total(nodes, server)
    victim.handle, victim.dies_at = honest, lambda message: False
    victim.online, victim.silent, victim.late_by = True, False, 0
    monkeypatch.setattr("fedhlcr.engines.flower.engine.ASK_AGAIN", 0.0)
    engine.nodes._dismissed.clear()
    records = [run_round(server, engine) for _ in range(2)]
    assert records[-1].n_accepted == 12
    assert_nodes_hold_the_total(nodes, server)


def test_too_few_nodes_left_make_a_round_void(nodes, logged):
    server, engine = secure_server(), engine_for(nodes, 0.3)
    for _ in range(4):
        run_round(server, engine)
    before = server.rule.account.integers().copy()
    for number in (102, 103):
        nodes[number].dies_at = lambda message: stage_of(message) == "masked"
    assert run_round(server, engine).n_accepted == 0
    assert "is void, and nothing is lost: 2 parties sent masked values" in logged.text
    np.testing.assert_array_equal(server.rule.account.integers(), before)
    assert_nodes_hold_the_total(nodes, server)


@pytest.mark.parametrize("has_new_table", [False, True])
def test_a_node_that_lost_its_state_or_table_costs_an_epoch(has_new_table, nodes, table, logged):
    server, engine = secure_server(), engine_for(nodes)
    for _ in range(4):
        run_round(server, engine)
    own = options_of(nodes[101])
    if has_new_table:
        rows = np.isin(table.agent.astype(str), state_of(nodes[101]).names)
        write_table(own.data_path, table[rows][2:])
    else:
        for file in own.state_dir.glob("experiment.state*"):
            file.unlink()
    assert run_round(server, engine).n_accepted == 9
    assert "a new epoch begins" in logged.text
    assert run_round(server, engine).n_accepted == 12
    assert_nodes_hold_the_total(nodes, server)


@pytest.mark.parametrize("is_away", [False, True])
def test_a_withdrawn_agent_removes_its_sums(is_away, nodes, logged):
    server, engine = secure_server(), engine_for(nodes, 0.3)
    for _ in range(4):
        run_round(server, engine)
    before = server.rule.account.total().entity_counts.sum()
    nodes[102].dies_at = lambda message: is_away
    server.forget("2")
    for _ in range(3):
        run_round(server, engine)
        nodes[102].dies_at, nodes[102].online = lambda message: False, True
    assert server.registry.accepted_round[server.registry.find(["2"])[0]] < 0
    assert_nodes_hold_the_total(nodes, server)
    own = np.diff(state_of(nodes[102]).shard.agent_start)[state_of(nodes[102]).names.index("2")]
    assert server.rule.account.total().entity_counts.sum() == before - own
    assert ("a new epoch begins" in logged.text) == is_away


def test_secrets_are_in_a_private_file_and_only_during_a_round(nodes, tmp_path):
    server, engine = secure_server(), engine_for(nodes)
    seen = []

    def look(message):
        path = node_of(nodes[100]).open_sum.path
        if path.exists():
            record = codec.decode(path.read_bytes(), KIND, VERSION)
            seen.append((stage_of(message), "device.values" in record))
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        return False

    nodes[100].dies_at = look
    for _ in range(3):
        run_round(server, engine)
    later = [entry for entry in seen if entry[0] != "keys"]
    assert set(later) == {("shares", True), ("masked", True), ("unmasking", True)}
    assert {entry[1] for entry in seen if entry[0] == "keys"} == {False}
    files = {path.name for path in options_of(nodes[100]).state_dir.iterdir()}
    assert files == {"experiment.lock", "experiment.secure", "experiment.state", "experiment.state.previous"}
    # a round that is not completed leaves secrets behind, until the model comes
    nodes[100].dies_at = lambda message: stage_of(message) == "masked"
    run_round(server, engine)
    path = node_of(nodes[100]).open_sum.path
    assert "device.values" in codec.decode(path.read_bytes(), KIND, VERSION)
    nodes[100].dies_at, nodes[100].online = look, True
    engine.keep_model(server.model())
    assert "device.values" not in codec.decode(path.read_bytes(), KIND, VERSION)


@pytest.mark.parametrize("stage", STAGES)
def test_a_node_answers_each_message_once(stage, nodes):
    """A server that sends a message again, with whatever content, gets no second answer."""
    server, engine = secure_server(), engine_for(nodes)
    for _ in range(3):
        run_round(server, engine)
    first = [message for message in nodes[100].requests if stage_of(message) == stage][-1]
    before = state_of(nodes[100]).shard.pending.copy()
    reply = nodes[100].handle(100, first)
    assert reply.content.config_records["refusal"]["kind"] == ("OutdatedSum" if stage == "keys" else "RoundLost")
    np.testing.assert_array_equal(state_of(nodes[100]).shard.pending, before)


class LyingServer(SecureSum):
    """A server between the nodes: it shows each node keys of its own in place of another's."""

    def _take_keys(self, replies):
        messages = super()._take_keys(replies)
        if not messages:
            return messages
        keys = self._roster.keys.copy()
        keys[-1] = np.frombuffer(np.random.default_rng(0).bytes(64), np.uint8).reshape(2, 32)
        forged = Roster(self.terms, self._roster.names, keys, self._forged_signatures(keys[-1].tobytes()))
        return dict.fromkeys(messages, write_request(SumStage.SHARES, self.terms, forged.to_record()))

    def _forged_signatures(self, keys):
        return self._roster.signatures


def forging(own_key):
    """A lying server that signs the keys by a key of its own."""
    from fedhlcr.engines.flower.peers import sign
    from fedhlcr.privacy.roster import signed_text

    class Forging(LyingServer):
        def _forged_signatures(self, keys):
            forged = sign(own_key, signed_text(self.terms, self._roster.names[-1], keys))
            return (*self._roster.signatures[:-1], forged)

    return Forging


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("signs", [True, False])
def test_a_server_that_swaps_keys_learns_nothing(signs, listed, table, tmp_path, monkeypatch, logged):
    from cryptography.hazmat.primitives.asymmetric import ec

    nodes = keyed_nodes(tmp_path, table, listed=listed)
    server, engine = secure_server(), engine_for(nodes)
    for _ in range(3):
        run_round(server, engine)
    liar = forging(ec.generate_private_key(ec.SECP384R1())) if signs else LyingServer
    monkeypatch.setattr("fedhlcr.privacy.secure_sum.SecureSum", liar)
    assert run_round(server, engine).n_accepted == 0
    assert "is void" in logged.text
    kinds = {"PeerKey: the key shown for node '103' is not the one"} if signs else {"SecureSumError: the node takes"}
    assert all(kind in logged.text for kind in kinds)
    if signs:
        assert "Either the server does not pass on the nodes' own keys, or '103' has a new key: SHA256:" in logged.text
    # all nodes are refused from now on, until a minute has passed
    assert not engine.present


def test_keys_are_pinned_at_first_use_and_that_is_said(table, tmp_path, logged):
    nodes = keyed_nodes(tmp_path, table, listed=False)
    run_app(nodes, tmp_path, rounds=2, **OPTIONS)
    assert logged.text.count("no `peers-path` is set, so the keys of these nodes are trusted at first use") == 4
    pinned = options_of(nodes[100]).state_dir / "peers.pinned"
    assert [line.split()[2] for line in pinned.read_text().splitlines()] == ["100", "101", "102", "103"]
    # a node with a new key is refused by all others after a restart, also in another experiment
    from fedhlcr.engines.flower.certificates import Certificates

    Certificates(tmp_path / "keys").make(nodes=["103"], renew=True)
    with pytest.raises(NotEnoughNodesError, match="fewer than 3 nodes were ready"):
        run_app(nodes, tmp_path, experiment="second", wait_for_nodes=0.5, rounds=2, **OPTIONS)
    assert "the key shown for node '103' is not the one that this node knows" in logged.text


def test_a_node_that_insists_refuses_a_plain_run(nodes, tmp_path, logged):
    nodes[101].config["aggregation"] = "secure"
    run_app(nodes, tmp_path, rounds=2)
    assert "node 101 does not take part now: PlainRefused: the node only takes part in secure" in logged.text
    assert history_of(tmp_path)[-1]["n_accepted"] == 9


def test_a_secure_broadcast_is_not_answered_in_the_open(nodes, table):
    """A server that asks for plain answers to a broadcast of a secure run."""
    server, engine = secure_server(), engine_for(nodes)
    for _ in range(3):
        run_round(server, engine)
    call = server.open_round(engine.agents())
    assert list(engine.deliver(call)) == []
    assert not engine.present


def test_a_node_wants_its_own_number_of_nodes(nodes, tmp_path, logged):
    nodes[102].config["min-cohort"] = "4"
    run_app(nodes, tmp_path, rounds=2, **OPTIONS)
    assert "node 102 does not take part now: CohortError: the sum of 3 nodes could be revealed" in logged.text
    assert history_of(tmp_path)[-1]["n_accepted"] == 9


def test_a_node_without_a_key_takes_no_part(nodes, tmp_path, logged):
    del nodes[102].config["key-path"]
    run_app(nodes, tmp_path, rounds=2, **OPTIONS)
    assert (
        "node 102 does not take part now: NodeConfigError: secure aggregation needs the node's private" in logged.text
    )
    assert history_of(tmp_path)[-1]["n_accepted"] == 9


def test_fewer_nodes_than_the_cohort_are_an_early_error(nodes, tmp_path):
    with pytest.raises(NotEnoughNodesError, match=r"4 nodes are ready .* at least 5 are needed \(`min-nodes`, `min-c"):
        run_app(nodes, tmp_path, aggregation="secure", wait_for_nodes=0.5)


def test_terms_of_another_round_are_refused(nodes, monkeypatch):
    server, engine = secure_server(), engine_for(nodes)
    for _ in range(3):
        run_round(server, engine)
    call = server.open_round(engine.agents())
    engine.parties(call)
    good = server.exchange_terms()
    for name in ("run", "session", "epoch", "round", "n_values"):
        wrong = terms_module.Terms(**{**to_record(good), name: getattr(good, name) + 1})
        message = write_request(SumStage.KEYS, wrong, to_record(wrong))
        request = engine._round.requests["100"]
        content = client_app.records.packed(SumMessage("100", message, []), request, engine._header())
        reply = nodes[100].handle(100, client_app.Message(content, 100, str(RequestType.SUM)))
        assert reply.content.config_records["refusal"]["kind"] == "SecureSumError", name
