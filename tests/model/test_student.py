"""Student-t noise: weights of events and degrees of freedom have their exact conditionals, and outliers do no harm."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import fedhlcr
from fedhlcr import FedHLCRRegressor, HLCRRegressor
from fedhlcr._support.streams import Stream
from fedhlcr.exceptions import ArgumentError
from fedhlcr.kernels import weights as kernels
from fedhlcr.model import covariance
from fedhlcr.model.student import EVENT_WEIGHTS, LEAST_EVENT_SHAPE
from fedhlcr.posterior.fitted_model import check_model
from tests.students import given_globals, student_entities

SIZES, N_EVENTS = (3, 2), 4


def table(rng, outliers=0.0, n_entities=60, n_events=8):
    """Two clusters of lines with little noise; a share of the events is far off."""
    entity = np.repeat(np.arange(n_entities), n_events)
    slopes = np.where(rng.integers(2, size=n_entities) == 0, 2.0, -2.0)[entity]
    X = rng.normal(size=(len(entity), 1))
    truth = 1.0 + slopes * X[:, 0]
    y = truth + 0.2 * rng.normal(size=len(entity))
    far = rng.random(len(entity)) < outliers
    return X, y + far * rng.choice([-25.0, 25.0], len(y)), entity // 6, entity, truth


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_weighted_matrices_are_those_of_the_events(rng, fit_intercept):
    entities = student_entities(rng, SIZES, N_EVENTS, fit_intercept=fit_intercept)
    events, weight = entities.events, rng.gamma(2.0, size=entities.n_events)
    found = np.full_like(entities.grams, np.nan)
    arrays = events.X, events.y, events.event_start
    kernels.weighted_grams(*arrays, weight, np.arange(5), 0, 5, found)
    rows = np.column_stack([np.ones(events.n_events), events.X, events.y]).reshape(5, N_EVENTS, -1)
    expected = np.einsum("en,eni,enj->eij", weight.reshape(5, -1), rows, rows)
    np.testing.assert_allclose(entities.layout.unpack(found), expected, rtol=1e-12, atol=1e-12)
    by_draw = np.zeros((5, 2, found.shape[1]))
    targets = np.column_stack([events.y, events.y])
    by_weight = events.event_start, np.column_stack([weight, 2.0 * weight])
    kernels.weighted_grams_by_draw(events.X, targets, *by_weight, by_draw)
    np.testing.assert_allclose(by_draw, np.stack([found, 2.0 * found], axis=1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_weights_are_drawn_from_their_conditional(rng, fit_intercept):
    """λ ~ Gamma((ν + 1)/2, (ν + r²/s²)/2) for each event, independent of each other."""
    entities = student_entities(rng, SIZES, N_EVENTS, fit_intercept=fit_intercept)
    likelihood, events = entities.likelihood, entities.events
    current = given_globals(likelihood, 1, noise_scale=0.7, noise_shape=3.0)
    coef = rng.normal(size=(5, likelihood.layout.n_coef))
    design = np.column_stack([np.ones(events.n_events)] * fit_intercept + [events.X])
    residuals = events.y - (design * np.repeat(coef, N_EVENTS, axis=0)).sum(axis=1)
    rate, levels = 0.5 * (3.0 + (residuals / 0.7) ** 2), []
    for number in range(400):
        part = entities.part(entities.start_state(), number, Stream(5))
        scalars = np.zeros((2, len(likelihood.own_scalars)))
        drawn = likelihood._draw_weights(part, current, coef, scalars)
        levels.append(stats.gamma.cdf(drawn, 2.0, scale=1.0 / rate))
    logs, total, n = scalars[:, -3:].T
    np.testing.assert_array_equal(n, [12, 8])
    np.testing.assert_allclose(logs, [np.log(drawn[:12]).sum(), np.log(drawn[12:]).sum()])
    np.testing.assert_allclose(total, [drawn[:12].sum(), drawn[12:].sum()])
    levels = np.array(levels)
    assert stats.kstest(levels.ravel(), "uniform").pvalue > 1e-3
    apart = np.corrcoef(levels.T)[np.triu_indices(levels.shape[1], 1)]
    assert np.abs(apart).max() < 5.0 / np.sqrt(len(levels))


def test_degrees_of_freedom_are_drawn_from_their_conditional(rng):
    weight = rng.gamma(2.0, size=30) / 2.0
    current = 30, -np.log(weight).sum(), weight.sum(), LEAST_EVENT_SHAPE
    drawn = [covariance.draw_shape(rng, *current) for _ in range(20_000)]
    shapes = np.geomspace(LEAST_EVENT_SHAPE, covariance.LARGEST_SHAPE, covariance.N_SHAPES)
    log_density = np.array([stats.gamma.logpdf(weight, nu / 2, scale=2 / nu).sum() for nu in shapes])
    exact = np.exp(log_density - log_density.max())
    found = np.bincount(np.searchsorted(shapes, drawn), minlength=len(shapes)) / len(drawn)
    assert 0.5 * np.abs(found - exact / exact.sum()).sum() < 0.03


@pytest.mark.parametrize("effects", ["auto", "none"])
def test_outliers_hardly_change_the_coefficients(rng, effects):
    X, y, agent, entity, truth = table(rng, outliers=0.05)
    errors = {}
    for noise in ("student", "common"):
        model = HLCRRegressor(2, noise=noise, effects=effects, n_sweeps=80).fit(X, y, agent=agent, entity=entity)
        errors[noise] = np.sqrt(np.mean((model.predict(X, agent=agent, entity=entity) - truth) ** 2))
    assert errors["student"] < 0.15
    assert errors["common"] > 5.0 * errors["student"]


@pytest.fixture(scope="module")
def fitted():
    X, y, agent, entity, _ = table(np.random.default_rng(7), outliers=0.05, n_entities=30)
    model = HLCRRegressor(2, noise="student", n_sweeps=60).fit(X, y, agent=agent, entity=entity)
    return model, X, y, {"agent": agent, "entity": entity}


def test_a_file_holds_events_and_weights_and_a_public_one_does_not(fitted, tmp_path):
    model, X, y, ids = fitted
    model.save(tmp_path / "model")
    loaded = fedhlcr.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(X, **ids), model.predict(X, **ids))
    np.testing.assert_array_equal(
        loaded.posterior_.memory.agent_state[EVENT_WEIGHTS], model.posterior_.memory.agent_state[EVENT_WEIGHTS]
    )
    model.save(tmp_path / "public", public=True)
    # a target of an event, in the units in which the private file stores it
    secret = model.posterior_.memory.entities.events.y[:8].tobytes()
    assert secret in (tmp_path / "model").read_bytes()
    assert secret not in (tmp_path / "public").read_bytes()
    public = fedhlcr.load(tmp_path / "public")
    assert public.posterior_.memory.entities.n_events == 0
    assert np.isfinite(public.predict(X)).all()
    again = public.adapt(X, y, **ids)
    np.testing.assert_allclose(again.predict(X, **ids), model.predict(X, **ids), atol=0.1)


def test_new_events_join_those_of_their_entities(fitted):
    model, X, y, ids = fitted
    known, new = ids["entity"] < 20, {name: values[200:] for name, values in ids.items()}
    part = HLCRRegressor(2, noise="student", n_sweeps=60).fit(
        X[known], y[known], agent=ids["agent"][known], entity=ids["entity"][known]
    )
    more = part.adapt(X[150:], y[150:], agent=ids["agent"][150:], entity=ids["entity"][150:])
    events = more.posterior_.memory.entities.events
    assert events.n_entities == 30
    # the last ten events of the known entities were there before
    assert events.n_events == 160 + (240 - 150)
    np.testing.assert_array_equal(events.y[:150], part.posterior_.memory.entities.events.y[:150])
    np.testing.assert_allclose(more.predict(X[200:], **new), model.predict(X[200:], **new), atol=0.5)


def test_predictive_noise_is_a_student_t(fitted):
    """Quantiles of a new event of a known entity are those of t_ν around its regression, whose spread is small."""
    model, X, _, ids = fitted
    posterior, levels = model.posterior_, (0.05, 0.25, 0.75, 0.95)
    moments = posterior.predict(X, check_model(model).read_events(X, **ids).profiles, levels)
    found = (moments.quantiles - moments.mean[:, None]).mean(axis=0) / posterior.standardization.scale[-1]
    current = posterior.draws.stacked
    exact = [(stats.t.ppf(level, current.noise_shape) * current.noise_scale).mean() for level in levels]
    np.testing.assert_allclose(found, exact, rtol=0.2)


def test_frequencies_are_refused(fitted):
    _, X, y, ids = fitted
    twice = np.full(len(y), 2.0)
    for estimator in (HLCRRegressor(noise="student"), FedHLCRRegressor(noise="student")):
        with pytest.raises(ArgumentError, match=r"noise='student'.*repeat the rows"):
            estimator.fit(X, y, **ids, sample_weight=twice)


def test_outliers_do_not_hide_the_clusters(fitted):
    _, X, y, ids = fitted
    assert HLCRRegressor(noise="student").fit(X, y, **ids).n_clusters_ == 2


@pytest.mark.parametrize(
    "estimator",
    [FedHLCRRegressor(2, rule="blend", noise="student"), HLCRRegressor(2, sampler="collapsed", noise="student")],
    ids=["blend", "collapsed"],
)
def test_the_algorithms_of_the_paper_refuse_it(fitted, estimator):
    _, X, y, ids = fitted
    with pytest.raises(ArgumentError, match="with one noise scale"):
        estimator.fit(X, y, **ids)
