"""Predictions of probabilities and counts agree with quadrature and with sums over all counts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import expit, logsumexp, ndtr
from scipy.stats import nbinom, norm

from fedhlcr import HLCRCountRegressor
from fedhlcr.datasets import make_hlcr
from fedhlcr.kernels import count_laws, steps
from fedhlcr.kernels.responses import LOGISTIC_ERROR, count_moments, logistic, mean_logistic, mean_probability
from fedhlcr.model.counts import bounded_size
from fedhlcr.posterior import responses
from fedhlcr.posterior.responses import interval_ends


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


def exact_quantile(means, scales, weights, level):
    """Where the distribution function of a mixture is `level`, by bisection.

    Whole weights and tails are added without rounding errors, so that this also holds where the function is flat.
    """

    def excess(x):
        z = (x - means) / scales
        is_below = z > 0.0
        tails = weights * ndtr(-np.abs(z))
        return math.fsum([*weights[is_below], *-tails[is_below], *tails[~is_below], -level])

    ends = (means - 40.0 * scales).min(), (means + 40.0 * scales).max()
    return brentq(excess, *ends, xtol=1e-14, rtol=1e-15, maxiter=1000)


def found_quantiles(means, scales, weights, levels):
    n, centre = len(means), weights @ means
    spread = np.sqrt(weights @ (scales**2 + (means - centre) ** 2))
    fixed, out = np.empty(n, dtype=np.int64), np.empty((1, len(levels)))
    steps.fix_weights(weights, fixed)
    scratch = np.empty((3, n)), np.empty(n, dtype=np.int64)
    steps.step_quantiles(
        means, scales, weights, fixed, levels, centre + spread * norm.ppf(levels), spread, *scratch, out, 0
    )
    return out[0]


def equal_weights(rng, n):
    """Sums of these are often levels: quantiles lie in gaps between components."""
    return np.full(n, 1.0 / n)


def nearly_equal_weights(rng, n):
    weights = 1.0 + 1e-9 * rng.normal(size=n)
    return weights / weights.sum()


def uneven_weights(rng, n):
    return rng.dirichlet(np.full(n, 0.1)) + 1e-17


@pytest.mark.parametrize("weigh", [equal_weights, nearly_equal_weights, uneven_weights])
@pytest.mark.parametrize("log_scales", [(-9.2, -9.2), (-9.0, 1.0), (-1.0, 0.0)], ids=str)
def test_quantiles_are_those_of_bisection(weigh, log_scales):
    """Also on staircases, in the gaps between their steps, and where narrow and wide components mix."""
    rng, levels = np.random.default_rng(4), np.array([0.05, 0.1, 0.5, 0.9, 0.95, 0.999])
    for _ in range(20):
        means, scales = rng.normal(size=100), np.exp(rng.uniform(*log_scales, size=100))
        weights = weigh(rng, 100)
        expected = [exact_quantile(means, scales, weights, level - steps.ROUNDING) for level in levels]
        np.testing.assert_allclose(found_quantiles(means, scales, weights, levels), expected, rtol=0, atol=1e-11)


def test_rounding_of_weights_does_not_move_quantiles_across_gaps():
    """The weights of five of a hundred draws may sum to a little less or more than 5 %."""
    rng, levels = np.random.default_rng(5), np.array([0.5 - 0.9 / 2, 0.05, 0.1, 0.9, 0.95])
    means, scales = np.sort(rng.normal(size=100)), np.full(100, 1e-4)
    for shift in (0.0, -1e-16, 1e-16):
        found = found_quantiles(means, scales, np.full(100, 0.01) * (1.0 + shift), levels)
        nearest = [np.abs(means - x).argmin() for x in found]
        assert nearest == [4, 4, 9, 89, 94]


def test_a_mistake_of_a_hundred_millionth_is_noticed():
    """The bound of the tests above is finer than 1e-8."""
    rng = np.random.default_rng(6)
    means, scales, weights = rng.normal(size=50), np.full(50, 1e-4), rng.dirichlet(np.ones(50))
    found = found_quantiles(means, scales, weights, np.array([0.3]))[0]
    assert abs(found + 1e-8 - exact_quantile(means, scales, weights, 0.3)) > 1e-11


@pytest.mark.parametrize("log_variances", [(-18.0, -18.0), (-2.0, 3.0), (-18.0, 1.0)], ids=str)
def test_mean_probability_is_that_of_single_components(log_variances):
    rng = np.random.default_rng(1)
    variance, draw = np.exp(rng.uniform(*log_variances, size=30)), np.repeat(np.arange(30), 4)
    means, weights = rng.normal(0.0, 6.0, size=120), rng.dirichlet(np.ones(120))
    means[:3] = 900.0, -900.0, 0.0
    scratch = np.empty((5, 30)), np.empty(120)
    expected = sum(weights[c] * mean_logistic(means[c], variance[draw[c]]) for c in range(120))
    found = mean_probability(means, weights, variance, draw, *scratch)
    assert found == pytest.approx(expected, rel=1e-12)


def test_rare_classes_keep_their_digits():
    """All components far below 0, where probabilities are tails of normal laws."""
    rng = np.random.default_rng(2)
    means, weights, variance = rng.uniform(-20.0, -8.0, 60), rng.dirichlet(np.ones(60)), rng.uniform(1e-4, 2.0, 60)
    scratch = np.empty((5, 60)), np.empty(60)
    expected = sum(w * mean_logistic(m, v) for w, m, v in zip(weights, means, variance, strict=True))
    assert mean_probability(means, weights, variance, np.arange(60), *scratch) == pytest.approx(expected, rel=1e-11)


def random_laws(log_mean=0.5, n_rows=6, shift=0.0):
    """Points of the laws of some rows."""
    rng = np.random.default_rng(2)
    log_means = rng.normal(log_mean, 0.7, size=(n_rows, 50))
    return responses.CountLaws.of(log_means, rng.normal(0.3 + shift, 1.0, size=(n_rows, 50)))


@pytest.fixture(scope="module")
def law():
    """With counts that are small enough to sum over."""
    return random_laws()


def brute_probabilities(law, most=4000):
    """(rows, counts) the probability of every count."""
    counts = np.arange(most)[:, None, None]
    return nbinom.pmf(counts, law.sizes, law.sizes / (law.sizes + law.means)).mean(axis=2).T


def test_sizes_are_bounded(law):
    rng = np.random.default_rng(2)
    log_means, log_sizes = rng.normal(0.5, 0.7, size=(6, 50)), rng.normal(0.3, 1.0, size=(6, 50))
    np.testing.assert_allclose(law.means, np.exp(log_means), rtol=1e-15)
    np.testing.assert_allclose(law.sizes, bounded_size(np.exp(log_sizes), law.means), rtol=1e-14)


LEVELS = (0.01, 0.05, 0.5, 0.9, 0.999)


def test_count_quantiles_are_those_of_sums_over_counts(law):
    below = brute_probabilities(law).cumsum(axis=1)
    found = np.empty((6, len(LEVELS)))
    count_laws.count_quantiles(law.means, law.sizes, np.array(LEVELS), found)
    for q, level in enumerate(LEVELS):
        np.testing.assert_array_equal(found[:, q], (below < level).sum(axis=1))
        np.testing.assert_array_equal(responses._smallest(law, np.full(6, level)), found[:, q])


@pytest.mark.parametrize("shift", [0.0, -3.0, 8.0])
@pytest.mark.parametrize("log_mean", [-6.0, -1.0, 1.0, 3.0, 5.0])
def test_count_intervals_are_those_of_searches(log_mean, shift):
    """The kernel sums probabilities; `_large_interval` searches with the incomplete beta function."""
    laws = random_laws(log_mean, 20, shift)
    lower, upper = np.empty(20), np.empty(20)
    for level in (0.5, 0.8, 0.9, 0.99):
        count_laws.count_intervals(laws.means, laws.sizes, level, interval_ends(level)[0], lower, upper)
        found = lower != count_laws.NOT_FOUND
        assert found.all() or log_mean == 5.0
        np.testing.assert_array_equal((lower, upper), np.where(found, responses._large_interval(laws, level), -1.0))


@pytest.mark.parametrize("log_mean", [9.0, 20.0, 34.0, 60.0, 290.0])
def test_large_counts_are_left_to_searches(log_mean):
    """Their quantiles are right: the probability up to them is the level. Beyond 2^53 not all whole numbers exist."""
    laws = random_laws(log_mean)
    found = np.empty((6, 2))
    count_laws.count_quantiles(laws.means, laws.sizes, np.array([0.1, 0.9]), found)
    assert (found == count_laws.NOT_FOUND).all()
    for level in (0.1, 0.9):
        numbers = responses._smallest(laws, np.full(6, level))
        np.testing.assert_allclose(laws.at_most(numbers), level, atol=1e-3)
        assert (laws.at_most(numbers) >= level).all()
        assert (laws.at_most(np.floor(numbers * (1.0 - 1e-15) - 1.0)) < level).all()


@pytest.mark.parametrize("shift", [0.0, -8.0, 12.0])
def test_count_log_densities_are_those_of_scipy(shift):
    for log_mean in (-12.0, -2.0, 1.0, 4.0, 7.0):
        laws = random_laws(log_mean, 8, shift)
        target, found = np.array([0.0, 1.0, 2.0, 7.0, 30.0, 200.0, 1500.0, 40.0]), np.empty(8)
        count_laws.count_log_densities(laws.log_means, laws.means, laws.sizes, target, found)
        terms = nbinom.logpmf(target[:, None], laws.sizes, laws.sizes / (laws.sizes + laws.means))
        expected = logsumexp(terms, axis=1) - np.log(terms.shape[1])
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_count_moments_are_those_of_log_normal_means():
    rng = np.random.default_rng(3)
    variance, draw = rng.uniform(0.0, 1.0, 20), np.repeat(np.arange(20), 3)
    means, weights, spread = rng.normal(size=60), rng.dirichlet(np.ones(60)), rng.uniform(1.0, 3.0, 20)
    for offset in (-30.0, 0.0, 60.0, 149.0, 300.0):
        factors = np.array([spread, spread * np.exp(variance)])
        found = count_moments(means, offset, weights, variance, draw, factors, np.empty(60))
        log_mean, v = means + offset, variance[draw]
        expected = (
            weights @ np.exp(np.minimum(log_mean + 0.5 * v, 300.0)),
            (weights * spread[draw]) @ np.exp(np.minimum(2.0 * log_mean + 2.0 * v, 300.0)),
        )
        np.testing.assert_allclose(found, expected, rtol=1e-11)


@pytest.mark.slow
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
