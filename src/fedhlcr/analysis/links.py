"""How to speak of targets whose regressions are on another scale: log odds of a class, logarithms of mean counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import printable
from fedhlcr.analysis.effects import target_name
from fedhlcr.data.families import Family
from fedhlcr.posterior.fitted_model import FittedModel

# Where the model does not know the name of its target.
NO_TARGET = "the target"


@dataclass(frozen=True)
class Link:
    """The words for a target of classes or counts: those of its family, with its name.

    Attributes
    ----------
    family : what the target is
    subject : what changes by a ratio: "the odds of “severe”"
    response : what is predicted: "the probability of “severe”"
    observed : what is observed of several events: "share of “severe”"
    """

    family: Family
    subject: str
    response: str
    observed: str

    @property
    def linear(self) -> str:
        """What the regressions predict: "log odds" or "log rate"."""
        return self.family.linear

    @property
    def ratio(self) -> str:
        """What the exponential of a coefficient is: "odds ratio" or "rate ratio"."""
        return self.family.ratio

    def verb(self, plural: str, singular: str) -> str:
        """The form of a verb that fits the subject: odds are many, a rate is one."""
        return plural if self.family.is_plural else singular

    def to_response(self, linear: FloatArray) -> FloatArray:
        """From log odds to probabilities, or from logarithms to means."""
        return self.family.to_response(linear)

    def in_words(self, response: float) -> str:
        """A probability or a mean, for a sentence."""
        return self.family.in_words(response)


def link_of(model: FittedModel, target: str | None = None) -> Link | None:
    """The words for a model's target; None if its regressions are in units of the target."""
    family = model.posterior_.likelihood.family
    target = target_name(model) if target is None else target
    if family.has_classes:
        of_class, where = _class_in_words(model, target)
        return Link(family, f"the odds {of_class}", f"the probability {of_class}", f"{family.observed} {where}")
    if family.has_link:
        rate = f"{family.observed}{'' if target == NO_TARGET else f' of {target}'}"
        return Link(family, f"the {rate}", f"the {rate}", rate)
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
