"""Tables as dataframes of the user's library. Each library is imported only where it is asked for."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from importlib.util import find_spec
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import IndexArray
from fedhlcr.data.ids import Ids, canonical_text
from fedhlcr.exceptions import ArgumentError, MissingDependencyError

LibraryName = Literal["pandas", "polars", "pyarrow"]
LIBRARIES: tuple[str, ...] = get_args(LibraryName)
# Types of ids that columns of every library can hold.
PLAIN_TYPES = (bool, int, float, str, datetime.datetime, datetime.date, np.datetime64, Decimal)


@dataclass(frozen=True, eq=False)
class IdColumn:
    """A column of ids: the distinct ones as the user wrote them, and the position of each row's."""

    distinct: NDArray[np.object_]
    codes: IndexArray

    @classmethod
    def of(cls, ids: Ids, codes: IndexArray) -> IdColumn:
        return cls(ids.values, codes)

    @property
    def values(self) -> NDArray[np.object_]:
        return self.distinct[self.codes]

    def __len__(self) -> int:
        return len(self.codes)


Columns = Mapping[str, NDArray[Any] | IdColumn]


def library_of(X: Any) -> str | None:
    """The name of the dataframe library that X comes from; None for arrays, and for other libraries."""
    if isinstance(X, (np.ndarray, list, tuple)):
        return None
    import narwhals as nw

    wrapped = nw.from_native(X, pass_through=True)
    name = str(wrapped.implementation.value) if isinstance(wrapped, (nw.DataFrame, nw.LazyFrame)) else ""
    return name if name in LIBRARIES else None


def chosen_library(library: Any, remembered: str | None = None) -> str:
    """The library to use: the one asked for, else the one remembered, else the first that is installed."""
    if library is None:
        usual = (name for name in (remembered, *LIBRARIES) if name is not None)
        return next(name for name in usual if find_spec(name) is not None)
    if library not in LIBRARIES:
        known = ", ".join(repr(name) for name in LIBRARIES)
        raise ArgumentError(f"`library` must be one of {known} or None, but is {library!r}.")
    if find_spec(library) is None:
        raise MissingDependencyError(f"`library` is {library!r}, which is not installed: pip install {library}.")
    return str(library)


def make_frame(columns: Columns, library: str) -> Any:
    """A dataframe of the given library."""
    import pyarrow as pa

    as_they_are: dict[str, IdColumn] = {}
    arrays: dict[str, Any] = {}
    for name, column in columns.items():
        if isinstance(column, IdColumn):
            distinct = _arrow_ids(column)
            if distinct is None:
                # ids of several types, or of one that only Python knows
                as_they_are[name] = column
                distinct = pa.array([canonical_text(value) for value in column.distinct], pa.string())
            arrays[name] = distinct.take(pa.array(column.codes))
        else:
            arrays[name] = pa.array(column)
    table = pa.table(arrays)
    if library == "pyarrow":
        return table
    if library == "polars":
        import polars

        return polars.from_arrow(table)
    frame = table.to_pandas()
    for name, column in as_they_are.items():
        frame[name] = column.values
    return frame


def _arrow_ids(column: IdColumn) -> Any:
    """The distinct ids as an array of arrow; None if it cannot hold them as they are."""
    import pyarrow as pa

    values = column.distinct.tolist()
    kinds = {type(value) for value in values}
    if len(kinds) > 1 or not kinds <= set(PLAIN_TYPES):
        return None if values else pa.array([], pa.string())
    try:
        return pa.array(np.array(values) if kinds == {np.datetime64} else values)
    except (pa.ArrowException, OverflowError):
        return None
