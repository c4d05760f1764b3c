"""Linear regressions: ridges of all events, of each agent or entity, and a mixed model (`analysis.mixed_model`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from sklearn.utils._param_validation import StrOptions

from fedhlcr._support.arrays import FloatArray
from fedhlcr.analysis.mixed_model import MixedModel
from fedhlcr.analysis.ridges import PENALTIES, solve_ridge
from fedhlcr.baselines.rival import COUNT, Coefficients, Constraints, Rival, Standardized
from fedhlcr.model.gram import GramLayout, entity_grams

LEVELS = ("all", "agent", "entity")
N_FOLDS = 5


@dataclass(eq=False, repr=False)
class GroupedRidge(Rival):
    """One ridge regression for each group of events.

    All groups share the penalty of the slopes, which is chosen by five-fold cross-validation over the events.
    Intercepts are free. A group not seen in `fit` is predicted by the regression of its agent or, if the agent is
    new too, by the regression of all events.

    Parameters
    ----------
    level : {"all", "agent", "entity"}, default="all"
    """

    _parameter_constraints: ClassVar[Constraints] = {"level": [StrOptions(set(LEVELS))]}

    level: str = "all"

    def _solve(self, data: Standardized) -> Coefficients:
        folds = []
        for fold in range(N_FOLDS):
            # every fifth event of the sorted table: an entity's events are spread over the folds
            weight = (np.arange(data.events.n_events) % N_FOLDS == fold).astype(float)
            own = entity_grams(replace(data.events, weight=weight), data.layout, data.units.shift)
            folds.append(data.units.rescale(data.layout, own))
        by_entity = np.array(folds)
        by_agent = np.add.reduceat(by_entity, data.index.agent_start[:-1], axis=1)
        of_all = by_entity.sum(axis=1, keepdims=True)
        n_levels = LEVELS.index(self.level) + 1
        first, *others = (_ridge_of_each(data.layout, grams) for grams in (of_all, by_agent, by_entity)[:n_levels])
        return Coefficients(first[0], *others)


def _ridge_of_each(layout: GramLayout, folds: FloatArray) -> FloatArray:
    """Coefficients (groups, n_coef) from Gram matrices (folds, groups, packed), the penalty cross-validated."""
    total = folds.sum(axis=0)
    errors = np.zeros(len(PENALTIES))
    for fold in folds:
        trained = layout.n_events(total - fold) > 0.5
        for p, penalty in enumerate(PENALTIES):
            errors[p] += layout.rss(fold[trained], solve_ridge(layout, (total - fold)[trained], penalty)).sum()
    return solve_ridge(layout, total, PENALTIES[errors.argmin()])


@dataclass(eq=False, repr=False)
class MixedModelRegressor(Rival):
    """Linear mixed model: a common regression, and random deviations of intercept and slopes for each entity.

    Known entities are predicted by their best linear unbiased predictors, new ones by the common regression. A feature
    that is constant, or follows from those before it, is left out, as lme4 does: its coefficients are zero.

    Parameters
    ----------
    reml : bool, default=True
        Restricted maximum likelihood, or maximum likelihood.
    max_iter : int, default=500
        Most steps of the optimiser.

    Attributes
    ----------
    fixed_ : (n_features + 1,) μ, the intercept first, in standardised units
    covariance_ : (n_features + 1, n_features + 1) of the random deviations, in standardised units
    noise_scale_ : σ, in standardised units
    log_likelihood_ : of the standardised table, restricted if `reml`
    """

    _parameter_constraints: ClassVar[Constraints] = {"reml": ["boolean"], "max_iter": [COUNT]}

    reml: bool = True
    max_iter: int = 500

    def _solve(self, data: Standardized) -> Coefficients:
        entities = data.layout.normal_equations(data.grams)
        fitted = MixedModel.fit(entities, reml=self.reml, max_iter=self.max_iter)
        self.fixed_ = fitted.fixed
        self.covariance_ = fitted.covariance
        self.noise_scale_ = float(np.sqrt(fitted.noise_variance))
        self.log_likelihood_ = fitted.log_likelihood
        return Coefficients(self.fixed_, of_entities=self.fixed_ + fitted.deviations(entities))
