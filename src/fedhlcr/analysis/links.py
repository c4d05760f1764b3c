"""How to speak of targets whose regressions are on another scale: log odds of a class, logarithms of mean counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import number, percent, printable
from fedhlcr.analysis.effects import target_name
from fedhlcr.model.binary import Logistic
from fedhlcr.model.counts import NegativeBinomial
from fedhlcr.posterior.fitted_model import FittedModel

# Where the model does not know the name of its target.
NO_TARGET = "the target"


@dataclass(frozen=True)
class Link:
    """The words for a target of classes or counts.

    Attributes
    ----------
    is_binary : whether the target has two classes; otherwise it is a count
    linear : what the regressions predict: "log odds" or "log rate"
    ratio : what the exponential of a coefficient is: "odds ratio" or "rate ratio"
    subject : what changes by that ratio: "the odds of “severe”"
    response : what is predicted: "the probability of “severe”"
    observed : what is observed of several events: "share of “severe”"
    """

    is_binary: bool
    linear: str
    ratio: str
    subject: str
    response: str
    observed: str

    def verb(self, plural: str, singular: str) -> str:
        """The form of a verb that fits the subject: odds are many, a rate is one."""
        return plural if self.is_binary else singular

    def to_response(self, linear: FloatArray) -> FloatArray:
        """From log odds to probabilities, or from logarithms to means."""
        return np.asarray(expit(linear) if self.is_binary else np.exp(linear))

    def in_words(self, response: float) -> str:
        """A probability or a mean, for a sentence."""
        return percent(response) if self.is_binary else number(response)


def link_of(model: FittedModel, target: str | None = None) -> Link | None:
    """The words for a model's target; None if its regressions are in units of the target."""
    likelihood = model.posterior_.likelihood
    target = target_name(model) if target is None else target
    if isinstance(likelihood, Logistic):
        of_class, where = _class_in_words(model, target)
        return Link(
            True, "log odds", "odds ratio", f"the odds {of_class}", f"the probability {of_class}", f"share {where}"
        )
    if isinstance(likelihood, NegativeBinomial):
        of_what = "" if target == NO_TARGET else f" of {target}"
        rate = f"rate{of_what}"
        return Link(False, "log rate", "rate ratio", f"the {rate}", f"the {rate}", rate)
    return None


def _class_in_words(model: Any, target: str) -> tuple[str, str]:
    """The second class behind "the odds" and behind "share".

    Twice "of “severe”" for a text; "that y is 1" and "where y is 1" for a number or a truth value.
    """
    own = model.classes_[1]
    # a whole number may be stored as 1.0
    second = printable(int(own) if isinstance(own, float) and own == int(own) else own)
    if isinstance(own, str):
        return f"of “{second}”", f"of “{second}”"
    return f"that {target} is {second}", f"where {target} is {second}"
