"""The records as arrays, and what follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.figures import standard_error
from experiments.methods import METHODS
from experiments.real.tables import ALL, TABLES
from experiments.study import Record

Events = str | int


class Lead(NamedTuple):
    """How far a method is ahead of another: mean and standard error of the difference, split by split."""

    mean: float
    error: float
    other: str

    @property
    def side(self) -> int:
        """1 if it is ahead, −1 if behind, 0 if both are within a standard error."""
        return int(np.sign(self.mean)) if abs(self.mean) > self.error else 0


@dataclass(frozen=True)
class Scores:
    """One figure of each method on each table, by split.

    Attributes
    ----------
    tables, methods : names of those that were measured
    runs : by number of training events, (tables, methods, splits)
    """

    tables: list[str]
    methods: list[str]
    runs: dict[Events, NDArray[np.float64]]

    @classmethod
    def of(cls, records: Sequence[Record], figure: str) -> Scores:
        found = {
            tuple(record.settings[key] for key in ("events", "table", "method", "split")): record.figures[figure]
            for record in records
        }
        tables = [name for name in TABLES if any(key[1] == name for key in found)]
        methods = [name for name in METHODS if any(key[2] == name for key in found)]
        splits = sorted({key[3] for key in found})
        runs = {
            events: np.array([[[found[events, t, m, s] for s in splits] for m in methods] for t in tables])
            for events in dict.fromkeys(key[0] for key in found)
        }
        return cls(tables, methods, runs)

    @property
    def n_splits(self) -> int:
        return next(iter(self.runs.values())).shape[2]

    def means(self, events: Events) -> NDArray[np.float64]:
        """(tables, methods)"""
        return self.runs[events].mean(axis=2)

    def by_split(self, events: Events, table: str, method: str) -> NDArray[np.float64]:
        """(splits,)"""
        return np.asarray(self.runs[events][self.tables.index(table), self.methods.index(method)])

    def counted(self, events: Events) -> NDArray[np.bool_]:
        """(tables,) whether a table is other data with so many training events than with all."""
        if events == ALL:
            return np.ones(len(self.tables), dtype=bool)
        return np.any(self.runs[events] != self.runs[ALL], axis=(1, 2))

    def mean_ranks(self, events: Events) -> NDArray[np.float64]:
        """(methods,) over the tables that are counted."""
        return mean_ranks(self.means(events)[self.counted(events)])

    def lead(self, events: Events, method: str, others: Sequence[str]) -> dict[str, Lead]:
        """By table that is counted, against the best of others."""
        leads = {}
        for table, counted in zip(self.tables, self.counted(events), strict=True):
            if counted:
                runs = {name: self.by_split(events, table, name) for name in (method, *others)}
                best = max(others, key=lambda other: runs[other].mean())
                ahead = runs[method] - runs[best]
                leads[table] = Lead(float(ahead.mean()), float(standard_error(ahead)), best)
        return leads


def leaders(runs: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which of (methods, splits) are within a standard error of the best, of the difference split by split."""
    behind = runs[runs.mean(axis=1).argmax()] - runs
    return behind.mean(axis=1) <= standard_error(behind.T)


def mean_ranks(means: NDArray[np.float64]) -> NDArray[np.float64]:
    """(methods,) the mean over tables of a method's rank, 1 being best, from (tables, methods).

    Methods that are equal to three digits share their ranks.
    """
    rounded = means.round(3)[:, :, None]
    better = (rounded < rounded.transpose(0, 2, 1)).sum(axis=2)
    equal = (rounded == rounded.transpose(0, 2, 1)).sum(axis=2)
    return np.asarray((better + (equal + 1) / 2).mean(axis=0))
