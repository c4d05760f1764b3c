"""Much data in little space: compressed JSON in the blocks of a page, and whole numbers of one to four bytes in it.

A page has at most 3 MB, whatever the names of agents and entities are. First the explorer's lines and events get less
room, then the table of entities has fewer rows.
"""

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

# Characters for the tables of agents and entities, with cluster probabilities, and for the explorer's details. The
# words, pictures and map of a page take up to 650,000.
ROOM = 2_300_000
# Least and most characters for lines, events and neighbours of single entities.
LEAST_DETAILS = 150_000
MOST_DETAILS = 400_000
# Characters of a row and of each cluster probability in it, besides its names.
AGENT_ROW = 24.0
AGENT_SHARE = 7.0
ENTITY_ROW = 7.0
ENTITY_SHARE = 5.0
# Of more entities than this, the page keeps fewer digits and details.
MANY_ENTITIES = 20_000
# Clusters named for each agent and entity; fewer if there are very many entities.
MAX_SHARES = 12
FEW_SHARES = 4


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


class Steps(NamedTuple):
    """Ends of the range over which values are quantised."""

    low: float
    high: float

    @classmethod
    def of(cls, *arrays: FloatArray) -> Steps:
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


def most_shares(n_entities: int) -> int:
    """How many clusters are named for each entity."""
    return FEW_SHARES if n_entities > MANY_ENTITIES else MAX_SHARES


def size_of_agents(names: Sequence[str], weights: FloatArray) -> float:
    """About how many characters agents take, with shares (agents, clusters) of their entities."""
    return size_of_names(names) + len(names) * AGENT_ROW + AGENT_SHARE * _n_shares(weights, MAX_SHARES)


def size_of_entities(names: Sequence[str], probability: FloatArray, n_all: int) -> float:
    """About how many characters entities take: distinct names and probabilities (rows, clusters), of `n_all` in all."""
    return (
        size_of_names(names) + len(probability) * ENTITY_ROW + ENTITY_SHARE * _n_shares(probability, most_shares(n_all))
    )


def rows_that_fit(n_rows: int, agents: float, entities: float) -> int:
    """How many of so many rows of entities fit, from the sizes of agents and of all these rows."""
    room = ROOM - LEAST_DETAILS - agents
    return n_rows if entities <= room else max(1, int(n_rows * room / entities))


def room_for_details(agents: float, entities: float) -> float:
    """How many characters are left for lines, events and neighbours, from the sizes of agents and entities."""
    return min(MOST_DETAILS, max(LEAST_DETAILS, ROOM - agents - entities))


def _n_shares(shares: FloatArray, most: int) -> float:
    """How many shares are kept of all rows."""
    return float((shares >= SMALLEST_SHARE).sum(axis=1).clip(min=1, max=most).sum())
