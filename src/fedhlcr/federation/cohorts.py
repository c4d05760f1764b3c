"""What the server does with the sum of a cohort under secure aggregation: check it, and add it to the running total."""

from __future__ import annotations

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.federation.cohort_checks import find_impossible
from fedhlcr.federation.fixed_accounts import RunningTotal
from fedhlcr.federation.fixed_sums import Integers, SumTerms
from fedhlcr.federation.messages import NEVER
from fedhlcr.federation.registry import Registry
from fedhlcr.federation.rules import DeltaRule, Rule


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


def leaving(registry: Registry) -> IndexArray:
    """Positions of agents that have withdrawn while their sums are still in the total."""
    return np.flatnonzero(registry.withdrawn & (registry.accepted_round != NEVER))
