"""Whether a model predicts its events better than simpler models do: log densities of events left out, compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.html import block, paragraph, rows_html
from fedhlcr._support.special import stdtrit
from fedhlcr._support.wording import capital, listed
from fedhlcr.analysis.simpler import (
    LOGISTIC_PER_ENTITY,
    MIXED_MODEL,
    ONE_LOGISTIC,
    ONE_POISSON,
    ONE_RIDGE,
    POISSON_PER_ENTITY,
    RATE_PER_ENTITY,
    RIDGE_PER_ENTITY,
)
from fedhlcr.exceptions import Advice, SimplerModelWarning

# Simpler models in a sentence, and what to use for them.
RIVALS = {
    ONE_RIDGE: ("one ridge for all", "`fedhlcr.baselines.GroupedRidge()`"),
    RIDGE_PER_ENTITY: ("a ridge per {entity}", '`fedhlcr.baselines.GroupedRidge(level="entity")`'),
    MIXED_MODEL: ("a mixed model", "`fedhlcr.baselines.MixedModelRegressor()`"),
    ONE_LOGISTIC: ("one logistic regression for all", "`sklearn.linear_model.LogisticRegression()`"),
    ONE_POISSON: ("one Poisson regression for all", "`sklearn.linear_model.PoissonRegressor()`"),
    RATE_PER_ENTITY: ("the mean of each {entity}", ""),
    LOGISTIC_PER_ENTITY: (
        "a logistic regression per {entity}",
        "`sklearn.linear_model.LogisticRegression()` for the events of each {entity}",
    ),
    POISSON_PER_ENTITY: (
        "a Poisson regression per {entity}",
        "`sklearn.linear_model.PoissonRegressor()` for the events of each {entity}",
    ),
}
VerdictName = Literal["better", "about the same", "worse"]
# Differences of more than this many standard errors count, if there are many entities.
CLEAR = 2.0


def rival_name(name: str, entity: str = "entity") -> str:
    """A simpler model in a sentence; `entity` is what the user calls one."""
    return RIVALS.get(name, (f"a {name}",))[0].format(entity=entity)


def clear_errors(n_entities: int) -> float:
    """Number of standard errors beyond which a difference counts.

    The standard error itself is uncertain if there are few entities. So it is the quantile of Student's t distribution
    with one degree of freedom less than entities, at the level of two standard errors for many: 2.4 for 8 entities, 14
    for 2. One entity has no standard error.
    """
    if n_entities < 2:
        return float("inf")
    return float(stdtrit(n_entities - 1, NormalDist().cdf(CLEAR)))


@dataclass(frozen=True)
class Difference:
    """How much better the model predicts an event than a simpler model.

    Attributes
    ----------
    rival : name of the simpler model
    gain : mean difference of the log densities, in nats per event; negative if the simpler model is better
    standard_error : of the gain, with entities as the units
    n_entities : number of entities it comes from
    """

    rival: str
    gain: float
    standard_error: float
    n_entities: int

    @property
    def verdict(self) -> VerdictName:
        """Whether the model is clearly better or worse than the simpler one: see `clear_errors`."""
        if self.n_entities < 2 or abs(self.gain) <= clear_errors(self.n_entities) * self.standard_error:
            return "about the same"
        return "better" if self.gain > 0.0 else "worse"


@dataclass(frozen=True)
class FitComparison:
    """A fitted model against simpler ones, on its own events, each predicted from all others. Print it.

    Attributes
    ----------
    differences : one for each simpler model
    n_events, n_entities : numbers of events compared, and of their entities
    """

    differences: tuple[Difference, ...]
    n_events: int
    n_entities: int

    @property
    def strongest(self) -> Difference:
        """The difference from the simpler model that predicts best."""
        return min(self.differences, key=lambda difference: difference.gain)

    @property
    def verdict(self) -> VerdictName:
        """That against the strongest of the simpler models."""
        return self.strongest.verdict

    @property
    def sentence(self) -> str:
        """The verdict in plain English."""
        gain = abs(self.strongest.gain)
        error = self.strongest.standard_error
        figures = f"{gain:.2g} nats per event, ± {error:.1g}"
        best = capital(rival_name(self.strongest.rival))
        if self.verdict == "worse":
            return f"{best} predicts these events better (by {figures})."
        if self.verdict == "about the same":
            return f"{best} predicts these events about as well (difference {figures})."
        everyone = listed([rival_name(difference.rival) for difference in self.differences])
        return f"The model predicts its events better than {everyone} (by {figures} or more)."

    @property
    def told(self) -> str:
        """The verdict, and how it was found."""
        return f"{self.sentence} Each fitted event was predicted from all others."

    def warning(self, *, fit_intercept: bool = True, has_one_cluster: bool = False) -> SimplerModelWarning | None:
        """The warning that the user should see; None if no simpler model is clearly better.

        Arguments as in `advice`.
        """
        if self.verdict != "worse":
            return None
        return SimplerModelWarning(
            self.sentence, self.advice(fit_intercept=fit_intercept, has_one_cluster=has_one_cluster)
        )

    def advice(self, *, fit_intercept: bool = True, has_one_cluster: bool = False) -> Advice:
        """How to fit the strongest of the simpler models; and with an intercept, if the model has none.

        A model that has one cluster need not be told to take one.
        """
        is_ridge = self.strongest.rival == ONE_RIDGE
        # the command line always fits an intercept
        intercept = "" if fit_intercept else " The simpler models have an intercept; also try fit_intercept=True."
        settings: dict[str, Any] = {"effects": "none" if is_ridge else "entity", "noise": "common"}
        if not has_one_cluster:
            settings = {"n_clusters": 1, **settings}
        named = ", ".join(f"{{{name}}}" for name in settings)
        return Advice(
            f"If you want predictions, use {rival_name(self.strongest.rival)} ({named}).",
            f"fedhlcr.baselines.{'GroupedRidge' if is_ridge else 'MixedModelRegressor'} is one too.{intercept}",
            **settings,
        )

    def facts(self) -> dict[str, Any]:
        """What is told of it to programs."""
        rivals = {d.rival: {"gain": d.gain, "standard_error": d.standard_error} for d in self.differences}
        return {"verdict": self.verdict, "n_events": self.n_events, "n_entities": self.n_entities, "rivals": rivals}

    def to_dict(self) -> dict[str, Any]:
        """What a model file holds of it."""
        rivals = [[d.rival, d.gain, d.standard_error] for d in self.differences]
        return {"differences": rivals, "n_events": self.n_events, "n_entities": self.n_entities}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> FitComparison:
        n_entities = int(values["n_entities"])
        differences = tuple(
            Difference(str(name), float(gain), float(se), n_entities) for name, gain, se in values["differences"]
        )
        return cls(differences, int(values["n_events"]), n_entities)

    def __str__(self) -> str:
        return self.sentence

    def _repr_html_(self) -> str:
        header = ("simpler model", "gain, nats per event", "± s.e.", "the model is")
        rows = [(d.rival, f"{d.gain:+.4f}", f"{d.standard_error:.4f}", d.verdict) for d in self.differences]
        told = f"{self.n_events:,} events of {self.n_entities:,} entities, each event predicted from all others."
        return block([paragraph(self.sentence), rows_html(header, rows), paragraph(told)])


def compare_densities(own: FloatArray, rivals: Mapping[str, FloatArray], entities: IndexArray) -> FitComparison:
    """Compare log densities of the same events, (events,) each.

    The events of one entity depend on each other, so the standard error of the mean difference is that of entities.

    Parameters
    ----------
    own : of the model
    rivals : of simpler models, by name
    entities : (events,) the entity of each event, by any number
    """
    n_entities = len(np.unique(entities))

    def against(name: str, theirs: FloatArray) -> Difference:
        gain = own - theirs
        error = grouped_standard_error(gain, entities) if n_entities > 1 else 0.0
        return Difference(name, float(gain.mean()), error, n_entities)

    return FitComparison(tuple(against(name, theirs) for name, theirs in rivals.items()), len(own), n_entities)


def grouped_standard_error(values: FloatArray, groups: IndexArray) -> float:
    """Standard error of the mean of values that are independent between groups only; NaN if there is one group.

    With d_g the sum of a group's deviations from the mean, it is √(G/(G−1) · Σ d_g²) / (number of values).
    """
    distinct, group = np.unique(groups, return_inverse=True)
    if len(distinct) < 2:
        return float("nan")
    sums = np.bincount(group, weights=values - values.mean())
    factor = len(distinct) / (len(distinct) - 1)
    return float(np.sqrt(factor * (sums**2).sum()) / len(values))
