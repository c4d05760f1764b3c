"""Real numbers as integers modulo 2⁶⁴, whose sums are exact and do not depend on order.

Two encodings, both as several uint64 in two's complement, whose parts are added separately:

 - `encode`: multiples of 2⁻³⁰ below 2⁵⁰ in two parts; for the sums that agents send in every round.
 - `encode_wide`: eight limbs of 40 bits per number, from 2⁻¹⁶⁰ to 2¹⁶⁰; for numbers of any magnitude, such as sums of
   features before their units are known.

Sums of up to 2²³ agents are exact. Who adds up the parts learns the sum of each, and so a little more than the sum of
the numbers: how many carries there were.

Differences telescope: encode(b) − encode(a) + encode(a) is encode(b), bit for bit. So a running total of differences is
the sum of everybody's last numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr.exceptions import ArgumentError, FixedPointError

FRACTION_BITS = 30

LIMB_BITS = 40
N_LIMBS = 8
# The lowest bit of the lowest limb is 2^LOWEST; numbers from 2^HIGHEST on do not fit.
LOWEST = -LIMB_BITS * N_LIMBS // 2
HIGHEST = LOWEST + LIMB_BITS * N_LIMBS

# The lower of two parts holds a number modulo 2¹⁰, the higher one its multiples of 2¹⁰.
LOWER_BITS = 10
N_HALVES = 2
LIMIT = 2.0 ** (LOWER_BITS + LIMB_BITS)

FixedArray = NDArray[np.uint64]


def encode(values: FloatArray) -> FixedArray:
    """Return values rounded to multiples of 2⁻³⁰ as two limbs, in a new last axis, the lower first.

    Both limbs have the number's sign, so that splitting a number is exact.
    """
    values = _finite(values)
    if beyond := int(np.count_nonzero(np.abs(values) >= LIMIT)):
        raise FixedPointError(
            f"{beyond} of {values.size} sums are {LIMIT:.1g} or more in absolute value; nothing is sent. Check "
            "the data for values that are far off."
        )
    high = np.trunc(np.ldexp(values, -LOWER_BITS))
    low = np.rint(np.ldexp(values - np.ldexp(high, LOWER_BITS), FRACTION_BITS))
    return np.stack([low, high], axis=-1).astype(np.int64).view(np.uint64)


def decode(limbs: FixedArray) -> FloatArray:
    """Return the real numbers of `encode`, or of sums and differences of what it returned."""
    low, high = np.moveaxis(np.ascontiguousarray(limbs).view(np.int64).astype(np.float64), -1, 0)
    return np.ldexp(high, LOWER_BITS) + np.ldexp(low, -FRACTION_BITS)


def rounded(values: FloatArray) -> FloatArray:
    """Return `values` rounded to multiples of 2⁻³⁰: exactly what decode(encode(values)) gives."""
    return decode(encode(values))


def encode_wide(values: FloatArray) -> FixedArray:
    """Return values rounded to multiples of 2⁻¹⁶⁰ as limbs, in a new last axis of size 8, the lowest first.

    A number is the sum over j of limb j times 2^(40 j − 160). All its limbs have its sign.
    """
    values = _finite(values)
    beyond = int(np.count_nonzero(np.abs(values) >= 2.0**HIGHEST))
    if beyond:
        raise FixedPointError(
            f"{beyond} of {values.size} numbers are {2.0**HIGHEST:.1g} or more in absolute value; nothing is sent. "
            "Check the units of the data."
        )
    # numbers below 2⁻¹⁰⁷ have bits below the lowest limb; all larger ones have not
    small = np.abs(values) < 2.0 ** (LOWEST + 53)
    rest = np.where(small, np.ldexp(np.rint(np.ldexp(np.where(small, values, 0.0), -LOWEST)), LOWEST), values)
    limbs = np.empty((*values.shape, N_LIMBS), np.int64)
    for limb in reversed(range(N_LIMBS)):
        # exact: truncation keeps the leading bits of a float, and subtraction removes them
        lowest_bit = LOWEST + LIMB_BITS * limb
        part = np.trunc(np.ldexp(rest, -lowest_bit))
        rest = rest - np.ldexp(part, lowest_bit)
        limbs[..., limb] = part.astype(np.int64)
    return limbs.view(np.uint64)


def decode_wide(limbs: FixedArray) -> FloatArray:
    """Return the float64 nearest to each number of `encode_wide`, or of sums of what it returned."""
    if limbs.shape[-1:] != (N_LIMBS,):
        raise ArgumentError(f"the last axis of `limbs` must have size {N_LIMBS}, but the shape is {limbs.shape}.")
    rows = np.ascontiguousarray(limbs).view(np.int64).reshape(-1, N_LIMBS).tolist()
    # the division of Python's integers is correctly rounded, whatever their size
    numbers = [sum(part << LIMB_BITS * limb for limb, part in enumerate(row)) / (1 << -LOWEST) for row in rows]
    return np.array(numbers, dtype=np.float64).reshape(limbs.shape[:-1])


def _finite(values: FloatArray) -> FloatArray:
    values = np.asarray(values, dtype=np.float64)
    missing = int(np.count_nonzero(~np.isfinite(values)))
    if missing:
        raise FixedPointError(
            f"{missing} of {values.size} numbers are not finite; nothing is sent. Check the data for missing or "
            "infinite values."
        )
    return values
