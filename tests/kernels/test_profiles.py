"""Predictions with effects equal dense conditioning of normal laws, and those of events really left out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

from fedhlcr.kernels import profiles as kernels
from fedhlcr.model.arguments import ProfileData
from fedhlcr.model.gram import GramLayout
from tests.effects_problems import LIKELIHOODS, globals_with, random_covariance, random_events

S, K, P, N = 11, 3, 6, 4


class Setting:
    """P profiles with N events each, S draws and K clusters. Profile 4 has a new agent, profile 5 is a new entity."""

    def __init__(self, n_features, *, fit_intercept=True, rank=None):
        rng, layout = np.random.default_rng(n_features), GramLayout(n_features, fit_intercept)
        events = random_events(rng, (P,), N, n_features)
        self.design, self.y = events.design(layout), rng.normal(size=(P, N))
        n_coef, likelihood = layout.n_coef, LIKELIHOODS["entity"](layout)
        self.draws = globals_with(
            likelihood,
            K,
            coef=rng.normal(size=(S, K, n_coef)),
            effect_covariance=np.array([random_covariance(rng, n_coef, rank) for _ in range(S)]),
            agent_effect_scale=rng.uniform(0.1, 0.5, (S, n_coef)),
            noise_scale=rng.uniform(0.5, 1, S),
            noise_shape=np.full(S, 8.0),
            noise_unit=rng.uniform(0.5, 2, S),
        )
        self.is_known, self.is_known_agent = np.arange(P) != 5, np.arange(P) != 4
        grams = np.where(self.is_known[:, None], events.grams(layout, self.y), 0.0)
        agent_effects = rng.normal(size=(P, S, n_coef)) * self.is_known_agent[:, None, None]
        self.agent_state = {"variance": rng.uniform(0.3, 2, (P, S)), "agent_effects": agent_effects}
        of_known = self.agent_state["variance"] * self.draws.noise_unit**2
        self.variance = np.where(self.is_known[:, None], of_known, likelihood.new_variances(self.draws))
        data = ProfileData(grams, self.is_known, self.is_known_agent, self.agent_state)
        prior = rng.dirichlet(np.ones(K), size=(P, S))
        self.log_joint = np.array(
            [[[self.log_density(p, s, k, slice(None)) for k in range(K)] for s in range(S)] for p in range(P)]
        ) + np.log(prior)
        self.log_prior = np.log(prior)
        self.weights = np.exp(self.log_joint - logsumexp(self.log_joint, axis=2, keepdims=True))
        self.mixture = likelihood.mixture(self.draws, self.weights, data)

    def prior_of(self, p, s, k):
        """Mean and covariance of the profile's coefficients before its events."""
        covariance = self.draws.effect_covariance[s].copy()
        if not self.is_known_agent[p]:
            covariance += np.diag(self.draws.agent_effect_scale[s] ** 2)
        return self.draws.coef[s, k] + self.agent_state["agent_effects"][p, s], covariance

    def log_density(self, p, s, k, rows) -> float:
        """log p(y of the given rows | cluster k), in draw s."""
        (mean, covariance), x, y = self.prior_of(p, s, k), self.design[p][rows], self.y[p][rows]
        if not self.is_known[p] or not len(y):
            return 0.0
        total = self.variance[p, s] * np.eye(len(y)) + x @ covariance @ x.T
        return float(multivariate_normal.logpdf(y, x @ mean, total))

    def posterior_of(self, p, s, k):
        """The same after its events."""
        mean, covariance = self.prior_of(p, s, k)
        if not self.is_known[p]:
            return mean, covariance
        x = self.design[p]
        gain = covariance @ x.T @ np.linalg.inv(self.variance[p, s] * np.eye(N) + x @ covariance @ x.T)
        return mean + gain @ (self.y[p] - x @ mean), covariance - gain @ x @ covariance

    def components(self, p):
        """Weights, means and covariances of a profile's mixture over draws and clusters."""
        laws = [self.posterior_of(p, s, k) for s in range(S) for k in range(K)]
        return self.weights[p].ravel() / S, np.array([m for m, _ in laws]), np.array([v for _, v in laws])


CASES = [(1, True, None), (2, False, None), (3, True, 2), (5, True, None), (2, True, 0)]


@pytest.fixture(params=CASES, ids=str)
def setting(request):
    n_features, fit_intercept, rank = request.param
    return Setting(n_features, fit_intercept=fit_intercept, rank=rank)


def test_coefficients_of_a_profile_are_conditioned_on_its_events(setting):
    n_coef = setting.design.shape[2]
    mean, covariance = np.empty((P, n_coef)), np.empty((P, n_coef, n_coef))
    kernels.coef_moments(setting.mixture, mean, covariance, 0, P)
    for p in range(P):
        weights, means, covariances = setting.components(p)
        expected = weights @ means
        apart = means - expected
        spread = np.einsum("c,cij->ij", weights, covariances + apart[:, :, None] * apart[:, None, :])
        np.testing.assert_allclose(mean[p], expected, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(covariance[p], spread, rtol=1e-9, atol=1e-10)


def test_predictions_are_mixtures_of_dense_conditionals(setting):
    rng, n_coef = np.random.default_rng(0), setting.design.shape[2]
    design, target = rng.normal(size=(2 * P, n_coef)), rng.normal(size=2 * P)
    row_start, levels = np.arange(0, 2 * P + 1, 2), np.array([0.05, 0.5, 0.9])
    log_density, mean, std = (np.empty(2 * P) for _ in range(3))
    quantiles = np.empty((2 * P, 3))
    kernels.own_log_density_rows(setting.mixture, design, row_start, target, log_density, 0, P)
    kernels.own_mixture_rows(setting.mixture, design, row_start, levels, norm.ppf(levels), mean, std, quantiles, 0, P)
    for row, x in enumerate(design):
        p = row // 2
        weights, means, covariances = setting.components(p)
        centre = means @ x
        scale = np.sqrt(np.repeat(setting.variance[p], K) + np.einsum("i,cij,j->c", x, covariances, x))
        expected = logsumexp(norm.logpdf(target[row], centre, scale), b=weights)
        assert log_density[row] == pytest.approx(expected, rel=1e-9, abs=1e-9)
        assert mean[row] == pytest.approx(weights @ centre, rel=1e-9, abs=1e-9)
        spread = weights @ (scale**2 + (centre - mean[row]) ** 2)
        assert std[row] == pytest.approx(np.sqrt(spread), rel=1e-9)
        for level, quantile in zip(levels, quantiles[row], strict=True):
            assert weights @ norm.cdf(quantile, centre, scale) == pytest.approx(level, abs=1e-6)


def test_events_left_out_have_the_densities_of_a_profile_without_them(setting):
    """p(y_n | other events) = p(all events) / p(other events) in each draw, summed over clusters."""
    known = np.arange(5)
    n_coef, row_start = setting.design.shape[2], np.append(np.arange(0, 5 * N + 1, N), 5 * N)
    density, mean = np.empty((5 * N, S)), np.empty((5 * N, S))
    design, target = setting.design[known].reshape(-1, n_coef), setting.y[known].ravel()
    kernels.own_left_out_rows(setting.mixture, design, row_start, target, density, mean, 0, 5)
    for p in known:
        for n in range(N):
            others = np.arange(N) != n
            for s in range(S):
                rest = [setting.log_density(p, s, k, others) + setting.log_prior[p, s, k] for k in range(K)]
                expected = logsumexp(setting.log_joint[p, s]) - logsumexp(rest)
                assert density[p * N + n, s] == pytest.approx(expected, rel=1e-8, abs=1e-8)
