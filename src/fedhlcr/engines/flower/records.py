"""All messages between the server and a node, and their conversion to and from Flower's records.

Every message to a node has a `RequestHeader`. Broadcasts, contributions and models travel as bytes with a checksum,
packed by `packing`. Messages of secure sums are not packed: masks are random, and their size must not depend on the
data.

    to a node (Flower's type)    content                               the node answers with
    roll call (query)            nothing more                          `Presence`: its release, agents and columns
    round (train)                a broadcast for some of its agents    `Answers`: a contribution for each of them
    sum (train)                  a message of a secure sum; with the   `SumReply`: bytes of the same size for all nodes
                                 first one, a broadcast
    query (train)                a query of a private run; under       `SumReply`: the sum of its agents' clipped
                                 secure aggregation it takes the       vectors, for a trusted server that adds noise
                                 place of the broadcast of a sum
    model (evaluate)             the public model                      `NodeScore`: sums over its test events; none
                                                                       after a private run

A node that cannot do what it was asked answers with a refusal: a reason in one word, and a cure. What a contribution
holds is listed in `federation.messages`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any, ClassVar, Self, get_args, get_origin, get_type_hints

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.constant import ErrorCode

from fedhlcr.exceptions import RecordError, Refusal

_INSTALL = (
    "install the same release of fedhlcr, with its extra flower, at the node as at the server, "
    "and start its SuperNode again"
)
_LOOK = (
    "its own log says why: a full disk, a suspended machine, or too much work for `round-timeout`; "
    "`fedhlcr flower node` names the cause"
)
# Flower's errors, by code. Flower's own text is left out, because it may quote the node.
_FLOWER_ERRORS = {
    ErrorCode.LOAD_CLIENT_APP_EXCEPTION: ("LoadError", f"the node cannot load the app: {_INSTALL}"),
    ErrorCode.CLIENT_APP_RAISED_EXCEPTION: ("ClientAppError", f"the node cannot run the app: {_INSTALL}"),
    ErrorCode.MESSAGE_UNAVAILABLE: ("Expired", f"the node did not take the message in time; {_LOOK}"),
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE: ("Expired", f"the node did not reply in time; {_LOOK}"),
    ErrorCode.CLIENT_APP_CRASHED: ("Crashed", "the app was killed at the node; check its memory and its log"),
    ErrorCode.INVALID_FAB: ("Untrusted", "the node does not trust this app; see --trusted-entities of its SuperNode"),
}
GONE = Refusal(
    "NodeUnavailable",
    "the node is not connected; start its SuperNode again with `fedhlcr flower node`, which also restarts it by itself",
)
_OTHER_ERROR = ("FlowerError", "see the logs of SuperLink and SuperNode")

REFUSAL = "refusal"
# The square of a larger value could overflow when scores are added.
LARGEST_SCORE = 1e100


class RequestType(StrEnum):
    """What a node is asked for, as Flower's message type: one of Flower's categories and a name.

    The names are those of the first release, which nodes know.
    """

    ROLL_CALL = "query.roll_call"
    ROUND = "train.letter"
    SUM = "train.sum"
    QUERY = "train.inquiry"
    MODEL = "evaluate.keepsake"

    @property
    def action(self) -> str:
        return self.partition(".")[2]


def _is_of(value: Any, kind: Any) -> bool:
    """Whether a value has a field's type: a plain type, or a list of one."""
    if get_origin(kind) is list:
        return isinstance(value, list) and all(type(one) is get_args(kind)[0] for one in value)
    return type(value) is kind


@dataclass(frozen=True)
class _Record:
    """A record of a Flower message, with the fields of the dataclass.

    Attributes
    ----------
    wire_name : the record's name in the message. Nodes of an earlier release know it, so it outlives the class's name.
    """

    wire_name: ClassVar[str]

    def __init_subclass__(cls, wire_name: str | None = None) -> None:
        cls.wire_name = wire_name or cls.__name__

    def to_content(self) -> RecordDict:
        return RecordDict({self.wire_name: ConfigRecord(asdict(self))})

    @classmethod
    def from_content(cls, content: RecordDict) -> Self:
        record = content.config_records.get(cls.wire_name)
        if record is None:
            raise RecordError(f"the message has no {cls.wire_name}")
        hints = get_type_hints(cls)
        kinds = {one.name: hints[one.name] for one in fields(cls)}
        if set(record) != set(kinds):
            raise RecordError(f"{cls.wire_name} lacks a field or has an unknown one")
        if wrong := [name for name, kind in kinds.items() if not _is_of(record[name], kind)]:
            raise RecordError(f"`{wrong[0]}` of {cls.wire_name} has the wrong type")
        received = cls(**record)
        received._check()
        return received

    def _check(self) -> None:
        """Refuse values of the right type that make no sense. Here all are accepted; some records refuse more."""


@dataclass(frozen=True)
class RequestHeader(_Record, wire_name="Envelope"):
    """Part of every message to a node.

    Attributes
    ----------
    version : release of fedhlcr at the server
    experiment : name under which nodes keep their state
    features : columns of the federation, in order; empty until the nodes have agreed on them
    """

    version: str
    experiment: str
    features: list[str]


@dataclass(frozen=True)
class RoundRequest(_Record, wire_name="Letter"):
    """A broadcast for some agents of a node.

    Attributes
    ----------
    broadcast : packed bytes of the `Broadcast`
    agents : names of the agents asked
    acknowledged : round of each agent's last accepted contribution
    """

    broadcast: bytes
    agents: list[str]
    acknowledged: list[int]

    def _check(self) -> None:
        if len(self.acknowledged) != len(self.agents) or len(set(self.agents)) != len(self.agents):
            raise RecordError("Letter names an agent twice, or does not have one acknowledged round for each agent")


@dataclass(frozen=True)
class QueryRequest(_Record, wire_name="InquiryLetter"):
    """A query of a private run for all agents of a node, as packed bytes of an `Inquiry`."""

    inquiry: bytes


@dataclass(frozen=True)
class SumMessage(_Record):
    """One of the four messages of a secure sum, `privacy.secure_sum`.

    Attributes
    ----------
    party : the node's name in the sum
    message : the message's bytes
    leaving : with the first message, the agents that have withdrawn, whose sums are removed
    """

    party: str
    message: bytes
    leaving: list[str]


@dataclass(frozen=True)
class SumReply(_Record):
    """The answer to one of the four messages, or to a query; empty if the node needs a new epoch."""

    message: bytes


@dataclass(frozen=True)
class ModelRequest(_Record, wire_name="Keepsake"):
    """The public model, for the node to keep, as packed bytes."""

    model: bytes


@dataclass(frozen=True)
class Presence(_Record):
    """A node's answer to a roll call: its release of fedhlcr, and the names of its agents and columns."""

    version: str
    agents: list[str]
    features: list[str]

    def _check(self) -> None:
        names = self.features
        if not names or len(set(names)) < len(names) or not all(name.isprintable() for name in names):
            raise RecordError("`features` of Presence are empty, name a column twice, or cannot be printed")


@dataclass(frozen=True)
class Answers(_Record):
    """The contributions of the agents asked, as packed bytes."""

    contributions: list[bytes]


@dataclass(frozen=True)
class NodeScore(_Record, wire_name="Score"):
    """How well the model predicts the node's test events. All values are 0 if the node does not report a score.

    Attributes
    ----------
    n_events : number of test events
    mean, spread : the mean of the target, and Σ(y − mean)²
    squared_error : Σ(y − prediction)²
    """

    n_events: int
    mean: float
    spread: float
    squared_error: float

    def _check(self) -> None:
        sums = abs(self.mean), self.n_events, self.spread, self.squared_error
        if not all(0 <= value < LARGEST_SCORE for value in sums):
            raise RecordError("Score has a negative, infinite or absurdly large value")

    @property
    def r2(self) -> float:
        return 1.0 - self.squared_error / self.spread if self.spread > 0.0 else float("nan")

    def __add__(self, other: NodeScore) -> NodeScore:
        """The score of both nodes' events together."""
        n_events = self.n_events + other.n_events
        share = other.n_events / n_events
        apart = other.mean - self.mean
        between = self.n_events * share * apart**2
        return NodeScore(
            n_events,
            self.mean + share * apart,
            self.spread + other.spread + between,
            self.squared_error + other.squared_error,
        )


def packed(*records: _Record) -> RecordDict:
    """The content of a message with several records."""
    return RecordDict({name: record for one in records for name, record in one.to_content().items()})


def refusal_content(refusal: Refusal) -> RecordDict:
    return RecordDict({REFUSAL: ConfigRecord({"kind": refusal.kind, "cure": refusal.cure})})


def find_refusal(message: Message) -> Refusal | None:
    """Why the node did not do what it was asked, or None. Of Flower's errors only the code is used."""
    if message.has_error() and message.error.code == ErrorCode.NODE_UNAVAILABLE:
        return GONE
    if message.has_error():
        return Refusal(*_FLOWER_ERRORS.get(message.error.code, _OTHER_ERROR))
    record = message.content.config_records.get(REFUSAL)
    return None if record is None else Refusal(_line(record.get("kind")), _line(record.get("cure")))


def _line(text: Any) -> str:
    """A node's text as one printable line of limited length: the node can send anything."""
    return "".join(c for c in str(text) if c.isprintable())[:300]
