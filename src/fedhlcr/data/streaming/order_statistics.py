"""Exact order statistics of a column that is read piece by piece: medians and quantiles, without sorting it.

Floats, as bits, can be ordered like whole numbers of 64 bits. Each pass counts the values by their next 16 bits, among
those whose earlier bits are the wanted ones, until the values that are left fit into memory or all bits are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.kernels.order_statistics import ALL_BITS, DIGIT_BITS, SIGN, collect_keys, count_digits

Keys = NDArray[np.uint64]
Read = Callable[[], Iterator[FloatArray]]
N_DIGITS = 1 << DIGIT_BITS
# As many values are sorted in memory.
FEW = 1 << 20


def order_statistics(read: Read, ranks: Sequence[int]) -> FloatArray:
    """The values that would have the given ranks, from 0, if all were sorted.

    `read` returns an iterator over all values; NaN does not count. Zeros have no sign.
    """
    # of each rank: the leading bits of its value, and its rank among the values with these bits
    prefixes = np.zeros(len(ranks), dtype=np.uint64)
    within = np.array(ranks, dtype=np.int64)
    for known in range(0, ALL_BITS, DIGIT_BITS):
        distinct, of_rank = np.unique(prefixes, return_inverse=True)
        counts = _counts(read, distinct, known)
        ends = np.cumsum(counts, axis=1)
        digits = np.array([np.searchsorted(ends[p], rank, "right") for p, rank in zip(of_rank, within, strict=True)])
        within -= ends[of_rank, digits] - counts[of_rank, digits]
        prefixes = (prefixes << np.uint64(DIGIT_BITS)) | digits.astype(np.uint64)
        n_left = sum(int(counts[place]) for place in {(int(p), int(d)) for p, d in zip(of_rank, digits, strict=True)})
        if known + DIGIT_BITS < ALL_BITS and n_left <= FEW:
            return _selected(read, prefixes, within, known + DIGIT_BITS)
    return _values(prefixes)


def _counts(read: Read, prefixes: Keys, known: int) -> IndexArray:
    """(prefixes, N_DIGITS) how many values have a prefix of `known` bits and then each digit."""
    counts = np.zeros((len(prefixes), N_DIGITS), dtype=np.int64)
    leading = _leading(prefixes, known)
    for values in read():
        count_digits(values.view(np.uint64), leading, prefixes, known, counts)
    return counts


def _selected(read: Read, prefixes: Keys, within: IndexArray, known: int) -> FloatArray:
    """The values of these ranks among the few that have these prefixes."""
    distinct, of_rank = np.unique(prefixes, return_inverse=True)
    leading = _leading(distinct, known)
    found = []
    for values in read():
        keys = np.empty(len(values), dtype=np.uint64)
        places = np.empty(len(values), dtype=np.int64)
        size = collect_keys(values.view(np.uint64), leading, distinct, known, keys, places)
        found.append((keys[:size].copy(), places[:size].copy()))
    keys, places = (np.concatenate([piece[part] for piece in found]) for part in (0, 1))
    groups = [np.sort(keys[places == place]) for place in range(len(distinct))]
    return _values(np.array([groups[p][rank] for p, rank in zip(of_rank, within, strict=True)], dtype=np.uint64))


def _leading(prefixes: Keys, known: int) -> NDArray[np.bool_]:
    """(N_DIGITS,) whether a prefix begins with these 16 bits."""
    leading = np.zeros(N_DIGITS, dtype=bool)
    if known:
        leading[(prefixes >> np.uint64(known - DIGIT_BITS)).astype(np.int64)] = True
    return leading


def _values(keys: Keys) -> FloatArray:
    negative = (keys & SIGN) == 0
    return np.where(negative, ~keys, keys ^ SIGN).view(np.float64)
