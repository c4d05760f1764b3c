"""How well a model predicts events, compared with simpler models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.threads import single_threaded_blas
from fedhlcr.analysis.evaluation import was_fitted
from fedhlcr.analysis.rivals import Score, predict_by_rivals
from fedhlcr.analysis.simpler import RIDGE_PER_ENTITY
from fedhlcr.analysis.verdict import FitComparison, compare_densities
from fedhlcr.data import inputs
from fedhlcr.data.hierarchy import UNKNOWN
from fedhlcr.data.ids import read_ids
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.posterior.predictive import interval_ends

LEVEL = 0.9
# Coverage further than this from the level of the intervals, beyond chance, is told.
COVERAGE_SLACK = 0.02


def coverage_gap(level: float, n_events: int) -> float:
    """How far the coverage of intervals may be from their level: a little, and two standard errors."""
    return COVERAGE_SLACK + 2.0 * float(np.sqrt(level * (1.0 - level) / n_events))


@dataclass(frozen=True)
class HeldOut:
    """Events that the model was not fitted with; X, y, agent, entity and, for counts, exposure as in `score`."""

    X: Any
    y: Any = None
    agent: Any = None
    entity: Any = None
    exposure: Any = None

    def read(self, model: HierarchicalPredictor) -> HeldOut:
        """The same events with columns in place of names, and without rows that have missing values."""
        given = model.events_of(self.X, self.y, self.agent, self.entity, exposure=self.exposure)
        return HeldOut(given.X, given.y, given.agent, given.entity, given.exposure)


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
    scores : of the model; then of the simpler models, if the model holds entities to fit them to
    coverage : share of the events inside their 90 % intervals
    n_new_entities, n_new_agents : numbers of events of new entities of known agents, and of new agents
    was_fitted : whether these are the events the model was fitted with
    by_agent : None if all agents are new
    densities, errors : the model against the simpler ones, event by event, in log density and in squared error; None
        without simpler models
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
    densities: FitComparison | None = None
    errors: FitComparison | None = None

    @property
    def model(self) -> Score:
        return self.scores[0]

    @property
    def rivals(self) -> tuple[Score, ...]:
        return self.scores[1:]


@single_threaded_blas
def score_held_out(model: HierarchicalPredictor, data: HeldOut) -> HeldOutScores:
    """Compare a model's predictions with the observed targets."""
    features, matrix, profiles, own_agent, own_entity = model.read_events(data.X, data.agent, data.entity)
    observed = inputs.target_vector(data.y, len(matrix))
    agents = profiles.agents[profiles.of_row]
    entities = profiles.entities[profiles.of_row]
    moments = model.posterior_.predict(matrix, profiles, interval_ends(LEVEL))
    lower, upper = moments.quantiles.T
    density = model.posterior_.log_density(matrix, observed, profiles)
    rivals = predict_by_rivals(model.posterior_, matrix, observed, entities)
    by_agent = densities = errors = None
    if rivals:
        groups = entity_groups(entities, own_agent, own_entity)
        densities = compare_densities(density, {rival.name: rival.log_density for rival in rivals}, groups)
        squares = {rival.name: -((observed - rival.mean) ** 2) for rival in rivals}
        errors = compare_densities(-((observed - moments.mean) ** 2), squares, groups)
    if rivals and (agents != UNKNOWN).any():
        ridges = next((rival.mean for rival in rivals if rival.name == RIDGE_PER_ENTITY), None)
        ridge_error = None if ridges is None else observed - ridges
        by_agent = _by_agent(len(model.agent_ids_), agents, observed - moments.mean, ridge_error)
    return HeldOutScores(
        scores=(
            Score.of("HLCR", observed, moments.mean, density),
            *(Score.of(rival.name, observed, rival.mean, rival.log_density) for rival in rivals),
        ),
        coverage=float(((lower <= observed) & (observed <= upper)).mean()),
        n_events=len(observed),
        n_new_entities=int(((entities == UNKNOWN) & (agents != UNKNOWN)).sum()),
        n_new_agents=int((agents == UNKNOWN).sum()),
        was_fitted=was_fitted(model, features, observed, own_agent, own_entity),
        by_agent=by_agent,
        observed=observed,
        predicted=moments.mean,
        densities=densities,
        errors=errors,
    )


def entity_groups(entities: IndexArray, own_agent: Any, own_entity: Any) -> IndexArray:
    """(events,) a number for the entity of each event, also of entities that the model does not know."""
    groups = np.array(entities)
    new = groups == UNKNOWN
    if new.any():
        given = {"agent": own_agent, "entity": own_entity}
        codes = [read_ids(own, name, len(groups)).codes[new] for name, own in given.items() if own is not None]
        # rows without ids are entities of their own
        pairs = np.column_stack(codes) if codes else np.arange(new.sum())[:, None]
        groups[new] = groups.max() + 1 + np.unique(pairs, axis=0, return_inverse=True)[1].ravel()
    return groups


def _by_agent(n_agents: int, agents: IndexArray, error: FloatArray, ridge_error: FloatArray | None) -> AgentErrors:
    known = agents != UNKNOWN
    n_events = np.bincount(agents[known], minlength=n_agents)

    def root_mean_square(values: FloatArray) -> FloatArray:
        total = np.bincount(agents[known], weights=values[known] ** 2, minlength=n_agents)
        return np.sqrt(np.where(n_events > 0, total / np.maximum(n_events, 1), np.nan))

    ridges = None if ridge_error is None else root_mean_square(ridge_error)
    return AgentErrors(n_events, root_mean_square(error), ridges)
