"""Columns of ids: the distinct ids in natural order, and the code of each row.

A dataframe library is imported only for columns that come from one.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.wording import ROW, Noun
from fedhlcr.exceptions import ArgumentError

MISSING_ID = Noun("missing id", "missing ids")


class Ids(NamedTuple):
    """A column of ids: the distinct ids in natural order, and the code of each row."""

    values: NDArray[np.object_]  # as the user wrote them
    texts: list[str]  # canonical texts, sorted
    codes: NDArray[np.int64]  # (rows,)

    @classmethod
    def of_texts(cls, texts: list[str]) -> Ids:
        """Return ids without rows, from their texts."""
        return cls(np.array(texts, dtype=object), texts, np.empty(0, dtype=np.int64))

    def take(self, rows: NDArray[np.intp] | slice) -> Ids:
        """Return the ids of the given rows; ids that do not occur in them are left out."""
        kept, codes = np.unique(self.codes[rows], return_inverse=True)
        return Ids(self.values[kept], [self.texts[code] for code in kept], codes)


def read_ids(values: Any, argument: str, n_rows: int) -> Ids:
    """Return the ids of a column of any type. Missing ids are refused.

    Ids that have been read before are returned as they are.
    """
    if isinstance(values, Ids):
        require_length(values.codes, argument, f"{argument} id", n_rows)
        return values
    array = _id_array(native_array(values))
    if array.ndim != 1:
        raise ArgumentError(
            f"`{argument}` must be one {argument} id per event row, but it is an array of {array.ndim} dimensions; "
            "pass a list or a column."
        )
    require_length(array, argument, f"{argument} id", n_rows)
    distinct, codes, n_missing = _factorize(array)
    if n_missing:
        raise ArgumentError(
            f"`{argument}` has {MISSING_ID.count(n_missing)} in {ROW.count(n_rows)}; "
            "drop these rows or give them an id."
        )
    return sorted_ids(distinct, [canonical_text(value) for value in distinct], codes)


def sorted_ids(values: Sequence[Any], texts: list[str], codes: NDArray[np.int64]) -> Ids:
    """Return ids in natural order. Values with the same text, such as 1 and "1", are one id, written as the first."""
    first = {text: position for position, text in reversed(list(enumerate(texts)))}
    ordered = sorted(first, key=natural_key)
    rank = {text: position for position, text in enumerate(ordered)}
    own_values = np.empty(len(ordered), dtype=object)
    for text, position in rank.items():
        own_values[position] = values[first[text]]
    return Ids(own_values, ordered, np.array([rank[text] for text in texts], dtype=np.int64)[codes])


def canonical_text(value: Any) -> str:
    """Return the text of an id, which is the same whatever library or type the id came in.

    7, numpy's 7 and 7.0 are "7". A time is its ISO text without trailing zeros; at midnight it is the date alone. A
    time with a time zone is converted to UTC.
    """
    if isinstance(value, (bytes, np.bytes_)):
        return bytes(value).decode(errors="backslashreplace")
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    if isinstance(value, (datetime.datetime, np.datetime64)):
        zone = ""
        if isinstance(value, datetime.datetime) and value.tzinfo is not None:
            value, zone = value.astimezone(datetime.UTC).replace(tzinfo=None), "Z"
        text = value.isoformat() if isinstance(value, datetime.datetime) else str(value)
        if "." in text:
            text = text.rstrip("0").rstrip(".")
        return text.removesuffix("T00:00:00") + zone
    return str(value)


def natural_key(text: str) -> tuple[int, int, str]:
    """Return a sort key: whole numbers come first, by value; texts follow, by code point."""
    digits = text[1:] if text.startswith("-") else text
    # Python refuses to convert texts of thousands of digits
    whole = (
        len(digits) < 1000 and digits.isascii() and digits.isdigit() and (digits == "0" or not digits.startswith("0"))
    )
    return (0, int(text), "") if whole else (1, 0, text)


def _factorize(array: NDArray[Any]) -> tuple[Sequence[Any], NDArray[np.int64], int]:
    """Return the distinct values, the code of each row, and how many rows are missing."""
    if array.dtype.kind in "iubUSfmM":
        n_missing = int((array != array).sum()) if array.dtype.kind in "fmM" else 0
        distinct, codes = np.unique(array, return_inverse=True)
        return list(distinct) if array.dtype.kind in "mM" else distinct.tolist(), codes, n_missing
    import pyarrow as pa

    try:
        encoded = pa.array(array, from_pandas=True).dictionary_encode()
    except (TypeError, ValueError, NotImplementedError, OverflowError):
        # arrow does not know the type, or the column holds several types
        return _factorize_mixed(array)
    if encoded.null_count:
        return [], np.zeros(len(array), dtype=np.int64), int(encoded.null_count)
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64), 0


def _factorize_mixed(array: NDArray[Any]) -> tuple[Sequence[Any], NDArray[np.int64], int]:
    """Factorise a column that holds several types. Ids with the same canonical text are the same."""
    n_missing = sum(is_missing(value) for value in array)
    positions: dict[str, int] = {}
    distinct: list[Any] = []
    codes = np.empty(len(array), dtype=np.int64)
    for row, value in enumerate(array):
        text = canonical_text(value)
        if text not in positions:
            positions[text] = len(distinct)
            distinct.append(value)
        codes[row] = positions[text]
    return distinct, codes, n_missing


def is_missing(value: Any) -> bool:
    return (
        value is None or type(value).__name__ in {"NAType", "NaTType"} or (isinstance(value, float) and value != value)
    )


def native_array(values: Any) -> Any:
    """Return series and frames of any dataframe library as numpy arrays, and everything else as it is."""
    if isinstance(values, (np.ndarray, list, tuple)):
        return values
    import narwhals as nw

    wrapped = nw.from_native(values, pass_through=True, allow_series=True)
    if isinstance(wrapped, nw.Series) and wrapped.dtype == nw.Categorical and wrapped.implementation.is_pyarrow():
        # numpy would get arbitrary codes for missing values
        native = wrapped.to_native()
        wrapped = nw.from_native(native.cast(native.type.value_type), series_only=True)
    return wrapped.to_numpy() if isinstance(wrapped, (nw.Series, nw.DataFrame)) else values


def _id_array(values: Any) -> NDArray[Any]:
    """Return an array of ids. A list is copied item by item: numpy would turn a missing id among texts into a text."""
    if not isinstance(values, (list, tuple)) or any(isinstance(value, list) for value in values):
        return np.asarray(values)
    array = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):
        array[row] = value
    return array


def require_length(array: NDArray[Any], argument: str, item: str, n_rows: int) -> None:
    if len(array) != n_rows:
        raise ArgumentError(
            f"`{argument}` has {ROW.count(len(array))} but `X` has {n_rows:,}; pass one {item} per event row."
        )
