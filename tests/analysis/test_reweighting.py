"""Reweighted events: regressions, ridges and mixed models of classes and counts against their definitions and lme4."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression, PoissonRegressor

from fedhlcr.analysis.mixed_model import MixedLikelihood, MixedModel
from fedhlcr.analysis.reweighting import (
    POINT_WEIGHTS,
    POINTS,
    EntityRidge,
    fit_mixed_model,
    pooled_regression,
    settle,
    settled_by,
)
from fedhlcr.data.events import EventStore
from fedhlcr.data.families import BINARY, COUNT
from fedhlcr.model.gram import GramLayout
from tests.lme4 import require_lme4

FAMILIES = pytest.mark.parametrize("family", [BINARY, COUNT], ids=str)
LAYOUT = GramLayout(2)


def make(family, n_entities=60, most_events=9, seed=0, scales=(0.8, 0.5, 0.3), size=2.0):
    """Events of entities with random intercepts and slopes; counts have exposures."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, most_events + 1, n_entities)
    entity = np.repeat(np.arange(n_entities), sizes)
    X = rng.normal(size=(len(entity), 2))
    coef = np.array([0.3, 0.5, -0.5]) + rng.normal(size=(n_entities, 3)) * scales
    offset = rng.normal(size=len(entity)) * 0.3 * family.has_exposure
    linear = coef[entity, 0] + (X * coef[entity, 1:]).sum(axis=1) + offset
    if family.has_classes:
        y = (rng.random(len(linear)) < expit(linear)).astype(float)
    else:
        y = rng.negative_binomial(size, size / (size + np.exp(linear))).astype(float)
    start = np.concatenate([[0], np.cumsum(sizes)])
    return EventStore(X, y, np.ones(len(y)), start, offset)


def owners(events):
    return np.repeat(np.arange(events.n_entities), np.diff(events.event_start))


def designs(events):
    return np.column_stack([np.ones(events.n_events), events.X])


def log_density(family, y, linear):
    normaliser = np.logaddexp(0.0, linear) if family.has_classes else np.exp(linear)
    return y * linear - normaliser


@FAMILIES
def test_one_regression_is_that_of_scikit_learn(family):
    events = make(family, n_entities=300)
    coef = pooled_regression(family, events)
    if family.has_classes:
        other = LogisticRegression(C=1.0, tol=1e-10).fit(events.X, events.y)
    else:
        exposure = np.exp(events.offsets)
        alpha = 1.0 / exposure.sum()
        other = PoissonRegressor(alpha=alpha, tol=1e-10).fit(events.X, events.y / exposure, sample_weight=exposure)
    np.testing.assert_allclose(coef, [np.ravel(other.intercept_)[0], *np.ravel(other.coef_)], atol=2e-3)


@FAMILIES
def test_regression_of_an_entity_is_penalised_as_it_says(family):
    """The oracle is the definition: a Poisson or Bernoulli likelihood, and quadratic penalties."""
    events = make(family, n_entities=6, most_events=20)
    ridge = EntityRidge(np.array([-0.4, 0.0, 0.0]), np.array([0.25, 2.0, 2.0]))
    found = ridge.law(LAYOUT.normal_equations(ridge.settled(family, events))).mean
    design = designs(events)
    for entity in range(6):
        rows = owners(events) == entity

        def loss(beta, rows=rows):
            own = log_density(family, events.y[rows], events.offsets[rows] + design[rows] @ beta)
            return 0.5 * (beta - ridge.centre) ** 2 @ ridge.penalties - own.sum()

        np.testing.assert_allclose(found[entity], minimize(loss, np.zeros(3), tol=1e-10).x, atol=0.01)


@FAMILIES
def test_penalty_suits_the_entities(family):
    """No slopes at all want a large penalty; strong slopes and many events a small one."""
    none = make(family, most_events=30, scales=(0.5, 0.0, 0.0))
    none = replace(none, X=np.random.default_rng(3).normal(size=none.X.shape))
    strong = make(family, most_events=60, scales=(0.5, 1.0, 1.0), seed=1, size=1e4)
    assert EntityRidge.fit(family, none).penalties[1] >= 10.0
    assert EntityRidge.fit(family, strong).penalties[1] <= 1.0


def test_penalty_is_chosen_as_if_each_event_were_left_out():
    events = make(BINARY, n_entities=8, most_events=12, seed=2)
    ridge = EntityRidge(np.array([0.2, 0.0, 0.0]), np.array([0.25, 1.0, 1.0]))
    total = 0.0
    design = designs(events)
    for event, entity in enumerate(owners(events)):
        left = replace(events, weight=(np.arange(events.n_events) != event).astype(float))
        coef = ridge.law(LAYOUT.normal_equations(ridge.settled(BINARY, left))).mean[entity]
        total += log_density(BINARY, events.y[event], design[event] @ coef)
    assert ridge.log_fit_left_out(BINARY, events) == pytest.approx(total, rel=0.04)


def test_an_entity_without_events_of_a_class_is_not_certain():
    events = make(BINARY, n_entities=10)
    y = np.where(owners(events) == 0, 0.0, events.y)
    events = replace(events, y=y)
    ridge = EntityRidge.fit(BINARY, events)
    probability = expit(ridge.law(LAYOUT.normal_equations(ridge.settled(BINARY, events))).mean[0, 0])
    assert 0.01 < probability < y.mean()


def test_gradient_with_known_noise_is_that_of_the_likelihood():
    events = make(BINARY)
    ridge = EntityRidge(np.zeros(3), np.ones(3))
    entities = LAYOUT.normal_equations(ridge.settled(BINARY, events))
    for reml in (False, True):
        likelihood = MixedLikelihood(entities, reml=reml, noise_variance=1.0)
        at = likelihood.pack(np.tril(np.random.default_rng(0).normal(size=(3, 3))))
        _, gradient = likelihood(at)
        steps = 1e-5 * np.eye(len(at))
        numeric = [(likelihood(at + step)[0] - likelihood(at - step)[0]) / 2e-5 for step in steps]
        np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-4)


def bound(family, events, model, mean, covariance):
    """The variational bound of all entities where deviations from μ have the laws N(mean, covariance)."""
    design, owner = designs(events), owners(events)
    linear = events.offsets + ((model.fixed + mean)[owner] * design).sum(axis=1)
    variance = np.einsum("nc,ncd,nd->n", design, covariance[owner], design)
    values = linear[:, None] + np.sqrt(variance)[:, None] * POINTS
    expected = (log_density(family, events.y[:, None], values) @ POINT_WEIGHTS).sum()
    prior = np.linalg.inv(model.covariance)
    away = np.einsum("ec,cd,ed->", mean, prior, mean) + np.einsum("cd,edc->", prior, covariance)
    volume = np.linalg.slogdet(covariance)[1].sum() + len(mean) * np.linalg.slogdet(prior)[1]
    return expected - 0.5 * (away - volume)


@FAMILIES
def test_laws_and_scales_are_where_the_variational_bound_is_highest(family):
    """Of Poisson counts and of classes: other means, covariances, common slopes or scales make it lower."""
    events = make(family, n_entities=80, most_events=12)
    models = []

    def solve(grams):
        entities = LAYOUT.normal_equations(grams)
        models.append(MixedModel.fit(entities, noise_variance=1.0, reml=False, diagonal=True))
        # without the uncertainty of μ, which the bound does not have
        model = replace(models[-1], fixed_covariance=np.zeros((3, 3)))
        return model.law(entities)

    law = solve(settle(family, events, solve))
    model = models[-1]
    mean, covariance = law.mean - model.fixed, law.covariance
    highest = bound(family, events, model, mean, covariance)
    rng = np.random.default_rng(1)
    assert model.covariance[0, 0] > 0.1
    for scale in (0.05, -0.05):
        assert bound(family, events, model, mean + scale * rng.normal(size=mean.shape), covariance) < highest
        assert bound(family, events, model, mean, (1.0 + 4.0 * scale) * covariance) < highest
        moved = replace(model, fixed=model.fixed + scale * np.array([1.0, -1.0, 1.0]))
        assert bound(family, events, moved, mean, covariance) < highest
        wider = replace(model, factor=(1.0 + 4.0 * scale) * model.factor)
        assert bound(family, events, wider, mean, covariance) < highest


@FAMILIES
def test_weights_are_repeated_events(family):
    events = make(family)
    twice = np.random.default_rng(1).integers(1, 4, events.n_events)
    repeated = EventStore(
        np.repeat(events.X, twice, axis=0),
        np.repeat(events.y, twice),
        np.ones(twice.sum()),
        np.concatenate([[0], np.cumsum(twice)])[events.event_start],
        np.repeat(events.offsets, twice),
    )
    weighted = replace(events, weight=twice.astype(float))
    one, other = (fit_mixed_model(family, own, diagonal=False) for own in (weighted, repeated))
    np.testing.assert_allclose(one.fixed, other.fixed, atol=1e-2)
    np.testing.assert_allclose(one.covariance, other.covariance, atol=1e-2)


@FAMILIES
@pytest.mark.parametrize("spoil", ["separated", "all alike", "of one class", "large"])
def test_hard_tables_have_finite_laws(family, spoil):
    events = make(family, n_entities=20)
    y = {
        "separated": (events.X[:, 0] > 0.0).astype(float),
        "all alike": np.zeros(events.n_events),
        "of one class": (owners(events) % 2).astype(float),
        "large": events.y if family.has_classes else 1e5 * events.y,
    }[spoil]
    events = replace(events, y=y)
    model = fit_mixed_model(family, events, diagonal=True)
    law = model.law(LAYOUT.normal_equations(settled_by(model, family, events)))
    assert np.isfinite(law.mean).all()
    assert np.isfinite(law.covariance).all()


def test_scales_stay_moderate_where_most_entities_have_one_class():
    """Laplace's approximation has standard deviations of 20 and more for such tables, quasi-likelihood about 1."""
    rng = np.random.default_rng(1)
    owner = np.repeat(np.arange(200), 6)
    time = np.tile(np.linspace(-1.0, 1.0, 6), 200)
    linear = -2.0 - time + 4.0 * rng.normal(size=200)[owner]
    y = (rng.random(len(owner)) < expit(linear)).astype(float)
    model = fit_mixed_model(BINARY, EventStore(time[:, None], y, np.ones(1200), np.arange(0, 1201, 6)), diagonal=False)
    assert 2.5 < np.sqrt(model.covariance[0, 0]) < 6.0
    assert np.sqrt(model.covariance[1, 1]) < 2.0


LME4 = """
suppressMessages(library(lme4))
data <- read.csv(file("stdin"))
data$entity <- factor(data$entity)
model <- FIT
cat(sprintf('{"fixed": [%s], "scales": [%s]}', paste(sprintf("%.12g", fixef(model)), collapse = ","),
    paste(sprintf("%.12g", attr(VarCorr(model)$entity, "stddev")), collapse = ",")))
"""
FITS = {
    "binary": "glmer(y ~ a + b + (a + b | entity), data, binomial, control = glmerControl(optimizer = 'bobyqa'))",
    # with the true size: to find it takes lme4 minutes
    "count": "glmer(y ~ a + b + offset(o) + (a + b | entity), data, MASS::negative.binomial(2))",
}


@pytest.mark.slow
@pytest.mark.ci
@FAMILIES
def test_the_mixed_model_agrees_with_lme4(family):
    """Up to lme4's approximation, Laplace's, which is close where entities have some events of each class."""
    require_lme4()
    events = make(family, n_entities=120, most_events=30, seed=1)
    model = fit_mixed_model(family, events, diagonal=False)
    table = zip(*events.X.T.tolist(), events.offsets.tolist(), events.y.tolist(), owners(events), strict=True)
    rows = "\n".join(f"{a!r},{b!r},{o!r},{y!r},{e}" for a, b, o, y, e in table)
    done = subprocess.run(
        ["Rscript", "-e", LME4.replace("FIT", FITS[family.name])],
        input=f"a,b,o,y,entity\n{rows}\n",
        capture_output=True,
        text=True,
        check=True,
    )
    other = json.loads(done.stdout)
    np.testing.assert_allclose(model.fixed, other["fixed"], atol=0.1)
    np.testing.assert_allclose(np.sqrt(np.diag(model.covariance)), other["scales"], atol=0.1)
