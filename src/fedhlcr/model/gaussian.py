"""The likelihood of the paper: y ~ N(w_kᵀx, σ²), with one noise scale σ for all clusters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.checks import square_positive
from fedhlcr.model import conjugate
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.likelihood import GAUSSIAN, Likelihood, register
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.regression import CoefPosterior, CoefPrior, LinearGlobals, coef_posterior, draw_coef, log_normal
from fedhlcr.model.schema import GRAMS, quantity
from fedhlcr.model.sums import ClusterSums


@dataclass(frozen=True, kw_only=True)
class GaussianGlobals(LinearGlobals):
    """The globals of linear regressions, and σ."""

    noise_scale: float = quantity(possible=square_positive, broadcast=True, traced=True, in_target_units=True)


@register
class Gaussian(Likelihood[GaussianGlobals]):
    """An entity enters only through its Gram matrix M, and a cluster only through the sum of these, M_k = Σ M."""

    name: ClassVar[str] = GAUSSIAN
    globals_type = GaussianGlobals

    def score_rows(self, current: GaussianGlobals) -> FloatArray:
        """M·r_k = −RSS(w_k)/(2σ²)."""
        return self.layout.rss_vectors(current.coef) / (-2.0 * current.noise_scale**2)

    def common_scale(self, current: GaussianGlobals) -> float | None:
        """σ. A likelihood derived from this one that scores otherwise must return None."""
        return float(current.noise_scale)

    def start(self, spec: ModelSpec, n_clusters: int) -> GaussianGlobals:
        scale = spec.target_spread if spec.noise_scale is None else spec.noise_scale
        return self.start_with(spec, n_clusters, noise_scale=scale)

    def regressions(self, blocks: dict[str, FloatArray], current: GaussianGlobals) -> CoefPosterior:
        return coef_posterior(self.layout.normal_equations(blocks[GRAMS]), current.noise_scale, current.coef_prior)

    def draw(
        self,
        sums: ClusterSums,
        regressions: CoefPosterior,
        current: GaussianGlobals,
        spec: ModelSpec,
        rng: np.random.Generator,
    ) -> GaussianGlobals:
        """w | M, σ, μ, δ; then σ | w, M; then (μ, δ) | w. Empty clusters get coefficients from the new prior."""
        drawn = replace(current, coef=draw_coef(regressions, rng))
        if spec.noise_scale is None:
            prior = spec.hyperpriors.for_spread(spec.target_spread).noise_variance
            n_events = self.layout.n_events(sums.grams).sum()
            squares = self.layout.rss(sums.grams, drawn.coef).sum()
            drawn = replace(drawn, noise_scale=float(np.sqrt(conjugate.draw_variance(rng, prior, n_events, squares))))
        return self.with_coef_prior(drawn, sums, spec, rng)

    def noise_scales(self, draws: GaussianGlobals) -> FloatArray:
        """σ, the same for every cluster."""
        return np.repeat(draws.noise_scale, draws.n_clusters).reshape(-1, draws.n_clusters)

    def collapsed_terms(self, grams: FloatArray, current: GaussianGlobals) -> tuple[FloatArray, FloatArray]:
        block = np.ascontiguousarray(grams[:, self.layout.regression_block])
        block /= current.noise_scale**2
        return block, prior_precision(self.layout, current.coef_prior)

    def log_partition_likelihood(
        self, spec: ModelSpec, blocks: dict[str, FloatArray], draws: list[GaussianGlobals], coef: FloatArray
    ) -> float:
        """log p(y | w) + log p(w) − log p(w | y, z), with σ, μ and δ integrated out."""
        priors = spec.hyperpriors.for_spread(spec.target_spread)
        grams = blocks[GRAMS]
        data = self.layout.normal_equations(grams)
        n_events = float(data.n.sum())
        squares = self.layout.rss(grams, coef).sum()
        if spec.noise_scale is None:
            given_coef = float(conjugate.log_scale_marginal(n_events, squares, priors.noise_variance))
        else:
            given_coef = log_normal(n_events, squares, spec.noise_scale)
        prior = self.log_coef_marginal(coef, spec)
        posterior = [log_coef_density(coef, self.regressions(blocks, draw)) for draw in draws]
        return float(given_coef + prior - conjugate.log_mean_exp(posterior))


def prior_precision(layout: GramLayout, prior: CoefPrior) -> FloatArray:
    """Packed [[diag(1/δ²), μ/δ²], [·, Σμ²/δ²]]: the augmented precision of an empty cluster, for a collapsed sweep."""
    precision = prior.scale**-2.0
    full = np.zeros((layout.n_coef + 1, layout.n_coef + 1))
    full[:-1, :-1] = np.diag(precision)
    full[-1, :-1] = prior.mean * precision
    full[-1, -1] = (prior.mean**2 * precision).sum()
    return full[np.tril_indices(layout.n_coef + 1)]


def log_coef_density(coef: FloatArray, posterior: CoefPosterior) -> float:
    """Log density of the coefficients of all clusters, (clusters, n_coef), under normals N(mean, RRᵀ)."""
    scaled = np.linalg.solve(posterior.covariance_root, (coef - posterior.mean)[..., None])
    diagonal = np.diagonal(posterior.covariance_root, axis1=-2, axis2=-1)
    return log_normal(coef.size, (scaled**2).sum(), 1.0) - float(np.log(diagonal).sum())
