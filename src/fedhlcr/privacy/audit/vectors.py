"""Read a vector of integers, as devices add it up in a round, as sums by cluster."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedhlcr.federation.fixed_sums import Integers, VectorLayout
from fedhlcr.model.schema import GRAMS
from fedhlcr.privacy.audit.view import Statement
from fedhlcr.privacy.fixed_point import FRACTION_BITS, N_HALVES, N_LIMBS, decode, decode_wide

# The rounding error of one number in fixed point.
HALF_UNIT = 2.0 ** -(FRACTION_BITS + 1)
# The columns of a row before its blocks: the counts of entities and tables.
N_COUNTS = 2


def read_vector(values: Integers, vectors: VectorLayout, like: Statement) -> Statement:
    """The statement of a vector, without empty clusters; `like` has what a vector does not hold."""
    matrix = vectors.matrix(values)
    used = matrix.any(axis=1)
    matrix = matrix[used]
    first = N_COUNTS + N_HALVES * _offset(vectors)
    size = next(block.size for block in vectors.schema.blocks if block.name == GRAMS)
    limbs = matrix[:, first : first + N_HALVES * size].reshape(len(matrix), size, N_HALVES)
    changed = vectors.n_row_values + N_LIMBS * vectors.schema.scalar_names.index("labels_changed")
    return replace(
        like,
        clusters=vectors.rows[used].astype(np.int32),
        entity_counts=matrix[:, 0].view(np.int64).astype(np.float64),
        grams=decode(limbs),
        labels_changed=float(decode_wide(values[changed : changed + N_LIMBS])),
    )


def _offset(vectors: VectorLayout) -> int:
    """Numbers in the blocks before that of the matrices."""
    names = [block.name for block in vectors.schema.blocks]
    return sum(block.size for block in vectors.schema.blocks[: names.index(GRAMS)])
