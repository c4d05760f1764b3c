"""The ClientApp: a SuperNode runs it in a new process for every message."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedhlcr._support.version import __version__
from fedhlcr.engines.flower import records
from fedhlcr.engines.flower.compression import LARGEST_MESSAGE, pack, unpack
from fedhlcr.engines.flower.logs import log_through_flower
from fedhlcr.engines.flower.node import Node
from fedhlcr.engines.flower.node_options import NodeOptions
from fedhlcr.engines.flower.options import check_experiment
from fedhlcr.engines.flower.records import RequestType
from fedhlcr.engines.flower.refusal import refusal_of
from fedhlcr.exceptions import Refusal
from fedhlcr.federation.mods import Mod
from fedhlcr.federation.private.inquiry import Inquiry
from fedhlcr.posterior import PublicModel

logger = logging.getLogger(__name__)

Answering = Callable[[Node, Message], RecordDict]


def _answering(answer: Answering, mods: tuple[Mod, ...]) -> Callable[[Message, Context], Message]:
    """Turn every error into a refusal: Flower's own report would send the error's text to the server."""

    def handle(message: Message, context: Context) -> Message:
        log_through_flower()
        try:
            content = answer(_open_node(message, context, mods), message)
        except Exception as error:
            refusal = refusal_of(error)
            logger.error("the node does not take part: %s. %s", refusal, refusal.detail)
            content = records.refusal_content(refusal)
        return Message(content, reply_to=message)

    return handle


def in_simulation() -> bool:
    """Whether this process is a worker of Ray. Simulated nodes are, real ones never."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def _open_node(message: Message, context: Context, mods: tuple[Mod, ...]) -> Node:
    header = records.RequestHeader.from_content(message.content)
    if header.version != __version__:
        raise Refusal(
            "VersionError",
            f"the node has fedhlcr {__version__}, the server {header.version}; install the same release",
        )
    # the server chooses this text, and the node uses it as the name of a file
    check_experiment(header.experiment)
    options = NodeOptions.from_context(context.node_config, context.run_config, simulated=in_simulation())
    return Node(options, header.experiment, tuple(header.features), mods)


def roll_call(node: Node, message: Message) -> RecordDict:  # noqa: ARG001
    """Answer with the node's agents and columns."""
    return records.Presence(__version__, node.names(), list(node.options.features)).to_content()


def round_request(node: Node, message: Message) -> RecordDict:
    """Answer a broadcast for some of the node's agents."""
    return records.Answers([pack(one) for one in node.answer(_unpacked_request(message))]).to_content()


def add_up(node: Node, message: Message) -> RecordDict:
    """Answer a message of a secure sum. The first one comes with a broadcast, or with a query of a private run."""
    asked = records.SumMessage.from_content(message.content)
    opening: records.RoundRequest | Inquiry | None = None
    if records.RoundRequest.wire_name in message.content.config_records:
        opening = _unpacked_request(message)
    elif records.QueryRequest.wire_name in message.content.config_records:
        opening = _unpacked_inquiry(message)
    return records.SumReply(node.add_up(asked, opening)).to_content()


def private_query(node: Node, message: Message) -> RecordDict:
    """Answer a query of a private run whose server adds the noise. The reply is not packed: its size must be fixed."""
    return records.SumReply(node.answer_query(_unpacked_inquiry(message))).to_content()


def _unpacked_inquiry(message: Message) -> Inquiry:
    return Inquiry.from_bytes(unpack(records.QueryRequest.from_content(message.content).inquiry, LARGEST_MESSAGE))


def _unpacked_request(message: Message) -> records.RoundRequest:
    asked = records.RoundRequest.from_content(message.content)
    return replace(asked, broadcast=unpack(asked.broadcast, LARGEST_MESSAGE))


def keep_model(node: Node, message: Message) -> RecordDict:
    """Keep the public model, and answer with its score on the node's test events."""
    model = PublicModel.from_bytes(unpack(records.ModelRequest.from_content(message.content).model, LARGEST_MESSAGE))
    node.keep(model)
    return node.score(model).to_content()


def make_app(mods: Sequence[Mod] = ()) -> ClientApp:
    """Return the ClientApp of a node whose contributions pass through the mods before they leave it.

    A module of your own that has `app = make_app([my_mod])` takes the place of this one in your app's pyproject.
    """
    made = ClientApp()
    for register, kind, answer in (
        (made.query, RequestType.ROLL_CALL, roll_call),
        (made.train, RequestType.ROUND, round_request),
        (made.train, RequestType.SUM, add_up),
        (made.train, RequestType.QUERY, private_query),
        (made.evaluate, RequestType.MODEL, keep_model),
    ):
        register(kind.action)(_answering(answer, tuple(mods)))
    return made


app = make_app()
