"""Checks of values that are declared in a schema or read from a record: elementwise, True where a value is allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Clusters and features there can be: their squares must fit into memory.
MOST = 10_000
Check = Callable[[Any], Any]


def finite(values: NDArray[Any]) -> NDArray[np.bool_]:
    return np.isfinite(values)


def not_negative(values: NDArray[Any]) -> NDArray[np.bool_]:
    return np.isfinite(values) & (values >= 0)


def positive(values: NDArray[Any]) -> NDArray[np.bool_]:
    return np.isfinite(values) & (values > 0)


def square_positive(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Above zero, and so is the square, which is finite."""
    return (values > 0) & positive(values**2)


def square_finite(values: NDArray[Any]) -> NDArray[np.bool_]:
    return np.isfinite(values**2)


def within(least: int, limit: int) -> Check:
    """least, …, limit − 1."""
    return lambda values: (values >= least) & (values < limit)


def log_weights(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each row of logarithms is of weights that sum to 1.

    To less than 1 where a chain was stopped as it merged clusters: those it dropped had some weight.
    """
    total = np.exp(values).sum(axis=-1)
    return (values <= 1e-9).all(axis=-1) & (total > 1e-6) & (total < 1.0 + 1e-6)
