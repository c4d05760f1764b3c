"""Mixtures of regressions: the steps of EM, with a class per event or per entity.

An event is to them what an entity is: a set of events, through its Gram matrix. So both steps are matrix products of
packed matrices, made once, with as many columns as there are classes. Arrays by class and unit have classes first:
sums over classes then run along memory. The literature on these methods says *class* for what HLCR calls a cluster,
so this module says it too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr.analysis.ridges import solve_ridge
from fedhlcr.baselines.rival import Standardized
from fedhlcr.model.gram import GramLayout

# In standardised units: they keep the equations of a small class regular, and its noise above zero.
PENALTY = 1e-3
LEAST_VARIANCE = 1e-4


@dataclass(frozen=True)
class MixtureUnits:
    """The units that have a class: events or entities."""

    layout: GramLayout
    grams: FloatArray  # (units, packed)
    n_events: int

    @classmethod
    def entities(cls, data: Standardized) -> MixtureUnits:
        return cls(data.layout, data.grams, data.events.n_events)

    @classmethod
    def events(cls, data: Standardized) -> MixtureUnits:
        rows, columns = np.tril_indices(data.layout.width)
        augmented = np.column_stack([data.design(), data.target()])
        return cls(data.layout, augmented[:, rows] * augmented[:, columns], data.events.n_events)

    def __len__(self) -> int:
        return len(self.grams)

    def random_classes(self, n_classes: int, rng: np.random.Generator) -> FloatArray:
        """(classes, units) of zeros and ones."""
        return np.eye(n_classes)[:, rng.integers(n_classes, size=len(self))]

    def regressions(self, responsibilities: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Coefficients (classes, n_coef) and variances (classes,) of units weighted by (classes, units)."""
        sums = responsibilities @ self.grams
        coef = solve_ridge(self.layout, sums, PENALTY)
        variance = (self.layout.rss(sums, coef) + LEAST_VARIANCE) / (self.layout.n_events(sums) + 1.0)
        return coef, np.maximum(variance, LEAST_VARIANCE)

    def log_densities(self, coef: FloatArray, variance: FloatArray) -> FloatArray:
        """(classes, units) log density of each unit under each regression."""
        rss = self.layout.rss_vectors(coef) @ self.grams.T
        np.maximum(rss, 0.0, out=rss)
        sizes = self.layout.n_events(self.grams)
        rss /= variance[:, None]
        rss += np.multiply.outer(np.log(2.0 * np.pi * variance), sizes)
        rss *= -0.5
        return rss


def normalize(log_joint: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Responsibilities (classes, units) from log joint densities, computed in place, and the log evidence (units,)."""
    most = log_joint.max(axis=0)
    log_joint -= most
    np.exp(log_joint, out=log_joint)
    sums = log_joint.sum(axis=0)
    log_joint /= sums
    return log_joint, most + np.log(sums)
