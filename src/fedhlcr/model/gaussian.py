"""The paper's likelihood: y ~ N(w_kᵀx, σ²), one noise scale σ for all, w_k ~ N(μ, diag(δ²))."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr.kernels.mixtures import Mixture
from fedhlcr.model import conjugate
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.likelihood import GAUSSIAN, CollapsedTerms, Likelihood, register
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.regression import LOG_2PI, CoefPosterior, CoefPrior, coef_posterior, draw_coef
from fedhlcr.model.schema import COEF, GRAMS, Globals, quantity
from fedhlcr.model.sums import ClusterSums
from fedhlcr.storage.reader import finite, positive, square_positive


@dataclass(frozen=True, kw_only=True)
class GaussianGlobals(Globals):
    """Besides coefficients and the labels' prior: σ, and the coefficients' prior mean μ and scale δ."""

    noise_scale: float = quantity(possible=square_positive, broadcast=True, traced=True, in_target_units=True)
    coef_mean: FloatArray = quantity(COEF, possible=finite)
    coef_scale: FloatArray = quantity(COEF, possible=positive)

    @property
    def coef_prior(self) -> CoefPrior:
        return CoefPrior(self.coef_mean, self.coef_scale)


@register
class Gaussian(Likelihood[GaussianGlobals]):
    """Everything depends on an entity through its Gram matrix M, and on a cluster through M_k = Σ M."""

    name: ClassVar[str] = GAUSSIAN
    globals_type = GaussianGlobals

    def score_rows(self, given: GaussianGlobals) -> FloatArray:
        """M·r_k = −RSS(w_k)/(2σ²)."""
        return self.layout.rss_vectors(given.coef) / (-2.0 * given.noise_scale**2)

    def start(self, spec: ModelSpec, n_clusters: int) -> GaussianGlobals:
        n_coef = self.layout.n_coef
        scale = spec.coef_scale if spec.coef_scale is not None else spec.target_spread * n_coef**-0.5
        return GaussianGlobals(
            coef=np.zeros((n_clusters, n_coef)),
            log_weights=np.full(n_clusters, -np.log(n_clusters)),
            noise_scale=spec.target_spread if spec.noise_scale is None else spec.noise_scale,
            coef_mean=np.zeros(n_coef),
            coef_scale=np.full(n_coef, float(scale)),
            global_concentration=1.0 if spec.global_concentration is None else spec.global_concentration,
            agent_concentration=1.0 if spec.agent_concentration is None else spec.agent_concentration,
        )

    def prior_coef(self, given: GaussianGlobals, n_clusters: int, rng: np.random.Generator) -> FloatArray:
        return given.coef_mean + given.coef_scale * rng.standard_normal((n_clusters, self.layout.n_coef))

    def regressions(self, blocks: dict[str, FloatArray], given: GaussianGlobals) -> CoefPosterior:
        return coef_posterior(self.layout.normal_equations(blocks[GRAMS]), given.noise_scale, given.coef_prior)

    def draw(
        self,
        sums: ClusterSums,
        regressions: CoefPosterior,
        current: GaussianGlobals,
        spec: ModelSpec,
        rng: np.random.Generator,
    ) -> GaussianGlobals:
        """w | M, σ, μ, δ; then σ | w, M; then (μ, δ) | w. Empty clusters get coefficients from the new prior."""
        priors = spec.hyperpriors.for_spread(spec.target_spread)
        drawn = replace(current, coef=draw_coef(regressions, rng))
        if spec.noise_scale is None:
            n_events, squares = self.layout.n_events(sums.grams).sum(), self.layout.rss(sums.grams, drawn.coef).sum()
            variance = conjugate.draw_variance(rng, priors.noise_variance, n_events, squares)
            drawn = replace(drawn, noise_scale=float(np.sqrt(variance)))
        if spec.coef_scale is None:
            occupied = sums.occupied
            prior = conjugate.draw_coef_prior(rng, drawn.coef[occupied], spec.coef_prior, priors)
            drawn = replace(drawn, coef_mean=prior.mean, coef_scale=prior.scale)
            afresh = self.prior_coef(drawn, drawn.n_clusters, rng)
            drawn = replace(drawn, coef=np.where(occupied[:, None], drawn.coef, afresh))
        return drawn

    def mixture(self, draws: GaussianGlobals, weights: FloatArray) -> Mixture:
        n_draws, n_clusters, n_coef = draws.coef.shape
        flat = weights.reshape(len(weights), -1) / n_draws
        return Mixture(flat, draws.coef.reshape(-1, n_coef), np.repeat(draws.noise_scale, n_clusters))

    def collapsed_terms(self, grams: FloatArray, given: GaussianGlobals) -> CollapsedTerms:
        block = np.ascontiguousarray(grams[:, self.layout.regression_block])
        block /= given.noise_scale**2
        return CollapsedTerms(block, prior_precision(self.layout, given.coef_prior))

    def log_partition_likelihood(
        self, spec: ModelSpec, blocks: dict[str, FloatArray], draws: list[GaussianGlobals], coef: FloatArray
    ) -> float:
        """log p(y | w) + log p(w) − log p(w | y, z), σ, μ and δ integrated out."""
        priors = spec.hyperpriors.for_spread(spec.target_spread)
        grams = blocks[GRAMS]
        data = self.layout.normal_equations(grams)
        n_events, squares = float(data.n.sum()), self.layout.rss(grams, coef).sum()
        if spec.noise_scale is None:
            given_coef = float(conjugate.log_scale_marginal(n_events, squares, priors.noise_variance))
        else:
            given_coef = log_normal(n_events, squares, spec.noise_scale)
        if spec.coef_scale is None:
            prior = conjugate.log_coef_marginal(coef, spec.coef_prior, priors)
        else:
            prior = log_normal(coef.size, (coef**2).sum(), spec.coef_scale)
        posterior = [log_coef_density(coef, self.regressions(blocks, draw)) for draw in draws]
        return float(given_coef + prior - conjugate.log_mean_exp(posterior))


def prior_precision(layout: GramLayout, prior: CoefPrior) -> FloatArray:
    """Packed [[diag(1/δ²), μ/δ²], [·, Σμ²/δ²]]: an empty cluster as the collapsed kernel wants it."""
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


def log_normal(n: float, squares: float, scale: float) -> float:
    """Log density of n centred normal values with the given sum of squares."""
    return float(-0.5 * n * (LOG_2PI + 2.0 * np.log(scale)) - 0.5 * squares / scale**2)
