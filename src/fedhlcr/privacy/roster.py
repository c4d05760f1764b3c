"""The roster of a secure sum: the keys of all parties that take part, in an order that all share."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import IndexArray
from fedhlcr._support.checks import within
from fedhlcr.exceptions import SecureSumError
from fedhlcr.privacy.ciphers import KEY_BYTES
from fedhlcr.privacy.neighbours import groups_of, places_of, threshold
from fedhlcr.privacy.terms import Terms, as_array
from fedhlcr.storage.codec import Record
from fedhlcr.storage.reader import RecordReader
from fedhlcr.storage.records import Sizes, stored

# Each party advertises two keys: one encrypts the shares sent to it, one makes masks.
CHANNEL = 0
MASKING = 1
N_KEYS = 2
SIGNATURE_LIMIT = 1024


class Signer(Protocol):
    """Who a party is beyond one round: it signs the party's keys and verifies those of others."""

    def sign(self, data: bytes) -> bytes: ...

    def verify(self, party: str, data: bytes, signature: bytes) -> bool: ...


@dataclass(frozen=True)
class Advert:
    """What a party advertises in the first stage: its public keys (2 × 32 bytes), and their signature or nothing."""

    keys: bytes = stored(bytes, N_KEYS, KEY_BYTES)
    signature: bytes = stored(bytes, None)

    def check_record(self, reader: RecordReader, sizes: Sizes) -> None:  # noqa: ARG002
        reader.require(len(self.signature) <= SIGNATURE_LIMIT, "signature")


def signed_text(terms: Terms, party: str, keys: bytes) -> bytes:
    """What a party signs: its keys, for this sum, under this name."""
    name = party.encode(errors="surrogatepass")
    return terms.context + struct.pack("<q", len(name)) + name + keys


@dataclass(frozen=True)
class Roster:
    """The parties of a sum, each with what it advertised.

    Parameters
    ----------
    names : the parties; their positions here are their indices
    keys : public keys, shape (n_parties, 2, 32)
    signatures : one per party
    """

    terms: Terms
    names: tuple[str, ...]
    keys: NDArray[np.uint8]
    signatures: tuple[bytes, ...]

    @classmethod
    def of(cls, terms: Terms, adverts: Mapping[str, Advert]) -> Roster:
        keys = as_array(b"".join(advert.keys for advert in adverts.values())).reshape(-1, N_KEYS, KEY_BYTES)
        return cls(terms, tuple(adverts), keys, tuple(advert.signature for advert in adverts.values()))

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def digest(self) -> bytes:
        """A hash of terms, names and keys. Parties that were shown different rosters do not understand each other."""
        names = [name.encode(errors="surrogatepass") for name in self.names]
        lengths = struct.pack(f"<{len(names) + 1}q", len(names), *map(len, names))
        return sha256(self.terms.context + lengths + b"".join(names) + self.keys.tobytes()).digest()

    @cached_property
    def groups(self) -> IndexArray:
        return groups_of(len(self), self.digest)

    @cached_property
    def places(self) -> IndexArray:
        return places_of(self.groups)

    @property
    def group_size(self) -> int:
        return self.groups.shape[1]

    @property
    def threshold(self) -> int:
        return threshold(self.group_size)

    def check(self, identity: Signer | None) -> None:
        """SecureSumError unless there are enough parties, all different, each with keys that it signed."""
        if len(self) < self.terms.min_parties:
            raise SecureSumError(
                f"{len(self)} parties take part, but at least {self.terms.min_parties} are needed; nothing is sent."
            )
        if len(set(self.names)) < len(self) or repeated_keys(self.keys):
            raise SecureSumError("two parties have the same name or the same key; nothing is sent.")
        if identity is not None:
            for name, keys, signature in zip(self.names, self.keys, self.signatures, strict=True):
                if not identity.verify(name, signed_text(self.terms, name, keys.tobytes()), signature):
                    raise SecureSumError("the keys of a party are not signed by that party; nothing is sent.")

    def to_record(self) -> Record:
        return {
            "parties": list(self.names),
            "keys": self.keys,
            "signatures": as_array(b"".join(self.signatures)),
            "signature_sizes": np.array([len(signature) for signature in self.signatures], dtype=np.int64),
        }

    @classmethod
    def read(cls, reader: RecordReader, terms: Terms) -> Roster:
        names = reader.texts("parties")
        keys = reader.array("keys", "u1", (len(names), N_KEYS, KEY_BYTES))
        sizes = reader.array("signature_sizes", "i8", (len(names),), within(0, SIGNATURE_LIMIT + 1))
        signatures = reader.array("signatures", "u1", (int(sizes.sum()),)).tobytes()
        ends = np.cumsum(sizes).tolist()
        parts = tuple(signatures[start:end] for start, end in pairwise([0, *ends]))
        return cls(terms, tuple(names), keys, parts)


def repeated_keys(keys: NDArray[np.uint8]) -> set[bytes]:
    """Return the keys, of shape (n_parties, 2, 32), that occur more than once."""
    data = keys.tobytes()
    counts = Counter(data[start : start + KEY_BYTES] for start in range(0, len(data), KEY_BYTES))
    return {key for key, count in counts.items() if count > 1}
