"""Ridge regressions to compare a model with, from the Gram matrices it holds: one for all events, one per entity.

The events themselves are gone, so the penalty cannot be cross-validated; the one with the highest evidence is taken.
For a group of n events let S be the sums of squares and products around the group's means. Slopes are w ~ N(0, σ²/λ),
the intercept is free. With d the eigenvalues of S_xx and c the components of S_xy along its eigenvectors, and σ at its
maximum,

    log p(y | λ) = −½ Σ(n − 1) · log Σ(S_yy − Σ c²/(d + λ)) + ½ ΣΣ log(λ / (d + λ)) + const,

where the outer sums run over groups, which share λ and σ.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.baselines.ridge import PENALTIES, solve_ridge
from fedhlcr.baselines.rival import Coefficients, Rows, with_constant
from fedhlcr.data.hierarchy import UNKNOWN
from fedhlcr.model.gram import GramLayout
from fedhlcr.posterior.prediction import Posterior

# Numbers in one block of unpacked matrices: 64 MB.
NUMBERS_AT_ONCE = 1 << 23
# Penalty of a constant feature, which makes its slope 0.
INFINITE = 1e12


class Ridge(NamedTuple):
    """Regressions of groups, in the units of their Gram matrices."""

    coef: FloatArray  # (groups, 1 + n_features), the intercept first
    penalty: float  # of slopes per standard deviation of the feature


class Ridges(NamedTuple):
    """One ridge for all events, and one for each entity."""

    of_all: Ridge
    of_entities: Ridge

    @classmethod
    def of(cls, posterior: Posterior) -> Ridges:
        """The ridges of a model that holds entities."""
        # the matrices have a row for the constant, whether the model has an intercept or not
        layout, grams = GramLayout(posterior.layout.n_features), posterior.memory.entities.grams
        pooled = grams.sum(axis=0)[None]
        spread = _centred(layout, pooled).spread[0]
        return cls(_ridge(layout, pooled, spread), _ridge(layout, grams, spread))

    def predict(self, features: FloatArray, entities: IndexArray) -> tuple[FloatArray, FloatArray]:
        """Predictions for standardised rows by the one ridge, and by the ridge of the row's entity if it is known."""
        nobody = np.full(len(features), UNKNOWN)
        coef = Coefficients(self.of_all.coef[0], of_entities=self.of_entities.coef)
        by_one, by_entity = (coef.predict(Rows(with_constant(features), nobody, own)) for own in (nobody, entities))
        return by_one, by_entity


class _Centred(NamedTuple):
    """Sums of groups around the groups' own means."""

    n: FloatArray  # (groups,)
    mean: FloatArray  # (groups, n_features + 1), the target last
    sums: FloatArray  # (groups, n_features + 1, n_features + 1)

    @property
    def spread(self) -> FloatArray:
        """(groups, n_features): standard deviations of the features; infinite for a constant feature."""
        variance = np.diagonal(self.sums, axis1=1, axis2=2)[:, :-1] / self.n[:, None]
        # rounding errors of a constant feature are not a spread
        floor = 1e-18 * (1.0 + self.mean[:, :-1] ** 2)
        return np.sqrt(np.where(variance > floor, variance, np.inf))


def _centred(layout: GramLayout, grams: FloatArray) -> _Centred:
    full = layout.unpack(grams)
    n = full[:, 0, 0]
    mean = full[:, 0, 1:] / np.maximum(n, 1e-300)[:, None]
    return _Centred(n, mean, full[:, 1:, 1:] - n[:, None, None] * mean[:, :, None] * mean[:, None, :])


def _ridge(layout: GramLayout, grams: FloatArray, spread: FloatArray) -> Ridge:
    """Ridges of Gram matrices (groups, packed), with one penalty for slopes per `spread` of the features."""
    penalty = float(PENALTIES[_log_evidence(layout, grams, spread).argmax()])
    penalties = np.minimum(penalty * spread**2, INFINITE)
    return Ridge(np.concatenate([solve_ridge(layout, block, penalties) for block in _blocks(layout, grams)]), penalty)


def _log_evidence(layout: GramLayout, grams: FloatArray, spread: FloatArray) -> FloatArray:
    """(penalties,) up to a constant."""
    unexplained, shrinkage = np.zeros(len(PENALTIES)), np.zeros(len(PENALTIES))
    freedom, total = 0.0, 0.0
    for block in _blocks(layout, grams):
        group = _centred(layout, block)
        roots, vectors = np.linalg.eigh(group.sums[:, :-1, :-1] / (spread[:, None] * spread))
        along = np.einsum("gfe,gf->ge", vectors, group.sums[:, :-1, -1] / spread) ** 2
        denominators = np.maximum(roots, 0.0) + PENALTIES[:, None, None]
        unexplained += (group.sums[:, -1, -1].sum() - (along / denominators).sum(axis=(1, 2))).clip(min=0.0)
        shrinkage += np.log(PENALTIES[:, None, None] / denominators).sum(axis=(1, 2))
        freedom += np.maximum(group.n - 1.0, 0.0).sum()
        total += group.sums[:, -1, -1].sum()
    # after a perfect fit only rounding errors are left, which are not evidence
    floor = 1e-12 * total if total > 0.0 else 1.0
    return -0.5 * freedom * np.log(np.maximum(unexplained, floor)) + 0.5 * shrinkage


def _blocks(layout: GramLayout, grams: FloatArray) -> Iterator[FloatArray]:
    """Consecutive groups, few enough at a time to bound the memory of unpacked matrices."""
    size = max(1, NUMBERS_AT_ONCE // layout.width**2)
    for first in range(0, len(grams), size):
        yield grams[first : first + size]
