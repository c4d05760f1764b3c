"""What a target is, told from its column."""

import numpy as np
import pyarrow as pa
import pytest

from fedhlcr.data.target_values import family_of

RNG = np.random.default_rng(0)
N = 400


def column(values):
    return pa.chunked_array([pa.array(values)])


def family(values):
    """That of a typed column; that of CSV, where numbers are texts, must be the same."""
    told = family_of("y", column(values))
    texts = [str(value) for value in np.asarray(values).tolist()]
    assert family_of("y", column(texts)).family == told.family
    return told.family.name


@pytest.mark.parametrize(
    "values",
    [
        RNG.integers(0, 2, N),
        RNG.integers(0, 2, N).astype(float),
        RNG.integers(0, 2, N).astype(bool),
        2 * RNG.integers(0, 2, N) - 1,
        RNG.choice(["yes", "no"], N),
    ],
)
def test_two_classes_are_binary(values):
    assert family(values) == "binary"


@pytest.mark.parametrize("values", [RNG.poisson(1.1, N), RNG.poisson(0.3, N) * 1.0, RNG.negative_binomial(1, 0.05, N)])
def test_small_whole_numbers_with_zeros_are_counts(values):
    assert family(values) == "count"


@pytest.mark.parametrize(
    "values",
    [
        RNG.normal(size=N),
        RNG.normal(size=5000).round(1),
        RNG.integers(1990, 2026, N),
        RNG.integers(20, 81, N),
        RNG.integers(1, 6, N),
        np.arange(N),
        np.arange(5000),
        RNG.integers(0, 10**6, N),
        RNG.poisson(3, N) - 3,
        10 - RNG.poisson(1, N).clip(0, 10),
        RNG.choice([1.5, 2.5], N),
        RNG.choice([1, 2], N),
        np.ones(N),
    ],
)
def test_other_numbers_are_real(values):
    assert family(values) == "real"


def test_ids_years_ages_and_ratings_get_a_reason():
    for values in (RNG.integers(1990, 2026, N), RNG.integers(1, 6, N), 10 - RNG.poisson(1, N).clip(0, 10)):
        assert "whole numbers" in family_of("y", column(values)).reason
    assert family_of("y", column(RNG.normal(size=N))).reason == ""


def test_missing_values_do_not_count():
    assert family_of("y", column(["yes", "", "no", "NA", "yes"])).family.name == "binary"
    assert family_of("y", column([0.0, None, 1.0, 1.0])).family.name == "binary"
    assert family_of("y", column(["a", "b", "c"])).family.name == "real"
