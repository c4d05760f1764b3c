"""How good a model is on events, against what one would otherwise take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhlcr import tables
from fedhlcr.arrays import FloatArray, IndexArray
from fedhlcr.hierarchy import UNKNOWN, build_hierarchy
from fedhlcr.predictor import HierarchicalPredictor
from fedhlcr.report.ridges import Ridges
from fedhlcr.threads import single_threaded_blas

LEVEL = 0.9
# Gram matrices that differ by less than this share are of the same events.
SAME_EVENTS = 1e-8
# From this share of entities with just the events they were fitted with, DATA counts as what was fitted.
MOST = 0.5


@dataclass(frozen=True)
class HeldOut:
    """Events a model was not fitted with, as `predict` and `score` take them."""

    X: Any
    y: Any
    agent: Any = None
    entity: Any = None


@dataclass(frozen=True)
class Score:
    """How far predictions are from what was observed; R² is NaN where the targets are all the same."""

    name: str
    r2: float
    mse: float
    mae: float

    @classmethod
    def of(cls, name: str, observed: FloatArray, predicted: FloatArray) -> Score:
        error = observed - predicted
        variance = ((observed - observed.mean()) ** 2).mean()
        mse = float((error**2).mean())
        return cls(name, 1.0 - mse / variance if variance > 0.0 else float("nan"), mse, float(np.abs(error).mean()))


@dataclass(frozen=True)
class AgentErrors:
    """Root mean squared errors by agent, NaN where nothing of it was held out."""

    n_events: IndexArray
    model: FloatArray
    ridge_per_entity: FloatArray


@dataclass(frozen=True)
class HeldOutScores:
    """All that is told of a model's predictions.

    Attributes
    ----------
    scores : of the model, and, where it holds entities, of one ridge and of a ridge per entity
    coverage : share of the events inside their 90 % intervals
    n_new_entities, n_new_agents : events of entities new to their agents, and of agents new to the model
    was_fitted : whether these are the very events the model was fitted with
    by_agent : None where the model holds no agents
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
    """Judge a model by events."""
    table, matrix = model._read(data.X, data.agent, data.entity)
    observed = tables.target_vector(data.y, len(matrix))
    profiles = model._profiles(table.agent, table.entity, len(matrix))
    agents, entities = profiles.agents[profiles.of_row], profiles.entities[profiles.of_row]
    moments = model.posterior_.predict(matrix, profiles, (0.5 - LEVEL / 2, 0.5 + LEVEL / 2))
    lower, upper = moments.quantiles.T
    scores = [Score.of("HLCR", observed, moments.mean)]
    by_agent = None
    if len(model.posterior_.memory.entities):
        units = model.posterior_.standardization
        by_one, by_entity = Ridges.of(model.posterior_).predict(units.apply(matrix), entities)
        by_one, by_entity = units.restore_target(by_one), units.restore_target(by_entity)
        scores += [Score.of("one ridge", observed, by_one), Score.of("ridge per entity", observed, by_entity)]
        by_agent = _by_agent(len(model.agent_ids_), agents, observed - moments.mean, observed - by_entity)
    return HeldOutScores(
        scores=tuple(scores),
        coverage=float(((lower <= observed) & (observed <= upper)).mean()),
        n_events=len(observed),
        n_new_entities=int(((entities == UNKNOWN) & (agents != UNKNOWN)).sum()),
        n_new_agents=int((agents == UNKNOWN).sum()),
        was_fitted=by_agent is not None and _was_fitted(model, matrix, observed, table),
        by_agent=by_agent,
        observed=observed,
        predicted=moments.mean,
    )


def _by_agent(n_agents: int, agents: IndexArray, error: FloatArray, ridge_error: FloatArray) -> AgentErrors:
    known = agents != UNKNOWN
    n_events = np.bincount(agents[known], minlength=n_agents)

    def root_mean_square(values: FloatArray) -> FloatArray:
        total = np.bincount(agents[known], weights=values[known] ** 2, minlength=n_agents)
        return np.sqrt(np.where(n_events > 0, total / np.maximum(n_events, 1), np.nan))

    return AgentErrors(n_events, root_mean_square(error), root_mean_square(ridge_error))


def _was_fitted(model: HierarchicalPredictor, matrix: FloatArray, observed: FloatArray, table: tables.Table) -> bool:
    """Whether most entities, or else all events together, have the very sums that the model was fitted with."""
    agent = model._agents_or_sole(table.agent, len(matrix))
    given = model._standardized(build_hierarchy(matrix, observed, np.ones(len(matrix)), agent, table.entity))
    own = model.posterior_.memory.entities
    if _same(own.grams.sum(axis=0)[None], given.grams.sum(axis=0)[None]).all():
        return True
    # where rows are entities of their own their names tell nothing
    if table.entity is None:
        return False
    _, own_position, given_position = own.index.union(given.index)
    _, here, there = np.intersect1d(own_position, given_position, return_indices=True)
    return len(here) >= MOST * len(given) and bool(_same(own.grams[here], given.grams[there]).mean() >= MOST)


def _same(a: FloatArray, b: FloatArray) -> NDArray[np.bool_]:
    """Whether Gram matrices (groups, packed) are of the same events, as far as rounding tells."""
    size = np.maximum(np.abs(a).max(axis=1), np.abs(b).max(axis=1))
    return np.asarray(np.abs(a - b).max(axis=1) <= SAME_EVENTS * size)
