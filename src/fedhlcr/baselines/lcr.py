"""Latent class regression by expectation maximisation: the paper's ancestor.

Every event (classically), or every entity, has a latent class with a linear regression and a noise of its own. With
classes per entity an entity acts through its Gram matrix alone.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import logsumexp

from fedhlcr.arrays import FloatArray
from fedhlcr.baselines.linear import Coefficients, LinearRival, Standardized
from fedhlcr.baselines.ridge import solve_ridge
from fedhlcr.baselines.soft import LEAST_VARIANCE, PENALTY, log_densities, weighted_regressions

LABELS, CRITERIA = ("event", "entity"), ("bic", "icl")


class Mixture(NamedTuple):
    """A fitted mixture of regressions.

    Attributes
    ----------
    weights : (classes,)
    coef : (classes, n_coef)
    variance : (classes,)
    responsibilities : (units, classes), units being events or entities
    log_likelihood : of the table
    """

    weights: FloatArray
    coef: FloatArray
    variance: FloatArray
    responsibilities: FloatArray
    log_likelihood: float


class LCRRegressor(LinearRival):
    """Latent class regression, fitted by EM from several starts.

    With `label="event"` nothing tells the class of a new event, so it is predicted by the mean of the classes'
    regressions. With `label="entity"` a known entity is predicted by the classes it is likely to be of.

    Parameters
    ----------
    n_classes : int or "auto", default="auto"
        Number of classes; "auto" takes the best of 1, 2, 3, 4, 6, 8, 12, … up to `max_classes` by `criterion`.
    label : {"event", "entity"}, default="event"
        What has a class.
    criterion : {"bic", "icl"}, default="bic"
    max_classes : int, default=16
    n_init : int, default=5
        Starts from random classes, of which the likeliest end is kept.
    max_iter : int, default=200
        The most steps from each start.
    tol : float, default=1e-6
        A start has ended when the mean log likelihood of an event grows by less.
    random_state : int, RandomState instance or None, default=0

    Attributes
    ----------
    mixture_ : Mixture, in standardised units
    n_classes_ : int
    criteria_ : dict, the criterion of each number of classes tried; the least is best
    """

    def __init__(
        self,
        n_classes="auto",
        label="event",
        criterion="bic",
        max_classes=16,
        n_init=5,
        max_iter=200,
        tol=1e-6,
        random_state=0,
    ):
        self.n_classes = n_classes
        self.label = label
        self.criterion = criterion
        self.max_classes = max_classes
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def _solve(self, data: Standardized) -> Coefficients:
        for name, words in (("label", LABELS), ("criterion", CRITERIA)):
            if getattr(self, name) not in words:
                raise ValueError(f"`{name}` must be {' or '.join(map(repr, words))}, but is {getattr(self, name)!r}.")
        units = _Events(data) if self.label == "event" else _Entities(data)
        rng = np.random.default_rng(self.random_state)
        sizes = _sizes(self.max_classes) if self.n_classes == "auto" else [self.n_classes]
        fits = {size: self._best_start(units, size, rng) for size in sizes}
        self.criteria_ = {size: self._judge(fit) for size, fit in fits.items()}
        self.n_classes_ = min(self.criteria_, key=self.criteria_.__getitem__)
        self.mixture_ = mixture = fits[self.n_classes_]
        of_all = mixture.weights @ mixture.coef
        if self.label == "event":
            return Coefficients(of_all)
        return Coefficients(of_all, of_entities=mixture.responsibilities @ mixture.coef)

    def _best_start(self, units: _Units, n_classes: int, rng: np.random.Generator) -> Mixture:
        starts = self.n_init if n_classes > 1 else 1
        return max((self._run(units, n_classes, rng) for _ in range(starts)), key=lambda fit: fit.log_likelihood)

    def _run(self, units: _Units, n_classes: int, rng: np.random.Generator) -> Mixture:
        responsibilities = np.eye(n_classes)[rng.integers(n_classes, size=units.n_units)]
        before = -np.inf
        for _ in range(self.max_iter):
            weights, (coef, variance) = _weights(responsibilities), units.maximize(responsibilities)
            log_joint = np.log(weights) + units.log_density(coef, variance)
            each = logsumexp(log_joint, axis=1)
            responsibilities, now = np.exp(log_joint - each[:, None]), float(each.sum())
            if now - before < self.tol * units.n_events:
                break
            before = now
        return Mixture(weights, coef, variance, responsibilities, now)

    def _judge(self, fit: Mixture) -> float:
        """BIC, or ICL, which also counts how uncertain the classes are."""
        n_classes, n_coef = fit.coef.shape
        n_parameters = n_classes * (n_coef + 2) - 1
        judged = -2.0 * fit.log_likelihood + n_parameters * np.log(len(fit.responsibilities))
        if self.criterion == "icl":
            certain = np.maximum(fit.responsibilities, 1e-300)
            judged -= 2.0 * float(np.sum(certain * np.log(certain)))
        return float(judged)


def _sizes(most: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, 16, …"""
    sizes = [1, 2, 3]
    while sizes[-1] < most:
        sizes.append(2 * sizes[-2])
    return [size for size in sizes if size <= most]


class _Units(Protocol):
    """What has a class, and how classes are fitted to it."""

    n_units: int
    n_events: int

    def maximize(self, responsibilities: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Coefficients and variances of the classes."""

    def log_density(self, coef: FloatArray, variance: FloatArray) -> FloatArray:
        """(units, classes)"""


class _Entities:
    """Entities, through their Gram matrices."""

    def __init__(self, data: Standardized) -> None:
        self._layout, self._grams = data.layout, data.grams
        self._sizes = data.layout.n_events(data.grams)
        self.n_units, self.n_events = len(data.grams), data.events.n_events

    def maximize(self, responsibilities: FloatArray) -> tuple[FloatArray, FloatArray]:
        sums = responsibilities.T @ self._grams
        coef = solve_ridge(self._layout, sums, PENALTY)
        variance = (self._layout.rss(sums, coef) + LEAST_VARIANCE) / (self._layout.n_events(sums) + 1.0)
        return coef, np.maximum(variance, LEAST_VARIANCE)

    def log_density(self, coef: FloatArray, variance: FloatArray) -> FloatArray:
        rss = np.maximum(self._grams @ self._layout.rss_vectors(coef).T, 0.0)
        return -0.5 * (self._sizes[:, None] * np.log(2.0 * np.pi * variance) + rss / variance)


class _Events:
    """Events, one by one."""

    def __init__(self, data: Standardized) -> None:
        self._X, self._y = data.design(), data.target()
        self.n_units = self.n_events = len(self._y)

    def maximize(self, responsibilities: FloatArray) -> tuple[FloatArray, FloatArray]:
        return weighted_regressions(self._X, self._y, responsibilities)

    def log_density(self, coef: FloatArray, variance: FloatArray) -> FloatArray:
        return log_densities(self._X, self._y, coef, variance)


def _weights(responsibilities: FloatArray) -> FloatArray:
    """Shares of the classes, none of them nothing."""
    sums = responsibilities.sum(axis=0) + 1e-9
    return sums / sums.sum()
