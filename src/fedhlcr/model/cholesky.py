"""Cholesky factors that exist for collinear columns too.

A precision A = diag(1/δ²) + G/σ² is positive definite in theory. Where columns are collinear and events many, the prior
1/δ² is smaller than the rounding errors of G/σ², and a pivot is noise, of either sign. Such a matrix is factored
with its diagonal raised,

    A + ρ·diag(A),

in proportion to each column's own size, so that columns of small values keep their coefficients. What the data
determine changes by a share of about ρ; collinear columns get coefficients that differ little from each other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray

# The first is far above what rounding leaves of a collinear column, 1e-16 to 1e-13 of its size: the noise in its
# coefficient is then small. At the last the diagonal outweighs all else, unless there are 10,000 columns.
RAISES = 1e-10 * 100.0 ** np.arange(8)


class Factors(NamedTuple):
    """Lower triangular L with L Lᵀ = A, or A + ρ·diag(A) where A had to be raised."""

    lower: FloatArray  # (..., n, n)
    raised: NDArray[np.bool_]  # (...)


def stable_cholesky(matrices: FloatArray) -> Factors:
    """Factors of symmetric matrices (..., n, n).

    A matrix with sound pivots is factored as it is, whatever the others are like. Any other is raised by the first ρ
    of RAISES that gives it sound pivots. LinAlgError is raised only if a diagonal is not positive.
    """
    try:
        lower: FloatArray = np.linalg.cholesky(matrices).astype(np.float64, copy=False)
    except np.linalg.LinAlgError:
        # numpy does not say which of them failed
        lower = np.full(matrices.shape, np.nan)
    noisy = ~_has_sound_pivots(lower, matrices)
    raised = np.zeros_like(noisy)
    for place in np.argwhere(noisy):
        index = tuple(place)
        lower[index], raised[index] = _factor(matrices[index])
    return Factors(lower, raised)


def _factor(matrix: FloatArray) -> tuple[FloatArray, bool]:
    """The factor of one matrix (n, n), and whether its diagonal was raised."""
    diagonal = np.diag(np.diagonal(matrix))
    for rho in (0.0, *RAISES):
        candidate = matrix + rho * diagonal
        try:
            lower = np.linalg.cholesky(candidate).astype(np.float64, copy=False)
        except np.linalg.LinAlgError:
            continue
        if _has_sound_pivots(lower, candidate):
            return lower, rho > 0.0
    raise np.linalg.LinAlgError("a matrix to factor is not finite, or its diagonal is not positive.")


def _has_sound_pivots(lower: FloatArray, matrices: FloatArray) -> NDArray[np.bool_]:
    """(...) whether every pivot is more of its diagonal element than rounding alone may leave."""
    roots, diagonal = (np.diagonal(array, axis1=-2, axis2=-1) for array in (lower, matrices))
    share = 4.0 * matrices.shape[-1] * np.finfo(np.float64).eps
    return np.asarray((roots**2 > share * diagonal).all(axis=-1))
