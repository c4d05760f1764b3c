"""How to speak of a target: of real numbers as they are, of classes by their odds, of counts by their rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedhlcr._support.wording import printable
from fedhlcr.analysis.effects import target_name
from fedhlcr.data.families import Family
from fedhlcr.posterior.fitted_model import FittedModel

# Where the model does not know the name of its target.
NO_TARGET = "the target"


@dataclass(frozen=True)
class Link:
    """The words for a model's target: those of its family, with its name.

    Attributes
    ----------
    family : what the target is
    subject : what effects change: "the odds of “severe”", "the rate of visits", or a real target itself
    response : what is predicted: "the probability of “severe”", "the rate of visits", or a real target itself
    observed : what is observed of several events: "share of “severe”", "rate of visits", or a real target itself
    """

    family: Family
    subject: str
    response: str
    observed: str

    @property
    def linear(self) -> str:
        """What the regressions predict: "log odds", "log rate", or a real target itself."""
        return self.family.linear or self.subject

    @property
    def change(self) -> str:
        """What an effect is: "odds ratio", "rate ratio", or "change of price"."""
        return self.family.ratio or f"change of {self.subject}"

    def effect(self, *, of_level: bool) -> str:
        """What a figure in a column of a feature is, or in that of a level of a category."""
        change = f"difference of {self.subject} from all other levels" if of_level else f"{self.change} per unit"
        return self.family.ratio or change

    def verb(self, plural: str, singular: str) -> str:
        """The form of a verb that fits the subject: odds are many, a rate is one."""
        return plural if self.family.is_plural else singular

    def if_typical(self, words: str) -> str:
        """Words about a typical entity: with a link, its mean is not that of all entities; else they are left out."""
        return words if self.family.has_link else ""


def link_of(model: FittedModel, target: str | None = None) -> Link:
    """The words for a model's target, by its own name or a given one."""
    family = model.posterior_.likelihood.family
    target = target_name(model) if target is None else target
    if family.has_classes:
        of_class, where = _class_in_words(model, target)
        return Link(family, f"the odds {of_class}", f"the probability {of_class}", f"{family.observed} {where}")
    if family.has_link:
        rate = f"{family.observed}{'' if target == NO_TARGET else f' of {target}'}"
        return Link(family, f"the {rate}", f"the {rate}", rate)
    return Link(family, target, target, target)


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
