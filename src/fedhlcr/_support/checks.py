"""Checks of values that are declared in a schema or read from a record: elementwise, True where a value is allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Most clusters, and most features, that a model may have: matrices of this size must fit into memory.
SIZE_LIMIT = 10_000
Check = Callable[[Any], Any]


def finite(values: NDArray[Any]) -> NDArray[np.bool_]:
    return np.isfinite(values)


def not_negative(values: NDArray[Any]) -> NDArray[np.bool_]:
    return np.isfinite(values) & (values >= 0)


def positive(values: NDArray[Any]) -> NDArray[np.bool_]:
    return np.isfinite(values) & (values > 0)


def square_positive(values: NDArray[Any]) -> NDArray[np.bool_]:
    """The value and its square are positive and finite: the square neither underflows nor overflows."""
    return (values > 0) & positive(values**2)


def square_finite(values: NDArray[Any]) -> NDArray[np.bool_]:
    """The value and its square are finite."""
    return np.isfinite(values**2)


def within(least: int, limit: int) -> Check:
    """A check for the numbers least ≤ value < limit."""
    return lambda values: (values >= least) & (values < limit)


def log_weights(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether the weights behind each row of logarithms sum to at most 1, and to more than 0.

    They sum to less than 1 if a chain was stopped while it merged clusters: the dropped ones had some weight.
    """
    total = np.exp(values).sum(axis=-1)
    return (values <= 1e-9).all(axis=-1) & (total > 1e-6) & (total < 1.0 + 1e-6)
