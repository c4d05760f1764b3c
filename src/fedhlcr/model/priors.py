"""The hyperparameters: which are fixed, which are learned, and under what priors.

Everything here is in the units of the Gram matrices, by default standardised: columns of unit spread around
zero. The priors are weak: a few entities outweigh them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr.model.regression import CoefPrior

CoefPriorKind = Literal["adaptive", "common_mean", "zero_mean"]


class InverseGamma(NamedTuple):
    """p(v) ∝ v^(−shape−1) exp(−rate / v); for variances."""

    shape: float
    rate: float


class Gamma(NamedTuple):
    """p(c) ∝ c^(shape−1) exp(−rate·c); for concentrations."""

    shape: float
    rate: float


@dataclass(frozen=True)
class Hyperpriors:
    """Priors of the learned hyperparameters, for a target of unit spread.

    `coef_mean_ratio` is κ in μ | δ ~ N(0, κδ²), large: the common mean of a coefficient may lie far from zero.
    """

    noise_variance: InverseGamma = InverseGamma(1.0, 1e-6)
    coef_variance: InverseGamma = InverseGamma(1.0, 1e-3)
    coef_mean_ratio: float = 1e3
    global_concentration: Gamma = Gamma(1.0, 1.0)
    agent_concentration: Gamma = Gamma(1.0, 1.0)

    def for_spread(self, spread: float) -> Hyperpriors:
        """The same for a target of another spread."""
        noise, coef = (
            prior._replace(rate=prior.rate * spread**2) for prior in (self.noise_variance, self.coef_variance)
        )
        return replace(self, noise_variance=noise, coef_variance=coef)


@dataclass(frozen=True)
class ModelSpec:
    """What a run takes as given. A hyperparameter that is None is learned.

    Attributes
    ----------
    coef_prior : "zero_mean", one scale around zero for all coefficients (the paper); "common_mean", each
        coefficient with a scale of its own around a mean of its own; or "adaptive", either of them, as
        the coefficients tell. A fixed `coef_scale` is always the first.
    target_spread : the target's root mean square in the units of the Gram matrices
    """

    noise_scale: float | None = None
    coef_scale: float | None = None
    global_concentration: float | None = None
    agent_concentration: float | None = None
    coef_prior: CoefPriorKind = "adaptive"
    target_spread: float = 1.0
    hyperpriors: Hyperpriors = field(default_factory=Hyperpriors)

    @classmethod
    def in_units(cls, target_scale: float, *, noise_scale: float | None, **given: Any) -> ModelSpec:
        """A specification whose noise scale comes in units of y; all else is in the units of the Gram matrices."""
        return cls(noise_scale=None if noise_scale is None else noise_scale / target_scale, **given)


# Hyperparameters that are either given as a number or learned.
LEARNABLE = tuple(f.name for f in fields(ModelSpec) if f.default is None)


def constant_coef_prior(scale: float, n_coef: int) -> CoefPrior:
    """w ~ N(0, scale² I)."""
    mean: FloatArray = np.zeros(n_coef)
    return CoefPrior(mean, np.full(n_coef, float(scale)))
