"""Regressions of classes or counts for many groups at once: normal laws of coefficients, given the events.

With η = o + xᵀβ, the linear part of an event, and ψ = η − log r, an event has the log density

    ℓ = yψ − b log(1 + exp ψ) + const,     p = 1 / (1 + exp(−ψ)),     ℓ' = y − bp,     −ℓ'' = bp(1 − p).

A class 0 or 1 has b = 1 and r = 1: a logistic regression. A count has b = y + r: a negative binomial one with size r
and mean exp η. As r grows it becomes Poisson's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.special import gammaln
from fedhlcr.data.events import EventStore

# Steps end when they are shorter than this, in squared standard deviations.
TOLERANCE = 1e-6
MOST_STEPS = 100
# A step that makes a group worse by more than rounding errors is halved up to so often.
ROUNDING = 1e-7
MOST_HALVINGS = 20
# Steps that go to and fro become shorter, others longer again.
SHORTER = 0.7
LONGER = 1.2
# Points and weights by which functions of a standard normal variable are integrated.
POINTS, POINT_WEIGHTS = np.polynomial.hermite_e.hermegauss(15)
POINT_WEIGHTS /= POINT_WEIGHTS.sum()
# Least standard deviation of η in such integrals.
LEAST_SCALE = 1e-4


@dataclass(frozen=True)
class Responses:
    """Events of groups.

    Attributes
    ----------
    columns : (n_coef, events) x
    y, weight, offset : (events,)
    start : (groups,) the first event of each group; every group has events
    log_size : log r of counts; None for classes
    """

    columns: FloatArray
    y: FloatArray
    weight: FloatArray
    offset: FloatArray
    start: IndexArray
    log_size: float | None = None

    @classmethod
    def of(cls, events: EventStore, log_size: float | None) -> Responses:
        """The events of entities, with a constant before their features."""
        columns = np.empty((events.X.shape[1] + 1, events.n_events))
        columns[0] = 1.0
        columns[1:] = events.X.T
        return cls(columns, events.y, events.weight, events.offsets, events.event_start[:-1], log_size)

    @property
    def n_coef(self) -> int:
        return len(self.columns)

    @property
    def n_groups(self) -> int:
        return len(self.start)

    @property
    def owner(self) -> IndexArray:
        """(events,) the group of each event."""
        return np.repeat(np.arange(self.n_groups), np.diff(self.start, append=len(self.y)))

    def pooled(self) -> Responses:
        """All events as one group."""
        return replace(self, start=np.zeros(1, dtype=np.int64))

    def sum_groups(self, values: FloatArray) -> FloatArray:
        """Sums over the events of each group, along the last axis."""
        return np.asarray(np.add.reduceat(values, self.start, axis=-1))

    def grams(self, weight: FloatArray) -> FloatArray:
        """(groups, n_coef, n_coef) Σ weight · x xᵀ."""
        out = np.empty((self.n_groups, self.n_coef, self.n_coef))
        for row, column in enumerate(self.columns):
            # the matrices are symmetric
            out[:, row, : row + 1] = self.sum_groups(self.columns[: row + 1] * (weight * column)).T
            out[:, : row + 1, row] = out[:, row, : row + 1]
        return out

    def linear(self, coef: FloatArray) -> FloatArray:
        """(events,) η with the coefficients (groups, n_coef) of each group."""
        return np.asarray(self.offset + np.einsum("cn,nc->n", self.columns, coef[self.owner]))

    def variance(self, covariance: FloatArray) -> FloatArray:
        """(events,) variance of η with the covariances (groups, n_coef, n_coef) of each group."""
        along = covariance[self.owner] @ self.columns.T[..., None]
        return np.maximum(np.einsum("cn,nc->n", self.columns, along[..., 0]), 0.0)

    def expect(self, mean: FloatArray, variance: FloatArray | None = None) -> Expected:
        """Expected log densities of the events and their derivatives, where η is N(mean, variance), or fixed."""
        log_size = 0.0 if self.log_size is None else self.log_size
        trials = np.ones(len(self.y)) if self.log_size is None else self.y + np.exp(log_size)
        scale = np.zeros(0) if variance is None else np.maximum(np.sqrt(variance), LEAST_SCALE)
        points, weights = (np.zeros(1), np.ones(1)) if variance is None else (POINTS, POINT_WEIGHTS)
        psi = (mean - log_size)[:, None] + (0.0 if variance is None else scale[:, None] * points)
        small = np.exp(-np.abs(psi))
        p = np.where(psi < 0.0, small, 1.0) / (1.0 + small)
        log_rest = -(np.maximum(psi, 0.0) + np.log1p(small)) @ weights
        # E p(1 − p) by Stein's lemma, so that it is the derivative of the integral as it is computed
        curve = (p - p**2)[:, 0] if variance is None else p @ (points * weights) / scale
        log_density = self.y * (mean - log_size) + trials * log_rest
        parts = log_density, self.y - trials * (p @ weights), trials * curve, log_rest
        return Expected(*(self.weight * part for part in parts))

    def constant(self) -> FloatArray:
        """(events,) what the log densities of `expect` lack."""
        if self.log_size is None:
            return np.zeros(len(self.y))
        size = np.exp(self.log_size)
        return np.asarray(self.weight * (gammaln(self.y + size) - gammaln(size) - gammaln(self.y + 1.0)))


class Expected(NamedTuple):
    """Expectations over η, (events,) each, times the weights of the events.

    Attributes
    ----------
    log_density, slope, curvature : of ℓ, ℓ' and −ℓ''
    log_rest : of log(1 − p)
    """

    log_density: FloatArray
    slope: FloatArray
    curvature: FloatArray
    log_rest: FloatArray


class NormalLaws(NamedTuple):
    """Normal laws of the coefficients of groups."""

    mean: FloatArray  # (groups, n_coef)
    covariance: FloatArray  # (groups, n_coef, n_coef)

    @classmethod
    def standard(cls, n_groups: int, n_coef: int) -> NormalLaws:
        return cls(np.zeros((n_groups, n_coef)), np.repeat(np.eye(n_coef)[None], n_groups, axis=0))

    def towards(self, mean: FloatArray, covariance: FloatArray, share: FloatArray) -> NormalLaws:
        """A `share` (groups,) of the way to other laws."""
        part = share[:, None, None]
        between = self.covariance + part * (covariance - self.covariance)
        return NormalLaws(self.mean + part[..., 0] * (mean - self.mean), between)


def find_laws(events: Responses, prior: FloatArray, start: NormalLaws) -> tuple[NormalLaws, FloatArray]:
    """The normal law of each group's coefficients that is nearest to their posterior, and its bound (groups,).

    The prior is N(0, P⁻¹) with P diagonal. The law N(m, S) has the bound E Σℓ − ½ (mᵀPm + tr PS − log |PS| − n_coef),
    which is at most the log probability of the group's events.

    Parameters
    ----------
    prior : (n_coef,) the diagonal of P
    start : where to begin
    """

    def evaluate(laws: NormalLaws) -> tuple[Expected, FloatArray]:
        expected = events.expect(events.linear(laws.mean), events.variance(laws.covariance))
        volume = np.linalg.slogdet(laws.covariance)[1] + np.log(prior).sum() + events.n_coef
        spread = np.einsum("gcc,c->g", laws.covariance, prior)
        return expected, events.sum_groups(expected.log_density) + 0.5 * (volume - spread - laws.mean**2 @ prior)

    return _climb(events, prior, start, evaluate)


def find_modes(events: Responses, prior: FloatArray, start: NormalLaws) -> tuple[NormalLaws, FloatArray]:
    """The most probable coefficients of each group, and their log density (groups,): penalised regressions.

    Arguments as in `find_laws`. The covariances are those of Laplace's approximation.
    """

    def evaluate(laws: NormalLaws) -> tuple[Expected, FloatArray]:
        expected = events.expect(events.linear(laws.mean))
        return expected, events.sum_groups(expected.log_density) - 0.5 * laws.mean**2 @ prior

    return _climb(events, prior, start, evaluate)


# From laws to expectations at the events, and to what is to be made large, of each group.
Evaluate = Callable[[NormalLaws], tuple[Expected, FloatArray]]


def _climb(
    events: Responses, prior: FloatArray, start: NormalLaws, evaluate: Evaluate
) -> tuple[NormalLaws, FloatArray]:
    """Improve laws by steps S⁻¹ = P + E Σ(−ℓ'')xxᵀ and m ← m + S(E Σℓ'x − Pm): at fixed η these are Newton's."""
    laws, (expected, bound) = start, evaluate(start)
    length = np.ones(events.n_groups)
    before = np.zeros((events.n_groups, events.n_coef))
    for _ in range(MOST_STEPS):
        gradient = events.sum_groups(events.columns * expected.slope).T - laws.mean * prior
        covariance = np.asarray(np.linalg.inv(events.grams(expected.curvature) + np.diag(prior)), np.float64)
        step = (covariance @ gradient[..., None])[..., 0]
        change = float(np.abs(covariance - laws.covariance).max())
        is_near = float((gradient * step).sum(axis=1).max()) <= TOLERANCE and change <= np.sqrt(TOLERANCE)
        # means and covariances depend on each other, so steps may go to and fro
        turned = (step * before).sum(axis=1) < 0.0
        length = np.where(turned, SHORTER * length, np.minimum(LONGER * length, 1.0))
        before = step
        for _ in range(MOST_HALVINGS):
            new = laws.towards(laws.mean + step, covariance, length)
            expected, improved = evaluate(new)
            worse = ~(improved >= bound - ROUNDING)
            if is_near or not worse.any():
                break
            length[worse] *= 0.5
        laws = new
        bound = improved
        if is_near:
            break
    return laws, bound
