"""Columns that users pass beside a table, as arrays, lists or series: their gaps, and some of their rows."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import IndexArray
from fedhlcr.data.columns import LARGEST
from fedhlcr.data.ids import NEW, Ids, is_missing, native_array


def missing_rows(values: Any) -> NDArray[np.bool_]:
    """(rows,) which values are missing: None, NaN, pd.NA, null, and infinite or too large numbers."""
    if isinstance(values, Ids):
        return np.zeros(len(values.codes), dtype=bool)
    array = native_array(values)
    if not isinstance(array, np.ndarray):
        return np.array([is_missing(value) for value in array], dtype=bool)
    if array.dtype.kind == "f":
        # a comparison with NaN is false
        gaps = ~(np.abs(array) < LARGEST)
    elif array.dtype.kind in "mM":
        gaps = np.isnat(array)
    elif array.dtype.kind == "O":
        gaps = _missing_objects(array)
    else:
        gaps = np.zeros(array.shape, dtype=bool)
    return np.asarray(gaps if gaps.ndim == 1 else gaps.reshape(len(gaps), -1).any(axis=1))


def _missing_objects(array: NDArray[Any]) -> NDArray[np.bool_]:
    import pyarrow as pa

    if array.ndim == 1:
        try:
            return np.asarray(pa.array(array, from_pandas=True).is_null().to_numpy(zero_copy_only=False), dtype=bool)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            # several types in one column
            pass
    return np.array([is_missing(value) for value in array.ravel()], dtype=bool).reshape(array.shape)


def take_rows(values: Any, rows: IndexArray | None) -> Any:
    """The given rows of a column; None and single values stay as they are."""
    if rows is None or values is None or values is NEW or isinstance(values, Real | str):
        return values
    if isinstance(values, Ids):
        return values.take(rows)
    if isinstance(values, np.ndarray):
        return values[rows]
    import narwhals as nw

    # a series without its gaps keeps its type; an array of it would hold objects or floats
    wrapped = nw.from_native(values, pass_through=True, allow_series=True)
    if isinstance(wrapped, nw.Series | nw.DataFrame):
        return wrapped[rows.tolist()]
    return [values[row] for row in rows]


def are_same(values: Any, column: Any) -> bool:
    """Whether two columns have the same values wherever neither is missing."""
    first = native_array(values)
    second = native_array(column)
    if not isinstance(first, np.ndarray) or first.shape != second.shape:
        return False
    both = ~(missing_rows(first) | missing_rows(second))
    return bool(np.all(first[both] == second[both]))
