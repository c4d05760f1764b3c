"""What the server does with the sum of a cohort under secure aggregation: check it, and add it to the running total."""

from __future__ import annotations

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr.federation.fixed_accounts import RunningTotal
from fedhlcr.federation.fixed_sums import Integers, SumTerms
from fedhlcr.federation.rules import DeltaRule, Rule
from fedhlcr.kernels.grams import SOUND, check_grams
from fedhlcr.model.schema import SumSchema
from fedhlcr.model.sums import ClusterSums

# How far from positive semi-definite a total may be, relative to its diagonal: every agent has rounded its sums.
TOLERANCE = 1e-5


def running_total(rule: Rule | None) -> RunningTotal:
    """The account of a run under secure aggregation."""
    assert isinstance(rule, DeltaRule)
    assert isinstance(rule.account, RunningTotal)
    return rule.account


def commit(account: RunningTotal, terms: SumTerms, values: Integers, mean_squares: FloatArray) -> str | None:
    """Add a cohort's differences to the total; return why that is impossible, or None."""
    after = account.after(terms.rows, values)
    reason = find_impossible(account.total_of(after), account.vectors.schema, mean_squares)
    if account.vectors.has_strays(after):
        reason = "sums of a cluster without entities"
    if reason is None:
        account.commit(after)
    return reason


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
