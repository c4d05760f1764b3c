"""A Flower Grid without Ray and without sockets: nodes of this process, and what can happen to them.

Every message goes through Flower's own bytes, and every reply is made by the real ClientApp. A reply is there at the
next look, unless a node was told to be late.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

from fedhlcr import FedHLCRRegressor
from fedhlcr.datasets.hierarchical import HierarchicalData
from fedhlcr.engines.flower import attendance, client_app, engine, pauses, server_app, transport
from fedhlcr.engines.flower.node import Node
from fedhlcr.engines.flower.node_options import NodeOptions
from fedhlcr.engines.flower.options import RunOptions
from fedhlcr.federation.group import AgentGroup
from fedhlcr.posterior import PublicModel


@dataclass
class LocalNode:
    """A SuperNode: its config, and its faults."""

    config: dict[str, Any]
    run_config: dict[str, Any] = field(default_factory=dict)
    online: bool = True
    silent: bool = False
    late_by: int = 0
    dies_at: Callable[[Message], bool] = lambda message: False
    requests: list[Message] = field(default_factory=list)
    app: ClientApp = client_app.app

    def handle(self, node_id: int, message: Message) -> Message:
        self.requests.append(message)
        context = Context(1, node_id, self.config, RecordDict(), self.run_config)
        with mock.patch.object(client_app, "in_simulation", return_value="partition-id" in self.config):
            return self.app(message, context)


class LocalGrid(Grid):
    """Carries messages to the nodes of a dictionary, which a test may change at any time."""

    def __init__(self, nodes: dict[int, LocalNode]) -> None:
        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
        self.nodes = nodes
        self._replies: dict[str, tuple[int, Message]] = {}
        self._n_sent = self._n_pulls = 0

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any:
        return None

    def create_message(self, *args: Any, **params: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> list[int]:
        return [number for number, node in self.nodes.items() if node.online]

    def push_messages(self, messages: Any) -> list[str]:
        ids = []
        for message in messages:
            self._n_sent += 1
            message_id = f"message {self._n_sent}"
            message.metadata.__dict__["_message_id"] = message_id
            message = through_bytes(message, message_id)
            number = message.metadata.dst_node_id
            node = self.nodes[number]
            if node.dies_at(message):
                node.online = False
                reply = Message(Error(ErrorCode.NODE_UNAVAILABLE, "gone"), reply_to=message)
            else:
                reply = through_bytes(node.handle(number, message))
            if not node.silent:
                self._replies[message_id] = self._n_pulls + node.late_by, reply
            ids.append(message_id)
        return ids

    def pull_messages(self, message_ids: Any) -> list[Message]:
        self._n_pulls += 1
        due = [i for i in message_ids if i in self._replies and self._replies[i][0] < self._n_pulls]
        return [self._replies.pop(i)[1] for i in due]

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> list[Message]:
        raise NotImplementedError("it may wait for ever")


class StillClock:
    """Stands in for the module `time` where the engine waits: only its own `sleep` moves the clock.

    Nodes of a `LocalGrid` answer while they are asked, so a busy machine would spend the time limits of a run. Threads
    that earlier tests have left behind sleep as ever, and move nothing.
    """

    def __init__(self) -> None:
        self._now, self._owner = time.monotonic(), threading.current_thread()

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        if threading.current_thread() is self._owner:
            self._now += seconds
        else:
            time.sleep(seconds)

    def stop_others(self, monkeypatch: Any) -> None:
        """Let the server's side of the engine read this clock."""
        for module in (attendance, engine, pauses, server_app, transport):
            monkeypatch.setattr(module, "time", self)


def through_bytes(message: Message, message_id: str = "") -> Message:
    contents = {name: part.deflate() for name, part in get_all_nested_objects(message).items()}
    copy = inflate_object_from_contents(message.object_id, contents)
    copy.metadata.__dict__["_message_id"] = message_id
    return copy


def write_table(path: Path, table: HierarchicalData) -> Path:
    """A node's file, CSV or Parquet by its name."""
    if path.suffix == ".parquet":
        pa.parquet.write_table(table.to_arrow(), path)
    else:
        pa.csv.write_csv(table.to_arrow(), path)
    return path


def node_config(path: Path, table: HierarchicalData, **more: str) -> dict[str, str]:
    columns = {"target": "target", "agent": "agent", "entity": "entity", "features": ",".join(table.feature_names)}
    return {"data-path": str(path), **columns, "min-events": "0", "min-entities": "0", **more}


def split_to_files(folder: Path, table: HierarchicalData, n_nodes: int) -> list[Path]:
    """The agents dealt out to files, every other one Parquet."""
    number = np.unique(table.agent, return_inverse=True)[1] % n_nodes
    return [
        write_table(folder / f"{node}.{'parquet' if node % 2 else 'csv'}", table[number == node])
        for node in range(n_nodes)
    ]


def local_nodes(folder: Path, table: HierarchicalData, n_nodes: int = 3) -> dict[int, LocalNode]:
    """Nodes 100, 101, … with their files."""
    files = split_to_files(folder, table, n_nodes)
    return {100 + i: LocalNode(node_config(path, table)) for i, path in enumerate(files)}


def run_app(nodes: dict[int, LocalNode], folder: Path, **options: Any) -> PublicModel:
    """A whole run on these nodes; options with underscores for dashes."""
    defaults = {"output-dir": str(folder / "out"), "wait-for-nodes": 5.0, "round-timeout": 1.0, "rounds": 8, "seed": 3}
    given = {name.replace("_", "-"): value for name, value in options.items()}
    return server_app.run(LocalGrid(nodes), RunOptions.from_config({**defaults, **given}))


def fit_in_process(table: HierarchicalData, **params: Any) -> FedHLCRRegressor:
    """The run of `run_app`, simulated in this process."""
    params = {"rounds": 8, "random_state": 3, **params}
    return FedHLCRRegressor(**params).fit(table.X, table.y, agent=table.agent, entity=table.entity)


def history_of(folder: Path) -> list[dict[str, Any]]:
    """The rounds that a run wrote to its output folder."""
    return json.loads((folder / "out" / "experiment.history.json").read_text())


def scores_of(folder: Path) -> dict[str, Any]:
    """The nodes' scores that a run wrote to its output folder."""
    return json.loads((folder / "out" / "experiment.scores.json").read_text())


def state_of(node: LocalNode, experiment: str = "experiment") -> AgentGroup:
    """A node's agents as its file has them."""
    return Node(NodeOptions.from_context(node.config, {}), experiment)._held().group


def assert_same_model(model: PublicModel, posterior: Any, tolerance: float = 1e-9) -> None:
    """The same draws of everything public."""
    ours, theirs = model.draws.to_record(), posterior.draws.to_record()
    assert list(ours) == list(theirs)
    for name, values in ours.items():
        np.testing.assert_allclose(values, theirs[name], rtol=0, atol=tolerance, err_msg=name)
    for part in ("shift", "scale"):
        ours, theirs = (getattr(units.standardization, part) for units in (model, posterior))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance)
