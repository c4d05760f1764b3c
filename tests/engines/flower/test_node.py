"""The node: its state files, its table, and its lock."""

import errno
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pytest

pytest.importorskip("flwr", reason="the flower extra is not installed")


from fedhlcr.engines.flower import node as node_module
from fedhlcr.engines.flower.compression import LARGEST_MESSAGE, unpack
from fedhlcr.engines.flower.engine import FlowerEngine, NotEnoughNodesError
from fedhlcr.engines.flower.node import Node
from fedhlcr.engines.flower.node_options import NodeOptions
from fedhlcr.engines.flower.pauses import WaitTimes
from fedhlcr.engines.flower.records import RoundRequest
from fedhlcr.engines.flower.refusal import Refusal
from fedhlcr.federation.run import run_round
from fedhlcr.storage import atomic, codec
from tests.federations import server_for
from tests.flower_grid import (
    LocalGrid,
    LocalNode,
    assert_same_model,
    history_of,
    node_config,
    run_app,
    state_of,
    write_table,
)

pytestmark = pytest.mark.usefixtures("clock")


def test_agent_missing_from_a_changed_table_is_reported(nodes, table, tmp_path, logged):
    victim = nodes[101]
    kept = table[np.isin(table.agent, [1, 4, 7])]

    def changes(message):
        if message.metadata.group_id == "4":
            write_table(tmp_path / "1.parquet", kept)
        return False

    victim.dies_at = changes
    run_app(nodes, tmp_path)
    assert "UnknownAgent" in logged.text
    history = history_of(tmp_path)
    assert history[-1]["n_accepted"] == 11


@pytest.mark.slow
def test_dictionary_encoded_ids_are_read_and_missing_ones_refused(nodes, table, tmp_path, logged):
    expected = run_app(nodes, tmp_path)
    arrow = pa.parquet.read_table(tmp_path / "1.parquet")
    ids = arrow["agent"].cast(pa.string())
    for experiment, agent in (("whole", ids), ("holes", pc.if_else(pc.equal(ids, "4"), None, ids))):
        encoded = arrow.set_column(0, "agent", agent.dictionary_encode())
        pa.parquet.write_table(encoded, tmp_path / "1.parquet")
        if experiment == "whole":
            assert_same_model(run_app(nodes, tmp_path, experiment=experiment), expected, tolerance=0)
        else:
            run_app(nodes, tmp_path, experiment=experiment)
    assert "node 101 does not take part now: DataError" in logged.text
    assert "'1.parquet', column 'agent': `agent` has" in logged.text


def test_missing_test_file_is_reported_before_the_first_round(nodes, tmp_path, logged):
    nodes[101].config["test-path"] = str(tmp_path / "absent.csv")
    run_app(nodes, tmp_path)
    assert "node 101 does not take part now: FileError" in logged.text
    assert "'absent.csv' does not exist" in logged.text


def test_table_that_changes_during_an_answer_is_noticed(nodes, table, tmp_path, logged, monkeypatch):
    honest = Node._save

    def save(self, held):
        if "1.parquet" in held.source.path and held.group.shard.newest_round == 4:
            write_table(tmp_path / "1.parquet", table[table.agent % 3 == 1][2:])
        honest(self, held)

    monkeypatch.setattr(Node, "_save", save)
    run_app(nodes, tmp_path)
    assert "1.parquet has changed: its agents start again" in logged.text
    assert "its events are not those of its earlier replies" in logged.text


def test_copied_table_keeps_its_labels(nodes, tmp_path, logged):
    run_app(nodes, tmp_path, rounds=3)
    for node in nodes.values():
        path = NodeOptions.from_context(node.config, {}).data_path
        path.write_bytes(path.read_bytes())
        before = state_of(node).shard.accepted_round
        assert set(before) == {2}
    assert "start again" not in logged.text


def opened(message):
    """A request with its broadcast unpacked, as the app hands it to the node."""
    request = RoundRequest.from_content(message.content)
    return replace(request, broadcast=unpack(request.broadcast, LARGEST_MESSAGE))


def test_old_request_does_not_overwrite_newer_state(nodes, table, tmp_path):
    """A slow answer to an old request comes to an end after a newer one was answered."""
    carrier = FlowerEngine(LocalGrid(nodes), "experiment", WaitTimes(3, 5.0, 1.0))
    carrier.gather()
    server = server_for(table.X.shape[1], seed=3, rounds=6)
    for _ in range(3):
        run_round(server, carrier)
    old, new = (m for m in nodes[100].requests if m.metadata.group_id in ("1", "2"))
    node = Node(NodeOptions.from_context(nodes[100].config, {}), "experiment", carrier.features)
    before = node.state_path.read_bytes()
    with pytest.raises(Refusal, match="OutdatedLetter"):
        node.answer(opened(old))
    assert node.state_path.read_bytes() == before
    with ThreadPoolExecutor() as others:
        with node._alone():
            waiting = others.submit(node.answer, opened(new))
            with pytest.raises(TimeoutError):
                waiting.result(0.3)
        assert len(waiting.result(5)) == 4


def test_node_that_is_busy_too_long_is_reported(nodes, tmp_path, logged, monkeypatch):
    monkeypatch.setattr(node_module, "LONGEST_LOCK", 0.1)
    options = NodeOptions.from_context(nodes[101].config, {})
    with Node(options, "experiment")._alone():
        run_app(nodes, tmp_path)
    assert "node 101 does not take part now: Busy: the node is still at another message" in logged.text


def test_nodes_cannot_share_a_state_folder(nodes, tmp_path, logged):
    for node in nodes.values():
        node.config["state-dir"] = str(tmp_path / "shared")
    run_app(nodes, tmp_path, min_nodes=1)
    told = "does not take part now: StateError: its `state-dir` holds the state of another table or node"
    assert logged.text.count(told) == 2


def test_state_and_checkpoint_are_readable_by_owner_only(nodes, tmp_path):
    run_app(nodes, tmp_path)
    files = [tmp_path / "out" / "experiment.checkpoint", *tmp_path.glob("*.state/*.state")]
    assert len(files) == 4
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_simulation_of_another_table_starts_again(table, tmp_path, logged):
    for number in (0, 1):
        path = write_table(tmp_path / f"{number}.csv", table[: len(table) - number])
        config = {f"simulation.{name}": value for name, value in node_config(path, table).items()}
        config["output-dir"] = str(tmp_path / "out")
        nodes = {200 + i: LocalNode({"partition-id": i, "num-partitions": 3}, run_config=config) for i in range(3)}
        run_app(nodes, tmp_path, **config)
    assert "StateError" not in logged.text


def test_full_disk_is_reported(nodes, tmp_path, logged, monkeypatch):
    def full(path, *arguments, **parameters):
        if "1.parquet" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        return honest(path, *arguments, **parameters)

    honest = atomic.write_atomically
    monkeypatch.setattr(atomic, "write_atomically", full)
    run_app(nodes, tmp_path)
    assert "node 101 does not take part now: StateError: the node cannot write to its `state-dir`" in logged.text
    assert "No space left on device" in logged.text


def test_damaged_state_file_costs_labels_only(nodes, tmp_path, logged):
    options = NodeOptions.from_context(nodes[101].config, {})

    def damages(message):
        if message.metadata.group_id == "4":
            for file in options.state_dir.glob("*"):
                file.write_bytes(file.read_bytes()[:100])
        return False

    nodes[101].dies_at = damages
    run_app(nodes, tmp_path)
    assert "the labels are lost, and the agents start again" in logged.text
    history = history_of(tmp_path)
    assert all(record["n_accepted"] == 12 for record in history[1:])


def test_forged_state_file_costs_labels_only(nodes, tmp_path, logged):
    """Its checksum is right, but it labels entities by clusters no kernel has room for."""
    options = NodeOptions.from_context(nodes[101].config, {})

    def forges(message):
        if message.metadata.group_id == "4":
            file = options.state_dir / "experiment.state"
            record = codec.decode(file.read_bytes(), node_module.STATE_KIND, node_module.STATE_VERSION)
            record["accepted"] = np.full_like(record["accepted"], 2**30)
            file.write_bytes(codec.encode(node_module.STATE_KIND, node_module.STATE_VERSION, record))
        return False

    nodes[101].dies_at = forges
    run_app(nodes, tmp_path)
    assert "`accepted` is missing or has a wrong value" in logged.text
    assert "the labels are lost, and the agents start again" in logged.text
    history = history_of(tmp_path)
    assert all(record["n_accepted"] == 12 for record in history[1:])


@pytest.mark.parametrize("name", ["../evil", "", ".hidden", "a/b", "x" * 65])
def test_experiment_name_cannot_be_a_path(name, nodes, tmp_path):
    carrier = FlowerEngine(LocalGrid(nodes), name, WaitTimes(1, 0.3, 1.0))
    with pytest.raises(NotEnoughNodesError, match="ArgumentError"):
        carrier.gather()
    assert not list(tmp_path.rglob("*.state/*"))
