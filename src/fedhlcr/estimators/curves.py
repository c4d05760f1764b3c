"""The parameter `curves`: which columns it means, and the curves that these columns get."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedhlcr._support.arrays import FloatArray
from fedhlcr.analysis.curves import feature_position
from fedhlcr.exceptions import ArgumentError
from fedhlcr.model.curves import FEWEST_DISTINCT, Curves, can_curve

AUTO = "auto"


def curve_columns(wanted: str | Sequence[Any], n_features: int, names: Any) -> list[int]:
    """Positions of the columns that may have a curve: those of a list, all with "auto", none with "none".

    `names` are the names of the features, or None if they have none.
    """
    if isinstance(wanted, str):
        return list(range(n_features)) if wanted == AUTO else []
    return sorted({feature_position(column, n_features, names, "curves") for column in wanted})


def make_curves(wanted: str | Sequence[Any], columns: list[int], quantiles: FloatArray) -> Curves | None:
    """The curves of the chosen columns, from the quantiles of all features (features, N_QUANTILES).

    With "auto", columns with too few distinct values are left out. A list must not have any.
    """
    if not isinstance(wanted, str):
        flat = [column for column in columns if not can_curve(quantiles[column])]
        if flat:
            raise ArgumentError(
                f"`curves` asks for the feature at position {flat[0]}, but it has too few distinct values for a curve; "
                f"at least {FEWEST_DISTINCT} must be common. Leave it out, or use curves='auto'."
            )
    return Curves.from_quantiles(quantiles, columns)
