"""The hyperparameters: which are fixed, which are learned, and under what priors.

Everything here is in the units of the Gram matrices, by default standardised: columns of unit spread around
zero. The priors are weak: a few entities outweigh them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

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


@dataclass(frozen=True)
class Hyperparameters:
    """Present values of σ, (μ, δ), α and β."""

    noise_scale: float
    coef_prior: CoefPrior
    global_concentration: float
    agent_concentration: float


def initial_hyperparameters(spec: ModelSpec, n_coef: int) -> Hyperparameters:
    """Where a chain starts: learned values at the spread of the target."""
    coef_scale = spec.coef_scale if spec.coef_scale is not None else spec.target_spread * n_coef**-0.5
    return Hyperparameters(
        noise_scale=spec.target_spread if spec.noise_scale is None else spec.noise_scale,
        coef_prior=constant_coef_prior(coef_scale, n_coef),
        global_concentration=1.0 if spec.global_concentration is None else spec.global_concentration,
        agent_concentration=1.0 if spec.agent_concentration is None else spec.agent_concentration,
    )


def constant_coef_prior(scale: float, n_coef: int) -> CoefPrior:
    """w ~ N(0, scale² I)."""
    mean: FloatArray = np.zeros(n_coef)
    return CoefPrior(mean, np.full(n_coef, float(scale)))
