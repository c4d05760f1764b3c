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
    load_four,
    prefetch,
    spread,
    store,
    store_four,
)

# Least diagonal element of an effective matrix, as a share of what it was: below are rounding errors.
LEAST_DIAGONAL = 1e-14
# Rows of U that are computed at once: a matrix is read and written once for each block.
BLOCK = 4


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

    root: FloatArray  # (effects, a multiple of BLOCK) Λ; columns that are added are 0
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
    width = law.coef.shape[1] + law.first + 1
    columns = law.columns
    n_effects = law.columns.shape[0]
    table = np.empty((width, width), dtype=np.int64)
    places = np.empty((width, n_effects), dtype=np.int64)
    for i in range(width):
        for j in range(width):
            table[i, j] = place(i, j)
        for r in range(n_effects):
            places[i, r] = place(i, columns[r])
    n_rows = -(-n_effects // BLOCK) * BLOCK
    root = np.empty((n_effects, n_rows))
    ends = np.empty(n_rows, dtype=np.int64)
    for r in range(n_rows):
        ends[r] = 0
        for c in range(n_effects):
            root[c, r] = law.root[c, r] if r <= c else 0.0
            ends[r] = c + 1 if root[c, r] != 0.0 else ends[r]
    return EffectColumns(root, ends, columns, places, table, law.first)


@kernel
def empty_roots(n_entities, n_effects, width):
    """(groups, a multiple of BLOCK, width + 1, lanes) space for U of all entities, SIDE_BY_SIDE of them in each group.

    Entry (g, r, i) is that of row r and column i of U, and entry (g, r, width) is 1/L_rr.
    """
    n_groups = -(-n_entities // SIDE_BY_SIDE)
    n_rows = -(-n_effects // BLOCK) * BLOCK
    return empty_lanes(n_groups * n_rows * (width + 1)).reshape(n_groups, n_rows, width + 1, SIDE_BY_SIDE)


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
    space = matrix_space(of, grams.shape[1])
    n_effects = of.columns.shape[0]
    width = of.table.shape[0]
    roots = empty_roots(1, n_effects, width)
    for at in range(first_entity, last_entity, SIDE_BY_SIDE):
        effective_group(grams, variance, entities, (at, last_entity), of, space, (roots, 0), out)
        if log_dets.shape[0] > 0:
            for lane in range(min(SIDE_BY_SIDE, last_entity - at)):
                e = entities[at + lane]
                log_dets[e] = 0.0
                for r in range(n_effects):
                    log_dets[e] -= 2.0 * math.log(roots[0, r, width, lane])


@kernel
def matrix_space(of, packed):
    """Scratch space for `effective_group`: matrices, their precisions, and least diagonal elements."""
    return empty_lanes(packed), empty_lanes(1), empty_lanes(of.table.shape[0])


@kernel
def effective_group(grams, variance, entities, bounds, of, space, root, out):
    """Write the effective matrices of the first SIDE_BY_SIDE entities within `bounds` to their rows of `out`.

    U is written to `root`, which is a group of `empty_roots` and its number.
    """
    (at, last_entity), (m, precision, least), (u, group) = bounds, space, root
    n_lanes = min(SIDE_BY_SIDE, last_entity - at)
    first = of.first
    width = of.table.shape[0]
    table = of.table
    load_lanes(grams, variance, entities, at, n_lanes, m, precision)
    for lane in range(SIDE_BY_SIDE):
        # what is needed after this: the rows of these entities in `out`, and the next entities
        prefetch(out, entities[min(at + lane, last_entity - 1)])
        prefetch(grams, entities[min(at + SIDE_BY_SIDE + lane, last_entity - 1)])
    for i in range(first, width):
        store(least, i, LEAST_DIAGONAL * load(m, table[i, i]) * load(precision, 0))
    integrate_effects(m, precision, of, u, group)
    for i in range(first, width):
        # of columns that effects explain completely, rounding leaves something of either sign
        store(m, table[i, i], larger(load(m, table[i, i]), load(least, i)))
    for lane in range(n_lanes):
        e = entities[at + lane]
        for p in range(grams.shape[1]):
            out[e, p] = m[p, lane]


@kernel
def integrate_effects(m, precision, of, u, group):
    """Replace matrices by effective ones, BLOCK rows of U at a time; U is written to a group of `u`."""
    by = load(precision, 0)
    for p in range(m.shape[0]):
        store(m, p, by * load(m, p))
    for r in range(0, u.shape[1], BLOCK):
        multiply_rows(m, of, u, group, r)
        scale_rows(u, group, r, of)
        subtract_squares(u, group, r, of.first, m)


@kernel
def multiply_rows(m, of, u, group, r):
    """Write M·λ to `u`, for BLOCK columns λ of Λ from r on.

    One row and BLOCK columns at once: the sums fit into 16 registers and do not wait for each other.
    """
    root = of.root
    places = of.places
    end = 0
    for k in range(BLOCK):
        end = max(end, of.ends[r + k])
    for i in range(of.first, places.shape[0]):
        a = spread(0.0)
        b = spread(0.0)
        c = spread(0.0)
        d = spread(0.0)
        for t in range(r, end):
            x = load(m, places[i, t])
            a = a + root[t, r] * x
            b = b + root[t, r + 1] * x
            c = c + root[t, r + 2] * x
            d = d + root[t, r + 3] * x
        store_four(u, (group, r, i), a, b, c, d)


@kernel
def scale_rows(u, group, r, of):
    """Replace M·λ by rows of U = L⁻¹Λᵀ[G g], BLOCK of them from r on, and write the inverses of L's diagonal.

    Here M is the matrix from which the squares of the earlier rows of U have been subtracted. So B is I + ΛᵀMΛ in these
    rows and columns, of which BLOCK steps of a Cholesky factorisation give L.
    """
    root = of.root
    columns = of.columns
    first = of.first
    width = of.table.shape[0]
    b00 = spread(1.0)
    b11 = spread(1.0)
    b22 = spread(1.0)
    b33 = spread(1.0)
    b10 = spread(0.0)
    b20 = spread(0.0)
    b30 = spread(0.0)
    b21 = spread(0.0)
    b31 = spread(0.0)
    b32 = spread(0.0)
    for c in range(r, root.shape[0]):
        f = root[c, r]
        g = root[c, r + 1]
        h = root[c, r + 2]
        q = root[c, r + 3]
        x0, x1, x2, x3 = load_four(u, (group, r, columns[c]))
        b00 = b00 + f * x0
        b10 = b10 + g * x0
        b20 = b20 + h * x0
        b30 = b30 + q * x0
        b11 = b11 + g * x1
        b21 = b21 + h * x1
        b31 = b31 + q * x1
        b22 = b22 + h * x2
        b32 = b32 + q * x2
        b33 = b33 + q * x3
    i0 = inverse_pivot(b00)
    b10 = i0 * b10
    b20 = i0 * b20
    b30 = i0 * b30
    i1 = inverse_pivot(b11 - b10 * b10)
    b21 = i1 * (b21 - b20 * b10)
    b31 = i1 * (b31 - b30 * b10)
    i2 = inverse_pivot(b22 - b20 * b20 - b21 * b21)
    b32 = i2 * (b32 - b30 * b20 - b31 * b21)
    i3 = inverse_pivot(b33 - b30 * b30 - b31 * b31 - b32 * b32)
    for i in range(first, width):
        x0, x1, x2, x3 = load_four(u, (group, r, i))
        x0 = i0 * x0
        x1 = i1 * (x1 - b10 * x0)
        x2 = i2 * (x2 - b20 * x0 - b21 * x1)
        x3 = i3 * (x3 - b30 * x0 - b31 * x1 - b32 * x2)
        store_four(u, (group, r, i), x0, x1, x2, x3)
    store_four(u, (group, r, width), i0, i1, i2, i3)


@kernel
def inverse_pivot(pivot):
    """1/√pivot; without rounding errors pivots are at least 1."""
    return inverse_root(larger(pivot, spread(1.0)))


@kernel
def subtract_squares(u, group, r, first, m):
    """M −= uuᵀ for BLOCK rows u of U from r on, from row and column `first` of M on."""
    for i in range(first, u.shape[2] - 1):
        p = i * (i + 1) // 2
        x0, x1, x2, x3 = load_four(u, (group, r, i))
        for j in range(first, i + 1):
            y0, y1, y2, y3 = load_four(u, (group, r, j))
            store(m, p + j, load(m, p + j) - x0 * y0 - x1 * y1 - x2 * y2 - x3 * y3)


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
    for i in range(rows.shape[0]):
        move_target(grams[rows[i]], steps[step_of[rows[i]]], first, products)
