"""Arrays that are too large for memory: written to a file without a name, and mapped.

The files are in the folder for temporary files (TMPDIR). They have no name, so they disappear with the process, however
it ends. The system loads pages that are read and may drop them again; `release` drops them at once.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fedhlcr.exceptions import OutputError

# Larger arrays are kept in files.
LARGE = 1 << 26
# The same for one of a hundred arrays.
LARGE_ROW = 1 << 19
# Bytes of a mapped array that are read at a time.
BLOCK_BYTES = 1 << 24


def put_aside(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array as it is if it is small, otherwise a copy in a file."""
    if array.nbytes <= LARGE_ROW:
        return array
    out = _in_arena(array.shape, array.dtype)
    out[...] = array
    release(out)
    return out


class _Arena:
    """A mapped file that arrays are put into one behind the other: every mapping keeps a descriptor open.

    It disappears with the last of its arrays. A process that was forked begins one of its own.
    """

    def __init__(self, n_bytes: int) -> None:
        self.mapped = _reserved(n_bytes)
        self.process = os.getpid()
        self._used = 0

    def take(self, n_bytes: int) -> int | None:
        """The start of so many bytes; None if there is no room for them."""
        start = self._used
        if start + n_bytes > len(self.mapped):
            return None
        # whole pages, so that each array can be dropped from memory without its neighbours
        self._used += -(-n_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        return start


_arenas: list[_Arena] = []
_arena_lock = Lock()


def _in_arena(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array in the current arena, or in a new one."""
    size = math.prod(shape)
    n_bytes = size * dtype.itemsize
    with _arena_lock:
        arena = _arenas[0] if _arenas and _arenas[0].process == os.getpid() else None
        start = None if arena is None else arena.take(n_bytes)
        if arena is None or start is None:
            arena = _Arena(max(n_bytes, LARGE))
            _arenas[:] = [arena]
            start = arena.take(n_bytes)
            assert start is not None
    return np.frombuffer(arena.mapped, dtype=dtype, count=size, offset=start).reshape(shape)


def stacked(rows: Iterable[NDArray[Any]], shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Return the rows as one array of this shape and type: in memory if it is small, otherwise in a file."""
    if math.prod(shape) * np.dtype(dtype).itemsize > LARGE:
        return _written(rows, shape, np.dtype(dtype))
    out = np.empty(shape, dtype=dtype)
    for place, row in enumerate(rows):
        out[place] = row
        release(row)
    return out


def empty(shape: tuple[int, ...], dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """Return an array to be filled: in memory if it is small, otherwise in a file, which what is written goes to."""
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    if n_bytes <= LARGE:
        return np.empty(shape, dtype=dtype)
    return np.frombuffer(_reserved(n_bytes), dtype=dtype).reshape(shape)


def _reserved(n_bytes: int) -> mmap.mmap:
    """Map a file of this size; what is written to the mapping goes to the file."""

    def reserve(file: BinaryIO) -> None:
        if hasattr(os, "posix_fallocate"):
            # a disk that is full says so now, not when a page is written
            os.posix_fallocate(file.fileno(), 0, n_bytes)
        file.truncate(n_bytes)

    return _mapped(reserve, n_bytes, mmap.ACCESS_WRITE)


def _written(rows: Iterable[NDArray[Any]], shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    def write(file: BinaryIO) -> None:
        for row in rows:
            file.write(np.ascontiguousarray(row, dtype=dtype).data)
            release(row)

    # writable, because kernels are compiled for such arrays; nobody may change it, because `release` loses changes
    mapped = _mapped(write, math.prod(shape) * dtype.itemsize, mmap.ACCESS_COPY)
    return np.frombuffer(mapped, dtype=dtype).reshape(shape)


def _mapped(write: Callable[[BinaryIO], None], n_bytes: int, access: int) -> mmap.mmap:
    """Map a file without a name to which `write` has written."""
    with spooled(write) as file, _output_errors():
        return mmap.mmap(file.fileno(), n_bytes, access=access)


def spooled(write: Callable[[BinaryIO], None]) -> BinaryIO:
    """Return a file without a name, to which `write` has written, from its start. A full disk is an OutputError."""
    with _output_errors(), ExitStack() as until_written:
        file: Any = until_written.enter_context(tempfile.TemporaryFile(prefix="fedhlcr-"))
        write(file)
        # buffered bytes reach the disk only now
        file.seek(0)
        until_written.pop_all()
    return cast(BinaryIO, file)


@contextmanager
def _output_errors() -> Iterator[None]:
    """Turn errors of the system, such as a full disk or too many open files, into an OutputError."""
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(
            f"cannot write a temporary file to {tempfile.gettempdir()!r}: {error.strerror or type(error).__name__}; "
            "free some space, or name another folder by the variable TMPDIR."
        ) from None


def release(*arrays: NDArray[Any]) -> None:
    """Drop the pages of mapped arrays from memory; arrays of `put_aside` and `empty` keep what was written to them.

    Nobody may have changed the others. Arrays in memory stay as they are.
    """
    for array in arrays:
        mapped = mapping_of(array)
        if mapped is not None and array.size:
            steps = [(n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)]
            start = array.ctypes.data - np.frombuffer(mapped, dtype=np.uint8).ctypes.data
            end = start + sum(max(step, 0) for step in steps) + array.itemsize
            drop(mapped, start + sum(min(step, 0) for step in steps), end)


def drop(mapped: mmap.mmap, start: int, stop: int) -> None:
    """Drop from memory the pages of a mapped file that lie within bytes [start, stop)."""
    start = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    stop = stop // mmap.PAGESIZE * mmap.PAGESIZE
    if start < stop and hasattr(mapped, "madvise"):
        mapped.madvise(mmap.MADV_DONTNEED, start, stop - start)


def row_blocks(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield the rows of an array: all at once if it is in memory, otherwise by blocks, which are then released."""
    if mapping_of(array) is None:
        yield array
        return
    step = max(1, BLOCK_BYTES // array.strides[0])
    for first in range(0, len(array), step):
        block = array[first : first + step]
        yield block
        release(block)


def mapping_of(array: NDArray[Any]) -> mmap.mmap | None:
    """Return the mapped file that an array is a view of; None if it is in memory."""
    owner: Any = array
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return owner if isinstance(owner, mmap.mmap) else None
