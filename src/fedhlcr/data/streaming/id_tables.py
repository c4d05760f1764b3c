"""Ids of a table that is read piece by piece: each distinct id gets a code, in the order of first appearance.

Tables compare ids themselves, not only their hashes, so two ids are never taken for one. They only grow: what is new
since a checkpoint can be appended to a file, and a table can be made again from the files.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedhlcr._support.arrays import IndexArray
from fedhlcr.data.columns import without_decimal
from fedhlcr.data.ids import Ids, Texts, read_ids, sorted_ids
from fedhlcr.kernels.texts import add_numbers, add_texts, enter_numbers, enter_texts

FEWEST_SLOTS = 1 << 10
# A pair of codes is one number: the first code times this, plus the second.
PAIR_FACTOR = 1 << 32


def grown(array: NDArray[Any], size: int) -> NDArray[Any]:
    """The array with room for at least `size` items."""
    if len(array) >= size:
        return array
    larger = np.empty(max(size, len(array) + len(array) // 2), dtype=array.dtype)
    larger[: len(array)] = array
    return larger


def n_slots_for(n_items: int) -> int:
    """Slots of a table that is at most half full."""
    return max(FEWEST_SLOTS, 1 << (2 * n_items).bit_length())


class NumberTable:
    """Distinct whole numbers, with a code each."""

    def __init__(self, numbers: IndexArray | None = None) -> None:
        self._numbers = np.empty(0, dtype=np.int64) if numbers is None else numbers
        self._size = len(self._numbers)
        self._slots = np.empty(0, dtype=np.int32)

    def __len__(self) -> int:
        return self._size

    @property
    def numbers(self) -> IndexArray:
        return self._numbers[: self._size]

    def codes(self, numbers: IndexArray) -> IndexArray:
        """The code of each number; new numbers are added."""
        most = self._size + len(numbers)
        self._numbers = grown(self._numbers, most)
        if len(self._slots) < n_slots_for(most):
            self._slots = np.full(n_slots_for(most), -1, dtype=np.int32)
            enter_numbers(self._numbers, self._size, self._slots)
        out = np.empty(len(numbers), dtype=np.int64)
        self._size = int(add_numbers(self._numbers, self._size, self._slots, numbers, out))
        return out


class TextTable:
    """Distinct texts, with a code each."""

    def __init__(self, texts: Texts | None = None) -> None:
        texts = Texts.of([]) if texts is None else texts
        self._data = texts.data.copy()
        self._offsets = texts.offsets.copy()
        self._size = len(texts)
        self._slots = np.empty(0, dtype=np.int32)

    def __len__(self) -> int:
        return self._size

    @property
    def texts(self) -> Texts:
        offsets = self._offsets[: self._size + 1]
        return Texts(self._data[: offsets[-1]], offsets)

    def codes(self, texts: Texts) -> IndexArray:
        """The code of each text; new texts are added."""
        most = self._size + len(texts)
        self._offsets = grown(self._offsets, most + 1)
        self._data = grown(self._data, int(self._offsets[self._size] + len(texts.data)))
        if len(self._slots) < n_slots_for(most):
            self._slots = np.full(n_slots_for(most), -1, dtype=np.int32)
            enter_texts(self._data, self._offsets[: self._size + 1], self._slots)
        out = np.empty(len(texts), dtype=np.int64)
        arrays = self._data, self._offsets, self._size, self._slots
        self._size = int(add_texts(*arrays, texts.data, texts.offsets, out))
        return out


class IdTable:
    """The distinct ids of one column: whole numbers as they are, ids of all other types by their canonical texts.

    Parameters
    ----------
    name : name of the column
    is_whole : whether the column holds whole numbers of at most 64 bits with a sign
    """

    def __init__(self, name: str, *, is_whole: bool) -> None:
        self.name = name
        self.is_whole = is_whole
        self.numbers = NumberTable()
        self.texts = TextTable()

    def __len__(self) -> int:
        return len(self.numbers) if self.is_whole else len(self.texts)

    def codes(self, column: pa.ChunkedArray) -> IndexArray:
        """The code of each row; no id may be missing."""
        if self.is_whole:
            return self.numbers.codes(np.array(column.to_numpy(), dtype=np.int64))
        if pa.types.is_string(column.type):
            return self.texts.codes(Texts.of_arrow(column.combine_chunks()))
        ids = read_ids(column, self.name, len(column))
        return self.texts.codes(ids.texts)[ids.codes]

    def sorted(self, *, is_decimal: bool = False) -> Ids:
        """The distinct ids in natural order; its codes are the positions by the table's codes.

        `is_decimal` says that they have decimal points, so that 7.0 is 7.
        """
        if self.is_whole:
            numbers = self.numbers.numbers
            return sorted_ids(Ids(Texts.of_numbers(numbers), np.arange(len(numbers)), numbers))
        texts = self.texts.texts
        if is_decimal:
            column = pa.chunked_array([texts.to_arrow().cast(pa.large_string())])
            texts = Texts.of_arrow(pc.cast(without_decimal(column), pa.large_binary()).combine_chunks())
        return sorted_ids(Ids(texts, np.arange(len(texts))))


def is_whole(kind: pa.DataType) -> bool:
    """Whether a column of this type holds whole numbers that fit into 64 bits with a sign."""
    return pa.types.is_integer(kind) and kind != pa.uint64()
