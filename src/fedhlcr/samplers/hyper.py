"""Conditional draws of the hyperparameters and of the cluster weights.

Each function is one Gibbs step: it takes sums over clusters and a generator, and returns a draw. Fixed
hyperparameters never come here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import gammaln

from fedhlcr.arrays import FloatArray
from fedhlcr.priors import Gamma, Hyperpriors, InverseGamma
from fedhlcr.regression import CoefPrior


def draw_variance(rng: np.random.Generator, prior: InverseGamma, n: float, squares: FloatArray) -> FloatArray:
    """Variances of n centred normal values each, with the given sums of squares: IG(a + n/2, b + ½ Σ squares)."""
    return (prior.rate + 0.5 * squares) / rng.standard_gamma(prior.shape + 0.5 * n, size=np.shape(squares))


def draw_common_mean_prior(
    rng: np.random.Generator, coef: FloatArray, current: CoefPrior, priors: Hyperpriors
) -> CoefPrior:
    """(μ, δ) given the coefficients of the occupied clusters, (clusters, n_coef): μ_f | δ_f, then δ_f | μ_f.

    Empty clusters are left out, i.e. integrated out: their coefficients are drawn afresh afterwards.
    """
    n_clusters = len(coef)
    precision = n_clusters / current.scale**2 + priors.coef_mean_scale**-2.0
    centre = coef.sum(axis=0) / current.scale**2 / precision
    mean = centre + rng.standard_normal(centre.shape) / np.sqrt(precision)
    squares = ((coef - mean) ** 2).sum(axis=0)
    return CoefPrior(mean, np.sqrt(draw_variance(rng, priors.coef_variance, float(n_clusters), squares)))


def draw_zero_mean_prior(rng: np.random.Generator, coef: FloatArray, priors: Hyperpriors) -> CoefPrior:
    """One δ for all coefficients, around zero."""
    scale = np.sqrt(draw_variance(rng, priors.coef_variance, float(coef.size), (coef**2).sum()))
    return CoefPrior(np.zeros(coef.shape[1]), np.full(coef.shape[1], scale))


def draw_log_weights(rng: np.random.Generator, table_counts: FloatArray, concentration: float) -> FloatArray:
    """log ψ | m ~ Dir(α/K + m), in logs: small Dirichlet draws contain exact zeros."""
    shape = concentration / len(table_counts) + table_counts
    # Gamma(s) is the law of Gamma(s + 1) · U^(1/s)
    log_gamma = np.log(rng.standard_gamma(shape + 1.0)) + np.log1p(-rng.random(shape.shape)) / shape
    top = log_gamma.max()
    return log_gamma - top - np.log(np.exp(log_gamma - top).sum())


def draw_global_concentration(
    rng: np.random.Generator, current: float, table_counts: FloatArray, prior: Gamma
) -> float:
    """α | m with ψ integrated out, by slice sampling of log α.

    p(m | α) ∝ Γ(α)/Γ(α + Σm) ∏ Γ(α/K + m_k)/Γ(α/K)
    """
    occupied, n_clusters = table_counts[table_counts > 0], len(table_counts)

    def log_density(log_alpha: float) -> float:
        alpha = np.exp(log_alpha)
        share = alpha / n_clusters
        return float(
            prior.shape * log_alpha
            - prior.rate * alpha
            + gammaln(alpha)
            - gammaln(alpha + occupied.sum())
            + (gammaln(share + occupied) - gammaln(share)).sum()
        )

    return float(np.exp(slice_sample(rng, np.log(current), log_density)))


def draw_agent_concentration(
    rng: np.random.Generator, n_tables: float, log_beta_draws: float, bernoulli_draws: float, prior: Gamma
) -> float:
    """β given the tables and the agents' auxiliaries q_i ~ Beta(β + 1, N_i), s_i ~ Bernoulli(N_i / (N_i + β)):

    Gamma(a + Σm − Σs, b − Σ log q)
    """
    shape = prior.shape + n_tables - bernoulli_draws
    return float(rng.standard_gamma(shape) / (prior.rate - log_beta_draws))


def slice_sample(
    rng: np.random.Generator, start: float, log_density: Callable[[float], float], width: float = 1.0
) -> float:
    """One update of a number by slice sampling with stepping out and shrinking (Neal 2003)."""
    level = log_density(start) + np.log(rng.random())
    low = start - width * rng.random()
    high = low + width
    while log_density(low) > level:
        low -= width
    while log_density(high) > level:
        high += width
    while True:
        proposal = low + (high - low) * rng.random()
        if log_density(proposal) > level:
            return proposal
        if proposal < start:
            low = proposal
        else:
            high = proposal
