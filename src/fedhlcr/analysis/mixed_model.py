"""A linear mixed model with random slopes per entity, from Gram matrices alone.

    y = xᵀ(μ + b_e) + ε,   b_e ~ N(0, σ² ΛΛᵀ),   ε ~ N(0, σ²)

Given the relative factor Λ, an entity contributes Q = G − GΛB⁻¹ΛᵀG and r = g − GΛB⁻¹Λᵀg with B = I + ΛᵀGΛ. Then μ
solves (ΣQ) μ = Σr, and σ² follows from the residuals. So the (restricted) likelihood is a function of Λ alone, with a
gradient in closed form. Each step costs a factorisation per entity, for any number of events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr.analysis.regressions import CoefLaw
from fedhlcr.model.gram import NormalEquations

# A column is left out if the others explain all but this share of its variance.
LEAST_OWN_VARIANCE = 1e-10
# In standardised units: it bounds the likelihood if a regression fits exactly.
LEAST_NOISE_VARIANCE = 1e-12


@dataclass(frozen=True)
class MixedModel:
    """A fitted mixed model. Columns that were left out have zeros everywhere.

    Attributes
    ----------
    fixed : (n_coef,) μ
    factor : (n_coef, n_coef) Λ
    fixed_covariance : (n_coef, n_coef) (ΣQ)⁻¹, the covariance of μ relative to σ²
    noise_variance : σ²
    log_likelihood : restricted if it was fitted by REML
    """

    fixed: FloatArray
    factor: FloatArray
    fixed_covariance: FloatArray
    noise_variance: float
    log_likelihood: float

    @classmethod
    def fit(
        cls,
        entities: NormalEquations,
        *,
        reml: bool = True,
        diagonal: bool = False,
        noise_variance: float | None = None,
        start: FloatArray | None = None,
        max_iter: int = 500,
        tolerance: float = 1e-12,
    ) -> MixedModel:
        """Fit by (restricted) maximum likelihood.

        Parameters
        ----------
        entities : of each entity, with standardised columns and the constant first
        diagonal : whether random deviations of different columns are independent
        noise_variance : σ², if it is known
        start : (n_coef, n_coef) Λ where the optimiser starts
        max_iter : most steps of the optimiser
        tolerance : it stops when a step improves the log likelihood by less than this share
        """
        # imported here, because it takes a quarter of a second, and predictions need no fit
        from scipy.optimize import minimize

        kept = independent_columns(entities.xx.sum(axis=0))
        own = entities._replace(xx=entities.xx[:, kept][:, :, kept], xy=entities.xy[:, kept])
        likelihood = MixedLikelihood(own, reml=reml, diagonal=diagonal, noise_variance=noise_variance)
        first = np.eye(len(kept)) if start is None else start[np.ix_(kept, kept)]
        found = minimize(
            likelihood,
            likelihood.pack(first),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": max_iter, "ftol": tolerance},
        )
        fitted = likelihood.at(likelihood.unpack(found.x))
        # (kept, n_coef): zeros for columns that are not kept
        widen = np.eye(entities.xx.shape[-1])[kept]
        return cls(
            fitted.fixed @ widen,
            widen.T @ fitted.factor @ widen,
            widen.T @ np.linalg.inv(fitted.fixed_precision) @ widen,
            fitted.noise_variance,
            -0.5 * fitted.deviance,
        )

    @property
    def covariance(self) -> FloatArray:
        """(n_coef, n_coef) covariance of the random deviations b_e."""
        return self.noise_variance * self.factor @ self.factor.T

    def deviations(self, entities: NormalEquations) -> FloatArray:
        """(entities, n_coef) best linear unbiased predictors of b_e."""
        B = np.eye(len(self.fixed)) + self.factor.T @ entities.xx @ self.factor
        pull = (entities.xy - entities.xx @ self.fixed) @ self.factor
        return np.linalg.solve(B, pull[..., None])[..., 0] @ self.factor.T

    def law(self, entities: NormalEquations) -> CoefLaw:
        """The regressions of entities, μ + b_e, given their events.

        With T = ΛB⁻¹Λᵀ the mean is μ + T(g − Gμ). The covariance relative to σ² is T + (I − TG)(ΣQ)⁻¹(I − TG)ᵀ, where
        the second term is the uncertainty of μ.
        """
        eye = np.eye(len(self.fixed))
        B = eye + self.factor.T @ entities.xx @ self.factor
        T = self.factor @ np.linalg.solve(B, np.broadcast_to(self.factor.T, B.shape))
        rest = eye - T @ entities.xx
        mean = self.fixed + (T @ (entities.xy - entities.xx @ self.fixed)[..., None])[..., 0]
        return CoefLaw(mean, T + rest @ self.fixed_covariance @ rest.transpose(0, 2, 1))

    def law_of_new(self) -> CoefLaw:
        """The regression of an entity without events, as one row."""
        return CoefLaw(self.fixed[None], (self.factor @ self.factor.T + self.fixed_covariance)[None])


def independent_columns(gram: FloatArray) -> list[int]:
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
    fixed_precision: FloatArray  # ΣQ, relative to 1/σ²


class MixedLikelihood:
    """−2 log (restricted) likelihood as a function of the lower triangle of Λ, or of its diagonal.

    It is called by an optimiser.
    """

    def __init__(
        self,
        entities: NormalEquations,
        *,
        reml: bool,
        diagonal: bool = False,
        noise_variance: float | None = None,
    ) -> None:
        self._entities = entities
        self._reml = reml
        self._noise_variance = noise_variance
        n_coef = entities.xy.shape[1]
        self._free = np.diag_indices(n_coef) if diagonal else np.tril_indices(n_coef)
        self._n_coef = n_coef
        self._n_events = float(entities.n.sum())

    def pack(self, factor: FloatArray) -> FloatArray:
        return factor[self._free]

    def unpack(self, packed: FloatArray) -> FloatArray:
        factor = np.zeros((self._n_coef, self._n_coef))
        factor[self._free] = packed
        return factor

    def __call__(self, packed: FloatArray) -> tuple[float, FloatArray]:
        fitted = self.at(self.unpack(packed))
        return fitted.deviance, self.pack(fitted.gradient)

    def at(self, factor: FloatArray) -> _Fitted:
        G = self._entities.xx
        g = self._entities.xy
        GL = G @ factor
        Lg = g @ factor
        B = np.eye(self._n_coef) + factor.T @ GL
        # columns of B⁻¹ΛᵀG and B⁻¹Λᵀg side by side
        solved = np.linalg.solve(B, np.concatenate([GL.transpose(0, 2, 1), Lg[..., None]], axis=2))
        Q = G - GL @ solved[..., :-1]
        r = g - (GL @ solved[..., -1:])[..., 0]
        sum_Q = Q.sum(axis=0)
        sum_r = r.sum(axis=0)
        fixed = np.linalg.solve(sum_Q, sum_r)
        left = float(self._entities.yy.sum() - np.einsum("ec,ec->", Lg, solved[..., -1]) - fixed @ sum_r)
        n = max(self._n_events - (self._n_coef if self._reml else 0), 1.0)
        left = max(left, LEAST_NOISE_VARIANCE * n)
        if self._noise_variance is None:
            variance = left / n
            precision = n / left
            of_noise = n * (1.0 + np.log(2.0 * np.pi * left / n))
        else:
            variance = self._noise_variance
            precision = 1.0 / variance
            of_noise = left / variance + n * np.log(2.0 * np.pi * variance)
        deviance = float(np.linalg.slogdet(B)[1].sum()) + of_noise
        residual = r - Q @ fixed
        # with respect to ΛΛᵀ
        gradient = sum_Q - precision * residual.T @ residual
        if self._reml:
            deviance += float(np.linalg.slogdet(sum_Q)[1])
            gradient -= np.einsum("eij,jk,ekl->il", Q, np.linalg.inv(sum_Q), Q, optimize=True)
        return _Fitted(factor, fixed, variance, deviance, 2.0 * gradient @ factor, sum_Q)
