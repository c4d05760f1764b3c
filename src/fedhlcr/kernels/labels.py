"""Kernels that draw labels: scores, keyed random numbers, and the sweeps of all samplers.

relabel_agents    blocked sampler, and the delta rule of the federation
collapsed_sweep   collapsed sampler
blend_agents      blend rule of the federation
"""

from __future__ import annotations

import math

import numpy as np

from fedhlcr.kernels.compiling import kernel, vector_kernel
from fedhlcr.kernels.scores import (
    exponentiate,
    is_in_doubt,
    largest_trace,
    score_chunk,
    score_listed,
    score_single,
    single_error,
)
from fedhlcr.kernels.skipping import EVERYONE, REMEMBER, SKIP, is_certain, remember
from fedhlcr.kernels.uniforms import keyed_uniforms
from fedhlcr.kernels.vectors import clear, total_of

# Number of entities scored at once: their scores stay in the L1 cache until their labels are drawn.
CHUNK = 64
# The same where most are skipped.
SKIPPED_CHUNK = 512
# Scores in single precision with a larger error are made again in double precision.
LARGEST_ERROR = 0.5
# A running product below this is added to a sum of logarithms, before it can underflow.
SMALL = 1e-200
# Least pivot of a factorisation as a share of its diagonal element: below are rounding errors, of either sign.
LEAST_PIVOT = 1e-13


_ENTITY_DRAW = np.uint64(0)
_AGENT_DRAW = np.uint64(1)


@vector_kernel
def label_weights(likelihood, others, prior_weights, out):
    """Write (N_k + βψ_k)·likelihood_k ∝ p(z = k) to `out`, N counting the agent's *other* entities; return the sum."""
    total = 0.0
    for k in range(prior_weights.shape[0]):
        out[k] = (prior_weights[k] + others[k]) * likelihood[k]
        total += out[k]
    return total


@kernel
def pick(weights, threshold):
    """First k whose running sum exceeds the threshold; if rounding leaves none, the last k with positive weight."""
    running = 0.0
    chosen = 0
    for k in range(weights.shape[0]):
        if weights[k] > 0.0:
            running += weights[k]
            chosen = k
            if running > threshold:
                break
    return chosen


@kernel
def seat(k, uniform, prior_weights, seen, tables):
    """Seat one more entity of an agent in cluster k (Chinese restaurant franchise); return βψ_k + n.

    n is the number of the agent's entities seated in k before. The entity opens a new table with probability
    βψ_k / (βψ_k + n); the first one always does.
    """
    seated = prior_weights[k] + seen[k]
    # not `or`: a processor cannot guess which way a random number goes
    opens = (seen[k] == 0.0) | (uniform * seated < prior_weights[k])
    tables[k] += 1.0 if opens else 0.0
    seen[k] += 1.0
    return seated


@kernel
def beta_auxiliary(uniform, rank, beta):
    """One entity's term of log q. q ~ Beta(β + 1, N) is distributed as ∏ u^{1/(β + 1 + rank)} over N entities."""
    return math.log(uniform) / (beta + 1.0 + rank)


@kernel
def bernoulli_auxiliary(n_entities, stream, round_number, beta):
    """The agent's second auxiliary variable for β: s ~ Bernoulli(N / (N + β))."""
    u_agent, _, _ = keyed_uniforms(stream, np.uint64(0), round_number, _AGENT_DRAW)
    return 1.0 if u_agent * (n_entities + beta) < n_entities else 0.0


@kernel
def count_labels(labels, first, last, counts):
    """Count the entities [first, last) by cluster; label −1 is not counted."""
    clear(counts)
    for e in range(first, last):
        if labels[e] >= 0:
            counts[labels[e]] += 1.0


@kernel
def relabel_agents(entities, law, old_labels, labels, agents, first_agent, last_agent, answers, remembered):
    """One blocked Gibbs step of agents[first_agent:last_agent]: write new labels, and each agent's counts to `answers`.

    Given the coefficients, the agents are independent. Within an agent, the labels of its entities are drawn one after
    the other, with the agent's weights θ integrated out. An agent's result does not depend on the other agents, nor on
    what is remembered. Returns the number of entities that were scored.
    """
    # unpacked once: each access to a tuple counts references, on a cache line that all threads share
    grams, agent_start, _, streams = entities
    score_rows, prior_weights, beta, round_number, _ = law
    n_clusters = prior_weights.shape[0]
    space = empty_chunk(score_rows.shape[0], SKIPPED_CHUNK if remembered.mode == SKIP else CHUNK)
    scores, slots, best, uniforms, listed, errors = space
    mode, _, _, _, _, own_root, _, _ = remembered
    counts = np.empty(n_clusters)
    weights = np.empty(n_clusters)
    seen = np.empty(n_clusters)
    tables = np.empty(n_clusters)
    chunk = chunk_end = n_scored = 0
    for position in range(first_agent, last_agent):
        agent = agents[position]
        first = agent_start[agent]
        last = agent_start[agent + 1]
        count_labels(old_labels, first, last, counts)
        clear(seen)
        clear(tables)
        prior = 1.0
        log_prior = log_q = changed = 0.0
        for e in range(first, last):
            if e >= chunk_end or e < chunk:
                chunk = e
                chunk_end = chunk_after(e, agent_start, agents, position, last_agent, slots.shape[0])
                n_scored += prepare_chunk(
                    entities, law, old_labels, agents, position, chunk, chunk_end, space, remembered
                )
            own = old_labels[e]
            if own >= 0:
                counts[own] -= 1.0
            i = e - chunk
            k = own
            if slots[i] >= 0:
                total = label_weights(scores[slots[i]], counts, prior_weights, weights)
                k = pick(weights, uniforms[i, 0] * total)
                if errors[slots[i]] > 0.0 and is_in_doubt(weights, k, uniforms[i, 0], total, errors[slots[i]]):
                    score_again(grams, listed, slots[i], score_rows, scores, prior_weights)
                    total = label_weights(scores[slots[i]], counts, prior_weights, weights)
                    k = pick(weights, uniforms[i, 0] * total)
                if mode != EVERYONE and k != best[slots[i]]:
                    own_root[e] = np.inf
            counts[k] += 1.0
            labels[e] = k
            changed += k != own
            rank = e - first
            prior *= seat(k, uniforms[i, 1], prior_weights, seen, tables) / (beta + rank)
            if prior < SMALL:
                log_prior += math.log(prior)
                prior = 1.0
            log_q += beta_auxiliary(uniforms[i, 2], rank, beta)
        log_prior += math.log(prior)
        bernoulli = bernoulli_auxiliary(float(last - first), streams[agent], round_number, beta)
        store_answer(answers, position, seen, tables, (log_q, bernoulli, log_prior, changed))
    return n_scored


@kernel
def score_again(grams, listed, slot, score_rows, scores, prior_weights):
    """Replace a row of the scores, made in single precision, by that in double precision."""
    again = scores[slot : slot + 1]
    score_listed(grams, listed[slot : slot + 1], 1, score_rows, again)
    exponentiate(again, 1, prior_weights)


@kernel
def empty_chunk(n_rows, size):
    """Scratch space for the entities of a chunk: see `prepare_chunk`."""
    slots = np.empty(size, dtype=np.int64)
    best = np.empty(size, dtype=np.int64)
    listed = np.empty(size, dtype=np.int64)
    return np.empty((size, n_rows)), slots, best, np.empty((size, 3)), listed, np.zeros(size)


@kernel
def prepare_chunk(entities, law, old_labels, agents, position, chunk, chunk_end, space, remembered):
    """Draw the uniform numbers of entities [chunk, chunk_end), and score those whose labels are not certain.

    The first entity is one of agents[position]. Row slots[i] of the scores is that of entity chunk + i; −1 if it needs
    none. `best` are the clusters at which entities are remembered. In single precision, `errors` bound the errors of
    scores; where they are large, scores are made in double precision. Returns the number of entities scored.
    """
    grams, agent_start, keys, streams = entities
    score_rows, prior_weights, beta, round_number, single_rows = law
    scores, slots, best, uniforms, listed, errors = space
    mode, half_precision, size, moved, farthest, own_root, other_root, reach = remembered
    n_listed = 0
    scores_law = (half_precision, size, float(grams.shape[1]))
    for e in range(chunk, chunk_end):
        while e >= agent_start[agents[position] + 1]:
            position += 1
        agent = agents[position]
        i = e - chunk
        own = old_labels[e]
        u_label, u_table, u_beta = keyed_uniforms(streams[agent], keys[e], round_number, _ENTITY_DRAW)
        uniforms[i, 0] = u_label
        uniforms[i, 1] = u_table
        uniforms[i, 2] = u_beta
        slots[i] = -1
        is_known = False
        if mode == SKIP and own >= 0 and prior_weights[own] > 0.0:
            roots = float(own_root[e]), float(other_root[e]), float(reach[e])
            most_odds = (agent_start[agent + 1] - agent_start[agent] + beta) / prior_weights[own]
            is_known = is_certain(roots, (moved[own], farthest), scores_law, u_label, most_odds)
        if not is_known:
            slots[i] = n_listed
            listed[n_listed] = e
            best[n_listed] = own
            n_listed += 1
    if single_rows.shape[0] > 0 and mode != REMEMBER:
        score_single(grams, listed, n_listed, single_rows, scores)
        largest = largest_trace(score_rows)
        for i in range(n_listed):
            errors[i] = single_error(grams[listed[i]], largest)
            if not errors[i] < LARGEST_ERROR:
                errors[i] = 0.0
                score_listed(grams, listed[i : i + 1], 1, score_rows, scores[i : i + 1])
    else:
        score_listed(grams, listed, n_listed, score_rows, scores)
    if mode == REMEMBER:
        for i in range(n_listed):
            best[i] = remember(grams[listed[i]], scores[i], prior_weights.shape[0], remembered, listed[i])
    exponentiate(scores, n_listed, prior_weights)
    return n_listed


@kernel
def chunk_after(e, agent_start, agents, position, last_agent, size):
    """End of the entities that are prepared with e: `size` of them, or fewer before an agent that is left out."""
    end = agent_start[agents[position] + 1]
    while end < e + size and position + 1 < last_agent and agents[position + 1] == agents[position] + 1:
        position += 1
        end = agent_start[agents[position] + 1]
    return min(end, e + size)


@kernel
def count_agents(entities, law, labels, answers):
    """The answers of `relabel_agents` for all agents, under given labels (those of `collapsed_sweep`)."""
    _, agent_start, keys, streams = entities
    _, prior_weights, beta, round_number, _ = law
    n_clusters = prior_weights.shape[0]
    seen = np.empty(n_clusters)
    tables = np.empty(n_clusters)
    for agent in range(agent_start.shape[0] - 1):
        first = agent_start[agent]
        last = agent_start[agent + 1]
        clear(seen)
        clear(tables)
        log_q = log_prior = 0.0
        for e in range(first, last):
            rank = e - first
            _, u_table, u_beta = keyed_uniforms(streams[agent], keys[e], round_number, _ENTITY_DRAW)
            log_prior += math.log(seat(np.int64(labels[e]), u_table, prior_weights, seen, tables) / (beta + rank))
            log_q += beta_auxiliary(u_beta, rank, beta)
        bernoulli = bernoulli_auxiliary(float(last - first), streams[agent], round_number, beta)
        store_answer(answers, agent, seen, tables, (log_q, bernoulli, log_prior, 0.0))


@kernel
def store_answer(answers, row, seen, tables, scalars):
    # unpacked once, because each access to a tuple counts references
    entity_counts, table_counts, agent_scalars = answers
    for k in range(seen.shape[0]):
        entity_counts[row, k] = np.int32(seen[k])
        table_counts[row, k] = np.int32(tables[k])
    for i in range(len(scalars)):
        agent_scalars[row, i] = scalars[i]


@vector_kernel
def lane_evidence(work, n_coef, floors, inverse_pivot, out):
    """Log evidence of each lane's augmented precision [[A, b], [bᵀ, c]], up to a constant equal for all clusters.

    `work` is (packed index, lane), one matrix in each lane; it is overwritten by the Cholesky factors L. Then
    −½ log|A| = −Σ log L_ii over the coefficients, and the last pivot squared is c − bᵀA⁻¹b.
    `floors` (n_coef, lanes) and `inverse_pivot` (lanes,) are scratch space.
    """
    n_lanes = work.shape[1]
    for lane in range(n_lanes):
        out[lane] = 0.0
    for j in range(n_coef):
        for lane in range(n_lanes):
            floors[j, lane] = max(LEAST_PIVOT * work[j * (j + 3) // 2, lane], 1e-300)
    for j in range(n_coef):
        row_j = j * (j + 1) // 2
        for lane in range(n_lanes):
            # of a collinear column rounding leaves a pivot near zero or below it
            pivot = max(work[row_j + j, lane], floors[j, lane])
            out[lane] -= 0.5 * math.log(pivot)
            inverse_pivot[lane] = 1.0 / math.sqrt(pivot)
        for i in range(j + 1, n_coef + 1):
            row_i = i * (i + 1) // 2
            for lane in range(n_lanes):
                work[row_i + j, lane] *= inverse_pivot[lane]
            for t in range(j + 1, i + 1):
                row_t = t * (t + 1) // 2
                for lane in range(n_lanes):
                    work[row_i + t, lane] -= work[row_i + j, lane] * work[row_t + j, lane]
    last = n_coef * (n_coef + 3) // 2
    for lane in range(n_lanes):
        out[lane] -= 0.5 * max(work[last, lane], 0.0)


@kernel
def collapsed_sweep(entities, law, labels, n_coef):
    """Draw the label of every entity in turn, given all other labels, in place. Paper: Algorithm 1, in a loop.

    log p(y_ij | k) = evidence(M_k∖ij + M_ij) − evidence(M_k∖ij). Lane k of `work` holds cluster k with the entity, the
    last lane the entity's current cluster without it, so one batched factorisation gives every term.
    """
    grams, agent_start, keys, streams = entities
    n_clusters = law.prior_weights.shape[0]
    packed = grams.shape[1]
    clusters = np.empty((packed, n_clusters))
    totals = np.zeros(n_clusters)
    for k in range(n_clusters):
        for p in range(packed):
            clusters[p, k] = law.prior_precision[p]
    for e in range(labels.shape[0]):
        for p in range(packed):
            clusters[p, labels[e]] += grams[e, p]
        totals[labels[e]] += 1.0
    evidence = np.empty(n_clusters)
    with_entity = np.empty(n_clusters + 1)
    work = np.empty((packed, n_clusters + 1))
    pivots = np.empty(n_clusters + 1)
    floors = np.empty((n_coef, n_clusters + 1))
    lane_evidence(clusters.copy(), n_coef, floors, pivots, evidence)
    counts = np.empty(n_clusters)
    weights = np.empty(n_clusters)
    scores = np.empty((1, n_clusters))
    base = law.prior_weights.copy()
    for agent in range(agent_start.shape[0] - 1):
        first = agent_start[agent]
        last = agent_start[agent + 1]
        count_labels(labels, first, last, counts)
        for e in range(first, last):
            own = labels[e]
            gram = grams[e]
            for p in range(packed):
                clusters[p, own] -= gram[p]
            totals[own] -= 1.0
            counts[own] -= 1.0
            if totals[own] == 0.0:
                # what subtracting leaves is rounding, and may outweigh the prior
                for p in range(packed):
                    clusters[p, own] = law.prior_precision[p]
            for p in range(packed):
                for k in range(n_clusters):
                    work[p, k] = clusters[p, k] + gram[p]
                work[p, n_clusters] = clusters[p, own]
            lane_evidence(work, n_coef, floors, pivots, with_entity)
            evidence[own] = with_entity[n_clusters]
            if law.global_concentration > 0.0:
                paper_weights(law.global_concentration, law.agent_concentration, totals, labels.shape[0] - 1.0, base)
            for k in range(n_clusters):
                scores[0, k] = with_entity[k] - evidence[k]
            exponentiate(scores, 1, base)
            u_label, _, _ = keyed_uniforms(streams[agent], keys[e], law.round, _ENTITY_DRAW)
            k = pick(weights, u_label * label_weights(scores[0], counts, base, weights))
            counts[k] += 1.0
            totals[k] += 1.0
            labels[e] = k
            for p in range(packed):
                clusters[p, k] += gram[p]
            evidence[k] = with_entity[k]


@kernel
def blend_agents(entities, law, old_labels, labels, agents, answers, n_coef):
    """Draw labels of the given agents under blended regressions, which stay fixed. Paper: Algorithm 3, agents' part.

    As in `collapsed_sweep`, except that no cluster changes while the agents draw: the regressions of law.clusters
    already contain the entity that is scored, and all agents move at once. This is the paper's algorithm, and it is why
    its labels do not follow the posterior.
    """
    grams, agent_start, keys, streams = entities
    clusters = law.clusters
    totals = law.entity_counts
    packed, n_clusters = clusters.shape
    evidence = np.empty(n_clusters)
    with_entity = np.empty(n_clusters)
    pivots = np.empty(n_clusters)
    work = clusters.copy()
    floors = np.empty((n_coef, n_clusters))
    lane_evidence(work, n_coef, floors, pivots, evidence)
    counts = np.empty(n_clusters)
    weights = np.empty(n_clusters)
    scores = np.empty((1, n_clusters))
    others = totals.copy()
    base = np.empty(n_clusters)
    no_tables = np.zeros(n_clusters)
    for position in range(agents.shape[0]):
        agent = agents[position]
        first = agent_start[agent]
        last = agent_start[agent + 1]
        count_labels(old_labels, first, last, counts)
        changed = 0.0
        for e in range(first, last):
            own = old_labels[e]
            gram = grams[e]
            if own >= 0:
                counts[own] -= 1.0
                others[own] = max(totals[own] - 1.0, 0.0)
            for p in range(packed):
                for k in range(n_clusters):
                    work[p, k] = clusters[p, k] + gram[p]
            lane_evidence(work, n_coef, floors, pivots, with_entity)
            paper_weights(law.global_concentration, law.agent_concentration, others, total_of(others), base)
            for k in range(n_clusters):
                scores[0, k] = with_entity[k] - evidence[k]
            exponentiate(scores, 1, base)
            u_label, _, _ = keyed_uniforms(streams[agent], keys[e], law.round, _ENTITY_DRAW)
            k = pick(weights, u_label * label_weights(scores[0], counts, base, weights))
            counts[k] += 1.0
            if own >= 0:
                others[own] = totals[own]
            labels[e] = k
            changed += k != own
        store_answer(answers, position, counts, no_tables, (0.0, 0.0, 0.0, changed))


@kernel
def paper_weights(alpha, beta, totals, n_others, out):
    """β (N^(k) + α/K) / (N + α), which replaces βψ_k; counts exclude the entity itself. Paper: eq. (prior)."""
    n_clusters = totals.shape[0]
    for k in range(n_clusters):
        out[k] = beta * (totals[k] + alpha / n_clusters) / (n_others + alpha)


@kernel
def responsibilities(grams, score_rows, prior_weights, others, out):
    """p(z_e = k | everything else) in one draw.

    `others` (entities, clusters) counts the other entities of the entity's agent.
    """
    n_clusters = prior_weights.shape[0]
    scores = np.empty((CHUNK, score_rows.shape[0]))
    for chunk in range(0, grams.shape[0], CHUNK):
        chunk_end = min(chunk + CHUNK, grams.shape[0])
        score_chunk(grams, chunk, chunk_end, score_rows, scores)
        exponentiate(scores, chunk_end - chunk, prior_weights)
        for e in range(chunk, chunk_end):
            total = label_weights(scores[e - chunk], others[e], prior_weights, out[e])
            for k in range(n_clusters):
                out[e, k] /= total
