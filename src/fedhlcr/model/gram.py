"""Augmented Gram matrices: the sufficient statistic of a set of events, from which everything else is computed.

For any set of events let x̃ = (1, x, y) and M = Σ w·x̃x̃ᵀ, with w the weights of the events. M holds n, Σx, Σy, G = Σxxᵀ,
g = Σxy and q = Σy². Adding matrices merges sets, subtracting one removes a set, and standardising columns is the
congruence M → T M Tᵀ. Matrices are stored *packed*: the lower triangle row by row, (F+2)(F+3)/2 numbers, as the last
axis of an array.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.checks import SIZE_LIMIT, finite, square_finite
from fedhlcr._support.threads import Blocks, run_blocks
from fedhlcr.data.events import EventStore
from fedhlcr.data.exact_sums import ExactSums
from fedhlcr.data.hierarchy import Hierarchy
from fedhlcr.kernels.grams import accumulate_grams, group_means
from fedhlcr.model.curves import Curves
from fedhlcr.storage.codec import Record
from fedhlcr.storage.reader import RecordReader


class NormalEquations(NamedTuple):
    """The parts of M that a regression needs, with any leading axes: n, G = Σxxᵀ, g = Σxy, q = Σy²."""

    n: FloatArray
    xx: FloatArray
    xy: FloatArray
    yy: FloatArray


@dataclass(frozen=True)
class GramLayout:
    """The positions of entries in a packed augmented Gram matrix, and which columns are regressors.

    Attributes
    ----------
    n_features : number of features, without the constant; columns that curves append are features too
    fit_intercept : whether the constant is a regressor too
    curve_groups : for each curve, the number of columns that it appends (`model.curves`); these are the last features
    """

    n_features: int
    fit_intercept: bool = True
    # not in the text of a layout, which is part of a run's identity
    curve_groups: tuple[int, ...] = field(default=(), repr=False)

    @property
    def n_inputs(self) -> int:
        """Number of features of the user's table: all but those that curves append."""
        return self.n_features - sum(self.curve_groups)

    @property
    def n_linear(self) -> int:
        """Number of coefficients before those of the curves."""
        return self.n_coef - sum(self.curve_groups)

    @property
    def curve_spans(self) -> list[slice]:
        """The coefficients of each curve."""
        ends = self.n_linear + np.cumsum(self.curve_groups, dtype=np.int64)
        return [slice(int(end) - size, int(end)) for end, size in zip(ends, self.curve_groups, strict=True)]

    @property
    def width(self) -> int:
        """Side of the full matrix: constant, features, target."""
        return self.n_features + 2

    @property
    def packed_size(self) -> int:
        return self.width * (self.width + 1) // 2

    @property
    def first_regressor(self) -> int:
        return 0 if self.fit_intercept else 1

    @property
    def n_coef(self) -> int:
        """Number of coefficients of one regression. The intercept, if any, comes first."""
        return self.n_features + 1 - self.first_regressor

    @cached_property
    def _lower(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        return np.tril_indices(self.width)

    @cached_property
    def _packed_index(self) -> NDArray[np.intp]:
        """(width, width) position of each entry of the full matrix in the packed one."""
        index = np.empty((self.width, self.width), dtype=np.intp)
        rows, columns = self._lower
        index[rows, columns] = index[columns, rows] = np.arange(self.packed_size)
        return index

    @cached_property
    def regression_block(self) -> NDArray[np.intp]:
        """Packed positions of the (regressors, y) block, in the block's own packed order."""
        _, columns = self._lower
        return np.flatnonzero(columns >= self.first_regressor)

    def pack(self, full: FloatArray) -> FloatArray:
        rows, columns = self._lower
        return full[..., rows, columns]

    def unpack(self, packed: FloatArray) -> FloatArray:
        return packed[..., self._packed_index]

    def without_curves(self, packed: FloatArray) -> FloatArray:
        """The packed matrices without the columns that curves append."""
        if not self.curve_groups:
            return packed
        kept = ~np.isin(np.arange(self.width), np.arange(self.n_inputs + 1, self.width - 1))
        rows, columns = self._lower
        return packed[..., kept[rows] & kept[columns]]

    def n_events(self, packed: FloatArray) -> FloatArray:
        return packed[..., 0]

    def diagonal(self, packed: FloatArray) -> FloatArray:
        """(..., width): n and the sums of squares."""
        return packed[..., np.cumsum(np.arange(1, self.width + 1)) - 1]

    def normal_equations(self, packed: FloatArray) -> NormalEquations:
        full = self.unpack(packed)
        x = slice(self.first_regressor, self.width - 1)
        return NormalEquations(full[..., 0, 0], full[..., x, x], full[..., x, -1], full[..., -1, -1])

    def rss_vectors(self, coef: FloatArray) -> FloatArray:
        """(..., packed_size) vectors r with M·r = RSS(w) = (−w, 1)ᵀ M (−w, 1), one for each w in coef (..., n_coef)."""
        v = np.zeros((*coef.shape[:-1], self.width))
        v[..., self.first_regressor : -1] = -coef
        v[..., -1] = 1.0
        rows, columns = self._lower
        return v[..., rows] * v[..., columns] * np.where(rows == columns, 1.0, 2.0)

    def rss(self, packed: FloatArray, coef: FloatArray) -> FloatArray:
        """Residual sum of squares, never below zero; packed (..., packed_size) against coef (..., n_coef)."""
        return np.maximum(np.einsum("...p,...p->...", packed, self.rss_vectors(coef)), 0.0)


@dataclass(frozen=True)
class Standardization:
    """(x, y) → ((x, y) − shift) / scale, column by column; the constant stays 1.

    If there are curves, they are appended to x first. `to_user_units` converts coefficients of the standardised
    regression back.
    """

    shift: FloatArray  # (n_features + 1,), the target last
    scale: FloatArray  # (n_features + 1,)
    curves: Curves | None = None

    @classmethod
    def from_gram(
        cls, layout: GramLayout, pooled: FloatArray, shift: FloatArray, *, scale: bool, curves: Curves | None = None
    ) -> Standardization:
        """Standardise by the Gram matrix of all events, accumulated around `shift`.

        The scale is the root mean square around the shift, which is the standard deviation if the shift is the mean. A
        constant feature gets an infinite scale, so that it has no effect. A constant target gets scale 1. Curves keep
        their own units, in which they have mean zero and unit mean square.
        """
        if not scale:
            return cls(shift, np.ones_like(shift), curves)
        spread = np.sqrt(np.maximum(layout.diagonal(pooled)[1:], 0.0) / layout.n_events(pooled))
        spread = np.where(has_spread(spread, shift), spread, np.inf)
        spread[-1] = 1.0 if np.isinf(spread[-1]) else spread[-1]
        spread[layout.n_inputs : -1] = 1.0
        return cls(shift, spread, curves)

    def with_own_target(self) -> Standardization:
        """The same with the target as it is."""
        shift = self.shift.copy()
        scale = self.scale.copy()
        shift[-1] = 0.0
        scale[-1] = 1.0
        return replace(self, shift=shift, scale=scale)

    def expand(self, X: FloatArray) -> FloatArray:
        """Append the curves, if there are any, to the user's features (rows, n_inputs)."""
        return X if self.curves is None else self.curves.expand(X)

    def apply(self, X: FloatArray) -> FloatArray:
        """The user's features (rows, n_inputs) in standardised units, with the curves: (rows, n_features)."""
        return (self.expand(X) - self.shift[:-1]) / self.scale[:-1]

    def apply_target(self, y: FloatArray) -> FloatArray:
        return (y - self.shift[-1]) / self.scale[-1]

    def restore_target(self, y: FloatArray) -> FloatArray:
        return y * self.scale[-1] + self.shift[-1]

    def rescale(self, layout: GramLayout, packed: FloatArray, n_threads: int = 1) -> FloatArray:
        """Scale matrices that were accumulated around the shift, in place: M → T M Tᵀ with T = diag(1, 1/scale)."""
        inverse = np.concatenate([[1.0], 1.0 / self.scale])
        factors = layout.pack(np.outer(inverse, inverse))
        blocks = Blocks.even(len(packed))

        def scale(block: int) -> None:
            packed[slice(*blocks.range(block))] *= factors

        run_blocks(scale, len(blocks), n_threads)
        return packed

    def column_moments(self, layout: GramLayout, pooled: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Means and standard deviations of (x, y) in the user's units, from the standardised matrix of all events."""
        n = layout.n_events(pooled)
        mean = layout.unpack(pooled)[0, 1:] / n
        square = layout.diagonal(pooled)[1:] / n
        # a constant feature has an infinite scale
        scale = np.where(np.isfinite(self.scale), self.scale, 0.0)
        return self.shift + scale * mean, scale * np.sqrt(np.maximum(square - mean**2, 0.0))

    def to_user_units(self, layout: GramLayout, coef: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Convert standardised coefficients (..., n_coef) to (slopes, intercepts) in the user's units.

        The slopes are those of the user's features, without the curves. The intercepts belong to predictions that add
        the curves.
        """
        slopes = self.feature_slopes(layout, coef)
        constant = coef[..., 0] * self.scale[-1] if layout.fit_intercept else np.zeros(coef.shape[:-1])
        intercepts = constant + self.shift[-1] - (slopes * self.shift[:-1]).sum(axis=-1)
        return slopes[..., : layout.n_inputs], intercepts

    def feature_slopes(self, layout: GramLayout, coef: FloatArray) -> FloatArray:
        """(..., n_features) coefficients of all features in the user's units, with those of the curves."""
        return coef[..., 1 - layout.first_regressor :] * self.scale[-1] / self.scale[:-1]

    def coef_transform(self, layout: GramLayout, at: FloatArray) -> FloatArray:
        """(1 + n_inputs, n_coef) T, so that T·coef is the prediction at the features `at`, and then the slopes.

        All are in the user's units. The prediction is without the target's shift and without curves. A covariance C of
        coefficients becomes T C Tᵀ.
        """
        n_inputs = layout.n_inputs
        first = 1 - layout.first_regressor
        transform = np.zeros((1 + n_inputs, layout.n_coef))
        transform[0, :first] = 1.0
        transform[0, first : first + n_inputs] = (at - self.shift[:n_inputs]) / self.scale[:n_inputs]
        transform[1:, first : first + n_inputs] = np.diag(1.0 / self.scale[:n_inputs])
        return transform * self.scale[-1]

    def to_record(self) -> Record:
        """The fields that `read_units` reads."""
        units: Record = {"shift": self.shift, "scale": self.scale}
        return units if self.curves is None else units | self.curves.to_record()


def has_spread(spread: FloatArray, mean: FloatArray) -> NDArray[np.bool_]:
    """Whether columns vary, up to rounding errors of a constant column."""
    return np.asarray(spread > 1e-13 * np.maximum(np.abs(mean), 1e-290))


def column_means(hierarchy: Hierarchy, n_threads: int = 1) -> FloatArray:
    """Weighted means of (x, y) over all events; see `data.exact_sums`."""
    sums = ExactSums.empty(hierarchy.X.shape[1])
    sums.add(hierarchy.X, hierarchy.y, hierarchy.weight, n_threads)
    return sums.means()


def agent_means(hierarchy: Hierarchy) -> FloatArray:
    """(agents, n_features + 1) weighted means of (x, y) over the events of each agent."""
    means = np.zeros((hierarchy.index.n_agents, hierarchy.X.shape[1] + 1))
    group_means(hierarchy.X, hierarchy.y, hierarchy.weight, hierarchy.event_start[hierarchy.index.agent_start], means)
    return means


def entity_grams(hierarchy: Hierarchy, layout: GramLayout, shift: FloatArray, n_threads: int = 1) -> FloatArray:
    """Packed Gram matrix of each entity, (entities, packed_size), accumulated around `shift`.

    The shift keeps the sums accurate if a column's mean is large compared with its spread: without it, x² would lose
    the digits that carry the information. There is one shift for all agents, (n_features + 1,), or one for each,
    (agents, n_features + 1).
    """
    return event_grams(hierarchy.events, layout, shift, hierarchy.index.agent_of, n_threads)


def event_grams(
    events: EventStore, layout: GramLayout, shift: FloatArray, agent_of: NDArray[np.int64], n_threads: int = 1
) -> FloatArray:
    """`entity_grams` of events whose entities belong to the agents `agent_of`."""
    grams = np.zeros((events.n_entities, layout.packed_size))
    blocks = Blocks.balanced(events.event_start)
    shift_of = agent_of if shift.ndim == 2 else np.zeros(events.n_entities, dtype=np.int64)
    shifts = np.atleast_2d(shift)

    def accumulate(block: int) -> None:
        accumulate_grams(
            *(events.X, events.y, events.weight, events.event_start),
            *(shifts, shift_of, grams),
            *blocks.range(block),
        )

    run_blocks(accumulate, len(blocks), n_threads)
    return grams


def standard_events(events: EventStore, units: Standardization) -> EventStore:
    """Events in the units of a run, with its curves."""
    return replace(events, X=units.apply(events.X), y=units.apply_target(events.y))


def read_units(reader: RecordReader, *, fit_intercept: bool) -> tuple[GramLayout, Standardization]:
    """Read and check the shift and scale of all columns, and the curves; return them with the layout they imply."""
    shift = reader.array("shift", "f8", (None,), finite)
    reader.require(1 <= len(shift) <= SIZE_LIMIT, "shift")
    # a constant feature has an infinite scale
    scale = reader.array("scale", "f8", shift.shape, lambda values: values > 0)
    with np.errstate(over="ignore"):
        # the units of the coefficients: if squares of both are finite, so are their products
        reader.require(np.isfinite(scale[-1]) and square_finite(scale[-1] / scale).all(), "scale")
    curves = Curves.read(reader, len(shift) - 1)
    return layout_with(curves, len(shift) - 1, fit_intercept=fit_intercept), Standardization(shift, scale, curves)


def layout_with(curves: Curves | None, n_features: int, *, fit_intercept: bool) -> GramLayout:
    """The layout of `n_features` features, of which the curves, if there are any, appended the last."""
    return GramLayout(n_features, fit_intercept, () if curves is None else curves.groups)
