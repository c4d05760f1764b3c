"""Hyperparameters: which are fixed, which are learned, and the priors of those that are learned.

All values are in the units of the Gram matrices, which by default are standardised: each column has mean 0 and standard
deviation 1. The priors are weak: a few entities outweigh them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from fedhlcr.model.covariance import EffectScales
from fedhlcr.settings import CoefPriorKind, EffectsName


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

    `coef_mean_ratio` is κ in μ | δ ~ N(0, κδ²). It is large, so that the mean of a coefficient may be far from zero.
    """

    noise_variance: InverseGamma = InverseGamma(1.0, 1e-6)
    coef_variance: InverseGamma = InverseGamma(1.0, 1e-3)
    coef_mean_ratio: float = 1e3
    global_concentration: Gamma = Gamma(1.0, 1.0)
    agent_concentration: Gamma = Gamma(1.0, 1.0)
    entity_effects: EffectScales = EffectScales(1.0, 0.1)
    agent_effects: EffectScales = EffectScales(0.5, 0.1)

    def for_spread(self, spread: float) -> Hyperpriors:
        """The same priors for a target of another spread."""
        noise, coef = (
            prior._replace(rate=prior.rate * spread**2) for prior in (self.noise_variance, self.coef_variance)
        )
        entity, agent = (
            EffectScales(scales.intercept * spread, scales.typical * spread)
            for scales in (self.entity_effects, self.agent_effects)
        )
        return replace(self, noise_variance=noise, coef_variance=coef, entity_effects=entity, agent_effects=agent)


@dataclass(frozen=True)
class ModelSpec:
    """The hyperparameters that a user fixes; one that is None is learned.

    Attributes
    ----------
    coef_prior : "zero_mean", as in the paper: all coefficients have mean zero and one common scale; "common_mean": each
        coefficient has its own mean and scale; "adaptive": whichever of the two fits the coefficients better. A fixed
        `coef_scale` always means "zero_mean".
    target_spread : the target's root mean square in the units of the Gram matrices
    effects : who has effects: "none", "entity", "entity+agent", or "auto", where the data decide
    """

    noise_scale: float | None = None
    coef_scale: float | None = None
    global_concentration: float | None = None
    agent_concentration: float | None = None
    coef_prior: CoefPriorKind = "adaptive"
    target_spread: float = 1.0
    effects: EffectsName = "auto"
    hyperpriors: Hyperpriors = field(default_factory=Hyperpriors)

    @classmethod
    def in_units(cls, target_scale: float, *, noise_scale: float | None, **given: Any) -> ModelSpec:
        """A specification from a noise scale in units of y; all else is in the units of the Gram matrices."""
        return cls(noise_scale=None if noise_scale is None else noise_scale / target_scale, **given)
