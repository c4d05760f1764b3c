"""Predictions as arrays, or as series and frames of pandas or polars, as the user asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedhlcr.exceptions import ArgumentError, MissingDependencyError

OutputName = Literal["pandas", "polars", "default"]
OUTPUTS = ("pandas", "polars", "default")


def answer(columns: dict[str, NDArray[Any]], X: Any, output: str) -> Any:
    """Columns of predictions as the user wants them: a single one as an array or series."""
    if output == "default":
        return tuple(columns.values()) if len(columns) > 1 else next(iter(columns.values()))
    return _in_pandas(columns, X) if output == "pandas" else _in_polars(columns)


def check_output_name(value: Any, argument: str) -> None:
    """Refuse anything but the name of an output."""
    if value not in OUTPUTS:
        raise ArgumentError(f"`{argument}` must be 'pandas', 'polars' or 'default', but is {value!r}.")


def _in_pandas(columns: dict[str, NDArray[Any]], X: Any) -> Any:
    try:
        import pandas as pd
    except ImportError:
        raise MissingDependencyError("output='pandas' needs pandas; install it with: pip install pandas") from None
    index = X.index if isinstance(X, pd.DataFrame) else None
    if len(columns) > 1:
        return pd.DataFrame(columns, index=index)
    ((name, values),) = columns.items()
    return pd.Series(values, index=index, name=name)


def _in_polars(columns: dict[str, NDArray[Any]]) -> Any:
    try:
        import polars as pl
    except ImportError:
        raise MissingDependencyError("output='polars' needs polars; install it with: pip install polars") from None
    series = [pl.Series(name, _plain(values)) for name, values in columns.items()]
    return pl.DataFrame(series) if len(series) > 1 else series[0]


def _plain(values: NDArray[Any]) -> NDArray[Any] | Sequence[Any]:
    """Values as polars takes them: objects as a list, whose type it finds out."""
    return values.tolist() if values.dtype.kind in "OU" else np.ascontiguousarray(values)
