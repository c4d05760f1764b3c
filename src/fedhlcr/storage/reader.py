"""Read the fields of a record, each checked: its type, its shape and its values.

Kernels do not check bounds. So a wrong value in a file or a message, by accident or from an attacker, must be refused
here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import for_kernels
from fedhlcr._support.checks import SIZE_LIMIT, Check, within
from fedhlcr.exceptions import CodecError, FedHLCRError
from fedhlcr.storage.pages import PagedRecord

# Bytes of an array that are tested at once.
PART_BYTES = 1 << 22


class RecordReader:
    """Read fields of a record; CodecError if one is missing or has an invalid value.

    Parameters
    ----------
    what : what the record is, for the error: "the model"
    cure : what the user can do about an invalid record, for the error: "save it again"
    prefix : put before the name of each field
    """

    def __init__(self, record: Mapping[str, Any], what: str, cure: str, prefix: str = "") -> None:
        self._record = record
        self._what = what
        self._cure = cure
        self._prefix = prefix

    def part(self, prefix: str) -> RecordReader:
        """Return a reader of the fields whose names start with `prefix`."""
        return RecordReader(self._record, self._what, self._cure, self._prefix + prefix)

    def __contains__(self, name: str) -> bool:
        return self._prefix + name in self._record

    @property
    def is_empty(self) -> bool:
        return not any(name.startswith(self._prefix) for name in self._record)

    def require(self, valid: Any, name: str) -> None:
        """CodecError about the field `name` unless `valid`."""
        if not valid:
            name = self._prefix + name
            raise CodecError(f"{self._what} is not valid: `{name}` is missing or has a wrong value; {self._cure}.")

    def value(self, name: str, kind: type, test: Check | None = None) -> Any:
        """Return a single value of exactly this type that passes the test."""
        value = self._record.get(self._prefix + name)
        self.require(type(value) is kind, name)
        with np.errstate(all="ignore"):
            self.require(test is None or test(np.asarray(value)), name)
        return value

    def texts(self, name: str) -> list[str]:
        """Return a list of strings without duplicates."""
        texts: list[str] = self.value(name, list)
        self.require(len(set(texts)) == len(texts), name)
        return texts

    def array(self, name: str, dtype: str, shape: tuple[int | None, ...], test: Check | None = None) -> NDArray[Any]:
        """Return an array of this dtype ("f8") and shape, all of whose values pass the test.

        None allows any size for which there are values; an empty array must not claim a huge one.
        """
        array: Any = self._record.get(self._prefix + name)
        self.require(isinstance(array, np.ndarray) and array.dtype == np.dtype(dtype), name)
        self.require(len(array.shape) == len(shape), name)
        self.require(all(wanted in (None, size) for size, wanted in zip(array.shape, shape, strict=True)), name)
        free = [size for size, wanted in zip(array.shape, shape, strict=True) if wanted is None]
        self.require(array.size or max(free, default=0) <= SIZE_LIMIT, name)
        if test is not None:
            self.require_all(array, test, name)
        # those of bytes are read-only, those of a mapped file are not
        return for_kernels(array)

    def require_all(self, array: NDArray[Any], test: Check, name: str) -> None:
        """CodecError about the field `name` unless all values of its array pass the test."""
        for part in _parts(array):
            with np.errstate(all="ignore"):
                self.require(np.all(test(part)), name)
            if isinstance(self._record, PagedRecord):
                self._record.give_back(part)

    def clusters(self, name: str, shape: tuple[int | None], n_clusters: int) -> NDArray[np.int64]:
        """Return the current cluster of each original cluster, −1 for one that was dropped.

        Every current cluster must come from at least one original cluster.
        """
        cluster_of = self.array(name, "i8", shape, within(-1, n_clusters))
        current = np.unique(cluster_of[cluster_of >= 0])
        self.require(len(cluster_of) <= SIZE_LIMIT and 0 < len(current) == n_clusters, name)
        return cluster_of


def _parts(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """A large array in parts of its first axis, so that a test needs little memory."""
    if array.nbytes <= PART_BYTES or not array.ndim:
        yield array
        return
    n_rows = max(1, PART_BYTES // array[:1].nbytes)
    for first in range(0, len(array), n_rows):
        yield array[first : first + n_rows]


CHECKPOINT = ("the checkpoint", "start a new run")


def checkpoint_reader(record: Mapping[str, Any]) -> RecordReader:
    return RecordReader(record, *CHECKPOINT)


@contextmanager
def reading_errors(
    what: str = "the model", cure: str = "save it again", clear: type[FedHLCRError] = CodecError
) -> Iterator[None]:
    """Turn whatever fails while a record is read into a CodecError: checksums catch accidents but not attacks.

    `clear` are errors that say already what is wrong.
    """
    try:
        # impossible numbers are refused where they are read; what overflows after that becomes infinite
        with np.errstate(all="ignore"):
            yield
    except clear:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, MemoryError) as error:
        raise CodecError(f"{what} is not valid ({type(error).__name__}); {cure}.") from None
