"""The records as arrays, and what can be told from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.figures import standard_error
from experiments.real.methods import METHODS
from experiments.real.tables import TABLES
from experiments.study import Record

Events = str | int


@dataclass(frozen=True)
class Scores:
    """One figure of each method on each table, by split.

    Attributes
    ----------
    tables : names of those that were measured
    runs : by number of training events, (tables, methods, splits)
    """

    tables: list[str]
    runs: dict[Events, NDArray[np.float64]]

    @classmethod
    def of(cls, records: Sequence[Record], figure: str) -> Scores:
        found = {
            tuple(record.settings[key] for key in ("events", "table", "method", "split")): record.figures[figure]
            for record in records
        }
        tables = [name for name in TABLES if any(key[1] == name for key in found)]
        splits = sorted({key[3] for key in found})
        runs = {
            events: np.array([[[found[events, t, m, s] for s in splits] for m in METHODS] for t in tables])
            for events in dict.fromkeys(key[0] for key in found)
        }
        return cls(tables, runs)

    @property
    def n_splits(self) -> int:
        return next(iter(self.runs.values())).shape[2]

    def means(self, events: Events) -> NDArray[np.float64]:
        """(tables, methods)"""
        return self.runs[events].mean(axis=2)

    def lead(self, events: Events, method: str, others: Sequence[str]) -> dict[str, tuple[float, str]]:
        """By table, how far the method is ahead of the best of others, and which that is."""
        means = dict(zip(METHODS, self.means(events).T, strict=True))
        leads = {}
        for t, table in enumerate(self.tables):
            best = max(others, key=lambda other: means[other][t])
            leads[table] = (float(means[method][t] - means[best][t]), best)
        return leads


def leaders(runs: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which of (methods, splits) are within a standard error of the best, of the difference split by split."""
    behind = runs[runs.mean(axis=1).argmax()] - runs
    return behind.mean(axis=1) <= standard_error(behind.T)


def mean_ranks(means: NDArray[np.float64]) -> NDArray[np.float64]:
    """(methods,) the mean over tables of a method's rank, 1 being best, from (tables, methods)."""
    ranks = 1 + np.argsort(np.argsort(-means, axis=1), axis=1)
    return ranks.mean(axis=0)
