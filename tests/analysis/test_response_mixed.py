"""The mixed model of classes and counts: its laws and bound by brute force, its gradient, and lme4's answers."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from scipy.stats import nbinom, norm

from fedhlcr.analysis.response_laws import NormalLaws, Responses, find_laws, find_modes
from fedhlcr.analysis.response_mixed import BoundLikelihood, ResponseMixedModel, pooled_regression, random_columns
from tests.lme4 import require_lme4

KINDS = ["class", "count"]


def make(kind, n_entities=60, most_events=9, seed=0, scales=(0.8, 0.5, 0.3), size=2.0):
    """Events of entities with random intercepts and slopes; counts have exposures."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, most_events + 1, n_entities)
    entity = np.repeat(np.arange(n_entities), sizes)
    design = np.column_stack([np.ones(len(entity)), rng.normal(size=(len(entity), 2))])
    coef = np.array([0.3, 0.5, -0.5]) + rng.normal(size=(n_entities, 3)) * scales
    offset = rng.normal(size=len(entity)) * 0.3 if kind == "count" else np.zeros(len(entity))
    linear = (design * coef[entity]).sum(axis=1) + offset
    if kind == "class":
        y = (rng.random(len(linear)) < expit(linear)).astype(float)
    else:
        y = rng.negative_binomial(size, size / (size + np.exp(linear))).astype(float)
    start = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return Responses(design.T.copy(), y, np.ones(len(y)), offset, start, None if kind == "class" else 0.5)


def log_density(events, linear, rows=slice(None)):
    """(…, events) by the definition of the laws."""
    y = events.y[rows]
    if events.log_size is None:
        return np.where(y == 1.0, log_expit(linear), log_expit(-linear))
    size = np.exp(events.log_size)
    return nbinom.logpmf(y, size, size / (size + np.exp(linear)))


def only_intercepts(events):
    """The same events without features."""
    return replace(events, columns=events.columns[:1])


@pytest.mark.parametrize("kind", KINDS)
def test_law_of_one_group_is_the_normal_law_of_the_highest_bound(kind):
    """The oracle integrates over a fine grid and lets scipy search for mean and scale."""
    events = only_intercepts(make(kind, n_entities=1, seed=3))
    grid = np.linspace(-8.0, 8.0, 2001)

    def bound(mean, scale):
        beta = mean + scale * grid
        own = log_density(events, events.offset + beta[:, None]).sum(axis=1)
        inside = own + norm.logpdf(beta, 0.0, 1.5**0.5) - norm.logpdf(beta, mean, scale)
        return np.trapezoid(inside * norm.pdf(grid), grid)

    best = minimize(lambda at: -bound(at[0], np.exp(at[1])), [0.0, 0.0], method="Nelder-Mead", tol=1e-10)
    laws, found = find_laws(events, np.array([1.0 / 1.5]), NormalLaws.standard(1, 1))
    assert found[0] + events.constant().sum() == pytest.approx(-best.fun, abs=1e-6)
    assert laws.mean[0, 0] == pytest.approx(best.x[0], abs=1e-3)
    assert np.sqrt(laws.covariance[0, 0, 0]) == pytest.approx(np.exp(best.x[1]), abs=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_modes_are_penalised_regressions(kind):
    events, prior = make(kind, n_entities=12), np.array([0.3, 2.0, 0.7])
    modes, value = find_modes(events, prior, NormalLaws.standard(12, 3))
    for group, (first, last) in enumerate(zip(events.start, [*events.start[1:], len(events.y)], strict=True)):
        rows = slice(first, last)

        def loss(beta, rows=rows):
            linear = events.offset[rows] + beta @ events.columns[:, rows]
            return 0.5 * beta**2 @ prior - log_density(events, linear, rows).sum()

        best = minimize(loss, np.zeros(3), tol=1e-10)
        np.testing.assert_allclose(modes.mean[group], best.x, atol=1e-3)
        assert value[group] + events.constant()[rows].sum() == pytest.approx(-best.fun, abs=1e-6)


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("random", [[0, 1, 2], [0, 2]])
@pytest.mark.parametrize("kind", KINDS)
def test_gradient_is_that_of_the_bound(kind, random, diagonal):
    rng = np.random.default_rng(5)
    events = make(kind, n_entities=30)
    events = replace(events, weight=rng.integers(1, 3, len(events.y)).astype(float))
    likelihood = BoundLikelihood(events, np.array(random), diagonal=diagonal)
    at = likelihood.first(pooled_regression(events))
    at = at + 0.1 * rng.normal(size=len(at))
    _, gradient = likelihood(at)
    steps = 1e-4 * np.eye(len(at))
    numeric = [(likelihood(at + step)[0] - likelihood(at - step)[0]) / 2e-4 for step in steps]
    np.testing.assert_allclose(gradient, numeric, atol=2e-5)


def exact_log_likelihood(events, fixed, scale):
    """Of a model with random intercepts only, by quadrature with 101 points around 0."""
    points, weights = np.polynomial.hermite_e.hermegauss(101)
    linear = events.offset + fixed @ events.columns
    own = events.sum_groups(log_density(events, linear + scale * points[:, None]))
    return float(np.log(weights / weights.sum() @ np.exp(own)).sum())


@pytest.mark.parametrize("kind", KINDS)
def test_random_intercepts_are_near_the_exact_maximum_of_the_likelihood(kind):
    """Features are constant within entities, so that only intercepts are random."""
    events = make(kind, n_entities=150, seed=7, scales=(1.0, 0.0, 0.0))
    constant = events.columns[:, events.start[events.owner]].copy()
    events = replace(events, columns=constant)
    model = ResponseMixedModel.fit(events, tolerance=1e-10)
    np.testing.assert_array_equal(model.random, [0])

    def loss(at):
        own = events if kind == "class" else replace(events, log_size=at[4])
        return -exact_log_likelihood(own, at[:3], np.exp(at[3]))

    first = np.append(model.fixed, np.log(model.factor[0, 0]))
    first = first if kind == "class" else np.append(first, model.log_size)
    best = minimize(loss, first, method="L-BFGS-B")
    at_ours = -loss(first)
    assert model.log_likelihood <= at_ours + 1e-6, "it is a bound"
    assert model.log_likelihood >= at_ours - 0.02 * len(events.start), "and a close one"
    assert at_ours >= -best.fun - 1.0
    np.testing.assert_allclose(model.fixed, best.x[:3], atol=0.06)
    assert model.factor[0, 0] == pytest.approx(np.exp(best.x[3]), rel=0.12)


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_are_near_the_exact_posterior_means(kind):
    events = only_intercepts(make(kind, n_entities=25, seed=2))
    model = ResponseMixedModel(np.array([0.2]), np.array([[0.9]]), np.array([0]), events.log_size, 0.0)
    law = model.law(events)
    ends = [*events.start[1:], len(events.y)]
    for group, (first, last) in enumerate(zip(events.start, ends, strict=True)):
        rows = slice(first, last)

        def weigh(u, rows=rows):
            own = log_density(events, events.offset[rows] + 0.2 + 0.9 * u, rows).sum()
            return np.exp(own) * norm.pdf(u)

        norms, mean = (
            quad(lambda u, k=k, weigh=weigh: weigh(u) * (0.2 + 0.9 * u) ** k, -9, 9, points=[0.0], epsabs=0)[0]
            for k in (0, 1)
        )
        assert law.mean[group, 0] == pytest.approx(mean / norms, abs=0.02)


def test_features_that_are_constant_within_entities_have_no_slopes_of_their_own():
    events = make("class")
    columns = events.columns.copy()
    columns[1] = columns[1][events.start[events.owner]]
    np.testing.assert_array_equal(random_columns(replace(events, columns=columns), np.ones(3)), [0, 2])


@pytest.mark.parametrize(("n_ones", "columns"), [(300, [0, 1, 2]), (29, [0, 2]), (19, [0]), (0, [0])])
def test_rare_classes_have_few_random_slopes(n_ones, columns):
    """The feature with the larger slope comes first."""
    events = make("class", n_entities=150)
    y = (np.arange(len(events.y)) < n_ones).astype(float)
    pooled = np.array([-5.0, 0.1, -0.3])
    np.testing.assert_array_equal(random_columns(replace(events, y=y), pooled), columns)
    np.testing.assert_array_equal(random_columns(replace(events, y=1.0 - y), pooled), columns)


def test_many_features_have_slopes_for_some_of_them():
    events = make("count", n_entities=100)
    columns = np.vstack([events.columns, np.random.default_rng(0).normal(size=(30, len(events.y)))])
    model = ResponseMixedModel.fit(replace(events, columns=columns), diagonal=True)
    assert len(model.random) == 12
    assert {0, 1, 2} <= set(model.random.tolist())
    assert np.count_nonzero(model.fixed) == 33


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_repeated_events(kind):
    events = make(kind)
    twice = np.random.default_rng(1).integers(1, 4, len(events.y))
    weighted = ResponseMixedModel.fit(replace(events, weight=twice.astype(float)), tolerance=1e-9)
    sizes = events.sum_groups(twice.astype(float)).astype(int)
    repeated = Responses(
        np.repeat(events.columns, twice, axis=1),
        *(np.repeat(values, twice) for values in (events.y, events.weight, events.offset)),
        np.concatenate([[0], np.cumsum(sizes)[:-1]]),
        events.log_size,
    )
    other = ResponseMixedModel.fit(repeated, tolerance=1e-9)
    assert weighted.log_likelihood == pytest.approx(other.log_likelihood, abs=1e-2)
    np.testing.assert_allclose(weighted.fixed, other.fixed, atol=1e-2)


@pytest.mark.parametrize("kind", KINDS)
def test_columns_that_say_nothing_new_change_nothing(kind):
    events = make(kind)
    wide = np.vstack([events.columns, np.zeros(len(events.y)), events.columns[1]])
    plain, model = (
        ResponseMixedModel.fit(replace(events, columns=columns), tolerance=1e-9) for columns in (events.columns, wide)
    )
    np.testing.assert_allclose(model.fixed, [*plain.fixed, 0.0, 0.0], atol=1e-6)
    assert not model.factor[3:].any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spoil", ["separated", "all alike", "of one class", "large"])
def test_hard_tables_have_finite_laws(kind, spoil):
    events = make(kind, n_entities=20)
    y = {
        "separated": (events.columns[1] > 0.0).astype(float),
        "all alike": np.zeros(len(events.y)),
        "of one class": (events.owner % 2).astype(float),
        "large": events.y if kind == "class" else 1e7 * events.y,
    }[spoil]
    model = ResponseMixedModel.fit(replace(events, y=y))
    law = model.law(replace(events, y=y))
    assert np.isfinite(law.mean).all()
    assert np.isfinite(law.covariance).all()
    if spoil == "of one class" and kind == "class":
        assert model.factor[0, 0] > 2.0, "entities differ in nothing but their intercepts"


def test_scales_stay_moderate_where_most_entities_have_one_class():
    """Laplace's approximation has standard deviations of 20 and more for such tables."""
    rng = np.random.default_rng(1)
    owner = np.repeat(np.arange(200), 6)
    time = np.tile(np.linspace(-1.0, 1.0, 6), 200)
    linear = -2.0 - time + 4.0 * rng.normal(size=200)[owner]
    y = (rng.random(len(owner)) < expit(linear)).astype(float)
    design = np.stack([np.ones(len(owner)), time])
    model = ResponseMixedModel.fit(
        Responses(design, y, np.ones(len(y)), np.zeros(len(y)), np.arange(0, len(y), 6), None)
    )
    assert 2.5 < model.factor[0, 0] < 6.0
    assert np.abs(model.factor[1]).max() < 2.0


LME4 = """
suppressMessages(library(lme4))
data <- read.csv(file("stdin"))
data$entity <- factor(data$entity)
model <- FIT
cat(sprintf('{"fixed": [%s], "scales": [%s], "fitted": [%s]}', paste(sprintf("%.12g", fixef(model)), collapse = ","),
    paste(sprintf("%.12g", attr(VarCorr(model)$entity, "stddev")), collapse = ","),
    paste(sprintf("%.12g", fitted(model)), collapse = ",")))
"""
FITS = {
    "class": "glmer(y ~ a + b + (a + b | entity), data, binomial, control = glmerControl(optimizer = 'bobyqa'))",
    # with the true size: to find it takes lme4 minutes
    "count": "glmer(y ~ a + b + offset(o) + (a + b | entity), data, MASS::negative.binomial(2))",
}


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("kind", KINDS)
def test_the_mixed_model_agrees_with_lme4(kind):
    """Up to lme4's approximation, Laplace's, which is close where entities have some events of each class."""
    require_lme4()
    events = make(kind, n_entities=120, most_events=30, seed=1)
    model = ResponseMixedModel.fit(events, tolerance=1e-9)
    table = zip(*events.columns[1:].tolist(), events.offset.tolist(), events.y.tolist(), events.owner, strict=True)
    rows = "\n".join(f"{a!r},{b!r},{o!r},{y!r},{e}" for a, b, o, y, e in table)
    done = subprocess.run(
        ["Rscript", "-e", LME4.replace("FIT", FITS[kind])],
        input=f"a,b,o,y,entity\n{rows}\n",
        capture_output=True,
        text=True,
        check=True,
    )
    other = json.loads(done.stdout)
    np.testing.assert_allclose(model.fixed, other["fixed"], atol=0.05)
    np.testing.assert_allclose(np.sqrt(np.diag(model.factor @ model.factor.T)), other["scales"], atol=0.06)
    linear = events.linear(model.law(events).mean)
    fitted = expit(linear) if kind == "class" else np.exp(linear)
    assert np.corrcoef(fitted, other["fitted"])[0, 1] > 0.998
