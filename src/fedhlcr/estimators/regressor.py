"""What all estimators on hierarchical tables share: reading tables and ids, in `fit` and later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin, _fit_context
from sklearn.utils.validation import validate_data

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.data import inputs
from fedhlcr.data.hierarchy import (
    UNKNOWN,
    EntityIndex,
    Hierarchy,
    build_hierarchy,
    row_agents,
    row_entities,
    row_sole_agent,
)
from fedhlcr.exceptions import ArgumentError
from fedhlcr.posterior.prediction import Profiles

Fit = TypeVar("Fit", bound=Callable[..., Any])


def checking_parameters(fit: Fit) -> Fit:
    """Decorator: `fit` that checks the constructor's arguments first. Scikit-learn's own hides the types."""
    checked: Fit = _fit_context(prefer_skip_nested_validation=True)(fit)
    return checked


class EventRows(NamedTuple):
    """Rows of events that were read for a fitted model.

    Attributes
    ----------
    features : encoded features, as a table or array
    matrix : ndarray (n_events, n_features_in_), the features in the user's units
    profiles : which agent and which entity of the model each row belongs to
    agent, entity : the ids of the rows, or None
    """

    features: Any
    matrix: FloatArray
    profiles: Profiles
    agent: Any
    entity: Any


class HierarchicalEstimator(BaseEstimator):
    """An estimator on tables of agents, entities and events."""

    agent_column_: str | None
    entity_column_: str | None
    sole_agent_: NDArray[np.object_] | None

    def _training_events(
        self, X: Any, y: Any, agent: Any, entity: Any, sample_weight: Any = None, exposure: Any = None
    ) -> Hierarchy:
        """Check and sort the table given to `fit`; remember the id columns and the sole agent."""
        table = inputs.take_apart(X, agent, entity)
        matrix = self._features(table, reset=True)
        target = self._learn_target(y, len(matrix))
        weight, offset = inputs.weight_vector(sample_weight, len(matrix)), self._offset(exposure, len(matrix))
        hierarchy = build_hierarchy(matrix, target, weight, table.agent, table.entity, offset)
        self.agent_column_, self.entity_column_ = table.columns
        self.sole_agent_ = hierarchy.index.agent_ids if hierarchy.index.n_agents == 1 else None
        return hierarchy

    def _learn_target(self, y: Any, n_rows: int) -> FloatArray:
        """The target given to `fit` as numbers; a classifier also learns its classes here."""
        return self._target(y, n_rows)

    def _target(self, y: Any, n_rows: int) -> FloatArray:
        """A target as numbers."""
        return inputs.target_vector(y, n_rows)

    def _offset(self, exposure: Any, n_rows: int) -> FloatArray | None:
        """What is added to the linear part of each event; only models of counts have exposures."""
        del n_rows
        if exposure is not None:
            raise ArgumentError("`exposure` is for counts; leave it out, or use a model of counts.")
        return None

    def _read(self, X: Any, agent: Any, entity: Any) -> tuple[inputs.Table, FloatArray]:
        """Split X into features and ids, as `fit` did."""
        remembered = inputs.IdColumns(self.agent_column_, self.entity_column_)
        table = inputs.take_apart(X, agent, entity, remembered, one_agent=self.sole_agent_ is not None)
        matrix = self._features(table, reset=False)
        return table.with_read_ids(len(matrix)), matrix

    def _features(self, table: inputs.Table, *, reset: bool) -> FloatArray:
        """The checked features; their names and number are set (reset) or compared with those fitted."""
        matrix = inputs.feature_matrix(table.features)
        named = inputs.named_features(table.features, matrix)
        validate_data(self, named, reset=reset, skip_check_array=True)
        return matrix

    def _agents_or_sole(self, agent: Any, n_rows: int) -> Any:
        """The agents as given; if None, the sole agent of the fit, if there was one."""
        return row_sole_agent(self.sole_agent_[0], n_rows) if agent is None and self.sole_agent_ is not None else agent

    def _find(self, index: EntityIndex, agent: Any, entity: Any, n_rows: int) -> tuple[IndexArray, IndexArray]:
        """Positions of the rows' agents and entities in the index, or UNKNOWN."""
        unknown = np.full(n_rows, UNKNOWN, dtype=np.int64)
        agent = self._agents_or_sole(agent, n_rows)
        agents = unknown if agent is None else index.find_agents(row_agents(agent, n_rows))
        entities = unknown if entity is None else index.find_entities(agents, row_entities(entity, n_rows))
        return agents, entities


class HierarchicalRegressor(RegressorMixin, HierarchicalEstimator):
    """A regressor on such tables."""

    def score(self, X: Any, y: Any, agent: Any = None, entity: Any = None, sample_weight: Any = None) -> float:
        """R² of the predictions; `agent` and `entity` as in `predict`."""
        from sklearn.metrics import r2_score

        return float(r2_score(y, self.predict(X, agent=agent, entity=entity), sample_weight=sample_weight))
