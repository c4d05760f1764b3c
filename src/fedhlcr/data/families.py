"""What a target is: a real number, one of two classes, or a count.

All that differs between these three follows from one object, `REAL`, `BINARY` or `COUNT`. A likelihood names its own
(`Likelihood.family`), and so does every model (`model.family`). What needs outer layers is in tables by the family's
name, in the module that owns them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.special import expit
from fedhlcr._support.wording import Noun, number, percent
from fedhlcr.exceptions import Advice, DataError, Setting

FamilyName = Literal["real", "binary", "count"]
# Largest count that models take: beyond, sums of squares lose their digits.
LARGEST_COUNT = 1e12
VALUE = Noun("value", "values")


def _no_faults(target: NDArray[Any]) -> dict[str, int]:  # noqa: ARG001
    return {}


def count_faults(target: NDArray[Any]) -> dict[str, int]:
    """How many values of a target are no counts, by what they are."""
    faults = {
        "negative": target < 0.0,
        "not whole": target % 1.0 != 0.0,
        f"above {LARGEST_COUNT:.0e}": target > LARGEST_COUNT,
    }
    return {what: int(wrong.sum()) for what, wrong in faults.items() if wrong.any()}


def _same(linear: FloatArray) -> FloatArray:
    return linear


def _probability(log_odds: FloatArray) -> FloatArray:
    return np.asarray(expit(log_odds))


def _rate(log_rate: FloatArray) -> FloatArray:
    return np.asarray(np.exp(log_rate))


@dataclass(frozen=True)
class Family:
    """A sort of target: its likelihood, its link, and its words.

    Attributes
    ----------
    name : "real", "binary" or "count"
    likelihood : name of its likelihood; None for real targets, where it follows from the effects and the noise
    linear : what regressions predict, if that is not the target itself: "log odds" or "log rate"
    ratio : what the exponential of a coefficient is: "odds ratio" or "rate ratio"
    score : what `score` of an estimator returns: "R²", "accuracy" or "D²"
    observed : what is observed of several events, if it has a name: "share" or "rate"
    step : what features change by where effects are compared
    effect_verb : what features do to what is predicted
    kind : how a mean of the target is shown in a table
    outcomes : the targets of several events, in a sentence
    is_plural : whether one says "the odds are", not "the rate is"
    has_classes : whether targets are classes, which models know as 0 and 1, and predictions probabilities
    has_exposure : whether events may have an exposure, and predictions are whole numbers at the ends of intervals
    to_response : the inverse link, from what regressions predict to the mean of the target
    in_words : a mean of the target, for a sentence
    faults : how many values of a numeric target are none of this family, by what they are
    """

    name: FamilyName
    likelihood: str | None = None
    linear: str = ""
    ratio: str = ""
    score: str = "R²"
    observed: str = ""
    outcomes: str = "targets"
    step: str = "unit of the feature"
    effect_verb: str = "moves"
    kind: Literal["number", "share"] = "number"
    is_plural: bool = False
    has_classes: bool = False
    has_exposure: bool = False
    to_response: Callable[[FloatArray], FloatArray] = _same
    in_words: Callable[[float], str] = number
    faults: Callable[[NDArray[Any]], dict[str, int]] = _no_faults

    def __str__(self) -> str:
        return self.name

    @property
    def has_link(self) -> bool:
        """Whether regressions are on another scale than the target."""
        return bool(self.linear)

    @property
    def units(self) -> str:
        """What regressions are in the units of."""
        return self.linear or "units of the target"


# Ratios are compared by standard deviation; those of levels and of features of 0 and 1 by 1 against 0.
RATIO_STEP = "standard deviation of the feature, or of 1 against 0"
REAL = Family("real")
BINARY = Family(
    "binary",
    likelihood="logistic",
    linear="log odds",
    ratio="odds ratio",
    score="accuracy",
    observed="share",
    outcomes="outcomes",
    step=RATIO_STEP,
    effect_verb="changes",
    kind="share",
    is_plural=True,
    has_classes=True,
    to_response=_probability,
    in_words=percent,
)
COUNT = Family(
    "count",
    likelihood="negative binomial",
    linear="log rate",
    ratio="rate ratio",
    score="D²",
    observed="rate",
    outcomes="counts",
    step=RATIO_STEP,
    effect_verb="changes",
    has_exposure=True,
    to_response=_rate,
    faults=count_faults,
)
FAMILIES: dict[FamilyName, Family] = {family.name: family for family in (REAL, BINARY, COUNT)}


def wrong_counts(where: str, faults: dict[str, int], n_rows: int, *, in_fit: bool = False) -> DataError:
    """Return the error about a target that must hold counts; `faults` are those of `count_faults`."""
    what, n_wrong = next(iter(faults.items()))
    values = f"{n_wrong:,} of {VALUE.count(n_rows)} {'is' if n_wrong == 1 else 'are'}"
    found = f"{where} must hold counts (0, 1, 2, …), but {values} {what}"
    if not in_fit:
        return DataError(f"{found}; correct these rows, or leave them out.")
    other = Advice("", "HLCRRegressor is for real numbers.")
    return DataError(f"{found}; correct these rows, or choose another family.", other, (Setting("family", "real"),))
