"""Normal linear regressions of entities, whatever model they come from: what they predict.

A model says that the coefficients of an entity are N(c, σ²S) given its events. Then the target of a new event with
regressors x is N(xᵀc, σ²(1 + h)) with h = xᵀSx. For an event that was among those given, h is its leverage.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.data.hierarchy import UNKNOWN
from fedhlcr.model.gram import GramLayout, NormalEquations
from fedhlcr.model.regression import LOG_2PI

# Numbers in one block of unpacked matrices: 64 MB.
NUMBERS_AT_ONCE = 1 << 23
# An event that determines its own prediction cannot be predicted without it. Rounding must not exceed this leverage.
MOST_LEVERAGE = 1.0 - 1e-9


class CoefLaw(NamedTuple):
    """Distributions N(c, σ²S) of coefficients."""

    mean: FloatArray  # (groups, n_coef) c
    covariance: FloatArray  # (groups, n_coef, n_coef) S, relative to σ²


class LinearModel(Protocol):
    """A model of entities with one noise variance σ²."""

    @property
    def noise_variance(self) -> float: ...

    def law(self, entities: NormalEquations) -> CoefLaw:
        """The regression of each entity, given its events."""


class KnownEntities(NamedTuple):
    """The Gram matrices (entities, packed) of entities that a model was fitted to."""

    layout: GramLayout
    grams: FloatArray


class Predicted(NamedTuple):
    """Normal predictions of events, (rows,) each, in the units of the model.

    Attributes
    ----------
    mean : xᵀc
    leverage : h
    noise_variance : σ²
    """

    mean: FloatArray
    leverage: FloatArray
    noise_variance: FloatArray

    def log_density(self, target: FloatArray) -> FloatArray:
        """Log density of targets that the model has not seen, N(xᵀc, σ²(1 + h))."""
        return _log_normal(target - self.mean, self.noise_variance * (1.0 + self.leverage))

    def log_density_left_out(self, target: FloatArray) -> FloatArray:
        """Log density of targets that the model has seen, each given all others but not itself.

        Removing a normal observation from a normal distribution needs no second fit. The error becomes
        (y − xᵀc) / (1 − h), and the variance σ² / (1 − h). Scales stay as they are.
        """
        left = 1.0 - np.minimum(self.leverage, MOST_LEVERAGE)
        return _log_normal((target - self.mean) / left, self.noise_variance / left)


def _log_normal(error: FloatArray, variance: FloatArray) -> FloatArray:
    return -0.5 * (LOG_2PI + np.log(variance) + error**2 / variance)


def predict_by_one(law: CoefLaw, noise_variance: float, design: FloatArray) -> Predicted:
    """Predict rows (rows, n_coef) by one regression, the first of `law`."""
    mean = design @ law.mean[0]
    leverage = np.einsum("rc,rc->r", design @ law.covariance[0], design)
    return Predicted(mean, leverage, np.full(len(design), noise_variance))


def predict_by_entity(
    model: LinearModel, known: KnownEntities, design: FloatArray, entities: IndexArray, otherwise: Predicted
) -> Predicted:
    """Predict rows by the regression of each row's entity.

    Parameters
    ----------
    known : the entities that have events
    design : (rows, n_coef)
    entities : (rows,) positions among the known ones, or UNKNOWN
    otherwise : predictions of the same rows, used where the entity is unknown
    """
    out = Predicted(*(column.copy() for column in otherwise))
    order = np.argsort(entities, kind="stable")
    order = order[entities[order] != UNKNOWN]
    distinct, group = np.unique(entities[order], return_inverse=True)
    for part in blocks(known.layout, len(distinct)):
        law = model.law(known.layout.normal_equations(known.grams[distinct[part]]))
        first, last = np.searchsorted(group, [part.start, part.stop])
        # rows in blocks too: an entity may have many
        for rows in blocks(known.layout, last - first):
            own = order[first:last][rows]
            of_row = group[first:last][rows] - part.start
            out.mean[own] = np.einsum("rc,rc->r", design[own], law.mean[of_row])
            along = (law.covariance[of_row] @ design[own][..., None])[..., 0]
            out.leverage[own] = np.einsum("rc,rc->r", design[own], along)
    out.noise_variance[order] = model.noise_variance
    return out


def blocks(layout: GramLayout, n_groups: int) -> Iterator[slice]:
    """Consecutive groups, few enough at a time to bound the memory of unpacked matrices."""
    size = max(1, NUMBERS_AT_ONCE // layout.width**2)
    for first in range(0, n_groups, size):
        yield slice(first, min(first + size, n_groups))
