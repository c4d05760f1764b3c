"""Checks of what a cohort adds to the running total. Only the total can be checked, not the share of any one agent."""

from __future__ import annotations

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr.kernels.grams import SOUND, check_grams
from fedhlcr.model.schema import SumSchema
from fedhlcr.model.sums import ClusterSums

# How far from positive semi-definite a total may be, relative to its diagonal: every agent has rounded its sums.
TOLERANCE = 1e-5


def find_impossible(total: ClusterSums, schema: SumSchema, mean_squares: FloatArray) -> str | None:
    """Why a total cannot be a sum over agents, or None."""
    for name, counts in (("entity counts", total.entity_counts), ("table counts", total.table_counts)):
        if (counts < 0.0).any():
            return f"negative {name}"
    if (total.table_counts > total.entity_counts).any():
        return "more tables than entities"
    occupied = np.flatnonzero(total.occupied)
    for block in schema.blocks:
        rows = np.ascontiguousarray(total.blocks[block.name][occupied])
        if block.is_gram:
            found = np.empty(len(rows), dtype=np.int64)
            check_grams(rows, mean_squares, TOLERANCE, found)
            if (found != SOUND).any():
                return f"`{block.name}` that are not positive semi-definite"
        elif not block.possible(rows).all():
            return f"impossible `{block.name}`"
    return None
