"""Effective Gram matrices: the effects of entities are integrated out.

With G, g, q the blocks of an entity's Gram matrix divided by its noise variance, D = ΛΛᵀ and B = I + ΛᵀGΛ = LLᵀ:

    effective matrix   M̃ = M − UᵀU,  U = L⁻¹Λᵀ[G g]       the entity's effect b ~ N(0, D) is integrated out

No inverse of D is needed, so D may be singular. Several entities are computed at once, one in each lane of a vector.
`reference` has slow versions.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.kernels.compiling import kernel, vector_kernel
from fedhlcr.kernels.lanes import (
    SIDE_BY_SIDE,
    empty_lanes,
    inverse_root,
    larger,
    load,
    prefetch,
    spread,
    store,
    store_pair,
)

# Least diagonal element of an effective matrix, as a share of what it was: below are rounding errors.
LEAST_DIAGONAL = 1e-14


class EffectsLaw(NamedTuple):
    """What is given while agents draw effects and noise."""

    coef: FloatArray  # (clusters, n_coef)
    root: FloatArray  # (effects, effects) Λ, lower triangular
    columns: IndexArray  # (effects,) positions of the columns with an entity effect in the augmented matrix
    agent_scale: FloatArray  # (n_coef,) standard deviations of the agents' effects; 0 for none
    noise_scale: float
    noise_shape: float  # ν; infinite if all entities have the same noise
    noise_unit: float  # sums count noise variances in units of its square
    first: int  # position of the first regressor in the augmented matrix: 0 with an intercept, else 1
    n_linear: int  # number of coefficients that may have effects; those of curves come after them
    given_effects: bool  # whether the data matrices are summed given the effects, or with these integrated out
    round: int


class EffectColumns(NamedTuple):
    """Λ, and where the entries of packed matrices are that it multiplies."""

    root: FloatArray  # (effects, effects or one more) Λ with an even number of columns; one that is added is 0
    ends: IndexArray  # (columns of root,) the ends of their entries that are not 0; Λ may be diagonal
    columns: IndexArray  # (effects,) see EffectsLaw
    places: IndexArray  # (width, effects) positions of the columns' entries in the packed matrix
    table: IndexArray  # (width, width) positions of all entries
    first: int


@kernel
def place(i, j):
    """Position of entry (i, j) of a symmetric matrix in its packed form."""
    return i * (i + 1) // 2 + j if i >= j else j * (j + 1) // 2 + i


@kernel
def effect_columns(law):
    """Λ, and where its columns are."""
    width, columns, n_effects = law.coef.shape[1] + law.first + 1, law.columns, law.columns.shape[0]
    table = np.empty((width, width), dtype=np.int64)
    for i in range(width):
        for j in range(width):
            table[i, j] = place(i, j)
    root = np.zeros((n_effects, n_effects + n_effects % 2))
    ends = np.zeros(root.shape[1], dtype=np.int64)
    for r in range(n_effects):
        for c in range(r, n_effects):
            root[c, r] = law.root[c, r]
            ends[r] = c + 1 if root[c, r] != 0.0 else ends[r]
    return EffectColumns(root, ends, columns, np.ascontiguousarray(table[:, columns]), table, law.first)


@kernel
def load_lanes(grams, variance, entities, at, n_lanes, m, precision):
    """Write matrices and precisions of up to SIDE_BY_SIDE entities to m (packed, lanes) and precision (1, lanes).

    Past the end the last entity is repeated.
    """
    for lane in range(SIDE_BY_SIDE):
        e = entities[at + min(lane, n_lanes - 1)]
        precision[0, lane] = 1.0 / variance[e]
        for p in range(grams.shape[1]):
            m[p, lane] = grams[e, p]


@kernel
def effective_grams(grams, variance, entities, first_entity, last_entity, law, out, log_dets):
    """Write the effective matrices of entities[first_entity:last_entity] to their rows of `out`.

    Their rows of `log_dets` become log |B|, unless it is empty.
    """
    of = effect_columns(law)
    width, n_columns = of.table.shape[0], of.root.shape[1]
    m, precision, pivots = empty_lanes(grams.shape[1]), empty_lanes(1), empty_lanes(n_columns)
    u = empty_lanes(2 * width).reshape(width, 2, SIDE_BY_SIDE)
    least, rows = empty_lanes(width), np.arange(law.first, width)
    for at in range(first_entity, last_entity, SIDE_BY_SIDE):
        n_lanes = min(SIDE_BY_SIDE, last_entity - at)
        load_lanes(grams, variance, entities, at, n_lanes, m, precision)
        start_effective(m, precision, of, least)
        for r in range(0, n_columns, 2):
            for lane in range(r // 2, SIDE_BY_SIDE, n_columns // 2):
                # what is needed after this: the rows of these entities in `out`, and the next entities
                prefetch(out, entities[min(at + lane, last_entity - 1)])
                prefetch(grams, entities[min(at + SIDE_BY_SIDE + lane, last_entity - 1)])
            multiply_rows(m, of, rows, 0, r, u)
            scale_rows(u, of, r, pivots)
            subtract_squares(u, law.first, m)
        for i in rows:
            # of columns that effects explain completely, rounding leaves something of either sign
            store(m, of.table[i, i], larger(load(m, of.table[i, i]), load(least, i)))
        for lane in range(n_lanes):
            e = entities[at + lane]
            for p in range(grams.shape[1]):
                out[e, p] = m[p, lane]
            if log_dets.shape[0] > 0:
                log_dets[e] = 0.0
                for r in range(n_columns):
                    log_dets[e] += math.log(pivots[r, lane])


@kernel
def start_effective(m, precision, of, least):
    """Multiply the matrices by their precisions, and write the least diagonal elements of the effective ones."""
    by = load(precision, 0)
    for p in range(m.shape[0]):
        store(m, p, by * load(m, p))
    for i in range(least.shape[0]):
        store(least, i, LEAST_DIAGONAL * load(m, of.table[i, i]))


@kernel
def multiply_rows(m, of, rows, start, r, out):
    """Write rows rows[start:] of M·λ and M·λ' to `out` (width, 2, lanes), with λ and λ' columns r and r + 1 of Λ.

    Four rows and two columns at once: what is loaded is used twice, and the sums do not wait for each other.
    """
    n, root, places, end = rows.shape[0], of.root, of.places, max(of.ends[r], of.ends[r + 1])
    for k in range(start, n, 4):
        i0, i1, i2, i3 = rows[k], rows[min(k + 1, n - 1)], rows[min(k + 2, n - 1)], rows[min(k + 3, n - 1)]
        a0, a1, a2, a3 = spread(0.0), spread(0.0), spread(0.0), spread(0.0)
        b0, b1, b2, b3 = spread(0.0), spread(0.0), spread(0.0), spread(0.0)
        for c in range(r, end):
            x0, x1 = load(m, places[i0, c]), load(m, places[i1, c])
            x2, x3 = load(m, places[i2, c]), load(m, places[i3, c])
            f, g = root[c, r], root[c, r + 1]
            a0, a1, a2, a3 = a0 + f * x0, a1 + f * x1, a2 + f * x2, a3 + f * x3
            b0, b1, b2, b3 = b0 + g * x0, b1 + g * x1, b2 + g * x2, b3 + g * x3
        store_pair(out, i0, a0, b0)
        store_pair(out, i1, a1, b1)
        store_pair(out, i2, a2, b2)
        store_pair(out, i3, a3, b3)


@kernel
def scale_rows(u, of, r, pivots):
    """Replace M·λ and M·λ' by rows r and r + 1 of U = L⁻¹Λᵀ[G g], and write the squares of L's diagonal.

    Here M is the matrix from which the squares of the rows of U before r have been subtracted. So B is I + ΛᵀMΛ in its
    rows r and r + 1, of which two steps of a Cholesky factorisation give L.
    """
    root, columns, first = of.root, of.columns, of.first
    pivot, below, other = spread(1.0), spread(0.0), spread(1.0)
    for c in range(r, root.shape[0]):
        x, y = load(u, (columns[c], 0)), load(u, (columns[c], 1))
        pivot, below, other = pivot + root[c, r] * x, below + root[c, r + 1] * x, other + root[c, r + 1] * y
    # without rounding errors pivots are at least 1
    pivot = larger(pivot, spread(1.0))
    inverse = inverse_root(pivot)
    below = inverse * below
    other = larger(other - below * below, spread(1.0))
    other_inverse = inverse_root(other)
    store(pivots, r, pivot)
    store(pivots, r + 1, other)
    for i in range(first, u.shape[0]):
        x = inverse * load(u, (i, 0))
        store(u, (i, 0), x)
        store(u, (i, 1), other_inverse * (load(u, (i, 1)) - below * x))


@kernel
def subtract_squares(u, first, m):
    """M −= uuᵀ for both columns of u, from row and column `first` on."""
    for i in range(first, u.shape[0]):
        own, other, p = load(u, (i, 0)), load(u, (i, 1)), i * (i + 1) // 2
        for j in range(first, i + 1):
            store(m, p + j, load(m, p + j) - own * load(u, (j, 0)) - other * load(u, (j, 1)))


@vector_kernel
def move_target(gram, step, first, products):
    """Replace y by y − xᵀstep in a packed Gram matrix, in place. `products` (width,) is scratch space."""
    width = step.shape[0] + first + 1
    last = width * (width - 1) // 2
    square = gram[last + width - 1]
    for i in range(width - 1):
        products[i] = 0.0
        for j in range(step.shape[0]):
            products[i] += gram[place(i, first + j)] * step[j]
    for j in range(step.shape[0]):
        square += step[j] * (products[first + j] - 2.0 * gram[last + first + j])
    for i in range(width - 1):
        gram[last + i] -= products[i]
    gram[last + width - 1] = max(square, 0.0)


@vector_kernel
def move_targets(grams, rows, step_of, steps, first):
    """`move_target` for the given rows of `grams`, row r by steps[step_of[r]]."""
    products = np.empty(steps.shape[1] + first + 1)
    for r in rows:
        move_target(grams[r], steps[step_of[r]], first, products)
