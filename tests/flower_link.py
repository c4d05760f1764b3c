"""A SuperLink without sockets: Flower's own grid and client, and what hostile or broken nodes can do to their replies.

Requests and responses are Flower's protobuf messages over httpx; only the network between them is missing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ConfirmMessageReceivedResponse,
    PullObjectRequest,
    PullObjectResponse,
    PushObjectRequest,
    PushObjectResponse,
)
from flwr.proto.node_pb2 import NodeInfo
from flwr.proto.runtime_pb2 import (
    GetNodesRequest,
    GetNodesResponse,
    PullAppMessagesRequest,
    PullAppMessagesResponse,
    PushAppMessagesRequest,
    PushAppMessagesResponse,
)
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid.http_grid import HttpGrid

from tests.flower_grid import LocalNode


class Unread(httpx.SyncByteStream):
    """The body of a response that must not be read."""

    was_read = False

    def __iter__(self) -> Iterator[bytes]:
        self.was_read = True
        yield b"\0" * 1000


class FakeSuperLink:
    """Answers the requests of a ServerApp.

    Attributes
    ----------
    huge : nodes whose replies claim to have 500 MB
    stalled : nodes that stop in the middle of their replies
    slow : seconds that SuperLink takes to hand over a part of a node's reply, by node
    broken : nodes whose replies are nonsense
    """

    def __init__(self, nodes: dict[int, LocalNode], keys: dict[int, bytes] | None = None) -> None:
        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
        self.nodes, self.keys = nodes, keys or {}
        self.huge: set[int] = set()
        self.stalled: set[int] = set()
        self.broken: set[int] = set()
        self.slow: dict[int, float] = {}
        self.body = Unread()
        self.deleted: list[str] = []
        self._lock = threading.RLock()
        self._objects: dict[str, bytes] = {}
        self._waiting: dict[str, Any] = {}
        self._replies: dict[str, Any] = {}
        self._owner: dict[str, int] = {}

    def grid(self) -> HttpGrid:
        grid = HttpGrid("127.0.0.1:1", insecure=True, token="token")
        grid.set_run(Run.create_empty(1))
        client = grid._runtime_client
        client._client = httpx.Client(transport=httpx.MockTransport(self.handle), timeout=30.0)
        return grid

    def handle(self, request: httpx.Request) -> httpx.Response:
        call = request.url.path.rpartition("/")[2]
        kinds: dict[str, tuple[Any, Callable[[Any], Any]]] = {
            "get-nodes": (GetNodesRequest, self._get_nodes),
            "push-messages": (PushAppMessagesRequest, self._push_messages),
            "push-object": (PushObjectRequest, self._push_object),
            "pull-messages": (PullAppMessagesRequest, self._pull_messages),
            "pull-object": (PullObjectRequest, self._pull_object),
            "confirm-message-received": (ConfirmMessageReceivedRequest, self._confirm),
        }
        kind, answer = kinds[call]
        content = answer(kind.FromString(request.content))
        if isinstance(content, httpx.Response):
            return content
        return httpx.Response(200, content=content.SerializeToString())

    def _get_nodes(self, _: GetNodesRequest) -> GetNodesResponse:
        online = [number for number, node in self.nodes.items() if node.online]
        return GetNodesResponse(
            nodes=[NodeInfo(node_id=n, name=f"node-{n}", public_key=self.keys.get(n, b"")) for n in online]
        )

    def _push_messages(self, request: PushAppMessagesRequest) -> PushAppMessagesResponse:
        with self._lock:
            ids = []
            for message, tree in zip(request.messages_list, request.message_object_trees, strict=True):
                ids.append(message.metadata.message_id)
                self._waiting[tree.object_id] = message.metadata.dst_node_id
            parts = [one for tree in request.message_object_trees for one in _ids(tree)]
        return PushAppMessagesResponse(message_ids=ids, objects_to_push=parts, session_id="session")

    def _push_object(self, request: PushObjectRequest) -> PushObjectResponse:
        with self._lock:
            self._objects[request.object_id] = request.object_content
        return PushObjectResponse(stored=True)

    def _pull_messages(self, request: PullAppMessagesRequest) -> PullAppMessagesResponse:
        found = PullAppMessagesResponse()
        for message_id in request.message_ids:
            with self._lock:
                if message_id in self._waiting:
                    self._answer(message_id, self._waiting.pop(message_id))
                reply = self._replies.pop(message_id, None)
            if reply is not None:
                found.messages_list.append(message_to_proto(remove_content_from_message(reply)))
                found.message_object_trees.append(get_object_tree(reply))
        return found

    def _answer(self, message_id: str, number: int) -> None:
        node = self.nodes[number]
        message = inflate_object_from_contents(message_id, dict(self._objects))
        message.metadata.__dict__["_message_id"] = message_id
        reply = node.handle(number, message)
        reply.metadata.__dict__["_message_id"] = reply.object_id
        if node.silent:
            return
        for part_id, part in get_all_nested_objects(reply).items():
            self._owner[part_id] = number
            self._objects[part_id] = b"nonsense" if number in self.broken else part.deflate()
        self._replies[message_id] = reply

    def _pull_object(self, request: PullObjectRequest) -> PullObjectResponse | httpx.Response:
        owner = self._owner.get(request.object_id)
        time.sleep(self.slow.get(owner, 0.0))
        if owner in self.huge:
            return httpx.Response(200, headers={"content-length": "500000000"}, stream=self.body)
        content = b"" if owner in self.stalled else self._objects[request.object_id]
        return PullObjectResponse(object_found=True, object_available=bool(content), object_content=content)

    def _confirm(self, request: ConfirmMessageReceivedRequest) -> ConfirmMessageReceivedResponse:
        self.deleted.append(request.message_object_id)
        return ConfirmMessageReceivedResponse()


def _ids(tree: Any) -> list[str]:
    return [one for child in tree.children for one in _ids(child)] + [tree.object_id]
