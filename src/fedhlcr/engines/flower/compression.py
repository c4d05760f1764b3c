"""Smaller messages: bytes are compressed without loss, and never unpacked beyond the size that they can have.

Compressed sizes depend on what is inside: whoever watches the network sees roughly how many clusters an agent uses.
The server sees that anyway in plain mode. Masked sums, whose size must say nothing, are random and stay as they are.
"""

from __future__ import annotations

import zlib

from fedhlcr.exceptions import RecordError

_AS_IS = b"\0"
_ZLIB = b"\1"
# Most of a contribution is zeros; higher levels take longer and save next to nothing.
LEVEL = 6
# Bytes that a node unpacks at most: a broadcast or a model beyond this is not one of ours.
LARGEST_MESSAGE = 1_000_000_000


def pack(data: bytes, *, compress: bool = True) -> bytes:
    """The bytes as they are sent: compressed, unless they would grow."""
    if compress:
        small = zlib.compress(data, LEVEL)
        if len(small) < len(data):
            return _ZLIB + small
    return _AS_IS + data


def unpack(data: bytes, limit: int) -> bytes:
    """The bytes that were packed. RecordError if there are more than `limit`, or if they are damaged."""
    form = data[:1]
    body = data[1:]
    if form == _AS_IS:
        if len(body) > limit:
            raise RecordError(f"a message has {len(body):,} bytes, but at most {limit:,} are expected")
        return body
    if form != _ZLIB:
        raise RecordError("a message is packed in an unknown way; install the same release of fedhlcr everywhere")
    unpacking = zlib.decompressobj()
    try:
        whole = unpacking.decompress(body, limit + 1)
    except zlib.error:
        raise RecordError("a packed message is damaged") from None
    if len(whole) > limit:
        raise RecordError(f"a packed message holds more than the {limit:,} bytes that are expected")
    if not unpacking.eof or unpacking.unused_data:
        raise RecordError("a packed message is damaged")
    return whole
