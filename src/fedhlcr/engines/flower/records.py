"""Messages ↔ Flower's records. Broadcasts, contributions and models travel in their own bytes, with their checksums.

roll call   query     who is there, with which columns, in which release   →  Presence
letter      train     a broadcast to some agents of a node                 →  one Contribution for each
keepsake    evaluate  the public model, to be kept and tried               →  Score
anything                                                                   →  Refusal
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self, get_args, get_origin, get_type_hints

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.constant import ErrorCode

from fedhlcr.exceptions import RecordError, Refusal

_INSTALL = "install the same release of fedhlcr[flower] at the node as at the server, and start its SuperNode again"
# What Flower says where a node says nothing. Its reasons may quote the node, and stay unsaid.
_FLOWER_ERRORS = {
    ErrorCode.LOAD_CLIENT_APP_EXCEPTION: ("LoadError", f"the node cannot load the app: {_INSTALL}"),
    ErrorCode.CLIENT_APP_RAISED_EXCEPTION: ("ClientAppError", f"the node cannot run the app: {_INSTALL}"),
    ErrorCode.MESSAGE_UNAVAILABLE: ("Expired", "the message was not taken in time; give rounds more time"),
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE: ("Expired", "the reply did not come in time; give rounds more time"),
    ErrorCode.CLIENT_APP_CRASHED: ("Crashed", "the app was killed at the node; look for memory, and at its log"),
    ErrorCode.INVALID_FAB: ("Untrusted", "the node does not trust this app; see --trusted-entities of its SuperNode"),
}
GONE = Refusal("NodeUnavailable", "the node has gone; start its SuperNode again")
_OTHER_ERROR = ("FlowerError", "see the logs of SuperLink and SuperNode")

REFUSAL = "refusal"
# Whose square can still be added up.
LARGEST_SCORE = 1e100


class Errand(StrEnum):
    """Why a message goes to a node, as Flower's message type: a category of its own, and a name of ours."""

    ROLL_CALL = "query.roll_call"
    LETTER = "train.letter"
    KEEPSAKE = "evaluate.keepsake"

    @property
    def action(self) -> str:
        return self.partition(".")[2]


def _is_of(value: Any, kind: Any) -> bool:
    """Whether a value has a field's type, which is plain or a list of plain ones."""
    if get_origin(kind) is list:
        return isinstance(value, list) and all(type(one) is get_args(kind)[0] for one in value)
    return type(value) is kind


@dataclass(frozen=True)
class _Record:
    """A message's one record: field by field, under the name of its class."""

    def to_content(self) -> RecordDict:
        return RecordDict({type(self).__name__: ConfigRecord(asdict(self))})

    @classmethod
    def from_content(cls, content: RecordDict) -> Self:
        record = content.config_records.get(cls.__name__)
        if record is None:
            raise RecordError(f"the message holds no {cls.__name__}")
        kinds = get_type_hints(cls)
        if set(record) != set(kinds):
            raise RecordError(f"a field of {cls.__name__} is missing, or one too many")
        if wrong := [name for name, kind in kinds.items() if not _is_of(record[name], kind)]:
            raise RecordError(f"`{wrong[0]}` of {cls.__name__} is not what it should be")
        return cls(**record)


@dataclass(frozen=True)
class Envelope(_Record):
    """What every message to a node says first.

    Attributes
    ----------
    version : release of fedhlcr at the server
    experiment : under which name nodes keep their state
    features : columns of the federation, in its order; none before they are agreed
    """

    version: str
    experiment: str
    features: list[str]


@dataclass(frozen=True)
class Letter(_Record):
    """A broadcast to some agents of a node, each told its last accepted round."""

    broadcast: bytes
    agents: list[str]
    acknowledged: list[int]

    @classmethod
    def from_content(cls, content: RecordDict) -> Self:
        letter = super().from_content(content)
        if len(letter.acknowledged) != len(letter.agents) or len(set(letter.agents)) != len(letter.agents):
            raise RecordError("`agents` of Letter are named twice, or told other than one round each")
        return letter


@dataclass(frozen=True)
class Keepsake(_Record):
    """The public model, for the node to keep."""

    model: bytes


@dataclass(frozen=True)
class Presence(_Record):
    """A node's answer to a roll call."""

    version: str
    agents: list[str]
    features: list[str]

    @classmethod
    def from_content(cls, content: RecordDict) -> Self:
        presence = super().from_content(content)
        names = presence.features
        if not names or len(set(names)) < len(names) or not all(name.isprintable() for name in names):
            raise RecordError("`features` of Presence are none, or name one twice")
        return presence


@dataclass(frozen=True)
class Answers(_Record):
    """Contributions, one for each agent."""

    contributions: list[bytes]


@dataclass(frozen=True)
class Score(_Record):
    """How well the model predicts the node's test events: sums over them, none where it has no test file.

    Attributes
    ----------
    mean, spread : of the target: its mean, and Σ(y − mean)²
    squared_error : Σ(y − prediction)²
    """

    n_events: int
    mean: float
    spread: float
    squared_error: float

    @classmethod
    def from_content(cls, content: RecordDict) -> Self:
        score = super().from_content(content)
        sums = abs(score.mean), score.n_events, score.spread, score.squared_error
        if not all(0 <= value < LARGEST_SCORE for value in sums):
            raise RecordError("a Score that cannot be")
        return score

    @property
    def r2(self) -> float:
        return 1.0 - self.squared_error / self.spread if self.spread > 0.0 else float("nan")

    def __add__(self, other: Score) -> Score:
        """Of both nodes' events together."""
        n_events = self.n_events + other.n_events
        share, apart = other.n_events / n_events, other.mean - self.mean
        between = self.n_events * share * apart**2
        return Score(
            n_events,
            self.mean + share * apart,
            self.spread + other.spread + between,
            self.squared_error + other.squared_error,
        )


def packed(*records: _Record) -> RecordDict:
    """Several records in one message."""
    return RecordDict({name: record for one in records for name, record in one.to_content().items()})


def refusal_content(refusal: Refusal) -> RecordDict:
    return RecordDict({REFUSAL: ConfigRecord({"kind": refusal.kind, "cure": refusal.cure})})


def find_refusal(message: Message) -> Refusal | None:
    """Why a reply is none: the node's own word, or Flower's, of which only the code is told."""
    if message.has_error() and message.error.code == ErrorCode.NODE_UNAVAILABLE:
        return GONE
    if message.has_error():
        return Refusal(*_FLOWER_ERRORS.get(message.error.code, _OTHER_ERROR))
    record = message.content.config_records.get(REFUSAL)
    return None if record is None else Refusal(_line(record.get("kind")), _line(record.get("cure")))


def _line(text: Any) -> str:
    """What a node says of itself is the node's text: one line, of bounded length, that can be printed."""
    return "".join(c for c in str(text) if c.isprintable())[:300]
