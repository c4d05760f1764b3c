"""Skip entities whose labels are certain, as long as that pays: it switches itself on and off.

Labels are the same with and without skipping (`kernels.skipping`), and what is remembered is no part of a chain's
state. Whether to skip depends on counts of entities only, never on clocks, so that a run takes the same steps wherever
it runs.
"""

from __future__ import annotations

import numpy as np

from fedhlcr._support.arrays import FloatArray, LabelArray
from fedhlcr.kernels.arguments import Remembered
from fedhlcr.kernels.skipping import EVERYONE, REMEMBER, SKIP
from fedhlcr.model.likelihood import AnyLikelihood
from fedhlcr.model.schema import Globals

# Skipping pays if no more than this share of the entities must be scored: what is left are single matrices from
# everywhere, and the uncertain ones are found out first.
MOST_SCORED = 0.6
# After a vain attempt, sweeps without one: twice as many each time, up to the most.
FIRST_PAUSE = 2
LONGEST_PAUSE = 64
# A new sweep is remembered when this many sweeps' worth of entities had to be scored that need not have been.
MOST_WASTE = 1.0

_NOTHING = np.empty(0, dtype=np.float32)


def everyone() -> Remembered:
    """Nothing is remembered, so everyone is scored."""
    return Remembered(EVERYONE, 1.0, 1.0, np.empty(0), 0.0, _NOTHING, _NOTHING, _NOTHING)


class CertainLabels:
    """What a chain remembers from sweep to sweep, twelve bytes for each entity."""

    def __init__(self, n_entities: int) -> None:
        self._roots = tuple(np.empty(n_entities, dtype=np.float32) for _ in range(3)) if n_entities else ()
        self._labels: LabelArray | None = None
        self._coef: FloatArray | None = None
        self._pause = self._waiting = 0
        self._least = 1.0
        self._waste = 0.0

    def before(self, likelihood: AnyLikelihood, current: Globals, labels: LabelArray) -> Remembered:
        """How to draw the labels that follow `labels` given these globals."""
        scale = likelihood.common_scale(current)
        if scale is None or current.n_clusters < 2 or not self._roots:
            self._coef = None
            return everyone()
        if self._labels is not labels:
            # another chain, or merged clusters
            self._coef = None
            self._waiting = 0
            self._pause = 0
        mode = self._mode(current)
        moved = np.zeros(current.n_clusters)
        size = _size(current.coef)
        if mode == SKIP and self._coef is not None:
            moved = np.linalg.norm(current.coef - self._coef, axis=1) * (1.0 + 1e-12)
            size = max(size, _size(self._coef))
        elif mode == REMEMBER:
            self._coef = current.coef.copy()
            self._least = 1.0
            self._waste = 0.0
        return Remembered(mode, 0.5 / scale**2, size, moved, float(moved.max()), *self._roots)

    def _mode(self, current: Globals) -> int:
        if self._coef is not None and self._coef.shape == current.coef.shape:
            return SKIP
        self._coef = None
        if self._waiting:
            self._waiting -= 1
            return EVERYONE
        return REMEMBER

    def after(self, remembered: Remembered, labels: LabelArray, n_scored: int) -> None:
        """Note the labels drawn, and decide by the number of entities scored whether to go on."""
        self._labels = labels
        if remembered.mode != SKIP:
            return
        share = n_scored / max(len(labels), 1)
        self._least = min(self._least, share)
        self._waste += share - self._least
        if share > MOST_SCORED:
            self._pause = min(max(2 * self._pause, FIRST_PAUSE), LONGEST_PAUSE)
            self._waiting = self._pause
            self._coef = None
        elif self._waste > MOST_WASTE:
            self._coef = None
        else:
            self._pause = 0


def _size(coef: FloatArray) -> float:
    """The largest |(−w, 1)|²."""
    return float((coef**2).sum(axis=1).max()) + 1.0
