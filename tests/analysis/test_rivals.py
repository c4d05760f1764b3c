"""Simpler models beside a fitted classifier or count model: a regression per entity, a mixed model, and their means."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from fedhlcr import HLCRClassifier, HLCRCountRegressor
from fedhlcr.analysis import rivals
from fedhlcr.analysis.rivals import predict_means
from fedhlcr.analysis.scores import scores_of
from fedhlcr.analysis.simpler import (
    LOGISTIC_PER_ENTITY,
    MIXED_MODEL,
    ONE_LOGISTIC,
    ONE_POISSON,
    ONE_RATE,
    POISSON_PER_ENTITY,
    RATE_PER_ENTITY,
)
from fedhlcr.data.families import BINARY
from fedhlcr.data.families import COUNT as COUNTS
from fedhlcr.data.hierarchy import UNKNOWN
from fedhlcr.posterior.fitted_model import check_model

CLASS, COUNT = "class", "count"


class Table:
    """Events of entities with random intercepts and slopes, every third one held out."""

    def __init__(self, kind, n_entities=80, n_events=15, scales=(0.8, 0.5), seed=0):
        rng = np.random.default_rng(seed)
        self.entity = np.repeat(np.arange(n_entities), n_events)
        self.X = rng.normal(size=(len(self.entity), 1))
        coef = np.array([0.3, 0.8]) + rng.normal(size=(n_entities, 2)) * scales
        linear = coef[self.entity, 0] + coef[self.entity, 1] * self.X[:, 0]
        self.exposure = np.exp(0.4 * rng.normal(size=len(linear)))
        if kind == CLASS:
            self.y = (rng.random(len(linear)) < expit(linear)).astype(float)
        else:
            mean = self.exposure * np.exp(linear)
            self.y = rng.negative_binomial(3.0, 3.0 / (3.0 + mean)).astype(float)
        self.test = np.arange(len(linear)) % 3 == 0

    def fit(self, kind, **parameters):
        rows = ~self.test
        data = self.X[rows], self.y[rows]
        if kind == CLASS:
            return HLCRClassifier(n_sweeps=150, **parameters).fit(*data, entity=self.entity[rows])
        model = HLCRCountRegressor(n_sweeps=150, **parameters)
        return model.fit(*data, entity=self.entity[rows], exposure=self.exposure[rows])

    def rivals(self, model, kind, entities=None):
        events = check_model(model).read_events(self.X[self.test], None, self.entity[self.test])
        places = events.profiles.entities[events.profiles.of_row] if entities is None else entities
        exposure = self.exposure[self.test] if kind == COUNT else None
        return predict_means(model.posterior_, events.matrix, places, exposure)

    def loss(self, kind, mean):
        y = self.y[self.test]
        return scores_of(BINARY, y, mean)["log_loss"] if kind == CLASS else scores_of(COUNTS, y, mean)["deviance"]


@pytest.fixture(scope="module", params=[CLASS, COUNT])
def fitted(request):
    """A table and the mixed model of fedhlcr itself: one cluster whose entities differ."""
    table = Table(request.param)
    return request.param, table, table.fit(request.param, n_clusters=1, effects="entity")


def test_rivals_have_names_and_one_prediction_for_each_event(fitted):
    kind, table, model = fitted
    found = table.rivals(model, kind)
    regressions = (ONE_LOGISTIC, LOGISTIC_PER_ENTITY) if kind == CLASS else (ONE_POISSON, POISSON_PER_ENTITY)
    assert list(found) == [ONE_RATE, RATE_PER_ENTITY, *regressions, MIXED_MODEL]
    assert all(mean.shape == (table.test.sum(),) for mean in found.values())


def test_mixed_model_predicts_as_well_as_one_cluster_with_effects(fitted):
    """Both are the same model, here by approximation and there by sampling. Others have no slopes of entities."""
    kind, table, model = fitted
    found, test = table.rivals(model, kind), table.test
    if kind == CLASS:
        own = model.predict_proba(table.X[test], entity=table.entity[test])[:, 1]
    else:
        own = model.predict(table.X[test], entity=table.entity[test], exposure=table.exposure[test])
    losses = {name: table.loss(kind, mean) for name, mean in found.items()}
    assert losses[MIXED_MODEL] < 1.04 * table.loss(kind, own)
    others = [loss for name, loss in losses.items() if name in (ONE_RATE, RATE_PER_ENTITY, ONE_LOGISTIC, ONE_POISSON)]
    assert losses[MIXED_MODEL] < 0.96 * min(others)
    assert np.corrcoef(np.log(found[MIXED_MODEL]), np.log(own))[0, 1] > 0.98


def test_new_entities_have_the_mean_over_random_effects_and_the_one_regression(fitted):
    kind, table, model = fitted
    n = int(table.test.sum())
    half = np.where(np.arange(n) % 2, UNKNOWN, 0)
    found = table.rivals(model, kind, half)
    one, each = (ONE_LOGISTIC, LOGISTIC_PER_ENTITY) if kind == CLASS else (ONE_POISSON, POISSON_PER_ENTITY)
    np.testing.assert_allclose(found[each][1::2], found[one][1::2])
    assert not np.allclose(found[each][::2], found[one][::2])
    # averaged over entities: nearer to one half, or larger, than at the mean effects
    known = table.rivals(model, kind, np.full(n, UNKNOWN))
    assert each not in known, "it would be the one regression again"
    truth = 0.3 + 0.8 * table.X[table.test][:, 0]
    effects = np.random.default_rng(0).normal(size=(4000, 2)) * [0.8, 0.5]
    linear = truth[:, None] + effects[:, 0] + effects[:, 1] * table.X[table.test]
    expected = expit(linear).mean(axis=1)
    if kind == COUNT:
        exposed = table.exposure[table.test]
        # exact for the log-normal law
        expected = exposed * np.exp(truth + 0.5 * (0.64 + 0.25 * table.X[table.test][:, 0] ** 2))
        np.testing.assert_allclose(np.log(known[MIXED_MODEL]), np.log(expected), atol=0.7)
        assert np.median(known[MIXED_MODEL] / expected) == pytest.approx(1.0, abs=0.25)
    else:
        np.testing.assert_allclose(known[MIXED_MODEL], expected, atol=0.1)


def test_predictions_do_not_depend_on_the_blocks(fitted, monkeypatch):
    kind, table, model = fitted
    whole = table.rivals(model, kind)
    monkeypatch.setattr("fedhlcr.analysis.regressions.NUMBERS_AT_ONCE", 400)
    for name, mean in table.rivals(model, kind).items():
        np.testing.assert_allclose(mean, whole[name], rtol=1e-9, err_msg=name)


def test_shared_numbers_of_many_entities_are_fitted_to_some(fitted, monkeypatch):
    kind, table, model = fitted
    whole = table.rivals(model, kind)
    monkeypatch.setattr(rivals, "NUMBERS_FOR_REWEIGHTED", 360)
    thinned = table.rivals(model, kind)
    assert not np.allclose(thinned[MIXED_MODEL], whole[MIXED_MODEL], rtol=1e-6)
    assert table.loss(kind, thinned[MIXED_MODEL]) == pytest.approx(table.loss(kind, whole[MIXED_MODEL]), rel=0.15)


@pytest.mark.parametrize("kind", [CLASS, COUNT])
@pytest.mark.parametrize("parameters", [{"curves": [0]}, {"standardize": False}, {"fit_intercept": False}])
def test_rivals_do_not_depend_on_how_the_model_treats_features(kind, parameters):
    table = Table(kind, n_entities=20)
    plain = table.rivals(table.fit(kind, n_clusters=1), kind)
    table.X = 1e4 * table.X + 1e5
    for name, mean in table.rivals(table.fit(kind, n_clusters=1, **parameters), kind).items():
        np.testing.assert_allclose(mean, plain[name], rtol=0.02, err_msg=name)


def test_exposures_of_any_size_give_the_same_counts():
    table = Table(COUNT, n_entities=20)
    plain = table.rivals(table.fit(COUNT, n_clusters=1), COUNT)
    table.exposure *= 1e6
    for name, mean in table.rivals(table.fit(COUNT, n_clusters=1), COUNT).items():
        np.testing.assert_allclose(mean, plain[name], rtol=0.02, err_msg=name)


@pytest.mark.parametrize("kind", [CLASS, COUNT])
def test_without_several_events_of_an_entity_there_is_no_mixed_model(kind):
    table = Table(kind, n_entities=90, n_events=1)
    table.test = np.arange(90) % 3 == 0
    assert MIXED_MODEL not in table.rivals(table.fit(kind, n_clusters=1), kind)


@pytest.mark.parametrize("kind", [CLASS, COUNT])
def test_separated_constant_and_weighted_events_are_predicted(kind):
    """Entities of one class only, a constant feature, one that separates the classes, and entities of one event."""
    rng = np.random.default_rng(2)
    entity = np.append(np.repeat(np.arange(20), 6), np.arange(20, 40))
    y = np.where(entity % 2, 1.0, 0.0)
    X = np.column_stack([np.ones(len(y)), y + 0.01 * rng.normal(size=len(y)), rng.normal(size=len(y))])
    kinds = {CLASS: HLCRClassifier, COUNT: HLCRCountRegressor}
    model = kinds[kind](1, n_sweeps=20).fit(X, y, entity=entity, sample_weight=rng.integers(1, 4, len(y)))
    events = check_model(model).read_events(X, None, entity)
    places = events.profiles.entities[events.profiles.of_row]
    found = predict_means(model.posterior_, events.matrix, places)
    for name, mean in found.items():
        assert np.isfinite(mean).all(), name
        assert (mean >= 0.0).all(), name
    mixed = found[MIXED_MODEL]
    assert mixed[y == 1.0].mean() > 2.0 * mixed[y == 0.0].mean()
