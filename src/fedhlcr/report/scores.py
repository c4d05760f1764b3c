"""How well a model predicts events, compared with ridge regressions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.threads import single_threaded_blas
from fedhlcr.analysis.evaluation import Errors, was_fitted
from fedhlcr.data import inputs
from fedhlcr.data.hierarchy import UNKNOWN
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.posterior.predictive import interval_ends
from fedhlcr.report.ridges import Ridges

LEVEL = 0.9


@dataclass(frozen=True)
class HeldOut:
    """Events that the model was not fitted with; X, y, agent and entity as in `score`."""

    X: Any
    y: Any
    agent: Any = None
    entity: Any = None


@dataclass(frozen=True)
class Score:
    """Errors of predictions; R² is NaN if the target is constant."""

    name: str
    r2: float
    mse: float
    mae: float

    @classmethod
    def of(cls, name: str, observed: FloatArray, predicted: FloatArray) -> Score:
        return cls(name, *Errors.of(observed, predicted))


@dataclass(frozen=True)
class AgentErrors:
    """Root mean squared errors by agent; NaN for an agent without events."""

    n_events: IndexArray
    model: FloatArray
    ridge_per_entity: FloatArray | None  # None if all entities are new


@dataclass(frozen=True)
class HeldOutScores:
    """How well a model predicts the given events.

    Attributes
    ----------
    scores : of the model; then of one ridge, if the model holds entities; then of a ridge per entity, if some of the
        events belong to them
    coverage : share of the events inside their 90 % intervals
    n_new_entities, n_new_agents : numbers of events of new entities of known agents, and of new agents
    was_fitted : whether these are the events the model was fitted with
    by_agent : None if all agents are new
    """

    scores: tuple[Score, ...]
    coverage: float
    n_events: int
    n_new_entities: int
    n_new_agents: int
    was_fitted: bool
    by_agent: AgentErrors | None
    observed: FloatArray
    predicted: FloatArray

    @property
    def model(self) -> Score:
        return self.scores[0]

    @property
    def ridges(self) -> tuple[Score, ...]:
        return self.scores[1:]


@single_threaded_blas
def score_held_out(model: HierarchicalPredictor, data: HeldOut) -> HeldOutScores:
    """Compare a model's predictions with the observed targets."""
    features, matrix, profiles, own_agent, own_entity = model.read_events(data.X, data.agent, data.entity)
    observed = inputs.target_vector(data.y, len(matrix))
    agents, entities = profiles.agents[profiles.of_row], profiles.entities[profiles.of_row]
    moments = model.posterior_.predict(matrix, profiles, interval_ends(LEVEL))
    lower, upper = moments.quantiles.T
    scores = [Score.of("HLCR", observed, moments.mean)]
    by_agent = None
    if len(model.posterior_.memory.entities):
        units = model.posterior_.standardization
        by_one, by_entity = Ridges.of(model.posterior_).predict(units.apply(matrix), entities)
        by_one, by_entity = units.restore_target(by_one), units.restore_target(by_entity)
        scores.append(Score.of("one ridge", observed, by_one))
        ridge_error = None
        # if all entities are new, this would be the one ridge again
        if (entities != UNKNOWN).any():
            scores.append(Score.of("ridge per entity", observed, by_entity))
            ridge_error = observed - by_entity
        if (agents != UNKNOWN).any():
            by_agent = _by_agent(len(model.agent_ids_), agents, observed - moments.mean, ridge_error)
    return HeldOutScores(
        scores=tuple(scores),
        coverage=float(((lower <= observed) & (observed <= upper)).mean()),
        n_events=len(observed),
        n_new_entities=int(((entities == UNKNOWN) & (agents != UNKNOWN)).sum()),
        n_new_agents=int((agents == UNKNOWN).sum()),
        was_fitted=was_fitted(model, features, observed, own_agent, own_entity),
        by_agent=by_agent,
        observed=observed,
        predicted=moments.mean,
    )


def _by_agent(n_agents: int, agents: IndexArray, error: FloatArray, ridge_error: FloatArray | None) -> AgentErrors:
    known = agents != UNKNOWN
    n_events = np.bincount(agents[known], minlength=n_agents)

    def root_mean_square(values: FloatArray) -> FloatArray:
        total = np.bincount(agents[known], weights=values[known] ** 2, minlength=n_agents)
        return np.sqrt(np.where(n_events > 0, total / np.maximum(n_events, 1), np.nan))

    ridges = None if ridge_error is None else root_mean_square(ridge_error)
    return AgentErrors(n_events, root_mean_square(error), ridges)
