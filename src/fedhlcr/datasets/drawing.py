"""What the generated tables share: checks of their sizes, the generator of a seed, gaps in columns."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from fedhlcr.exceptions import ArgumentError


def generator(random_state: Any) -> np.random.Generator:
    """The generator of a seed, or one that is seeded from a scikit-learn random state."""
    fixed = isinstance(random_state, Integral)
    return np.random.default_rng(int(random_state) if fixed else check_random_state(random_state).randint(2**31))


def check_whole(name: str, value: int, least: int = 1, most: int | None = None) -> None:
    """Refuse a size that is not a whole number from `least` to `most`."""
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_whole or value < least or (most is not None and value > most):
        upper = "or more" if most is None else f"to {most}"
        raise ArgumentError(f"`{name}` must be a whole number, {least} {upper}, but is {value!r}.")


def check_share(name: str, value: float) -> None:
    """Refuse a share outside 0 to 1; 1 itself is refused too, because nothing would be left."""
    if not (math.isfinite(value) and 0.0 <= value < 1.0):
        raise ArgumentError(f"`{name}` must be a share, at least 0 and below 1, but is {value!r}.")


def numbered(letter: str, n: int) -> NDArray[np.str_]:
    """The ids letter01, letter02, …, padded so that they sort by number."""
    width = max(2, len(str(n)))
    return np.array([f"{letter}{number:0{width}}" for number in range(1, n + 1)])


def with_gaps(values: NDArray[Any], share: float, rng: np.random.Generator) -> pa.Array:
    """A column in which about this share of the values is missing."""
    return pa.array(values, mask=rng.random(len(values)) < share)
