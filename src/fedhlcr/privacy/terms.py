"""What all parties of a secure sum agree on beforehand, and the bytes of its messages.

Every message names the round it belongs to by a hash of the terms, so that none of another round, epoch, session or run
is accepted.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.checks import positive
from fedhlcr.exceptions import ArgumentError, CodecError, SecureSumError
from fedhlcr.storage import codec
from fedhlcr.storage.codec import Value
from fedhlcr.storage.reader import RecordReader
from fedhlcr.storage.records import from_record, stored, stored_fields, to_record

VERSION = 1
PROTOCOL = b"fedhlcr secure sum 1"
DIGEST_BYTES = 32
# A sum of one party is that party's values.
FEWEST_PARTIES = 2
INTEGER_LIMIT = 2**63


class SumStage(Enum):
    """What a party answers next; in each stage the server asks once."""

    KEYS = "keys"
    SHARES = "shares"
    MASKED = "masked"
    UNMASKING = "unmasking"
    OVER = "over"


@dataclass(frozen=True)
class Terms:
    """What is summed, when, and among how many; public, and the same for all parties.

    Parameters
    ----------
    run, session, epoch, round : which sum it is; no two sums of a party may have all four in common
    n_values : length of every party's vector
    min_parties : fewest parties whose sum may be revealed
    """

    run: int = stored(int)
    session: int = stored(int)
    epoch: int = stored(int)
    round: int = stored(int)
    n_values: int = stored(int, possible=positive)
    min_parties: int = stored(int, possible=lambda number: number >= FEWEST_PARTIES)

    def __post_init__(self) -> None:
        for name in stored_fields(Terms):
            least = {"n_values": 1, "min_parties": FEWEST_PARTIES}.get(name, -INTEGER_LIMIT)
            value = getattr(self, name)
            if not least <= value < INTEGER_LIMIT:
                raise ArgumentError(f"`{name}` must be at least {least} and below 2**63, but is {value}.")

    @cached_property
    def context(self) -> bytes:
        """A hash of the terms; part of every message, signature, key derivation and encryption of the sum."""
        return sha256(PROTOCOL + struct.pack("<6q", *to_record(self).values())).digest()


def write_request(stage: SumStage, terms: Terms, record: Mapping[str, Value]) -> bytes:
    """Return what the server asks of a party in a stage, as bytes."""
    return codec.encode(f"secure-sum-ask-{stage.value}", VERSION, {"context": as_array(terms.context), **record})


def write_reply(stage: SumStage, terms: Terms, record: Mapping[str, Value]) -> bytes:
    """Return what a party answers in a stage, as bytes."""
    return codec.encode(f"secure-sum-{stage.value}", VERSION, {"context": as_array(terms.context), **record})


def terms_of(data: bytes) -> Terms:
    """Return the terms that the server proposes in the first message of a sum."""
    record = codec.decode(data, f"secure-sum-ask-{SumStage.KEYS.value}", VERSION)
    return from_record(Terms, RecordReader(record, "the message", "wait for the next round"))


def read_request(data: bytes, stage: SumStage, terms: Terms) -> RecordReader:
    return _read(data, f"secure-sum-ask-{stage.value}", terms)


def read_reply(data: bytes, stage: SumStage, terms: Terms) -> RecordReader:
    return _read(data, f"secure-sum-{stage.value}", terms)


def _read(data: bytes, kind: str, terms: Terms) -> RecordReader:
    found = codec.kind_of(data)
    if found != kind:
        raise SecureSumError(
            f"a message of kind {found!r} came where one of kind {kind!r} was expected; the stages of a round follow "
            "each other, and each comes once. Wait for the next round."
        )
    reader = RecordReader(codec.decode(data, kind, VERSION), "the message", "wait for the next round")
    context = reader.array("context", "u1", (DIGEST_BYTES,)).tobytes()
    if context != terms.context:
        raise SecureSumError("the message belongs to another round, epoch or run; wait for the next round.")
    return reader


def as_array(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(data, dtype=np.uint8)


# What a message from elsewhere may fail with.
MESSAGE_ERRORS = (CodecError, SecureSumError)
