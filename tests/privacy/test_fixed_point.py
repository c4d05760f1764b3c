"""Fixed point is exact: encoding rounds once, and sums and differences do not round at all."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedhlcr.exceptions import ArgumentError, FixedPointError
from fedhlcr.privacy.fixed_point import (
    FRACTION_BITS,
    HIGHEST,
    LIMIT,
    LOWEST,
    N_HALVES,
    decode,
    decode_wide,
    encode,
    encode_wide,
    rounded,
)

LARGEST = 2.0**45
VECTORS = hnp.arrays(np.float64, 5, elements=st.floats(-LARGEST, LARGEST))
ANY_MAGNITUDE = st.floats(-1e40, 1e40, allow_nan=False).filter(lambda x: x == 0 or abs(x) > 1e-30)


def exact(values):
    return [Fraction(value) for value in np.ravel(values).tolist()]


@given(VECTORS)
def test_encoding_rounds_to_the_nearest_multiple(values):
    errors = [abs(a - b) for a, b in zip(exact(decode(encode(values))), exact(values), strict=True)]
    assert max(errors) <= Fraction(1, 2 ** (FRACTION_BITS + 1))


@given(VECTORS)
def test_rounded_values_are_encoded_without_error(values):
    once = rounded(values)
    np.testing.assert_array_equal(once, decode(encode(values)))
    np.testing.assert_array_equal(rounded(once), once)


def total_of(encoded):
    return sum(encoded, np.zeros((5, N_HALVES), np.uint64))


@given(st.lists(VECTORS, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_sum_does_not_depend_on_order(vectors, random):
    encoded = [encode(vector) for vector in vectors]
    total = total_of(encoded)
    random.shuffle(encoded)
    np.testing.assert_array_equal(total_of(encoded), total)
    expected = [sum(column) for column in zip(*(exact(rounded(vector)) for vector in vectors), strict=True)]
    found = [Fraction(low, 2**FRACTION_BITS) + high * 2**10 for low, high in total.view(np.int64).tolist()]
    assert found == expected
    np.testing.assert_allclose(decode(total), [float(number) for number in expected], rtol=1e-15, atol=2.0**-52)


@given(VECTORS, VECTORS)
def test_differences_telescope(old, new):
    a, b = encode(old), encode(new)
    np.testing.assert_array_equal(a + (b - a), b)


def test_sum_of_many_agents_does_not_wrap():
    largest = np.nextafter(LIMIT, 0.0)
    total = encode(np.array([largest])) * np.uint64(2**23 - 1)
    np.testing.assert_allclose(decode(total), [largest * (2**23 - 1)], rtol=1e-15)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, LIMIT, -LIMIT * 2])
def test_unusable_number_is_refused_without_being_shown(bad):
    with pytest.raises(FixedPointError) as caught:
        encode(np.array([1.25, bad, 0.5]))
    assert "1 of 3" in str(caught.value)
    assert "1.25" not in str(caught.value)


def test_error_is_an_overflow_error():
    with pytest.raises(OverflowError):
        encode(np.array([2.0 * LIMIT]))


def test_decode_takes_slices():
    encoded = encode(np.arange(6.0))
    np.testing.assert_array_equal(decode(encoded[::2]), [0.0, 2.0, 4.0])


@given(hnp.arrays(np.float64, (2, 3), elements=ANY_MAGNITUDE))
def test_wide_encoding_is_exact(values):
    limbs = encode_wide(values)
    assert limbs.shape == (2, 3, 8)
    assert (np.abs(limbs.view(np.int64)) < 2**40).all()
    np.testing.assert_array_equal(decode_wide(limbs), values)


@given(st.lists(ANY_MAGNITUDE, min_size=1, max_size=20))
def test_wide_sum_is_the_exact_sum_rounded_once(values):
    total = encode_wide(np.array(values)).sum(axis=0, dtype=np.uint64)
    expected = sum(map(Fraction, values))
    assert decode_wide(total) == float(expected)


def test_wide_sum_of_many_parties_does_not_wrap():
    limbs = encode_wide(np.array([-(2.0**HIGHEST) * (1 - 2.0**-53)]))
    total = limbs * np.uint64(2**23)
    assert decode_wide(total)[0] == -(2.0 ** (HIGHEST + 23)) * (1 - 2.0**-53)


@pytest.mark.parametrize(
    ("value", "rounded"),
    [
        (2.0**LOWEST, 2.0**LOWEST),
        (2.0**LOWEST * 0.75, 2.0**LOWEST),
        (2.0**LOWEST * 0.25, 0.0),
        (-(2.0 ** (LOWEST + 52)) - 2.0**LOWEST, -(2.0 ** (LOWEST + 52)) - 2.0**LOWEST),
        (5e-324, 0.0),
    ],
)
def test_wide_encoding_rounds_tiny_numbers(value, rounded):
    assert decode_wide(encode_wide(np.array([value])))[0] == rounded


@pytest.mark.parametrize("bad", [np.nan, np.inf, 2.0**HIGHEST, -(2.0**HIGHEST)])
def test_wide_encoding_refuses_what_does_not_fit(bad):
    with pytest.raises(FixedPointError, match="1 of 2 numbers"):
        encode_wide(np.array([1.0, bad]))


def test_wide_decoding_needs_all_limbs():
    with pytest.raises(ArgumentError, match="size 8"):
        decode_wide(np.zeros((3, 7), np.uint64))
