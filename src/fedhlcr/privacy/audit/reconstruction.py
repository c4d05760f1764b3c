"""The reconstruction attack: find the Gram matrices of single entities among the sums that a server has seen.

One observation carries it: *two sums that differ by one entity give that entity away*. The empty sum is one of them, so
an entity that is alone in a cluster is the simplest case. A difference D of two sums with entity counts N and N − 1 may
also be more than one entity, such as a + b − c. The attack believes that it is one entity if

    alone     the smaller sum is empty: there is nothing else in it;
    moved     both sums belong to one cluster in successive rounds, and the number of changed labels leaves no room for
              others: an agent with c changed labels has touched its clusters 2c times in all;
    left      both sums belong to a cluster that was merged away, which entities can only leave. Under secure
              aggregation the sums of absent agents stay there until these answer;
    matched   one cluster lost just what another one gained between two rounds, one entity and a possible matrix;
    rank      D holds n events, fewer than it has columns, and its rank is n, which a difference of several entities has
              only by accident;
    peeled    the same, after the matrix of an entity that is known already was added or subtracted;
    last      all other entities of the sender are known.

The attack reads only what the server has seen. `scoring` compares its claims with the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr.model.gram import GramLayout
from fedhlcr.privacy.audit.view import ServerView, Statement

# Relative errors below which numbers count as equal: float sums, before the resolution of fixed point is added.
ROUNDING = 1e-9
# Sums that are compared with all others at once, to bound the memory.
BLOCK = 256
# Relative width of the drawers in which claims are looked up.
KEY_WIDTH = 1e-5


@dataclass(frozen=True)
class Claim:
    """A matrix that the attack takes for that of one entity, and why.

    Attributes
    ----------
    sender : whose sums it was found in
    gram : (packed,) in the units of the run
    reason : "alone", "moved", "left", "matched", "rank", "peeled" or "last"
    """

    sender: str
    gram: FloatArray
    reason: str


def reconstruct(view: ServerView, progress: Callable[[], None] | None = None) -> list[Claim]:
    """The matrices of single entities that follow from a view. `progress` is called after each sender."""
    claims = []
    for sender, statements in view.statements.items():
        claims += _Attack(view, sender, [own for own in statements if own.is_exact]).run()
        if progress is not None:
            progress()
    return claims


@dataclass
class _Attack:
    """The attack on one sender."""

    view: ServerView
    sender: str
    statements: list[Statement]
    claims: list[Claim] = field(default_factory=list)
    _claimed: dict[tuple[int, int], list[Claim]] = field(default_factory=dict)

    @property
    def layout(self) -> GramLayout:
        return self.view.layout

    def run(self) -> list[Claim]:
        if not self.statements:
            return []
        counts, grams = self._sums()
        self._claim(grams[counts == 1], "alone")
        for differences, reason in (*self._moves(), *self._matches()):
            self._claim(differences, reason)
        certain = list(self.claims)
        self._compare(counts, grams)
        self._peel()
        if len(self.claims) > self.n_entities:
            # more matrices than entities: events are so alike that ranks prove nothing
            self.claims = certain
        self._subtract_known()
        return self.claims

    @property
    def n_entities(self) -> int:
        return round(float(self.statements[-1].entity_counts.sum()))

    def _sums(self) -> tuple[FloatArray, FloatArray]:
        """All distinct sums that were stated, the whole of the sender's entities among them."""
        whole = self.statements[-1]
        counts = np.concatenate([*(own.entity_counts for own in self.statements), [whole.entity_counts.sum()]])
        grams = np.concatenate([*(own.grams for own in self.statements), whole.grams.sum(axis=0)[None]])
        distinct = np.unique(np.column_stack([counts, grams]), axis=0)
        return distinct[:, 0], distinct[:, 1:]

    def _moves(self) -> Iterator[tuple[FloatArray, str]]:
        """Differences that are one entity for certain."""
        for own, changes, differences in steps(self.statements, self._tolerance):
            # a cluster that was touched has gained or lost an entity, or both
            fewest = np.where(changes == 0, 2, np.abs(changes))
            single = np.abs(changes) == 1
            if fewest.sum() == 2 * own.labels_changed and single.any():
                yield differences[single] * changes[single, None], "moved"
        for before, own in successive(self.statements):
            gone = np.setdiff1d(before.clusters, own.representative)
            counts, grams = (
                then - now for then, now in zip(before.dense_rows(gone), own.dense_rows(gone), strict=True)
            )
            yield grams[counts == 1], "left"

    def _matches(self) -> Iterator[tuple[FloatArray, str]]:
        """Matrices that one cluster lost and another one gained. Several entities could do the same, but rarely do."""
        for _, changes, differences in steps(self.statements, self._tolerance):
            lost = -differences[changes == -1]
            gained = differences[changes == 1]
            found = [gram for gram in gained if same(lost, gram, self._tolerance(np.abs(gram).max())).any()]
            grams = np.array(found).reshape(-1, differences.shape[1])
            values = np.linalg.eigvalsh(self.layout.unpack(grams))
            slack = self._tolerance(np.abs(grams).max(axis=1, initial=0.0))
            yield grams[(values[:, 0] >= -slack) & (self.layout.n_events(grams) > 0.5)], "matched"

    def _compare(self, counts: FloatArray, grams: FloatArray) -> None:
        """Compare all sums with each other."""
        events = self.layout.n_events(grams)
        slack = float(self._tolerance(np.abs(grams).max()))
        for first in range(0, len(counts), BLOCK):
            if len(self.claims) > self.n_entities:
                return
            here = slice(first, first + BLOCK)
            n = events[here, None] - events
            likely = (counts[here, None] - counts == 1) & (n > 0.5) & (n < self.layout.width - 0.5)
            larger, smaller = np.nonzero(likely)
            self._claim_by_rank(grams[larger + first] - grams[smaller], "rank", slack)

    def _peel(self) -> None:
        """Add known entities to differences of several, or subtract them, as long as that gives new ones."""
        found = [(changes, differences) for _, changes, differences in steps(self.statements, self._tolerance)]
        if not found:
            return
        changes, differences = (np.concatenate(part) for part in zip(*found, strict=True))
        swapped = changes == 0
        paired = np.abs(changes) == 2
        # a − b for every swap, both ways; a + b for every pair that came or went together
        differences_of_two = np.concatenate([differences[swapped], -differences[swapped]])
        sums_of_two = differences[paired] * np.sign(changes[paired])[:, None]
        slack = float(self._tolerance(np.abs(differences).max(initial=0.0)))
        tried = 0
        while tried < len(self.claims) <= self.n_entities:
            known = self.claims[tried].gram
            tried += 1
            self._claim_by_rank(differences_of_two + known, "peeled", slack)
            self._claim_by_rank(sums_of_two - known, "peeled", slack)

    def _subtract_known(self) -> None:
        """The last entity of a sender is what remains of its total."""
        whole = self.statements[-1]
        if len(self.claims) + 1 == self.n_entities:
            rest = whole.grams.sum(axis=0) - np.sum([claim.gram for claim in self.claims], axis=0)
            self._claim(rest[None], "last")

    def _claim_by_rank(self, differences: FloatArray, reason: str, slack: float) -> None:
        """Claim differences whose rank is their number of events, if that is below the number of columns."""
        n = self.layout.n_events(differences)
        likely = (n > 0.5) & (n < self.layout.width - 0.5) & (np.abs(n - np.rint(n)) < 1e-6)
        likely[likely] = (self.layout.diagonal(differences[likely]) >= -slack).all(axis=1)
        differences = differences[likely]
        if not len(differences):
            return
        values = np.linalg.eigvalsh(self.layout.unpack(differences))
        size = np.maximum(slack, ROUNDING * values[:, -1])[:, None]
        zero = np.arange(self.layout.width) < self.layout.width - np.rint(n[likely])[:, None]
        fits = np.where(zero, np.abs(values) <= size, values > size).all(axis=1)
        self._claim(differences[fits], reason)

    def _claim(self, grams: FloatArray, reason: str) -> None:
        """Claim matrices that have not been claimed."""
        for gram in grams:
            key = self._key(gram)
            near = [claim for step in (-1, 0, 1) for claim in self._claimed.get((key[0], key[1] + step), ())]
            known = np.array([claim.gram for claim in near]).reshape(-1, len(gram))
            if key[0] < 1 or same(known, gram, self._tolerance(np.abs(gram).max())).any():
                continue
            claim = Claim(self.sender, gram, reason)
            self.claims.append(claim)
            self._claimed.setdefault(key, []).append(claim)

    def _key(self, gram: FloatArray) -> tuple[int, int]:
        """Equal for equal matrices, up to rounding: their number of events, and the size of their trace."""
        trace = max(float(self.layout.diagonal(gram).sum()), 1e-300)
        return round(float(gram[0])), round(np.log(trace) / KEY_WIDTH)

    def _tolerance(self, size: FloatArray | float) -> FloatArray:
        return tolerance(self.view, size)


def steps(
    statements: Sequence[Statement], tolerance: Callable[[FloatArray], FloatArray]
) -> Iterator[tuple[Statement, FloatArray, FloatArray]]:
    """Each statement with the changes of counts and matrices since the one before, of clusters that have changed."""
    for before, own in successive(statements):
        n_clusters = len(own.cluster_of)
        counts, grams = own.regrouped(own.cluster_of).dense(n_clusters)
        counts_before, grams_before = before.regrouped(own.cluster_of).dense(n_clusters)
        changes = counts - counts_before
        differences = grams - grams_before
        size = np.abs(grams).max(axis=1) + np.abs(grams_before).max(axis=1)
        changed = (np.abs(differences).max(axis=1) > tolerance(size)) | (changes != 0)
        yield own, changes[changed], differences[changed]


def successive(statements: Sequence[Statement]) -> Iterator[tuple[Statement, Statement]]:
    """Each statement, after the one to which its number of changed labels refers."""
    by_round = {own.round: own for own in statements}
    for own in statements:
        if own.since in by_round:
            yield by_round[own.since], own


def tolerance(view: ServerView, size: FloatArray | float) -> FloatArray:
    """Differences of numbers up to `size` that rounding explains."""
    return np.asarray(4.0 * view.resolution + ROUNDING * np.asarray(size))


def same(grams: FloatArray, gram: FloatArray, tolerance: FloatArray | float) -> NDArray[np.bool_]:
    """Which matrices equal a given one."""
    return np.asarray(np.abs(grams - gram).max(axis=-1) <= tolerance)
