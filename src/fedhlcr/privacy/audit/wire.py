"""The attack on the messages of secure aggregation: what can a server make of them besides the cohort's sum?

The server keeps every message. It takes off what it can: from the last stage it knows the seeds of the parties' own
masks. Then it looks for sums of single agents in everything that it can combine:

    masked        what a party sent
    stripped      the same without the party's own mask; the masks shared with others remain
    changes       the difference of what a party sent in two rounds: masks that are used twice would cancel
    pairs         the sum of what two parties sent: the masks that they share cancel, those shared with others do not
    all but one   the cohort's sum less what one party sent

Each is read as sums by cluster and goes through the same attack as in plain mode. `known_numbers` is a stricter check
that needs the truth: it looks for numbers that only an agent should know at every position of every message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, islice, pairwise

import numpy as np

from fedhlcr.privacy import shamir
from fedhlcr.privacy.audit.reconstruction import Claim, reconstruct
from fedhlcr.privacy.audit.view import ServerView, Statement
from fedhlcr.privacy.fixed_point import FixedArray
from fedhlcr.privacy.party import self_mask
from fedhlcr.privacy.roster import Roster
from fedhlcr.privacy.secure_sum import SecureSum, SecureTotal
from fedhlcr.privacy.terms import Stage, Terms, read_reply, read_request

# Pairs of parties whose sum is looked at in each round.
MOST_PAIRS = 500
# Numbers whose last bits are all zero, such as whole numbers, and small ones occur in any message: lengths, positions.
SMALLEST_KNOWN, LAST_BITS = 2**24, 2**16 - 1

Messages = Mapping[str, bytes]
# Reads a vector of one round as sums by cluster.
Decode = Callable[[FixedArray], Statement]


@dataclass
class WireRound:
    """All messages of one secure sum.

    Attributes
    ----------
    terms : what the parties agreed to
    requests, replies : by stage, what the server sent to each party and what it got back
    total : the sum of the survivors
    decode : reads the vectors of this round
    """

    terms: Terms
    decode: Decode
    requests: list[Messages] = field(default_factory=list)
    replies: list[Messages] = field(default_factory=list)
    total: SecureTotal | None = None

    def play(self, exchange: SecureSum, carry: Callable[[Messages], Messages]) -> SecureTotal | None:
        """Run a secure sum and keep its messages."""
        messages = exchange.begin()
        while messages:
            self.requests.append(messages)
            self.replies.append(carry(messages))
            messages = exchange.proceed(self.replies[-1])
        self.total = exchange.result
        return self.total

    @property
    def masked(self) -> dict[str, FixedArray]:
        """By party, the vector that it sent."""
        stage = list(Stage).index(Stage.MASKED)
        shape = (self.terms.n_values,)
        return {
            party: read_reply(data, Stage.MASKED, self.terms).array("masked", "u8", shape)
            for party, data in self.replies[stage].items()
        }

    def stripped(self) -> dict[str, FixedArray]:
        """By party, the vector without the party's own mask."""
        shares_stage, last = (list(Stage).index(stage) for stage in (Stage.SHARES, Stage.UNMASKING))
        request = next(iter(self.requests[shares_stage].values()))
        roster = Roster.read(read_request(request, Stage.SHARES, self.terms), self.terms)
        seeds, masked = self._seeds(roster, self.replies[last]), self.masked
        return {
            party: masked[party] - self_mask(seed, roster.digest, self.terms.n_values) for party, seed in seeds.items()
        }

    def _seeds(self, roster: Roster, replies: Messages) -> dict[str, bytes]:
        """By party, the seed of its own mask, put together from the shares of its group."""
        found: dict[int, list[tuple[int, shamir.Shares]]] = {}
        present = [roster.names.index(party) for party in self.replies[list(Stage).index(Stage.SHARES)]]
        for holder, data in replies.items():
            index, reader = roster.names.index(holder), read_reply(data, Stage.UNMASKING, self.terms)
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
    statements: dict[str, list[Statement]] = {}
    stripped = [own.stripped() for own in rounds]
    for number, own in enumerate(rounds):
        for party, vector in _combined(own, stripped[number]):
            statements.setdefault(party, []).append(own.decode(vector))
    for (_, before), (own, now) in pairwise(zip(rounds, stripped, strict=True)):
        for party in before.keys() & now.keys():
            if len(before[party]) == len(now[party]):
                statements[party].append(own.decode(now[party] - before[party]))
    return reconstruct(replace(view, statements=statements))


def _combined(own: WireRound, stripped: Mapping[str, FixedArray]) -> Iterator[tuple[str, FixedArray]]:
    """Vectors of one round, with the party that they are about."""
    yield from own.masked.items()
    yield from stripped.items()
    for first, second in islice(combinations(stripped, 2), MOST_PAIRS):
        yield first, stripped[first] + stripped[second]
    if own.total is not None:
        for party, vector in stripped.items():
            yield party, own.total.values - vector


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
