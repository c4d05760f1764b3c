"""Predictions of probabilities and counts agree with quadrature and with sums over all counts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import nbinom, norm

from fedhlcr import HLCRCountRegressor
from fedhlcr.datasets import make_hlcr
from fedhlcr.kernels.responses import LOGISTIC_ERROR, logistic, mean_logistic
from fedhlcr.posterior import responses


@pytest.mark.parametrize("variance", [0.0, 1e-6, 9e-4, 1.1e-3, 0.1, 1.0, 4.0, 30.0, 1e4])
@pytest.mark.parametrize("mean", [0.0, 0.3, -1.7, 4.0, -9.0, 40.0])
def test_mean_logistic(mean, variance):
    spread = np.sqrt(variance)
    expected = expit(mean)
    if variance > 0.0:
        points = [-mean / spread] if abs(mean) < 9.0 * spread else None
        expected = quad(lambda z: expit(mean + spread * z) * norm.pdf(z), -10.0, 10.0, points=points, epsabs=1e-11)[0]
    assert mean_logistic(mean, variance) == pytest.approx(expected, abs=LOGISTIC_ERROR)


def test_logistic_does_not_overflow():
    values = np.array([-1e4, -700.0, -1.0, 0.0, 2.0, 800.0])
    np.testing.assert_allclose([logistic(value) for value in values], expit(values), rtol=1e-14)


@pytest.fixture(scope="module")
def law():
    """Points of the laws of some rows, whose counts are small enough to sum over."""
    rng = np.random.default_rng(2)
    return responses._Points(rng.normal(0.5, 0.7, size=(6, 50)), rng.normal(0.3, 1.0, size=(6, 50)))


def brute_probabilities(law, most=4000):
    """(rows, counts) the probability of every count."""
    mean, size = np.exp(law.log_means), law.sizes(slice(None))
    counts = np.arange(most)[:, None, None]
    return nbinom.pmf(counts, size, size / (size + mean)).mean(axis=2).T


def test_count_quantiles_are_those_of_sums_over_counts(law):
    below = brute_probabilities(law).cumsum(axis=1)
    mean = np.exp(law.log_means).mean(axis=1)
    for level in (0.01, 0.05, 0.5, 0.9, 0.999):
        found = responses._smallest(law.at_most(slice(None)), np.full(len(mean), level), mean)
        np.testing.assert_array_equal(found, (below < level).sum(axis=1))


def test_counts_of_a_fitted_model():
    """Mean, spread, log density and interval against sums over the probabilities of all counts."""
    table, _ = make_hlcr(12, 4, 6, 1, 2, target="count", random_state=1)
    ids = {"agent": table.agent[:12], "entity": table.entity[:12]}
    model = HLCRCountRegressor(n_sweeps=60, n_draws=30).fit(table.X, table.y, table.agent, table.entity)
    X, counts = table.X[:12], np.arange(600)
    probabilities = np.exp([model.log_density(X, np.full(12, float(y)), **ids) for y in counts]).T
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-3)
    moments = model.predict_moments(X, **ids)
    mean = probabilities @ counts
    # densities average over N_POINTS points, means over the whole mixture
    np.testing.assert_allclose(moments.mean, mean, rtol=0.05)
    np.testing.assert_allclose(moments.std, np.sqrt(probabilities @ counts**2 - mean**2), rtol=0.15)
    below = np.column_stack([np.zeros(12), probabilities.cumsum(axis=1)])
    lower, upper = (end.astype(int) for end in model.predict_interval(X, **ids, level=0.8))
    rows = np.arange(12)
    held = below[rows, upper + 1] - below[rows, lower]
    assert (below[rows, lower] <= 0.1 + 1e-9).all()
    # one count more or less would not be nearer
    for other in (upper + 1, np.maximum(upper - 1, lower)):
        assert (np.abs(held - 0.8) <= np.abs(below[rows, other + 1] - below[rows, lower] - 0.8) + 1e-9).all()


@pytest.mark.parametrize(("mean", "variance"), [(-12.0, 1.0), (-20.0, 1.0), (-30.0, 1.0), (-30.0, 25.0), (-20.0, 1e-4)])
def test_small_probabilities_keep_their_size(mean, variance):
    spread = np.sqrt(variance)
    edges = {"points": [spread], "epsabs": 0.0, "limit": 500}
    expected = quad(lambda z: expit(mean + spread * z) * norm.pdf(z), -30.0, 30.0, **edges)[0]
    assert mean_logistic(mean, variance) == pytest.approx(expected, rel=0.1)
    # the other class is nearly certain, and never quite
    assert 0.0 < 1.0 - mean_logistic(-mean, variance) < 1e-4


def test_a_probability_is_never_zero_or_one():
    assert 0.0 < mean_logistic(-1e6, 1.0) < 1e-14
    assert 1.0 - 1e-14 < mean_logistic(1e6, 0.0) < 1.0
