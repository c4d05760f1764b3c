"""Named values ↔ bytes: one format for messages, private state, checkpoints and files.

    magic · format · kind · version · fields (name, type, shape) · values · checksum

Little-endian, no padding, nothing that depends on a value but the values: the size of a record follows from the
shapes of its arrays. Values round-trip exactly. There is no pickle and no code in a record; a reader checks
length and checksum before it believes anything.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

Value = bool | int | float | str | list[str] | NDArray[Any]
Record = dict[str, Any]

MAGIC = b"fedhlcr\0"
FORMAT = 1
CHECKSUM_BYTES = 16
MOST_AXES = 8

_BOOL, _INT, _FLOAT, _TEXT, _TEXTS = range(5)
_FIRST_ARRAY = 16
_DTYPES = ("<f8", "<i8", "<i4", "<u8", "<u4", "<u2", "|u1", "|b1")
_ARRAY_CODES = {np.dtype(name): _FIRST_ARRAY + place for place, name in enumerate(_DTYPES)}


class CodecError(ValueError):
    """Bytes that are no record, or not the one that was expected."""


def encode(kind: str, version: int, record: Mapping[str, Value]) -> bytes:
    """A record as bytes."""
    head = [MAGIC, struct.pack("<H", FORMAT), _short(kind), struct.pack("<HH", version, len(record))]
    payload = []
    for name, value in record.items():
        code, shape, data = _encode_value(name, value)
        head.append(_short(name) + struct.pack(f"<BB{len(shape)}Q", code, len(shape), *shape))
        payload.append(data)
    body = b"".join(head + payload)
    return body + _checksum(body)


def decode(data: bytes, kind: str, version: int) -> Record:
    """The record in `data`, which must be of this kind and version. Arrays are read-only."""
    try:
        return _decode(data, kind, version)
    except CodecError:
        raise
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        # the checksum keeps out accidents, not malice: whatever is wrong inside is told as one kind of error
        raise CodecError(f"the record is malformed: {type(error).__name__}.") from None


def kind_of(data: bytes) -> str:
    """What a record says it is; CodecError where it is none of this format."""
    return _opened(data)[1]


def require_start(start: bytes) -> None:
    """CodecError unless bytes begin as a record does; tells it from the first few, before all are read."""
    if not start:
        raise CodecError("there is nothing in it: it is empty; check where it comes from.")
    if not start.startswith(MAGIC):
        raise CodecError("these bytes are no fedhlcr record: they do not begin as one; check where they come from.")


def _opened(data: bytes) -> tuple[_Reader, str]:
    require_start(data)
    reader = _Reader(data)
    reader.take(len(MAGIC))
    if (found := reader.number("<H")) != FORMAT:
        raise CodecError(f"the record has format {found}, this fedhlcr reads format {FORMAT}; {_cure(found, FORMAT)}.")
    return reader, reader.text()


def _cure(found: int, known: int) -> str:
    return "upgrade fedhlcr, a newer release wrote it" if found > known else "an older release wrote it, use that one"


def _decode(data: bytes, kind: str, version: int) -> Record:
    reader, came = _opened(data)
    if data[-CHECKSUM_BYTES:] != _checksum(data[:-CHECKSUM_BYTES]):
        raise CodecError(f"the record of {len(data)} bytes is truncated or altered (wrong checksum); get it again.")
    if came != kind:
        raise CodecError(f"expected a record of kind {kind!r}, but this one is of kind {came!r}.")
    if (found := reader.number("<H")) != version:
        raise CodecError(
            f"expected version {version} of {kind!r}, but this one has version {found}; {_cure(found, version)}."
        )
    fields = [reader.field() for _ in range(reader.number("<H"))]
    record = {name: reader.value(code, shape) for name, code, shape in fields}
    if reader.left != CHECKSUM_BYTES:
        raise CodecError(f"the record of kind {kind!r} is malformed: it has bytes nothing accounts for.")
    return record


def _encode_value(name: str, value: Value) -> tuple[int, tuple[int, ...], bytes]:
    match value:
        case bool():
            return _BOOL, (), struct.pack("<B", value)
        case int():
            return _INT, (), struct.pack("<q", value)
        case float():
            return _FLOAT, (), struct.pack("<d", value)
        case str():
            text = value.encode(errors="surrogatepass")
            return _TEXT, (len(text),), text
        case list():
            texts = json.dumps(value).encode()
            return _TEXTS, (len(texts),), texts
    array = np.asarray(value)
    code = _ARRAY_CODES.get(array.dtype.newbyteorder("<"))
    if code is None:
        raise TypeError(f"`{name}` is an array of {array.dtype}; a record holds {', '.join(map(str, _ARRAY_CODES))}.")
    return code, array.shape, array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def _short(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<B", len(data)) + data


def _checksum(data: bytes) -> bytes:
    return blake2b(data, digest_size=CHECKSUM_BYTES).digest()


class _Reader:
    """Takes one thing after the other off the front; never reads past the end."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._position = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._position

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise CodecError(f"the record is truncated: {size} more bytes were expected, {self.left} are left.")
        self._position += size
        return bytes(self._data[self._position - size : self._position])

    def number(self, code: str) -> Any:
        return struct.unpack(code, self.take(struct.calcsize(code)))[0]

    def text(self) -> str:
        return self.take(self.number("<B")).decode(errors="replace")

    def field(self) -> tuple[str, int, tuple[int, ...]]:
        name, code, n_axes = self.text(), self.number("<B"), self.number("<B")
        if n_axes > MOST_AXES:
            raise CodecError(f"the record holds an array of more than {MOST_AXES} axes.")
        return name, code, tuple(self.number("<Q") for _ in range(n_axes))

    def value(self, code: int, shape: tuple[int, ...]) -> Value:
        match code:
            case _ if code == _BOOL:
                return bool(self.number("<B"))
            case _ if code == _INT:
                return int(self.number("<q"))
            case _ if code == _FLOAT:
                return float(self.number("<d"))
            case _ if code == _TEXT:
                return self.take(math.prod(shape)).decode(errors="surrogatepass")
            case _ if code == _TEXTS:
                texts = json.loads(self.take(math.prod(shape)))
                if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
                    raise CodecError("the record holds a list of texts that is none.")
                return texts
        if not _FIRST_ARRAY <= code < _FIRST_ARRAY + len(_DTYPES):
            raise CodecError(f"the record holds a value of unknown type {code}; use the same release of fedhlcr.")
        dtype = np.dtype(_DTYPES[code - _FIRST_ARRAY])
        array = np.frombuffer(self.take(math.prod(shape) * dtype.itemsize), dtype=dtype)
        return array.reshape(shape)
