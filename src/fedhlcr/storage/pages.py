"""Large records as files that are written and read in pages: model files.

    magic · format · kind · version                     the head, as in `storage.codec`
    values, each at a multiple of 64 bytes
    directory: names, types, shapes and positions of the values, and the CRC-32 of every page
    length of the directory · magic

A page is a MiB of the file up to the directory, counted from its start, so every byte of head, values and padding
belongs to one. The directory is a record of `storage.codec` with a checksum of its own. Writing needs no more memory
than a page and never goes back, so that it can also write to a pipe. A large file is mapped into memory, not read:
its arrays are views of the file, and the system loads what is used. They are writable,
because kernels are compiled for such arrays, but must not be changed: changes are lost when memory is given back.

A value is returned only after all of its pages have been checked.
"""

from __future__ import annotations

import math
import mmap
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fedhlcr.exceptions import CodecError
from fedhlcr.storage import codec, scratch
from fedhlcr.storage.codec import MAGIC, Value

FORMAT = 2
DIRECTORY = "directory"
DIRECTORY_VERSION = 1
PAGE = 1 << 20
ALIGNMENT = 64
# Smaller files are read, larger ones mapped. A mapped file must not be overwritten in place while it is in use.
MAPPED_FROM = 16 * PAGE
# So much of a mapped file is checked before its memory is given back.
CHECKED_AT_ONCE = 16 * PAGE
TAIL = struct.Struct("<Q8s")


def write(file: BinaryIO, kind: str, version: int, record: Mapping[str, Value]) -> None:
    """Write a record from the current position of a file, which must be its start."""
    out = _PageWriter(file)
    out.write(codec.head(FORMAT, kind, version))
    fields = []
    for name, value in record.items():
        out.write(bytes(-out.position % ALIGNMENT))
        code, shape, parts = codec.encode_value(name, value)
        fields.append((name, code, shape, out.position))
        for part in parts:
            out.write(part)
        if isinstance(value, np.ndarray):
            # what is mapped from another file need not stay in memory
            scratch.release(value)
    directory = codec.encode(
        DIRECTORY,
        DIRECTORY_VERSION,
        {
            "names": [name for name, *_ in fields],
            "codes": np.array([code for _, code, _, _ in fields], dtype=np.uint8),
            "n_axes": np.array([len(shape) for _, _, shape, _ in fields], dtype=np.uint8),
            "sizes": np.array([size for _, _, shape, _ in fields for size in shape], dtype=np.int64),
            "positions": np.array([position for *_, position in fields], dtype=np.int64),
            "pages": np.array(out.checksums(), dtype=np.uint32),
        },
    )
    file.write(directory)
    file.write(TAIL.pack(len(directory), MAGIC))


class _PageWriter:
    """Write bytes to a file and compute the checksum of each page on the way."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._finished: list[int] = []
        self._checksum = 0
        self.position = 0

    def write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while len(view):
            part = view[: PAGE - self.position % PAGE]
            self._file.write(part)
            self._checksum = zlib.crc32(part, self._checksum)
            self.position += len(part)
            view = view[len(part) :]
            if self.position % PAGE == 0:
                self._finished.append(self._checksum)
                self._checksum = 0

    def checksums(self) -> list[int]:
        """The checksums of all pages, the last of which may be shorter."""
        return self._finished if self.position % PAGE == 0 else [*self._finished, self._checksum]


def is_paged(start: bytes) -> bool:
    """Whether a file that starts with these bytes is written in pages."""
    return start[: len(MAGIC)] == MAGIC and start[len(MAGIC) : len(MAGIC) + 2] == struct.pack("<H", FORMAT)


def open_record(file: BinaryIO, kind: str, version: int) -> PagedRecord:
    """Return the record in a file, which may be closed then. It stays readable if another file replaces this one."""
    size = file.seek(0, 2)
    file.seek(0)
    if size < MAPPED_FROM:
        return PagedRecord(bytearray(file.read()), kind, version)
    # a private mapping: kernels are compiled for arrays that can be written to
    return PagedRecord(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), kind, version)


class PagedRecord(Mapping[str, Any]):
    """The values of a record by name, each decoded and checked when it is asked for; CodecError if it is damaged.

    Parameters
    ----------
    data : the bytes of the file; arrays are views of it
    kind, version : what the record must be
    """

    def __init__(self, data: bytearray | mmap.mmap, kind: str, version: int) -> None:
        self._data = data
        self._view = memoryview(data)
        self._address = np.ndarray(0, np.uint8, data).ctypes.data
        directory = self._directory()
        self._checksums: NDArray[np.uint32] = directory["pages"]
        if np.shape(self._checksums) != (math.ceil(self._end / PAGE),):
            raise self._damaged()
        self._is_checked = bytearray(len(self._checksums))
        self._check(0, 1)
        codec.require_head(bytes(self._view[: min(self._end, PAGE)]), FORMAT, kind, version)
        self._fields = self._read_fields(directory)

    def _directory(self) -> codec.Record:
        codec.require_start(bytes(self._view[: len(MAGIC)]))
        end = len(self._view) - TAIL.size
        if end <= 0:
            raise self._damaged()
        size, magic = TAIL.unpack(self._view[end:])
        if magic != MAGIC or size >= end:
            raise self._damaged()
        self._end = end - size
        try:
            return codec.decode(bytes(self._view[self._end : end]), DIRECTORY, DIRECTORY_VERSION)
        except CodecError:
            raise self._damaged() from None

    def _damaged(self) -> CodecError:
        size = len(self._view)
        return CodecError(f"the record of {size} bytes is truncated or altered (wrong checksum); get it again.")

    def _read_fields(self, directory: codec.Record) -> dict[str, tuple[int, tuple[int, ...], int]]:
        """Type, shape and position of every value, by name."""
        try:
            n_axes = directory["n_axes"].tolist()
            sizes = iter(directory["sizes"].tolist())
            shapes = [tuple(next(sizes) for _ in range(n)) for n in n_axes]
            columns = directory["names"], directory["codes"].tolist(), shapes, directory["positions"].tolist()
            fields = {name: (code, shape, at) for name, code, shape, at in zip(*columns, strict=True)}
        except (LookupError, AttributeError, TypeError, ValueError, RuntimeError) as error:
            raise CodecError(
                f"the directory of the file is malformed ({type(error).__name__}); get it again."
            ) from None
        for code, shape, at in fields.values():
            if at < 0 or any(size < 0 for size in shape) or at + codec.size_of(code, shape) > self._end:
                raise CodecError("the file has a value that reaches beyond its end; get it again.")
        return fields

    def __getitem__(self, name: str) -> Any:
        code, shape, start = self._fields[name]
        end = start + codec.size_of(code, shape)
        self._check(start // PAGE, math.ceil(end / PAGE))
        try:
            return codec.decode_value(self._data, code, shape, start)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            # checksums catch accidents but not attacks
            raise CodecError(f"the record is malformed ({type(error).__name__}); get it again.") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    @property
    def is_mapped(self) -> bool:
        return isinstance(self._data, mmap.mmap)

    def verify(self) -> None:
        """Check all pages that have not been checked yet; CodecError if one of them is damaged."""
        self._check(0, len(self._checksums))

    def _check(self, first: int, last: int) -> None:
        step = CHECKED_AT_ONCE // PAGE
        for start in range(first, last, step):
            stop = min(start + step, last)
            fresh = [page for page in range(start, stop) if not self._is_checked[page]]
            for page in fresh:
                if zlib.crc32(self._view[page * PAGE : min((page + 1) * PAGE, self._end)]) != self._checksums[page]:
                    raise self._damaged()
                self._is_checked[page] = 1
            if len(fresh) == step:
                self._drop(start * PAGE, stop * PAGE)

    def give_back(self, part: NDArray[Any]) -> None:
        """Let the system drop a contiguous part of an array from memory until it is used again.

        Only before anything was written to it: changes would be lost.
        """
        start = part.ctypes.data - self._address
        if part.nbytes and 0 <= start <= start + part.nbytes <= len(self._view):
            self._drop(start, start + part.nbytes)

    def _drop(self, start: int, stop: int) -> None:
        if isinstance(self._data, mmap.mmap):
            scratch.drop(self._data, start, stop)
