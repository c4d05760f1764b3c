"""Kernels on packed Gram matrices: accumulate, sum by cluster, change units, check."""

from __future__ import annotations

import numpy as np

from fedhlcr.kernels.compiling import kernel, vector_kernel
from fedhlcr.kernels.vectors import total_of

# Number of matrices that are factored at once, in vector lanes.
SIDE_BY_SIDE = 32
SOUND, NOT_FINITE, NOT_POSITIVE = range(3)


@kernel
def accumulate_grams(X, y, weight, event_start, shifts, shift_of, grams, first, last):
    """Add w·x̃x̃ᵀ of every event of entities [first, last) to their packed grams; x̃ = (1, x, y) − shift.

    The shift of entity e is shifts[shift_of[e]].
    """
    n_features = X.shape[1]
    row = np.empty(n_features + 2)
    for e in range(first, last):
        shift = shift_of[e]
        for n in range(event_start[e], event_start[e + 1]):
            row[0] = 1.0
            for f in range(n_features):
                row[f + 1] = X[n, f] - shifts[shift, f]
            row[n_features + 1] = y[n] - shifts[shift, n_features]
            p = 0
            for i in range(n_features + 2):
                weighted = weight[n] * row[i]
                for j in range(i + 1):
                    grams[e, p] += weighted * row[j]
                    p += 1


@kernel
def group_means(X, y, weight, group_start, out):
    """Weighted means of (x, y) over the events of each group.

    In two passes, so that the mean of a constant column is exactly the constant.
    """
    n_features = X.shape[1]
    step = np.empty(n_features + 1)
    for group in range(group_start.shape[0] - 1):
        for f in range(out.shape[1]):
            out[group, f] = 0.0
        total = total_of(weight[group_start[group] : group_start[group + 1]])
        for _ in range(2):
            for f in range(n_features + 1):
                step[f] = 0.0
            for n in range(group_start[group], group_start[group + 1]):
                share = weight[n] / total
                for f in range(n_features):
                    step[f] += share * (X[n, f] - out[group, f])
                step[n_features] += share * (y[n] - out[group, n_features])
            for f in range(n_features + 1):
                out[group, f] += step[f]


@vector_kernel
def move_grams(grams, old_labels, labels, clusters):
    """Update the clusters' sums from old to new labels; only entities that moved are touched. Old label −1: none."""
    for e in range(labels.shape[0]):
        source = old_labels[e]
        target = labels[e]
        if source != target:
            for p in range(grams.shape[1]):
                clusters[target, p] += grams[e, p]
            if source >= 0:
                for p in range(grams.shape[1]):
                    clusters[source, p] -= grams[e, p]


@kernel
def sum_rows(rows):
    """(columns,) Σ_r rows[r], added up in the order of the rows."""
    out = np.zeros(rows.shape[1])
    for r in range(rows.shape[0]):
        own = rows[r]
        for p in range(own.shape[0]):
            out[p] += own[p]
    return out


@vector_kernel
def add_rows(rows, targets, out):
    """out[targets[r]] += rows[r], in the order of the rows."""
    for r in range(rows.shape[0]):
        for p in range(rows.shape[1]):
            out[targets[r], p] += rows[r, p]


@vector_kernel
def add_chosen(rows, chosen, targets, out):
    """out[targets[r]] += rows[r] for each r in `chosen`, in their order."""
    for r in chosen:
        for p in range(rows.shape[1]):
            out[targets[r], p] += rows[r, p]


@vector_kernel
def sum_by_cluster(grams, agent_start, agents, labels, row_start, entity_counts, out):
    """Sum the matrices of each agent by cluster.

    Rows [row_start[i], row_start[i + 1]) of `out` get the sums of agents[i], one for each occupied cluster, in order.
    """
    n_clusters = entity_counts.shape[1]
    row_of = np.empty(n_clusters, dtype=np.int64)
    for i in range(agents.shape[0]):
        row = row_start[i]
        for k in range(n_clusters):
            row_of[k] = row
            row += entity_counts[i, k] > 0
        for r in range(row_start[i], row_start[i + 1]):
            for p in range(out.shape[1]):
                out[r, p] = 0.0
        for e in range(agent_start[agents[i]], agent_start[agents[i] + 1]):
            r = row_of[labels[e]]
            for p in range(grams.shape[1]):
                out[r, p] += grams[e, p]


@kernel
def change_units(grams, agent_start, offsets, inverse_scale):
    """Move matrices from each agent's own shift to a common one, then scale them, in place.

    With d = own shift − common shift: Σ(x + d)(x + d)ᵀ = Σxxᵀ + d(Σx)ᵀ + (Σx)dᵀ + n·ddᵀ.
    `offsets` is d, (agents, width − 1); `inverse_scale` is (width − 1,); both over (x, y).
    """
    width = inverse_scale.shape[0] + 1
    sums = np.empty(width)
    for agent in range(agent_start.shape[0] - 1):
        for e in range(agent_start[agent], agent_start[agent + 1]):
            n = grams[e, 0]
            for i in range(1, width):
                sums[i] = grams[e, i * (i + 1) // 2]
            for i in range(1, width):
                row = i * (i + 1) // 2
                d_i = offsets[agent, i - 1]
                scale_i = inverse_scale[i - 1]
                grams[e, row] = (sums[i] + n * d_i) * scale_i
                for j in range(1, i + 1):
                    d_j = offsets[agent, j - 1]
                    moved = grams[e, row + j] + d_i * sums[j] + d_j * sums[i] + n * d_i * d_j
                    grams[e, row + j] = moved * scale_i * inverse_scale[j - 1]


@vector_kernel
def check_grams(grams, units, tolerance, out):
    """Write SOUND, NOT_FINITE or NOT_POSITIVE for each matrix M.

    SOUND means that all pivots of M + tolerance·(diag M + n·diag u) are ≥ 0. `units` is u, (width,): a typical mean
    square of each column. Rounding errors are relative to it, not to the single matrix.
    """
    width = units.shape[0]
    packed = grams.shape[1]
    work = np.empty((packed, SIDE_BY_SIDE))
    pivots = np.empty(SIDE_BY_SIDE)
    inverse = np.empty(SIDE_BY_SIDE)
    factor = np.empty(SIDE_BY_SIDE)
    lowest = np.empty(SIDE_BY_SIDE)
    nothing = np.empty(SIDE_BY_SIDE)
    n_lanes = lowest.shape[0]
    for first in range(0, grams.shape[0], SIDE_BY_SIDE):
        last = min(first + SIDE_BY_SIDE, grams.shape[0])
        for lane in range(n_lanes):
            r = min(first + lane, last - 1)
            # 0 · x is 0 unless x is NaN or infinite
            sum_of_nothing = 0.0
            for p in range(packed):
                sum_of_nothing += 0.0 * grams[r, p]
            nothing[lane] = sum_of_nothing
            lowest[lane] = 0.0
            for p in range(packed):
                work[p, lane] = grams[r, p]
        for j in range(width - 1, -1, -1):
            # the corner comes last: it holds n, which all other entries need unchanged
            for lane in range(n_lanes):
                work[j * (j + 3) // 2, lane] *= 1.0 + tolerance
                work[j * (j + 3) // 2, lane] += tolerance * units[j] * work[0, lane]
        for j in range(width):
            row_j = j * (j + 1) // 2
            for lane in range(n_lanes):
                pivots[lane] = work[row_j + j, lane]
                lowest[lane] = min(lowest[lane], pivots[lane])
                inverse[lane] = 1.0 / pivots[lane] if pivots[lane] > 0.0 else 0.0
            for i in range(j + 1, width):
                row_i = i * (i + 1) // 2
                for lane in range(n_lanes):
                    # the row of a zero pivot must be zero
                    stray = 0.0 if pivots[lane] > 0.0 else -abs(work[row_i + j, lane])
                    lowest[lane] = min(lowest[lane], stray)
                    factor[lane] = work[row_i + j, lane] * inverse[lane]
                for t in range(j + 1, i + 1):
                    row_t = t * (t + 1) // 2
                    for lane in range(n_lanes):
                        work[row_i + t, lane] -= factor[lane] * work[row_t + j, lane]
        for r in range(first, last):
            finite = nothing[r - first] == 0.0
            out[r] = NOT_FINITE if not finite else NOT_POSITIVE if lowest[r - first] < 0.0 else SOUND
