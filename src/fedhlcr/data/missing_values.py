"""Missing values of a table: how many each column has, and of which kind, counted at once or piece by piece."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedhlcr._support.wording import ROW, listed
from fedhlcr.data.columns import LARGEST, rows_missing
from fedhlcr.settings import MissingPolicy

POLICIES: tuple[str, ...] = get_args(MissingPolicy)
MISSING = "missing"
INFINITE = "infinite"
TOO_LARGE = f"too large ({LARGEST:g} or more)"
# Rows with a missing value, by the name of the column; columns without any are left out.
Gaps = Mapping[str, NDArray[np.bool_]]


@dataclass
class _Count:
    """The missing values of one column: their number, and of which kinds they are."""

    count: int = 0
    kinds: list[str] = field(default_factory=list)

    def add(self, column: pa.ChunkedArray, gap: NDArray[np.bool_]) -> None:
        if not gap.any():
            return
        self.count += int(gap.sum())
        found = {MISSING}
        if pa.types.is_floating(column.type):
            values = column.to_numpy()[gap]
            has = {MISSING: np.isnan(values), INFINITE: np.isinf(values), TOO_LARGE: np.isfinite(values)}
            found = {kind for kind, which in has.items() if which.any()}
        self.kinds = [kind for kind in (MISSING, INFINITE, TOO_LARGE) if kind in found or kind in self.kinds]


@dataclass
class MissingCounts:
    """Counts of the missing values of a table, over all rows and over those that are kept.

    Attributes
    ----------
    columns : names of the columns, in the order of messages
    filled : columns whose missing values are replaced; rows with others are dropped
    n_rows, n_with_gaps, n_kept : numbers of rows: all, those with missing values, and those that are not dropped
    overall, kept : by the name of the column, in all rows and in kept ones
    """

    columns: list[str]
    filled: list[str]
    n_rows: int = 0
    n_with_gaps: int = 0
    n_kept: int = 0
    overall: dict[str, _Count] = field(default_factory=dict)
    kept: dict[str, _Count] = field(default_factory=dict)

    def add(self, raw: pa.Table, gaps: Gaps) -> NDArray[np.intp]:
        """Count the next rows, and return those that are kept."""
        dropping = [gap for name, gap in gaps.items() if name not in self.filled]
        dropped = np.logical_or.reduce(dropping) if dropping else np.zeros(len(raw), dtype=bool)
        for name, gap in gaps.items():
            self.overall.setdefault(name, _Count()).add(raw[name], gap)
            if name in self.filled:
                self.kept.setdefault(name, _Count()).add(raw[name], gap & ~dropped)
        self.n_rows += len(raw)
        self.n_kept += int((~dropped).sum())
        if gaps:
            self.n_with_gaps += int(np.logical_or.reduce(list(gaps.values())).sum())
        return np.flatnonzero(~dropped)

    def n_filled(self, name: str) -> int:
        """Missing values of a column in kept rows."""
        return self.kept[name].count if name in self.kept else 0

    @property
    def kinds(self) -> str:
        """What is wrong with the values that count as missing."""
        return _kinds(self.overall.values())

    @property
    def counts(self) -> str:
        """How many rows of each column lack a value."""
        return _counts({name: self.overall[name] for name in self.columns if name in self.overall})

    def all_missing(self) -> str:
        return f"every row has {self.kinds} values: {self.counts}"

    def notes(self) -> list[str]:
        """What was done to the table, for the user."""
        notes = []
        if self.n_kept < self.n_rows:
            kinds = _kinds(count for name, count in self.overall.items() if name not in self.filled)
            notes.append(f"dropped {ROW.count(self.n_rows - self.n_kept)} with {kinds} values")
        if filled := {name: self.kept[name] for name in sorted(self.kept) if self.kept[name].count}:
            notes.append(f"filled {_kinds(filled.values())} values: {_counts(filled)}")
        return notes

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        overall, kept = ({n: _Count(**count) for n, count in value[which].items()} for which in ("overall", "kept"))
        return cls(**{**value, "overall": overall, "kept": kept})


def find_gaps(raw: pa.Table, columns: Iterable[str | None], ids: Collection[str]) -> dict[str, NDArray[np.bool_]]:
    """Return which rows lack a value, for each of the columns that is there and has such rows."""
    present = [name for name in columns if name is not None and name in raw.column_names]
    gaps = {name: rows_missing(raw[name], is_id=name in ids) for name in present}
    return {name: gap for name, gap in gaps.items() if gap.any()}


def _kinds(counts: Iterable[_Count]) -> str:
    found = {kind for count in counts for kind in count.kinds}
    return listed([kind for kind in (MISSING, INFINITE, TOO_LARGE) if kind in found], "or")


def _counts(counts: Mapping[str, _Count]) -> str:
    return ", ".join(f"{name!r} {count.count:,}" for name, count in counts.items())
