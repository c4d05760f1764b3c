"""Columns of ids: the distinct ids in natural order, and the code of each row.

A dataframe library is imported only for columns that come from one.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from itertools import pairwise
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import IndexArray
from fedhlcr._support.wording import ROW, Noun
from fedhlcr.exceptions import ArgumentError

# Texts that are decoded at a time when all are asked for.
DECODED_AT_ONCE = 1 << 16


class NewIds(Enum):
    """What stands for ids of rows that belong to new agents, or to new entities."""

    NEW = "new"

    def __repr__(self) -> str:
        return "fedhlcr.NEW"


NEW = NewIds.NEW
MISSING_ID = Noun("missing id", "missing ids")
NO_ROWS = np.empty(0, dtype=np.int64)
# Whole numbers as people write them, and those of them that fit into 64 bits and are not written "-0".
WHOLE = r"^-?(0|[1-9][0-9]*)$"
SMALL_WHOLE = r"^(0|-?[1-9][0-9]{0,17})$"

# Whole numbers are counted instead of sorted if there are at most this many possible ones for each row.
MOST_GAPS = 4


@dataclass(frozen=True, eq=False)
class Ids:
    """A column of ids: the distinct ids in natural order, and the code of each row.

    Attributes
    ----------
    texts : canonical texts of the distinct ids, in natural order
    codes : (rows,) position of each row's id among them
    own : (ids,) the ids as the user wrote them; None if these are the texts
    """

    texts: Texts
    codes: NDArray[np.int64]
    own: NDArray[Any] | None = None

    @classmethod
    def of_texts(cls, texts: Iterable[str]) -> Ids:
        """Return ids without rows, from their texts."""
        return cls(Texts.of(texts), NO_ROWS)

    @property
    def values(self) -> NDArray[np.object_]:
        """(ids,) the distinct ids as the user wrote them."""
        return np.array(list(self.texts), dtype=object) if self.own is None else self.own.astype(object)

    def with_codes(self, codes: NDArray[np.int64] = NO_ROWS) -> Ids:
        """Return the same distinct ids for other rows, or for none."""
        return replace(self, codes=codes)

    def take(self, rows: NDArray[np.intp] | slice) -> Ids:
        """Return the ids of the given rows; ids that do not occur in them are left out."""
        kept, codes = np.unique(self.codes[rows], return_inverse=True)
        return Ids(self.texts.take(kept), codes, None if self.own is None else self.own[kept])


def read_ids(values: Any, argument: str, n_rows: int) -> Ids:
    """Return the ids of a column of any type. Missing ids are refused.

    Ids that have been read before are returned as they are.
    """
    if isinstance(values, Ids):
        require_length(values.codes, argument, f"{argument} id", n_rows)
        return values
    array = values if _is_arrow_text(values) else _id_array(native_array(values))
    if getattr(array, "ndim", 1) != 1:
        raise ArgumentError(
            f"`{argument}` must be one {argument} id per event row, but it is an array of {array.ndim} dimensions; "
            "pass a list or a column."
        )
    require_length(array, argument, f"{argument} id", n_rows)
    distinct, n_missing = _factorize(array)
    if n_missing:
        raise ArgumentError(
            f"`{argument}` has {MISSING_ID.count(n_missing)} in {ROW.count(n_rows)}; "
            "drop these rows or give them an id."
        )
    return sorted_ids(distinct)


def sorted_ids(ids: Ids) -> Ids:
    """Return ids in natural order. Values with the same text, such as 1 and "1", are one id, written as the first."""
    encoded = ids.texts.to_arrow().dictionary_encode()
    distinct = Texts.of_arrow(encoded.dictionary)
    of_text = encoded.indices.to_numpy()
    order = natural_order(distinct)
    rank = np.empty_like(order)
    first = np.empty_like(order)
    rank[order] = np.arange(len(order))
    # the last assignment counts, so the first of several ids with the same text
    first[of_text[::-1]] = np.arange(len(of_text))[::-1]
    own = None if ids.own is None else ids.own[first[order]]
    new_codes = rank[of_text]
    in_order = np.array_equal(new_codes, np.arange(len(new_codes)))
    return Ids(distinct.take(order), ids.codes if in_order else new_codes[ids.codes], own)


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
            value = value.astimezone(datetime.UTC).replace(tzinfo=None)
            zone = "Z"
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


def natural_order(texts: Texts) -> NDArray[np.int64]:
    """The positions of distinct texts in natural order, as `natural_key` sorts them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    array = texts.to_arrow()
    is_small = pc.match_substring_regex(array, SMALL_WHOLE).to_numpy(zero_copy_only=False)
    is_whole = pc.match_substring_regex(array, WHOLE).to_numpy(zero_copy_only=False)
    if (is_whole & ~is_small).any():
        # numbers beyond 64 bits, or "-0" beside "0"
        everything = list(texts)
        last_first = range(len(everything) - 1, -1, -1)
        return np.array(sorted(last_first, key=lambda place: natural_key(everything[place])), dtype=np.int64)
    numbered = np.flatnonzero(is_small)
    others = np.flatnonzero(~is_small)
    numbers = array.take(pa.array(numbered)).cast(pa.large_string()).cast(pa.int64()).to_numpy()
    by_code_point = pc.sort_indices(array.take(pa.array(others))).to_numpy().astype(np.int64)
    return np.concatenate([numbered[np.argsort(numbers, kind="stable")], others[by_code_point]])


def _factorize(array: Any) -> tuple[Ids, int]:
    """Return the distinct ids in any order, with the code of each row, and how many rows are missing."""
    if isinstance(array, np.ndarray) and array.dtype.kind in "iubUSfmM":
        n_missing = int((array != array).sum()) if array.dtype.kind in "fmM" else 0
        return _ids_of(*_distinct(array)), n_missing
    import pyarrow as pa

    try:
        # numpy's arrays may hold other values than None that mean a missing one
        encoded = (pa.array(array, from_pandas=True) if isinstance(array, np.ndarray) else array).dictionary_encode()
    except (TypeError, ValueError, NotImplementedError, OverflowError):
        # arrow does not know the type, or the column holds several types
        return _factorize_mixed(array)
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    if encoded.null_count:
        return Ids.of_texts([]), int(encoded.null_count)
    distinct = encoded.dictionary
    codes = encoded.indices.to_numpy().astype(np.int64)
    if pa.types.is_string(distinct.type) or pa.types.is_large_string(distinct.type):
        return Ids(Texts.of_arrow(distinct), codes), 0
    if pa.types.is_signed_integer(distinct.type):
        return _ids_of(distinct.to_numpy(), codes), 0
    return _ids_of(_objects(distinct.to_pylist()), codes), 0


def _distinct(array: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the distinct values in order, and the position of each among them. Close whole numbers need no sort."""
    if array.dtype.kind in "iu" and len(array):
        lowest = int(array.min())
        span = int(array.max()) - int(array.min()) + 1
        if span <= MOST_GAPS * len(array) and lowest + span <= 2**63:
            places = array.astype(np.int64) - lowest
            occurs = np.zeros(span, dtype=bool)
            occurs[places] = True
            return (np.flatnonzero(occurs) + lowest).astype(array.dtype), (np.cumsum(occurs) - 1)[places]
    distinct, codes = np.unique(array, return_inverse=True)
    return distinct, codes


def _ids_of(distinct: NDArray[Any], codes: NDArray[np.int64]) -> Ids:
    """Return ids from their distinct values, as an array of any type."""
    if distinct.dtype.kind == "i" or (distinct.dtype.kind == "u" and distinct.max(initial=0) < 2**63):
        numbers = distinct.astype(np.int64)
        return Ids(Texts.of_numbers(numbers), codes, numbers)
    # numpy's times have no counterpart in Python with the same digits
    values = list(distinct) if distinct.dtype.kind in "mM" else distinct.tolist()
    texts = Texts.of(canonical_text(value) for value in values)
    return Ids(texts, codes, None if distinct.dtype.kind == "U" else _objects(values))


def _factorize_mixed(array: NDArray[Any]) -> tuple[Ids, int]:
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
    return Ids(Texts.of(positions), codes, _objects(distinct)), n_missing


def _objects(values: Sequence[Any]) -> NDArray[np.object_]:
    """Return an array of the values as they are: numpy would take tuples apart."""
    array = np.empty(len(values), dtype=object)
    for place, value in enumerate(values):
        array[place] = value
    return array


def _is_arrow_text(values: Any) -> bool:
    """Return whether this is a column of texts of arrow, which needs no conversion."""
    if not type(values).__module__.startswith("pyarrow"):
        return False
    import pyarrow as pa

    return isinstance(values, pa.Array | pa.ChunkedArray) and pa.types.is_string(values.type)


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
    return _objects(values)


def require_length(array: Any, argument: str, item: str, n_rows: int) -> None:
    if len(array) != n_rows:
        raise ArgumentError(
            f"`{argument}` has {ROW.count(len(array))} but `X` has {n_rows:,}; pass one {item} per event row."
        )


@dataclass(frozen=True, eq=False)
class Texts(Sequence[str]):
    """A sequence of texts.

    Attributes
    ----------
    data : (bytes,) the texts in UTF-8, one after the other; surrogates are encoded like other characters
    offsets : (texts + 1,) text i is data[offsets[i]:offsets[i + 1]]
    """

    data: NDArray[np.uint8]
    offsets: IndexArray

    @classmethod
    def of(cls, texts: Iterable[str]) -> Texts:
        if isinstance(texts, Texts):
            return texts
        encoded = [text.encode(errors="surrogatepass") for text in texts]
        sizes = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
        # not of bytes, which are read-only
        data = np.frombuffer(bytearray().join(encoded), dtype=np.uint8)
        return cls(data, np.concatenate([[0], np.cumsum(sizes)]))

    @classmethod
    def of_arrow(cls, array: Any) -> Texts:
        """Texts from an arrow array of strings or of bytes, without nulls."""
        import pyarrow as pa

        array = array.cast(pa.large_binary())
        _, offsets, data = array.buffers()
        places = np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
        if not len(array):
            return cls(np.empty(0, dtype=np.uint8), np.zeros(1, dtype=np.int64))
        whole = np.empty(0, dtype=np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8)
        # copies, so that nothing larger is kept in memory
        return cls(whole[places[0] : places[-1]].copy(), places - places[0])

    @classmethod
    def of_numbers(cls, numbers: NDArray[np.int64]) -> Texts:
        import pyarrow as pa

        return cls.of_arrow(pa.array(numbers).cast(pa.string()))

    def to_arrow(self) -> Any:
        """The texts as an arrow array of bytes, which shares their memory."""
        import pyarrow as pa

        buffers = [None, *map(pa.py_buffer, (np.ascontiguousarray(self.offsets), np.ascontiguousarray(self.data)))]
        return pa.Array.from_buffers(pa.large_binary(), len(self), buffers)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> list[str]: ...

    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        place = range(len(self))[place]
        return _decoded(self.data[self.offsets[place] : self.offsets[place + 1]].tobytes())

    def encoded(self) -> Iterator[bytes]:
        """The texts one by one, in UTF-8."""
        for first in range(0, len(self), DECODED_AT_ONCE):
            offsets = self.offsets[first : first + DECODED_AT_ONCE + 1]
            block = self.data[offsets[0] : offsets[-1]].tobytes()
            ends = (offsets - offsets[0]).tolist()
            yield from (block[start:end] for start, end in pairwise(ends))

    def __iter__(self) -> Iterator[str]:
        return map(_decoded, self.encoded())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Texts):
            same = np.array_equal(self.offsets, other.offsets)
            return same and np.array_equal(self.data[: self.offsets[-1]], other.data[: other.offsets[-1]])
        return isinstance(other, list) and list(self) == other

    __hash__ = None  # type: ignore[assignment]

    def take(self, places: IndexArray) -> Texts:
        """The texts at the given positions."""
        import pyarrow as pa

        return Texts.of_arrow(self.to_arrow().take(pa.array(places)))

    def joined(self, other: Texts) -> Texts:
        """These texts, then the others."""
        offsets = np.concatenate([self.offsets, other.offsets[1:] + self.offsets[-1]])
        return Texts(np.concatenate([self.data[: self.offsets[-1]], other.data]), offsets)

    @cached_property
    def _table(self) -> NDArray[np.int32]:
        """Positions by hash, at most half full."""
        from fedhlcr.kernels.texts import enter_texts

        table = np.full(1 << max(1, 2 * len(self)).bit_length(), -1, dtype=np.int32)
        enter_texts(self.data, self.offsets, table)
        return table

    def find(self, wanted: Texts) -> IndexArray:
        """The position of each wanted text among these, which must be distinct; −1 where there is none."""
        from fedhlcr.kernels.texts import find_texts

        out = np.empty(len(wanted), dtype=np.int64)
        find_texts(self.data, self.offsets, self._table, wanted.data, wanted.offsets, out)
        return out


def _decoded(data: bytes) -> str:
    return data.decode(errors="surrogatepass")
