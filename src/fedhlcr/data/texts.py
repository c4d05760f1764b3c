"""Many texts in little memory: their bytes one after the other, and offsets. A list of a million takes 60 MB more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import IndexArray

# Texts that are decoded at a time when all are asked for.
DECODED_AT_ONCE = 1 << 16


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
