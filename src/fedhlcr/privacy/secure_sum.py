"""Secure sums: the server learns the sum of many parties' vectors, and nothing else about any of them.

The protocol is that of Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning" (CCS
2017), with double masks; beyond 100 parties, masks and shares only pass between neighbours (`neighbours`, after Bell et
al. 2020). Vectors are integers modulo 2⁶⁴ (`fixed_point`), so the sum is exact.

Each party u hides its vector x_u under a mask of its own, made from a seed b_u, and under masks that it shares with
each other party v of its group, made from the key s_uv on which the two agree:

    y_u = x_u + stream(b_u) + Σ_{v > u} stream(s_uv) − Σ_{v < u} stream(s_uv)      (mod 2⁶⁴)

Masks of pairs cancel in the sum. What is left over is removed with secrets that the parties put together: the seeds of
those whose vectors arrived, and the keys of those who dropped out before they sent theirs.

    stage       the server sends               a party answers
    keys        the terms of the sum           two public keys, signed if it has an identity
    shares      the roster: all names, keys    shares of its seed and of its masking key, sealed for each of its group
    masked      who sent shares; the shares    y_u, and a hash of its seed
                sealed for the party
    unmasking   who sent masked vectors: the   one share of each member of its group: of a survivor's seed, or of the
                survivors                      masking key of one who dropped out

Of the first three stages the server learns keys and who answered. From the last one it gets the seeds of the survivors
and the masking keys of the others: these give the sum, and no party's seed and masking key become known together.

A party that does not answer in time, or answers wrongly, has dropped out; the others go on without it. If too few are
left the round is void: the server learns nothing, and nothing is lost.

**Whom a party trusts.** The server may be curious and keep everything it sees, and fewer than two thirds of a party's
group may tell it all they know: they do not learn more than the sum of the other survivors. That sum is only as private
as it is large: `min_parties` bounds the number of survivors from below, colluding ones included.

**What a party checks.** It computes group and threshold itself. All messages, keys and signatures are bound to the
terms: run, session, epoch, round, length and minimal number of parties. Keys and masks are bound to a hash of the
roster, so parties that were shown different rosters cannot be combined. It never gives both shares of one party, and it
answers every stage once.

**What a server that lies can do.** Without identities it can invent parties, and so be alone with a victim's vector;
with identities it can only choose whom to invite. It can tell some parties that a survivor dropped out; it needs a
group with a third of colluding members to profit from it. It can leave out replies and void rounds at will, and it can
report a wrong sum to others. It can run two rounds with cohorts that differ in one party: the difference of the sums
belongs to that party alone. Differential privacy limits what such sums tell; masks do not.

**What a party that lies can do.** It can send any vector; nobody sees it. It can void a round by sending wrong shares;
`suspects` names it where the shares show it. It cannot make the server accept a wrong seed or key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.wording import PARTY
from fedhlcr.exceptions import ArgumentError, FederationError, SecureSumError
from fedhlcr.privacy.ciphers import KEY_BYTES, is_valid_key
from fedhlcr.privacy.fixed_point import FixedArray
from fedhlcr.privacy.party import SEALED_BYTES
from fedhlcr.privacy.roster import Advert, Roster, repeated_keys, signed_text
from fedhlcr.privacy.shamir import N_LIMBS, PRIME, Shares
from fedhlcr.privacy.terms import (
    DIGEST_BYTES,
    MESSAGE_ERRORS,
    SumStage,
    Terms,
    read_reply,
    write_request,
)
from fedhlcr.privacy.unmasking import Unmasking
from fedhlcr.storage.reader import RecordReader
from fedhlcr.storage.records import from_record, to_record

# Whether a signature of a party's text is right.
Verify = Callable[[str, bytes, bytes], bool]
Messages = dict[str, bytes]
Reply = TypeVar("Reply")


class SecureTotal(NamedTuple):
    """The result: whose vectors were summed, and their sum modulo 2⁶⁴."""

    parties: tuple[str, ...]
    values: FixedArray


class SecureSum:
    """The server's half of one secure sum. It carries no messages itself:

        messages = exchange.begin()
        while messages:
            messages = exchange.proceed(replies_to(messages))

    Parameters
    ----------
    terms : what the parties agree to
    parties : the names of those who are invited
    verify : checks the signatures of keys: verify(party, data, signature); a party with a wrong one is left out,
        because all others would refuse the roster

    Attributes
    ----------
    result : the sum, once the last stage has succeeded
    void_reason : why there is no sum, once a stage has failed
    has_asked_for_values : whether parties were asked for their masked vectors; without a sum, they may have sent them
    suspects : parties that sent something malformed or wrong, apart from their values
    """

    def __init__(self, terms: Terms, parties: Sequence[str], verify: Verify | None = None) -> None:
        if len(set(parties)) < len(parties):
            raise ArgumentError("`parties` must all be different, but some are named twice; name each party once.")
        self.terms = terms
        self.parties = tuple(parties)
        self.result: SecureTotal | None = None
        self.void_reason: str | None = None
        self.has_asked_for_values = False
        self._verify = verify
        self._stage: SumStage | None = None
        self._suspects: set[str] = set()

    @property
    def suspects(self) -> tuple[str, ...]:
        return tuple(party for party in self.parties if party in self._suspects)

    def begin(self) -> Messages:
        """Return the first message to each party; none if too few are invited."""
        if self._stage is not None:
            raise FederationError("the secure sum has begun already; make a new one for the next round.")
        if self._is_void(len(self.parties), "was invited" if len(self.parties) == 1 else "were invited"):
            return {}
        self._stage = SumStage.KEYS
        return dict.fromkeys(self.parties, write_request(SumStage.KEYS, self.terms, to_record(self.terms)))

    def proceed(self, replies: Mapping[str, bytes]) -> Messages:
        """Take the replies to the last messages; return the next ones, none if the sum is over.

        Who is missing among the replies has dropped out. Replies of others than those asked are ignored.
        """
        match self._stage:
            case SumStage.KEYS:
                return self._take_keys(replies)
            case SumStage.SHARES:
                return self._take_shares(replies)
            case SumStage.MASKED:
                return self._take_masked(replies)
            case SumStage.UNMASKING:
                return self._take_unmasking(replies)
        raise FederationError("the secure sum has not begun, or is over; call begin() once, then proceed().")

    def _take_keys(self, replies: Mapping[str, bytes]) -> Messages:
        adverts = self._read(replies, self.parties, lambda _, reader: from_record(Advert, reader))
        repeated = repeated_keys(Roster.of(self.terms, adverts).keys)
        for party in [party for party, advert in adverts.items() if not self._is_acceptable(party, advert, repeated)]:
            del adverts[party]
            self._suspects.add(party)
        if self._is_void(len(adverts), "sent keys"):
            return {}
        self._roster = Roster.of(self.terms, adverts)
        self._index = {party: index for index, party in enumerate(adverts)}
        self._stage = SumStage.SHARES
        return dict.fromkeys(adverts, write_request(SumStage.SHARES, self.terms, self._roster.to_record()))

    def _is_acceptable(self, party: str, advert: Advert, repeated: set[bytes]) -> bool:
        keys = advert.keys[:KEY_BYTES], advert.keys[KEY_BYTES:]
        if not repeated.isdisjoint(keys) or not all(map(is_valid_key, keys)):
            return False
        return self._verify is None or self._verify(
            party, signed_text(self.terms, party, advert.keys), advert.signature
        )

    def _take_shares(self, replies: Mapping[str, bytes]) -> Messages:
        roster = self._roster

        def read(_: str, reader: RecordReader) -> NDArray[np.uint8]:
            reader.require(reader.array("digest", "u1", (DIGEST_BYTES,)).tobytes() == roster.digest, "digest")
            return reader.array("sealed", "u1", (roster.group_size, SEALED_BYTES))

        received = self._read(replies, roster.names, read)
        if self._is_void(len(received), "sent shares"):
            return {}
        sealed = np.zeros((len(roster), roster.group_size, SEALED_BYTES), np.uint8)
        self._present = np.zeros(len(roster), np.bool_)
        for party, rows in received.items():
            sealed[self._index[party]] = rows
            self._present[self._index[party]] = True
        self._stage = SumStage.MASKED
        self.has_asked_for_values = True
        return {party: self._inbox(self._index[party], sealed) for party in received}

    def _inbox(self, index: int, sealed: NDArray[np.uint8]) -> bytes:
        """The message with the shares that a party's group sealed for it."""
        group = self._roster.groups[index]
        places = self._roster.places[index]
        rows = self._present[group] & (group != index)
        inbox = {"present": self._present, "sealed": sealed[group[rows], places[rows]]}
        return write_request(SumStage.MASKED, self.terms, inbox)

    def _take_masked(self, replies: Mapping[str, bytes]) -> Messages:
        roster = self._roster
        asked = [name for name, present in zip(roster.names, self._present, strict=True) if present]
        total = np.zeros(self.terms.n_values, np.uint64)
        commitments = dict[int, bytes]()

        def read(_: str, reader: RecordReader) -> tuple[FixedArray, bytes]:
            masked = reader.array("masked", "u8", (self.terms.n_values,))
            return masked, reader.array("commitment", "u1", (DIGEST_BYTES,)).tobytes()

        received = self._read(replies, asked, read)
        if self._is_void(len(received), "sent masked values"):
            return {}
        for party, (masked, commitment) in received.items():
            commitments[self._index[party]] = commitment
            total += masked
        self._total = total
        self._unmasking = Unmasking(roster, self._present, commitments)
        survivors = np.isin(np.arange(len(roster)), list(commitments))
        self._stage = SumStage.UNMASKING
        return dict.fromkeys(received, write_request(SumStage.UNMASKING, self.terms, {"survivors": survivors}))

    def _take_unmasking(self, replies: Mapping[str, bytes]) -> Messages:
        roster = self._roster
        unmasking = self._unmasking
        survivors = tuple(roster.names[index] for index in unmasking.commitments)

        def read(party: str, reader: RecordReader) -> tuple[Shares, NDArray[np.bool_]]:
            n_rows = len(unmasking.rows_of(self._index[party]))
            shares = reader.array("shares", "u4", (n_rows, N_LIMBS), lambda share: share < PRIME)
            return shares, reader.array("held", "?", (n_rows,))

        received = self._read(replies, survivors, read)
        for party, (shares, held) in received.items():
            unmasking.add(self._index[party], shares, held)
        self._stage = SumStage.OVER
        try:
            self.result = SecureTotal(survivors, unmasking.remove_masks(self._total))
        except SecureSumError as error:
            self.void_reason = f"{len(received)} of {len(survivors)} parties helped to unmask the sum: {error}."
        self._suspects |= {roster.names[index] for index in unmasking.suspects}
        return {}

    def _read(
        self, replies: Mapping[str, bytes], asked: Iterable[str], read: Callable[[str, RecordReader], Reply]
    ) -> dict[str, Reply]:
        """What the parties replied, in the order of the asked ones; whoever sent something malformed is left out."""
        assert self._stage is not None
        received = {}
        for party in asked:
            if party in replies:
                try:
                    received[party] = read(party, read_reply(replies[party], self._stage, self.terms))
                except MESSAGE_ERRORS:
                    self._suspects.add(party)
        return received

    def _is_void(self, count: int, what: str) -> bool:
        """Whether too few are left; then the sum is over."""
        if count >= self.terms.min_parties:
            return False
        self._stage = SumStage.OVER
        self.void_reason = f"{PARTY.count(count)} {what}, but at least {self.terms.min_parties} are needed."
        return True
