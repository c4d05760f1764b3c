"""How messages reach nodes and replies come back: each exchange has its own deadline and a largest size.

Over a network (`HttpTransport`) each message is sent, and its reply read, in a thread of its own. A reply that is too
large is refused before its body is read, and one that does not end is given up at its deadline. Neither delays anybody
else. Simulated nodes (`GridTransport`) run in the server's own process or as its tasks, so Flower's own calls suffice.
"""

from __future__ import annotations

import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import httpx
from flwr.app import Message
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree, PullObjectRequest
from flwr.proto.node_pb2 import NodeInfo
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.superlink.grid.http_grid import HttpGrid

from fedhlcr._support.extras import missing_extra
from fedhlcr.engines.flower.records import GONE
from fedhlcr.exceptions import Refusal, ReplyGivenUpError, ReplyLostError, ReplyTooLargeError

logger = logging.getLogger(__name__)

# Bytes of SuperLink's answer to "is there a reply?", and of those that it adds to a part of a reply.
LONGEST_ANSWER = 65_536
AROUND_A_PART = 1_024
# A reply consists of a message, its content and one record; a few more do no harm.
MOST_OBJECTS = 8
# Seconds between two checks for a reply: short at first, then longer, and longer still if many replies are awaited.
FIRST_POLL = 0.05
LONGEST_POLL = 1.0
POLLS_PER_SECOND = 50.0
# Seconds between two checks of which nodes are connected.
NODES_POLL = 1.0
# Messages that are sent at the same time: SuperLink's database takes one writer at a time.
MOST_PUSHES = 4

TOO_LARGE = "TooLarge"
UNREADABLE = Refusal("Unreadable", "its reply is not a message of Flower; install the same release at the node")
UNFINISHED = Refusal(
    "Unfinished",
    "the node began to reply, but the rest of its reply did not arrive in time; check the node and its network; if "
    "this happens often, raise `round-timeout`",
)
NOT_CARRIED = Refusal("NotCarried", "SuperLink could not carry the message; see SuperLink's log")


# The ticket of a message, and the reply to it, or why there is none.
Arrival = tuple[int, Message | Refusal]


class Transport(Protocol):
    """Carries messages to nodes."""

    def nodes(self) -> list[NodeInfo]:
        """The nodes that are connected."""

    def send(self, message: Message, limit: int, seconds: float) -> int:
        """Send a message whose reply may have `limit` bytes, and is awaited for `seconds`. Returns a ticket."""

    def drop(self, ticket: int) -> None:
        """Stop waiting for a reply."""

    def has_begun(self, ticket: int) -> bool:
        """Whether a reply has begun to arrive."""

    def collect(self) -> list[Arrival]:
        """The replies that have arrived since the last call."""

    def rest(self, seconds: float) -> None:
        """Wait, but not once a reply has arrived."""


def transport_for(grid: Grid) -> Transport:
    """The transport of a grid: with threads over a network, without for simulated nodes."""
    return HttpTransport(grid) if isinstance(grid, HttpGrid) else GridTransport(grid)


class GridTransport:
    """Flower's own calls, one after the other."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._tickets = itertools.count(1)
        self._sent: dict[str, int] = {}
        self._failed: list[int] = []

    def nodes(self) -> list[NodeInfo]:
        # simulated nodes have random keys, other ones in every run: no names can be bound to them
        return [NodeInfo(node_id=node.node_id, name=node.name) for node in self._grid.get_nodes()]

    def send(self, message: Message, limit: int, seconds: float) -> int:  # noqa: ARG002
        ticket = next(self._tickets)
        ids = [i for i in self._grid.push_messages([message]) if i]
        if ids:
            self._sent[ids[0]] = ticket
        else:
            self._failed.append(ticket)
        return ticket

    def drop(self, ticket: int) -> None:
        self._sent = {message: own for message, own in self._sent.items() if own != ticket}

    def has_begun(self, ticket: int) -> bool:  # noqa: ARG002
        return False

    def collect(self) -> list[Arrival]:
        arrived: list[Arrival] = [(ticket, GONE) for ticket in self._failed]
        self._failed.clear()
        if self._sent:
            for message in self._grid.pull_messages(list(self._sent)):
                ticket = self._sent.pop(message.metadata.reply_to_message_id, None)
                if ticket is not None:
                    arrived.append((ticket, message))
        return arrived

    def rest(self, seconds: float) -> None:
        time.sleep(seconds)


class _Exchange(NamedTuple):
    """One message and its reply."""

    ticket: int
    message: Message
    limit: int
    deadline: float
    dropped: threading.Event
    begun: threading.Event

    def pause(self, seconds: float) -> None:
        """Wait; raise if the exchange is over meanwhile."""
        left = self.deadline - time.monotonic()
        if left <= 0 or self.dropped.wait(min(seconds, left)):
            raise ReplyGivenUpError


class HttpTransport:
    """One thread for each message: it sends the message, asks for the reply, and reads it.

    It relies on these parts of flwr 1.41 and 1.42 that are not public: the runtime client of `HttpGrid`
    (`PullMessages`, `PullObject`, `ConfirmMessageReceived`), and its `httpx.Client`, whose response hook sees the size
    of a response before the body is read. With another release of Flower the constructor raises an error.
    """

    def __init__(self, grid: HttpGrid) -> None:
        self._grid = grid
        self._runtime = _runtime_of(grid)
        self._tickets = itertools.count(1)
        self._exchanges: dict[int, _Exchange] = {}
        self._arrived: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
        self._news = threading.Event()
        self._pushes = threading.Semaphore(MOST_PUSHES)
        self._nodes: list[NodeInfo] | None = None
        self._failure: BaseException | None = None
        self._know_nodes = threading.Event()

    def nodes(self) -> list[NodeInfo]:
        """The nodes, at most some seconds ago: the server must not wait for a SuperLink that is busy."""
        if self._nodes is None:
            _start(self._watch_nodes, "nodes")
            self._know_nodes.wait()
        if self._failure is not None:
            raise self._failure
        return self._nodes or []

    def _watch_nodes(self) -> None:
        while True:
            try:
                self._nodes = list(self._grid.get_nodes())
            except BaseException as error:
                # raised where the nodes are asked for
                self._failure = error
                self._know_nodes.set()
                self._news.set()
                return
            self._know_nodes.set()
            time.sleep(NODES_POLL)

    def send(self, message: Message, limit: int, seconds: float) -> int:
        deadline = time.monotonic() + seconds
        exchange = _Exchange(next(self._tickets), message, limit, deadline, threading.Event(), threading.Event())
        self._exchanges[exchange.ticket] = exchange
        _start(lambda: self._run(exchange), f"message {exchange.ticket}")
        return exchange.ticket

    def drop(self, ticket: int) -> None:
        if exchange := self._exchanges.pop(ticket, None):
            exchange.dropped.set()

    def has_begun(self, ticket: int) -> bool:
        return ticket in self._exchanges and self._exchanges[ticket].begun.is_set()

    def collect(self) -> list[Arrival]:
        self._news.clear()
        if self._failure is not None:
            raise self._failure
        arrived = []
        while not self._arrived.empty():
            ticket, reply = self._arrived.get()
            self._exchanges.pop(ticket, None)
            arrived.append((ticket, reply))
        return arrived

    def rest(self, seconds: float) -> None:
        self._news.wait(seconds)

    def _run(self, exchange: _Exchange) -> None:
        """The whole life of a message, in its thread. Whatever happens concerns only this message's node."""
        reply: Message | Refusal
        try:
            reply = self._exchange(exchange)
        except ReplyGivenUpError:
            # whoever waited has noticed it
            return
        except ReplyLostError:
            reply = UNFINISHED
        except ReplyTooLargeError:
            reply = Refusal(
                TOO_LARGE,
                f"its reply is larger than the {exchange.limit:,} bytes that a reply to this message can have; install "
                "the same release at the node",
            )
        except httpx.HTTPError:
            reply = NOT_CARRIED
        except Exception as error:
            # the reply comes from outside: Flower's code may fail anywhere while it reads it
            logger.info("a reply could not be read: %s.", type(error).__name__)
            reply = UNREADABLE
        except BaseException as error:
            # Flower's word that the run is over; raised where replies are collected
            self._failure = error
            self._news.set()
            return
        self._arrived.put((exchange.ticket, reply))
        self._news.set()

    def _exchange(self, exchange: _Exchange) -> Message | Refusal:
        with self._pushes:
            ids = [i for i in self._grid.push_messages([exchange.message]) if i]
        if not ids:
            return GONE
        message_id, tree = self._await_reply(exchange, ids[0])
        exchange.begun.set()
        try:
            contents = self._pull(exchange, tree)
        finally:
            # SuperLink deletes the reply, also one that was refused
            self._runtime.ConfirmMessageReceived(
                ConfirmMessageReceivedRequest(
                    node=self._grid.node, run_id=self._grid.run.run_id, message_object_id=message_id
                )
            )
        reply = inflate_object_from_contents(message_id, contents)
        return reply if isinstance(reply, Message) else UNREADABLE

    def _await_reply(self, exchange: _Exchange, sent_id: str) -> tuple[str, ObjectTree]:
        """Ask for the reply to one message until it is there. Returns its id, and the ids of its parts."""
        length = FIRST_POLL
        while True:
            with _at_most(LONGEST_ANSWER):
                found = self._runtime.PullMessages(PullAppMessagesRequest(message_ids=[sent_id]))
            for message, tree in zip(found.messages_list, found.message_object_trees, strict=True):
                if message.metadata.reply_to_message_id == sent_id:
                    return message.metadata.message_id, tree
            exchange.pause(max(length, len(self._exchanges) / POLLS_PER_SECOND))
            length = min(1.5 * length, LONGEST_POLL)

    def _pull(self, exchange: _Exchange, tree: ObjectTree) -> dict[str, bytes]:
        """The parts of a reply, by id."""
        contents: dict[str, bytes] = {}
        left = exchange.limit
        for part in iterate_object_tree(tree):
            if len(contents) == MOST_OBJECTS:
                raise ReplyTooLargeError
            contents[part.object_id] = self._pull_object(exchange, part.object_id, left)
            left -= len(contents[part.object_id])
        return contents

    def _pull_object(self, exchange: _Exchange, object_id: str, limit: int) -> bytes:
        """Ask for a part of a reply until the node has sent all of it."""
        request = PullObjectRequest(node=self._grid.node, run_id=self._grid.run.run_id, object_id=object_id)
        length = FIRST_POLL
        while True:
            with _at_most(max(0, limit) + AROUND_A_PART):
                found = self._runtime.PullObject(request)
            if found.object_available:
                return bytes(found.object_content)
            if not found.object_found:
                raise ReplyLostError
            exchange.pause(length)
            length = min(1.5 * length, LONGEST_POLL)


_allowed = threading.local()


@contextmanager
def _at_most(size: int) -> Iterator[None]:
    """Refuse responses of more bytes in this thread."""
    _allowed.size = size
    try:
        yield
    finally:
        _allowed.size = None


def _refuse_large(response: httpx.Response) -> None:
    """Close a response that is too large, or whose size is not known, before its body is read."""
    allowed = getattr(_allowed, "size", None)
    if allowed is None or response.is_error:
        return
    size = response.headers.get("content-length", "")
    if not size.isdecimal() or int(size) > allowed or "content-encoding" in response.headers:
        raise ReplyTooLargeError


def _runtime_of(grid: HttpGrid) -> Any:
    """The grid's client of SuperLink, with the hook that refuses large responses."""
    runtime = getattr(grid, "_runtime_client", None)
    client = getattr(runtime, "_client", None)
    calls = ("PullMessages", "PullObject", "ConfirmMessageReceived")
    if not isinstance(client, httpx.Client) or not all(hasattr(runtime, call) for call in calls):
        raise missing_extra("this release of fedhlcr needs Flower 1.41 or 1.42, but another one is installed", "flower")
    hooks = client.event_hooks
    client.event_hooks = {**hooks, "response": [*hooks.get("response", ()), _refuse_large]}
    return runtime


def _start(work: Callable[[], None], name: str) -> None:
    # a daemon: a call that hangs must not keep the process alive
    threading.Thread(target=work, name=name, daemon=True).start()
