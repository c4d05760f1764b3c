"""Records (named values) as bytes: one format for messages, private state, checkpoints and model files.

    magic · format · kind · version · fields (name, type, shape) · values · checksum

Numbers are little-endian, without padding. The size of a record depends only on the names, the shapes of its arrays and
the lengths of its texts, never on a number in it. Values round-trip exactly. A record holds no pickle and no code.
`decode` checks length and checksum; `storage.reader.RecordReader` then checks each field.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhlcr.exceptions import CodecError

Value = bool | int | float | str | list[str] | NDArray[Any]
Record = dict[str, Any]

MAGIC = b"fedhlcr\0"
FORMAT = 1
CHECKSUM_BYTES = 16
MAX_AXES = 8
# Bytes of an array that are copied at once where it cannot be written as it is.
PART_BYTES = 1 << 22

_BOOL, _INT, _FLOAT, _TEXT, _TEXTS = range(5)
_NUMBERS = {_BOOL: "<B", _INT: "<q", _FLOAT: "<d"}
_FIRST_ARRAY = 16
_DTYPES = ("<f8", "<i8", "<i4", "<u8", "<u4", "<u2", "|u1", "|b1", "<f4")
_ARRAY_CODES = {np.dtype(name): _FIRST_ARRAY + place for place, name in enumerate(_DTYPES)}


def encode(kind: str, version: int, record: Mapping[str, Value]) -> bytes:
    """Return a record as bytes."""
    start: list[bytes] = [head(FORMAT, kind, version), struct.pack("<H", len(record))]
    payload: list[bytes | memoryview] = []
    for name, value in record.items():
        code, shape, parts = encode_value(name, value)
        start.append(_short(name) + struct.pack(f"<BB{len(shape)}Q", code, len(shape), *shape))
        payload.extend(parts)
    body = b"".join([*start, *payload])
    return body + _checksum(body)


def encoded_size(kind: str, version: int, record: Mapping[str, Value]) -> int:
    """Return the number of bytes of `encode`, without writing them."""
    size = len(head(FORMAT, kind, version)) + struct.calcsize("<H") + CHECKSUM_BYTES
    for name, value in record.items():
        code, shape, _ = encode_value(name, value)
        size += len(_short(name)) + struct.calcsize(f"<BB{len(shape)}Q") + size_of(code, shape)
    return size


def head(file_format: int, kind: str, version: int) -> bytes:
    """Return the first bytes of a record."""
    return MAGIC + struct.pack("<H", file_format) + _short(kind) + struct.pack("<H", version)


def decode(data: bytes, kind: str, version: int) -> Record:
    """Return the record in `data`, which must be of this kind and version. Its arrays are read-only."""
    try:
        return _decode(data, kind, version)
    except CodecError:
        raise
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        # the checksum catches accidents but not attacks: a forged record may fail anywhere while it is parsed
        raise CodecError(f"the record is malformed ({type(error).__name__}); get it again.") from None


def kind_of(data: bytes) -> str:
    """Return the kind that a record names in its header; CodecError if the bytes are not a record of this format."""
    return _read_header(data)[1]


def require_start(start: bytes) -> None:
    """CodecError unless a file starts as a record does. The first bytes are enough: the rest need not be read."""
    if not start:
        raise CodecError("the file is empty; check where it comes from.")
    if not start.startswith(MAGIC):
        raise CodecError("not a fedhlcr file; check where it comes from.")


def require_head(data: bytes, file_format: int, kind: str, version: int) -> None:
    """CodecError unless the data start with the head of this format, kind and version."""
    reader, found_kind = _read_header(data, file_format)
    _require_kind(reader, found_kind, kind, version)


def _require_kind(reader: _Reader, found_kind: str, kind: str, version: int) -> None:
    if found_kind != kind:
        raise CodecError(f"expected a record of kind {kind!r}, but got one of kind {found_kind!r}.")
    if (found := reader.number("<H")) != version:
        raise CodecError(f"expected version {version} of {kind!r}, but got version {found}; {_cure(found, version)}.")


def _read_header(data: bytes, file_format: int = FORMAT) -> tuple[_Reader, str]:
    require_start(data)
    reader = _Reader(data)
    reader.take(len(MAGIC))
    if (found := reader.number("<H")) != file_format:
        raise CodecError(
            f"expected format {file_format}, but the file has format {found}; {_cure(found, file_format)}."
        )
    return reader, reader.text()


def _cure(found: int, known: int) -> str:
    if found > known:
        return "a newer release of fedhlcr wrote it: upgrade fedhlcr"
    return "an older release of fedhlcr wrote it: read it with that release"


def _decode(data: bytes, kind: str, version: int) -> Record:
    reader, found_kind = _read_header(data)
    if data[-CHECKSUM_BYTES:] != _checksum(data[:-CHECKSUM_BYTES]):
        raise CodecError(f"the record of {len(data)} bytes is truncated or altered (wrong checksum); get it again.")
    _require_kind(reader, found_kind, kind, version)
    fields = [reader.field() for _ in range(reader.number("<H"))]
    record = {name: reader.value(code, shape) for name, code, shape in fields}
    if reader.left != CHECKSUM_BYTES:
        raise CodecError(f"the record of kind {kind!r} has bytes after its last value; get it again.")
    return record


def encode_value(name: str, value: Value) -> tuple[int, tuple[int, ...], Iterable[bytes | memoryview]]:
    """Return the type and the shape of a value, and its bytes in parts that follow each other."""
    match value:
        case bool():
            return _BOOL, (), [struct.pack("<B", value)]
        case int():
            return _INT, (), [struct.pack("<q", value)]
        case float():
            return _FLOAT, (), [struct.pack("<d", value)]
        case str():
            text = value.encode(errors="surrogatepass")
            return _TEXT, (len(text),), [text]
        case list():
            texts = json.dumps(value).encode()
            return _TEXTS, (len(texts),), [texts]
    array = np.asarray(value)
    code = _ARRAY_CODES.get(array.dtype.newbyteorder("<"))
    if code is None:
        raise TypeError(
            f"`{name}` is an array of {array.dtype}; a record can hold {', '.join(map(str, _ARRAY_CODES))}."
        )
    return code, array.shape, _array_parts(array)


def _array_parts(array: NDArray[Any]) -> Iterator[memoryview]:
    """The bytes of an array; one that must be copied for it is copied in parts."""
    little = array.dtype.newbyteorder("<")
    if array.flags.c_contiguous and array.dtype == little:
        yield array.reshape(-1).view(np.uint8).data
        return
    rows = np.atleast_1d(array)
    n_rows = max(1, PART_BYTES // max(1, rows[:1].nbytes))
    for first in range(0, len(rows), n_rows):
        part = np.ascontiguousarray(rows[first : first + n_rows].astype(little, copy=False))
        yield part.reshape(-1).view(np.uint8).data


def size_of(code: int, shape: tuple[int, ...]) -> int:
    """Return the number of bytes of a value."""
    match code:
        case _ if code in _NUMBERS:
            return struct.calcsize(_NUMBERS[code])
        case _ if code in (_TEXT, _TEXTS):
            return math.prod(shape)
    return math.prod(shape) * _dtype(code).itemsize


def decode_value(data: Any, code: int, shape: tuple[int, ...], start: int) -> Value:
    """Return the value at a position of a buffer, which must reach that far. Arrays are views of the buffer."""
    if code >= _FIRST_ARRAY:
        return np.ndarray(shape, dtype=_dtype(code), buffer=data, offset=start)
    if code in _NUMBERS:
        number: Value = struct.unpack_from(_NUMBERS[code], data, start)[0]
        return bool(number) if code == _BOOL else number
    own = bytes(memoryview(data)[start : start + size_of(code, shape)])
    return own.decode(errors="surrogatepass") if code == _TEXT else _read_texts(own)


def _read_texts(data: bytes) -> list[str]:
    texts = json.loads(data)
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise CodecError("the record has a field that should be a list of strings but is not; get it again.")
    return texts


def _dtype(code: int) -> np.dtype[Any]:
    if not _FIRST_ARRAY <= code < _FIRST_ARRAY + len(_DTYPES):
        raise CodecError(f"the record has a value of unknown type {code}; use the release of fedhlcr that wrote it.")
    return np.dtype(_DTYPES[code - _FIRST_ARRAY])


def _short(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<B", len(data)) + data


def _checksum(data: bytes) -> bytes:
    return blake2b(data, digest_size=CHECKSUM_BYTES).digest()


class _Reader:
    """Read one item after the other from the front; never read past the end."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._position = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._position

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise CodecError(
                f"the record is truncated: expected {size} more bytes, but {self.left} are left; get it again."
            )
        self._position += size
        return bytes(self._data[self._position - size : self._position])

    def number(self, code: str) -> Any:
        return struct.unpack(code, self.take(struct.calcsize(code)))[0]

    def text(self) -> str:
        return self.take(self.number("<B")).decode(errors="replace")

    def field(self) -> tuple[str, int, tuple[int, ...]]:
        name = self.text()
        code = self.number("<B")
        n_axes = self.number("<B")
        if n_axes > MAX_AXES:
            raise CodecError(f"the record has an array of {n_axes} axes; expected at most {MAX_AXES}.")
        return name, code, tuple(self.number("<Q") for _ in range(n_axes))

    def value(self, code: int, shape: tuple[int, ...]) -> Value:
        # of bytes, so that arrays are read-only
        return decode_value(self.take(size_of(code, shape)), code, shape, 0)
