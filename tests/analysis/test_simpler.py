"""Simpler models beside a fitted one: their predictions, and leaving events out without a second fit."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from fedhlcr import HLCRRegressor
from fedhlcr.analysis.mixed_model import MixedModel
from fedhlcr.analysis.regressions import KnownEntities, predict_by_entity, predict_by_one
from fedhlcr.analysis.ridges import INTERCEPT_PENALTY
from fedhlcr.analysis.rivals import predict_by_rivals
from fedhlcr.analysis.simpler import MIXED_MODEL, MOST_CORRELATED, ONE_RIDGE, RIDGE_PER_ENTITY, SimplerModels
from fedhlcr.data.hierarchy import UNKNOWN, build_hierarchy
from fedhlcr.model.gram import GramLayout, entity_grams

FLAT = 1e8


class Table:
    """A small table with random slopes, entities of 1 to 6 events, and the models of its Gram matrices."""

    def __init__(self, n_features=2, seed=0):
        rng = np.random.default_rng(seed)
        self.entity = np.repeat(np.arange(12), rng.integers(1, 7, 12))
        n = len(self.entity)
        self.features = rng.normal(size=(n, n_features))
        self.design = np.column_stack([np.ones(n), self.features])
        own = rng.normal(size=(12, n_features + 1)) * 0.7
        self.y = np.einsum("nc,nc->n", self.design, 1.0 + own[self.entity]) + 0.4 * rng.normal(size=n)
        self.layout = GramLayout(n_features)
        self.models = SimplerModels(self.known())

    def known(self, rows=slice(None)):
        """Gram matrices of some rows; an entity without any has zeros."""
        weight = np.zeros(len(self.y))
        weight[rows] = 1.0
        events = build_hierarchy(self.features, self.y, np.ones(len(self.y)), None, self.entity)
        grams = entity_grams(events, self.layout, np.zeros(self.layout.width - 1))
        for row in np.flatnonzero(weight == 0.0):
            augmented = np.append(self.design[row], self.y[row])
            grams[self.entity[row]] -= self.layout.pack(np.outer(augmented, augmented))
        return KnownEntities(self.layout, grams)

    def prior_covariance(self, name):
        """(n, n) covariance of the targets relative to σ², with a nearly flat prior instead of a flat one."""
        free = np.eye(self.layout.n_coef)
        same = self.entity[:, None] == self.entity
        if name == MIXED_MODEL:
            model = self.models.mixed_model
            shared, own = FLAT * free, model.factor @ model.factor.T
        else:
            ridge = self.models.one_ridge if name == ONE_RIDGE else self.models.ridge_per_entity
            prior = np.diag(1.0 / np.array([INTERCEPT_PENALTY, *ridge.penalties]))
            prior[0, 0] = FLAT
            shared, own = (prior, 0.0 * free) if name == ONE_RIDGE else (0.0 * free, prior)
        design = self.design
        return design @ shared @ design.T + same * (design @ own @ design.T) + np.eye(len(self.y))

    def predicted(self, name):
        return self.models.predict(self.features, self.entity)[name]


@pytest.mark.parametrize("name", [ONE_RIDGE, MIXED_MODEL])
def test_events_left_out_are_predicted_as_by_dense_covariances(name):
    """The oracle conditions each target on all others, with the covariance of all of them."""
    table = Table()
    predicted = table.predicted(name)
    covariance = table.prior_covariance(name) * predicted.noise_variance[0]
    found = predicted.log_density_left_out(table.y)
    for n in range(len(table.y)):
        others = np.arange(len(table.y)) != n
        weights = np.linalg.solve(covariance[np.ix_(others, others)], covariance[others, n])
        mean, variance = weights @ table.y[others], covariance[n, n] - weights @ covariance[others, n]
        assert found[n] == pytest.approx(multivariate_normal.logpdf(table.y[n], mean, variance), abs=1e-4)


def test_mixed_model_without_an_event_is_what_leaving_it_out_says():
    """The same by removing the event from the sums, with Λ and σ fixed."""
    table = Table()
    model, found = table.models.mixed_model, table.predicted(MIXED_MODEL).log_density_left_out(table.y)
    for n in (0, 7, len(table.y) - 1):
        rest = table.known(np.arange(len(table.y)) != n)
        normal = table.layout.normal_equations(rest.grams)
        B = np.eye(3) + model.factor.T @ normal.xx @ model.factor
        T = model.factor @ np.linalg.inv(B) @ model.factor.T
        sum_Q = (normal.xx - normal.xx @ T @ normal.xx).sum(axis=0)
        fixed = np.linalg.solve(sum_Q, (normal.xy - (normal.xx @ T @ normal.xy[..., None])[..., 0]).sum(axis=0))
        without = MixedModel(fixed, model.factor, np.linalg.inv(sum_Q), model.noise_variance, 0.0)
        row, entity = table.design[n : n + 1], table.entity[n : n + 1]
        new = predict_by_one(without.law_of_new(), without.noise_variance, row)
        predicted = predict_by_entity(without, rest, row, entity, new)
        assert found[n] == pytest.approx(predicted.log_density(table.y[n : n + 1])[0], abs=1e-9)


@pytest.mark.parametrize("name", [ONE_RIDGE, RIDGE_PER_ENTITY, MIXED_MODEL])
def test_predictions_of_fitted_rows_are_the_posterior_of_dense_covariances(name):
    table = Table()
    predicted = table.predicted(name)
    precision = np.linalg.inv(table.prior_covariance(name))
    np.testing.assert_allclose(predicted.mean, table.y - precision @ table.y, atol=1e-4)
    np.testing.assert_allclose(predicted.leverage, 1.0 - np.diag(precision), atol=1e-4)


def test_blocks_do_not_change_predictions(monkeypatch):
    table = Table()
    whole = table.predicted(MIXED_MODEL)
    monkeypatch.setattr("fedhlcr.analysis.regressions.NUMBERS_AT_ONCE", 40)
    for a, b in zip(whole, table.predicted(MIXED_MODEL), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_new_entity_has_the_mixed_models_own_law():
    table = Table()
    model = table.models.mixed_model
    found = table.models.predict(table.features, np.full(len(table.y), UNKNOWN))
    assert set(found) == {ONE_RIDGE, MIXED_MODEL}
    np.testing.assert_allclose(found[MIXED_MODEL].mean, table.design @ model.fixed)
    covariance = model.factor @ model.factor.T + model.fixed_covariance
    expected = np.einsum("nc,cd,nd->n", table.design, covariance, table.design)
    np.testing.assert_allclose(found[MIXED_MODEL].leverage, expected)


def test_many_columns_have_independent_deviations():
    factor = Table(n_features=MOST_CORRELATED).models.mixed_model.factor
    np.testing.assert_array_equal(factor, np.diag(np.diag(factor)))
    assert np.count_nonzero(Table().models.mixed_model.factor) > 3


def test_no_mixed_model_of_entities_with_one_event(small):
    table, _ = small
    model = HLCRRegressor(n_sweeps=4, max_clusters=4).fit(table.X, table.y)
    rivals = predict_by_rivals(model.posterior_, table.X, table.y, np.full(len(table), UNKNOWN))
    assert [rival.name for rival in rivals] == [ONE_RIDGE]


def test_units_of_the_target_move_the_log_density(small):
    table, _ = small
    densities = []
    for factor in (1.0, 10.0):
        model = HLCRRegressor(n_sweeps=4, max_clusters=4).fit(
            table.X, factor * table.y, agent=table.agent, entity=table.entity
        )
        entities = np.full(len(table), UNKNOWN)
        rivals = predict_by_rivals(model.posterior_, table.X, factor * table.y, entities)
        densities.append([rival.log_density.mean() for rival in rivals])
    np.testing.assert_allclose(densities[0], np.add(densities[1], np.log(10.0)), atol=1e-4)
