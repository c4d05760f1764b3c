"""The prior of a curve: w_k ~ N(μ, τ² I), μ ~ N(0, s² I), with its own learned scales s and τ.

w_k (size,) are the coefficients of one curve in cluster k. All clusters share the curve μ, and τ is how far clusters
deviate from it. Both scales have values on a logarithmic grid, with p(s) ∝ 1/s and p(τ) ∝ 1/τ. The smallest value makes
a curve vanish: so a useless curve costs nearly nothing, and a curve that clusters share is learned from the events of
all. On a grid, everything but the coefficients is integrated out exactly.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.special import logsumexp
from fedhlcr.model.regression import LOG_2PI, CoefPrior

# Possible values of s and of τ, for a target of unit spread. The curves' columns have unit mean square. The smallest
# value is not zero, so that a scale can grow again.
SCALES = 0.0025 * 2.0 ** (0.5 * np.arange(19))
LOG_WEIGHTS = -np.log(SCALES) - np.log((1.0 / SCALES).sum())
# The scale of all curves at the start.
START_SCALE = 0.1


class _CurveSums(NamedTuple):
    """What the prior needs of the coefficients (clusters, size): their number, sum, and squares around the mean."""

    n: int
    total: FloatArray  # (size,)
    squares: FloatArray  # (size,)

    @classmethod
    def of(cls, coef: FloatArray) -> _CurveSums:
        total = coef.sum(axis=0)
        return cls(len(coef), total, ((coef - total / max(len(coef), 1)) ** 2).sum(axis=0))


def draw_curve_prior(rng: np.random.Generator, coef: FloatArray, spread: float) -> CoefPrior:
    """(μ, τ) of one curve given its coefficients in the occupied clusters, (clusters, size).

    (s, τ) are drawn with μ integrated out, then μ | s, τ.
    """
    logs = _log_joint(_CurveSums.of(coef), spread).ravel()
    weights = np.cumsum(np.exp(logs - logs.max()))
    choice = min(int(np.searchsorted(weights, rng.random() * weights[-1], side="right")), len(logs) - 1)
    shared = spread * SCALES[choice // len(SCALES)]
    own = spread * SCALES[choice % len(SCALES)]
    total_variance = own**2 + len(coef) * shared**2
    noise = rng.standard_normal(coef.shape[1])
    mean = shared**2 * coef.sum(axis=0) / total_variance + shared * own / np.sqrt(total_variance) * noise
    return CoefPrior(mean, np.full(coef.shape[1], own))


def log_curve_marginal(coef: FloatArray, spread: float) -> float:
    """log p(w) of one curve's coefficients in the occupied clusters, (clusters, size), with μ, s, τ integrated out."""
    return float(logsumexp(_log_joint(_CurveSums.of(coef), spread)))


def _log_joint(sums: _CurveSums, spread: float) -> FloatArray:
    """(s, τ) log p(w, s, τ) on the grid, with μ integrated out."""
    shared, own = np.meshgrid((spread * SCALES) ** 2, (spread * SCALES) ** 2, indexing="ij")
    size = len(sums.total)
    # the sum over clusters has variance n (τ² + n s²); the n − 1 contrasts have variance τ²
    of_sum = own + sums.n * shared
    n_contrasts = max(sums.n - 1, 0)
    logs = -0.5 * size * n_contrasts * np.log(own) - 0.5 * sums.squares.sum() / own
    if sums.n:
        logs = logs - 0.5 * size * np.log(of_sum) - 0.5 * (sums.total**2).sum() / (sums.n * of_sum)
    return logs - 0.5 * size * sums.n * LOG_2PI + LOG_WEIGHTS[:, None] + LOG_WEIGHTS
