"""Regressions of classes and counts by those of real targets: events are reweighted until they settle.

Let the linear part η of an event have the law N(m, s²), and let μ and μ' be the expectations of the inverse link and of
its slope. Then the event counts as a normal one with

    target z = m + (y − μ) / μ',     weight w = μ' / (1 + μ/r),     variance 1,

where μ/r is the excess variance of negative binomial counts. Regressions on weighted Gram matrices give the next laws.
Without uncertainty (s = 0) this is Newton's method. For a mixed model it settles where the variational bound of the
likelihood of y is stationary (Ormerod and Wand 2012): the laws of the deviations, and so the scales that fit them, are
those of the normal events. The usual choices are far off where most entities have events of one class only: penalised
quasi-likelihood (s = 0 here, too) has too small deviations, Laplace's approximation far too large ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr.analysis.mixed_model import MixedModel
from fedhlcr.analysis.regressions import MOST_LEVERAGE, CoefLaw
from fedhlcr.analysis.ridges import INFINITE, solve_ridge
from fedhlcr.analysis.scores import log_fit
from fedhlcr.data.events import EventStore
from fedhlcr.data.families import Family
from fedhlcr.model.gram import GramLayout, NormalEquations, event_grams

# Largest |η| and variance of η, longest step of η, and least weight of an event: bounds where classes are separated.
MOST_LINEAR = 15.0
LONGEST_STEP = 2.0
MOST_VARIANCE = 100.0
LEAST_WEIGHT = 1e-4
# Largest logarithm of a mean count.
LARGEST_LOG_MEAN = 100.0
# Steps end when η changes by less than this, as a weighted root mean square.
TOLERANCE = 1e-3
MOST_STEPS = 30
# Of the slopes of one regression for all events: as small for many events as scikit-learn's default.
POOLED_PENALTY = 1.0
# Penalties to try for the slopes of entities.
PENALTIES = np.logspace(-2, 3, 11)
# Of the optimiser of a mixed model in each step: the next step has another likelihood, and goes on from there.
MIXED_TOLERANCE = 1e-6
MIXED_STEPS = 10
# What is added to the relative factor that a step starts with.
LEAST_START = 0.05
# Points and weights by which functions of a standard normal variable are integrated.
POINTS, POINT_WEIGHTS = np.polynomial.hermite_e.hermegauss(15)
POINT_WEIGHTS /= POINT_WEIGHTS.sum()
# From Gram matrices (entities, packed) to the laws of the regressions, of each entity or of all together.
Solve = Callable[[FloatArray], CoefLaw]


def settle(family: Family, events: EventStore, solve: Solve, *, is_dispersed: bool = False) -> FloatArray:
    """(entities, packed) Gram matrices of the events, reweighted until their regressions settle.

    Parameters
    ----------
    events : of entities, in standardised units
    solve : the regressions
    is_dispersed : whether counts may vary more than by Poisson's law
    """
    layout = GramLayout(events.X.shape[1])
    linear = events.offsets + central_linear(family, events)
    variance = np.zeros(events.n_events)
    for _ in range(MOST_STEPS):
        target, weight = _as_normal(family, events, linear, variance, is_dispersed=is_dispersed)
        normal = replace(events, y=target - events.offsets, weight=weight)
        grams = event_grams(normal, layout, np.zeros(layout.n_features + 1), np.zeros(events.n_entities, np.int64))
        law = solve(grams)
        found, variance = _linear(events, law)
        variance = np.minimum(variance, MOST_VARIANCE)
        step = np.clip(found, -MOST_LINEAR, MOST_LINEAR) - linear
        linear = linear + np.clip(step, -LONGEST_STEP, LONGEST_STEP)
        if weight @ step**2 <= TOLERANCE**2 * weight.sum():
            break
    return grams


def _linear(events: EventStore, law: CoefLaw) -> tuple[FloatArray, FloatArray]:
    """(events,) mean and variance of η by the laws of their entities, or by one law for all."""
    design = np.column_stack([np.ones(events.n_events), events.X])
    owner = np.repeat(np.arange(events.n_entities), np.diff(events.event_start))
    of_event = owner if len(law.mean) > 1 else np.zeros_like(owner)
    variance = np.zeros(events.n_events)
    # column by column: all products of columns would take too much memory
    for c, column in enumerate(design.T if law.covariance.any() else []):
        variance += column * np.einsum("nc,nc->n", design, law.covariance[of_event, c])
    return events.offsets + np.einsum("nc,nc->n", design, law.mean[of_event]), np.maximum(variance, 0.0)


def central_linear(family: Family, events: EventStore) -> float:
    """Log odds, or log rate, of all events together and one more, half of either sort."""
    exposed = float(events.weight @ np.exp(events.offsets))
    usual = exposed / float(events.weight.sum())
    rate = (float(events.weight @ events.y) + 0.5) / (exposed + usual)
    return float(np.log(rate / (1.0 - rate)) if family.has_classes else np.log(rate))


def _as_normal(
    family: Family, events: EventStore, linear: FloatArray, variance: FloatArray, *, is_dispersed: bool
) -> tuple[FloatArray, FloatArray]:
    """Targets and weights of the events as normal ones, where η is N(linear, variance)."""
    mean, slope = expected_response(family, linear, variance)
    # 1/r of counts, by moments
    excess = float(events.weight @ ((events.y - mean) ** 2 - mean)) if is_dispersed and not family.has_classes else 0.0
    information = slope / (1.0 + max(excess, 0.0) / float(events.weight @ mean**2) * mean)
    target = linear + (events.y - mean) / np.maximum(slope, LEAST_WEIGHT)
    return target, events.weight * np.maximum(information, LEAST_WEIGHT)


def expected_response(family: Family, linear: FloatArray, variance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Expected responses and their slopes where η is N(linear, variance): probabilities, or mean counts."""
    if not family.has_classes:
        mean = np.exp(np.minimum(linear + 0.5 * variance, LARGEST_LOG_MEAN))
        return mean, mean
    points, weights = (POINTS, POINT_WEIGHTS) if variance.any() else (np.zeros(1), np.ones(1))
    p = family.to_response(linear[:, None] + np.sqrt(variance)[:, None] * points)
    return p @ weights, (p * (1.0 - p)) @ weights


def pooled_regression(family: Family, events: EventStore) -> FloatArray:
    """(n_coef,) one regression for all events."""
    layout = GramLayout(events.X.shape[1])

    def solve(grams: FloatArray) -> CoefLaw:
        return CoefLaw(
            solve_ridge(layout, grams.sum(axis=0), POOLED_PENALTY)[None], np.zeros((1, layout.n_coef, layout.n_coef))
        )

    return solve(settle(family, events, solve)).mean[0]


class EntityRidge(NamedTuple):
    """A penalised regression for each entity: what a ridge per entity is for real targets.

    Slopes are drawn towards 0 with a penalty that all entities share. Intercepts are drawn towards the rate of all
    events, as strongly as by one event: an entity whose events are all of one class has no estimate else.

    Attributes
    ----------
    centre : (n_coef,) log odds, or log rate, of all events, and zeros
    penalties : (n_coef,)
    """

    centre: FloatArray
    penalties: FloatArray
    noise_variance: float = 1.0

    @classmethod
    def fit(cls, family: Family, events: EventStore) -> EntityRidge:
        """Choose the penalty that predicts events best, each from the others."""
        layout = GramLayout(events.X.shape[1])
        centre = np.zeros(layout.n_coef)
        centre[0] = central_linear(family, events)
        mean = float(family.to_response(centre[:1])[0])
        # what one event tells about an intercept
        usual = float(events.weight @ np.exp(events.offsets)) / events.n_events
        information = mean * (1.0 - mean) if family.has_classes else mean * usual
        constant = np.ptp(events.X, axis=0) == 0.0
        found = [cls(centre, np.array([information, *np.where(constant, INFINITE, p)])) for p in PENALTIES]
        return max(found, key=lambda candidate: candidate.log_fit_left_out(family, events))

    def log_fit_left_out(self, family: Family, events: EventStore) -> float:
        """How well each event is predicted from the others of its entity: by one Newton step from all of them."""
        layout = GramLayout(events.X.shape[1])
        entities = layout.normal_equations(self.settled(family, events))
        law = self.law(entities)
        covariance = np.linalg.inv(entities.xx + np.diag(self.penalties))
        linear, leverage = _linear(events, law._replace(covariance=np.asarray(covariance, dtype=np.float64)))
        mean, slope = expected_response(family, linear, np.zeros(events.n_events))
        own = np.minimum(events.weight * slope * leverage, MOST_LEVERAGE)
        left_out = linear - events.weight * (events.y - mean) * leverage / (1.0 - own)
        bounded = np.clip(left_out, -MOST_LINEAR, MOST_LINEAR)
        return float(events.weight @ log_fit(family, events.y, family.to_response(bounded)))

    def settled(self, family: Family, events: EventStore) -> FloatArray:
        """The Gram matrices of entities with these penalties."""
        layout = GramLayout(events.X.shape[1])
        return settle(family, events, lambda grams: self.law(layout.normal_equations(grams)))

    def law(self, entities: NormalEquations) -> CoefLaw:
        """The regression of each entity, as an estimate without uncertainty."""
        precision = entities.xx + np.diag(self.penalties)
        coef = np.linalg.solve(precision, (entities.xy + self.penalties * self.centre)[..., None])[..., 0]
        return CoefLaw(np.asarray(coef, dtype=np.float64), np.zeros_like(precision))


def fit_mixed_model(family: Family, events: EventStore, *, diagonal: bool) -> MixedModel:
    """A generalised linear mixed model; counts may vary more than by Poisson's law."""
    layout = GramLayout(events.X.shape[1])
    models: list[MixedModel] = []

    def solve(grams: FloatArray) -> CoefLaw:
        entities = layout.normal_equations(grams)
        # a deviation of zero would stay there
        start = models[-1].factor + LEAST_START * np.eye(layout.n_coef) if models else None
        model = MixedModel.fit(
            entities,
            noise_variance=1.0,
            start=start,
            diagonal=diagonal,
            max_iter=MIXED_STEPS,
            tolerance=MIXED_TOLERANCE,
            reml=False,
        )
        models.append(model)
        return model.law(entities)

    settle(family, events, solve, is_dispersed=True)
    return models[-1]


def settled_by(model: MixedModel, family: Family, events: EventStore) -> FloatArray:
    """The Gram matrices of entities whose regressions follow a mixed model."""
    layout = GramLayout(events.X.shape[1])
    return settle(family, events, lambda grams: model.law(layout.normal_equations(grams)), is_dispersed=True)
