"""Bayesian regression: block, sequential and dense forms agree, and posterior and predictive have the right moments."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from fedhlcr.model.gram import NormalEquations
from fedhlcr.model.regression import (
    CoefPrior,
    coef_posterior,
    draw_coef,
    log_block_likelihood,
    log_evidence,
    predictive,
)
from fedhlcr.reference import Regression, log_sequential_likelihood
from tests.problems import entities_from


def normal_equations(X, y):
    return NormalEquations(np.float64(len(y)), X.T @ X, X.T @ y, y @ y)


@pytest.fixture(params=[0, 1, 2])
def problem(request):
    rng = np.random.default_rng(request.param)
    n_given, n_new, n_coef = [(0, 4, 3), (6, 3, 5), (20, 1, 2)][request.param]
    X = rng.normal(size=(n_given + n_new, n_coef))
    y = X @ rng.normal(size=n_coef) + rng.normal(size=n_given + n_new)
    prior = CoefPrior(rng.normal(size=n_coef), rng.uniform(0.3, 2, n_coef))
    return X[:n_given], y[:n_given], X[n_given:], y[n_given:], prior, rng.uniform(0.2, 2)


def dense_log_likelihood(X, y, prior, noise_scale):
    covariance = noise_scale**2 * np.eye(len(y)) + (X * prior.scale**2) @ X.T
    return multivariate_normal(X @ prior.mean, covariance).logpdf(y)


def test_block_equals_sequential_equals_dense(problem):
    X, y, X_new, y_new, prior, noise_scale = problem
    given = normal_equations(X, y)
    block = log_block_likelihood(normal_equations(X_new, y_new), given, noise_scale, prior)
    regression = Regression.empty(prior)
    for x_n, y_n in zip(X, y, strict=True):
        regression = regression.with_event(x_n, y_n, noise_scale)
    sequential = log_sequential_likelihood(X_new, y_new, regression, noise_scale)
    both = dense_log_likelihood(np.vstack([X, X_new]), np.append(y, y_new), prior, noise_scale)
    dense = both - (dense_log_likelihood(X, y, prior, noise_scale) if len(y) else 0.0)
    assert abs(block - dense) < 1e-10
    assert abs(sequential - dense) < 1e-10


def test_event_order_does_not_matter(problem):
    *_, X_new, y_new, prior, noise_scale = problem
    forward = log_sequential_likelihood(X_new, y_new, Regression.empty(prior), noise_scale)
    backward = log_sequential_likelihood(X_new[::-1], y_new[::-1], Regression.empty(prior), noise_scale)
    assert abs(forward - backward) < 1e-10


def test_updating_before_scoring_is_wrong(problem):
    """The paper's Algorithm 1 as printed."""
    *_, X_new, y_new, prior, noise_scale = problem
    regression, as_printed = Regression.empty(prior), 0.0
    for x_n, y_n in zip(X_new, y_new, strict=True):
        regression = regression.with_event(x_n, y_n, noise_scale)
        as_printed += regression.log_predictive(x_n, y_n, noise_scale)
    assert abs(as_printed - dense_log_likelihood(X_new, y_new, prior, noise_scale)) > 1e-2


def test_removing_an_event_undoes_it(problem):
    *_, X_new, y_new, prior, noise_scale = problem
    before = Regression.empty(prior)
    after = before.with_event(X_new[0], y_new[0], noise_scale).with_event(X_new[0], y_new[0], noise_scale, -1)
    np.testing.assert_allclose(after.H, before.H, atol=1e-10)
    np.testing.assert_allclose(after.c, before.c, atol=1e-10)


def test_predictive_variance_counts_the_noise_once(problem):
    X, y, X_new, _, prior, noise_scale = problem
    posterior = coef_posterior(normal_equations(X, y), noise_scale, prior)
    covariance = np.linalg.inv(np.diag(prior.scale**-2.0) + X.T @ X / noise_scale**2)
    mean, variance = predictive(posterior, X_new[0], noise_scale)
    assert variance == pytest.approx(noise_scale**2 + X_new[0] @ covariance @ X_new[0])
    b = prior.mean / prior.scale**2 + X.T @ y / noise_scale**2
    assert mean == pytest.approx(X_new[0] @ covariance @ b)


def test_draws_have_the_posteriors_moments(problem, rng):
    X, y, *_, prior, noise_scale = problem
    posterior = coef_posterior(normal_equations(X, y), noise_scale, prior)
    many = posterior._replace(mean=np.tile(posterior.mean, (40_000, 1)))
    draws = draw_coef(many, rng)
    covariance = posterior.covariance_root @ posterior.covariance_root.T
    np.testing.assert_allclose(draws.mean(axis=0), posterior.mean, atol=5 * np.sqrt(covariance.max() / 40_000))
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.03 * covariance.max())


def test_one_call_handles_many_clusters(rng):
    X, y = rng.normal(size=(12, 2)), rng.normal(size=12)
    entities = entities_from(X, y, None, np.arange(12) % 3)
    prior = CoefPrior(np.zeros(3), np.ones(3))
    together = log_evidence(entities.layout.normal_equations(entities.grams), 0.7, prior)
    apart = [log_evidence(entities.layout.normal_equations(gram), 0.7, prior) for gram in entities.grams]
    np.testing.assert_allclose(together, apart, rtol=1e-12)


def test_evidence_of_no_events_is_one():
    empty = NormalEquations(np.float64(0), np.zeros((2, 2)), np.zeros(2), np.float64(0))
    prior = CoefPrior(np.array([1.0, -2.0]), np.array([0.5, 3.0]))
    assert log_evidence(empty, 0.3, prior) == pytest.approx(0.0, abs=1e-12)
