"""The hot loops: arrays in, arrays out, nothing else.

This is the only file that knows numba. One file, because numba's on-disk cache follows the
timestamp of the file a kernel stands in and not those of the kernels it calls.

Every kernel releases the GIL, so that plain Python threads run blocks of agents side by side, and
computes each entity with one and the same sequence of operations wherever it stands in its block:
the result does not depend on how agents are cut into blocks, nor on the number of threads.
Readable twins of all kernels stand in `fedhlcr.reference`; the tests hold one against the other,
with the compiler on and off.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
LabelArray = NDArray[np.int32]
KeyArray = NDArray[np.uint64]

kernel = njit(nogil=True, cache=True)
# Lets a dot product run in vector lanes and use fused multiply-add; NaN and infinity keep their meaning.
vector_kernel = njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})

# Entities scored at once: their scores stay in the first-level cache until their labels are drawn.
CHUNK = 64
# Clusters are scored four at a time; score matrices are padded to a multiple of this.
LANES = 4


class EntityArrays(NamedTuple):
    """What a block of agents keeps: Gram matrices, who owns them, and the keys of their random draws."""

    grams: FloatArray  # (entities, packed)
    agent_start: NDArray[np.int64]  # (agents + 1,)
    entity_keys: KeyArray  # (entities,)
    agent_streams: KeyArray  # (agents,)


class LabelLaw(NamedTuple):
    """What the agents are told: how to score an entity, and how common the clusters are."""

    score_rows: FloatArray  # (clusters padded to LANES, packed): packed gram · row = log likelihood + constant
    prior_weights: FloatArray  # (clusters,) agent_concentration · cluster_weights
    agent_concentration: float
    round: int


class BlockSums(NamedTuple):
    """What a block of agents answers, summed over its agents."""

    grams: FloatArray  # (clusters, packed)
    entity_counts: FloatArray  # (clusters,)
    table_counts: FloatArray  # (clusters,)
    scalars: FloatArray  # SCALARS, see below


# Places in BlockSums.scalars.
LOG_BETA_DRAWS, BERNOULLI_DRAWS, LOG_LABEL_PRIOR, LABELS_CHANGED = range(4)

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
    """Three uniforms on (0, 1), of 53, 32 and 32 bits, that depend on nothing but the arguments."""
    a, b, c, d = philox(
        key & _MASK, key >> _SHIFT, np.uint64(round_number), purpose, stream & _MASK, stream >> _SHIFT
    )
    fine = (float(a >> np.uint64(5)) * 67108864.0 + float(b >> np.uint64(6)) + 0.5) / 9007199254740992.0
    return fine, (float(c) + 0.5) / 4294967296.0, (float(d) + 0.5) / 4294967296.0


@kernel
def accumulate_grams(X, y, weight, event_start, shift, grams, first, last):
    """Add w·x̃x̃ᵀ of every event of entities [first, last) to their packed grams; x̃ = (1, x, y) − shift."""
    n_features = X.shape[1]
    row = np.empty(n_features + 2)
    for e in range(first, last):
        for n in range(event_start[e], event_start[e + 1]):
            row[0] = 1.0
            for f in range(n_features):
                row[f + 1] = X[n, f] - shift[f]
            row[n_features + 1] = y[n] - shift[n_features]
            p = 0
            for i in range(n_features + 2):
                weighted = weight[n] * row[i]
                for j in range(i + 1):
                    grams[e, p] += weighted * row[j]
                    p += 1


@vector_kernel
def score_chunk(grams, first, last, score_rows, out):
    """Scores of entities [first, last) against all clusters, in tiles of four entities by four clusters.

    The tile is always full: past the end the last entity stands in again, so that every score is
    computed by the same instructions in the same order.
    """
    packed = grams.shape[1]
    for e in range(first, last, 4):
        e1, e2, e3 = min(e + 1, last - 1), min(e + 2, last - 1), min(e + 3, last - 1)
        r0, r1, r2, r3 = grams[e], grams[e1], grams[e2], grams[e3]
        o0, o1, o2, o3 = out[e - first], out[e1 - first], out[e2 - first], out[e3 - first]
        for k in range(0, score_rows.shape[0], 4):
            v0, v1, v2, v3 = score_rows[k], score_rows[k + 1], score_rows[k + 2], score_rows[k + 3]
            s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = 0.0
            s20 = s21 = s22 = s23 = s30 = s31 = s32 = s33 = 0.0
            for p in range(packed):
                x0, x1, x2, x3 = r0[p], r1[p], r2[p], r3[p]
                y0, y1, y2, y3 = v0[p], v1[p], v2[p], v3[p]
                s00 += x0 * y0
                s01 += x0 * y1
                s02 += x0 * y2
                s03 += x0 * y3
                s10 += x1 * y0
                s11 += x1 * y1
                s12 += x1 * y2
                s13 += x1 * y3
                s20 += x2 * y0
                s21 += x2 * y1
                s22 += x2 * y2
                s23 += x2 * y3
                s30 += x3 * y0
                s31 += x3 * y1
                s32 += x3 * y2
                s33 += x3 * y3
            o0[k], o0[k + 1], o0[k + 2], o0[k + 3] = s00, s01, s02, s03
            o1[k], o1[k + 1], o1[k + 2], o1[k + 3] = s10, s11, s12, s13
            o2[k], o2[k + 1], o2[k + 2], o2[k + 3] = s20, s21, s22, s23
            o3[k], o3[k + 1], o3[k + 2], o3[k + 3] = s30, s31, s32, s33


@kernel
def label_weights(scores, others, prior_weights, out):
    """Unnormalised p(z = k) ∝ (N_k + βψ_k)·exp(score_k) into `out`, N of the agent's *other* entities; their sum."""
    best = -np.inf
    for k in range(prior_weights.shape[0]):
        if prior_weights[k] + others[k] > 0.0:
            best = max(best, scores[k])
    total = 0.0
    for k in range(prior_weights.shape[0]):
        weight = prior_weights[k] + others[k]
        # exp(-745) is the last that is not zero
        out[k] = weight * math.exp(scores[k] - best) if weight > 0.0 and scores[k] - best > -745.0 else 0.0
        total += out[k]
    return total


@kernel
def pick(weights, threshold):
    """First k whose running sum exceeds the threshold; the last positive weight if rounding leaves none."""
    running, chosen = 0.0, 0
    for k in range(weights.shape[0]):
        if weights[k] > 0.0:
            running += weights[k]
            chosen = k
            if running > threshold:
                break
    return chosen


@kernel
def seat_agent(entities, agent, labels, law, seen, sums):
    """Draw the agent's table counts and auxiliaries for β; add them and log p(labels | ψ, β) to `sums`.

    The n-th entity of a cluster opens a table with probability βψ_k / (βψ_k + n), n = 0, 1, …; the first
    always does. Beta(β + 1, N) is the law of ∏ U_n^{1/(β + 1 + n)} over n < N.
    """
    beta = law.agent_concentration
    first, last = entities.agent_start[agent], entities.agent_start[agent + 1]
    stream = entities.agent_streams[agent]
    seen[:] = 0.0
    for e in range(first, last):
        _, u_table, u_beta = keyed_uniforms(stream, entities.entity_keys[e], law.round, _ENTITY_DRAW)
        k = labels[e]
        seated = law.prior_weights[k] + seen[k]
        if seen[k] == 0.0 or u_table * seated < law.prior_weights[k]:
            sums.table_counts[k] += 1.0
        seen[k] += 1.0
        rank = float(e - first)
        sums.scalars[LOG_BETA_DRAWS] += math.log(u_beta) / (beta + 1.0 + rank)
        sums.scalars[LOG_LABEL_PRIOR] += math.log(seated / (beta + rank))
    n_entities = float(last - first)
    if n_entities > 0.0:
        u_agent, _, _ = keyed_uniforms(stream, np.uint64(0), law.round, _AGENT_DRAW)
        if u_agent * (n_entities + beta) < n_entities:
            sums.scalars[BERNOULLI_DRAWS] += 1.0
    for k in range(seen.shape[0]):
        sums.entity_counts[k] += seen[k]


@kernel
def count_labels(labels, first, last, counts):
    """Entities per cluster among [first, last); −1 is not counted."""
    counts[:] = 0.0
    for e in range(first, last):
        if labels[e] >= 0:
            counts[labels[e]] += 1.0


@kernel
def relabel_agents(entities, law, old_labels, labels, first_agent, last_agent, sums):
    """One blocked Gibbs step of agents [first_agent, last_agent): new labels, and the sums they send.

    Given the coefficients the agents are independent; within an agent the entities are drawn one
    after the other with its own weights θ integrated out. Each entity's matrix is read once:
    scored, labelled, and added to its cluster while it is still in cache.
    """
    n_clusters = law.prior_weights.shape[0]
    scores = np.empty((CHUNK, law.score_rows.shape[0]))
    counts, seen, weights = np.empty(n_clusters), np.empty(n_clusters), np.empty(n_clusters)
    for agent in range(first_agent, last_agent):
        first, last = entities.agent_start[agent], entities.agent_start[agent + 1]
        count_labels(old_labels, first, last, counts)
        for chunk in range(first, last, CHUNK):
            chunk_end = min(chunk + CHUNK, last)
            score_chunk(entities.grams, chunk, chunk_end, law.score_rows, scores)
            for e in range(chunk, chunk_end):
                own = old_labels[e]
                if own >= 0:
                    counts[own] -= 1.0
                total = label_weights(scores[e - chunk], counts, law.prior_weights, weights)
                u_label, _, _ = keyed_uniforms(
                    entities.agent_streams[agent], entities.entity_keys[e], law.round, _ENTITY_DRAW
                )
                k = pick(weights, u_label * total)
                counts[k] += 1.0
                labels[e] = k
                if k != own:
                    sums.scalars[LABELS_CHANGED] += 1.0
                add_row(sums.grams[k], entities.grams[e])
        seat_agent(entities, agent, labels, law, seen, sums)


@vector_kernel
def add_row(target, row):
    for p in range(row.shape[0]):
        target[p] += row[p]


@kernel
def lane_cholesky(work, n_rows):
    """Cholesky factors, in place, of many packed matrices at once: work[packed index, lane]."""
    for j in range(n_rows):
        row_j = j * (j + 1) // 2
        for i in range(j, n_rows):
            row_i = i * (i + 1) // 2
            target = work[row_i + j]
            for t in range(j):
                subtract_product(target, work[row_i + t], work[row_j + t])
            if i == j:
                for lane in range(target.shape[0]):
                    # a pivot lost to rounding must not turn into NaN
                    target[lane] = math.sqrt(max(target[lane], 1e-300))
            else:
                divide(target, work[row_j + j])


@vector_kernel
def subtract_product(target, a, b):
    for lane in range(target.shape[0]):
        target[lane] -= a[lane] * b[lane]


@vector_kernel
def divide(target, divisor):
    for lane in range(target.shape[0]):
        target[lane] /= divisor[lane]


@kernel
def lane_evidence(work, n_coef, out):
    """Log evidence, up to what all clusters share, of each lane's augmented precision [[A, b], [bᵀ, c]].

    With L its Cholesky factor: −½ log|A| = −Σ log L_ii over the coefficients, and the last pivot
    squared is c − bᵀA⁻¹b. Destroys `work`.
    """
    lane_cholesky(work, n_coef + 1)
    out[:] = 0.0
    for i in range(n_coef):
        pivot = work[i * (i + 3) // 2]
        for lane in range(out.shape[0]):
            out[lane] -= math.log(pivot[lane])
    last = work[n_coef * (n_coef + 3) // 2]
    for lane in range(out.shape[0]):
        out[lane] -= 0.5 * last[lane] * last[lane]


class CollapsedLaw(NamedTuple):
    """What the collapsed sweep holds fixed. Grams are already divided by σ² and cut to the (x, y) block."""

    prior_precision: FloatArray  # (packed,) the augmented precision of an empty cluster
    prior_weights: FloatArray  # (clusters,) βψ_k; ignored under the paper's weights
    agent_concentration: float
    global_concentration: float  # > 0: the paper's weights; 0: prior_weights
    round: int


@kernel
def collapsed_sweep(entities, law, labels, n_coef):
    """Sequential collapsed Gibbs over all entities, in place. Paper: Algorithm 2.

    Lane k of `work` is cluster k together with the entity, the last lane its present cluster
    without it: one batched factorisation gives every term of
    log p(y_ij | k) = evidence(M_k∖ij + M_ij) − evidence(M_k∖ij).
    """
    n_clusters = law.prior_weights.shape[0]
    packed = entities.grams.shape[1]
    clusters = np.empty((packed, n_clusters))
    for k in range(n_clusters):
        clusters[:, k] = law.prior_precision
    totals = np.zeros(n_clusters)
    for e in range(labels.shape[0]):
        clusters[:, labels[e]] += entities.grams[e]
        totals[labels[e]] += 1.0
    evidence, with_entity = np.empty(n_clusters), np.empty(n_clusters + 1)
    lane_evidence(clusters.copy(), n_coef, evidence)
    work = np.empty((packed, n_clusters + 1))
    counts, scores, weights = np.empty(n_clusters), np.empty(n_clusters), np.empty(n_clusters)
    base = law.prior_weights.copy()
    for agent in range(entities.agent_start.shape[0] - 1):
        first, last = entities.agent_start[agent], entities.agent_start[agent + 1]
        count_labels(labels, first, last, counts)
        for e in range(first, last):
            own, gram = labels[e], entities.grams[e]
            clusters[:, own] -= gram
            totals[own] -= 1.0
            counts[own] -= 1.0
            for p in range(packed):
                for k in range(n_clusters):
                    work[p, k] = clusters[p, k] + gram[p]
                work[p, n_clusters] = clusters[p, own]
            lane_evidence(work, n_coef, with_entity)
            evidence[own] = with_entity[n_clusters]
            if law.global_concentration > 0.0:
                paper_weights(law, totals, float(labels.shape[0] - 1), base)
            for k in range(n_clusters):
                scores[k] = with_entity[k] - evidence[k]
            total = label_weights(scores, counts, base, weights)
            u_label, _, _ = keyed_uniforms(
                entities.agent_streams[agent], entities.entity_keys[e], law.round, _ENTITY_DRAW
            )
            k = pick(weights, u_label * total)
            counts[k] += 1.0
            totals[k] += 1.0
            labels[e] = k
            clusters[:, k] += gram
            evidence[k] = with_entity[k]


@kernel
def paper_weights(law, totals, n_others, out):
    """The paper's stand-in for βψ_k: β (N^(k) + α/K) / (N + α), own label removed. Paper: eq. (prior)."""
    alpha, n_clusters = law.global_concentration, totals.shape[0]
    for k in range(n_clusters):
        out[k] = law.agent_concentration * (totals[k] + alpha / n_clusters) / (n_others + alpha)


@kernel
def sum_by_label(entities, law, labels, sums):
    """The sums of `relabel_agents` for labels drawn elsewhere (by `collapsed_sweep`)."""
    seen = np.empty(law.prior_weights.shape[0])
    for agent in range(entities.agent_start.shape[0] - 1):
        for e in range(entities.agent_start[agent], entities.agent_start[agent + 1]):
            add_row(sums.grams[labels[e]], entities.grams[e])
        seat_agent(entities, agent, labels, law, seen, sums)


@kernel
def responsibilities(grams, score_rows, prior_weights, others, out):
    """p(z_e = k | everything else of one draw); `others`: (entities, clusters) counts of each agent's other entities."""
    n_clusters = prior_weights.shape[0]
    scores = np.empty((CHUNK, score_rows.shape[0]))
    for chunk in range(0, grams.shape[0], CHUNK):
        chunk_end = min(chunk + CHUNK, grams.shape[0])
        score_chunk(grams, chunk, chunk_end, score_rows, scores)
        for e in range(chunk, chunk_end):
            total = label_weights(scores[e - chunk], others[e], prior_weights, out[e])
            for k in range(n_clusters):
                out[e, k] /= total


class Mixture(NamedTuple):
    """Mixtures of normals over (draw, cluster), one for each profile."""

    weights: FloatArray  # (profiles, components)
    coef: FloatArray  # (components, n_coef)
    scales: FloatArray  # (components,)


# Components of less weight than this are passed over: their share of any figure is below its last digit.
NEGLIGIBLE = 1e-12


@kernel
def mixture_rows(mixture, design, profile, levels, normal_levels, mean_out, std_out, quantiles_out, first, last):
    """Mean, standard deviation and quantiles of rows [first, last) of `design`, row r under profile[r]."""
    n_components, n_coef = mixture.coef.shape
    means, weights, scales = np.empty(n_components), np.empty(n_components), np.empty(n_components)
    for r in range(first, last):
        n_kept = 0
        mean = second = 0.0
        for c in range(n_components):
            weight = mixture.weights[profile[r], c]
            if weight > NEGLIGIBLE:
                centre = 0.0
                for f in range(n_coef):
                    centre += mixture.coef[c, f] * design[r, f]
                means[n_kept], weights[n_kept], scales[n_kept] = centre, weight, mixture.scales[c]
                mean += weight * centre
                n_kept += 1
        for c in range(n_kept):
            second += weights[c] * (scales[c] ** 2 + (means[c] - mean) ** 2)
        mean_out[r], std_out[r] = mean, math.sqrt(second)
        for q in range(levels.shape[0]):
            start = mean + normal_levels[q] * std_out[r]
            quantiles_out[r, q] = mixture_quantile(means[:n_kept], weights[:n_kept], scales[:n_kept], levels[q], start)


@kernel
def mixture_quantile(means, weights, scales, level, start):
    """Quantile of a mixture of normals: Newton's method, with bisection where it leaves the bracket."""
    low, high = np.inf, -np.inf
    for c in range(means.shape[0]):
        low, high = min(low, means[c] - 40.0 * scales[c]), max(high, means[c] + 40.0 * scales[c])
    tolerance = 1e-10 * (high - low)
    x = start
    for _ in range(200):
        mass = density = 0.0
        for c in range(means.shape[0]):
            z = (x - means[c]) / scales[c]
            mass += weights[c] * 0.5 * math.erfc(-z * 0.7071067811865476)
            density += weights[c] * math.exp(-0.5 * z * z) * 0.3989422804014327 / scales[c]
        if mass < level:
            low = x
        else:
            high = x
        proposal = x - (mass - level) / density if density > 0.0 else low
        if not low < proposal < high:
            proposal = 0.5 * (low + high)
        moved = abs(proposal - x)
        x = proposal
        if moved <= tolerance:
            break
    return x
