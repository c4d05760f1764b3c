"""What one would otherwise take, from the Gram matrices a model holds: one ridge for all, and one for each entity.

No events are at hand, so the penalty is not cross-validated but chosen by the evidence, with everything else integrated
or maximised out. Of a group of n events let S be the sums of squares and products around the group's own means. With
slopes w ~ N(0, σ²/λ) and a free intercept, and d and c² the eigenvalues of S_xx and the squares of S_xy along them,

    log p(y | λ) = −½ Σ(n − 1) · log Σ(S_yy − Σ c²/(d + λ)) + ½ ΣΣ log(λ / (d + λ)) + const,

the outer sums over groups: all groups of a level share λ and σ.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.baselines.ridge import PENALTIES
from fedhlcr.data.hierarchy import UNKNOWN
from fedhlcr.model.gram import GramLayout
from fedhlcr.posterior.prediction import Posterior

# Numbers in one block of unpacked matrices: 64 MB.
NUMBERS_AT_ONCE = 1 << 23


class Ridge(NamedTuple):
    """Regressions of groups, in the units of their Gram matrices."""

    slopes: FloatArray  # (groups, n_features)
    intercepts: FloatArray  # (groups,)
    penalty: float  # of slopes per standard deviation of the feature


class Ridges(NamedTuple):
    """One ridge for all events, and one for each entity."""

    of_all: Ridge
    of_entities: Ridge

    @classmethod
    def of(cls, posterior: Posterior) -> Ridges:
        """Of a model that holds entities."""
        layout, grams = posterior.layout, posterior.memory.entities.grams
        pooled = grams.sum(axis=0)[None]
        spread = _centred(layout, pooled).spread[0]
        return cls(solve_ridge(layout, pooled, spread), solve_ridge(layout, grams, spread))

    def predict(self, features: FloatArray, entities: IndexArray) -> tuple[FloatArray, FloatArray]:
        """Predictions of standardised rows: by the one ridge, and by those of their entities, or else by the one."""
        by_one = features @ self.of_all.slopes[0] + self.of_all.intercepts[0]
        by_entity, known = by_one.copy(), entities != UNKNOWN
        own = entities[known]
        slopes = self.of_entities.slopes[own]
        by_entity[known] = (features[known] * slopes).sum(axis=1) + self.of_entities.intercepts[own]
        return by_one, by_entity


class _Centred(NamedTuple):
    """Sums of groups around the groups' own means."""

    n: FloatArray  # (groups,)
    mean: FloatArray  # (groups, n_features + 1), the target last
    sums: FloatArray  # (groups, n_features + 1, n_features + 1)

    @property
    def spread(self) -> FloatArray:
        """(groups, n_features): standard deviations of the features; infinite where there is none."""
        variance = np.diagonal(self.sums, axis1=1, axis2=2)[:, :-1] / self.n[:, None]
        # what rounding leaves of a constant feature is no spread
        floor = 1e-18 * (1.0 + self.mean[:, :-1] ** 2)
        return np.sqrt(np.where(variance > floor, variance, np.inf))


def _centred(layout: GramLayout, grams: FloatArray) -> _Centred:
    full = layout.unpack(grams)
    n = full[:, 0, 0]
    mean = full[:, 0, 1:] / np.maximum(n, 1e-300)[:, None]
    return _Centred(n, mean, full[:, 1:, 1:] - n[:, None, None] * mean[:, :, None] * mean[:, None, :])


def solve_ridge(layout: GramLayout, grams: FloatArray, spread: FloatArray) -> Ridge:
    """Ridges of Gram matrices (groups, packed), with one penalty for slopes per `spread` of the features."""
    penalty = float(PENALTIES[_log_evidence(layout, grams, spread).argmax()])
    slopes, intercepts = np.empty((len(grams), layout.n_features)), np.empty(len(grams))
    for rows, xx, xy, group in _blocks(layout, grams, spread):
        scaled = np.linalg.solve(xx + penalty * np.eye(layout.n_features), xy[..., None])[..., 0]
        slopes[rows] = scaled / spread
        intercepts[rows] = group.mean[:, -1] - (slopes[rows] * group.mean[:, :-1]).sum(axis=1)
    return Ridge(slopes, intercepts, penalty)


def _log_evidence(layout: GramLayout, grams: FloatArray, spread: FloatArray) -> FloatArray:
    """(penalties,) up to a constant."""
    unexplained, shrinkage = np.zeros(len(PENALTIES)), np.zeros(len(PENALTIES))
    freedom, total = 0.0, 0.0
    for _, xx, xy, group in _blocks(layout, grams, spread):
        roots, vectors = np.linalg.eigh(xx)
        along = np.einsum("gfe,gf->ge", vectors, xy) ** 2
        denominators = np.maximum(roots, 0.0) + PENALTIES[:, None, None]
        unexplained += (group.sums[:, -1, -1].sum() - (along / denominators).sum(axis=(1, 2))).clip(min=0.0)
        shrinkage += np.log(PENALTIES[:, None, None] / denominators).sum(axis=(1, 2))
        freedom += np.maximum(group.n - 1.0, 0.0).sum()
        total += group.sums[:, -1, -1].sum()
    # a perfect fit is told by what rounding leaves of it, which is no evidence
    floor = 1e-12 * total if total > 0.0 else 1.0
    return -0.5 * freedom * np.log(np.maximum(unexplained, floor)) + 0.5 * shrinkage


def _blocks(
    layout: GramLayout, grams: FloatArray, spread: FloatArray
) -> Iterator[tuple[slice, FloatArray, FloatArray, _Centred]]:
    """Normal equations of consecutive groups, per spread of the features, so many at a time that memory is bounded."""
    size = max(1, NUMBERS_AT_ONCE // layout.width**2)
    for first in range(0, len(grams), size):
        rows = slice(first, first + size)
        group = _centred(layout, grams[rows])
        xx = group.sums[:, :-1, :-1] / (spread[:, None] * spread)
        yield rows, xx, group.sums[:, :-1, -1] / spread, group
