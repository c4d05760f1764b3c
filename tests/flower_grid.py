"""A Flower Grid without Ray and without sockets: nodes of this process, and what can happen to them.

Every message goes through Flower's own bytes, and every reply is made by the real ClientApp. Time stands still: a reply is there
at the next look, unless a node was told to be late.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

from fedhlcr.engines.flower import client_app


@dataclass
class LocalNode:
    """A SuperNode: its config, and its faults."""

    config: dict[str, Any]
    run_config: dict[str, Any] = field(default_factory=dict)
    online: bool = True
    silent: bool = False
    late_by: int = 0
    dies_at: Callable[[Message], bool] = lambda message: False
    letters: list[Message] = field(default_factory=list)

    def handle(self, node_id: int, message: Message) -> Message:
        self.letters.append(message)
        context = Context(1, node_id, self.config, RecordDict(), self.run_config)
        return client_app.app(message, context)


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
            message = _through_bytes(message, message_id)
            number = message.metadata.dst_node_id
            node = self.nodes[number]
            if node.dies_at(message):
                node.online = False
                reply = Message(Error(ErrorCode.NODE_UNAVAILABLE, "gone"), reply_to=message)
            else:
                reply = _through_bytes(node.handle(number, message))
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


def _through_bytes(message: Message, message_id: str = "") -> Message:
    contents = {name: part.deflate() for name, part in get_all_nested_objects(message).items()}
    copy = inflate_object_from_contents(message.object_id, contents)
    copy.metadata.__dict__["_message_id"] = message_id
    return copy


def write_csv(path: Path, table: Any, rows: Any, names: list[str]) -> Path:
    """Some rows of a table as a file, with the ids in the columns `agent` and `entity`."""
    import pandas as pd

    frame = pd.DataFrame(table.X[rows], columns=names)
    frame.insert(0, "agent", table.agent[rows])
    frame.insert(1, "entity", table.entity[rows])
    frame["y"] = table.y[rows]
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False)
    return path
