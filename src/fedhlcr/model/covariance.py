"""Gibbs steps for the variances of effects, and for noise variances that differ between entities.

Covariance D of effects b ~ N(0, D), with N effects drawn and R = Σ bbᵀ:

    √D_ff ~ half-t(A_f)             through auxiliaries h_f ~ Gamma(½, 1/A_f²) (Huang and Wand 2013)
    D | h   is, with probability ½ each, *full*: inverse Wishart(κ + q − 1, 2κ diag(h)),
            or *diagonal*: D_ff ~ IG(1, 2h_f)

The larger κ, the closer to zero are the correlations: with κ = 2 they are uniform, and κ is uniform on a grid. Which of
them fits the effects better is drawn with D integrated out, so the data decide, and where they cannot the draws average
over all. Effects drawn under a diagonal D hardly show correlations; by way of a large κ these can still develop.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.special import gammaincc, gammainccinv, gammaincinv, gammaln, multigammaln

# The largest shape ν of the entities' noise variances, and the size of the grid on which it is drawn.
LARGEST_SHAPE = 200.0
N_SHAPES = 60

# κ of a full covariance, each with the same probability.
TIGHTNESSES = np.array([2.0, 8.0, 32.0, 128.0])
# Added to the diagonal of correlations of effects before they are factored.
RIDGE = 1e-10


class EffectScales(NamedTuple):
    """Prior of the effects' scales: A of the intercept is fixed, that of the slopes is learned.

    1/A² of the slopes ~ Gamma(½, typical²/2), so slopes learn from each other how large slopes are. Their A is at most
    that of the intercept.
    """

    intercept: float
    typical: float


def is_covariance(values: FloatArray) -> NDArray[np.bool_]:
    """(...) whether each matrix (..., q, q) has a Cholesky factor over the columns that vary, and is 0 elsewhere."""
    return np.array([_has_factor(matrix) for matrix in values.reshape(-1, *values.shape[-2:])])


def _has_factor(matrix: FloatArray) -> bool:
    variance = np.diag(matrix)
    used = variance > 0.0
    # squares must be finite, so that sums of variances are
    if not np.isfinite(matrix**2).all() or (variance < 0.0).any() or matrix[~used].any() or matrix[:, ~used].any():
        return False
    spread = np.sqrt(variance[used])
    own = matrix[np.ix_(used, used)] / np.outer(spread, spread)
    try:
        np.linalg.cholesky(own)
    except np.linalg.LinAlgError:
        return False
    return np.allclose(own, own.T)


def draw_covariance(
    rng: np.random.Generator, current: FloatArray, squares: FloatArray, n: float, scales: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Draw D given n effects with the given sum of squares and products, (q, q), and scales A (q,).

    Returns the draw and the auxiliaries h, from which the learned scales follow.
    """
    size = len(current)
    is_full = bool((current != np.diag(np.diag(current))).any())
    tightness = _draw_tightness(rng, current, scales) if is_full else 2.0
    shape = 0.5 * (tightness + size) if is_full else 1.5
    auxiliary = rng.standard_gamma(shape, size) / (tightness * np.diag(inverse(current)) + scales**-2.0)
    if size > 1:
        marginals = [log_full_marginal(squares, n, auxiliary, kappa) for kappa in TIGHTNESSES]
        log_weights = np.append(marginals, log_diagonal_marginal(squares, n, auxiliary) + np.log(len(TIGHTNESSES)))
        chosen = _draw_index(rng, log_weights)
        if chosen < len(TIGHTNESSES):
            kappa = TIGHTNESSES[chosen]
            return _inverse_wishart(rng, 2.0 * kappa * np.diag(auxiliary) + squares, kappa + size - 1 + n), auxiliary
    variance = (2.0 * auxiliary + 0.5 * np.diag(squares)) / rng.standard_gamma(1.0 + 0.5 * n, size)
    return np.diag(variance), auxiliary


def _draw_index(rng: np.random.Generator, log_weights: FloatArray) -> int:
    weights = np.exp(log_weights - log_weights.max())
    return int(np.searchsorted(weights.cumsum(), rng.random() * weights.sum(), side="right"))


def _draw_tightness(rng: np.random.Generator, current: FloatArray, scales: FloatArray) -> float:
    """Draw κ given a full D, with the auxiliaries integrated out."""
    size, (_, log_det) = len(current), np.linalg.slogdet(current)
    rates = TIGHTNESSES[:, None] * np.diag(inverse(current)) + scales**-2.0
    half = 0.5 * (TIGHTNESSES + size - 1.0)
    log_density = size * half * np.log(TIGHTNESSES) - _tightness_gammas(size) - 0.5 * TIGHTNESSES * log_det
    log_density += size * gammaln(half + 0.5) - ((half + 0.5)[:, None] * np.log(rates)).sum(axis=1)
    return float(TIGHTNESSES[_draw_index(rng, log_density)])


def draw_scale(rng: np.random.Generator, auxiliary: FloatArray, scales: EffectScales) -> float:
    """Draw the common A of slopes, given their auxiliaries: 1/A² ~ Gamma(½ + q/2, typical²/2 + Σh), A ≤ intercept's.

    The bound keeps effects finite in directions of which the data say nothing, such as those of collinear columns.
    """
    shape = 0.5 + 0.5 * len(auxiliary)
    rate = 0.5 * scales.typical**2 + auxiliary.sum()
    least = rate / scales.intercept**2
    inverse_square = gammainccinv(shape, rng.random() * gammaincc(shape, least)) / rate
    return float(min(max(inverse_square, least / rate) ** -0.5, scales.intercept))


def log_full_marginal(squares: FloatArray, n: float, auxiliary: FloatArray, tightness: float = 2.0) -> float:
    """Log density of n effects with D ~ inverse Wishart(κ + q − 1, 2κ diag(h)) integrated out, up to (nq/2) log π."""
    size = len(auxiliary)
    prior = 0.5 * (tightness + size - 1)
    posterior = 0.5 * (tightness + size - 1 + n)
    scale = 2.0 * tightness * auxiliary
    _, log_det = np.linalg.slogdet(np.diag(scale) + squares)
    constant = multigammaln(posterior, size) - _log_multigamma(float(prior), size)
    return float(constant + prior * np.log(scale).sum() - posterior * log_det)


@cache
def _log_multigamma(shape: float, size: int) -> float:
    """The same few values are asked for in every round."""
    return float(multigammaln(shape, size))


@cache
def _tightness_gammas(size: int) -> FloatArray:
    """Multivariate log gamma functions of the priors with each κ."""
    return np.asarray(multigammaln(0.5 * (TIGHTNESSES + size - 1.0), size))


def log_diagonal_marginal(squares: FloatArray, n: float, auxiliary: FloatArray) -> float:
    """The same with independent D_ff ~ IG(1, 2h_f)."""
    posterior = 1.0 + 0.5 * n
    terms = gammaln(posterior) + np.log(4.0 * auxiliary) - posterior * np.log(4.0 * auxiliary + np.diag(squares))
    return float(terms.sum())


def draw_shape(rng: np.random.Generator, n: float, log_ratios: float, ratios: float, least: float) -> float:
    """Draw ν on its grid, with prior ∝ 1/ν, given Σ log(σ²/s²) and Σ s²/σ² over n entities with σ² ~ IG(ν/2, νs²/2)."""
    shapes, log_constants = _shape_grid(least)
    log_density = n * log_constants - 0.5 * shapes * (log_ratios + ratios)
    weights = np.exp(log_density - log_density.max())
    return float(rng.choice(shapes, p=weights / weights.sum()))


@cache
def _shape_grid(least: float) -> tuple[FloatArray, FloatArray]:
    """Values of ν, and (ν/2) log(ν/2) − log Γ(ν/2)."""
    shapes = np.geomspace(least, LARGEST_SHAPE, N_SHAPES)
    half = 0.5 * shapes
    return shapes, half * np.log(half) - gammaln(half)


def variance_ratios(shape: ArrayLike, larger: ArrayLike) -> FloatArray:
    """Quantiles of σ²/s² with σ² ~ IG(ν/2, νs²/2), by the probability of a larger value; 1 if ν is infinite."""
    differs = np.isfinite(shape)
    half = 0.5 * np.where(differs, shape, 1.0)
    if not differs.any():
        return np.ones(np.broadcast_shapes(np.shape(half), np.shape(larger)))
    # a large variance is a small Gamma variable
    return np.where(differs, half / gammaincinv(half, larger), 1.0)


def _inverse_wishart(rng: np.random.Generator, scale: FloatArray, degrees: float) -> FloatArray:
    """A draw from the inverse Wishart distribution, by Bartlett's decomposition."""
    spread = np.sqrt(np.diag(scale))
    size = len(scale)
    # effects of collinear columns may be so correlated that rounding makes the matrix indefinite
    lower = np.linalg.cholesky(scale / np.outer(spread, spread) + RIDGE * np.eye(size))
    bartlett = np.tril(rng.standard_normal((size, size)), -1)
    bartlett[np.diag_indices(size)] = np.sqrt(2.0 * rng.standard_gamma(0.5 * (degrees - np.arange(size))))
    # scale = LLᵀ, and W = L⁻ᵀ(BBᵀ)L⁻¹ is Wishart with scale⁻¹, so W⁻¹ = (L B⁻ᵀ)(L B⁻ᵀ)ᵀ
    root = np.linalg.solve(bartlett, lower.T).T
    return (root @ root.T) * np.outer(spread, spread)


def root(covariance: FloatArray) -> FloatArray:
    """Λ, lower triangular, with ΛΛᵀ = D; rows and columns without variance are 0."""
    spread = np.sqrt(np.diag(covariance))
    lower = np.zeros_like(covariance)
    used = np.ix_(spread > 0.0, spread > 0.0)
    lower[used] = np.linalg.cholesky(covariance[used] / np.outer(spread, spread)[used])
    return spread[:, None] * lower


def inverse(covariance: FloatArray) -> FloatArray:
    """The inverse of a covariance whose scales may differ by many orders of magnitude."""
    spread = np.sqrt(np.diag(covariance))
    return np.linalg.inv(covariance / np.outer(spread, spread)) / np.outer(spread, spread)
