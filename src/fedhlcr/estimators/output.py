"""Predictions as arrays, or as series and frames of pandas or polars, as the user asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from fedhlcr.exceptions import ArgumentError, MissingDependencyError

OutputName = Literal["pandas", "polars", "default"]
OUTPUTS = ("pandas", "polars", "default")


class OutputChoice:
    """What predictions are returned as: arrays by default."""

    # scikit-learn's `clone` copies this attribute
    _sklearn_output_config: dict[str, str]

    def set_output(self, *, predict: OutputName | None = None) -> Self:
        """Choose what `predict`, `predict_interval` and `predict_proba` return, like scikit-learn's `set_output`.

        Parameters
        ----------
        predict : {"pandas", "polars", "default"} or None
            "pandas" returns series and frames, with the index of a pandas `X`; "polars" those of polars; "default"
            arrays. None changes nothing. The argument `output` of a method has priority.

        Returns
        -------
        self
        """
        if predict is not None:
            _check(predict, "predict")
            self._sklearn_output_config = {**getattr(self, "_sklearn_output_config", {}), "predict": predict}
        return self

    def _output_name(self, output: str | None) -> str:
        """What to return: as the argument says, or else as `set_output` did."""
        if output is not None:
            _check(output, "output")
        return output or getattr(self, "_sklearn_output_config", {}).get("predict", "default")

    def _answer(self, columns: dict[str, NDArray[Any]], X: Any, output: str | None) -> Any:
        """Columns of predictions as the user wants them: a single one as an array or series."""
        wanted = self._output_name(output)
        if wanted == "default":
            return tuple(columns.values()) if len(columns) > 1 else next(iter(columns.values()))
        return _in_pandas(columns, X) if wanted == "pandas" else _in_polars(columns)


def _check(value: Any, argument: str) -> None:
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
