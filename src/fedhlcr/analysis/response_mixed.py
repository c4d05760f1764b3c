"""A generalised linear mixed model of classes or counts: random intercepts and slopes of entities.

    η = o + xᵀμ + zᵀΛu_e,   u_e ~ N(0, I),

with a logit link, or with a log link and a common size r of negative binomial counts. z are the constant and the
features that vary within entities. The likelihood of an entity has no closed form. So u is given the normal law N(m, S)
that is nearest to its posterior, and the law's bound replaces the likelihood (Ormerod and Wand 2012). The usual choice,
Laplace's approximation, has far too large Λ where most entities have events of one class only. If there are many
features or few events, only those with the largest common slopes have random slopes. Laws are at their optimum, so the
gradient needs no derivatives of theirs:

    ∂/∂μ = Σ E[ℓ'] x,   ∂/∂Λ = Σ z (E[ℓ'] m − E[−ℓ''] SΛᵀz)ᵀ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.special import digamma
from fedhlcr.analysis.mixed_model import independent_columns
from fedhlcr.analysis.regressions import CoefLaw
from fedhlcr.analysis.response_laws import NormalLaws, Responses, find_laws, find_modes

# Λ at the start, and the most that it and changes of μ may be: bounds where classes are separated.
FIRST_SCALE = 0.5
MOST_SCALE = 10.0
MOST_CHANGE = 30.0
# Bounds of log r. The upper one is added to the log of the mean count: nearly a Poisson law.
SMALLEST_LOG_SIZE = -7.0
POISSON = float(np.log(1e3))
# Of the pooled regression where μ starts, so that there is one if classes are separated.
POOLED_PRECISION = 1e-3
# A feature varies within entities if at least this share of its variance does.
LEAST_WITHIN = 1e-6
# Most random columns; and each needs so many events of the rarer class, or positive counts, to be estimated.
MOST_RANDOM = 12
EVENTS_PER_COLUMN = 10


@dataclass(frozen=True)
class ResponseMixedModel:
    """A fitted mixed model of classes or counts. Columns that were left out have zeros everywhere.

    Attributes
    ----------
    fixed : (n_coef,) μ
    factor : (n_coef, n_coef) Λ
    random : positions of the columns z
    log_size : log r of counts; None for classes
    log_likelihood : its bound
    """

    fixed: FloatArray
    factor: FloatArray
    random: IndexArray
    log_size: float | None
    log_likelihood: float

    @classmethod
    def fit(
        cls, entities: Responses, *, diagonal: bool = False, max_iter: int = 100, tolerance: float = 1e-6
    ) -> ResponseMixedModel:
        """Fit by maximum likelihood.

        Parameters
        ----------
        entities : a group for each, with the constant first; the `log_size` of counts is where the size starts
        diagonal : whether random deviations of different columns are independent
        max_iter : most steps of the optimiser
        tolerance : it stops when a step improves the log likelihood by less than this, per event
        """
        kept = np.array(independent_columns((entities.columns * entities.weight) @ entities.columns.T))
        own = replace(entities, columns=entities.columns[kept])
        pooled = pooled_regression(own)
        random = random_columns(own, pooled)
        likelihood = BoundLikelihood(own, random, diagonal=diagonal)
        first = likelihood.first(pooled)
        found = minimize(
            likelihood,
            first,
            jac=True,
            method="L-BFGS-B",
            bounds=likelihood.bounds(first),
            options={"maxiter": max_iter, "ftol": tolerance},
        )
        fitted = likelihood.at(found.x)
        fixed = np.zeros(entities.n_coef)
        factor = np.zeros((entities.n_coef, entities.n_coef))
        fixed[kept] = fitted.fixed
        factor[np.ix_(kept[random], kept[random])] = fitted.factor
        return cls(fixed, factor, kept[random], fitted.log_size, fitted.log_likelihood)

    def law(self, entities: Responses) -> CoefLaw:
        """The regressions of entities, μ + Λu, given their events: normal laws, without the uncertainty of μ and Λ."""
        factor = self.factor[:, self.random]
        given = replace(entities, log_size=self.log_size)
        laws, _ = find_laws(
            *_along(given, self.fixed, self.random, factor[self.random]),
            NormalLaws.standard(given.n_groups, len(self.random)),
        )
        return CoefLaw(self.fixed + laws.mean @ factor.T, factor @ laws.covariance @ factor.T)

    def law_of_new(self) -> CoefLaw:
        """The regression of an entity without events, as one row."""
        return CoefLaw(self.fixed[None], (self.factor @ self.factor.T)[None])


def pooled_regression(entities: Responses) -> FloatArray:
    """(n_coef,) one regression of all events, hardly penalised."""
    start = NormalLaws.standard(1, entities.n_coef)
    return find_modes(entities.pooled(), np.full(entities.n_coef, POOLED_PRECISION), start)[0].mean[0]


def random_columns(entities: Responses, pooled: FloatArray) -> IndexArray:
    """Positions of the constant, and of the columns that vary within entities, or of those with the largest slopes."""
    n = entities.sum_groups(entities.weight)
    means = entities.sum_groups(entities.columns * entities.weight) / n
    within = (entities.columns - means[:, entities.owner]) ** 2 @ entities.weight
    varies = np.flatnonzero(within > LEAST_WITHIN * (entities.columns**2 @ entities.weight))
    n_positive = int((entities.y > 0.0).sum())
    rarer = n_positive if entities.log_size is not None else min(n_positive, len(entities.y) - n_positive)
    most = min(MOST_RANDOM, rarer // EVENTS_PER_COLUMN) - 1
    strongest = varies[np.argsort(-np.abs(pooled[varies]), kind="stable")][: max(0, most)]
    return np.sort(np.append(0, strongest))


def _along(
    entities: Responses, fixed: FloatArray, random: IndexArray, factor: FloatArray
) -> tuple[Responses, FloatArray]:
    """The regression on u: its events, whose columns are Λᵀz, and the precision of its prior."""
    offset = entities.offset + fixed @ entities.columns
    columns = factor.T @ entities.columns[random]
    return replace(entities, columns=columns, offset=offset), np.ones(len(random))


class _Fitted(NamedTuple):
    """All that follows from μ, Λ and r."""

    fixed: FloatArray
    factor: FloatArray
    log_size: float | None
    log_likelihood: float
    gradient: FloatArray  # with respect to the packed numbers


class BoundLikelihood:
    """Minus the bound of the log likelihood per event: a function of μ, Λ and log r, packed into one vector.

    Of Λ it has the lower triangle, or the diagonal. It is called by an optimiser. The last laws are kept: the next ones
    are near.
    """

    def __init__(self, entities: Responses, random: IndexArray, *, diagonal: bool = False) -> None:
        self._entities = entities
        self._random = random
        self._free = np.diag_indices(len(random)) if diagonal else np.tril_indices(len(random))
        self._laws = NormalLaws.standard(entities.n_groups, len(random))

    def first(self, pooled: FloatArray) -> FloatArray:
        """Where an optimiser may start: the regression of all events, and small deviations from it."""
        size = [] if self._entities.log_size is None else [self._entities.log_size]
        return np.concatenate([pooled, (FIRST_SCALE * np.eye(len(self._random)))[self._free], size])

    def bounds(self, first: FloatArray) -> list[tuple[float, float]]:
        """Of each number."""
        fixed = [(float(at - MOST_CHANGE), float(at + MOST_CHANGE)) for at in first[: self._entities.n_coef]]
        factor = [(-MOST_SCALE, MOST_SCALE)] * len(self._free[0])
        size = (SMALLEST_LOG_SIZE, poisson_log_size(self._entities.y))
        return [*fixed, *factor, *([] if self._entities.log_size is None else [size])]

    def __call__(self, packed: FloatArray) -> tuple[float, FloatArray]:
        # per event, because the first step of the optimiser is as long as the gradient
        fitted = self.at(packed)
        scale = -1.0 / len(self._entities.y)
        return scale * fitted.log_likelihood, scale * fitted.gradient

    def at(self, packed: FloatArray) -> _Fitted:
        n_coef = self._entities.n_coef
        n_random = len(self._random)
        fixed = packed[:n_coef]
        factor = np.zeros((n_random, n_random))
        factor[self._free] = packed[n_coef : n_coef + len(self._free[0])]
        log_size = None if self._entities.log_size is None else float(packed[-1])
        entities = replace(self._entities, log_size=log_size)
        along, prior = _along(entities, fixed, self._random, factor)
        self._laws, bound = find_laws(along, prior, self._laws)
        mean, covariance = self._laws
        expected = along.expect(along.linear(mean), along.variance(covariance))
        own = replace(entities, columns=entities.columns[self._random])
        pull = own.sum_groups(own.columns * expected.slope)
        of_factor = pull @ mean - (own.grams(expected.curvature) @ factor @ covariance).sum(axis=0)
        gradient = [entities.columns @ expected.slope, of_factor[self._free]]
        if log_size is not None:
            size = np.exp(log_size)
            y = entities.y
            of_constant = entities.weight * (digamma(y + size) - digamma(size))
            gradient.append(np.array([(size * (of_constant + expected.log_rest) - expected.slope).sum()]))
        log_likelihood = float((bound + entities.sum_groups(entities.constant())).sum())
        return _Fitted(fixed, factor, log_size, log_likelihood, np.concatenate(gradient))


def poisson_log_size(counts: FloatArray) -> float:
    """log r at which such counts nearly have a Poisson law."""
    return float(np.log(counts.mean() + 1.0)) + POISSON
