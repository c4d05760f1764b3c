"""Evidence of a partition of the entities: log p(y, partition | K), with everything else integrated out.

By Bayes' theorem at one point (Chib 1995), each integral becomes three terms:

    log p(y | z) = log p(y | w) + log p(w) − log p(w | y, z)
    log p(z | K) = log p(z | ψ) + log p(ψ | K) − log p(ψ | z)

They hold at any w and ψ. The likelihood computes the first line (`Likelihood.log_partition_likelihood`). In the second
line, the first two terms have a closed form but for one-dimensional integrals over the concentrations. The last term of
each line is a mean of densities over draws of the other unknowns given z; the blocked sampler makes these draws with
fixed labels. The probability of the partition is p(z | K) summed over the ways to number the clusters, which is
K!/(K − K₊)! p(z | K) with K₊ clusters in use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, LabelArray
from fedhlcr._support.special import gammaln, logsumexp
from fedhlcr._support.streams import Stream
from fedhlcr.kernels.grams import add_rows
from fedhlcr.model.conjugate import log_mean_exp
from fedhlcr.model.priors import Gamma, ModelSpec
from fedhlcr.model.schema import Globals
from fedhlcr.samplers.blocked import SETTLING_PASSES, draw_globals, initial_globals, sums_of_labels
from fedhlcr.samplers.state import EntityData, ServerState

N_DRAWS = 100
# Nodes of the integrals over a concentration's logarithm, and their reach to either side in standard deviations.
N_NODES = 33
REACH = 8.0


class FixedLabelDraw(NamedTuple):
    """A draw with fixed labels: the globals, and the tables that α was drawn from."""

    globals: Globals
    table_counts: FloatArray  # (K,)
    posterior_coef: FloatArray  # (clusters in use, n_coef)


def partition_evidence(
    entities: EntityData, spec: ModelSpec, labels: NDArray[np.integer], n_clusters: int, stream: Stream
) -> float:
    """log p(y, partition | K) for the partition in `labels`, with y in units of the Gram matrices.

    Coefficients, cluster weights, agents' weights and all hyperparameters that `spec` does not fix are integrated out
    under their priors. Constants are kept, so values for different K are comparable. It is one term of a sum over
    partitions, so it never exceeds log p(y | K); the gap measures how uncertain the partition is. It is NaN if agents
    draw more than labels.

    Parameters
    ----------
    labels : (entities,) below n_clusters; the numbering of the clusters does not matter
    n_clusters : K, the number of clusters available
    """
    if entities.likelihood.has_state:
        # labels alone do not fix the sums: effects are not integrated out
        return float("nan")
    used, compact = np.unique(labels, return_inverse=True)
    compact = compact.astype(np.int32)
    draws = _draws_given_labels(entities, spec, compact, n_clusters, stream)
    numberings = gammaln(n_clusters + 1) - gammaln(n_clusters - len(used) + 1)
    return float(
        _log_likelihood(entities, spec, compact, draws) + _log_label_prior(entities, spec, compact, draws) + numberings
    )


def _draws_given_labels(
    entities: EntityData, spec: ModelSpec, labels: LabelArray, n_clusters: int, stream: Stream
) -> list[FixedLabelDraw]:
    """Draws of the blocked sampler with fixed labels; clusters in use come first."""
    likelihood = entities.likelihood
    n_used = int(labels.max()) + 1
    current = initial_globals(likelihood, spec, n_clusters, stream.generator(0, "evidence"))
    draws = []
    for number in range(1, SETTLING_PASSES + N_DRAWS + 1):
        sums = sums_of_labels(entities, current, labels, number, stream)
        state = ServerState.of_sums(likelihood, number, sums, current)
        current = draw_globals(likelihood, state, spec, stream.generator(number, "evidence")).globals
        draws.append(FixedLabelDraw(current, sums.table_counts, state.regressions.mean[:n_used]))
    return draws[SETTLING_PASSES:]


def _log_likelihood(entities: EntityData, spec: ModelSpec, labels: LabelArray, draws: list[FixedLabelDraw]) -> float:
    """log p(y | z), computed at the draws' mean coefficients."""
    coef = np.mean([draw.posterior_coef for draw in draws], axis=0)
    current = draws[-1].globals.of_clusters(slice(len(coef)))
    summands = entities.likelihood.summands(entities.grams, current, labels)
    blocks = entities.likelihood.sum_schema.zero_blocks(len(coef))
    for name, block in blocks.items():
        add_rows(summands.blocks[name], labels.astype(np.int64), block)
    return entities.likelihood.log_partition_likelihood(spec, blocks, [draw.globals for draw in draws], coef)


def _log_label_prior(entities: EntityData, spec: ModelSpec, labels: LabelArray, draws: list[FixedLabelDraw]) -> float:
    """log p(z | K).

    The weights of the empty clusters are combined into one, their sum. So the Dirichlet distribution has one
    component for each cluster in use, and one more.
    """
    n_clusters = len(draws[0].table_counts)
    n_used = int(labels.max()) + 1
    # clusters behind each weight
    sizes = np.append(np.ones(n_used), n_clusters - n_used)
    sizes = sizes[sizes > 0]
    alphas = np.array([draw.globals.global_concentration for draw in draws])
    betas = np.array([draw.globals.agent_concentration for draw in draws])
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
        - log_mean_exp([_log_dirichlet(weights, shape) for shape in shapes])
    )


def _log_labels_given_weights(
    entities: EntityData, labels: LabelArray, weights: FloatArray
) -> Callable[[float], float]:
    """log p(z | ψ, β) as a function of β, with the agents' weights integrated out."""
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

    It uses the trapezoidal rule in log c around the draws, which is very accurate for such a smooth peak.
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


def _log_dirichlet(weights: FloatArray, shape: FloatArray) -> float:
    return float(gammaln(shape.sum()) - gammaln(shape).sum() + ((shape - 1.0) * np.log(weights)).sum())
