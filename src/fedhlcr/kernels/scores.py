"""Scores of entities against clusters, in tiles that stay in registers, and their exponentials."""

from __future__ import annotations

import math

import numpy as np
from llvmlite.binding import get_host_cpu_features  # type: ignore[import-untyped]

from fedhlcr.kernels.compiling import finite_kernel, kernel, vector_kernel

# Clusters are scored this many at a time; the rows of scores are padded to a multiple of it.
LANES = 4
# Whether the processor has 32 vector registers. Tiles of four by four need more than 16.
_FEATURES = get_host_cpu_features()
HAS_MANY_REGISTERS = any(_FEATURES.get(name) for name in ("avx512vl", "neon"))


@vector_kernel
def score_fours(grams, listed, n_listed, score_rows, out):
    """Scores of the first n_listed entities in `listed` against all clusters, in tiles of four by four.

    A tile is always full: past the end the last entity is repeated, so that every score is computed by the same
    instructions in the same order.
    """
    packed = grams.shape[1]
    for o in range(0, n_listed, 4):
        o1 = min(o + 1, n_listed - 1)
        o2 = min(o + 2, n_listed - 1)
        o3 = min(o + 3, n_listed - 1)
        e = listed[o]
        e1 = listed[o1]
        e2 = listed[o2]
        e3 = listed[o3]
        for k in range(0, score_rows.shape[0], 4):
            s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = 0.0
            s20 = s21 = s22 = s23 = s30 = s31 = s32 = s33 = 0.0
            for p in range(packed):
                x0 = grams[e, p]
                x1 = grams[e1, p]
                x2 = grams[e2, p]
                x3 = grams[e3, p]
                y0 = score_rows[k, p]
                y1 = score_rows[k + 1, p]
                y2 = score_rows[k + 2, p]
                y3 = score_rows[k + 3, p]
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
            out[o, k] = s00
            out[o, k + 1] = s01
            out[o, k + 2] = s02
            out[o, k + 3] = s03
            out[o1, k] = s10
            out[o1, k + 1] = s11
            out[o1, k + 2] = s12
            out[o1, k + 3] = s13
            out[o2, k] = s20
            out[o2, k + 1] = s21
            out[o2, k + 2] = s22
            out[o2, k + 3] = s23
            out[o3, k] = s30
            out[o3, k + 1] = s31
            out[o3, k + 2] = s32
            out[o3, k + 3] = s33


@vector_kernel
def score_pairs(grams, listed, n_listed, score_rows, out):
    """The same in tiles of two entities by four clusters, which fit into 16 registers."""
    packed = grams.shape[1]
    for o in range(0, n_listed, 2):
        o1 = min(o + 1, n_listed - 1)
        e = listed[o]
        e1 = listed[o1]
        for k in range(0, score_rows.shape[0], 4):
            s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = 0.0
            for p in range(packed):
                x0 = grams[e, p]
                x1 = grams[e1, p]
                y0 = score_rows[k, p]
                y1 = score_rows[k + 1, p]
                y2 = score_rows[k + 2, p]
                y3 = score_rows[k + 3, p]
                s00 = s00 + x0 * y0
                s01 = s01 + x0 * y1
                s02 = s02 + x0 * y2
                s03 = s03 + x0 * y3
                s10 = s10 + x1 * y0
                s11 = s11 + x1 * y1
                s12 = s12 + x1 * y2
                s13 = s13 + x1 * y3
            out[o, k] = s00
            out[o, k + 1] = s01
            out[o, k + 2] = s02
            out[o, k + 3] = s03
            out[o1, k] = s10
            out[o1, k + 1] = s11
            out[o1, k + 2] = s12
            out[o1, k + 3] = s13


score_listed = score_fours if HAS_MANY_REGISTERS else score_pairs


@vector_kernel
def score_single(grams, listed, n_listed, score_rows, out):
    """`score_fours` in single precision; matrices are rounded here, and none is kept."""
    packed = grams.shape[1]
    x = np.empty((4, packed), dtype=np.float32)
    for o in range(0, n_listed, 4):
        for i in range(4):
            e = listed[min(o + i, n_listed - 1)]
            for p in range(packed):
                x[i, p] = grams[e, p]
        o1 = min(o + 1, n_listed - 1)
        o2 = min(o + 2, n_listed - 1)
        o3 = min(o + 3, n_listed - 1)
        for k in range(0, score_rows.shape[0], 4):
            s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = np.float32(0.0)
            s20 = s21 = s22 = s23 = s30 = s31 = s32 = s33 = np.float32(0.0)
            for p in range(packed):
                x0 = x[0, p]
                x1 = x[1, p]
                x2 = x[2, p]
                x3 = x[3, p]
                y0 = score_rows[k, p]
                y1 = score_rows[k + 1, p]
                y2 = score_rows[k + 2, p]
                y3 = score_rows[k + 3, p]
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
            out[o, k] = s00
            out[o, k + 1] = s01
            out[o, k + 2] = s02
            out[o, k + 3] = s03
            out[o1, k] = s10
            out[o1, k + 1] = s11
            out[o1, k + 2] = s12
            out[o1, k + 3] = s13
            out[o2, k] = s20
            out[o2, k + 1] = s21
            out[o2, k + 2] = s22
            out[o2, k + 3] = s23
            out[o3, k] = s30
            out[o3, k + 1] = s31
            out[o3, k + 2] = s32
            out[o3, k + 3] = s33


@kernel
def trace_of(packed):
    """The trace of a packed matrix."""
    trace = 0.0
    i = 1
    p = 0
    while p < packed.shape[0]:
        trace += packed[p]
        i += 1
        p += i
    return trace


@kernel
def single_error(gram, largest):
    """A bound on the error of a score in single precision, where score rows are −c·vvᵀ with c|v|² ≤ `largest`.

    |M_ij| ≤ √(M_ii M_jj), so the sizes of the products add up to `largest` · tr M at most.
    """
    return (gram.shape[0] + 4.0) * 2.0**-24 * largest * trace_of(gram)


@kernel
def largest_trace(score_rows):
    """The largest c|v|² of score rows −c·vvᵀ."""
    largest = 0.0
    for k in range(score_rows.shape[0]):
        largest = max(largest, -trace_of(score_rows[k]))
    return largest


@kernel
def is_in_doubt(weights, k, uniform, total, error):
    """Whether scores that err by up to `error` may have led to another label than k.

    `weights` add up to `total`. The odds of the clusters before k, and of those up to k, err by a factor exp(2 error).
    """
    before = 0.0
    for j in range(k):
        before += weights[j]
    upto = before + weights[k]
    factor = math.exp(2.0 * error) * (1.0 + 1e-9)
    if not 1e-12 < uniform < 1.0 - 1e-12:
        return True
    is_after = before * factor * (1.0 - uniform) <= uniform * (total - before)
    return not (is_after and upto * (1.0 - uniform) > factor * uniform * (total - upto))


@kernel
def score_chunk(grams, first, last, score_rows, out):
    """Scores of entities [first, last) against all clusters."""
    listed = np.empty(last - first, dtype=np.int64)
    for i in range(last - first):
        listed[i] = first + i
    score_listed(grams, listed, last - first, score_rows, out)


# 1/n!
_C2 = 1 / 2
_C3 = 1 / 6
_C4 = 1 / 24
_C5 = 1 / 120
_C6 = 1 / 720
_C7 = 1 / 5040
_C8 = 1 / 40320


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
    flat = scores.reshape(scores.size)
    for i in range(n_rows * n_columns):
        flat[i] = small_exponential(flat[i])
