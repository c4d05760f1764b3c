"""Events in the order of the table, in one file: blocks of columns, so that single columns can be read."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.data.streaming.work_folder import WorkFolder

# Values of a column that are read at a time.
VALUES_AT_ONCE = 1 << 20
ITEM = 8


class EventSpool:
    """Blocks of events, each with the codes of their pairs of agent and entity and with columns of numbers.

    Parameters
    ----------
    work : the folder
    name : name of the files
    n_columns : number of columns
    """

    def __init__(self, work: WorkFolder, name: str, n_columns: int) -> None:
        self._work = work
        self._n_columns = n_columns
        self._events = f"{name}.events"
        self._sizes = f"{name}.sizes"

    @property
    def files(self) -> list[str]:
        return [self._events, self._sizes]

    @property
    def row_bytes(self) -> int:
        return ITEM * (1 + self._n_columns)

    @property
    def sizes(self) -> IndexArray:
        """(blocks,) numbers of events."""
        return self._work.read(self._sizes, np.int64)

    def append(self, codes: IndexArray, columns: FloatArray) -> None:
        """Append a block: codes (events,) and columns (n_columns, events)."""
        if len(codes):
            self._work.append(self._events, codes)
            self._work.append(self._events, columns)
            self._work.append(self._sizes, np.array([len(codes)]))

    def blocks(self, first: int = 0) -> Iterator[tuple[IndexArray, FloatArray]]:
        """Yield codes and columns of the blocks, from block `first` onwards."""
        for start, size in self._spans(first):
            block = self._work.read(self._events, np.float64, start, size * (1 + self._n_columns))
            block = block.reshape(1 + self._n_columns, size)
            yield block[0].view(np.int64), block[1:]

    def codes(self) -> Iterator[IndexArray]:
        """Yield the codes of all events."""
        for start, size in self._spans():
            yield self._work.read(self._events, np.int64, start, size)

    def column(self, place: int) -> Iterator[FloatArray]:
        """Yield the values of a column, many at a time; NaN where one is missing."""
        some: list[FloatArray] = []
        for start, size in self._spans():
            values = self._work.read(self._events, np.float64, start + ITEM * size * (1 + place), size)
            some.append(values)
            if sum(map(len, some)) >= VALUES_AT_ONCE:
                yield np.concatenate(some)
                some = []
        if some:
            yield np.concatenate(some)

    def _spans(self, first: int = 0) -> Iterator[tuple[int, int]]:
        """Yield the first byte of each block and its number of events."""
        sizes = self.sizes
        starts = np.cumsum(sizes) - sizes
        for start, size in zip(starts[first:].tolist(), sizes[first:].tolist(), strict=True):
            yield start * self.row_bytes, size
