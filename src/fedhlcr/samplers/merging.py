"""Over-fit and merge: start with too many clusters, let the evidence merge them.

The gain of merging clusters k and l is evidence(M_k + M_l) − evidence(M_k) − evidence(M_l): a
function of the sums alone, so a server decides it without asking anyone. The prior of the labels is
left out of the gain: with it, true clusters get merged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.priors import Hyperparameters
from fedhlcr.model.regression import log_evidence
from fedhlcr.samplers.state import ChainState, ClusterSums, Globals, ServerState


@dataclass(frozen=True)
class MergeSchedule:
    """When to look for merges: every second sweep from `first`, until 15 looks in a row found none."""

    last: int
    first: int = 15
    every: int = 2
    patience: int = 15

    @classmethod
    def until(cls, last: int, first: int = first) -> MergeSchedule:
        """Looks up to the round `last`, of which there is at least one."""
        return cls(last, first=min(first, last))

    def due(self, round_number: int) -> bool:
        return self.first <= round_number <= self.last and (round_number - self.first) % self.every == 0


def merge_map(layout: GramLayout, sums: ClusterSums, hyper: Hyperparameters, n_wanted: int | None) -> NDArray[np.int64]:
    """Old cluster → new cluster after merging greedily; −1 for an empty cluster that is dropped.

    While the best gain is positive the pair is merged. With n_wanted, empty clusters are dropped and
    pairs are merged, at a loss if need be, until n_wanted clusters are left, and never fewer.
    """

    def evidence(grams: FloatArray) -> FloatArray:
        return log_evidence(layout.normal_equations(grams), hyper.noise_scale, hyper.coef_prior)

    occupied = np.flatnonzero(sums.occupied)
    empty = np.flatnonzero(~sums.occupied)
    groups = {int(k): [int(k)] for k in occupied}
    grams = {int(k): sums.grams[k] for k in occupied}
    single = dict(zip(groups, evidence(sums.grams[occupied]), strict=True))
    gains = _GainTable(list(groups), grams, single, evidence)
    while len(groups) > (1 if n_wanted is None else n_wanted):
        gain, keep, drop = gains.best()
        if n_wanted is None and gain <= 0.0:
            break
        groups[keep] += groups.pop(drop)
        gains.merge(keep, drop)
    kept_empty = [] if n_wanted is None else empty[: n_wanted - len(groups)].tolist()
    target = np.full(sums.n_clusters, -1, dtype=np.int64)
    for new, members in enumerate([*groups.values(), *([k] for k in kept_empty)]):
        target[members] = new
    return target


class _GainTable:
    """Gains of all pairs, kept up to date as pairs merge."""

    def __init__(
        self,
        clusters: list[int],
        grams: dict[int, FloatArray],
        single: dict[int, float],
        evidence: Callable[[FloatArray], FloatArray],
    ) -> None:
        self._clusters, self._grams, self._single, self._evidence = clusters, grams, single, evidence
        self._gains: dict[tuple[int, int], float] = {}
        for position, k in enumerate(clusters):
            self._add(k, clusters[position + 1 :])

    def _add(self, k: int, others: list[int]) -> None:
        if not others:
            return
        merged = self._evidence(np.array([self._grams[k] + self._grams[other] for other in others]))
        for other, value in zip(others, merged, strict=True):
            self._gains[min(k, other), max(k, other)] = value - self._single[k] - self._single[other]

    def best(self) -> tuple[float, int, int]:
        (k, other), gain = max(self._gains.items(), key=lambda item: (item[1], item[0]))
        return gain, k, other

    def merge(self, keep: int, drop: int) -> None:
        self._gains = {pair: gain for pair, gain in self._gains.items() if keep not in pair and drop not in pair}
        self._grams[keep] = self._grams[keep] + self._grams.pop(drop)
        self._clusters.remove(drop)
        self._single[keep] = float(self._evidence(self._grams[keep]))
        self._add(keep, [k for k in self._clusters if k != keep])


def merge_globals(drawn: Globals, entity_counts: FloatArray, target: NDArray[np.int64]) -> Globals:
    """The globals after cluster k has become target[k]; a merged cluster keeps the larger part's coefficients."""
    n_clusters = int(target.max()) + 1
    weights = np.full(n_clusters, -np.inf)
    coef = np.empty((n_clusters, drawn.coef.shape[1]))
    for k in np.argsort(entity_counts, kind="stable"):
        if target[k] >= 0:
            coef[target[k]] = drawn.coef[k]
            weights[target[k]] = np.logaddexp(weights[target[k]], drawn.log_weights[k])
    return Globals(coef, weights, drawn.hyper)


def merge_state(layout: GramLayout, state: ChainState, target: NDArray[np.int64]) -> ChainState:
    """A chain after cluster k has become target[k]."""
    merged = merge_globals(state.globals, state.sums.entity_counts, target)
    sums, labels = state.sums.regroup(target), target[state.labels].astype(np.int32)
    return ChainState.of(layout, state.round, labels, sums, merged)


@dataclass
class Merger:
    """Merges when it is due, and knows when that is over.

    Attributes
    ----------
    n_wanted : clusters wanted; None merges as long as the evidence gains
    idle : looks in a row that found nothing
    """

    schedule: MergeSchedule
    n_wanted: int | None
    over: bool = False
    idle: int = 0

    def look(self, layout: GramLayout, state: ServerState) -> NDArray[np.int64] | None:
        """What to merge after this round: a map as of `merge_map`, or None for nothing."""
        last = state.round >= self.schedule.last
        if self.over or not (last or self.schedule.due(state.round)):
            return None
        target = self.merge_now(layout, state)
        self.idle = self.idle + 1 if target is None else 0
        # where a number is wanted, one look leaves just so many
        self.over = last or self.n_wanted is not None or self.idle >= self.schedule.patience
        return target

    def merge_now(self, layout: GramLayout, state: ServerState) -> NDArray[np.int64] | None:
        target = merge_map(layout, state.sums, state.globals.hyper, self.n_wanted)
        return target if target.max() + 1 < len(target) else None
