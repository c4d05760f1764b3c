"""The ClientApp: what a SuperNode runs, in a process of its own for every message."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedhlcr._support.version import __version__
from fedhlcr.engines.flower import records
from fedhlcr.engines.flower.logs import log_through_flower
from fedhlcr.engines.flower.node import Node
from fedhlcr.engines.flower.options import NodeOptions, check_experiment
from fedhlcr.engines.flower.records import Errand
from fedhlcr.engines.flower.refusal import refusal_of
from fedhlcr.exceptions import Refusal
from fedhlcr.federation.mods import Mod
from fedhlcr.posterior import PublicModel

logger = logging.getLogger(__name__)

Answering = Callable[[Node, Message], RecordDict]


def _answering(answer: Answering, mods: tuple[Mod, ...]) -> Callable[[Message, Context], Message]:
    """Every error becomes a refusal: Flower's own report of it would quote the error's words to the server."""

    def handle(message: Message, context: Context) -> Message:
        log_through_flower()
        try:
            content = answer(_open_node(message, context, mods), message)
        except Exception as error:
            refusal = refusal_of(error)
            logger.error("refused: %s. %s", refusal, refusal.detail)
            content = records.refusal_content(refusal)
        return Message(content, reply_to=message)

    return handle


def in_simulation() -> bool:
    """Whether this is a worker of Ray, as simulated nodes are and real ones never."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def _open_node(message: Message, context: Context, mods: tuple[Mod, ...]) -> Node:
    envelope = records.Envelope.from_content(message.content)
    if envelope.version != __version__:
        raise Refusal(
            "VersionError",
            f"the node has fedhlcr {__version__}, the server {envelope.version}; install the same release",
        )
    # it comes from the server, and becomes a file's name here
    check_experiment(envelope.experiment)
    options = NodeOptions.from_context(context.node_config, context.run_config, simulated=in_simulation())
    return Node(options, envelope.experiment, tuple(envelope.features), mods)


def roll_call(node: Node, message: Message) -> RecordDict:  # noqa: ARG001
    """Who is here, and with which columns."""
    return records.Presence(__version__, node.names(), list(node.options.features)).to_content()


def letter(node: Node, message: Message) -> RecordDict:
    """A round of some of the agents."""
    return records.Answers(node.answer(records.Letter.from_content(message.content))).to_content()


def keepsake(node: Node, message: Message) -> RecordDict:
    """The public model, to keep and to try."""
    model = PublicModel.from_bytes(records.Keepsake.from_content(message.content).model)
    node.keep(model)
    return node.score(model).to_content()


def make_app(mods: Sequence[Mod] = ()) -> ClientApp:
    """Return the ClientApp of a node whose contributions pass through the mods before they leave it.

    A module of your own that has `app = make_app([my_mod])` takes the place of this one in your app's pyproject.
    """
    made = ClientApp()
    for register, errand, answer in (
        (made.query, Errand.ROLL_CALL, roll_call),
        (made.train, Errand.LETTER, letter),
        (made.evaluate, Errand.KEEPSAKE, keepsake),
    ):
        register(errand.action)(_answering(answer, tuple(mods)))
    return made


app = make_app()
