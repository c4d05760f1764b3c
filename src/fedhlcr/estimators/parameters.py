"""Parameters that the estimators share, and their checks."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from fedhlcr.model.priors import LEARNABLE

POSITIVE_INTEGER = Interval(Integral, 1, None, closed="left")

# Parameters of all estimators.
PARAMETER_CONSTRAINTS: dict[str, list[Any]] = {
    "n_clusters": [POSITIVE_INTEGER, StrOptions({"auto"})],
    **{name: [Interval(Real, 0, None, closed="neither"), StrOptions({"learn"})] for name in LEARNABLE},
    "coef_prior": [StrOptions({"adaptive", "common_mean", "zero_mean"})],
    "effects": [StrOptions({"auto", "none", "entity", "entity+agent"})],
    "noise": [StrOptions({"entity", "common", "student"})],
    "likelihood": [str],
    "curves": [StrOptions({"none", "auto"}), "array-like"],
    "standardize": ["boolean"],
    "fit_intercept": ["boolean"],
    "n_draws": [POSITIVE_INTEGER],
    "max_clusters": [POSITIVE_INTEGER],
    "n_threads": [POSITIVE_INTEGER, None],
    "random_state": ["random_state"],
    "verbose": ["verbose"],
}


def number_or_none(value: Any) -> Any:
    """A parameter as a Python number, or None if it is a word: "auto" or "learn"."""
    if isinstance(value, np.generic):
        # a float32 parameter would make all draws float32
        return value.item()
    return None if isinstance(value, str) else value


def given_hyperparameters(estimator: Any) -> dict[str, float | None]:
    """The hyperparameters of an estimator by name; None if they are learned."""
    return {name: number_or_none(getattr(estimator, name)) for name in LEARNABLE}
