"""What all baselines share: a table becomes events and Gram matrices in standardised units, and rows are predicted.

A subclass turns these into a model, which predicts rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.data.families import REAL
from fedhlcr.data.frames import Given
from fedhlcr.data.hierarchy import UNKNOWN, EntityIndex, Hierarchy
from fedhlcr.estimators.parameters import checking_parameters
from fedhlcr.estimators.tables import check_features, sorted_events
from fedhlcr.model.gram import GramLayout, Standardization, column_means, entity_grams
from fedhlcr.posterior.event_rows import UNPREDICTED, read_rows

# One event in this many is held out to choose settings.
N_FOLDS = 5

# Constraints of parameters, which scikit-learn checks in `fit`.
COUNT = Interval(Integral, 1, None, closed="left")
WEIGHT = Interval(Real, 0, None, closed="left")
TOLERANCE = Interval(Real, None, None, closed="both")
AUTO = StrOptions({"auto"})
SEED = (Interval(Integral, 0, None, closed="left"), None)
Constraints = dict[str, Sequence[Any]]


class Rows(NamedTuple):
    """Events to predict: a constant and the standardised features, and the positions of known agents and entities."""

    design: FloatArray  # (rows, n_features + 1)
    agents: IndexArray  # (rows,) positions in the index, or UNKNOWN
    entities: IndexArray


class Model(Protocol):
    """A fitted model."""

    def predict(self, rows: Rows) -> FloatArray:
        """(rows,) in standardised units."""


class Coefficients(NamedTuple):
    """Linear regressions of all events (n_coef,), and optionally of each agent and of each entity (…, n_coef).

    An event is predicted by the regression of its entity, else of its agent, else of all events.
    """

    of_all: FloatArray
    of_agents: FloatArray | None = None
    of_entities: FloatArray | None = None

    def predict(self, rows: Rows) -> FloatArray:
        coef = np.repeat(self.of_all[None], len(rows.design), axis=0)
        for own, positions in ((self.of_agents, rows.agents), (self.of_entities, rows.entities)):
            if own is not None:
                known = positions != UNKNOWN
                coef[known] = own[positions[known]]
        return np.asarray((coef * rows.design).sum(axis=1))


@dataclass(frozen=True)
class Standardized:
    """A table in standardised units: the events, and the Gram matrices of its entities."""

    layout: GramLayout
    index: EntityIndex
    grams: FloatArray  # (entities, packed)
    events: Hierarchy
    units: Standardization

    @classmethod
    def of(cls, events: Hierarchy, layout: GramLayout, units: Standardization) -> Standardized:
        grams = units.rescale(layout, entity_grams(events, layout, units.shift))
        return cls(layout, events.index, grams, events, units)

    @property
    def first_event(self) -> IndexArray:
        """Events of agent i are [first_event[i], first_event[i + 1])."""
        return self.events.event_start[self.index.agent_start]

    def design(self) -> FloatArray:
        """(events, n_coef) with the constant first, sorted by agent and entity."""
        return with_constant(self.units.apply(self.events.X))

    def target(self) -> FloatArray:
        """(events,)"""
        return self.units.apply_target(self.events.y)

    def by_agent(self, of_entity: FloatArray) -> FloatArray:
        """Sums over the entities of each agent."""
        return np.add.reduceat(of_entity, self.index.agent_start[:-1], axis=0)

    def hold_out(self) -> tuple[Standardized, Rows, FloatArray]:
        """The table without a fifth of every agent's events; that fifth as rows to predict, and their targets.

        Every fifth event of an agent is held out, in the order of its entities, so entities are held out evenly. An
        entity without remaining events becomes unknown, as it would be in a federation.
        """
        events = self.events
        sizes = np.diff(self.first_event)
        held_out = (np.arange(events.n_events) - np.repeat(self.first_event[:-1], sizes)) % N_FOLDS == N_FOLDS - 1
        entity = np.repeat(np.arange(events.n_entities), np.diff(events.event_start))
        left, start = np.unique(entity[~held_out], return_index=True)
        position = np.full(events.n_entities, UNKNOWN)
        position[left] = np.arange(len(left))
        index = self.index.subset(left)
        X, y, weight = (column[~held_out] for column in (events.X, events.y, events.weight))
        train = Hierarchy(X, y, weight, np.append(start, len(y)), index)
        entity = entity[held_out]
        rows = Rows(self.design()[held_out], self.index.agent_of[entity], position[entity])
        return Standardized.of(train, self.layout, self.units), rows, self.target()[held_out]


class Rival(RegressorMixin, BaseEstimator):
    """A regressor on tables of agents, entities and events."""

    # by parameter, its constraints
    _parameter_constraints: ClassVar[Constraints] = {}

    @abstractmethod
    def _solve(self, data: Standardized) -> Model:
        """Fit the model to a table."""

    @checking_parameters
    def fit(self, X, y, agent=None, entity=None):
        """Fit to a table; `agent` and `entity` are ids of its rows, or names of its columns."""
        events, self.schema_ = sorted_events(self, REAL, Given(X, y, agent, entity))
        layout = GramLayout(events.X.shape[1])
        shift = column_means(events)
        pooled = entity_grams(events, layout, shift).sum(axis=0)
        self.index_ = events.index
        self.standardization_ = Standardization.from_gram(layout, pooled, shift, scale=True)
        self.model_ = self._solve(Standardized.of(events, layout, self.standardization_))
        return self

    def predict(self, X, agent=None, entity=None):
        """(rows,) predicted targets; `agent` and `entity` as in `fit`; by default the columns named there."""
        check_is_fitted(self)
        return self._predict_by(self.model_, self._rows(X, agent, entity))

    def score(self, X, y, agent=None, entity=None, sample_weight=None) -> float:
        """R² of the predictions; `agent` and `entity` as in `predict`."""
        return float(r2_score(y, self.predict(X, agent=agent, entity=entity), sample_weight=sample_weight))

    def _predict_by(self, model: Model, rows: Rows) -> FloatArray:
        return self.standardization_.restore_target(model.predict(rows))

    def _rows(self, X, agent, entity) -> Rows:
        given = Given(X, agent=agent, entity=entity)
        rows = read_rows(
            self.schema_, self.index_, given, UNPREDICTED, needs_ids=True, check=partial(check_features, self)
        )
        return Rows(with_constant(self.standardization_.apply(rows.matrix)), rows.agents, rows.entities)


def with_constant(features: FloatArray) -> FloatArray:
    return np.column_stack([np.ones(len(features)), features])
