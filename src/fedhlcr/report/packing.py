"""Much data in little space: compressed JSON in the blocks of a page, and whole numbers of one to four bytes in it."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray

# Probabilities and shares are kept to a ten-thousandth, as in the tables.
SHARE_STEPS = 10_000
# Smaller probabilities are left out.
SMALLEST_SHARE = 0.01
# Quantised values take two bytes. The largest number stands for "no value".
STEPS = 65_534
NO_VALUE = 65_535
# Base64 takes four characters for three bytes.
CHARACTERS_PER_BYTE = 4.0 / 3.0
# Of more names, the size is that of so many, evenly spaced.
MOST_MEASURED = 20_000


def to_block(data: Any) -> Markup:
    """Data for a script element: JSON, compressed by zlib, as base64. The page's script unpacks it."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(_base64(zlib.compress(text.encode("utf-8", "replace"), 9)))


def size_of_names(names: Sequence[str]) -> float:
    """About how many characters names take in a block."""
    some = names[:: -(-len(names) // MOST_MEASURED) or 1]
    size = len(zlib.compress("\n".join(some).encode("utf-8", "replace"), 9)) * CHARACTERS_PER_BYTE
    return size * len(names) / max(len(some), 1)


def _base64(content: bytes) -> str:
    """The base64 of addresses, which has no slashes: two of them look like an address of a network."""
    return base64.urlsafe_b64encode(content).decode("ascii")


def pack(numbers: Any) -> list[Any]:
    """Whole numbers from 0 as [bytes per number, base64], little endian, with as few bytes as possible."""
    array = np.asarray(numbers).reshape(-1)
    largest = int(array.max(initial=0))
    width = next(width for width in (1, 2, 4) if largest < 1 << 8 * width)
    return [width, _base64(array.astype(f"<u{width}").tobytes())]


class Scale(NamedTuple):
    """Ends of the range over which values are quantised."""

    low: float
    high: float

    @classmethod
    def of(cls, *arrays: FloatArray) -> Scale:
        """The range of all finite values."""
        finite = [array[np.isfinite(array)] for array in arrays]
        low = min((float(array.min()) for array in finite if array.size), default=0.0)
        high = max((float(array.max()) for array in finite if array.size), default=1.0)
        return cls(low, high if high > low else low + 1.0)

    def quantise(self, values: FloatArray) -> NDArray[np.int64]:
        """Values as whole numbers from 0 to STEPS; NO_VALUE where they are not finite or beyond the range."""
        with np.errstate(invalid="ignore"):
            steps = np.round((values - self.low) / (self.high - self.low) * STEPS)
            inside = (steps >= 0) & (steps <= STEPS)
        return np.where(inside, steps, NO_VALUE).astype(np.int64)


def pack_shares(shares: FloatArray, most: int) -> dict[str, Any]:
    """Rows of shares (rows, clusters), largest first, those under 1 % left out, at most `most` for each row."""
    order = np.argsort(-shares, axis=1, kind="stable")[:, :most]
    values = np.take_along_axis(shares, order, axis=1)
    kept = values >= SMALLEST_SHARE
    kept[:, 0] = True
    return {
        "counts": pack(kept.sum(axis=1)),
        "clusters": pack(order[kept]),
        "shares": pack(_steps(values[kept])),
    }


def _steps(shares: FloatArray) -> IndexArray:
    """Shares as whole numbers; 0 and 1 only if exactly so."""
    steps = np.round(shares * SHARE_STEPS)
    inner = (shares > 0.0) & (shares < 1.0)
    return np.where(inner, steps.clip(1, SHARE_STEPS - 1), steps).astype(np.int64)
