"""The Gibbs steps of effects' variances: prior, inverse Wishart, full or diagonal, and the shape of the noise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from fedhlcr.model import covariance
from fedhlcr.model.covariance import LARGEST_SHAPE, N_SHAPES, TIGHTNESSES, EffectScales

SCALES = np.array([1.0, 0.4])


def prior_variances(rng, n, degrees):
    """(n, 2) D_ff with √D_ff ~ half-t(A_f)."""
    return (SCALES * stats.t(degrees).rvs((n, 2), random_state=rng)) ** 2


def full_covariances(rng, auxiliary, tightness):
    """(n, 2, 2) inverse Wishart draws D | h by scipy, with the tightness κ: those of h = 1, rescaled."""
    unit = stats.invwishart(tightness + 1, 2.0 * tightness * np.eye(2)).rvs(len(auxiliary), random_state=rng)
    roots = np.sqrt(auxiliary)
    return roots[:, :, None] * unit * roots[:, None, :]


def prior_covariances(rng, auxiliary):
    """(n, 2, 2) D | h (n, 2), full or diagonal with probability ½ each, from scipy's laws."""
    drawn = stats.invgamma(1.0, scale=2.0 * auxiliary).rvs(random_state=rng)[:, :, None] * np.eye(2)
    tightness = np.where(rng.random(len(auxiliary)) < 0.5, rng.choice(TIGHTNESSES, len(auxiliary)), 0.0)
    for kappa in TIGHTNESSES:
        chosen = tightness == kappa
        drawn[chosen] = full_covariances(rng, auxiliary[chosen], kappa)
    return drawn


@pytest.mark.parametrize("tightness", [2.0, 32.0])
def test_the_prior_of_the_standard_deviations_is_half_t(tightness):
    """What the tests below start from: h ~ Gamma(½, 1/A²) gives half-t scales."""
    rng, n = np.random.default_rng(0), 4_000
    auxiliary = stats.gamma(0.5).rvs((n, 2), random_state=rng) * SCALES**2
    drawn = np.diagonal(full_covariances(rng, auxiliary, tightness), axis1=1, axis2=2)
    expected = prior_variances(rng, n, tightness)
    for f in range(2):
        assert stats.ks_2samp(drawn[:, f], expected[:, f]).pvalue > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("n_effects", [1, 6])
def test_draws_of_the_covariance_leave_its_prior_invariant(n_effects):
    """D from the prior, effects given D, then a draw of D given the effects: it has the prior again."""
    rng, after = np.random.default_rng(1), []
    before = prior_covariances(rng, rng.standard_gamma(0.5, (6_000, 2)) * SCALES**2)
    for old in before:
        effects = rng.standard_normal((n_effects, 2)) @ np.linalg.cholesky(old).T
        new, _ = covariance.draw_covariance(rng, old, effects.T @ effects, n_effects, SCALES)
        after.append(new)
    after = np.array(after)
    for f in range(2):
        assert stats.ks_2samp(before[:, f, f], after[:, f, f]).pvalue > 1e-3
        # paired, which sees much smaller differences
        change = np.log(after[:, f, f] / before[:, f, f])
        assert abs(change.mean()) < 4 * change.std() / np.sqrt(len(change))
    is_full = after[:, 0, 1] != 0.0
    assert abs(is_full.mean() - 0.5) < 4 * 0.5 / np.sqrt(len(after))
    correlations = [of[:, 0, 1] / np.sqrt(of[:, 0, 0] * of[:, 1, 1]) for of in (before, after)]
    assert stats.ks_2samp(correlations[0], correlations[1]).pvalue > 1e-3


@pytest.mark.parametrize("n_slopes", [0, 1, 5])
def test_draws_of_the_slopes_scale_leave_its_prior_invariant(n_slopes):
    rng, scales = np.random.default_rng(2), EffectScales(intercept=3.0, typical=0.3)
    precision = rng.standard_gamma(0.5, 30_000) / (0.5 * scales.typical**2)
    # the scale is at most that of the intercept
    precision = precision[precision >= scales.intercept**-2.0]
    auxiliary = rng.standard_gamma(0.5, (len(precision), n_slopes)) / precision[:, None]
    after = np.array([covariance.draw_scale(rng, own, scales) for own in auxiliary])
    assert after.max() <= scales.intercept
    assert stats.ks_2samp(after**-2.0, precision).pvalue > 1e-3
    if n_slopes:
        assert stats.spearmanr(after, precision).statistic < -0.3, "slopes tell something about the scale"


def test_inverse_wishart_draws_have_the_moments_and_marginals_of_scipys():
    rng, scale = np.random.default_rng(3), np.array([[2.0, 0.5, 0.1], [0.5, 1.0, -0.3], [0.1, -0.3, 50.0]])
    draws = np.array([covariance._inverse_wishart(rng, scale, 12.0) for _ in range(20_000)])
    law = stats.invwishart(12, scale)
    error = np.sqrt(draws.var(axis=0) / len(draws))
    assert (np.abs(draws.mean(axis=0) - law.mean()) < 4 * error).all()
    expected = law.rvs(20_000, random_state=rng)
    for f in range(3):
        assert stats.ks_2samp(draws[:, f, f], expected[:, f, f]).pvalue > 1e-3
    assert stats.ks_2samp(np.linalg.det(draws), np.linalg.det(expected)).pvalue > 1e-3


def test_marginals_in_one_dimension_are_integrals():
    squares, n, auxiliary = np.array([[3.7]]), 5, np.array([0.8])
    density = lambda d: np.exp(-0.5 * squares[0, 0] / d) * d ** (-0.5 * n) * stats.invgamma(1.0, scale=1.6).pdf(d)  # noqa: E731
    expected = np.log(integrate.quad(density, 0, np.inf)[0]) - 0.5 * n * np.log(2.0)
    assert covariance.log_full_marginal(squares, n, auxiliary) == pytest.approx(expected, abs=1e-6)
    assert covariance.log_diagonal_marginal(squares, n, auxiliary) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("tightness", [2.0, 8.0])
def test_odds_of_full_against_diagonal_are_ratios_of_averages_over_the_prior(tightness):
    """Two dimensions, by importance sampling: the density of the effects averaged over draws of D."""
    rng, effects, auxiliary = np.random.default_rng(4), np.array([[0.9, 0.7], [-0.5, -0.6]]), np.array([0.3, 0.2])
    squares = effects.T @ effects
    full = stats.invwishart(tightness + 1, 2.0 * tightness * np.diag(auxiliary)).rvs(200_000, random_state=rng)
    diagonal = np.zeros((200_000, 2, 2))
    for f in range(2):
        diagonal[:, f, f] = stats.invgamma(1.0, scale=2.0 * auxiliary[f]).rvs(200_000, random_state=rng)
    weights = [
        np.exp(-0.5 * (np.linalg.inv(d) * squares).sum(axis=(1, 2))) / np.linalg.det(d) for d in (full, diagonal)
    ]
    estimate = np.log(weights[0].mean() / weights[1].mean())
    error = np.sqrt(sum(w.var() / w.mean() ** 2 / len(w) for w in weights))
    full_marginal = covariance.log_full_marginal(squares, 2, auxiliary, tightness)
    exact = full_marginal - covariance.log_diagonal_marginal(squares, 2, auxiliary)
    assert abs(estimate - exact) < 4 * error
    assert error < 0.02


def test_the_shape_of_the_noise_is_drawn_from_its_conditional():
    rng, n, least = np.random.default_rng(5), 40, 6.0
    grid = np.geomspace(least, LARGEST_SHAPE, N_SHAPES)
    variances = stats.invgamma(6.0, scale=6.0 * 0.5).rvs(n, random_state=rng)
    log_density = np.array([stats.invgamma(v / 2, scale=0.5 * v / 2).logpdf(variances).sum() for v in grid])
    expected = np.exp(log_density - log_density.max())
    expected /= expected.sum()
    given = n, np.log(variances / 0.5).sum(), (0.5 / variances).sum(), least
    draws = np.array([covariance.draw_shape(rng, *given) for _ in range(4_000)])
    assert np.isin(draws.round(6), grid.round(6)).all()
    visits = np.array([(np.abs(draws - v) < 1e-6).sum() for v in grid])
    pooled = expected * len(draws) > 5
    assert (
        stats.chisquare(
            np.append(visits[pooled], visits[~pooled].sum()),
            np.append(expected[pooled], expected[~pooled].sum()) * len(draws),
        ).pvalue
        > 1e-3
    )
