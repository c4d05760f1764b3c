"""Kernels that draw labels: scores, keyed random numbers, and the sweeps of all samplers.

relabel_agents    blocked sampler, and the delta rule of the federation
collapsed_sweep   collapsed sampler
blend_agents      blend rule of the federation
"""

from __future__ import annotations

import math

import numpy as np

from fedhlcr.kernels.compiling import finite_kernel, kernel, vector_kernel

# Number of entities scored at once: their scores stay in the L1 cache until their labels are drawn.
CHUNK = 64
# A running product below this is added to a sum of logarithms, before it can underflow.
SMALL = 1e-200
# Clusters are scored this many at a time; the rows of scores are padded to a multiple of it.
LANES = 4
# Least pivot of a factorisation as a share of its diagonal element: below are rounding errors, of either sign.
LEAST_PIVOT = 1e-13


_MASK = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_ENTITY_DRAW, _AGENT_DRAW = np.uint64(0), np.uint64(1)


@kernel
def philox(c0, c1, c2, c3, k0, k1):
    """Philox4x32-10: ten rounds over a counter of four 32-bit words, held in uint64, under a key of two."""
    for _ in range(10):
        product_0 = _MULTIPLIER_0 * c0
        product_1 = _MULTIPLIER_1 * c2
        c0, c1, c2, c3 = (
            (product_1 >> _SHIFT) ^ c1 ^ k0,
            product_1 & _MASK,
            (product_0 >> _SHIFT) ^ c3 ^ k1,
            product_0 & _MASK,
        )
        k0 = (k0 + _WEYL_0) & _MASK
        k1 = (k1 + _WEYL_1) & _MASK
    return c0, c1, c2, c3


@kernel
def keyed_uniforms(stream, key, round_number, purpose):
    """Three uniform numbers on (0, 1), of 53, 32 and 32 bits, that depend on the arguments only."""
    a, b, c, d = philox(key & _MASK, key >> _SHIFT, np.uint64(round_number), purpose, stream & _MASK, stream >> _SHIFT)
    fine = (float(a >> np.uint64(5)) * 67108864.0 + float(b >> np.uint64(6)) + 0.5) / 9007199254740992.0
    return fine, (float(c) + 0.5) / 4294967296.0, (float(d) + 0.5) / 4294967296.0


@vector_kernel
def score_chunk(grams, first, last, score_rows, out):
    """Scores of entities [first, last) against all clusters, in tiles of four entities by four clusters.

    A tile is always full: past the end the last entity is repeated, so that every score is computed by the same
    instructions in the same order.
    """
    packed = grams.shape[1]
    for e in range(first, last, 4):
        e1, e2, e3 = min(e + 1, last - 1), min(e + 2, last - 1), min(e + 3, last - 1)
        o1, o2, o3 = e1 - first, e2 - first, e3 - first
        for k in range(0, score_rows.shape[0], 4):
            s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = 0.0
            s20 = s21 = s22 = s23 = s30 = s31 = s32 = s33 = 0.0
            for p in range(packed):
                x0, x1, x2, x3 = grams[e, p], grams[e1, p], grams[e2, p], grams[e3, p]
                y0, y1, y2, y3 = score_rows[k, p], score_rows[k + 1, p], score_rows[k + 2, p], score_rows[k + 3, p]
                s00, s01, s02, s03 = s00 + x0 * y0, s01 + x0 * y1, s02 + x0 * y2, s03 + x0 * y3
                s10, s11, s12, s13 = s10 + x1 * y0, s11 + x1 * y1, s12 + x1 * y2, s13 + x1 * y3
                s20, s21, s22, s23 = s20 + x2 * y0, s21 + x2 * y1, s22 + x2 * y2, s23 + x2 * y3
                s30, s31, s32, s33 = s30 + x3 * y0, s31 + x3 * y1, s32 + x3 * y2, s33 + x3 * y3
            o = e - first
            out[o, k], out[o, k + 1], out[o, k + 2], out[o, k + 3] = s00, s01, s02, s03
            out[o1, k], out[o1, k + 1], out[o1, k + 2], out[o1, k + 3] = s10, s11, s12, s13
            out[o2, k], out[o2, k + 1], out[o2, k + 2], out[o2, k + 3] = s20, s21, s22, s23
            out[o3, k], out[o3, k + 1], out[o3, k + 2], out[o3, k + 3] = s30, s31, s32, s33


# 1/n!
_C2, _C3, _C4, _C5, _C6, _C7, _C8 = 1 / 2, 1 / 6, 1 / 24, 1 / 120, 1 / 720, 1 / 5040, 1 / 40320


@finite_kernel
def small_exponential(x):
    """exp(x) for x ≤ 0: the Taylor polynomial of exp(x/1024), squared ten times.

    Its relative error is 1e-12 above e^−50 and 1e-4 at e^−700, where it is cut off. Loops over it are vectorised and
    take a fifth of the time of the library's exp.
    """
    x = min(max(x, -700.0), 0.0) * 0.0009765625
    power = (((((((_C8 * x + _C7) * x + _C6) * x + _C5) * x + _C4) * x + _C3) * x + _C2) * x + 1.0) * x + 1.0
    for _ in range(10):
        power *= power
    return power


@finite_kernel
def exponentiate(scores, n_rows, prior_weights):
    """exp(score − the row's maximum), in place, for the first n_rows rows; the maximum is over possible clusters only.

    Where `small_exponential` is cut off, a cluster is never drawn.
    """
    n_columns = scores.shape[1]
    for row in range(n_rows):
        best = -1e300
        for k in range(prior_weights.shape[0]):
            best = max(best, scores[row, k] if prior_weights[k] > 0.0 else -1e300)
        for k in range(n_columns):
            scores[row, k] -= best
    flat = scores[:n_rows].reshape(n_rows * n_columns)
    for i in range(n_rows * n_columns):
        flat[i] = small_exponential(flat[i])


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
    running, chosen = 0.0, 0
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
    opens = seen[k] == 0.0 or uniform * seated < prior_weights[k]
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
    counts[:] = 0.0
    for e in range(first, last):
        if labels[e] >= 0:
            counts[labels[e]] += 1.0


@kernel
def relabel_agents(entities, law, old_labels, labels, agents, first_agent, last_agent, answers):
    """One blocked Gibbs step of agents[first_agent:last_agent]: write new labels, and each agent's counts to `answers`.

    Given the coefficients, the agents are independent. Within an agent, the labels of its entities are drawn one after
    the other, with the agent's weights θ integrated out. An agent's result does not depend on the other agents.
    """
    # unpacked once: each access to a tuple counts references, on a cache line that all threads share
    grams, agent_start, keys, streams = entities
    score_rows, prior_weights, beta, round_number = law
    n_clusters = prior_weights.shape[0]
    scores = np.empty((CHUNK, score_rows.shape[0]))
    counts, weights = np.empty(n_clusters), np.empty(n_clusters)
    seen, tables = np.empty(n_clusters), np.empty(n_clusters)
    chunk = chunk_end = 0
    for position in range(first_agent, last_agent):
        agent = agents[position]
        first, last = agent_start[agent], agent_start[agent + 1]
        stream = streams[agent]
        count_labels(old_labels, first, last, counts)
        seen[:] = 0.0
        tables[:] = 0.0
        prior = 1.0
        log_prior = log_q = changed = 0.0
        for e in range(first, last):
            if e >= chunk_end or e < chunk:
                chunk, chunk_end = e, chunk_after(e, agent_start, agents, position, last_agent)
                score_chunk(grams, chunk, chunk_end, score_rows, scores)
                exponentiate(scores, chunk_end - chunk, prior_weights)
            own = old_labels[e]
            if own >= 0:
                counts[own] -= 1.0
            u_label, u_table, u_beta = keyed_uniforms(stream, keys[e], round_number, _ENTITY_DRAW)
            total = label_weights(scores[e - chunk], counts, prior_weights, weights)
            k = pick(weights, u_label * total)
            counts[k] += 1.0
            labels[e] = k
            changed += k != own
            rank = e - first
            prior *= seat(k, u_table, prior_weights, seen, tables) / (beta + rank)
            if prior < SMALL:
                log_prior += math.log(prior)
                prior = 1.0
            log_q += beta_auxiliary(u_beta, rank, beta)
        log_prior += math.log(prior)
        bernoulli = bernoulli_auxiliary(float(last - first), stream, round_number, beta)
        store_answer(answers, position, seen, tables, (log_q, bernoulli, log_prior, changed))


@kernel
def chunk_after(e, agent_start, agents, position, last_agent):
    """End of the entities that are scored together with e: CHUNK of them, or fewer before an agent that is left out."""
    end = agent_start[agents[position] + 1]
    while end < e + CHUNK and position + 1 < last_agent and agents[position + 1] == agents[position] + 1:
        position += 1
        end = agent_start[agents[position] + 1]
    return min(end, e + CHUNK)


@kernel
def count_agents(entities, law, labels, answers):
    """The answers of `relabel_agents` for all agents, under given labels (those of `collapsed_sweep`)."""
    _, agent_start, keys, streams = entities
    _, prior_weights, beta, round_number = law
    n_clusters = prior_weights.shape[0]
    seen, tables = np.empty(n_clusters), np.empty(n_clusters)
    for agent in range(agent_start.shape[0] - 1):
        first, last = agent_start[agent], agent_start[agent + 1]
        seen[:] = 0.0
        tables[:] = 0.0
        log_q = log_prior = 0.0
        for e in range(first, last):
            rank = e - first
            _, u_table, u_beta = keyed_uniforms(streams[agent], keys[e], round_number, _ENTITY_DRAW)
            log_prior += math.log(seat(labels[e], u_table, prior_weights, seen, tables) / (beta + rank))
            log_q += beta_auxiliary(u_beta, rank, beta)
        bernoulli = bernoulli_auxiliary(float(last - first), streams[agent], round_number, beta)
        store_answer(answers, agent, seen, tables, (log_q, bernoulli, log_prior, 0.0))


@kernel
def store_answer(answers, row, seen, tables, scalars):
    for k in range(seen.shape[0]):
        answers.entities[row, k] = np.int32(seen[k])
        answers.tables[row, k] = np.int32(tables[k])
    for i in range(len(scalars)):
        answers.scalars[row, i] = scalars[i]


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
    n_clusters, packed = law.prior_weights.shape[0], grams.shape[1]
    clusters, totals = np.empty((packed, n_clusters)), np.zeros(n_clusters)
    for k in range(n_clusters):
        clusters[:, k] = law.prior_precision
    for e in range(labels.shape[0]):
        clusters[:, labels[e]] += grams[e]
        totals[labels[e]] += 1.0
    evidence, with_entity = np.empty(n_clusters), np.empty(n_clusters + 1)
    work, pivots = np.empty((packed, n_clusters + 1)), np.empty(n_clusters + 1)
    floors = np.empty((n_coef, n_clusters + 1))
    lane_evidence(clusters.copy(), n_coef, floors, pivots, evidence)
    counts, weights, scores = np.empty(n_clusters), np.empty(n_clusters), np.empty((1, n_clusters))
    base = law.prior_weights.copy()
    for agent in range(agent_start.shape[0] - 1):
        first, last = agent_start[agent], agent_start[agent + 1]
        count_labels(labels, first, last, counts)
        for e in range(first, last):
            own, gram = labels[e], grams[e]
            clusters[:, own] -= gram
            totals[own] -= 1.0
            counts[own] -= 1.0
            if totals[own] == 0.0:
                # what subtracting leaves is rounding, and may outweigh the prior
                clusters[:, own] = law.prior_precision
            for p in range(packed):
                for k in range(n_clusters):
                    work[p, k] = clusters[p, k] + gram[p]
                work[p, n_clusters] = clusters[p, own]
            lane_evidence(work, n_coef, floors, pivots, with_entity)
            evidence[own] = with_entity[n_clusters]
            if law.global_concentration > 0.0:
                paper_weights(law, totals, float(labels.shape[0] - 1), base)
            for k in range(n_clusters):
                scores[0, k] = with_entity[k] - evidence[k]
            exponentiate(scores, 1, base)
            u_label, _, _ = keyed_uniforms(streams[agent], keys[e], law.round, _ENTITY_DRAW)
            k = pick(weights, u_label * label_weights(scores[0], counts, base, weights))
            counts[k] += 1.0
            totals[k] += 1.0
            labels[e] = k
            clusters[:, k] += gram
            evidence[k] = with_entity[k]


@kernel
def blend_agents(entities, law, old_labels, labels, agents, answers, n_coef):
    """Draw labels of the given agents under blended regressions, which stay fixed. Paper: Algorithm 3, agents' part.

    As in `collapsed_sweep`, except that no cluster changes while the agents draw: the regressions of law.clusters
    already contain the entity that is scored, and all agents move at once. This is the paper's algorithm, and it is why
    its labels do not follow the posterior.
    """
    grams, agent_start, keys, streams = entities
    clusters, totals = law.clusters, law.entity_counts
    packed, n_clusters = clusters.shape
    evidence, with_entity, pivots = np.empty(n_clusters), np.empty(n_clusters), np.empty(n_clusters)
    work, floors = clusters.copy(), np.empty((n_coef, n_clusters))
    lane_evidence(work, n_coef, floors, pivots, evidence)
    counts, weights, scores = np.empty(n_clusters), np.empty(n_clusters), np.empty((1, n_clusters))
    others, base, no_tables = totals.copy(), np.empty(n_clusters), np.zeros(n_clusters)
    for position in range(agents.shape[0]):
        agent = agents[position]
        first, last = agent_start[agent], agent_start[agent + 1]
        count_labels(old_labels, first, last, counts)
        changed = 0.0
        for e in range(first, last):
            own, gram = old_labels[e], grams[e]
            if own >= 0:
                counts[own] -= 1.0
                others[own] = max(totals[own] - 1.0, 0.0)
            for p in range(packed):
                for k in range(n_clusters):
                    work[p, k] = clusters[p, k] + gram[p]
            lane_evidence(work, n_coef, floors, pivots, with_entity)
            paper_weights(law, others, others.sum(), base)
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
def paper_weights(law, totals, n_others, out):
    """β (N^(k) + α/K) / (N + α), which replaces βψ_k; counts exclude the entity itself. Paper: eq. (prior)."""
    alpha, n_clusters = law.global_concentration, totals.shape[0]
    for k in range(n_clusters):
        out[k] = law.agent_concentration * (totals[k] + alpha / n_clusters) / (n_others + alpha)


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
