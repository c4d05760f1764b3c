"""Gibbs steps and marginal densities for variances and for the priors of coefficients and curves, all conjugate.

Each `draw_` function takes sums and a generator, and returns a draw. Hyperparameters that the user fixed are not drawn.
"""

from __future__ import annotations

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.special import gammaln, logsumexp
from fedhlcr.model.priors import Hyperpriors, InverseGamma
from fedhlcr.model.regression import LOG_2PI, CoefPrior
from fedhlcr.settings import CoefPriorKind

# Possible values of s and of τ, for a target of unit spread. The curves' columns have unit mean square. The smallest
# value is not zero, so that a scale can grow again.
SCALES = 0.0025 * 2.0 ** (0.5 * np.arange(19))
LOG_WEIGHTS = -np.log(SCALES) - np.log((1.0 / SCALES).sum())
# The scale of all curves at the start.
START_SCALE = 0.1


def draw_variance(rng: np.random.Generator, prior: InverseGamma, n: float, squares: FloatArray) -> FloatArray:
    """Variances of n centred normal values each, with the given sums of squares: IG(a + n/2, b + ½ Σ squares)."""
    return (prior.rate + 0.5 * squares) / rng.standard_gamma(prior.shape + 0.5 * n, size=np.shape(squares))


def draw_coef_prior(rng: np.random.Generator, coef: FloatArray, kind: CoefPriorKind, priors: Hyperpriors) -> CoefPrior:
    """(μ, δ) given the coefficients of the occupied clusters, (clusters, n_coef).

    Leaving out empty clusters integrates them out; their coefficients are drawn from the new prior afterwards. The
    adaptive prior is the mixture ½ common_mean + ½ zero_mean. Its component is drawn with μ and δ integrated out.
    """
    if kind == "adaptive":
        log_odds = log_common_mean_marginal(coef, priors).sum() - log_zero_mean_marginal(coef, priors)
        kind = "common_mean" if np.log(rng.random()) < -np.logaddexp(0.0, -log_odds) else "zero_mean"
    return (draw_common_mean_prior if kind == "common_mean" else draw_zero_mean_prior)(rng, coef, priors)


def draw_common_mean_prior(rng: np.random.Generator, coef: FloatArray, priors: Hyperpriors) -> CoefPrior:
    """Each coefficient has its own mean and scale: draw δ_f with μ_f integrated out, then μ_f | δ_f."""
    n_clusters = len(coef)
    ratio = priors.coef_mean_ratio
    variance = draw_variance(rng, priors.coef_variance, float(n_clusters), _squares_around_mean(coef, ratio))
    shrinkage = ratio / (1.0 + ratio * n_clusters)
    mean = shrinkage * coef.sum(axis=0) + np.sqrt(shrinkage * variance) * rng.standard_normal(variance.shape)
    return CoefPrior(mean, np.sqrt(variance))


def draw_zero_mean_prior(rng: np.random.Generator, coef: FloatArray, priors: Hyperpriors) -> CoefPrior:
    """All coefficients have mean zero and one common scale δ."""
    scale = np.sqrt(draw_variance(rng, priors.coef_variance, float(coef.size), (coef**2).sum()))
    return CoefPrior(np.zeros(coef.shape[1]), np.full(coef.shape[1], scale))


def log_common_mean_marginal(coef: FloatArray, priors: Hyperpriors) -> FloatArray:
    """(n_coef,) log p(w_·f) of each coefficient over all clusters, with μ_f and δ_f integrated out."""
    n_clusters = len(coef)
    ratio = priors.coef_mean_ratio
    marginal = log_scale_marginal(n_clusters, _squares_around_mean(coef, ratio), priors.coef_variance)
    return marginal - 0.5 * np.log1p(ratio * n_clusters)


def log_zero_mean_marginal(coef: FloatArray, priors: Hyperpriors) -> float:
    """log p(w) of all coefficients, with δ integrated out."""
    return float(log_scale_marginal(coef.size, (coef**2).sum(), priors.coef_variance))


def log_coef_marginal(coef: FloatArray, kind: CoefPriorKind, priors: Hyperpriors) -> float:
    """log p(w) of the coefficients of the occupied clusters, with μ and δ integrated out."""
    if kind == "adaptive":
        parts = (log_coef_marginal(coef, "common_mean", priors), log_coef_marginal(coef, "zero_mean", priors))
        return float(np.logaddexp(parts[0], parts[1]) - np.log(2.0))
    if kind == "common_mean":
        return float(log_common_mean_marginal(coef, priors).sum())
    return log_zero_mean_marginal(coef, priors)


def _squares_around_mean(coef: FloatArray, ratio: float) -> FloatArray:
    """Σw² − κ(Σw)²/(1 + κn): the sum of squares left after the mean, with prior N(0, κδ²), is integrated out."""
    return (coef**2).sum(axis=0) - ratio * coef.sum(axis=0) ** 2 / (1.0 + ratio * len(coef))


def log_scale_marginal(n: float, squares: FloatArray, prior: InverseGamma) -> FloatArray:
    """Log density of n centred normal values with the given sum of squares, with their variance integrated out."""
    shape = prior.shape + 0.5 * n
    constant = prior.shape * np.log(prior.rate) + gammaln(shape) - gammaln(prior.shape) - 0.5 * n * LOG_2PI
    return constant - shape * np.log(prior.rate + 0.5 * squares)


def log_mean_exp(logs: list[float]) -> float:
    return float(logsumexp(logs) - np.log(len(logs)))


def draw_curve_prior(rng: np.random.Generator, coef: FloatArray, spread: float) -> CoefPrior:
    """(μ, τ) of one curve given its coefficients in the occupied clusters, (clusters, size).

    The prior is w_k ~ N(μ, τ² I), μ ~ N(0, s² I), with its own learned scales s and τ. All clusters share the curve μ,
    and τ is how far clusters deviate from it. Both scales have values on a logarithmic grid, with p(s) ∝ 1/s and
    p(τ) ∝ 1/τ. The smallest value makes a curve vanish: so a useless curve costs nearly nothing, and a curve that
    clusters share is learned from the events of all. On a grid, everything but the coefficients is integrated out
    exactly: (s, τ) are drawn with μ integrated out, then μ | s, τ.
    """
    logs = _log_curve_joint(coef, spread).ravel()
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
    return float(logsumexp(_log_curve_joint(coef, spread)))


def _log_curve_joint(coef: FloatArray, spread: float) -> FloatArray:
    """(s, τ) log p(w, s, τ) on the grid, with μ integrated out, for coefficients (clusters, size)."""
    n, size = coef.shape
    total = coef.sum(axis=0)
    squares = ((coef - total / max(n, 1)) ** 2).sum(axis=0)
    shared, own = np.meshgrid((spread * SCALES) ** 2, (spread * SCALES) ** 2, indexing="ij")
    # the sum over clusters has variance n (τ² + n s²); the n − 1 contrasts have variance τ²
    of_sum = own + n * shared
    n_contrasts = max(n - 1, 0)
    logs = -0.5 * size * n_contrasts * np.log(own) - 0.5 * squares.sum() / own
    if n:
        logs = logs - 0.5 * size * np.log(of_sum) - 0.5 * (total**2).sum() / (n * of_sum)
    return logs - 0.5 * size * n * LOG_2PI + LOG_WEIGHTS[:, None] + LOG_WEIGHTS
