"""What all linear rivals share: from a table to the Gram matrices of its entities, and back to predictions.

Whatever a rival believes, it predicts an event by one linear regression: its entity's, or else its agent's, or else
that of all. A rival only says which these are.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted, validate_data

from fedhlcr import tables
from fedhlcr.arrays import FloatArray
from fedhlcr.gram import GramLayout, Standardization, column_means, entity_grams
from fedhlcr.hierarchy import UNKNOWN, EntityIndex, Hierarchy, build_hierarchy, row_agents, row_entities


@dataclass(frozen=True)
class Standardized:
    """A table in standardised units: the events, and the Gram matrices of its entities."""

    layout: GramLayout
    index: EntityIndex
    grams: FloatArray  # (entities, packed)
    events: Hierarchy
    units: Standardization

    def design(self) -> FloatArray:
        """(events, n_coef) with the constant first, sorted by agent and entity."""
        return np.column_stack([np.ones(self.events.n_events), self.units.apply(self.events.X)])

    def target(self) -> FloatArray:
        """(events,)"""
        return (self.events.y - self.units.shift[-1]) / self.units.scale[-1]

    def by_agent(self, of_entity: FloatArray) -> FloatArray:
        """Sums over the entities of each agent."""
        return np.add.reduceat(of_entity, self.index.agent_start[:-1], axis=0)


class Coefficients(NamedTuple):
    """The regressions of all events (n_coef,), of each agent and of each entity (…, n_coef), where there are any."""

    of_all: FloatArray
    of_agents: FloatArray | None = None
    of_entities: FloatArray | None = None


class LinearRival(RegressorMixin, BaseEstimator):
    """A regressor that ends in one linear regression for all, for each agent or for each entity."""

    @abstractmethod
    def _solve(self, data: Standardized) -> Coefficients:
        """The regressions, in standardised units."""

    def fit(self, X, y, agent=None, entity=None):
        matrix = tables.feature_matrix(X)
        validate_data(self, matrix, skip_check_array=True)
        target = tables.target_vector(y, len(matrix))
        events = build_hierarchy(matrix, target, np.ones(len(matrix)), agent, entity)
        layout, shift = GramLayout(matrix.shape[1]), column_means(events)
        grams = entity_grams(events, layout, shift)
        units = Standardization.from_gram(layout, grams.sum(axis=0), shift, scale=True)
        self.index_, self.standardization_ = events.index, units
        data = Standardized(layout, events.index, units.rescale(layout, grams), events, units)
        self.coefficients_ = self._solve(data)
        return self

    def predict(self, X, agent=None, entity=None):
        check_is_fitted(self)
        matrix = tables.feature_matrix(X)
        validate_data(self, matrix, reset=False, skip_check_array=True)
        n_rows = len(matrix)
        agents = self.index_.find_agents(row_agents(agent, n_rows))
        entities = np.full(n_rows, UNKNOWN)
        if entity is not None:
            entities = self.index_.find_entities(agents, row_entities(entity, n_rows))
        coef = np.repeat(self.coefficients_.of_all[None], n_rows, axis=0)
        for own, positions in zip(self.coefficients_[1:], (agents, entities), strict=True):
            if own is not None:
                coef[positions >= 0] = own[positions[positions >= 0]]
        design = np.column_stack([np.ones(n_rows), self.standardization_.apply(matrix)])
        return self.standardization_.restore_target((coef * design).sum(axis=1))

    def score(self, X, y, agent=None, entity=None, sample_weight=None):
        return r2_score(y, self.predict(X, agent, entity), sample_weight=sample_weight)
