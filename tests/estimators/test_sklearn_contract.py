"""scikit-learn's own checks, and how the estimator lives with its tools."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from fedhlcr import FedHLCRClassifier, FedHLCRRegressor, HLCRClassifier, HLCRRegressor, hold_out_events
from fedhlcr.datasets import make_hlcr
from tests.problems import PAPER

EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": "a weight of 2 is one entity seen twice, not two entities",
    "check_dataframe_column_names_consistency": "columns are found by name, in any order",
}


@parametrize_with_checks(
    [
        HLCRRegressor(n_sweeps=60, max_clusters=8),
        FedHLCRRegressor(rounds=60, max_clusters=8),
        HLCRClassifier(n_sweeps=60, max_clusters=8),
        FedHLCRClassifier(rounds=60, max_clusters=8),
    ],
    expected_failed_checks=lambda _: EXPECTED_FAILURES,
)
def test_estimator_checks(estimator, check):
    check(estimator)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def test_clone_and_params_round_trip():
    model = HLCRRegressor(n_clusters=3, noise_scale=0.4, n_chains=2)
    copy = clone(model).set_params(n_clusters=5)
    assert copy.get_params() == {**model.get_params(), "n_clusters": 5}


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_clusters": 0}, "n_clusters"),
        ({"n_clusters": "many"}, "n_clusters"),
        ({"noise_scale": -1.0}, "noise_scale"),
        ({"sampler": "nuts"}, "sampler"),
        ({"n_sweeps": 0}, "n_sweeps"),
    ],
)
def test_bad_parameters_are_named(small, params, message):
    table, _ = small
    with pytest.raises(ValueError, match=f"The '{message}' parameter of HLCRRegressor must be"):
        HLCRRegressor(**params).fit(table.X, table.y)


def test_grid_search_routes_ids_to_fit_and_score(small, routing):
    table, truth = small
    model = (
        HLCRRegressor(**PAPER, n_sweeps=60)
        .set_fit_request(agent=True, entity=True)
        .set_score_request(agent=True, entity=True)
    )
    search = GridSearchCV(model, {"n_clusters": [1, len(set(truth.labels))]}, cv=KFold(3, shuffle=True, random_state=0))
    search.fit(table.X, table.y, agent=table.agent, entity=table.entity)
    one, right = search.cv_results_["mean_test_score"]
    assert search.best_params_["n_clusters"] > 1
    # were the ids not routed, more clusters would not help
    assert right > one + 0.2


def test_cross_validate_routes_ids(small, routing):
    table, _ = small
    model = (
        HLCRRegressor(n_sweeps=60).set_fit_request(agent=True, entity=True).set_score_request(agent=True, entity=True)
    )
    ids = {"agent": table.agent, "entity": table.entity}
    scores = cross_validate(model, table.X, table.y, cv=KFold(3, shuffle=True, random_state=0), params=ids)[
        "test_score"
    ]
    assert scores.min() > 0.8


def test_pipeline_with_scaler(small, routing):
    table, _ = small
    model = (
        HLCRRegressor(n_sweeps=60).set_fit_request(agent=True, entity=True).set_predict_request(agent=True, entity=True)
    )
    pipeline = make_pipeline(StandardScaler(), model)
    ids = {"agent": table.agent, "entity": table.entity}
    prediction = pipeline.fit(table.X, table.y, **ids).predict(table.X, **ids)
    assert np.corrcoef(prediction, table.y)[0, 1] > 0.95


@pytest.mark.parametrize(
    "transformer",
    [SplineTransformer(n_knots=8), Nystroem(gamma=2.0, n_components=25, random_state=0)],
    ids=["spline", "nystroem"],
)
def test_features_in_front_make_each_cluster_non_linear(transformer):
    rng = np.random.default_rng(0)
    table, truth = make_hlcr(30, 4, 25, 1, 2, 0.1, agent_concentration=5.0, random_state=4)
    x = rng.uniform(-2, 2, len(table))
    curves = np.stack([np.sin(2 * x), np.abs(x) - 1])
    y = curves[truth.event_labels, np.arange(len(x))] + 0.1 * rng.standard_normal(len(x))
    train, test = hold_out_events(table.agent, table.entity)
    features = transformer.fit(x[train, None]).transform(x[:, None])
    model = HLCRRegressor(n_clusters=2, n_sweeps=100)
    model.fit(features[train], y[train], agent=table.agent[train], entity=table.entity[train])
    r2 = model.score(features[test], y[test], agent=table.agent[test], entity=table.entity[test])
    linear = LinearRegression().fit(features[train], y[train]).score(features[test], y[test])
    assert r2 > 0.95 > linear + 0.2
