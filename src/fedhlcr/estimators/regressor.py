"""What all estimators on hierarchical tables share: reading tables and ids, in `fit` and later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from sklearn.base import BaseEstimator, RegressorMixin, _fit_context
from sklearn.utils.validation import validate_data

from fedhlcr._support.arrays import FloatArray
from fedhlcr.data import inputs
from fedhlcr.data.frames import Given
from fedhlcr.data.hierarchy import Hierarchy, build_hierarchy
from fedhlcr.data.recipe import Recipe
from fedhlcr.data.scarcity import TableShape
from fedhlcr.estimators.rows import EventReader
from fedhlcr.exceptions import ArgumentError

Fit = TypeVar("Fit", bound=Callable[..., Any])


def checking_parameters(fit: Fit) -> Fit:
    """Decorator: `fit` that checks the constructor's arguments first. Scikit-learn's own hides the types."""
    checked: Fit = _fit_context(prefer_skip_nested_validation=True)(fit)
    return checked


class HierarchicalEstimator(EventReader, BaseEstimator):
    """An estimator on tables of agents, entities and events."""

    def _training_events(self, given: Given) -> Hierarchy:
        """Check and sort the table given to `fit`; remember the id columns and the sole agent."""
        table = inputs.take_apart(given.X, given.agent, given.entity)
        matrix = self._features(table, reset=True)
        target = self._learn_target(given.y, len(matrix))
        n_rows = len(matrix)
        weight = inputs.weight_vector(given.sample_weight, n_rows)
        offset = self._offset(given.exposure, n_rows)
        hierarchy = build_hierarchy(matrix, target, weight, table.agent, table.entity, offset, self.thread_count())
        self.agent_column_, self.entity_column_ = table.columns
        self.sole_agent_ = hierarchy.index.agent_ids if hierarchy.index.n_agents == 1 else None
        return hierarchy

    def thread_count(self) -> int:
        """Number of threads to run with."""
        return 1

    def _learn_target(self, y: Any, n_rows: int) -> FloatArray:
        """The target given to `fit` as numbers; a classifier also learns its classes here."""
        return self._target(y, n_rows)

    def _target(self, y: Any, n_rows: int) -> FloatArray:
        """A target as numbers."""
        return inputs.target_vector(y, n_rows)

    def _learn_classes(self, recipe: Recipe, shape: TableShape) -> None:
        """Learn the classes of a target from a recipe; only classifiers have them."""

    def _streamed_target(self, target: FloatArray) -> FloatArray:
        """Check targets that a recipe has encoded."""
        return self._target(target, len(target))

    def _offset(self, exposure: Any, n_rows: int) -> FloatArray | None:
        """What is added to the linear part of each event; only models of counts have exposures."""
        del n_rows
        if exposure is not None:
            raise ArgumentError("`exposure` is for counts; leave it out, or use a model of counts.")
        return None

    def _features(self, table: inputs.Table, *, reset: bool) -> FloatArray:
        """The checked features; their names and number are set (reset) or compared with those fitted."""
        matrix = inputs.feature_matrix(table.features)
        named = inputs.named_features(table.features, matrix)
        validate_data(self, named, reset=reset, skip_check_array=True)
        return matrix


class HierarchicalRegressor(RegressorMixin, HierarchicalEstimator):
    """A regressor on such tables."""

    def score(self, X: Any, y: Any, agent: Any = None, entity: Any = None, sample_weight: Any = None) -> float:
        """R² of the predictions; `agent` and `entity` as in `predict`."""
        from sklearn.metrics import r2_score

        return float(r2_score(y, self.predict(X, agent=agent, entity=entity), sample_weight=sample_weight))
