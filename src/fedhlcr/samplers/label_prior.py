"""Gibbs steps for the prior of the labels: the cluster weights ψ and the concentrations α and β.

Each `draw_` function takes sums over agents and a generator, and returns a draw. Concentrations that the user fixed are
not drawn.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.special import gammaln
from fedhlcr.model.priors import Gamma

# Most steps of a slice sampler in one direction. From a usual start it needs a few.
MOST_STEPS = 1_000


def draw_log_weights(rng: np.random.Generator, table_counts: FloatArray, concentration: float) -> FloatArray:
    """log ψ | m ~ Dir(α/K + m), in logs: small Dirichlet draws contain exact zeros."""
    shape = concentration / len(table_counts) + table_counts
    # Gamma(s) has the distribution of Gamma(s + 1) · U^(1/s), which does not underflow in logs
    log_gamma = np.log(rng.standard_gamma(shape + 1.0)) + np.log1p(-rng.random(shape.shape)) / shape
    top = log_gamma.max()
    return log_gamma - top - np.log(np.exp(log_gamma - top).sum())


def draw_global_concentration(
    rng: np.random.Generator, current: float, table_counts: FloatArray, prior: Gamma
) -> float:
    """α | m with ψ integrated out, by slice sampling of log α.

    p(m | α) ∝ Γ(α)/Γ(α + Σm) ∏ Γ(α/K + m_k)/Γ(α/K)
    """
    occupied = table_counts[table_counts > 0]
    n_clusters = len(table_counts)

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
    """One slice-sampling update of a number, with stepping out and shrinkage (Neal 2003)."""
    level = log_density(start) + np.log(rng.random())
    low = start - width * rng.random()
    high = low + width
    for _ in range(MOST_STEPS):
        if not log_density(low) > level:
            break
        low -= width
    for _ in range(MOST_STEPS):
        if not log_density(high) > level:
            break
        high += width
    for _ in range(MOST_STEPS):
        proposal = low + (high - low) * rng.random()
        if log_density(proposal) > level:
            return proposal
        if proposal < start:
            low = proposal
        else:
            high = proposal
    # the density is not a number, or so small that rounding hides its differences
    return start
