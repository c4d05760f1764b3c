"""Probabilities of the clusters of entities in all draws at once, without the scores that cannot matter.

In a draw d, an entity with matrix M has p(z = k) ∝ (N_ik + βψ_k) exp(M·r_dk). Draws of a chain differ little, so the
scores of a cluster lie near that of its mean row over the draws, r̄_k:

    |M·r_dk − M·r̄_k| ≤ ‖M/t‖ · max_d ‖t∘(r_dk − r̄_k)‖      for any t > 0

If this bound says that a cluster has less than e^−45 of the probability of another one in every draw of the chain, its
weight is 0 and its scores are not computed. If one cluster is left, its weight is 1.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.kernels.compiling import finite_kernel, kernel, vector_kernel

# Entities whose scores are computed together.
TOGETHER = 16
# Where a weight is surely smaller than another by this much, in logs, it is 0.
NOTHING = 45.0

# 1/n!
_C2 = 1 / 2
_C3 = 1 / 6
_C4 = 1 / 24
_C5 = 1 / 120
_C6 = 1 / 720
_C7 = 1 / 5040
_C8 = 1 / 40320


class ScoreLaw(NamedTuple):
    """The score rows and the prior weights of all draws, by chain."""

    rows: FloatArray  # (clusters, draws, packed): matrix · row = log likelihood + constant
    prior: FloatArray  # (clusters, draws) βψ
    chain_start: IndexArray  # (chains + 1,) draws [chain_start[i], chain_start[i + 1]) are those of chain i
    mean_rows: FloatArray  # (chains, clusters, packed) r̄
    inverse_units: FloatArray  # (packed,) 1/t
    radius: FloatArray  # (chains, clusters) largest ‖t∘(r_dk − r̄_k)‖; infinite if nothing is to be skipped
    log_least_prior: FloatArray  # (chains, clusters) log of the smallest βψ_k; −∞ for 0
    largest_prior: FloatArray  # (chains,) largest βψ_k of any cluster


class AgentLabels(NamedTuple):
    """The labels of all agents' entities in all draws."""

    labels: NDArray[np.integer]  # (draws, entities)
    agent_start: IndexArray  # (agents + 1,)
    counts: FloatArray  # (large agents, clusters, draws) N_ik of agents with so many entities that they are kept
    large: IndexArray  # (agents,) position in `counts`, or −1


class Space(NamedTuple):
    """Scratch space for TOGETHER entities, and the counts of the last agent."""

    matrices: FloatArray  # (entities, packed)
    position: IndexArray  # (entities,) their profiles
    centres: FloatArray  # (entities, 1, clusters) scores M·r̄
    kept: NDArray[np.bool_]  # (entities, clusters) whether the scores are needed
    chosen: IndexArray  # (entities,)
    scores: FloatArray  # (entities, clusters, draws)
    best: FloatArray  # (draws,)
    own: IndexArray  # (draws,) labels of one entity
    counts: FloatArray  # (clusters, draws) N_ik of one agent


@kernel
def empty_space(n_clusters, n_draws, packed):
    return Space(
        np.empty((TOGETHER, packed)),
        np.empty(TOGETHER, dtype=np.int64),
        np.empty((TOGETHER, 1, n_clusters)),
        np.empty((TOGETHER, n_clusters), dtype=np.bool_),
        np.empty(TOGETHER, dtype=np.int64),
        np.empty((TOGETHER, n_clusters, n_draws)),
        np.empty(n_draws),
        np.empty(n_draws, dtype=np.int64),
        np.empty((n_clusters, n_draws)),
    )


@kernel
def count_agent(labels, first, last, counts):
    """Count the entities [first, last) by cluster and draw: counts (clusters, draws)."""
    for k in range(counts.shape[0]):
        for d in range(counts.shape[1]):
            counts[k, d] = 0.0
    for d in range(labels.shape[0]):
        for e in range(first, last):
            counts[labels[d, e], d] += 1.0


@vector_kernel
def score_tile(matrices, chosen, n, rows, k, first, last, scores):
    """scores[i, k, d] = matrix i · rows[k, d] for the n chosen matrices and draws [first, last), in tiles of 4 × 4.

    A tile is always full, so that every score is computed by the same instructions in the same order.
    """
    packed = matrices.shape[1]
    for c in range(0, n, 4):
        i0 = chosen[c]
        i1 = chosen[min(c + 1, n - 1)]
        i2 = chosen[min(c + 2, n - 1)]
        i3 = chosen[min(c + 3, n - 1)]
        for d in range(first, last, 4):
            d1 = min(d + 1, last - 1)
            d2 = min(d + 2, last - 1)
            d3 = min(d + 3, last - 1)
            s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = 0.0
            s20 = s21 = s22 = s23 = s30 = s31 = s32 = s33 = 0.0
            for p in range(packed):
                x0 = matrices[i0, p]
                x1 = matrices[i1, p]
                x2 = matrices[i2, p]
                x3 = matrices[i3, p]
                y0 = rows[k, d, p]
                y1 = rows[k, d1, p]
                y2 = rows[k, d2, p]
                y3 = rows[k, d3, p]
                s00 = s00 + x0 * y0
                s01 = s01 + x0 * y1
                s02 = s02 + x0 * y2
                s03 = s03 + x0 * y3
                s10 = s10 + x1 * y0
                s11 = s11 + x1 * y1
                s12 = s12 + x1 * y2
                s13 = s13 + x1 * y3
                s20 = s20 + x2 * y0
                s21 = s21 + x2 * y1
                s22 = s22 + x2 * y2
                s23 = s23 + x2 * y3
                s30 = s30 + x3 * y0
                s31 = s31 + x3 * y1
                s32 = s32 + x3 * y2
                s33 = s33 + x3 * y3
            scores[i0, k, d] = s00
            scores[i0, k, d1] = s01
            scores[i0, k, d2] = s02
            scores[i0, k, d3] = s03
            scores[i1, k, d] = s10
            scores[i1, k, d1] = s11
            scores[i1, k, d2] = s12
            scores[i1, k, d3] = s13
            scores[i2, k, d] = s20
            scores[i2, k, d1] = s21
            scores[i2, k, d2] = s22
            scores[i2, k, d3] = s23
            scores[i3, k, d] = s30
            scores[i3, k, d1] = s31
            scores[i3, k, d2] = s32
            scores[i3, k, d3] = s33


@vector_kernel
def size_in_units(matrices, i, inverse_units):
    """‖M/t‖."""
    total = 0.0
    for p in range(matrices.shape[1]):
        value = matrices[i, p] * inverse_units[p]
        total += value * value
    return math.sqrt(total)


@kernel
def keep_clusters(centres, i, size, n_entities, law, chain, kept):
    """Mark the clusters that may have some weight in a draw of the chain: row i of `kept`; return their number.

    size : ‖M/t‖
    n_entities : of the agent, the most that N_ik can be
    """
    n_clusters = kept.shape[1]
    best = -np.inf
    radius = law.radius
    log_least_prior = law.log_least_prior
    for k in range(n_clusters):
        best = max(best, centres[i, 0, k] - size * radius[chain, k] + log_least_prior[chain, k])
    least = best - NOTHING - math.log(n_entities + law.largest_prior[chain])
    n_kept = 0
    for k in range(n_clusters):
        # not ≥, so that clusters with infinite or undefined bounds are kept
        kept[i, k] = not centres[i, 0, k] + size * radius[chain, k] < least
        n_kept += kept[i, k]
    return n_kept


@finite_kernel
def exponentiate(scores, best, first, last, i, k):
    """scores[i, k, d] becomes exp(score − best_d) for draws [first, last), as in `kernels.labels`."""
    for d in range(first, last):
        x = min(max(scores[i, k, d] - best[d], -700.0), 0.0) * 0.0009765625
        e = (((((((_C8 * x + _C7) * x + _C6) * x + _C5) * x + _C4) * x + _C3) * x + _C2) * x + 1.0) * x + 1.0
        for _ in range(10):
            e *= e
        scores[i, k, d] = e


@kernel
def write_weights(space, i, prior, counts, first, last, out, profile):
    """Write p(z = k) of entity i in draws [first, last) to its row of `out`, from its scores.

    `counts` (clusters, draws) are those of all entities of its agent, and `space.own` its own labels.
    """
    scores = space.scores
    best = space.best
    kept = space.kept
    own = space.own
    n_clusters = prior.shape[0]
    for d in range(first, last):
        best[d] = -1e300
    for k in range(n_clusters):
        if kept[i, k]:
            for d in range(first, last):
                if prior[k, d] > 0.0:
                    best[d] = max(best[d], scores[i, k, d])
    for k in range(n_clusters):
        if kept[i, k]:
            exponentiate(scores, best, first, last, i, k)
    for d in range(first, last):
        total = 0.0
        for k in range(n_clusters):
            weight = 0.0
            if kept[i, k]:
                others = counts[k, d] - (1.0 if own[d] == k else 0.0)
                weight = (prior[k, d] + others) * scores[i, k, d]
            out[profile, d, k] = weight
            total += weight
        for k in range(n_clusters):
            out[profile, d, k] /= total


@kernel
def write_prior(counts, prior, out, profile):
    """Write (N_ik + βψ_k) / (N_i + β), the weights of a new entity, to its row of `out`."""
    for d in range(prior.shape[1]):
        total = 0.0
        for k in range(prior.shape[0]):
            out[profile, d, k] = counts[k, d] + prior[k, d]
            total += out[profile, d, k]
        for k in range(prior.shape[0]):
            out[profile, d, k] /= total


@kernel
def agent_counts(agent, agents, space):
    """N_ik (clusters, draws) of an agent, in `space` or where they are kept; 0 for an unknown agent."""
    if agent < 0:
        for k in range(space.shape[0]):
            for d in range(space.shape[1]):
                space[k, d] = 0.0
        return space
    if agents.large[agent] >= 0:
        return agents.counts[agents.large[agent]]
    count_agent(agents.labels, agents.agent_start[agent], agents.agent_start[agent + 1], space)
    return space


@kernel
def count_profiles(agents, agent_of, space, out):
    """Write N_ik of each profile's agent to `out` (draws, profiles, clusters). Profiles are sorted by agent."""
    counts = space
    for i in range(agent_of.shape[0]):
        if i == 0 or agent_of[i] != agent_of[i - 1]:
            counts = agent_counts(agent_of[i], agents, space)
        for d in range(out.shape[0]):
            for k in range(out.shape[2]):
                out[d, i, k] = counts[k, d]


@kernel
def any_kept(kept, i):
    """Whether any cluster is kept of entity i."""
    found = False
    for k in range(kept.shape[1]):
        found |= kept[i, k]
    return found


@kernel
def score_kept(agents, law, agent_of, chain, n, space, out):
    """Find the clusters that the n entities in `space` may belong to, and their scores in the draws of a chain.

    An entity with one such cluster gets its weights at once; then none is marked as kept.
    """
    first = law.chain_start[chain]
    last = law.chain_start[chain + 1]
    n_clusters = law.rows.shape[0]
    matrices = space.matrices
    position = space.position
    kept = space.kept
    chosen = space.chosen
    for i in range(n):
        chosen[i] = i
    score_tile(matrices, chosen, n, law.mean_rows[chain : chain + 1], 0, 0, n_clusters, space.centres)
    for i in range(n):
        agent = agent_of[position[i]]
        size = size_in_units(matrices, i, law.inverse_units)
        n_entities = agents.agent_start[agent + 1] - agents.agent_start[agent]
        if keep_clusters(space.centres, i, size, n_entities, law, chain, kept) == 1:
            for d in range(first, last):
                for k in range(n_clusters):
                    out[position[i], d, k] = 1.0 if kept[i, k] else 0.0
            for k in range(n_clusters):
                kept[i, k] = False
    for k in range(n_clusters):
        m = 0
        for i in range(n):
            if kept[i, k]:
                chosen[m] = i
                m += 1
        if m > 0:
            score_tile(matrices, chosen, m, law.rows, k, first, last, space.scores)


@kernel
def label_weights(grams, agents, law, agent_of, entity_of, first_profile, last_profile, out):
    """Write p(z = k) of profiles [first_profile, last_profile) to `out` (profiles, draws, clusters).

    agent_of, entity_of : (profiles,) positions, −1 if new; profiles are sorted by agent
    grams : (entities, packed)
    """
    n_clusters, n_draws, packed = law.rows.shape
    space = empty_space(n_clusters, n_draws, packed)
    profile = first_profile
    counted = -2
    counts = space.counts
    while profile < last_profile:
        n = 0
        while profile < last_profile and n < TOGETHER:
            if entity_of[profile] >= 0:
                space.position[n] = profile
                for p in range(packed):
                    space.matrices[n, p] = grams[entity_of[profile], p]
                n += 1
            else:
                if agent_of[profile] != counted:
                    counted = agent_of[profile]
                    counts = agent_counts(counted, agents, space.counts)
                write_prior(counts, law.prior, out, profile)
            profile += 1
        for chain in range(law.chain_start.shape[0] - 1):
            score_kept(agents, law, agent_of, chain, n, space, out)
            first = law.chain_start[chain]
            last = law.chain_start[chain + 1]
            for i in range(n):
                if any_kept(space.kept, i):
                    own = space.position[i]
                    if agent_of[own] != counted:
                        counted = agent_of[own]
                        counts = agent_counts(counted, agents, space.counts)
                    for d in range(first, last):
                        space.own[d] = agents.labels[d, entity_of[own]]
                    write_weights(space, i, law.prior, counts, first, last, out, own)
