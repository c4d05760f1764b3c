"""The attack on the messages of secure aggregation: what can a server make of them besides the cohort's sum?

The server keeps every message. It takes off what it can: from the last stage it knows the seeds of the parties' own
masks. Parties send differences to what the server has of them. So the server looks for sums of single agents in

    masked        what a party sent, and the sum of that over the rounds
    stripped      the same without the party's own mask; the masks shared with others remain
    changes       the difference of what a party sent in two rounds: masks that are used twice would cancel
    pairs         the sum of what two parties sent: the masks that they share cancel, those shared with others do not
    all but one   the cohort's sum less what one party sent

Each is read as sums by cluster and goes through the same attack as in plain mode. The two sums of the survey have one
number for each column: `read_surveys`. `known_numbers` is a stricter check that needs the truth: it looks for numbers
that only an agent should know at every position of every message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, chain, combinations, islice, pairwise

import numpy as np

from fedhlcr._support.arrays import IndexArray
from fedhlcr.federation.fixed_sums import VectorLayout
from fedhlcr.federation.messages import SURVEY_ROUND, Broadcast
from fedhlcr.federation.survey_sums import SurveySum
from fedhlcr.privacy import shamir
from fedhlcr.privacy.audit.reconstruction import Claim, reconstruct
from fedhlcr.privacy.audit.vectors import read_vector
from fedhlcr.privacy.audit.view import EVERYONE, NO_STATEMENT, ServerView, Statement
from fedhlcr.privacy.fixed_point import FixedArray
from fedhlcr.privacy.party import self_mask
from fedhlcr.privacy.roster import Roster
from fedhlcr.privacy.secure_sum import SecureSum, SecureTotal
from fedhlcr.privacy.terms import SumStage, Terms, read_reply, read_request

# Pairs of parties whose sum is looked at in each round.
MOST_PAIRS = 500
# Numbers whose last bits are all zero, such as whole numbers, and small ones occur in any message: lengths, positions.
SMALLEST_KNOWN = 2**24
LAST_BITS = 2**16 - 1

MASKED = "masked"
STRIPPED = "stripped"

Messages = Mapping[str, bytes]


@dataclass
class WireRound:
    """All messages of one secure sum.

    Attributes
    ----------
    terms : what the parties agreed to
    broadcast : what they answered; it says how vectors are read
    requests, replies : by stage, what the server sent to each party and what it got back
    """

    terms: Terms
    broadcast: Broadcast
    requests: list[Messages] = field(default_factory=list)
    replies: list[Messages] = field(default_factory=list)

    @property
    def is_survey(self) -> bool:
        return self.broadcast.round == SURVEY_ROUND

    @cached_property
    def total(self) -> SecureTotal | None:
        """The sum of the survivors, which follows from the messages; None if the sum is void."""
        exchange = SecureSum(self.terms, list(self.requests[0]))
        exchange.begin()
        for replies in self.replies:
            exchange.proceed(replies)
        return exchange.result

    def whole(self, vector: FixedArray) -> FixedArray:
        """A vector of this round with a row for every original cluster."""
        return self._vectors.spread(vector, self._clusters)

    def read(self, whole: FixedArray, since: int = NO_STATEMENT) -> Statement:
        """Such a vector as sums by cluster."""
        assert self.broadcast.cluster_of is not None
        like = Statement.empty(self.broadcast.round, since, self.broadcast.cluster_of, is_exact=True)
        return read_vector(whole, replace(self._vectors, rows=self._clusters), like)

    @property
    def _clusters(self) -> IndexArray:
        assert self.broadcast.cluster_of is not None
        return np.arange(len(self.broadcast.cluster_of))

    @property
    def _vectors(self) -> VectorLayout:
        assert self.broadcast.terms is not None
        return VectorLayout(self.broadcast.likelihood.sum_schema, self.broadcast.terms.rows)

    @cached_property
    def vectors(self) -> dict[str, dict[str, FixedArray]]:
        """By kind and party, the vectors that the server can ascribe to one party."""
        return {MASKED: self.masked, STRIPPED: self.stripped()}

    @cached_property
    def masked(self) -> dict[str, FixedArray]:
        """By party, the vector that it sent."""
        stage = list(SumStage).index(SumStage.MASKED)
        if len(self.replies) <= stage:
            return {}
        shape = (self.terms.n_values,)
        return {
            party: read_reply(data, SumStage.MASKED, self.terms).array("masked", "u8", shape)
            for party, data in self.replies[stage].items()
        }

    def stripped(self) -> dict[str, FixedArray]:
        """By party, the vector without the party's own mask."""
        shares_stage, last = (list(SumStage).index(stage) for stage in (SumStage.SHARES, SumStage.UNMASKING))
        if len(self.replies) <= last:
            return {}
        request = next(iter(self.requests[shares_stage].values()))
        roster = Roster.read(read_request(request, SumStage.SHARES, self.terms), self.terms)
        seeds = self._seeds(roster, self.replies[last])
        masked = self.masked
        return {
            party: masked[party] - self_mask(seed, roster.digest, self.terms.n_values) for party, seed in seeds.items()
        }

    def _seeds(self, roster: Roster, replies: Messages) -> dict[str, bytes]:
        """By party, the seed of its own mask, put together from the shares of its group."""
        found: dict[int, list[tuple[int, shamir.Shares]]] = {}
        present = [roster.names.index(party) for party in self.replies[list(SumStage).index(SumStage.SHARES)]]
        for holder, data in replies.items():
            index = roster.names.index(holder)
            reader = read_reply(data, SumStage.UNMASKING, self.terms)
            rows = np.flatnonzero(np.isin(roster.groups[index], present))
            shares = reader.array("shares", "u4", (len(rows), shamir.N_LIMBS))
            held = reader.array("held", "?", (len(rows),))
            for row, share in zip(rows[held].tolist(), shares[held], strict=True):
                owner = int(roster.groups[index, row])
                found.setdefault(owner, []).append((int(roster.places[index, row]), share))
        seeds: dict[str, bytes] = {}
        for party in self.masked:
            chosen = found.get(roster.names.index(party), [])[: roster.threshold]
            points = np.array([place + 1 for place, _ in chosen], dtype=np.int64)
            if len(chosen) == roster.threshold:
                (secret,) = shamir.combine(np.array([share for _, share in chosen])[None], points)
                seeds |= {} if secret is None else {party: secret}
        return seeds


def attack_wire(rounds: Sequence[WireRound], view: ServerView) -> list[Claim]:
    """Matrices of single entities that follow from the messages. `view` has the layout and the units, and no sums."""
    sampled = [own for own in rounds if not own.is_survey and own.masked]
    whole = [
        {kind: {party: own.whole(vector) for party, vector in vectors.items()} for kind, vectors in own.vectors.items()}
        for own in sampled
    ]
    sequences = chain(_of_parties(sampled, whole), _of_several(sampled, whole))
    return [claim for sender, own in sequences for claim in reconstruct(replace(view, statements={sender: own}))]


# By kind, by party, the vectors of a round with a row for every original cluster.
Whole = Mapping[str, Mapping[str, FixedArray]]


def _of_parties(rounds: Sequence[WireRound], whole: Sequence[Whole]) -> Iterator[tuple[str, list[Statement]]]:
    """What can be read as the sums of one party: series of rounds first, then single vectors."""
    for party in sorted({party for own in rounds for party in own.masked}):
        single: list[Statement] = []
        for kind in (MASKED, STRIPPED):
            found = [(own, vectors[kind].get(party)) for own, vectors in zip(rounds, whole, strict=True)]
            present = [(own, vector) for own, vector in found if vector is not None]
            since = [NO_STATEMENT, *(own.broadcast.round for own, _ in present)][: len(present)]
            sums = accumulate(vector for _, vector in present)
            yield party, [own.read(vector, last) for (own, _), vector, last in zip(present, sums, since, strict=True)]
            single += [own.read(vector) for own, vector in present]
            single += [own.read(now - before) for (_, before), (own, now) in pairwise(present)]
        yield party, single


def _of_several(rounds: Sequence[WireRound], whole: Sequence[Whole]) -> Iterator[tuple[str, list[Statement]]]:
    """Sums of two parties, and of all but one."""
    for own, vectors in zip(rounds, whole, strict=True):
        stripped = vectors[STRIPPED]
        pairs: dict[str, list[Statement]] = {}
        for first, second in islice(combinations(stripped, 2), MOST_PAIRS):
            pairs.setdefault(first, []).append(own.read(stripped[first] + stripped[second]))
        yield from ((EVERYONE, statements) for statements in pairs.values())
        if own.total is not None:
            total = own.whole(own.total.values)
            yield EVERYONE, [own.read(total - vector) for vector in stripped.values()]


def read_surveys(rounds: Sequence[WireRound]) -> set[str]:
    """Parties whose own part of the survey can be read: the number of events in it is possible."""
    found: set[str] = set()
    for own in rounds:
        if own.is_survey and own.total is not None:
            most = SurveySum.of(own.total.values).n_events
            for vectors in own.vectors.values():
                events = {party: SurveySum.of(vector).n_events for party, vector in vectors.items()}
                found |= {party for party, n in events.items() if 0.0 < n <= most and n == round(n)}
    return found


def known_numbers(rounds: Sequence[WireRound], secret: FixedArray) -> int:
    """How many of the numbers that only agents should know occur in a message, at any position.

    Numbers that occur by chance anywhere, such as small ones and whole ones, do not count as secret.
    """
    values = np.unique(secret)
    values = values[(np.abs(values.view(np.int64)) >= SMALLEST_KNOWN) & (values & np.uint64(LAST_BITS) != 0)]
    if not len(values):
        return 0
    found: set[int] = set()
    for data in (data for own in rounds for replies in own.replies for data in replies.values()):
        for start in range(8):
            numbers = np.frombuffer(data, dtype="<u8", offset=start, count=(len(data) - start) // 8)
            places = np.minimum(np.searchsorted(values, numbers), len(values) - 1)
            found |= set(numbers[values[places] == numbers].tolist())
    return len(found)
