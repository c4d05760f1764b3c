"""A linear mixed model with random slopes per entity, from Gram matrices alone.

    y = xᵀ(μ + b_e) + ε,   b_e ~ N(0, σ² ΛΛᵀ),   ε ~ N(0, σ²)

Given the relative factor Λ, an entity contributes Q = G − GΛB⁻¹ΛᵀG and r = g − GΛB⁻¹Λᵀg with B = I + ΛᵀGΛ. Then μ
solves (ΣQ) μ = Σr, and σ² follows from the residuals. So the (restricted) likelihood is a function of Λ alone, with a
gradient in closed form. Each step costs a factorisation per entity, for any number of events.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np
from scipy.optimize import minimize

from fedhlcr._support.arrays import FloatArray
from fedhlcr.baselines.rival import COUNT, Coefficients, Constraints, Rival, Standardized
from fedhlcr.model.gram import NormalEquations

# A column is left out if the others explain all but this share of its variance.
LEAST_OWN_VARIANCE = 1e-10
# In standardised units: it bounds the likelihood if a regression fits exactly.
LEAST_NOISE_VARIANCE = 1e-12


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
        kept = _independent_columns(entities.xx.sum(axis=0))
        likelihood = _Likelihood(
            entities._replace(xx=entities.xx[:, kept][:, :, kept], xy=entities.xy[:, kept]), reml=self.reml
        )
        start = likelihood.pack(np.eye(len(kept)))
        found = minimize(
            likelihood, start, jac=True, method="L-BFGS-B", options={"maxiter": self.max_iter, "ftol": 1e-12}
        )
        fitted = likelihood.at(likelihood.unpack(found.x))
        # (kept, n_coef): zeros for columns that are not kept
        widen = np.eye(data.layout.n_coef)[kept]
        self.fixed_, self.noise_scale_ = fitted.fixed @ widen, float(np.sqrt(fitted.noise_variance))
        self.covariance_ = fitted.noise_variance * widen.T @ fitted.factor @ fitted.factor.T @ widen
        self.log_likelihood_ = -0.5 * fitted.deviance
        return Coefficients(self.fixed_, of_entities=self.fixed_ + likelihood.deviations(fitted) @ widen)


def _independent_columns(gram: FloatArray) -> list[int]:
    """Columns that those before them do not explain, from the Gram matrix (n_coef, n_coef) of all events."""
    kept = [0]
    for column in range(1, len(gram)):
        shared = gram[kept, column]
        own = gram[column, column] - shared @ np.linalg.solve(gram[np.ix_(kept, kept)], shared)
        # a standardised column has the same sum of squares as the constant, or zero
        if own > LEAST_OWN_VARIANCE * gram[0, 0]:
            kept.append(column)
    return kept


class _Fitted(NamedTuple):
    """All that follows from a relative factor Λ."""

    factor: FloatArray
    fixed: FloatArray
    noise_variance: float
    deviance: float
    gradient: FloatArray  # with respect to Λ


class _Likelihood:
    """−2 log (restricted) likelihood as a function of the lower triangle of Λ; called by an optimiser."""

    def __init__(self, entities: NormalEquations, *, reml: bool) -> None:
        self._entities, self._reml = entities, reml
        n_coef = entities.xy.shape[1]
        self._triangle = np.tril_indices(n_coef)
        self._n_coef, self._n_events = n_coef, float(entities.n.sum())

    def pack(self, factor: FloatArray) -> FloatArray:
        return factor[self._triangle]

    def unpack(self, packed: FloatArray) -> FloatArray:
        factor = np.zeros((self._n_coef, self._n_coef))
        factor[self._triangle] = packed
        return factor

    def __call__(self, packed: FloatArray) -> tuple[float, FloatArray]:
        fitted = self.at(self.unpack(packed))
        return fitted.deviance, self.pack(fitted.gradient)

    def at(self, factor: FloatArray) -> _Fitted:
        G, g = self._entities.xx, self._entities.xy
        GL, Lg = G @ factor, g @ factor
        B = np.eye(self._n_coef) + factor.T @ GL
        # columns of B⁻¹ΛᵀG and B⁻¹Λᵀg side by side
        solved = np.linalg.solve(B, np.concatenate([GL.transpose(0, 2, 1), Lg[..., None]], axis=2))
        Q = G - GL @ solved[..., :-1]
        r = g - (GL @ solved[..., -1:])[..., 0]
        sum_Q, sum_r = Q.sum(axis=0), r.sum(axis=0)
        fixed = np.linalg.solve(sum_Q, sum_r)
        left = float(self._entities.yy.sum() - np.einsum("ec,ec->", Lg, solved[..., -1]) - fixed @ sum_r)
        n = max(self._n_events - (self._n_coef if self._reml else 0), 1.0)
        left = max(left, LEAST_NOISE_VARIANCE * n)
        deviance = float(np.linalg.slogdet(B)[1].sum()) + n * (1.0 + np.log(2.0 * np.pi * left / n))
        residual = r - Q @ fixed
        # with respect to ΛΛᵀ
        gradient = sum_Q - (n / left) * residual.T @ residual
        if self._reml:
            deviance += float(np.linalg.slogdet(sum_Q)[1])
            gradient -= np.einsum("eij,jk,ekl->il", Q, np.linalg.inv(sum_Q), Q, optimize=True)
        return _Fitted(factor, fixed, left / n, deviance, np.tril(2.0 * gradient @ factor))

    def deviations(self, fitted: _Fitted) -> FloatArray:
        """(entities, n_coef) best linear unbiased predictors of b_e."""
        G, g = self._entities.xx, self._entities.xy
        B = np.eye(self._n_coef) + fitted.factor.T @ G @ fitted.factor
        pull = (g - G @ fitted.fixed) @ fitted.factor
        return np.linalg.solve(B, pull[..., None])[..., 0] @ fitted.factor.T
