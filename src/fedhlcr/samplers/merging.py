"""Start with too many clusters and merge those that the evidence does not keep apart.

The gain of merging clusters k and l is evidence(M_k + M_l) − evidence(M_k) − evidence(M_l). It depends on the sums
alone, so a server can decide without a message. The prior of the labels is left out of the gain, because with it some
true clusters are merged.

With effects, `Merger` also switches these on, and when merging is over it lets `samplers.cluster_comparison` compare
several clusters with one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr.model.likelihood import AnyLikelihood
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.schema import Globals, Stage
from fedhlcr.model.sums import ClusterSums
from fedhlcr.samplers.cluster_comparison import FEWEST_ROUNDS, ClusterComparison, Phase
from fedhlcr.samplers.state import ChainState, ServerState

# Effects are switched on after this many checks in a row without a merge of plain clusters.
PLAIN_PATIENCE = 3
# A run that merges nothing begins with so many rounds without effects; then it is known which effects are needed.
FIRST_EXACT = 10
ROUNDS_OF_EVIDENCE = 5
# Then effects are switched on for so many rounds before the sampler is exact.
ROUNDS_OF_EFFECTS = 20
# Log evidence per event that may be lost by merging clusters that hardly differ, where effects can take the rest.
ACCEPTED_LOSS = 0.002
# The same where single events say little.
ACCEPTED_LOSS_OF_LITTLE = 0.0005
# Numbers in the summed blocks of pairs of clusters that are looked at together.
MOST_NUMBERS = 1 << 18
# The summed blocks of one set of entities, by name.
BlockRow = dict[str, FloatArray]


@dataclass(frozen=True)
class MergeSchedule:
    """When to check for merges.

    Attributes
    ----------
    first, last : rounds of the first and the last check
    every : rounds from one check to the next
    patience : merging ends after this many checks in a row without a merge
    start : round that draws the first labels: 0 in a chain, 1 in a federation
    """

    last: int
    first: int = 15
    every: int = 2
    patience: int = 15
    start: int = 0

    @classmethod
    def until(cls, last: int, first: int = first, start: int = 0) -> MergeSchedule:
        """A schedule that ends at round `last` and has at least one check."""
        return cls(last, first=min(first, last), start=start)

    @property
    def length(self) -> int:
        """Rounds after the first one, in which clusters are found."""
        return self.last - self.start

    @property
    def last_plain(self) -> int:
        """Round after which effects are switched on, even if plain clusters are still merging."""
        return self.first + (self.last - self.first) // 3

    def due(self, round_number: int) -> bool:
        return self.first <= round_number <= self.last and (round_number - self.first) % self.every == 0


def merge_map(
    likelihood: AnyLikelihood, sums: ClusterSums, current: Globals, n_wanted: int | None, accepted_loss: float = 0.0
) -> NDArray[np.int64]:
    """Merge greedily; return the new cluster of each old one, −1 for an empty cluster that is dropped.

    Without `n_wanted`, the pair with the best gain is merged as long as that gain is positive; losses are accepted up
    to a total of `accepted_loss`. With `n_wanted`, empty clusters are dropped and pairs are merged, at a loss if
    necessary, until exactly `n_wanted` clusters are left.
    """
    occupied = np.flatnonzero(sums.occupied)
    empty = np.flatnonzero(~sums.occupied)
    groups = {int(k): [int(k)] for k in occupied}
    gains = _GainTable(likelihood, sums, current)
    while len(groups) > (1 if n_wanted is None else n_wanted):
        gain, keep, drop = gains.best()
        if n_wanted is None and gain <= -accepted_loss:
            break
        accepted_loss += min(gain, 0.0)
        groups[keep] += groups.pop(drop)
        gains.merge(keep, drop)
    kept_empty = [] if n_wanted is None else empty[: n_wanted - len(groups)].tolist()
    target = np.full(sums.n_clusters, -1, dtype=np.int64)
    for new, members in enumerate([*groups.values(), *([k] for k in kept_empty)]):
        target[members] = new
    return target


class _GainTable:
    """The gains of all pairs of occupied clusters, updated as pairs merge."""

    def __init__(self, likelihood: AnyLikelihood, sums: ClusterSums, current: Globals) -> None:
        self._likelihood = likelihood
        self._current = current
        occupied = np.flatnonzero(sums.occupied)
        self._clusters = occupied.tolist()
        self._rows = {k: {name: block[k] for name, block in sums.blocks.items()} for k in self._clusters}
        single = self._evidence([self._rows[k] for k in self._clusters])
        self._single = dict(zip(self._clusters, single, strict=True))
        self._gains: dict[tuple[int, int], float] = {}
        pairs = list(combinations(self._clusters, 2))
        at_once = max(1, MOST_NUMBERS // sum(block.shape[1] for block in sums.blocks.values()))
        for first in range(0, len(pairs), at_once):
            self._set_gains(sums.blocks, pairs[first : first + at_once])

    def _set_gains(self, blocks: dict[str, FloatArray], pairs: list[tuple[int, int]]) -> None:
        one, other = np.array(pairs).T
        merged = self._likelihood.evidence({name: own[one] + own[other] for name, own in blocks.items()}, self._current)
        for pair, value in zip(pairs, merged, strict=True):
            self._gains[pair] = value - self._single[pair[0]] - self._single[pair[1]]

    def _evidence(self, rows: list[BlockRow]) -> FloatArray:
        """Log evidence of each set of entities."""
        names = [block.name for block in self._likelihood.sum_schema.blocks]
        stacked = {name: np.array([row[name] for row in rows]) for name in names}
        return self._likelihood.evidence(stacked, self._current)

    def _together(self, k: int, other: int) -> BlockRow:
        return {name: block + self._rows[other][name] for name, block in self._rows[k].items()}

    def _add(self, k: int, others: list[int]) -> None:
        if not others:
            return
        merged = self._evidence([self._together(k, other) for other in others])
        for other, value in zip(others, merged, strict=True):
            self._gains[min(k, other), max(k, other)] = value - self._single[k] - self._single[other]

    def best(self) -> tuple[float, int, int]:
        (k, other), gain = max(self._gains.items(), key=lambda item: (item[1], item[0]))
        return gain, k, other

    def merge(self, keep: int, drop: int) -> None:
        self._gains = {pair: gain for pair, gain in self._gains.items() if keep not in pair and drop not in pair}
        self._rows[keep] = self._together(keep, drop)
        self._clusters.remove(drop)
        self._single[keep] = float(self._evidence([self._rows[keep]])[0])
        self._add(keep, [k for k in self._clusters if k != keep])


def merge_globals(drawn: Globals, entity_counts: FloatArray, target: NDArray[np.int64]) -> Globals:
    """The globals after cluster k has become target[k].

    Weights add up; everything else of a merged cluster is that of its part with the most entities.
    """
    n_clusters = int(target.max()) + 1
    weights = np.full(n_clusters, -np.inf)
    source = np.empty(n_clusters, dtype=np.int64)
    for k in np.argsort(entity_counts, kind="stable"):
        if target[k] >= 0:
            source[target[k]] = k
            weights[target[k]] = np.logaddexp(weights[target[k]], drawn.log_weights[k])
    return replace(drawn.of_clusters(source), log_weights=weights)


def merge_state(likelihood: AnyLikelihood, state: ChainState, target: NDArray[np.int64]) -> ChainState:
    """The state of a chain after cluster k has become target[k]."""
    merged = merge_globals(state.globals, state.sums.entity_counts, target)
    shift = merge_shift(state.globals, merged, target)
    blocks = likelihood.shifted(state.sums.blocks, likelihood.effect_shift(shift, state.globals))
    sums = replace(state.sums, blocks=blocks).regroup(target)
    labels = target[state.labels].astype(np.int32)
    return ChainState.of(likelihood, state.round, labels, sums, merged, state.agent_state)


def merge_shift(before: Globals, after: Globals, target: NDArray[np.int64]) -> FloatArray:
    """(clusters before, n_coef) by how much effects grow if entities move to the coefficients of a merged cluster."""
    kept = target >= 0
    shift = np.zeros_like(before.coef)
    shift[kept] = before.coef[kept] - after.coef[target[kept]]
    return shift


@dataclass
class Merger:
    """Check for merges when one is due, switch effects on in between, and end merging for good.

    Attributes
    ----------
    n_wanted : clusters wanted; None merges as long as the evidence grows
    over : whether merging has ended; from then on the sampler is exact
    idle : checks in a row without a merge
    with_effects : whether effects and noise of entities are switched on, for likelihoods that have them
    merged_at : the last round after which clusters were merged
    comparison : compares several clusters with one when merging is over; None if that is not wanted
    """

    schedule: MergeSchedule
    n_wanted: int | None
    over: bool = False
    idle: int = 0
    with_effects: bool = False
    merged_at: int = 0
    comparison: ClusterComparison | None = None

    @classmethod
    def planned(cls, schedule: MergeSchedule, n_wanted: int | None, spec: ModelSpec, *, over: bool = False) -> Merger:
        """With a comparison, if there are effects, the number of clusters is open, and the run is long enough."""
        compares = n_wanted is None and spec.effects != "none" and schedule.length >= FEWEST_ROUNDS
        comparison = ClusterComparison(schedule.length, schedule.start) if compares else None
        return cls(schedule, n_wanted, over=over, comparison=comparison)

    def stage(self, round_number: int) -> Stage:
        """The stage after this round."""
        if self.comparison is not None and self.comparison.is_running:
            return self.comparison.stage
        # which effects are needed is known only after some rounds with the merged clusters
        known = max(self.schedule.start + FIRST_EXACT, self.merged_at + ROUNDS_OF_EVIDENCE)
        if self.over and (self.with_effects or round_number >= min(known + ROUNDS_OF_EFFECTS, self.schedule.last)):
            return Stage.EXACT
        return Stage.MERGING if self.with_effects or (self.over and round_number >= known) else Stage.PLAIN

    def is_exact(self, likelihood: AnyLikelihood, round_number: int) -> bool:
        """Whether draws from this round on may be kept."""
        return self.over and (not likelihood.has_stages or self.stage(round_number) == Stage.EXACT)

    def look(self, likelihood: AnyLikelihood, state: ServerState) -> NDArray[np.int64] | None:
        """Return what to merge after this round, as `merge_map` does; None if there is nothing to merge."""
        if self.comparison is not None and self.comparison.is_running:
            target = self.comparison.advance(likelihood, state)
            self.over = not self.comparison.is_running
            return target
        last = state.round >= self.schedule.last
        if self.comparison is not None and likelihood.has_stages:
            last = state.round >= self.comparison.latest_start
        if self.over or not (last or self.schedule.due(state.round)):
            return None
        target = self.merge_now(likelihood, state)
        self.idle = self.idle + 1 if target is None else 0
        self.merged_at = self.merged_at if target is None else state.round
        # with a wanted number of clusters, one check merges down to exactly that number
        self.over = last or self.n_wanted is not None or self._has_settled(likelihood)
        if not self.over and not self.with_effects and likelihood.has_stages:
            self._switch_effects_on(likelihood, state)
        if self.over and self.comparison is not None and self.comparison.is_needed(likelihood, state):
            self.over = False
            accepted_loss = ACCEPTED_LOSS_OF_LITTLE if likelihood.doubts_clusters else ACCEPTED_LOSS
            target = self.merge_now(likelihood, state, accepted_loss * state.sums.scalars["events"])
            n_left = int(state.sums.occupied.sum()) if target is None else int(target.max()) + 1
            self.comparison.begin(state.round, n_left)
        return target

    def _switch_effects_on(self, likelihood: AnyLikelihood, state: ServerState) -> None:
        """If plain clusters have settled, or had enough time; and note what a comparison must know about them."""
        self.with_effects = self.idle >= PLAIN_PATIENCE or state.round >= self.schedule.last_plain
        if self.with_effects:
            self.idle = 0
            if self.comparison is not None:
                self.comparison.n_plain = int(state.sums.occupied.sum())
                self.comparison.differ = likelihood.has_clear_effects(state.sums)

    def going_back(self) -> Globals | None:
        """The globals with which the next round begins, if the run goes back to several clusters."""
        return self.several if self.comparison is not None and self.comparison.phase == Phase.BACK else None

    @property
    def several(self) -> Globals | None:
        """The globals of the several clusters that are being compared with one."""
        return None if self.comparison is None else self.comparison.several

    def _has_settled(self, likelihood: AnyLikelihood) -> bool:
        return self.idle >= self.schedule.patience and (self.with_effects or not likelihood.has_stages)

    def merge_now(
        self, likelihood: AnyLikelihood, state: ServerState, accepted_loss: float = 0.0
    ) -> NDArray[np.int64] | None:
        """The same, whether or not a check is due."""
        target = merge_map(likelihood, state.sums, state.globals, self.n_wanted, accepted_loss)
        return target if target.max() + 1 < len(target) else None
