"""Curves: natural cubic splines of numeric columns, appended to the features as further columns.

For a column x with knots ξ_1 < … < ξ_K the K − 2 functions of a natural cubic spline that are not straight lines are
appended. They are straight lines beyond the outer knots, so predictions outside the data go on linearly.

The functions are made orthonormal, and orthogonal to 1 and x, under the distribution of the column. So the coefficient
of x itself keeps its meaning, the slope of the best straight line, and one scale fits all functions of a curve. The
distribution is known from a few quantiles: all else follows from them, and in a federation they are all that agents
report about a column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.checks import SIZE_LIMIT, square_finite, within
from fedhlcr.storage.codec import Record
from fedhlcr.storage.reader import RecordReader

# Quantiles that describe the distribution of a column: the middles of this many equal shares of the events.
N_QUANTILES = 33
QUANTILE_LEVELS = (np.arange(N_QUANTILES) + 0.5) / N_QUANTILES
MOST_KNOTS = 6
# A column with fewer distinct quantiles gets no curve.
FEWEST_DISTINCT = 5
# Knots closer than this share of their range are one knot.
CLOSEST_KNOTS = 0.005
# The part of a function that the functions before it do not explain must be at least this large, relative to it all.
LEAST_OWN_SHARE = 1e-3


class _Spline(NamedTuple):
    """The curve of one column: φ(x) = (1, t, N(t)) · transform, with t = (x − centre) / scale.

    Attributes
    ----------
    knots : (K,) in units of t
    transform : (K, K − 2)
    """

    centre: float
    scale: float
    knots: FloatArray
    transform: FloatArray

    def evaluate(self, x: FloatArray) -> FloatArray:
        """(..., K − 2) values of the functions at x."""
        basis = _natural_basis((x - self.centre) / self.scale, self.knots)
        out = np.zeros((*x.shape, self.transform.shape[1]))
        # not a matrix product: BLAS may round a row differently in tables of different lengths
        for place, weights in enumerate(self.transform):
            out += basis[..., place, None] * weights
        return out


@dataclass(frozen=True, eq=False)
class Curves:
    """Which columns have curves, and which functions these are.

    Attributes
    ----------
    n_inputs : number of features before curves are appended
    columns : (curves,) positions of the columns with a curve, ascending
    quantiles : (curves, N_QUANTILES) quantiles of these columns at QUANTILE_LEVELS, ascending
    """

    n_inputs: int
    columns: IndexArray
    quantiles: FloatArray

    @classmethod
    def from_quantiles(cls, quantiles: FloatArray, columns: Sequence[int]) -> Curves | None:
        """Curves of those of the given columns that can have one; None if there are none.

        `quantiles` is (features, N_QUANTILES), one row for each feature.
        """
        chosen = [column for column in sorted(set(columns)) if can_curve(quantiles[column])]
        if not chosen:
            return None
        return cls(len(quantiles), np.array(chosen, dtype=np.int64), quantiles[chosen])

    @cached_property
    def splines(self) -> tuple[_Spline, ...]:
        return tuple(spline for own in self.quantiles if (spline := _spline(own)) is not None)

    @cached_property
    def groups(self) -> tuple[int, ...]:
        """Number of appended columns of each curve."""
        return tuple(len(spline.knots) - 2 for spline in self.splines)

    @property
    def n_features(self) -> int:
        """Number of features with those that are appended."""
        return self.n_inputs + sum(self.groups)

    def place(self, column: int) -> int | None:
        """Which of the curves belongs to a column; None if it has no curve."""
        found = np.flatnonzero(self.columns == column)
        return int(found[0]) if len(found) else None

    def span(self, curve: int) -> slice:
        """The appended columns that belong to a curve."""
        first = sum(self.groups[:curve])
        return slice(first, first + self.groups[curve])

    def appended(self, X: FloatArray) -> FloatArray:
        """(rows, appended columns) the functions of all curves at the features X (rows, n_inputs)."""
        own = zip(self.columns, self.splines, strict=True)
        return np.concatenate([spline.evaluate(X[:, column]) for column, spline in own], axis=1)

    def expand(self, X: FloatArray) -> FloatArray:
        """The features X (rows, n_inputs) with the curves appended, (rows, n_features)."""
        return np.concatenate([X, self.appended(X)], axis=1)

    def to_record(self) -> Record:
        return {"curves.columns": self.columns, "curves.quantiles": self.quantiles}

    @classmethod
    def read(cls, reader: RecordReader, n_features: int) -> Curves | None:
        """Read and check the fields of `to_record`; None if there are none.

        `n_features` counts the appended columns too.
        """
        if (own := reader.part("curves.")).is_empty:
            return None
        columns = own.array("columns", "i8", (None,), within(0, n_features))
        own.require(0 < len(columns) <= SIZE_LIMIT and (np.diff(columns) > 0).all(), "columns")
        quantiles = own.array("quantiles", "f8", (len(columns), N_QUANTILES), square_finite)
        own.require((np.diff(quantiles) >= 0).all() and all(map(can_curve, quantiles)), "quantiles")
        n_inputs = n_features - sum(cls(n_features, columns, quantiles).groups)
        own.require(columns[-1] < n_inputs, "columns")
        return cls(n_inputs, columns, quantiles)


def same_curves(one: Curves | None, other: Curves | None) -> bool:
    """Whether two sets of curves are the same, or there are none in both places."""
    if one is None or other is None:
        return one is other
    same_columns = one.n_inputs == other.n_inputs and np.array_equal(one.columns, other.columns)
    return same_columns and np.array_equal(one.quantiles, other.quantiles)


def column_quantiles(X: FloatArray, weight: FloatArray) -> FloatArray:
    """(features, N_QUANTILES) quantiles of each column of X (rows, features), with weights (rows,)."""
    out = np.empty((X.shape[1], N_QUANTILES))
    for quantiles, column in zip(out, X.T, strict=True):
        order = np.argsort(column, kind="stable")
        share = np.cumsum(weight[order])
        # the last share may be rounded below the sum of all
        position = np.searchsorted(share, QUANTILE_LEVELS * share[-1])
        # without the sign of zero, which no order knows
        quantiles[:] = column[order][position] + 0.0
    return out


def pooled_quantiles(quantiles: FloatArray, weight: FloatArray) -> FloatArray:
    """(features, N_QUANTILES) quantiles over all agents, from (agents, features, N_QUANTILES) and weights (agents,).

    Each agent stands for its quantiles, as if they were its events. The quantiles of one agent alone stay as they are.
    """
    n_agents, n_features, _ = quantiles.shape
    values = np.moveaxis(quantiles, 1, 2).reshape(n_agents * N_QUANTILES, n_features)
    return column_quantiles(values, np.repeat(weight, N_QUANTILES))


def can_curve(quantiles: FloatArray) -> bool:
    """Whether a column with these quantiles can have a curve: it needs enough distinct values."""
    return _spline(quantiles) is not None


def _spline(quantiles: FloatArray) -> _Spline | None:
    """The curve with the most knots that these quantiles can tell apart; None if they cannot tell three apart."""
    n_distinct = len(np.unique(quantiles))
    # digits that tell the values apart must be left
    if n_distinct < FEWEST_DISTINCT or quantiles[-1] - quantiles[0] <= 1e-12 * np.abs(quantiles).max():
        return None
    for n_knots in range(min(MOST_KNOTS, n_distinct), 2, -1):
        spline = _spline_with(quantiles, _distant(np.interp(knot_levels(n_knots), QUANTILE_LEVELS, quantiles)))
        if spline is not None:
            return spline
    return None


def knot_levels(n_knots: int) -> FloatArray:
    """The levels of the distribution at which knots lie."""
    return np.linspace(0.05, 0.95, n_knots)


def _distant(knots: FloatArray) -> FloatArray:
    """The knots without those that are too close to the one before."""
    closest = CLOSEST_KNOTS * (knots[-1] - knots[0])
    kept = [knots[0]]
    for knot in knots[1:]:
        if knot - kept[-1] > closest:
            kept.append(knot)
    return np.array(kept)


def _spline_with(quantiles: FloatArray, knots: FloatArray) -> _Spline | None:
    """The functions of a curve: residuals of the natural basis on (1, t), then orthonormal with unit mean square.

    None if the quantiles cannot tell the functions apart. Cholesky factors are unique, unlike eigenvectors. So agents
    that compute the functions from the same quantiles get the same ones on every machine.
    """
    if len(knots) < 3:
        return None
    centre = float(quantiles[len(quantiles) // 2])
    scale = float(knots[-1] - knots[0])
    knots = (knots - centre) / scale
    basis = _natural_basis((quantiles - centre) / scale, knots)
    line = basis[:, :2]
    curved = basis[:, 2:]
    fit = np.linalg.solve(line.T @ line, line.T @ curved)
    residual = curved - line @ fit
    squares = residual.T @ residual / len(quantiles)
    try:
        root = np.linalg.cholesky(squares)
    except np.linalg.LinAlgError:
        return None
    if (np.diag(root) < LEAST_OWN_SHARE * np.sqrt(np.diag(squares))).any():
        return None
    transform = np.linalg.solve(root, np.vstack([-fit, np.eye(curved.shape[1])]).T).T
    return _Spline(centre, scale, knots, transform)


def _natural_basis(t: FloatArray, knots: FloatArray) -> FloatArray:
    """(..., K) natural cubic spline basis: 1, t, and K − 2 functions that are zero below the first knot.

    With d_k(t) = ((t − ξ_k)₊³ − (t − ξ_K)₊³) / (ξ_K − ξ_k) the functions are d_k − d_{K−1} up to the last knot. Beyond
    it they go on with their last slope; computed from cubes, they would lose all digits far away.
    """
    last = knots[-1]
    inner = knots[:-1]
    inside = np.minimum(t, last)[..., None]
    beyond = np.maximum(t - last, 0.0)[..., None]
    d = np.maximum(inside - inner, 0.0) ** 3 / (last - inner)
    slopes = 3.0 * (last - inner)
    d = d + beyond * slopes
    return np.concatenate([np.ones_like(inside), t[..., None], d[..., :-1] - d[..., -1:]], axis=-1)
