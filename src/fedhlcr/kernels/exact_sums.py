"""Kernels that add floats without any rounding, so that the order of the events does not matter.

A float64 is a whole number of 53 bits times a power of two between 2⁻¹⁰⁷⁴ and 2⁹⁷¹. A total is a whole number in units
of 2⁻¹⁰⁷⁴, kept as N_DIGITS digits of 32 bits. Digits are signed and may exceed 32 bits until they are carried, so
that adding a float changes three of them. Products with weights are exact unless they are below 10⁻²⁷⁰.
`fedhlcr.data.exact_sums` makes floats of totals.
"""

from __future__ import annotations

from fedhlcr.kernels.compiling import kernel

N_DIGITS = 68
DIGIT_BITS = 32
LOW_DIGIT = (1 << DIGIT_BITS) - 1
MANTISSA_BITS = 52
MANTISSA = (1 << MANTISSA_BITS) - 1
LEADING_BIT = 1 << MANTISSA_BITS
EXPONENT = 0x7FF
# Factor that splits a float into halves of 26 bits, and the largest product whose halves cannot overflow.
SPLITTER = 134217729.0
LARGEST_SPLIT = 1e280


@kernel
def _add(value, float_view, bit_view, total):
    """Add one finite float to the digits; the views share one number."""
    float_view[0] = value
    bits = bit_view[0]
    exponent = (bits >> MANTISSA_BITS) & EXPONENT
    mantissa = bits & MANTISSA
    if exponent > 0:
        mantissa |= LEADING_BIT
        exponent -= 1
    digit = exponent >> 5
    shift = exponent & 31
    low = (mantissa & LOW_DIGIT) << shift
    high = ((mantissa >> DIGIT_BITS) << shift) + (low >> DIGIT_BITS)
    if bits < 0:
        total[digit] -= low & LOW_DIGIT
        total[digit + 1] -= high & LOW_DIGIT
        total[digit + 2] -= high >> DIGIT_BITS
    else:
        total[digit] += low & LOW_DIGIT
        total[digit + 1] += high & LOW_DIGIT
        total[digit + 2] += high >> DIGIT_BITS


@kernel
def _rounding_error(a, b, product):
    """a·b − product, exactly; product is a·b rounded (Dekker 1971)."""
    if abs(a) > LARGEST_SPLIT or abs(b) > LARGEST_SPLIT or abs(product) > LARGEST_SPLIT:
        return 0.0
    t = SPLITTER * a
    a_high = t - (t - a)
    t = SPLITTER * b
    b_high = t - (t - b)
    a_low = a - a_high
    b_low = b - b_high
    return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


@kernel
def _carry(total):
    for digit in range(N_DIGITS - 1):
        carried = total[digit] >> DIGIT_BITS
        total[digit] -= carried << DIGIT_BITS
        total[digit + 1] += carried


@kernel
def add_events(X, y, weight, float_view, bit_view, totals):
    """Add w·(x, y, 1) of every event to the totals (n_features + 2, N_DIGITS); fewer than 2³⁰ events at a time.

    `float_view` and `bit_view` (1,) share one number, as scratch space.
    """
    n_features = X.shape[1]
    for n in range(X.shape[0]):
        w = weight[n]
        for f in range(n_features + 1):
            value = X[n, f] if f < n_features else y[n]
            if w == 1.0:
                _add(value, float_view, bit_view, totals[f])
            else:
                product = w * value
                _add(product, float_view, bit_view, totals[f])
                _add(_rounding_error(w, value, product), float_view, bit_view, totals[f])
        _add(w, float_view, bit_view, totals[n_features + 1])
    for f in range(n_features + 2):
        _carry(totals[f])


@kernel
def add_totals(own, totals):
    """totals += own, both (n_features + 2, N_DIGITS)."""
    for f in range(totals.shape[0]):
        for digit in range(N_DIGITS):
            totals[f, digit] += own[f, digit]
        _carry(totals[f])
