"""Means without rounding errors: against fractions, in any order, in pieces."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhlcr.data.exact_sums import ExactSums

# rounding errors of products with weights must be numbers themselves, so no number is tiny but 0
FINITE = st.floats(-1e100, 1e100, allow_nan=False).map(lambda value: value if abs(value) > 1e-270 else 0.0)


def exact_means(X, y, weight):
    """The means by fractions, rounded once."""
    columns, w = [*X.T, y], [Fraction(float(value)) for value in weight]
    return [float(sum(a * Fraction(float(b)) for a, b in zip(w, column, strict=True)) / sum(w)) for column in columns]


def means_of(X, y, weight, *cuts):
    sums = ExactSums.empty(X.shape[1])
    for rows in np.split(np.arange(len(y)), cuts):
        sums.add(X[rows], y[rows], weight[rows])
    return sums.means()


@given(st.lists(st.tuples(FINITE, FINITE, st.sampled_from([1.0, 1.0, 2.0, 0.1, 3.7])), min_size=1, max_size=30))
def test_means_are_the_nearest_floats_to_exact_means(rows):
    X, y, weight = np.array([[r[0]] for r in rows]), np.array([r[1] for r in rows]), np.array([r[2] for r in rows])
    assert means_of(X, y, weight).tolist() == exact_means(X, y, weight)


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1.0, 1e100])
def test_order_and_pieces_change_no_digit(scale):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(400, 3)) * scale * 10.0 ** rng.integers(-20, 20, size=(400, 3)), rng.normal(size=400)
    weight = np.ones(400)
    order = rng.permutation(400)
    whole = means_of(X, y, weight)
    assert whole.tolist() == exact_means(X, y, weight)
    assert np.array_equal(whole, means_of(X[order], y[order], weight, 1, 7, 300))
    assert np.array_equal(whole, means_of(np.asfortranarray(X), y, weight, 150))


@pytest.mark.parametrize("constant", [0.1, -1 / 3, 1e15 + 0.3, 1e-290])
def test_mean_of_a_constant_is_the_constant(constant):
    X = np.full((49, 1), constant)
    assert means_of(X, X[:, 0], np.ones(49)).tolist() == [constant, constant]
    assert means_of(X, X[:, 0], np.full(49, 0.3))[0] == constant


def test_threads_change_no_digit():
    rng = np.random.default_rng(2)
    X, y, weight = rng.normal(size=(5000, 3)) * 1e8, rng.normal(size=5000), rng.choice([1.0, 0.3], size=5000)
    totals = []
    for n_threads in (1, 2, 3):
        sums = ExactSums.empty(3)
        sums.add(X, y, weight, n_threads)
        sums.add(-X, y, weight, n_threads)
        totals.append(sums.totals)
    assert np.array_equal(totals[0], totals[1])
    assert np.array_equal(totals[0], totals[2])
    assert sums.means()[:-1].tolist() == [0.0, 0.0, 0.0]
