"""The clusters that users see: those of the best draw, with the clusters of every other draw matched to them.

A cluster's number within a draw has no meaning in another draw or chain. Reported figures refer to the draw with the
best log joint. The clusters of the other draws are matched to its clusters by how similarly they predict, and averaged.
Reported clusters are numbered from 0 by size, largest first; users see these numbers everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr.model.regression import stable_cholesky
from fedhlcr.model.schema import COEF
from fedhlcr.posterior.draws import Draws
from fedhlcr.posterior.memory import AgentMemory
from fedhlcr.posterior.responses import interval_ends

# Entities whose labels are counted at a time, and numbers in a block of votes.
ENTITIES_AT_ONCE = 1 << 17
CELLS_AT_ONCE = 1 << 21


@dataclass(frozen=True)
class Alignment:
    """For each draw and cluster, the reported cluster it belongs to; reported clusters are ordered by size."""

    target: NDArray[np.int64]  # (draws, clusters)
    n_clusters: int

    def membership(self, draw: int) -> FloatArray:
        """(clusters, reported clusters): 1 where a cluster of the draw belongs to a reported one."""
        return np.eye(self.n_clusters)[self.target[draw]]

    def gather(self, values: FloatArray) -> FloatArray:
        """Mean over draws of (draws, ..., clusters), clusters of a draw summed into their reported one."""
        out = np.zeros((*values.shape[1:-1], self.n_clusters))
        for draw, row in enumerate(values):
            out += row @ self.membership(draw)
        return out / len(values)

    def by_draw(self, values: FloatArray) -> FloatArray:
        """The same for each draw, not averaged: (draws, ..., reported clusters)."""
        return np.stack([row @ self.membership(draw) for draw, row in enumerate(values)])


def align(draws: Draws, second_moment: FloatArray, *, drop_empty: bool) -> Alignment:
    """Match every draw to the best one, and number the reported clusters by size.

    The size of a cluster is its number of entities, mean over the draws; clusters of equal size go by their weight.
    Both are public, so a model and its public version number their clusters alike.

    Parameters
    ----------
    second_moment : (n_coef, n_coef) mean of xxᵀ over all events. The distance of two regressions is the mean squared
        difference of their predictions, (w − w')ᵀ S (w − w')
    drop_empty : whether to leave out clusters that are empty in the best draw
    """
    best = int(np.argmax(draws.log_joint))
    reported = np.flatnonzero(draws.entity_counts[best] > 0 if drop_empty else np.isfinite(draws.log_weights[best]))
    root = stable_cholesky(second_moment + 1e-9 * np.eye(len(second_moment))).lower
    projected = draws.coef @ root
    target = np.empty(draws.log_weights.shape, dtype=np.int64)
    for draw in range(len(draws)):
        target[draw] = _match(projected[draw], projected[best, reported], draws.entity_counts[draw] > 0)
    alignment = Alignment(target, len(reported))
    size = alignment.gather(draws.entity_counts)
    weight = alignment.gather(np.exp(draws.log_weights))
    order = np.lexsort((-weight, -size))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return Alignment(rank[target], len(reported))


def _match(clusters: FloatArray, reference: FloatArray, occupied: NDArray[np.bool_]) -> NDArray[np.int64]:
    """One-to-one as far as possible, occupied clusters first; each one left over goes to the nearest."""
    # imported here, because it takes a third of a second to import
    from scipy.optimize import linear_sum_assignment

    distance = ((clusters[:, None, :] - reference[None]) ** 2).sum(axis=2)
    target = distance.argmin(axis=1)
    taken: NDArray[np.bool_] = np.zeros(len(reference), dtype=bool)
    for group in (np.flatnonzero(occupied), np.flatnonzero(~occupied)):
        free = np.flatnonzero(~taken)
        rows, columns = linear_sum_assignment(distance[np.ix_(group, free)])
        target[group[rows]] = free[columns]
        taken[free[columns]] = True
    return target


def mean_coef(draws: Draws, alignment: Alignment) -> FloatArray:
    """(reported clusters, n_coef): mean over draws, each cluster of a draw weighted by its number of entities.

    A cluster without entities in every draw gets the plain mean.
    """
    return _mean_by_cluster(draws, alignment, draws.coef)


def _mean_by_cluster(draws: Draws, alignment: Alignment, values: FloatArray) -> FloatArray:
    """(reported clusters, size) mean of (draws, clusters, size), each weighted by its number of entities."""
    out = np.zeros((alignment.n_clusters, values.shape[2]))
    mass = np.zeros((alignment.n_clusters, 1))
    for value, shares in zip(values, _shares(draws, alignment), strict=True):
        out += shares @ value
        mass += shares.sum(axis=1, keepdims=True)
    return out / np.maximum(mass, 1e-300)


def mean_quantities(draws: Draws, alignment: Alignment, target_scale: float, n_linear: int) -> dict[str, Any]:
    """Means over the draws of the globals that are attributes, except coefficients and weights, in the user's units.

    Each is a number, an array, or, where every cluster has one, a value for each reported cluster. Arrays with a value
    for each coefficient are cut to the first `n_linear`, so that those of curves are left out.
    """
    means: dict[str, Any] = {}
    for q in draws.stacked.quantities():
        values = getattr(draws.stacked, q.name)
        if q.name in ("coef", "log_weights") or not q.attribute:
            continue
        if q.by_cluster:
            mean: Any = _mean_by_cluster(draws, alignment, values.reshape(*values.shape[:2], -1))
            mean = mean.reshape(alignment.n_clusters, *values.shape[2:])
        else:
            mean = values.mean(axis=0) if q.axes else float(values.mean())
        if q.axes[-1:] == (COEF,):
            mean = mean[..., :n_linear]
        means[q.name] = q.reported(mean, target_scale)
    return means


def coef_by_draw(draws: Draws, alignment: Alignment) -> tuple[FloatArray, FloatArray]:
    """What `mean_coef` averages: the reported clusters' coefficients in each draw, and the weight of each draw.

    Returns
    -------
    coef : (draws, reported clusters, n_coef); 0 where no cluster of the draw belongs to the reported one
    mass : (draws, reported clusters) number of entities behind it; 0 where there is no such cluster
    """
    return by_cluster_and_draw(draws, alignment, draws.coef)


def by_cluster_and_draw(draws: Draws, alignment: Alignment, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The same for any quantity (draws, clusters, size) that clusters have."""
    shares = np.stack(list(_shares(draws, alignment)))
    mass = shares.sum(axis=2)
    return shares @ values / np.maximum(mass, 1e-300)[..., None], mass


def central_interval(values: FloatArray, mass: FloatArray, level: float) -> tuple[FloatArray, FloatArray]:
    """Ends of the central interval of values (draws, ...) weighted by mass (draws, ...); NaN where all mass is 0."""
    order = np.argsort(values, axis=0, kind="stable")
    ordered, share = (np.take_along_axis(array, order, axis=0) for array in (values, mass))
    with np.errstate(invalid="ignore"):
        below = np.cumsum(share, axis=0) / share.sum(axis=0)
    known = np.isfinite(below[-1])
    lower, upper = (
        # rounding may leave the last sum a little below 1
        np.take_along_axis(ordered, np.argmax(below >= min(q, 1 - 1e-12), axis=0)[None], axis=0)[0]
        for q in interval_ends(level)
    )
    return np.where(known, lower, np.nan), np.where(known, upper, np.nan)


def _shares(draws: Draws, alignment: Alignment) -> Iterator[FloatArray]:
    """For each draw, (reported clusters, clusters): entities of the clusters that belong to a reported one."""
    # empty clusters get a tiny weight, which matters only where all clusters are empty
    weights = draws.entity_counts + 1e-9 * np.isfinite(draws.log_weights)
    for draw, weight in enumerate(weights):
        yield alignment.membership(draw).T * weight


def voted_labels(memory: AgentMemory, alignment: Alignment) -> NDArray[np.int64]:
    """(entities,) the reported cluster that each entity is in most often."""
    out = np.empty(len(memory.entities), dtype=np.int64)
    size = max(1, CELLS_AT_ONCE // alignment.n_clusters)
    for first in range(0, len(out), size):
        block = memory.labels[:, first : first + size]
        votes = np.zeros((block.shape[1], alignment.n_clusters), dtype=np.int32)
        rows = np.arange(len(votes))
        for labels, target in zip(block, alignment.target, strict=True):
            votes[rows, target[labels]] += 1
        out[first : first + size] = votes.argmax(axis=1)
        memory.release()
    return out


def mean_compositions(memory: AgentMemory, alignment: Alignment) -> FloatArray:
    """(agents, reported clusters): shares of each agent's entities, the mean over draws of N_ik / N_i.

    `mean_agent_weights` is something else: the probabilities for a new entity, which follow the prior where an agent
    has few entities.
    """
    n_draws, n_clusters = alignment.target.shape
    out = np.zeros((memory.entities.index.n_agents, alignment.n_clusters))
    for agents in _blocks_of_agents(memory):
        for draw in range(n_draws):
            out[agents] += memory.counts(draw, agents, n_clusters) @ alignment.membership(draw)
    return out / np.maximum(out.sum(axis=1, keepdims=True), 1.0)


def mean_agent_weights(draws: Draws, memory: AgentMemory, alignment: Alignment) -> FloatArray:
    """(agents, reported clusters) probabilities of an agent's next entity: mean of (N_ik + βψ_k) / (N_i + β)."""
    out = np.zeros((memory.entities.index.n_agents, alignment.n_clusters))
    for agents in _blocks_of_agents(memory):
        for draw, prior in enumerate(draws.prior_weights):
            weights = memory.counts(draw, agents, draws.n_clusters) + prior
            out[agents] += weights / weights.sum(axis=1, keepdims=True) @ alignment.membership(draw)
    return out / len(draws)


def _blocks_of_agents(memory: AgentMemory) -> Iterator[NDArray[np.int64]]:
    """Consecutive agents with a moderate number of entities, so that few pages of mapped labels are read at a time."""
    starts = memory.entities.index.agent_start
    first = 0
    while first < len(starts) - 1:
        last = int(np.searchsorted(starts, starts[first] + ENTITIES_AT_ONCE))
        last = min(max(last, first + 1), len(starts) - 1)
        yield np.arange(first, last)
        memory.release()
        first = last
