"""Words for models whose linear part is on another scale than the target: log odds, or the log of a mean count."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from fedhlcr._support.wording import number, percent, printable
from fedhlcr.model.binary import Logistic
from fedhlcr.model.counts import NegativeBinomial
from fedhlcr.posterior.fitted_model import FittedModel


@dataclass(frozen=True)
class Link:
    """How to word what a model says on its own scale.

    Attributes
    ----------
    scale : name of the scale of the coefficients
    ratio : what the exponential of a coefficient is
    class_name : the class that probabilities refer to; None for counts
    """

    scale: str
    ratio: str
    class_name: str | None = None

    def level_words(self, target: str, level: float) -> str:
        """A phrase on the level of a cluster: "reply is yes with probability 62 %", "the mean of visits is 3.1"."""
        if self.class_name is None:
            return f"the mean of {target} is {number(float(np.exp(level)))}"
        return f"{target} is {self.class_name} with probability {percent(float(expit(level)))}"


def link_of(model: FittedModel) -> Link | None:
    """The link of a model; None if it predicts real numbers, on their own scale."""
    likelihood = model.posterior_.likelihood
    if isinstance(likelihood, Logistic):
        classes = getattr(model, "classes_", np.array([0, 1]))
        return Link("log odds", "odds ratio", printable(str(classes[1])))
    return Link("log mean", "rate ratio") if isinstance(likelihood, NegativeBinomial) else None
