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
from collections.abc import Mapping
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

_BOOL, _INT, _FLOAT, _TEXT, _TEXTS = range(5)
_FIRST_ARRAY = 16
_DTYPES = ("<f8", "<i8", "<i4", "<u8", "<u4", "<u2", "|u1", "|b1", "<f4")
_ARRAY_CODES = {np.dtype(name): _FIRST_ARRAY + place for place, name in enumerate(_DTYPES)}


def encode(kind: str, version: int, record: Mapping[str, Value]) -> bytes:
    """Return a record as bytes."""
    head = [MAGIC, struct.pack("<H", FORMAT), _short(kind), struct.pack("<HH", version, len(record))]
    payload = []
    for name, value in record.items():
        code, shape, data = _encode_value(name, value)
        head.append(_short(name) + struct.pack(f"<BB{len(shape)}Q", code, len(shape), *shape))
        payload.append(data)
    body = b"".join(head + payload)
    return body + _checksum(body)


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


def _read_header(data: bytes) -> tuple[_Reader, str]:
    require_start(data)
    reader = _Reader(data)
    reader.take(len(MAGIC))
    if (found := reader.number("<H")) != FORMAT:
        raise CodecError(f"expected format {FORMAT}, but the file has format {found}; {_cure(found, FORMAT)}.")
    return reader, reader.text()


def _cure(found: int, known: int) -> str:
    if found > known:
        return "a newer release of fedhlcr wrote it: upgrade fedhlcr"
    return "an older release of fedhlcr wrote it: read it with that release"


def _decode(data: bytes, kind: str, version: int) -> Record:
    reader, found_kind = _read_header(data)
    if data[-CHECKSUM_BYTES:] != _checksum(data[:-CHECKSUM_BYTES]):
        raise CodecError(f"the record of {len(data)} bytes is truncated or altered (wrong checksum); get it again.")
    if found_kind != kind:
        raise CodecError(f"expected a record of kind {kind!r}, but got one of kind {found_kind!r}.")
    if (found := reader.number("<H")) != version:
        raise CodecError(f"expected version {version} of {kind!r}, but got version {found}; {_cure(found, version)}.")
    fields = [reader.field() for _ in range(reader.number("<H"))]
    record = {name: reader.value(code, shape) for name, code, shape in fields}
    if reader.left != CHECKSUM_BYTES:
        raise CodecError(f"the record of kind {kind!r} has bytes after its last value; get it again.")
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
        raise TypeError(
            f"`{name}` is an array of {array.dtype}; a record can hold {', '.join(map(str, _ARRAY_CODES))}."
        )
    return code, array.shape, array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


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
        name, code, n_axes = self.text(), self.number("<B"), self.number("<B")
        if n_axes > MAX_AXES:
            raise CodecError(f"the record has an array of {n_axes} axes; expected at most {MAX_AXES}.")
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
                    raise CodecError(
                        "the record has a field that should be a list of strings but is not; get it again."
                    )
                return texts
        if not _FIRST_ARRAY <= code < _FIRST_ARRAY + len(_DTYPES):
            raise CodecError(
                f"the record has a value of unknown type {code}; use the release of fedhlcr that wrote it."
            )
        dtype = np.dtype(_DTYPES[code - _FIRST_ARRAY])
        array = np.frombuffer(self.take(math.prod(shape) * dtype.itemsize), dtype=dtype)
        return array.reshape(shape)
