"""Which entities need no scores, because their labels are certain whatever their scores are.

The score of an entity is −RSS(w)/(2s²), and √RSS(w) = |y − Xw|. So, with G the matrix XᵀX of the entity,

    |√RSS(w') − √RSS(w)| ≤ √(tr G) · |w' − w|.

A sweep that *remembers* keeps √RSS of each entity at its label's cluster, and the least one at another cluster. Until
coefficients have moved too far from those of that sweep, the bound shows that all other clusters together have so
little weight that the uniform number of this sweep, which is known beforehand, picks the old label again. All that is
skipped are scores and the reading of the matrix: labels are bit for bit those of a sweep that scores everyone.

This needs the same s for all entities, so it is used for plain clusters. With noise of entities s moves in each sweep,
and the matrix is needed anyway.
"""

from __future__ import annotations

import math

import numpy as np

from fedhlcr.kernels.compiling import kernel
from fedhlcr.kernels.scores import trace_of

# Score everyone; score everyone and remember; skip those whose labels are certain.
EVERYONE, REMEMBER, SKIP = range(3)
# Relative rounding error of numbers that are remembered in single precision, and more.
ROUNDING = 1e-6
# Rounding errors of the weights and of their sum, and more.
LEAST_ODDS = 1e-13


@kernel
def rounding_error(reach, size, packed):
    """A bound on the rounding error of RSS, a sum of `packed` products of sizes up to |(−w, 1)|² tr M in all."""
    return packed * 2.0**-50 * size * reach * reach


@kernel
def is_certain(roots, moved, scores_law, uniform, most_odds):
    """Whether an entity stays in its cluster under this uniform number.

    All other clusters together weigh at most (N + β) exp(−gap), against at least βψ of the entity's own.

    Parameters
    ----------
    roots : what is remembered of the entity: own root, other root and reach, as numbers of double precision
    moved : how far its own cluster has moved, and the farthest that any cluster has
    scores_law : 1/(2s²), the `size` of `Remembered`, and the length of a packed matrix
    most_odds : (N + β)/(βψ)
    """
    own_root, other_root, reach = roots
    own_moved, farthest = moved
    half_precision, size, packed = scores_law
    up = own_root + reach * own_moved
    low = other_root - reach * farthest
    if not low > up:
        return False
    gap = (low * low - up * up) - 2.0 * rounding_error(np.float64(reach), size, packed)
    doubt = 2.0 * most_odds * math.exp(-min(gap * half_precision, 600.0)) + LEAST_ODDS
    return doubt < uniform < 1.0 - doubt


@kernel
def remember(gram, scores, n_clusters, remembered, e):
    """Keep what `is_certain` needs of an entity with these scores; return its best cluster."""
    best = 0
    most = -np.inf
    second = -np.inf
    for k in range(n_clusters):
        if scores[k] > most:
            best, most, second = k, scores[k], most
        elif scores[k] > second:
            second = scores[k]
    reach = math.sqrt(trace_of(gram)) * (1.0 + ROUNDING)
    error = rounding_error(reach, remembered.size, float(gram.shape[0]))
    own = -most / remembered.half_precision
    other = -second / remembered.half_precision
    remembered.reach[e] = reach
    remembered.own_root[e] = math.sqrt(max(own, 0.0) + error) * (1.0 + ROUNDING)
    remembered.other_root[e] = math.sqrt(max(other - error, 0.0)) * (1.0 - ROUNDING)
    return best
