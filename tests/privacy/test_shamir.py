"""Enough shares give the secret; fewer say nothing about it."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from fedhlcr.exceptions import ArgumentError
from fedhlcr.privacy import shamir
from fedhlcr.privacy.shamir import N_LIMBS, PRIME, combine, interpolate, split
from tests.mutants import mutated

SECRETS = st.one_of(st.binary(min_size=32, max_size=32), st.sampled_from([bytes(32), b"\xff" * 32]))


@st.composite
def sharings(draw):
    """A threshold, a number of shares, and the points of as many shares as are needed."""
    n_shares = draw(st.integers(1, 40))
    threshold = draw(st.integers(1, n_shares))
    points = draw(st.permutations(range(1, n_shares + 1)))[:threshold]
    return threshold, n_shares, np.array(points)


@given(SECRETS, sharings())
def test_any_sufficient_set_of_shares_gives_the_secret(secret, sharing):
    threshold, n_shares, points = sharing
    shares = split(secret, threshold, n_shares)
    assert shares.shape == (n_shares, N_LIMBS)
    assert combine(shares[points - 1][None], points) == [secret]


def test_shares_are_values_of_the_polynomial():
    """The readable version: Python's integers, Horner's rule, and the polynomial through all shares."""
    secret, threshold = os.urandom(32), 5
    shares = split(secret, threshold, 12)
    points = np.arange(1, threshold + 1)
    for point in range(1, 13):
        expected = interpolate(shares[:threshold][None], points, point)[0]
        np.testing.assert_array_equal(shares[point - 1], expected)


def test_shares_of_several_secrets_are_combined_at_once():
    secrets = [os.urandom(32) for _ in range(4)]
    points = np.array([9, 2, 7])
    shares = np.stack([split(secret, 3, 10)[points - 1] for secret in secrets])
    assert combine(shares, points) == secrets


def test_many_shares():
    secret = os.urandom(32)
    shares = split(secret, 400, 600)
    points = np.arange(201, 601)
    assert combine(shares[points - 1][None], points) == [secret]


def test_matrix_product_is_exact(rng):
    a = rng.integers(0, PRIME, (3, 700), dtype=np.uint64)
    b = rng.integers(0, PRIME, (700, 2), dtype=np.uint64)
    a[0], b[:, 0] = PRIME - 1, PRIME - 1
    expected = [
        [sum(x * y for x, y in zip(row, column, strict=True)) % PRIME for column in b.T.tolist()] for row in a.tolist()
    ]
    np.testing.assert_array_equal(shamir._product(a, b), expected)


def test_one_wrong_share_gives_another_secret():
    secret = os.urandom(32)
    shares = split(secret, 4, 6)
    shares[2, 3] ^= 1
    assert combine(shares[None, :4], np.arange(1, 5)) != [secret]


def check_secrecy():
    """Shares of one secret below the threshold are uniform, together with each other: 2 of 3 needed ones of zero."""
    n_draws, n_bins = 4000, 8
    shares = np.array([split(bytes(32), 3, 2 + 1)[:2, 0] for _ in range(n_draws)]).astype(np.int64)
    cells = shares * n_bins // PRIME
    counts = np.bincount(cells[:, 0] * n_bins + cells[:, 1], minlength=n_bins**2)
    statistic = ((counts - n_draws / n_bins**2) ** 2 / (n_draws / n_bins**2)).sum()
    assert statistic < chi2.isf(1e-9, n_bins**2 - 1)


def test_too_few_shares_are_uniform():
    check_secrecy()


def test_polynomial_of_too_low_a_degree_is_noticed():
    with (
        mutated(shamir.split, "_random(threshold - 1)", "_random(threshold - 2), _random(1) * np.uint64(0)"),
        pytest.raises(AssertionError),
    ):
        check_secrecy()


def test_two_sharings_of_a_secret_differ():
    secret = os.urandom(32)
    assert (split(secret, 3, 5) != split(secret, 3, 5)).any()


def test_coefficients_are_below_the_prime(monkeypatch):
    """A draw of p itself is repeated, so that all residues are equally likely."""
    draws = iter([b"\xff" * 4 * N_LIMBS, b"\xff\xff\xff\x7f" * N_LIMBS, b"\x05\0\0\0" * N_LIMBS])
    monkeypatch.setattr(shamir.os, "urandom", lambda size: next(draws))
    np.testing.assert_array_equal(shamir._random(1), np.full((1, N_LIMBS), 5))


@pytest.mark.parametrize(("threshold", "n_shares"), [(0, 3), (4, 3), (1, 0)])
def test_impossible_threshold_is_refused(threshold, n_shares):
    with pytest.raises(ArgumentError, match="`threshold`"):
        split(bytes(32), threshold, n_shares)


def test_secret_of_another_length_is_refused():
    with pytest.raises(ArgumentError, match="`secret`"):
        split(bytes(31), 2, 3)


def test_impossible_secret_is_none():
    impossible = np.full((1, 1, N_LIMBS), PRIME - 1, np.uint32)
    too_long = np.zeros((1, 1, N_LIMBS), np.uint32)
    too_long[0, 0, -1] = 1 << 16
    for shares in (impossible, too_long):
        assert combine(shares, np.array([1])) == [None]
