"""Tidy tables say what the fitted attributes, the summary and the report say, in the user's dataframe library."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone

import fedhlcr
from fedhlcr import FedHLCRRegressor, HLCRClassifier, HLCRCountRegressor, HLCRRegressor
from fedhlcr.analysis.effects import (
    change_intervals,
    coef_intervals,
    entity_differences,
    entity_shares,
    step_ratios,
    step_sizes,
    unit_changes,
)
from fedhlcr.datasets import make_hlcr
from fedhlcr.exceptions import ArgumentError
from fedhlcr.posterior.pointwise import known_entities
from fedhlcr.report.findings import Findings

ESTIMATORS = {
    "real": HLCRRegressor(n_sweeps=60, effects="entity+agent", n_clusters=2),
    "plain": HLCRRegressor(n_sweeps=60, effects="none", noise="common", max_clusters=6),
    "federated": FedHLCRRegressor(rounds=60, max_clusters=6),
    "binary": HLCRClassifier(n_sweeps=60, n_clusters=2),
    "count": HLCRCountRegressor(n_sweeps=60, n_clusters=2),
}


@pytest.fixture(scope="module", params=list(ESTIMATORS))
def model(request):
    target = request.param if request.param in ("binary", "count") else "real"
    table, _ = make_hlcr(n_agents=8, n_features=3, n_clusters=2, random_state=3, target=target)
    X = pd.DataFrame(table.X, columns=["price", "age", "size"])
    X["shop"], X["product"] = [f"shop {a}" for a in table.agent], table.entity
    return clone(ESTIMATORS[request.param]).fit(X, table.y, agent="shop", entity="product")


def test_coefficients(model):
    table = model.coef_table(0.8)
    assert list(table["feature"][:4]) == ["intercept", "price", "age", "size"]
    shape = (model.n_clusters_, 4)
    assert list(table["cluster"]) == list(np.repeat(np.arange(shape[0]), 4))
    np.testing.assert_array_equal(table["mean"].to_numpy().reshape(shape)[:, 1:], model.coef_)
    np.testing.assert_array_equal(table["mean"].to_numpy().reshape(shape)[:, 0], model.intercept_)
    for name, ends in zip(("lower", "upper"), coef_intervals(model, 0.8), strict=True):
        np.testing.assert_array_equal(table[name].to_numpy().reshape(shape)[:, 1:], ends)
    assert list(table["is_clear"]) == list((table["lower"] > 0) | (table["upper"] < 0))
    inside = (table["lower"] <= table["mean"]) & (table["mean"] <= table["upper"])
    assert inside.mean() > 0.9
    wide = model.coef_table(0.99)
    assert ((wide["upper"] - wide["lower"]) >= (table["upper"] - table["lower"])).all()
    # a central 80 % interval of about normal draws is 2.56 standard deviations wide
    width = ((table["upper"] - table["lower"]) / table["std"]).median()
    assert 1.8 < width < 3.3


def test_changes_and_ratios_are_those_of_the_report(model):
    table = model.coef_table()
    slopes = table[table["feature"] != "intercept"]
    rest = table[table["feature"] == "intercept"]
    if model.family.name == "real":
        lower, upper = change_intervals(model)
        expected = {"change": unit_changes(model), "change_lower": lower, "change_upper": upper}
    else:
        name = "odds_ratio" if model.family.name == "binary" else "rate_ratio"
        names = ("step_ratio", "step_ratio_lower", "step_ratio_upper")
        expected = {name: np.exp(model.coef_), **dict(zip(names, step_ratios(model), strict=True))}
        expected["step"] = np.tile(step_sizes(model), model.n_clusters_)
        assert (slopes[f"{name}_lower"] <= slopes[f"{name}_upper"]).all()
    for name, values in expected.items():
        np.testing.assert_array_equal(slopes[name], np.ravel(values))
        assert rest[name].isna().all()


def test_clusters(model):
    table, findings = model.cluster_table(), Findings(model)
    np.testing.assert_array_equal(table["share"], entity_shares(model))
    np.testing.assert_array_equal(table["weight"], model.cluster_weights_)
    assert list(table["n_entities"]) == list(np.bincount(model.labels_, minlength=model.n_clusters_))
    for cluster in findings.clusters:
        row = table.iloc[cluster.number]
        assert (row["share"], row["weight"], row["level"]) == (cluster.share, cluster.weight, cluster.level)
    draws = model.posterior_.draws
    counts, weights = model.alignment_.by_draw(draws.entity_counts), model.alignment_.by_draw(np.exp(draws.log_weights))
    for name, values in (("share", counts / counts.sum(axis=1, keepdims=True)), ("weight", weights)):
        for end, level in (("lower", 0.05), ("upper", 0.95)):
            expected = np.quantile(values, level, axis=0, method="inverted_cdf")
            np.testing.assert_allclose(table[f"{name}_{end}"], expected, rtol=1e-12)
    assert (table["level_lower"] < table["level_upper"]).all()
    for k, certainty in enumerate(table["certainty"]):
        np.testing.assert_allclose(certainty, findings.entities.certainty[findings.entities.label == k].mean())


def test_entities(model):
    table, found = model.entity_table(), Findings(model).entities
    assert list(zip(table["shop"], table["product"], strict=True)) == model.pair_ids_
    assert table["product"].dtype == np.int64
    np.testing.assert_array_equal(table["cluster"], model.labels_)
    np.testing.assert_array_equal(table["probability"], found.certainty)
    np.testing.assert_array_equal(table["second_cluster"], found.runner_up)
    np.testing.assert_array_equal(table["second_probability"], found.runner_up_probability)
    np.testing.assert_array_equal(table["n_events"], found.n_events)
    np.testing.assert_array_equal(table[["price", "age", "size"]], model.entity_coef_)
    np.testing.assert_array_equal(table["intercept_std"], model.entity_intercept_std_)
    assert ("noise" in table) == (model.family.name == "real")
    probabilities = model.responsibilities(*(list(ids) for ids in zip(*model.pair_ids_, strict=True)))
    np.testing.assert_allclose(table["probability"], probabilities[np.arange(len(table)), model.labels_], atol=1e-12)


def test_intervals_of_entities_are_quantiles_over_draws_and_labels(model):
    """The oracle samples labels and effects of one entity in each draw, as `to_inference_data` does."""
    posterior, table, entity = model.posterior_, model.entity_table(0.9), np.array([3])
    rng, n_samples, values = np.random.default_rng(0), 200, []
    weights = posterior.label_weights(posterior.memory.entities.index.agent_of[entity], entity)[0]
    for draw, own in enumerate(weights):
        known = known_entities(posterior, np.repeat(entity, n_samples), draw)
        labels = rng.choice(len(own), n_samples, p=own / own.sum())
        normals = rng.standard_normal((n_samples, posterior.layout.n_coef))
        values.append(
            posterior.likelihood.entity_coef(posterior.draws.globals(draw), known._replace(labels=labels), normals)
        )
    slopes, _ = posterior.standardization.to_user_units(posterior.layout, np.concatenate(values))
    for f, name in enumerate(("price", "age", "size")):
        sampled, small = slopes[:, f], 0.02 * table[f"{name}_std"][3]
        np.testing.assert_allclose(sampled.mean(), table[name][3], atol=10 * small)
        np.testing.assert_allclose(sampled.std(), table[f"{name}_std"][3], rtol=0.15)
        for end, level in (("lower", 0.05), ("upper", 0.95)):
            # where draws are single points, many samples are exactly at the end
            at = table[f"{name}_{end}"][3]
            assert (sampled < at - small).mean() - 0.02 < level < (sampled < at + small).mean() + 0.02


def test_long_form_has_the_same_numbers(model):
    wide, long = model.entity_table(0.8), model.entity_table(0.8, long=True)
    assert list(long) == ["shop", "product", "cluster", "feature", "mean", "std", "lower", "upper"]
    assert len(long) == 4 * len(wide)
    for name in ("intercept", "price", "size"):
        own = long[long["feature"] == name]
        np.testing.assert_array_equal(own["mean"], wide[name])
        for end in ("std", "lower", "upper"):
            np.testing.assert_array_equal(own[end], wide[f"{name}_{end}"])


def test_agents(model):
    table, agents = model.agent_table(), Findings(model).agents
    assert list(table["shop"]) == list(model.agent_ids_)
    assert list(table["n_entities"]) == list(agents.n_entities)
    np.testing.assert_array_equal(table["n_events"], agents.n_events)
    np.testing.assert_array_equal(table["cluster"], agents.main_cluster)
    np.testing.assert_array_equal(table["effective_clusters"], agents.effective_clusters())
    for k in range(model.n_clusters_):
        np.testing.assert_array_equal(table[f"share_{k}"], agents.weights[:, k])
        np.testing.assert_array_equal(table[f"weight_{k}"], model.agent_weights_[:, k])
    found = entity_differences(model)
    has_effects = found is not None and bool(found.has_agent_effect.any())
    assert any(name.endswith("_effect") for name in table) == has_effects


def test_effects_of_agents_are_recovered():
    rng = np.random.default_rng(1)
    agent, entity = np.repeat(np.arange(12), 60), np.repeat(np.arange(12 * 6), 10)
    steps = 3.0 * rng.standard_normal(12)
    X = rng.standard_normal((720, 1))
    y = X[:, 0] + steps[agent] + 0.3 * rng.standard_normal(720)
    model = HLCRRegressor(1, effects="entity+agent", n_sweeps=120).fit(X, y, agent=agent, entity=entity)
    table = model.agent_table(0.95)
    assert np.corrcoef(table["level_effect"], steps)[0, 1] > 0.99
    assert (table["level_effect_lower"] < table["level_effect_upper"]).all()


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_library_is_that_of_the_fit(library):
    table, _ = make_hlcr(6, 3, 5, 2, 2, 0.3, random_state=1)
    frame = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}[library](
        {"a": table.X[:, 0], "b": table.X[:, 1]}
    )
    model = HLCRRegressor(2, n_sweeps=10).fit(frame, table.y, agent=table.agent, entity=table.entity)
    kinds = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.Table}
    assert model.frame_library_ == library
    for method in (model.coef_table, model.cluster_table, model.entity_table, model.agent_table):
        assert isinstance(method(), kinds[library])
        for other, kind in kinds.items():
            assert isinstance(method(library=other), kind)
    assert (
        model.entity_table(library="polars").to_dict(as_series=False)
        == model.entity_table(library="pyarrow").to_pydict()
    )
    assert isinstance(model.fit(table.X, table.y, agent=table.agent, entity=table.entity).coef_table(), pd.DataFrame)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
@pytest.mark.parametrize(
    "ids",
    [
        [datetime.date(2020, 1, day) for day in (1, 2, 3)],
        [1.5, 2.5, 3.5],
        [2**70, 5, 7],
        ["a", 1, (2, 3)],
        [True, False, "yes"],
    ],
    ids=["dates", "floats", "large", "mixed", "truth"],
)
def test_ids_of_any_type(library, ids):
    rng = np.random.default_rng(0)
    entity = np.empty(60, dtype=object)
    for row in range(60):
        entity[row] = ids[row % 3]
    X, y = rng.standard_normal((60, 1)), rng.standard_normal(60)
    model = HLCRRegressor(1, n_sweeps=10).fit(X, y, entity=list(entity))
    table = model.entity_table(library=library)
    assert len(table["entity"]) == 3
    if library == "pandas":
        assert [str(value) for value in table["entity"]] == [str(entity) for _, entity in model.pair_ids_]


def test_public_models_have_clusters_only(tmp_path):
    table, _ = make_hlcr(6, 3, 5, 2, 2, 0.3, random_state=1)
    fitted = HLCRRegressor(2, n_sweeps=10).fit(table.X, table.y, agent=table.agent, entity=table.entity)
    fitted.save(tmp_path / "m", public=True)
    public = fedhlcr.load(tmp_path / "m")
    pd.testing.assert_frame_equal(public.coef_table(), fitted.coef_table())
    assert public.cluster_table()["n_entities"].isna().all()
    np.testing.assert_array_equal(public.cluster_table()["share"], fitted.cluster_table()["share"])
    for method in (public.entity_table, public.agent_table):
        with pytest.raises(ArgumentError, match="the model is public"):
            method()


@pytest.mark.parametrize("bad", [{"level": 0.0}, {"level": "x"}, {"library": "numpy"}])
def test_bad_arguments(bad):
    table, _ = make_hlcr(6, 3, 5, 2, 2, 0.3, random_state=1)
    model = HLCRRegressor(2, n_sweeps=10).fit(table.X, table.y, agent=table.agent, entity=table.entity)
    with pytest.raises(ArgumentError, match=f"`{next(iter(bad))}` must"):
        model.coef_table(**bad)


def test_one_draw_has_no_intervals():
    table, _ = make_hlcr(6, 3, 5, 2, 2, 0.3, random_state=1)
    model = HLCRRegressor(2, n_sweeps=10, n_draws=1).fit(table.X, table.y, agent=table.agent, entity=table.entity)
    coef = model.coef_table()
    assert coef[["std", "lower", "upper"]].isna().all().all()
    assert not coef["is_clear"].any()
