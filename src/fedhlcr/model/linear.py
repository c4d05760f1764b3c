"""The part that all likelihoods with linear regressions share: w_k ~ N(μ, diag(δ²)), with μ and δ fixed or learned."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.checks import finite, positive
from fedhlcr.model import conjugate
from fedhlcr.model.likelihood import Likelihood
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.regression import CoefPrior
from fedhlcr.model.schema import COEF, Globals, quantity
from fedhlcr.model.sums import ClusterSums


@dataclass(frozen=True, kw_only=True)
class LinearGlobals(Globals):
    """The globals of every model, and the prior of the coefficients: mean μ and scale δ."""

    coef_mean: FloatArray = quantity(COEF, possible=finite)
    coef_scale: FloatArray = quantity(COEF, possible=positive)

    @property
    def coef_prior(self) -> CoefPrior:
        return CoefPrior(self.coef_mean, self.coef_scale)


G = TypeVar("G", bound=LinearGlobals)


class LinearLikelihood(Likelihood[G]):
    """A likelihood without its noise: a subclass adds the noise, this class the prior of the coefficients."""

    def start_with(self, spec: ModelSpec, n_clusters: int, **own: Any) -> G:
        """The globals at the start; a subclass passes its `own` quantities."""
        n_coef = self.layout.n_coef
        scale = spec.coef_scale if spec.coef_scale is not None else spec.target_spread * n_coef**-0.5
        return self.globals_type(
            coef=np.zeros((n_clusters, n_coef)),
            log_weights=np.full(n_clusters, -np.log(n_clusters)),
            coef_mean=np.zeros(n_coef),
            coef_scale=np.full(n_coef, float(scale)),
            global_concentration=1.0 if spec.global_concentration is None else spec.global_concentration,
            agent_concentration=1.0 if spec.agent_concentration is None else spec.agent_concentration,
            **own,
        )

    def prior_coef(self, given: G, n_clusters: int, rng: np.random.Generator) -> FloatArray:
        return given.coef_mean + given.coef_scale * rng.standard_normal((n_clusters, self.layout.n_coef))

    def with_coef_prior(self, drawn: G, sums: ClusterSums, spec: ModelSpec, rng: np.random.Generator) -> G:
        """Draw (μ, δ) | w unless they are fixed; then draw the coefficients of empty clusters from the new prior."""
        if spec.coef_scale is not None:
            return drawn
        occupied, priors = sums.occupied, spec.hyperpriors.for_spread(spec.target_spread)
        prior = conjugate.draw_coef_prior(rng, drawn.coef[occupied], spec.coef_prior, priors)
        drawn = replace(drawn, coef_mean=prior.mean, coef_scale=prior.scale)
        from_prior = self.prior_coef(drawn, drawn.n_clusters, rng)
        return replace(drawn, coef=np.where(occupied[:, None], drawn.coef, from_prior))
