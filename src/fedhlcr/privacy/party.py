"""One party of a secure sum: it answers the server's four messages of a round. `secure_sum` describes the protocol.

A party computes everything that protects it by itself: who is in its group, how many must answer, who dropped out. It
answers each stage once. If it refuses a message, its state does not change.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import IndexArray
from fedhlcr._support.wording import PARTY
from fedhlcr.exceptions import ArgumentError, SecureSumError
from fedhlcr.privacy import shamir
from fedhlcr.privacy.ciphers import KEY_BYTES, TAG_BYTES, KeyPair, derive, keystream, seal, unseal
from fedhlcr.privacy.fixed_point import FixedArray
from fedhlcr.privacy.neighbours import threshold
from fedhlcr.privacy.roster import CHANNEL, MASKING, Advert, Roster, Signer, signed_text
from fedhlcr.privacy.terms import DIGEST_BYTES, SumStage, Terms, as_array, read_request, write_reply
from fedhlcr.storage.codec import Record
from fedhlcr.storage.reader import RecordReader
from fedhlcr.storage.records import Below, Sizes, from_record, stored, to_record, under

# The two secrets of a party, in the order of its shares: one for its own mask, one for the masks it shares.
SELF_SEED = 0
MASKING_KEY = 1
SHARES_SHAPE = (2, shamir.N_LIMBS)
SEALED_BYTES = 2 * shamir.SHARE_BYTES + TAG_BYTES


@dataclass(frozen=True)
class Secrets:
    """What a party draws anew for each round, from the operating system."""

    channel: KeyPair
    masking: KeyPair
    seed: bytes

    @classmethod
    def generate(cls) -> Secrets:
        return cls(KeyPair.generate(), KeyPair.generate(), os.urandom(shamir.SECRET_BYTES))

    @property
    def public(self) -> bytes:
        return self.channel.public + self.masking.public


@dataclass(frozen=True)
class Membership:
    """A party's place in the round. Rows are the members of its group, itself included.

    Parameters
    ----------
    digest : of the roster
    index : the party's position in the roster
    group : positions of the members
    masking_keys : their public keys for masks, shape (group, 32)
    channel_keys : the keys that seal shares for them and those that open shares from them, shape (group, 2, 32)
    shares : the members' shares that this party holds, shape (group, 2, 9); so far only its own
    held : of whom it holds shares
    present : which parties of the roster sent shares
    """

    digest: bytes = stored(bytes, DIGEST_BYTES)
    index: int = stored(int)
    group: IndexArray = stored("i8", "group", possible=Below("parties"))
    masking_keys: NDArray[np.uint8] = stored("u1", "group", KEY_BYTES)
    channel_keys: NDArray[np.uint8] = stored("u1", "group", 2, KEY_BYTES)
    shares: shamir.Shares = stored("u4", "group", *SHARES_SHAPE)
    held: NDArray[np.bool_] = stored("?", "group")
    present: NDArray[np.bool_] = stored("?", "parties")

    @property
    def n_parties(self) -> int:
        """Size of the roster."""
        return len(self.present)

    @property
    def threshold(self) -> int:
        return threshold(len(self.group))

    @property
    def others(self) -> NDArray[np.bool_]:
        """The members of the group, without the party itself."""
        return self.group != self.index

    def check_record(self, reader: RecordReader, sizes: Sizes) -> None:  # noqa: ARG002
        reader.require(self.index in self.group.tolist() and (np.diff(self.group) > 0).all(), "group")


def commitment(seed: bytes, digest: bytes, index: int) -> bytes:
    """What a party tells of its seed, so that the server notices a wrong one; the seed itself stays unknown."""
    return sha256(b"fedhlcr secure sum|commitment|" + digest + struct.pack("<q", index) + seed).digest()


def self_mask(seed: bytes, digest: bytes, n_values: int) -> FixedArray:
    """The mask that only the party itself can make."""
    return keystream(derive(seed, b"self mask", digest), n_values)


def pair_mask(own: KeyPair, public: bytes, digest: bytes, n_values: int) -> FixedArray:
    """The mask that two parties share; the one with the lower index adds it, the other one subtracts it."""
    return keystream(derive(own.agree(public), b"pair mask", digest), n_values)


class Party:
    """One party in one round.

    Parameters
    ----------
    name : the name under which the server knows it
    terms : what the party agrees to; messages of any other sum are refused
    identity : signs the party's keys and verifies those of others; without it the server is trusted to pass keys on
        unchanged
    """

    def __init__(self, name: str, terms: Terms, identity: Signer | None = None) -> None:
        self.name = name
        self.terms = terms
        self.identity = identity
        self.stage = SumStage.KEYS
        self._secrets: Secrets | None = None
        self._member: Membership | None = None

    def handle(self, message: bytes, values: Callable[[], FixedArray]) -> bytes:
        """Answer a message of the server. `values` is called once, in the third of the four stages."""
        if self.stage is SumStage.OVER:
            raise SecureSumError("the round is over: every stage is answered once. Wait for the next round.")
        reader = read_request(message, self.stage, self.terms)
        if self.stage is SumStage.KEYS:
            reply = self._advertise()
        elif self.stage is SumStage.SHARES:
            reply = self._share(Roster.read(reader, self.terms))
        elif self.stage is SumStage.MASKED:
            reply = self._mask(reader, values)
        else:
            reply = self._unmask(reader)
        return reply

    def _reply(self, record: Record, then: SumStage) -> bytes:
        reply = write_reply(self.stage, self.terms, record)
        self.stage = then
        return reply

    def _advertise(self) -> bytes:
        secrets = Secrets.generate()
        signature = b""
        if self.identity is not None:
            signature = self.identity.sign(signed_text(self.terms, self.name, secrets.public))
        self._secrets = secrets
        return self._reply(to_record(Advert(secrets.public, signature)), SumStage.SHARES)

    def _share(self, roster: Roster) -> bytes:
        secrets = self._secrets
        assert secrets is not None
        roster.check(self.identity)
        if self.name not in roster.names:
            raise SecureSumError("this party is not on the roster of the round; nothing is sent.")
        index = roster.names.index(self.name)
        if roster.keys[index].tobytes() != secrets.public:
            raise SecureSumError("the roster of the round shows other keys for this party; nothing is sent.")
        group = roster.groups[index]
        shares = np.stack(
            [shamir.split(secret, roster.threshold, len(group)) for secret in (secrets.seed, secrets.masking.secret)],
            axis=1,
        )
        held = group == index
        member = Membership(
            roster.digest,
            index,
            group,
            roster.keys[group, MASKING],
            _channel_keys(secrets.channel, index, group, roster),
            np.where(held[:, None, None], shares, np.uint32(0)),
            held,
            np.zeros(len(roster), np.bool_),
        )
        sealed = np.zeros((len(group), SEALED_BYTES), np.uint8)
        for row in np.flatnonzero(member.others).tolist():
            context = _envelope(member.digest, index, int(group[row]))
            data = seal(member.channel_keys[row, 0].tobytes(), shares[row].astype("<u4").tobytes(), context)
            sealed[row] = np.frombuffer(data, np.uint8)
        self._member = member
        return self._reply({"digest": as_array(member.digest), "sealed": sealed}, SumStage.MASKED)

    def _mask(self, reader: RecordReader, values: Callable[[], FixedArray]) -> bytes:
        secrets = self._secrets
        member = self._member
        assert secrets is not None
        assert member is not None
        present = reader.array("present", "?", (member.n_parties,))
        reader.require(present[member.index], "present")
        self._require_enough(present, "sent shares")
        senders = np.flatnonzero(present[member.group] & member.others)
        member = _open_shares(member, present, reader.array("sealed", "u1", (len(senders), SEALED_BYTES)))
        masked = self_mask(secrets.seed, member.digest, self.terms.n_values).copy()
        for row in senders.tolist():
            mask = pair_mask(secrets.masking, member.masking_keys[row].tobytes(), member.digest, self.terms.n_values)
            if member.index < member.group[row]:
                masked += mask
            else:
                masked -= mask
        masked += _checked(values(), self.terms.n_values)
        self._member = member
        seal_of_seed = commitment(secrets.seed, member.digest, member.index)
        return self._reply({"masked": masked, "commitment": as_array(seal_of_seed)}, SumStage.UNMASKING)

    def _unmask(self, reader: RecordReader) -> bytes:
        member = self._member
        assert member is not None
        survivors = reader.array("survivors", "?", (member.n_parties,))
        reader.require(survivors[member.index] and not (survivors & ~member.present).any(), "survivors")
        self._require_enough(survivors, "sent masked values")
        rows = np.flatnonzero(member.present[member.group])
        # never both shares of one party: who is not among the survivors has dropped out
        which = np.where(survivors[member.group[rows]], SELF_SEED, MASKING_KEY)
        record = {"shares": member.shares[rows, which], "held": member.held[rows]}
        self._secrets = self._member = None
        return self._reply(record, SumStage.OVER)

    def _require_enough(self, present: NDArray[np.bool_], what: str) -> None:
        member = self._member
        assert member is not None
        count = int(present.sum())
        near = int(present[member.group].sum())
        if count < self.terms.min_parties or near < member.threshold:
            raise SecureSumError(
                f"{PARTY.count(count)} {what}, {near} of them in this party's group of {len(member.group)}; at least "
                f"{self.terms.min_parties} and {member.threshold} are needed. Nothing is sent."
            )

    def to_record(self) -> Record:
        """Return the state between two messages, secrets included; keep it where only the party can read it."""
        record: Record = {"name": self.name, "stage": self.stage.value, **under("terms_", to_record(self.terms))}
        if self._secrets is not None:
            keys = self._secrets.channel.secret, self._secrets.masking.secret, self._secrets.seed
            record["secrets"] = as_array(b"".join(keys)).reshape(3, KEY_BYTES)
        if self._member is not None:
            record |= under("member_", to_record(self._member))
        return record

    @classmethod
    def read(cls, reader: RecordReader, identity: Signer | None = None) -> Party:
        """Return the party whose `to_record` the reader has."""
        party = cls(reader.value("name", str), from_record(Terms, reader.part("terms_")), identity)
        stage = reader.value("stage", str)
        reader.require(stage in {known.value for known in SumStage}, "stage")
        party.stage = SumStage(stage)
        if party.stage in (SumStage.SHARES, SumStage.MASKED, SumStage.UNMASKING):
            channel, masking, seed = (row.tobytes() for row in reader.array("secrets", "u1", (3, KEY_BYTES)))
            party._secrets = Secrets(KeyPair.from_secret(channel), KeyPair.from_secret(masking), seed)
        if party.stage in (SumStage.MASKED, SumStage.UNMASKING):
            party._member = from_record(Membership, reader.part("member_"))
        return party


def _channel_keys(own: KeyPair, index: int, group: IndexArray, roster: Roster) -> NDArray[np.uint8]:
    """The keys that seal shares for each member and open shares from it; zeros for the party itself."""
    keys = np.zeros((len(group), 2, KEY_BYTES), np.uint8)
    for row, other in enumerate(group.tolist()):
        if other != index:
            pair = derive(own.agree(roster.keys[other, CHANNEL].tobytes()), b"shares", roster.digest, 2 * KEY_BYTES)
            both = np.frombuffer(pair, np.uint8).reshape(2, KEY_BYTES)
            # the first half is for what the lower index sends
            keys[row] = both if index < other else both[::-1]
    return keys


def _envelope(digest: bytes, sender: int, receiver: int) -> bytes:
    return digest + struct.pack("<2q", sender, receiver)


def _open_shares(member: Membership, present: NDArray[np.bool_], sealed: NDArray[np.uint8]) -> Membership:
    """Add the shares that the members of the group sent. What cannot be opened is not held; others may hold enough."""
    shares = member.shares.copy()
    held = member.held.copy()
    senders = np.flatnonzero(present[member.group] & member.others).tolist()
    for row, data in zip(senders, sealed, strict=True):
        context = _envelope(member.digest, int(member.group[row]), member.index)
        opened = unseal(member.channel_keys[row, 1].tobytes(), data.tobytes(), context)
        if opened is not None and len(opened) == 2 * shamir.SHARE_BYTES:
            shares[row] = np.frombuffer(opened, "<u4").reshape(SHARES_SHAPE)
            held[row] = True
    return replace(member, shares=shares, held=held, present=present)


def _checked(values: FixedArray, n_values: int) -> FixedArray:
    values = np.asarray(values)
    if values.dtype != np.uint64 or values.shape != (n_values,):
        raise ArgumentError(
            f"`values` must return {n_values} numbers of type uint64, but returned {values.dtype} of shape "
            f"{values.shape}; encode them in fixed point."
        )
    return values
