"""Hard tables of yes-or-no targets and counts: estimates stay finite and sane, and nothing overflows."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from fedhlcr import NEW, FedHLCRClassifier, FedHLCRCountRegressor, HLCRClassifier, HLCRCountRegressor

QUICK = {"n_sweeps": 60, "n_draws": 30}
N_ENTITIES, N_EVENTS = 40, 8


class Table:
    """Entities with features (events, 2); five entities to an agent."""

    def __init__(self, seed=0, n_entities=N_ENTITIES, n_events=N_EVENTS):
        self.rng = np.random.default_rng(seed)
        self.entity = np.repeat(np.arange(n_entities), n_events)
        self.agent = self.entity // 5
        self.X = self.rng.normal(size=(len(self.entity), 2))

    def coins(self, eta):
        return (self.rng.random(len(eta)) < 1.0 / (1.0 + np.exp(-eta))).astype(int)

    @property
    def ids(self):
        return {"agent": self.agent, "entity": self.entity}


def assert_sane_probabilities(model, table, ids=None):
    """Finite probabilities, and finite coefficients, without a warning."""
    ids = table.ids if ids is None else ids
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        p = model.predict_proba(table.X, **ids)
        lower, upper = model.predict_interval(table.X, **ids)
        of_new = model.predict_proba(table.X, agent=NEW)
    for values in (p, of_new):
        assert np.isfinite(values).all()
        assert ((values >= 0.0) & (values <= 1.0)).all()
    assert ((lower >= 0.0) & (lower <= upper) & (upper <= 1.0)).all()
    assert np.isfinite(model.coef_).all()
    assert np.abs(model.entity_intercept_).max() < 100.0
    return p[:, 1]


def test_entities_with_only_ones_or_only_zeros():
    table = Table()
    y = table.coins(table.X[:, 0])
    y[table.entity == 3], y[table.entity == 4] = 1, 0
    model = HLCRClassifier(**QUICK).fit(table.X, y, **table.ids)
    p = assert_sane_probabilities(model, table)
    assert p[table.entity == 3].mean() > 0.5 > p[table.entity == 4].mean()


@pytest.mark.parametrize("estimator", [HLCRClassifier, FedHLCRClassifier])
def test_every_entity_has_only_ones_or_only_zeros(estimator):
    table = Table()
    y = (table.entity % 2).astype(int)
    model = estimator().set_params(n_draws=30).fit(table.X, y, **table.ids)
    p = assert_sane_probabilities(model, table)
    assert p[y == 1].min() > 0.8
    assert p[y == 0].max() < 0.2


def test_a_feature_that_separates_the_classes():
    table = Table()
    y = (table.X[:, 0] > 0.0).astype(int)
    model = HLCRClassifier(**QUICK).fit(table.X, y, **table.ids)
    p = assert_sane_probabilities(model, table)
    assert ((p > 0.5) == (y == 1)).mean() > 0.97
    assert np.abs(model.coef_).max() < 1e3


def test_rare_events():
    table = Table(n_entities=200)
    y = table.coins(np.full(len(table.X), -4.6))
    model = HLCRClassifier(**QUICK).fit(table.X, y, **table.ids)
    p = assert_sane_probabilities(model, table)
    assert p.mean() == pytest.approx(y.mean(), abs=0.004)
    assert p.max() < 0.3


def test_one_event_per_entity():
    table = Table(n_entities=300, n_events=1)
    y = table.coins(2.0 * table.X[:, 0])
    p = assert_sane_probabilities(HLCRClassifier(**QUICK).fit(table.X, y, **table.ids), table)
    assert ((p > 0.5) == (y == 1)).mean() > 0.7


def test_one_agent():
    table = Table()
    y = table.coins(table.X[:, 0])
    model = HLCRClassifier(**QUICK).fit(table.X, y, entity=table.entity)
    assert_sane_probabilities(model, table, {"entity": table.entity})


def test_features_of_any_scale():
    """Standardised features do not depend on their units."""
    table = Table()
    y = table.coins(table.X[:, 0] - table.X[:, 1])
    scale = np.array([1e9, 1e-9])
    one = HLCRClassifier(**QUICK).fit(table.X, y, **table.ids)
    p = assert_sane_probabilities(one, table)
    table.X = table.X * scale
    other = HLCRClassifier(**QUICK).fit(table.X, y, **table.ids)
    np.testing.assert_allclose(assert_sane_probabilities(other, table), p, rtol=1e-5)
    np.testing.assert_allclose(other.coef_ * scale, one.coef_, rtol=1e-5)


def assert_sane_counts(model, table, ids=None, exposure=None):
    ids = table.ids if ids is None else ids
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        mean = model.predict(table.X, **ids, exposure=exposure)
        lower, upper = model.predict_interval(table.X, **ids, exposure=exposure)
        moments = model.predict_moments(table.X, **ids, exposure=exposure)
    for values in (mean, lower, upper, moments.std, model.coef_, [model.dispersion_]):
        assert np.isfinite(values).all()
    assert (mean >= 0.0).all()
    assert ((lower >= 0.0) & (lower <= upper) & (lower % 1 == 0) & (upper % 1 == 0)).all()
    return mean, lower, upper


def test_a_table_of_zeros():
    table = Table()
    model = HLCRCountRegressor(**QUICK).fit(table.X, np.zeros(len(table.X)), **table.ids)
    mean, _, upper = assert_sane_counts(model, table)
    assert mean.max() < 0.5
    assert upper.max() <= 1.0


def test_entities_of_zeros():
    table = Table()
    y = table.rng.poisson(np.exp(1.0 + 0.5 * table.X[:, 0])) * (table.entity % 4 > 0)
    mean, _, _ = assert_sane_counts(HLCRCountRegressor(**QUICK).fit(table.X, y, **table.ids), table)
    assert mean[table.entity % 4 == 0].max() < 1.0


@pytest.mark.slow
@pytest.mark.parametrize("typical", [pytest.param(1e3, marks=pytest.mark.slow), 1e6])
@pytest.mark.parametrize("estimator", [HLCRCountRegressor, FedHLCRCountRegressor])
def test_large_counts(estimator, typical):
    table = Table()
    y = table.rng.poisson(typical * np.exp(0.3 * table.X[:, 0]))
    model = estimator().set_params(n_draws=30).fit(table.X, y, **table.ids)
    mean, lower, upper = assert_sane_counts(model, table)
    np.testing.assert_allclose(mean, y, rtol=0.2)
    assert np.mean((lower <= y) & (y <= upper)) > 0.85
    np.testing.assert_allclose(model.coef_[0], [0.3, 0.0], atol=0.02)


def test_one_count_per_entity():
    table = Table(n_entities=300, n_events=1)
    y = table.rng.poisson(np.exp(table.X[:, 0]))
    mean, _, _ = assert_sane_counts(HLCRCountRegressor(**QUICK).fit(table.X, y, **table.ids), table)
    assert np.corrcoef(mean, y)[0, 1] > 0.5


ESTIMATORS = {"binary": HLCRClassifier, "count": HLCRCountRegressor}
LONG = {"n_clusters": 1, "effects": "entity", "n_sweeps": 300, "n_draws": 200}


def targets(table, target):
    own = 0.5 * table.rng.standard_normal(N_ENTITIES)[table.entity]
    eta = 0.4 + 0.6 * table.X[:, 0] + own
    return table.coins(eta) if target == "binary" else table.rng.poisson(np.exp(eta))


@pytest.mark.slow
@pytest.mark.parametrize("target", ESTIMATORS)
def test_a_frequency_of_two_is_a_repeated_row(target):
    table = Table(3)
    y, n = targets(table, target), len(table.X)
    weight = table.rng.integers(1, 3, size=n)
    rows = np.repeat(np.arange(n), weight)
    weighted = ESTIMATORS[target](**LONG).fit(table.X, y, **table.ids, sample_weight=weight)
    repeated = ESTIMATORS[target](**LONG).fit(table.X[rows], y[rows], table.agent[rows], table.entity[rows])
    means = [model.predict_moments(table.X, **table.ids).mean for model in (weighted, repeated)]
    assert np.abs(means[0] - means[1]).mean() < 0.05 * means[1].mean()
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=0.08)


@pytest.mark.parametrize("target", ESTIMATORS)
def test_a_frequency_of_zero_leaves_the_row_out(target):
    table = Table(3)
    y, kept = targets(table, target), table.rng.random(len(table.X)) < 0.7
    one = ESTIMATORS[target](**QUICK).fit(table.X, y, **table.ids, sample_weight=kept.astype(float))
    ids = {name: of[kept] for name, of in table.ids.items()}
    other = ESTIMATORS[target](**QUICK).fit(table.X[kept], y[kept], **ids)
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-6)


@pytest.mark.slow
def test_twice_the_exposure_is_half_the_rate():
    table = Table(3)
    exposure = table.rng.uniform(0.5, 3.0, size=len(table.X))
    y = table.rng.poisson(exposure * np.exp(0.5 + 0.4 * table.X[:, 0]))
    one, two = (HLCRCountRegressor(**LONG).fit(table.X, y, **table.ids, exposure=c * exposure) for c in (1.0, 2.0))
    assert one.intercept_[0] - two.intercept_[0] == pytest.approx(np.log(2.0), abs=0.04)
    assert one.intercept_[0] == pytest.approx(0.5, abs=0.15)
    np.testing.assert_allclose(two.coef_, one.coef_, atol=0.04)
    means = [assert_sane_counts(model, table, exposure=c * exposure)[0] for model, c in ((one, 1.0), (two, 2.0))]
    np.testing.assert_allclose(*means, rtol=0.1)


@pytest.mark.parametrize("n_ones", [0, 3])
@pytest.mark.parametrize("seed", [0, 2])
def test_rare_counts_do_not_make_sizes_tiny(n_ones, seed):
    """Coefficients begin far from such counts: sizes that were drawn given these would hold them there."""
    table = Table(seed)
    y = np.zeros(len(table.X), dtype=int)
    y[table.rng.choice(len(y), n_ones, replace=False)] = 1
    model = HLCRCountRegressor(n_sweeps=120, random_state=seed).fit(table.X, y, **table.ids)
    predicted = model.predict(table.X, **table.ids)
    assert predicted.mean() < y.mean() + 0.05
    assert predicted.max() < 1.0
    assert model.dispersion_ < 20.0


def test_the_score_of_constant_counts_is_not_a_number():
    table = Table()
    y = table.rng.poisson(1.0, len(table.X))
    model = HLCRCountRegressor(2, **QUICK).fit(table.X, y, **table.ids)
    assert np.isnan(model.score(table.X, np.zeros(len(y)), **table.ids))
    assert model.score(table.X, y, **table.ids) == pytest.approx(model.score(table.X, y.astype(float), **table.ids))


def test_an_exposure_is_not_a_name():
    table = Table()
    with pytest.raises(ValueError, match="`exposure` names a column, 'days', but `X` is an array without column names"):
        HLCRCountRegressor(**QUICK).fit(table.X, table.entity, **table.ids, exposure="days")


@pytest.mark.slow
def test_validation_takes_exposures():
    table, days = Table(), 1.0 + np.arange(N_ENTITIES * N_EVENTS) % 4
    y = table.rng.poisson(0.5 * days)
    held_out = table.X, y, table.agent, table.entity
    errors = []
    for validation in (held_out, (*held_out, days)):
        model = FedHLCRCountRegressor(1, rounds=30)
        model.fit(table.X, y, **table.ids, exposure=days, validation=validation)
        errors.append(model.history_["validation_mse"][-1])
    predicted = model.predict(table.X, **table.ids, exposure=days)
    assert errors[1] == pytest.approx(np.mean((predicted - y) ** 2), rel=0.1)
    assert errors[0] > 1.2 * errors[1]


def test_scores_do_not_quote_classes_that_were_not_fitted():
    table = Table()
    model = HLCRClassifier(1, **QUICK).fit(table.X, table.coins(table.X[:, 0]) == 1, **table.ids)
    with pytest.raises(ValueError, match="is not one of the two that were fitted") as caught:
        model.score(table.X, np.full(len(table.X), "SECRET"), **table.ids)
    assert "SECRET" not in str(caught.value)
