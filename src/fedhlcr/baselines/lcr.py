"""Latent class regression by expectation maximisation, the model that HLCR extends.

Every event (the classical form) or every entity has a latent class. Each class has its own linear regression and noise
scale. With a class per entity, an entity matters through its Gram matrix only. The literature on this method says
*class* for what HLCR calls a cluster, so this module says it too.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np
from sklearn.utils._param_validation import StrOptions

from fedhlcr._support.arrays import FloatArray
from fedhlcr.baselines.mixtures import MixtureUnits, normalize
from fedhlcr.baselines.rival import AUTO, COUNT, SEED, TOLERANCE, Coefficients, Constraints, Rival, Standardized


class ClassMixture(NamedTuple):
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


class LCRRegressor(Rival):
    """Latent class regression, fitted by EM from several starts.

    With `label="event"` the class of a new event is unknown, so the mean of the classes' regressions predicts it. With
    `label="entity"` a known entity is predicted by its probable classes.

    Starts are "em-EM" (Biernacki, Celeux and Govaert, 2003): several short runs from random classes. Only the most
    likely one continues.

    Parameters
    ----------
    n_classes : int or "auto", default="auto"
        Number of classes; "auto" takes the best of 1, 2, 3, 4, 6, 8, 12, … by `criterion`, up to `max_classes` or until
        two in a row are worse than the best.
    label : {"event", "entity"}, default="event"
        What has a class.
    criterion : {"bic", "icl"}, default="bic"
    max_classes : int, default=64
    n_init : int, default=10
        Number of short runs for each number of classes.
    short_iter : int, default=10
        Steps of a short run.
    max_iter : int, default=200
        Most further steps of the most likely short run.
    tol : float, default=1e-5
        A run ends when the mean log likelihood per event grows by less.
    random_state : int or None, default=0

    Attributes
    ----------
    mixture_ : Mixture, in standardised units
    n_classes_ : int
    criteria_ : dict, the criterion of each number of classes tried; the least is best
    """

    _parameter_constraints: ClassVar[Constraints] = {
        "n_classes": [COUNT, AUTO],
        "label": [StrOptions({"event", "entity"})],
        "criterion": [StrOptions({"bic", "icl"})],
        "max_classes": [COUNT],
        "n_init": [COUNT],
        "short_iter": [COUNT],
        "max_iter": [COUNT],
        "tol": [TOLERANCE],
        "random_state": SEED,
    }

    def __init__(
        self,
        n_classes="auto",
        label="event",
        criterion="bic",
        max_classes=64,
        n_init=10,
        short_iter=10,
        max_iter=200,
        tol=1e-5,
        random_state=0,
    ):
        self.n_classes = n_classes
        self.label = label
        self.criterion = criterion
        self.max_classes = max_classes
        self.n_init = n_init
        self.short_iter = short_iter
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def _solve(self, data: Standardized) -> Coefficients:
        units = MixtureUnits.events(data) if self.label == "event" else MixtureUnits.entities(data)
        self.mixture_ = mixture = self._best_number(units, np.random.default_rng(self.random_state))
        self.n_classes_ = len(mixture.coef)
        of_all = mixture.weights @ mixture.coef
        if self.label == "event":
            return Coefficients(of_all)
        return Coefficients(of_all, of_entities=mixture.responsibilities @ mixture.coef)

    def _best_number(self, units: MixtureUnits, rng: np.random.Generator) -> ClassMixture:
        """The mixture with the best number of classes; fills `criteria_`."""
        sizes = _sizes(self.max_classes) if self.n_classes == "auto" else [self.n_classes]
        best = self._best_start(units, sizes[0], rng)
        self.criteria_ = {sizes[0]: self._judge(best)}
        n_worse = 0
        for size in sizes[1:]:
            mixture = self._best_start(units, size, rng)
            criterion = self._judge(mixture)
            if criterion < min(self.criteria_.values()):
                best = mixture
                n_worse = 0
            else:
                n_worse += 1
            self.criteria_[size] = criterion
            if n_worse == 2:
                break
        return best

    def _best_start(self, units: MixtureUnits, n_classes: int, rng: np.random.Generator) -> ClassMixture:
        n_starts = self.n_init if n_classes > 1 else 1
        starts = (units.random_classes(n_classes, rng) for _ in range(n_starts))
        short = (_climb(units, start, self.short_iter, self.tol) for start in starts)
        best = max(short, key=lambda mixture: mixture.log_likelihood)
        return _climb(units, best.responsibilities.T, self.max_iter, self.tol)

    def _judge(self, fit: ClassMixture) -> float:
        """BIC, or ICL, which also counts how uncertain the classes are."""
        n_classes, n_coef = fit.coef.shape
        n_parameters = n_classes * (n_coef + 2) - 1
        judged = -2.0 * fit.log_likelihood + n_parameters * np.log(len(fit.responsibilities))
        if self.criterion == "icl":
            certain = np.maximum(fit.responsibilities, 1e-300)
            judged -= 2.0 * float(np.sum(certain * np.log(certain)))
        return float(judged)


def _climb(units: MixtureUnits, responsibilities: FloatArray, n_steps: int, tol: float) -> ClassMixture:
    """At most `n_steps` steps of EM from responsibilities (classes, units)."""
    before = -np.inf
    for _ in range(n_steps):
        coef, variance = units.regressions(responsibilities)
        weights = _weights(responsibilities)
        log_joint = units.log_densities(coef, variance)
        log_joint += np.log(weights)[:, None]
        responsibilities, evidence = normalize(log_joint)
        now = float(evidence.sum())
        if now - before < tol * units.n_events:
            break
        before = now
    return ClassMixture(weights, coef, variance, responsibilities.T, now)


def _weights(responsibilities: FloatArray) -> FloatArray:
    """Shares of the classes, all above zero."""
    sums = responsibilities.sum(axis=1) + 1e-9
    return sums / sums.sum()


def _sizes(most: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, 16, …"""
    sizes = [1, 2, 3]
    while sizes[-1] < most:
        sizes.append(2 * sizes[-2])
    return [size for size in sizes if size <= most]
