"""Evidence of a partition of the entities: log p(y, partition | K), with everything else integrated out.

By Bayes' theorem, read at one point (Chib 1995), a sum over all there is becomes three terms:

    log p(y | z) = log p(y | w) + log p(w) − log p(w | y, z)
    log p(z | K) = log p(z | ψ) + log p(ψ | K) − log p(ψ | z)

They hold at any w and ψ. The first two terms of each are known in closed form, σ, μ and δ being conjugate, but for
one-dimensional integrals over the concentrations. The last is a mean of normal, or Dirichlet, densities over draws of
the other unknowns given z, which the blocked sampler makes with its labels held fixed. Summed over the ways to number
the clusters, p(z | K) is the probability of the partition: K!/(K − K₊)! times as much, with K₊ clusters in use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from fedhlcr._support.arrays import FloatArray, LabelArray
from fedhlcr._support.streams import Stream
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.priors import Gamma, Hyperparameters, ModelSpec
from fedhlcr.model.regression import LOG_2PI, CoefPosterior, coef_posterior
from fedhlcr.samplers import hyper
from fedhlcr.samplers.blocked import SETTLING_PASSES, cluster_grams, draw_globals, initial_globals, sums_of_labels
from fedhlcr.samplers.state import Entities, ServerState

N_DRAWS = 100
# Nodes of the integrals over a concentration's logarithm, and how many standard deviations these reach to either side.
N_NODES, REACH = 33, 8.0


class FixedLabelDraw(NamedTuple):
    """What is drawn with the labels held fixed: hyperparameters, and the tables α was drawn given."""

    hyper: Hyperparameters
    table_counts: FloatArray  # (K,)
    coef_mean: FloatArray  # (clusters in use, n_coef)


def partition_evidence(
    entities: Entities, spec: ModelSpec, labels: NDArray[np.integer], n_clusters: int, stream: Stream
) -> float:
    """log p(y, partition | K), the partition being that of `labels`, y in units of the Gram matrices.

    Coefficients, cluster weights, agents' weights and all hyperparameters that `spec` does not fix are integrated out
    under their priors, and all constants are kept: figures for different K are comparable. As one term of a
    sum over partitions it never exceeds log p(y | K); how far it is below tells how uncertain the partition is.

    Parameters
    ----------
    labels : (entities,) below n_clusters; how the clusters are numbered does not matter
    n_clusters : K, clusters that may be used
    """
    used, compact = np.unique(labels, return_inverse=True)
    compact = compact.astype(np.int32)
    draws = _draws_given_labels(entities, spec, compact, n_clusters, stream)
    numberings = gammaln(n_clusters + 1) - gammaln(n_clusters - len(used) + 1)
    grams = cluster_grams(entities, len(used), compact)
    return float(
        _log_likelihood(entities.layout, spec, grams, draws)
        + _log_label_prior(entities, spec, compact, draws)
        + numberings
    )


def _draws_given_labels(
    entities: Entities, spec: ModelSpec, labels: LabelArray, n_clusters: int, stream: Stream
) -> list[FixedLabelDraw]:
    """The blocked sampler with its labels held fixed; clusters in use come first."""
    layout, n_used = entities.layout, int(labels.max()) + 1
    given = initial_globals(layout, spec, n_clusters, stream.generator(0, "evidence"))
    draws = []
    for number in range(1, SETTLING_PASSES + N_DRAWS + 1):
        sums = sums_of_labels(entities, given, labels, number, stream)
        state = ServerState.given(layout, number, sums, given)
        given = draw_globals(layout, state, spec, stream.generator(number, "evidence"))
        draws.append(FixedLabelDraw(given.hyper, sums.table_counts, state.regressions.mean[:n_used]))
    return draws[SETTLING_PASSES:]


def _log_likelihood(layout: GramLayout, spec: ModelSpec, grams: FloatArray, draws: list[FixedLabelDraw]) -> float:
    """log p(y | z) of clusters with the given Gram matrices, (clusters in use, packed)."""
    priors = spec.hyperpriors.for_spread(spec.target_spread)
    data = layout.normal_equations(grams)
    coef = np.mean([draw.coef_mean for draw in draws], axis=0)
    n_events, squares = float(data.n.sum()), layout.rss(grams, coef).sum()
    if spec.noise_scale is None:
        given_coef = float(hyper.log_scale_marginal(n_events, squares, priors.noise_variance))
    else:
        given_coef = _log_normal(n_events, squares, spec.noise_scale)
    if spec.coef_scale is None:
        prior = hyper.log_coef_marginal(coef, spec.coef_prior, priors)
    else:
        prior = _log_normal(coef.size, (coef**2).sum(), spec.coef_scale)
    posterior = [
        _log_coef_density(coef, coef_posterior(data, draw.hyper.noise_scale, draw.hyper.coef_prior)) for draw in draws
    ]
    return float(given_coef + prior - _log_mean(posterior))


def _log_label_prior(entities: Entities, spec: ModelSpec, labels: LabelArray, draws: list[FixedLabelDraw]) -> float:
    """log p(z | K).

    The weights of the clusters that are not in use are one weight, their sum: so the Dirichlet law of all becomes
    that of those in use and one more.
    """
    n_clusters, n_used = len(draws[0].table_counts), int(labels.max()) + 1
    # clusters behind each weight
    sizes = np.append(np.ones(n_used), n_clusters - n_used)
    sizes = sizes[sizes > 0]
    alphas = np.array([draw.hyper.global_concentration for draw in draws])
    betas = np.array([draw.hyper.agent_concentration for draw in draws])
    tables = np.zeros((len(draws), len(sizes)))
    tables[:, :n_used] = [draw.table_counts[:n_used] for draw in draws]
    shapes = alphas[:, None] / n_clusters * sizes + tables
    weights = (shapes / shapes.sum(axis=1, keepdims=True)).mean(axis=0)
    labels_given = _log_labels_given_weights(entities, labels, weights[:n_used])
    priors = spec.hyperpriors
    return (
        _integrated(labels_given, spec.agent_concentration, betas, priors.agent_concentration)
        + _integrated(
            lambda alpha: _log_dirichlet(weights, alpha / n_clusters * sizes),
            spec.global_concentration,
            alphas,
            priors.global_concentration,
        )
        - _log_mean([_log_dirichlet(weights, shape) for shape in shapes])
    )


def _log_labels_given_weights(entities: Entities, labels: LabelArray, weights: FloatArray) -> Callable[[float], float]:
    """log p(z | ψ, β) as a function of β, agents' weights integrated out."""
    agents = entities.index.agent_of
    n_entities = np.bincount(agents)
    cells, counts = np.unique(agents * len(weights) + labels, return_counts=True)
    shares = weights[cells % len(weights)]

    def log_prior(beta: float) -> float:
        own = gammaln(beta * shares + counts) - gammaln(beta * shares)
        return float(own.sum() + len(n_entities) * gammaln(beta) - gammaln(beta + n_entities).sum())

    return log_prior


def _integrated(log_f: Callable[[float], float], fixed: float | None, draws: FloatArray, prior: Gamma) -> float:
    """log ∫ f(c) p(c) dc over a concentration c, or log f at its fixed value.

    The trapezoidal rule in log c, around where the draws are: for so smooth a bump it is good to many digits.
    """
    if fixed is not None:
        return log_f(fixed)
    logs = np.log(draws)
    nodes, step = np.linspace(-REACH, REACH, N_NODES, retstep=True)
    width = max(float(logs.std()), 1e-3)
    constant = prior.shape * np.log(prior.rate) - gammaln(prior.shape)
    terms = [
        log_f(np.exp(log_c)) + constant + prior.shape * log_c - prior.rate * np.exp(log_c)
        for log_c in logs.mean() + width * nodes
    ]
    return float(logsumexp(terms) + np.log(step * width))


def _log_coef_density(coef: FloatArray, posterior: CoefPosterior) -> float:
    """log density of the coefficients of all clusters, (clusters, n_coef), under normals N(mean, RRᵀ)."""
    scaled = np.linalg.solve(posterior.covariance_root, (coef - posterior.mean)[..., None])
    diagonal = np.diagonal(posterior.covariance_root, axis1=-2, axis2=-1)
    return _log_normal(coef.size, (scaled**2).sum(), 1.0) - float(np.log(diagonal).sum())


def _log_normal(n: float, squares: float, scale: float) -> float:
    """log density of n centred normal values with the given sum of squares."""
    return float(-0.5 * n * (LOG_2PI + 2.0 * np.log(scale)) - 0.5 * squares / scale**2)


def _log_dirichlet(weights: FloatArray, shape: FloatArray) -> float:
    return float(gammaln(shape.sum()) - gammaln(shape).sum() + ((shape - 1.0) * np.log(weights)).sum())


def _log_mean(logs: list[float]) -> float:
    return float(logsumexp(logs) - np.log(len(logs)))
