"""The part that all likelihoods with linear regressions share: w_k ~ N(μ, diag(δ²)), with μ and δ fixed or learned."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.checks import square_finite, square_positive
from fedhlcr.model import conjugate
from fedhlcr.model.curve_prior import START_SCALE, draw_curve_prior, log_curve_marginal
from fedhlcr.model.likelihood import Likelihood
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.regression import CoefPrior, log_normal
from fedhlcr.model.schema import COEF, Globals, quantity
from fedhlcr.model.sums import ClusterSums


@dataclass(frozen=True, kw_only=True)
class LinearGlobals(Globals):
    """The globals of every model, and the prior of the coefficients: mean μ and scale δ."""

    coef_mean: FloatArray = quantity(COEF, possible=square_finite)
    coef_scale: FloatArray = quantity(COEF, possible=square_positive)

    @property
    def coef_prior(self) -> CoefPrior:
        return CoefPrior(self.coef_mean, self.coef_scale)


G = TypeVar("G", bound=LinearGlobals)


class LinearLikelihood(Likelihood[G]):
    """A likelihood without its noise: a subclass adds the noise, this class the prior of the coefficients."""

    def start_with(self, spec: ModelSpec, n_clusters: int, **own: Any) -> G:
        """The globals at the start; a subclass passes its `own` quantities."""
        n_coef = self.layout.n_coef
        n_linear = self.layout.n_linear
        scale = spec.coef_scale if spec.coef_scale is not None else spec.target_spread * n_linear**-0.5
        coef_scale = np.full(n_coef, float(scale))
        coef_scale[n_linear:] = START_SCALE * spec.target_spread
        return self.globals_type(
            coef=np.zeros((n_clusters, n_coef)),
            log_weights=np.full(n_clusters, -np.log(n_clusters)),
            coef_mean=np.zeros(n_coef),
            coef_scale=coef_scale,
            global_concentration=1.0 if spec.global_concentration is None else spec.global_concentration,
            agent_concentration=1.0 if spec.agent_concentration is None else spec.agent_concentration,
            **own,
        )

    def prior_coef(self, current: G, n_clusters: int, rng: np.random.Generator) -> FloatArray:
        return current.coef_mean + current.coef_scale * rng.standard_normal((n_clusters, self.layout.n_coef))

    def with_coef_prior(self, drawn: G, sums: ClusterSums, spec: ModelSpec, rng: np.random.Generator) -> G:
        """Draw (μ, δ) | w unless they are fixed; then draw the coefficients of empty clusters from the new prior.

        A fixed δ is that of the linear coefficients. Every curve learns its own.
        """
        if spec.coef_scale is not None and not self.layout.curve_groups:
            return drawn
        occupied = sums.occupied
        n_linear = self.layout.n_linear
        parts = [CoefPrior(drawn.coef_mean[:n_linear], drawn.coef_scale[:n_linear])]
        if spec.coef_scale is None:
            priors = spec.hyperpriors.for_spread(spec.target_spread)
            parts = [conjugate.draw_coef_prior(rng, drawn.coef[occupied, :n_linear], spec.coef_prior, priors)]
        for span in self.layout.curve_spans:
            parts.append(draw_curve_prior(rng, drawn.coef[occupied, span], spec.target_spread))
        mean, scale = (np.concatenate(values) for values in zip(*parts, strict=True))
        drawn = replace(drawn, coef_mean=mean, coef_scale=scale)
        from_prior = self.prior_coef(drawn, drawn.n_clusters, rng)
        return replace(drawn, coef=np.where(occupied[:, None], drawn.coef, from_prior))

    def log_coef_marginal(self, coef: FloatArray, spec: ModelSpec) -> float:
        """log p(w) of the coefficients of the occupied clusters, with their prior's μ and δ integrated out."""
        linear = coef[:, : self.layout.n_linear]
        curves = [coef[:, span] for span in self.layout.curve_spans]
        of_curves = sum(log_curve_marginal(own, spec.target_spread) for own in curves)
        if spec.coef_scale is not None:
            return log_normal(linear.size, (linear**2).sum(), spec.coef_scale) + of_curves
        priors = spec.hyperpriors.for_spread(spec.target_spread)
        return conjugate.log_coef_marginal(linear, spec.coef_prior, priors) + of_curves
