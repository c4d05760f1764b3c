"""Ridge regression for all events, for each agent, or for each entity."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data

from fedhlcr import tables
from fedhlcr.hierarchy import build_hierarchy, row_agents, row_entities

# Penalties tried, by leave-one-out cross-validation within each group.
PENALTIES = np.logspace(-3, 4, 15)


class GroupedRidge(RegressorMixin, BaseEstimator):
    """A ridge regression of its own for each group of events, the penalty chosen within the group.

    A group not seen in `fit` is predicted by the regression of its agent, or else of all events.

    Parameters
    ----------
    level : {"all", "agent", "entity"}, default="all"
    """

    def __init__(self, level="all"):
        self.level = level

    def fit(self, X, y, agent=None, entity=None):
        if self.level not in ("all", "agent", "entity"):
            raise ValueError(f"`level` must be 'all', 'agent' or 'entity', but is {self.level!r}.")
        matrix = tables.feature_matrix(X)
        validate_data(self, matrix, skip_check_array=True)
        target = tables.target_vector(y, len(matrix))
        hierarchy = build_hierarchy(matrix, target, np.ones(len(matrix)), agent, entity)
        X, y, start = hierarchy.X, hierarchy.y, hierarchy.event_start
        self.index_ = hierarchy.index
        agent_bounds = start[self.index_.agent_start]
        self.model_ = _ridge(X, y)
        self.agent_models_ = [] if self.level == "all" else _ridge_of_each(X, y, agent_bounds)
        self.entity_models_ = _ridge_of_each(X, y, start) if self.level == "entity" else []
        return self

    def predict(self, X, agent=None, entity=None):
        check_is_fitted(self)
        matrix = tables.feature_matrix(X)
        validate_data(self, matrix, reset=False, skip_check_array=True)
        n_rows = len(matrix)
        agents = self.index_.find_agents(row_agents(agent, n_rows))
        entities = self.index_.find_entities(agents, row_entities(entity, n_rows))
        prediction = self.model_.predict(matrix)
        for models, positions in ((self.agent_models_, agents), (self.entity_models_, entities)):
            for group in np.unique(positions[positions >= 0]) if models else ():
                rows = positions == group
                prediction[rows] = models[group].predict(matrix[rows])
        return prediction

    def score(self, X, y, agent=None, entity=None, sample_weight=None):
        from sklearn.metrics import r2_score

        return r2_score(y, self.predict(X, agent, entity), sample_weight=sample_weight)


def _ridge(X, y):
    # leave-one-out needs two events; a lone one is predicted by itself
    regression = RidgeCV(PENALTIES) if len(y) > 1 else RidgeCV(PENALTIES[-1:], cv=None)
    return make_pipeline(StandardScaler(), regression).fit(X, y)


def _ridge_of_each(X, y, bounds):
    return [_ridge(X[a:b], y[a:b]) for a, b in pairwise(bounds)]
