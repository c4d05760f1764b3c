"""The answer of `score`: a number that says what it is."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import EVENT
from fedhlcr.analysis.scores import SMALLEST_MEAN
from fedhlcr.data.families import Family
from fedhlcr.data.hierarchy import UNKNOWN
from fedhlcr.posterior.prediction import Profiles


class Counts(NamedTuple):
    """How many events were scored: of known entities, of new entities of known agents, and of new agents."""

    known: int
    new_entities: int
    new_agents: int

    @classmethod
    def of(cls, profiles: Profiles) -> Self:
        """Count rows by what the model knows of them."""
        agents = profiles.agents[profiles.of_row]
        entities = profiles.entities[profiles.of_row]
        new_agents = agents == UNKNOWN
        new_entities = (entities == UNKNOWN) & ~new_agents
        return cls(int((entities != UNKNOWN).sum()), int(new_entities.sum()), int(new_agents.sum()))


class Score(float):
    """A score. It is a float, and is shown with what was scored.

    Attributes
    ----------
    metric : "R²", "accuracy" or "D²"
    n_events : events that were scored
    n_known : those of entities that the model knows
    n_new_entities, n_new_agents : those of new entities of known agents, and of new agents
    """

    metric: str
    n_events: int
    n_known: int
    n_new_entities: int
    n_new_agents: int

    def __new__(cls, value: float, metric: str, counts: Counts) -> Self:
        score = super().__new__(cls, value)
        score.metric = metric
        score.n_events = sum(counts)
        score.n_known, score.n_new_entities, score.n_new_agents = counts
        return score

    def __repr__(self) -> str:
        return (
            f"{float(self):.3f} ({self.metric} of {EVENT.count(self.n_events)}; {self.n_known:,} of known entities, "
            f"{self.n_new_entities:,} of new entities, {self.n_new_agents:,} of new agents)"
        )

    __str__ = __repr__

    def __reduce__(self) -> tuple[Any, ...]:
        counts = Counts(self.n_known, self.n_new_entities, self.n_new_agents)
        return type(self), (float(self), self.metric, counts)


def score_events(
    family: Family, observed: FloatArray, predicted: FloatArray, weight: FloatArray | None, counts: Counts
) -> Score:
    """The score that scikit-learn gives such targets: R², accuracy, or D².

    Parameters
    ----------
    observed, predicted : (events,) targets as numbers, and their means
    weight : (events,) how often each event counts
    counts : what the events are
    """
    from sklearn import metrics

    if family.has_classes:
        value = metrics.accuracy_score(observed == 1.0, predicted > 0.5, sample_weight=weight)
    elif not family.has_exposure:
        value = metrics.r2_score(observed, predicted, sample_weight=weight)
    elif np.ptp(observed) == 0.0:
        # as of a real target that is constant, which nothing explains
        value = float("nan")
    else:
        means = np.maximum(predicted, SMALLEST_MEAN)
        value = metrics.d2_tweedie_score(observed, means, sample_weight=weight, power=1)
    return Score(value, family.score, counts)
