"""What a user of a notebook meets: forgotten ids, scores that say what they are, predictions with an index."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score

import fedhlcr
from fedhlcr import NEW, HLCRClassifier, HLCRCountRegressor, HLCRRegressor
from fedhlcr.exceptions import ArgumentError, ForgottenIdsWarning
from tests.estimators.test_dataframes import CASES, IDS, NAMES, features, fitted, shop


@pytest.fixture(scope="module")
def frame():
    return features(shop(), "sales").drop(columns=["brand", "size"])


@pytest.fixture(scope="module")
def model(frame):
    return HLCRRegressor(n_sweeps=12, max_clusters=4).fit(frame, "sales", **IDS)


METHODS = {
    "predict": lambda model, X, **ids: model.predict(X, **ids),
    "predict_interval": lambda model, X, **ids: model.predict_interval(X, **ids),
    "predict_moments": lambda model, X, **ids: model.predict_moments(X, **ids).std,
    "score": lambda model, X, **ids: model.score(X, **ids),
    "log_density": lambda model, X, **ids: model.log_density(X, **ids),
}


@pytest.mark.parametrize("method", METHODS)
def test_forgotten_ids_give_a_warning(model, frame, method):
    call = METHODS[method]
    no_agent, no_entity = frame.drop(columns="store"), frame.drop(columns="product")
    with pytest.warns(ForgottenIdsWarning, match="4 agents, but no `agent` was passed, and `X` has no column 'store'"):
        forgotten = call(model, no_agent)
    np.testing.assert_array_equal(call(model, no_agent, agent=NEW), forgotten)
    with pytest.warns(ForgottenIdsWarning, match=r"no `entity` was passed.*new entity.*entity=fedhlcr\.NEW says so"):
        forgotten = call(model, no_entity)
    np.testing.assert_array_equal(call(model, no_entity, entity=NEW), forgotten)


@pytest.mark.parametrize(("target", "kind"), CASES, ids=NAMES)
def test_forgotten_ids_of_every_estimator(target, kind):
    table = features(shop(), target)
    model = fitted(kind, table, target)
    with pytest.warns(ForgottenIdsWarning, match="agent=fedhlcr.NEW says so"):
        forgotten = model.predict(table.drop(columns="store"))
    np.testing.assert_array_equal(model.predict(table, agent=NEW), forgotten)
    assert model.score(table, agent=NEW).n_new_agents == len(table)
    if hasattr(model, "predict_proba"):
        with pytest.warns(ForgottenIdsWarning, match="agent=fedhlcr.NEW says so"):
            model.predict_proba(table.drop(columns="store"))


def test_who_cannot_have_forgotten_ids_is_not_warned(model, frame, tmp_path):
    X, y = frame[["price", "promo"]].to_numpy(float), frame["sales"].to_numpy()
    # without ids, and with agents only
    HLCRRegressor(n_sweeps=4).fit(X, y).predict(X)
    agents_only = HLCRRegressor(n_sweeps=4).fit(X, y, agent=frame["store"])
    agents_only.predict(X, agent=frame["store"])
    # one agent
    one = HLCRRegressor(n_sweeps=4).fit(X, y, agent=["only"] * len(y), entity=frame["product"])
    known = one.predict(X, entity=frame["product"])
    np.testing.assert_array_equal(known, one.predict(X, agent=["only"] * len(y), entity=frame["product"]))
    assert (one.predict(X, agent=NEW) != known).any()
    # a model that knows nobody
    model.save(tmp_path / "public", public=True)
    fedhlcr.load(tmp_path / "public").predict(frame.drop(columns=["store", "product"]))
    # agents that are new have new entities only
    model.predict(frame.drop(columns="product"), agent=["nobody"] * len(frame))
    with pytest.raises(ArgumentError, match="is for predictions"):
        HLCRRegressor().fit(X, y, agent=NEW)
    assert repr(pickle.loads(pickle.dumps(NEW))) == "fedhlcr.NEW"
    assert pickle.loads(pickle.dumps(NEW)) is NEW


def test_score_says_what_it_scored(model, frame):
    table = frame.copy()
    table.loc[:9, "product"] = 99
    table.loc[10:12, "store"] = "far"
    score = model.score(table)
    assert repr(score) == str(score)
    assert str(score) == (
        f"{float(score):.3f} (R² of 240 events; 227 of known entities, 10 of new entities, 3 of new agents)"
    )
    assert (score.metric, score.n_events) == ("R²", 240)
    assert (score.n_known, score.n_new_entities, score.n_new_agents) == (227, 10, 3)
    predicted = model.predict(table)
    mean_square = np.mean((table["sales"] - predicted) ** 2)
    assert score == pytest.approx(1.0 - mean_square / table["sales"].var(ddof=0))


def test_score_is_a_number(model, frame):
    score = model.score(frame)
    assert isinstance(score, float)
    assert f"{score:.3f}" == f"{float(score):.3f}"
    assert np.mean([score, score]) == float(score)
    assert score + 1 == float(score) + 1
    copy = pickle.loads(pickle.dumps(score))
    assert (copy, repr(copy), copy.n_known) == (score, repr(score), score.n_known)


def test_scores_in_cross_validation_and_grid_search(frame):
    X, y = frame[["price", "promo"]], frame["sales"]
    model = HLCRRegressor(n_sweeps=8, max_clusters=2)
    scores = cross_val_score(model, X, y, cv=KFold(3))
    assert scores.dtype == np.float64
    assert scores.mean() > cross_val_score(LinearRegression(), X, y, cv=KFold(3)).mean() - 0.2
    search = GridSearchCV(model, {"n_clusters": [1, 2]}, cv=KFold(2)).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_predictions_keep_the_index(model, frame):
    table = frame.set_axis([f"row {n}" for n in range(len(frame))])
    mean, std = model.predict(frame, return_std=True)
    series = model.predict(table, output="pandas")
    pd.testing.assert_series_equal(series, pd.Series(mean, index=table.index, name="prediction"))
    both = model.predict(table, return_std=True, output="pandas")
    pd.testing.assert_frame_equal(both, pd.DataFrame({"prediction": mean, "std": std}, index=table.index))
    interval = model.predict_interval(table, output="pandas")
    lower, upper = model.predict_interval(frame)
    pd.testing.assert_frame_equal(interval, pd.DataFrame({"lower": lower, "upper": upper}, index=table.index))
    other = model.predict_interval(pl.from_pandas(frame), output="polars")
    assert other.equals(pl.DataFrame({"lower": lower, "upper": upper}))
    assert isinstance(model.predict(frame, output="polars"), pl.Series)


def test_set_output_is_like_that_of_scikit_learn(model, frame):
    own = clone(model).set_output(predict="pandas").fit(frame, "sales", **IDS)
    assert isinstance(own.predict(frame), pd.Series)
    assert isinstance(own.predict(frame, output="polars"), pl.Series)
    assert isinstance(own.predict(frame, output="default"), np.ndarray)
    assert isinstance(clone(own).fit(frame, "sales", **IDS).predict(frame), pd.Series)
    assert float(own.score(frame)) == float(model.score(frame))
    assert isinstance(own.set_output().predict(frame), pd.Series)
    assert isinstance(own.set_output(predict="default").predict(frame), np.ndarray)
    assert isinstance(model.predict(frame), np.ndarray)
    for call in (lambda: own.set_output(predict="arrow"), lambda: model.predict(frame, output="arrow")):
        with pytest.raises(ArgumentError, match="must be 'pandas', 'polars' or 'default', but is 'arrow'"):
            call()


def test_probabilities_are_named_after_the_classes():
    table = features(shop(), "sold")
    model = fitted(HLCRClassifier, table, "sold")
    probabilities = model.predict_proba(table, output="pandas")
    assert list(probabilities.columns) == ["no", "yes"]
    np.testing.assert_array_equal(probabilities.to_numpy(), model.predict_proba(table))
    assert set(model.predict(table, output="polars").unique()) <= {"no", "yes"}
    model.set_output(predict="pandas")
    assert model.decision_function(table).shape == (len(table),)
    assert model.predict_log_proba(table).shape == (len(table), 2)


def test_exposure_may_be_a_column_and_is_remembered():
    table = features(shop(), "count").assign(days=shop()["days"])
    settings = {"n_sweeps": 12, "max_clusters": 4, "categories": ["brand"]}
    model = HLCRCountRegressor(**settings).fit(table, "count", **IDS, exposure="days")
    assert model.recipe_.exposure == "days"
    by_array = HLCRCountRegressor(**settings)
    by_array.fit(table.drop(columns="days"), "count", **IDS, exposure=table["days"])
    np.testing.assert_array_equal(model.coef_, by_array.coef_)
    mean = model.predict(table)
    np.testing.assert_array_equal(mean, by_array.predict(table, exposure="days"))
    np.testing.assert_allclose(model.predict(table, exposure=1.0) * table["days"], mean)
    assert float(model.score(table)) == float(by_array.score(table, exposure=table["days"]))


def test_names_of_columns_are_checked(model, frame):
    with pytest.raises(ArgumentError, match="`y` names the column 'profit', but `X` has no such column"):
        model.score(frame, "profit")
    with pytest.raises(ArgumentError, match="`y` names a column, 'sales', but `X` is an array"):
        HLCRRegressor().fit(frame[["price"]].to_numpy(), "sales")
    with pytest.raises(ValueError, match="the target y is None"):
        model.score(frame.drop(columns="sales"))


def test_a_series_gives_its_name_to_the_target(frame):
    model = HLCRRegressor(n_sweeps=12, max_clusters=4).fit(frame.drop(columns="sales"), frame["sales"], **IDS)
    assert model.recipe_.target == "sales"
    assert model.score(frame) == model.score(frame, frame["sales"])
