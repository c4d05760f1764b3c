"""Coefficients of entities: the posterior of a mixed model, over draws and labels, in the user's units."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import fedhlcr
from fedhlcr import FedHLCRRegressor, HLCRRegressor
from fedhlcr.posterior import entity_coef
from fedhlcr.posterior.user_units import coef_transform
from tests.reports import public

N_AGENTS, N_ENTITIES, N_EVENTS = 10, 40, 9
OPTIONS = (
    {"effects": "entity+agent"},
    {"effects": "entity", "noise": "common", "n_clusters": 1},
    {"effects": "none"},
    {"effects": "none", "noise": "common"},
    {"effects": "entity", "fit_intercept": False},
)


@pytest.fixture(scope="module")
def table():
    """Two clusters whose entities differ in level and in the first slope; features are far from zero."""
    rng = np.random.default_rng(5)
    entity = np.repeat(np.arange(N_ENTITIES), N_EVENTS)
    X = rng.normal(size=(len(entity), 2)) * [2.0, 0.5] + [30.0, -4.0]
    clusters = np.array([[1.0, 2.0], [-1.0, 0.0]])[np.arange(N_ENTITIES) % 2]
    effects = rng.normal(size=(N_ENTITIES, 2)) * [0.8, 0.3]
    slopes = clusters + np.column_stack([effects[:, 1], np.zeros(N_ENTITIES)])
    noise = 0.4 * np.exp(0.4 * rng.normal(size=N_ENTITIES))
    y = 50.0 + effects[entity, 0] + ((X - X.mean(axis=0)) * slopes[entity]).sum(axis=1)
    return X, y + noise[entity] * rng.normal(size=len(entity)), entity // (N_ENTITIES // N_AGENTS), entity


def fit(table, model=HLCRRegressor, **parameters):
    X, y, agent, entity = table
    sizes = {"n_sweeps": 40} if model is HLCRRegressor else {"rounds": 40}
    return model(**{**sizes, **parameters}).fit(X, y, agent=agent, entity=entity)


@pytest.fixture(scope="module", params=OPTIONS, ids=str)
def model(table, request):
    return fit(table, **request.param)


def dense_moments(model, table, entity):
    """Mean and covariance of an entity's standardised coefficients, by Bayes' theorem with its events.

    Returns them for w + a + b, and the mean of w alone.
    """
    X, y, _, ids = table
    posterior, own = model.posterior_, ids == entity
    units, draws, n_draws = posterior.standardization, posterior.draws, len(posterior.draws)
    design, target = units.apply(X[own]), units.apply_target(y[own])
    if model.fit_intercept:
        design = np.column_stack([np.ones(len(design)), design])
    agent, n_coef = entity // (N_ENTITIES // N_AGENTS), design.shape[1]
    weights = posterior.label_weights(np.array([agent]), np.array([entity]))[0] / n_draws
    memory, found = posterior.memory, posterior.likelihood.differences(draws.stacked)
    parts = []
    for draw in range(n_draws):
        D = np.zeros((n_coef, n_coef)) if found is None else found.entity_covariance[draw]
        a = memory.agent_state["agent_effects"][draw, agent] if found is not None else np.zeros(n_coef)
        variance = draws.noise_scale[draw] ** 2
        if found is not None:
            variance = memory.agent_state["variance"][draw, entity] * draws.stacked.noise_unit[draw] ** 2
        gain = D @ design.T @ np.linalg.inv(design @ D @ design.T + variance * np.eye(len(design)))
        for k in range(draws.n_clusters):
            w = draws.coef[draw, k]
            parts.append((weights[draw, k], w + a + gain @ (target - design @ (w + a)), D - gain @ design @ D, w))
    mean = sum(p * m for p, m, _, _ in parts)
    covariance = sum(p * (V + np.outer(m - mean, m - mean)) for p, m, V, _ in parts)
    return mean, covariance, sum(p * w for p, _, _, w in parts)


@pytest.mark.parametrize("entity", [0, 13, 39])
def test_moments_are_those_of_dense_matrices(model, table, entity):
    mean, covariance, of_cluster = dense_moments(model, table, entity)
    units, n_first = model.posterior_.standardization, int(model.fit_intercept)
    # the intercept is the prediction where all features are zero
    at_zero = np.concatenate([np.ones(n_first), units.apply(np.zeros((1, 2)))[0]])
    slopes, scale = np.diag(1.0 / units.scale[:2]), units.scale[-1]
    assert model.entity_intercept_[entity] == pytest.approx(units.restore_target(at_zero @ mean), rel=1e-6)
    expected = scale * np.sqrt(at_zero @ covariance @ at_zero)
    assert model.entity_intercept_std_[entity] == pytest.approx(expected, rel=1e-4, abs=1e-9)
    np.testing.assert_allclose(model.entity_coef_[entity], scale * slopes @ mean[n_first:], rtol=1e-6)
    variance = np.diag(slopes @ covariance[n_first:, n_first:] @ slopes)
    np.testing.assert_allclose(model.entity_coef_std_[entity], scale * np.sqrt(variance), rtol=1e-4)
    at_means = np.concatenate([np.ones(n_first), units.apply(model.feature_means_[None])[0]])
    own = np.concatenate([[at_means @ (mean - of_cluster)], slopes @ (mean - of_cluster)[n_first:]])
    np.testing.assert_allclose(model.entity_effects_[entity], scale * own, rtol=1e-4, atol=1e-7)


def assert_predictions_follow(model, table):
    _, _, agent, entity = table
    first = np.unique(entity, return_index=True)[1]
    rows = np.array([[28.0, -4.5]])
    predicted = model.predict(np.repeat(rows, N_ENTITIES, axis=0), agent=agent[first], entity=entity[first])
    order = [model.pair_ids_.index((a, e)) for a, e in zip(agent[first], entity[first], strict=True)]
    own = model.entity_intercept_ + model.entity_coef_ @ rows[0]
    np.testing.assert_allclose(own[order], predicted, rtol=1e-7)


def test_predictions_follow_from_the_coefficients(model, table):
    assert_predictions_follow(model, table)


def test_predictions_follow_from_the_coefficients_with_student_noise(table):
    model = fit(table, effects="entity", noise="student")
    assert_predictions_follow(model, table)
    assert (model.entity_coef_std_ > 0.0).all()
    # the noise differs between events, not between entities
    assert np.ptp(model.entity_noise_) == 0.0


def transform_of(model):
    return coef_transform(model, np.zeros(model.n_features_in_))


def test_entities_are_computed_in_blocks(model, monkeypatch):
    whole = entity_coef.entity_coef(model.posterior_, transform_of(model))
    monkeypatch.setattr(entity_coef, "NUMBERS_AT_ONCE", 7 * model.posterior_.layout.n_coef**2)
    for values, expected in zip(entity_coef.entity_coef(model.posterior_, transform_of(model)), whole, strict=True):
        np.testing.assert_allclose(values, expected, rtol=1e-9, atol=1e-9)


def test_large_offsets_of_features_do_not_matter(table):
    X, *rest = table
    model, moved = (fit((x, *rest), effects="entity", n_clusters=1) for x in (X, X + np.array([0.0, 1e7])))
    np.testing.assert_allclose(moved.entity_coef_std_, model.entity_coef_std_, rtol=1e-4)
    np.testing.assert_allclose(moved.entity_effects_, model.entity_effects_, rtol=1e-4, atol=1e-6)
    # the intercept is now far from the data, and as uncertain as the slope times the offset
    np.testing.assert_allclose(moved.entity_intercept_std_, 1e7 * moved.entity_coef_std_[:, 1], rtol=1e-2)


def test_coefficients_are_there_after_load_adapt_and_a_federated_fit(table, tmp_path):
    X, y, agent, _ = table
    model = fit(table, FedHLCRRegressor, effects="entity")
    before = model.entity_coef_
    model.save(tmp_path / "model.fedhlcr")
    np.testing.assert_allclose(fedhlcr.load(tmp_path / "model.fedhlcr").entity_coef_, before, rtol=1e-6)
    more = slice(0, 3)
    adapted = model.adapt(X[more], y[more], agent=agent[more], entity=np.full(3, 99))
    assert adapted.entity_coef_.shape == (N_ENTITIES + 1, 2)
    assert adapted.entity_intercept_std_.shape == adapted.entity_noise_.shape == (N_ENTITIES + 1,)
    place = adapted.pair_ids_.index((0, 99))
    # three events say less than nine
    assert adapted.entity_coef_std_[place, 0] > np.median(adapted.entity_coef_std_[:, 0])
    # the model that was adapted is as before
    assert len(model.entity_coef_) == N_ENTITIES
    assert public(model).entity_coef_.shape == (0, 2)


def test_coefficients_are_forgotten_by_the_next_fit(table):
    X, y, agent, entity = table
    model = copy.deepcopy(fit(table, effects="entity", n_clusters=1))
    before = model.entity_coef_
    model.fit(X, 2.0 * y, agent=agent, entity=entity)
    np.testing.assert_allclose(model.entity_coef_, 2.0 * before, rtol=1e-6)


def test_unfitted_models_have_no_coefficients_of_entities():
    assert not hasattr(HLCRRegressor(), "entity_coef_")
    assert not hasattr(HLCRRegressor(), "effect_scales_")


def test_curves_are_left_out(table):
    X, y, agent, entity = table
    model = fit((X, y + np.sin(X[:, 0]), agent, entity), effects="entity", curves=[0])
    assert model.entity_coef_.shape == model.entity_coef_std_.shape == (N_ENTITIES, 2)
    # the coefficients of curves are those of the clusters
    found = entity_coef.entity_coef(model.posterior_, transform_of(model))
    n_linear = model.posterior_.layout.n_linear
    np.testing.assert_allclose(found.mean[:, n_linear:], found.of_cluster[:, n_linear:], atol=1e-9)


def test_noise_of_entities_is_close_to_the_scatter_of_their_events(table):
    X, y, agent, entity = table
    model = fit(table, effects="entity", n_sweeps=80)
    residual = y - model.predict(X, agent=agent, entity=entity)
    scatter = np.sqrt(np.bincount(entity, residual**2) / N_EVENTS)
    order = [model.pair_ids_.index((e // (N_ENTITIES // N_AGENTS), e)) for e in range(N_ENTITIES)]
    assert np.corrcoef(np.log(model.entity_noise_[order]), np.log(scatter))[0, 1] > 0.7
