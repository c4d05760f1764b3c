"""A linear mixed model with random slopes per entity, as an estimator. Its mathematics is in `analysis.mixed_model`."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedhlcr.analysis.mixed_model import MixedModel
from fedhlcr.baselines.rival import COUNT, Coefficients, Constraints, Rival, Standardized


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

    def __init__(self, reml=True, max_iter=500):
        self.reml = reml
        self.max_iter = max_iter

    def _solve(self, data: Standardized) -> Coefficients:
        entities = data.layout.normal_equations(data.grams)
        fitted = MixedModel.fit(entities, reml=self.reml, max_iter=self.max_iter)
        self.fixed_ = fitted.fixed
        self.covariance_ = fitted.covariance
        self.noise_scale_ = float(np.sqrt(fitted.noise_variance))
        self.log_likelihood_ = fitted.log_likelihood
        return Coefficients(self.fixed_, of_entities=self.fixed_ + fitted.deviations(entities))
