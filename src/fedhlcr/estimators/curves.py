"""The parameter `curves`: which columns it means, and the curves that these columns get."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedhlcr._support.arrays import FloatArray
from fedhlcr.analysis.effects import feature_position
from fedhlcr.exceptions import Advice, ArgumentError
from fedhlcr.model.curves import FEWEST_DISTINCT, Curves, can_curve
from fedhlcr.model.likelihood import AUTO


def curve_columns(wanted: str | Sequence[Any], n_features: int, names: Any) -> list[int]:
    """Positions of the columns that may have a curve: those of a list, all with "auto", none with "none".

    `names` are the names of the features, or None if they have none.
    """
    if isinstance(wanted, str):
        return list(range(n_features)) if wanted == AUTO else []
    if (n_dim := getattr(wanted, "ndim", 1)) != 1:
        raise ArgumentError(f"`curves` must be a list of names or positions, but is an array with {n_dim} dimensions.")
    return sorted({feature_position(column, n_features, names, "curves") for column in wanted})


def make_curves(wanted: str | Sequence[Any], columns: list[int], quantiles: FloatArray, names: Any) -> Curves | None:
    """The curves of the chosen columns, from the quantiles of all features (features, N_QUANTILES).

    With "auto", columns with too few distinct values are left out. A list must not have any. `names` are those
    of all features, or None.
    """
    if not isinstance(wanted, str):
        flat = [column for column in columns if not can_curve(quantiles[column])]
        if flat:
            which = f"at position {flat[0]}" if names is None else repr(str(names[flat[0]]))
            raise ArgumentError(
                f"`curves` asks for the feature {which}, but it has too few distinct values for a curve; "
                f"at least {FEWEST_DISTINCT} must be common.",
                Advice("Leave it out, or use {curves}.", curves=AUTO),
            )
    return Curves.from_quantiles(quantiles, columns)
