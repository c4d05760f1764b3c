"""Columns of rarer types, as notebooks have them, and columns that are passed twice."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

from fedhlcr import HLCRClassifier, HLCRCountRegressor, HLCRRegressor, compare_cluster_counts
from fedhlcr.exceptions import ArgumentError, DataError, DataWarning

SETTINGS = {"n_clusters": 2, "n_sweeps": 12, "n_draws": 4, "random_state": 0}
IDS = {"agent": "store", "entity": "product"}


def table(n=120) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"store": np.arange(n) % 3, "product": np.arange(n) % 6, "price": rng.uniform(1, 3, n)})
    return frame.assign(sales=frame["price"] + rng.normal(size=n), sold=rng.random(n) < 0.5)


def test_intervals_of_pandas_are_ordered_levels():
    frame = table().drop(columns="sold")
    frame["band"] = pd.cut(frame.pop("price"), [0, 1.5, 2.5, 10])
    model = HLCRRegressor(**SETTINGS).fit(frame, "sales", **IDS)
    assert model.recipe_.categorical == {"band": ["(0.0, 1.5]", "(1.5, 2.5]", "(2.5, 10.0]"]}
    np.testing.assert_array_equal(model.predict(frame.tail(3)), model.predict(frame)[-3:])


def test_sparse_columns_are_numbers():
    frame = table().drop(columns="sold").assign(promotion=np.arange(120) % 5 == 0)
    sparse = frame.assign(promotion=pd.arrays.SparseArray(frame["promotion"]))
    dense, other = (HLCRRegressor(**SETTINGS).fit(own, "sales", **IDS) for own in (frame, sparse))
    np.testing.assert_array_equal(dense.predict(frame), other.predict(sparse))


def test_periods_are_dates():
    frame = table().drop(columns="sold").assign(month=pd.period_range("2020-01", periods=120, freq="M"))
    with pytest.raises(DataError, match="column 'month' of `X` holds dates or times: turn it into numbers"):
        HLCRRegressor(**SETTINGS).fit(frame, "sales", **IDS)


@pytest.mark.filterwarnings("ignore::fedhlcr.exceptions.MissingValuesWarning")
@pytest.mark.parametrize(("kind", "classes"), [("boolean", [False, True]), ("Int64", [0, 1])])
def test_classes_with_gaps_keep_their_type(kind, classes):
    frame = table().drop(columns="sales").astype({"sold": kind})
    frame.loc[::10, "sold"] = pd.NA
    for own in (frame, pl.from_pandas(frame)):
        model = HLCRClassifier(missing="drop", **SETTINGS).fit(own, "sold", **IDS)
        assert model.classes_.tolist() == classes
        assert model.classes_.dtype.kind == {"boolean": "b", "Int64": "i"}[kind]
        assert model.score(own).n_events == 108
    with pytest.raises(
        ArgumentError, match=r"`y` has 12 missing .*; the estimators leave them out with missing='drop'"
    ):
        HLCRClassifier(**SETTINGS).fit(frame, "sold", **IDS)


@pytest.mark.parametrize("library", [lambda frame: frame, pl.from_pandas], ids=["pandas", "polars"])
def test_targets_and_ids_that_are_features_too_are_warned_of(library):
    frame = library(table().drop(columns="sold"))
    y, agent, entity = (frame[name] for name in ("sales", "store", "product"))
    with pytest.warns(
        DataWarning, match=r"features although .*: 'sales' \(`y`\), 'product' \(`entity`\)\. Pass y='sal"
    ):
        HLCRRegressor(**SETTINGS).fit(frame, y, agent="store", entity=entity)
    features = frame[["price"]]
    model = HLCRRegressor(**SETTINGS).fit(features, y, agent, entity)
    assert list(model.feature_names_in_) == ["price"]
    # another column of the same name is no mistake
    lagged = HLCRRegressor(**SETTINGS).fit(table().drop(columns="sold").assign(sales=1.0), y, **IDS)
    assert "sales" in lagged.feature_names_in_


@pytest.mark.parametrize("missing", ["refuse", "drop", "impute"])
def test_arguments_of_other_lengths_are_named(missing):
    frame = table().drop(columns=["sales", "sold"])
    for length in (10, 130):
        with pytest.raises(ArgumentError, match=f"`y` has {length} rows but `X` has 120"):
            HLCRRegressor(missing=missing, **SETTINGS).fit(frame, pd.Series(np.arange(length)), **IDS)


@pytest.mark.filterwarnings("ignore::fedhlcr.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::fedhlcr.exceptions.MissingValuesWarning")
def test_numbers_of_clusters_are_compared_on_tables_with_texts_and_gaps():
    frame = table().drop(columns="sold").assign(kind=pd.Categorical(["a", "b", "c"] * 40))
    frame.loc[::20, "price"] = np.nan
    dropped = HLCRRegressor(missing="drop", **SETTINGS)
    sizes = {"counts": [1, 2], "n_splits": 1, "estimator": dropped}
    found = compare_cluster_counts(frame, "sales", **IDS, **sizes)
    kept = frame.dropna()
    encoded = kept[["price"]].assign(**{f"kind={level}": (kept["kind"] == level) * 1.0 for level in "abc"})
    by_hand = compare_cluster_counts(encoded, kept["sales"], kept["store"], kept["product"], **sizes)
    shuffled = compare_cluster_counts(pl.from_pandas(frame), "sales", **IDS, **sizes)
    assert found.to_dict() == by_hand.to_dict() == shuffled.to_dict()
    assert dropped.missing == "drop"
    pytest.importorskip("formulaic")
    told = HLCRRegressor.from_formula("sales ~ price + C(kind) | store/product", missing="drop", **SETTINGS)
    assert compare_cluster_counts(frame, **sizes | {"estimator": told}).to_dict() == found.to_dict()


def test_forgotten_exposures_of_observed_counts_are_warned_of():
    rng = np.random.default_rng(0)
    frame = table().drop(columns=["sales", "sold"]).assign(days=rng.integers(1, 9, 120))
    frame["visits"] = rng.poisson(frame["days"])
    model = HLCRCountRegressor(**SETTINGS).fit(frame, "visits", **IDS, exposure="days")
    without = frame.drop(columns="days")
    with pytest.warns(DataWarning, match="fitted with the exposure 'days', but no `exposure` was passed"):
        score = model.score(without)
    # a rate needs no exposure, and neither does who says that it is 1
    assert score == model.score(without, exposure=1) < model.score(frame)
    np.testing.assert_array_equal(model.predict(without), model.predict(frame, exposure=1))


def test_texts_under_names_that_are_no_texts_are_refused_with_the_cure():
    frame = pd.DataFrame({0: np.arange(60.0), 1: pd.Categorical(np.resize(["a", "b", "c"], 60))})
    with pytest.raises(DataError, match=r"not all texts.*X\.columns\.astype\(str\)"):
        HLCRRegressor(n_sweeps=4).fit(frame, np.arange(60.0))
    frame.columns = frame.columns.astype(str)
    assert list(HLCRRegressor(n_sweeps=4).fit(frame, np.arange(60.0)).feature_names_in_) == ["0", "1=a", "1=b", "1=c"]


def test_single_numbers_and_rows_are_refused_with_the_cure():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 3)))
    with pytest.raises(ArgumentError, match="`y` must hold a value per event row, but is a single number"):
        HLCRRegressor(n_sweeps=4).fit(frame, 2)
    model = HLCRRegressor(n_sweeps=4).fit(frame, np.arange(60.0))
    with pytest.raises(ArgumentError, match=r"`X` is a series.*iloc\[\[0\]\]"):
        model.predict(frame.iloc[0])
