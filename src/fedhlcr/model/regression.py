"""Bayesian linear regression from a Gram matrix: posterior, evidence, predictive. Theorem 1 of the paper is here.

    w ~ N(μ, diag(δ²)),   y ~ N(wᵀx, σ²)

Given the normal equations of a set of events, with A = diag(1/δ²) + G/σ² and b = μ/δ² + g/σ², the
posterior of w is N(A⁻¹b, A⁻¹). All functions accept any leading axes, so that one call handles all K clusters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.checks import square_finite, square_positive
from fedhlcr.model.gram import NormalEquations
from fedhlcr.model.schema import COEF, Globals, quantity

LOG_2PI = float(np.log(2.0 * np.pi))
# The first is far above what rounding leaves of a collinear column, 1e-16 to 1e-13 of its size: the noise in its
# coefficient is then small. At the last the diagonal outweighs all else, unless there are 10,000 columns.
RAISES = 1e-10 * 100.0 ** np.arange(8)


class CoefPrior(NamedTuple):
    """w ~ N(mean, diag(scale²))."""

    mean: FloatArray  # (n_coef,)
    scale: FloatArray  # (n_coef,)


@dataclass(frozen=True, kw_only=True)
class LinearGlobals(Globals):
    """The globals of every model, and the prior of the coefficients: mean μ and scale δ."""

    coef_mean: FloatArray = quantity(COEF, possible=square_finite)
    coef_scale: FloatArray = quantity(COEF, possible=square_positive)

    @property
    def coef_prior(self) -> CoefPrior:
        return CoefPrior(self.coef_mean, self.coef_scale)


class CoefPosterior(NamedTuple):
    """w | y ~ N(mean, R Rᵀ), and log p(y)."""

    mean: FloatArray  # (..., n_coef)
    covariance_root: FloatArray  # (..., n_coef, n_coef) R = L⁻ᵀ, with L the precision's Cholesky factor
    log_evidence: FloatArray  # (...)


def coef_posterior(data: NormalEquations, noise_scale: float | FloatArray, prior: CoefPrior) -> CoefPosterior:
    """Posterior of the coefficients given the events behind `data`, and the log evidence

    −(n/2)·log(2πσ²) − q/(2σ²) − Σ log δ − ½ Σ μ²/δ² − ½ log|A| + ½ bᵀA⁻¹b.

    σ is one for all, or an array that broadcasts against the leading axes of `data`: one for each regression.
    """
    variance = np.asarray(noise_scale**2)
    precision = data.xx / variance[..., None, None]
    diagonal = np.arange(precision.shape[-1])
    precision[..., diagonal, diagonal] += prior.scale**-2.0
    inverse = np.linalg.inv(stable_cholesky(precision).lower).astype(np.float64, copy=False)
    half = _times(inverse, data.xy / variance[..., None] + prior.mean / prior.scale**2)
    log_evidence = (
        -0.5 * data.n * (LOG_2PI + 2.0 * np.log(noise_scale))
        - 0.5 * data.yy / variance
        - np.log(prior.scale).sum()
        - 0.5 * ((prior.mean / prior.scale) ** 2).sum()
        + np.log(inverse[..., diagonal, diagonal]).sum(axis=-1)
        + 0.5 * (half**2).sum(axis=-1)
    )
    root = np.swapaxes(inverse, -1, -2)
    return CoefPosterior(_times(root, half), root, log_evidence)


def log_evidence(data: NormalEquations, noise_scale: float | FloatArray, prior: CoefPrior) -> FloatArray:
    """log p(y) of the events behind `data`, with the coefficients integrated out."""
    return coef_posterior(data, noise_scale, prior).log_evidence


def draw_coef(posterior: CoefPosterior, rng: np.random.Generator) -> FloatArray:
    """A draw of the coefficients."""
    return posterior.mean + _times(posterior.covariance_root, rng.standard_normal(posterior.mean.shape))


def predictive(posterior: CoefPosterior, x: FloatArray, noise_scale: float) -> tuple[FloatArray, FloatArray]:
    """Mean wᵀx and variance σ² + xᵀA⁻¹x of a new event. Paper: Theorem 1, Theorem 2.

    Theorem 1 as printed has σ² + (1/σ²)xᵀA⁻¹x. Its proof, and this function, have no 1/σ², because A is a precision
    already. The two agree at σ = 1 only.
    """
    half = _times(np.swapaxes(posterior.covariance_root, -1, -2), x)
    return (posterior.mean * x).sum(axis=-1), noise_scale**2 + (half**2).sum(axis=-1)


def log_block_likelihood(
    events: NormalEquations, others: NormalEquations, noise_scale: float, prior: CoefPrior
) -> FloatArray:
    """log p(new events | given events) = evidence(given + new) − evidence(given). Paper: Theorem 1, block form.

    All new events are scored at once, so their order does not matter.
    """
    both = NormalEquations(*(a + b for a, b in zip(events, others, strict=True)))
    return log_evidence(both, noise_scale, prior) - log_evidence(others, noise_scale, prior)


def log_normal(n: float, squares: float, scale: float) -> float:
    """Log density of n centred normal values with the given sum of squares."""
    return float(-0.5 * n * (LOG_2PI + 2.0 * np.log(scale)) - 0.5 * squares / scale**2)


def _times(matrix: FloatArray, vector: FloatArray) -> FloatArray:
    """Matrix times vector over leading axes."""
    return (matrix @ vector[..., None])[..., 0]


class Factors(NamedTuple):
    """Lower triangular L with L Lᵀ = A, or A + ρ·diag(A) where A had to be raised."""

    lower: FloatArray  # (..., n, n)
    raised: NDArray[np.bool_]  # (...)


def stable_cholesky(matrices: FloatArray) -> Factors:
    """Cholesky factors of symmetric matrices (..., n, n), which exist for collinear columns too.

    A precision A = diag(1/δ²) + G/σ² is positive definite in theory. Where columns are collinear and events many, the
    prior 1/δ² is smaller than the rounding errors of G/σ², and a pivot is noise, of either sign. Such a matrix is
    factored with its diagonal raised,

        A + ρ·diag(A),

    in proportion to each column's own size, so that columns of small values keep their coefficients. What the data
    determine changes by a share of about ρ; collinear columns get coefficients that differ little from each other.

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
