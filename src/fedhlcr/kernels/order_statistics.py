"""Kernels that count floats by their leading bits; see `data.streaming.order_statistics`.

The key of a float is a whole number of 64 bits in the order of the floats: its bits, all of them flipped if it is
negative, otherwise only the sign. NaN has no key.
"""

from __future__ import annotations

import numpy as np

from fedhlcr.kernels.compiling import kernel

SIGN = np.uint64(1 << 63)
MAGNITUDE = np.uint64((1 << 63) - 1)
INFINITE = np.uint64(0x7FF << 52)
DIGIT = np.uint64(0xFFFF)
DIGIT_BITS = 16
ALL_BITS = 64
NOWHERE = -1


@kernel
def _key(bits):
    if bits & SIGN:
        # both zeros have the same key
        return ~bits if bits & MAGNITUDE else SIGN
    return bits | SIGN


@kernel
def _place(key, leading, prefixes, known):
    """The position of the prefix of a key's first `known` bits, or NOWHERE; `leading` marks their first 16 bits."""
    if known == 0:
        return 0
    if not leading[np.int64(key >> np.uint64(ALL_BITS - DIGIT_BITS))]:
        return NOWHERE
    own = key >> np.uint64(ALL_BITS - known)
    low = 0
    high = prefixes.shape[0]
    while low < high:
        middle = (low + high) >> 1
        if prefixes[middle] < own:
            low = middle + 1
        else:
            high = middle
    return low if low < prefixes.shape[0] and prefixes[low] == own else NOWHERE


@kernel
def count_digits(bits, leading, prefixes, known, counts):
    """Count the 16 bits after a prefix, (prefixes, 2¹⁶), of all floats with these bits that are not NaN."""
    shift = np.uint64(ALL_BITS - DIGIT_BITS - known)
    for n in range(bits.shape[0]):
        if bits[n] & MAGNITUDE > INFINITE:
            continue
        key = _key(bits[n])
        place = _place(key, leading, prefixes, known)
        if place != NOWHERE:
            counts[place, np.int64((key >> shift) & DIGIT)] += 1


@kernel
def collect_keys(bits, leading, prefixes, known, keys, places):
    """Write the keys that have one of the prefixes, and the prefixes' positions; return how many there are."""
    size = 0
    for n in range(bits.shape[0]):
        if bits[n] & MAGNITUDE > INFINITE:
            continue
        key = _key(bits[n])
        place = _place(key, leading, prefixes, known)
        if place != NOWHERE:
            keys[size] = key
            places[size] = place
            size += 1
    return size
