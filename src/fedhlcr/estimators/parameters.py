"""Parameters that the estimators share, and their checks."""

from __future__ import annotations

import os
from numbers import Integral, Real
from typing import Any, get_args

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from fedhlcr.data.frames import MissingName
from fedhlcr.federation.checks import ReplyLimits
from fedhlcr.federation.settings import FEWEST_IN_COHORT, AggregationName
from fedhlcr.model.priors import LEARNABLE

POSITIVE_INTEGER = Interval(Integral, 1, None, closed="left")
# A hyperparameter that is given as a number, or learned.
LEARNED = [Interval(Real, 0, None, closed="neither"), StrOptions({"learn"})]

# Parameters of all estimators.
SHARED_CONSTRAINTS: dict[str, list[Any]] = {
    "n_clusters": [POSITIVE_INTEGER, StrOptions({"auto"})],
    **{name: LEARNED for name in LEARNABLE if name != "noise_scale"},
    "coef_prior": [StrOptions({"adaptive", "common_mean", "zero_mean"})],
    "effects": [StrOptions({"auto", "none", "entity", "entity+agent"})],
    "curves": [StrOptions({"none", "auto"}), "array-like"],
    "categories": [StrOptions({"auto"}), "array-like", dict],
    "missing": [StrOptions(set(get_args(MissingName)))],
    "formula": [str, None],
    "standardize": ["boolean"],
    "fit_intercept": ["boolean"],
    "n_draws": [POSITIVE_INTEGER],
    "max_clusters": [POSITIVE_INTEGER],
    "n_threads": [POSITIVE_INTEGER, None],
    "random_state": ["random_state"],
    "verbose": ["verbose"],
}
# Those of regressors on real numbers.
PARAMETER_CONSTRAINTS: dict[str, list[Any]] = {
    **SHARED_CONSTRAINTS,
    "noise_scale": LEARNED,
    "noise": [StrOptions({"entity", "common", "student"})],
    "likelihood": [str],
}
# Those of all estimators that see the whole table, and of all that run a federation.
CENTRAL_CONSTRAINTS: dict[str, list[Any]] = {"n_sweeps": [POSITIVE_INTEGER], "n_chains": [POSITIVE_INTEGER]}
FEDERATED_CONSTRAINTS: dict[str, list[Any]] = {
    "participation": [Interval(Real, 0, 1, closed="right")],
    "rounds": [POSITIVE_INTEGER, None],
    "failure_rate": [Interval(Real, 0, 1, closed="left")],
    "patience": [POSITIVE_INTEGER, None],
    "engine": [StrOptions({"in_process", "ray"}), callable],
    "limits": [ReplyLimits, None],
    "aggregation": [StrOptions(set(get_args(AggregationName)))],
    "fixed_point": ["boolean"],
    "min_cohort": [Interval(Integral, FEWEST_IN_COHORT, None, closed="left")],
    "checkpoint": [str, os.PathLike, None],
    "checkpoint_every": [POSITIVE_INTEGER],
}


def number_or_none(value: Any) -> Any:
    """A parameter as a Python number, or None if it is a word: "auto" or "learn"."""
    if isinstance(value, np.generic):
        # a float32 parameter would make all draws float32
        return value.item()
    return None if isinstance(value, str) else value


def given_hyperparameters(estimator: Any) -> dict[str, float | None]:
    """The hyperparameters of an estimator by name; None if they are learned, or if the estimator does not have them."""
    return {name: number_or_none(getattr(estimator, name, None)) for name in LEARNABLE}
