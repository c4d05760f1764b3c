"""Ridge regression for all events, for each agent, or for each entity."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted, validate_data

from fedhlcr import tables
from fedhlcr.gram import GramLayout, Standardization, column_means, entity_grams
from fedhlcr.hierarchy import build_hierarchy, row_agents, row_entities

LEVELS = ("all", "agent", "entity")
# Penalties tried by cross-validation over the events, in standardised units; one serves all groups of a level.
PENALTIES = np.logspace(-3, 4, 22)
N_FOLDS = 5


class GroupedRidge(RegressorMixin, BaseEstimator):
    """A ridge regression of its own for each group of events.

    The penalty of the slopes is the same for all groups, chosen by five-fold cross-validation over the
    events; intercepts are free. A group not seen in `fit` is predicted by the regression of its agent,
    or else by that of all events.

    Parameters
    ----------
    level : {"all", "agent", "entity"}, default="all"
    """

    def __init__(self, level="all"):
        self.level = level

    def fit(self, X, y, agent=None, entity=None):
        if self.level not in LEVELS:
            raise ValueError(f"`level` must be 'all', 'agent' or 'entity', but is {self.level!r}.")
        matrix = tables.feature_matrix(X)
        validate_data(self, matrix, skip_check_array=True)
        target = tables.target_vector(y, len(matrix))
        rows = build_hierarchy(matrix, target, np.ones(len(matrix)), agent, entity)
        self.index_ = rows.index
        self.layout_ = layout = GramLayout(matrix.shape[1])
        shift = column_means(rows)
        folds = []
        for fold in range(N_FOLDS):
            # every fifth event of the sorted table: an entity's events are spread over the folds
            weight = (np.arange(rows.n_events) % N_FOLDS == fold).astype(float)
            folds.append(entity_grams(replace(rows, weight=weight), layout, shift))
        pooled = np.sum(folds, axis=(0, 1))
        self.standardization_ = Standardization.from_gram(layout, pooled, shift, scale=True)
        by_entity = self.standardization_.rescale(layout, np.array(folds))
        by_agent = np.add.reduceat(by_entity, rows.index.agent_start[:-1], axis=1)
        of_all = by_entity.sum(axis=1, keepdims=True)
        n_levels = LEVELS.index(self.level) + 1
        self.coefs_ = [_ridge_of_each(layout, grams) for grams in (of_all, by_agent, by_entity)[:n_levels]]
        return self

    def predict(self, X, agent=None, entity=None):
        check_is_fitted(self)
        matrix = tables.feature_matrix(X)
        validate_data(self, matrix, reset=False, skip_check_array=True)
        n_rows = len(matrix)
        agents = self.index_.find_agents(row_agents(agent, n_rows))
        entities = self.index_.find_entities(agents, row_entities(entity, n_rows))
        coef = np.repeat(self.coefs_[0], n_rows, axis=0)
        for own, positions in zip(self.coefs_[1:], (agents, entities), strict=False):
            coef[positions >= 0] = own[positions[positions >= 0]]
        design = np.column_stack([np.ones(n_rows), self.standardization_.apply(matrix)])
        return self.standardization_.restore_target((coef * design).sum(axis=1))

    def score(self, X, y, agent=None, entity=None, sample_weight=None):
        return r2_score(y, self.predict(X, agent, entity), sample_weight=sample_weight)


def _ridge_of_each(layout, folds):
    """Coefficients (groups, n_coef) from Gram matrices (folds, groups, packed), the penalty cross-validated."""
    total = folds.sum(axis=0)
    errors = np.zeros(len(PENALTIES))
    for fold in folds:
        trained = layout.n_events(total - fold) > 0.5
        for p, penalty in enumerate(PENALTIES):
            errors[p] += layout.rss(fold[trained], _solve(layout, (total - fold)[trained], penalty)).sum()
    return _solve(layout, total, PENALTIES[errors.argmin()])


def _solve(layout, grams, penalty):
    normal = layout.normal_equations(grams)
    # the intercept is free, but for what keeps the equations regular
    penalties = np.diag([1e-9, *np.full(layout.n_features, penalty)])
    return np.linalg.solve(normal.xx + penalties, normal.xy[..., None])[..., 0]
