"""Estimators with curves: fits, predictions, files and errors."""

from __future__ import annotations

from html import unescape

import numpy as np
import pandas as pd
import pytest

import fedhlcr
from fedhlcr import NEW, HLCRRegressor
from fedhlcr.analysis.selection import compare_cluster_counts
from fedhlcr.exceptions import ArgumentError
from fedhlcr.posterior.fitted_model import check_model
from fedhlcr.report import render_report
from fedhlcr.storage import model_file
from tests.problems import PAPER


def bent_table(seed=0, n_agents=30, n_entities=4, n_events=12, bend=1.0):
    """Two clusters, whose regressions bend differently in `age` and not at all in `height` and `member`."""
    rng = np.random.default_rng(seed)
    n = n_agents * n_entities * n_events
    agent = np.repeat(np.arange(n_agents), n_entities * n_events)
    entity = np.repeat(np.arange(n_agents * n_entities), n_events)
    cluster = (rng.random(n_agents * n_entities) < 0.4).astype(int)[entity]
    X = pd.DataFrame(
        {"age": 40.0 + 12.0 * rng.normal(size=n), "height": rng.normal(size=n), "member": rng.integers(0, 2, n) * 1.0}
    )
    t = (X["age"].to_numpy() - 40.0) / 12.0
    bent = np.where(cluster == 0, np.sin(2.0 * t), -0.7 * t**2)
    y = bend * bent + np.where(cluster == 0, 1.0, -1.0) * X["height"].to_numpy() + 0.3 * rng.normal(size=n)
    return X, y, agent, entity


SHORT = {"n_sweeps": 60, "n_draws": 20}


@pytest.fixture(scope="module")
def bent():
    X, y, agent, entity = bent_table()
    model = HLCRRegressor(curves="auto", **SHORT).fit(X, y, agent=agent, entity=entity)
    return model, X, y, agent, entity


def test_curves_beat_straight_lines_where_the_truth_bends():
    X, y, agent, entity = bent_table(n_events=24)
    test = np.arange(len(y)) % 2 == 0
    scores = {}
    for curves in ("none", "auto"):
        fit = HLCRRegressor(curves=curves, **SHORT)
        fit.fit(X[~test], y[~test], agent=agent[~test], entity=entity[~test])
        errors = y[test] - fit.predict(X[test], agent=agent[test], entity=entity[test])
        scores[curves] = (errors**2).mean()
    assert scores["auto"] < 1.5 * 0.3**2
    assert scores["auto"] < 0.5 * scores["none"]


@pytest.mark.parametrize(("options", "most"), [(PAPER, 1.06), ({}, 1.2)], ids=["paper", "default"])
@pytest.mark.parametrize("seed", range(3))
def test_useless_curves_cost_little_with_few_events(seed, options, most):
    X, y, agent, entity = bent_table(seed, n_agents=10, n_entities=4, n_events=8, bend=0.0)
    train = np.arange(len(y)) % 2 == 0
    errors = {}
    for curves in ("none", "auto"):
        fit = HLCRRegressor(2, curves=curves, **SHORT, **options)
        fit.fit(X[train], y[train], agent=agent[train], entity=entity[train])
        errors[curves] = ((y - fit.predict(X, agent=agent, entity=entity))[~train] ** 2).mean()
    assert errors["auto"] < most * errors["none"]


def test_attributes_keep_the_users_features(bent):
    model, X, *_ = bent
    assert model.n_features_in_ == 3
    assert model.coef_.shape == (model.n_clusters_, 3)
    assert model.feature_means_.shape == model.feature_spreads_.shape == (3,)
    assert model.coef_mean_.shape == model.coef_scale_.shape == (4,)
    assert model.curves_.columns.tolist() == [0, 1]
    np.testing.assert_allclose(model.feature_means_, X.mean(), rtol=1e-9)
    assert "curves" in str(model.summary())


def test_prediction_is_intercept_line_and_curves(bent):
    model, X, *_ = bent
    expanded = model.curves_.appended(X.to_numpy())
    by_cluster = model.intercept_ + X.to_numpy() @ model.coef_.T + expanded @ model.curve_coef_.T
    # a new agent's prediction mixes the clusters by their weights; two clusters are stable over the draws
    np.testing.assert_allclose(model.predict(X, agent=NEW), by_cluster @ model.cluster_weights_, atol=0.05)


def test_curve_follows_the_truth(bent):
    model, X, *_ = bent
    sine = int(np.argmax(model.coef_[:, 1]))
    line = model.curve("age", sine, x=np.linspace(20.0, 60.0, 21))
    truth = np.sin(2.0 * (line.x - 40.0) / 12.0)
    at_mean = np.sin(2.0 * (X["age"].mean() - 40.0) / 12.0)
    np.testing.assert_allclose(line.effect, truth - at_mean, atol=0.3)
    assert (line.lower <= line.effect).all()
    assert (line.effect <= line.upper).all()
    assert (line.upper - line.lower).max() < 0.3
    default = model.curve(0, sine)
    assert default.x.shape == (101,)
    straight = model.curve("member", sine)
    np.testing.assert_allclose(np.diff(straight.effect, 2), 0.0, atol=1e-12)


def test_predictions_beyond_the_data_go_on_linearly(bent):
    model, X, *_ = bent
    rows = pd.concat([X.mean().to_frame().T] * 3, ignore_index=True)
    rows["age"] = [150.0, 250.0, 350.0]
    first, second, third = model.predict(rows, agent=NEW)
    assert third - second == pytest.approx(second - first, rel=1e-9)


def test_a_large_mean_does_not_matter():
    X, y, agent, entity = bent_table(n_agents=10)
    far = X.assign(age=X["age"] + 2.0**27)
    near = X.assign(age=far["age"] - 2.0**27)
    ids = {"agent": agent, "entity": entity}
    predictions = [HLCRRegressor(2, curves="auto", **SHORT).fit(T, y, **ids).predict(T, **ids) for T in (near, far)]
    np.testing.assert_allclose(*predictions, atol=1e-6)


@pytest.mark.parametrize("public", [False, True])
def test_files_round_trip(bent, tmp_path, public):
    model, X, y, agent, entity = bent
    model.save(tmp_path / "model", public=public)
    loaded = fedhlcr.load(tmp_path / "model")
    assert loaded.curves == "auto"
    np.testing.assert_array_equal(loaded.predict(X, agent=NEW), model.predict(X, agent=NEW))
    np.testing.assert_array_equal(loaded.curve_coef_, model.curve_coef_)
    if not public:
        known = loaded.predict(X, agent=agent, entity=entity)
        np.testing.assert_array_equal(known, model.predict(X, agent=agent, entity=entity))
    adapted = loaded.adapt(X[:12], y[:12], agent=["new"] * 12, entity=entity[:12])
    same = model.predict(X[:12], agent=agent[:12], entity=entity[:12])
    learned = adapted.predict(X[:12], agent=["new"] * 12, entity=entity[:12])
    assert np.abs(learned - same).mean() < np.abs(loaded.predict(X[:12], agent=NEW) - same).mean()


def test_files_without_curves_do_not_mention_them(small):
    table, _ = small
    model = HLCRRegressor(n_sweeps=4).fit(table.X, table.y, agent=table.agent, entity=table.entity)
    # apart from the facts for `fedhlcr inspect`, which list every setting
    record = model_file.to_record(check_model(model))
    assert not any("curve" in name for name in record)
    assert "curves" not in record["about"]


def test_columns_by_name_and_by_position():
    X, y, agent, entity = bent_table(n_agents=4)
    ids = {"agent": agent, "entity": entity}
    by_name = HLCRRegressor(2, curves=["age"], **SHORT).fit(X, y, **ids)
    by_position = HLCRRegressor(2, curves=(0,), **SHORT).fit(X.to_numpy(), y, **ids)
    assert by_name.curves_.columns.tolist() == [0]
    np.testing.assert_array_equal(by_name.curve_coef_, by_position.curve_coef_)


@pytest.mark.parametrize(
    ("curves", "plain"),
    [
        (np.array([1, 0]), [1, 0]),
        (np.array(["height", "age"]), ["height", "age"]),
        (pd.Index(["age", "height"]), ["age", "height"]),
        (range(2), [0, 1]),
    ],
    ids=["positions", "names", "index", "range"],
)
def test_curves_may_be_any_sequence_of_columns(tmp_path, curves, plain):
    X, y, agent, entity = bent_table(n_agents=4)
    model = HLCRRegressor(2, curves=curves, n_sweeps=6, n_draws=2).fit(X, y, agent=agent, entity=entity)
    assert model.curves_.columns.tolist() == [0, 1]
    model.save(tmp_path / "m")
    assert fedhlcr.load(tmp_path / "m").curves == plain
    assert f"curves={plain!r}" in unescape(render_report(model))


@pytest.mark.parametrize(
    ("curves", "message"),
    [
        (["size"], "'size', but the features are 'age', 'height' and 'member'"),
        ([3], "position 3, but there are 3 features"),
        ([True], "type bool"),
        (["member"], "the feature 'member', but it has too few distinct values"),
        (np.array(1), "an array with 0 dimensions"),
    ],
)
def test_errors_name_the_column(curves, message):
    X, y, agent, entity = bent_table(n_agents=2)
    with pytest.raises(ArgumentError, match=message):
        HLCRRegressor(curves=curves).fit(X, y, agent=agent, entity=entity)


def test_names_need_a_dataframe():
    X, y, agent, entity = bent_table(n_agents=2)
    with pytest.raises(ArgumentError, match="the feature at position 2, but it has too few distinct values"):
        HLCRRegressor(curves=[2]).fit(X.to_numpy(), y, agent=agent, entity=entity)
    with pytest.raises(ArgumentError, match="no names"):
        HLCRRegressor(curves=["age"]).fit(X.to_numpy(), y, agent=agent, entity=entity)
    with pytest.raises(ValueError, match="'curves' parameter"):
        HLCRRegressor(curves="age").fit(X, y, agent=agent, entity=entity)


def test_options_that_touch_the_prior_work_with_curves():
    X, y, agent, entity = bent_table(n_agents=6)
    ids = {"agent": agent, "entity": entity}
    for options in (
        {"coef_scale": 1.0},
        {"coef_prior": "zero_mean"},
        {"sampler": "collapsed"},
        {"fit_intercept": False},
        {"standardize": False},
    ):
        model = HLCRRegressor(2, curves="auto", **SHORT, **options).fit(X, y, **ids)
        assert model.score(X, y, **ids) > 0.8, options


def test_numbers_of_clusters_are_compared_with_curves():
    X, y, agent, entity = bent_table(n_agents=10)
    estimator = HLCRRegressor(curves="auto", **SHORT, **PAPER)
    one, two = compare_cluster_counts(X, y, agent, entity, counts=(1, 2), n_splits=1, estimator=estimator).rows
    assert two.evidence > one.evidence
    assert two.log_density > one.log_density


@pytest.mark.slow
def test_numbers_of_clusters_are_compared_with_curves_by_name():
    X, y, agent, entity = bent_table(n_agents=6)
    densities = []
    for table, curves in ((X, ["age"]), (X, [0]), (X.to_numpy(), [0])):
        estimator = HLCRRegressor(curves=curves, **SHORT, **PAPER)
        found = compare_cluster_counts(table, y, agent, entity, counts=[2], n_splits=1, estimator=estimator)
        densities.append(found.rows[0].log_density)
        assert estimator.curves == curves
    assert len(set(densities)) == 1
    for table, words in ((X, "the features are"), (X.to_numpy(), "have no names")):
        with pytest.raises(ArgumentError, match=words):
            compare_cluster_counts(table, y, agent, entity, estimator=HLCRRegressor(curves=["weight"]))
