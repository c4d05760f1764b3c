"""Dataframes as users have them: texts, gaps, columns in any order, and names in place of arrays."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import fedhlcr
from fedhlcr import NEW, FedHLCRRegressor, HLCRRegressor
from fedhlcr.exceptions import (
    ArgumentError,
    CategoriesWarning,
    DataError,
    MissingValuesError,
    MissingValuesWarning,
)
from fedhlcr.report import HeldOut, render_report
from tests.commands import run
from tests.kinds import KINDS
from tests.shops import CASES, CENTRAL, LIBRARIES, NAMES, TARGETS, settings, shop

IDS = {"agent": "store", "entity": "product"}


def features(frame: pd.DataFrame, target: str) -> pd.DataFrame:
    """The table with one of its targets."""
    return frame.drop(columns=[name for name in ("sales", "sold", "count", "days") if name != target])


def with_gaps(frame: pd.DataFrame) -> pd.DataFrame:
    frame = frame.copy()
    frame.loc[::20, "price"] = np.nan
    frame.loc[3::31, "brand"] = None
    frame.loc[5::43, "size"] = None
    return frame


def fitted(kind, frame, target, **more):
    return kind(**settings(kind), categories=["brand"], **more).fit(frame, target, **IDS)


def by_hand(frame: pd.DataFrame) -> np.ndarray:
    """The features as a user would encode them."""
    columns = [frame["price"]]
    columns += [frame["brand"] == level for level in ("acme", "bolt", "core")]
    columns += [frame["size"] == level for level in ("S", "M", "L")]
    return np.column_stack([*columns, frame["promo"]]).astype(float)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("target", "kind"), CASES, ids=NAMES)
def test_frame_is_the_same_as_arrays_encoded_by_hand(target, kind, library):
    frame = features(shop(), target)
    own = LIBRARIES[library](frame)
    model = fitted(kind, own, target)
    X, ids = by_hand(frame), {"agent": frame["store"].to_numpy(), "entity": frame["product"].to_numpy()}
    plain = kind(**settings(kind)).fit(X, frame[target].to_numpy(), **ids)
    np.testing.assert_array_equal(model.posterior_.draws.coef, plain.posterior_.draws.coef)
    np.testing.assert_array_equal(model.predict(own), plain.predict(X, **ids))
    assert float(model.score(own)) == float(plain.score(X, frame[target].to_numpy(), **ids))
    assert list(model.feature_names_in_) == [
        "price",
        "brand=acme",
        "brand=bolt",
        "brand=core",
        "size=S",
        "size=M",
        "size=L",
        "promo",
    ]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("target", "kind"), CASES, ids=NAMES)
def test_columns_are_found_by_name_in_any_order(target, kind, library):
    frame = features(shop(), target)
    model = fitted(kind, LIBRARIES[library](frame), target)
    shuffled = frame[frame.columns[::-1]].assign(note="not a feature", when=pd.Timestamp("2024-01-01"))
    other = LIBRARIES[library](shuffled)
    np.testing.assert_array_equal(model.predict(other), model.predict(frame))
    assert model.score(other) == model.score(frame)
    np.testing.assert_array_equal(model.log_density(other), model.log_density(frame, target))
    adapted = [model.adapt(table).predict(frame) for table in (other, frame)]
    np.testing.assert_array_equal(*adapted)
    without_target = LIBRARIES[library](shuffled.drop(columns=target))
    np.testing.assert_array_equal(model.predict(without_target), model.predict(frame))
    with pytest.raises(ValueError, match="has no column 'price'"):
        model.predict(LIBRARIES[library](frame.drop(columns="price")))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("target", "kind"), CASES, ids=NAMES)
def test_rows_with_gaps_are_left_out_and_predicted_as_nan(target, kind, library):
    frame = with_gaps(features(shop(), target))
    own, complete = LIBRARIES[library](frame), frame.notna().all(axis=1).to_numpy()
    with pytest.raises(MissingValuesError, match="pass missing='drop'"):
        fitted(kind, own, target)
    n = int((~complete).sum())
    with pytest.warns(MissingValuesWarning, match=f"Rows with missing values are left out: {n} of 240 rows"):
        model = fitted(kind, own, target, missing="drop")
    reference = fitted(kind, LIBRARIES[library](frame[complete]), target)
    np.testing.assert_array_equal(model.coef_, reference.coef_)
    with pytest.warns(MissingValuesWarning, match=f"get NaN: {n} of 240 rows"):
        predicted = model.predict(own)
    assert len(predicted) == 240
    np.testing.assert_array_equal(pd.isna(predicted), ~complete)
    np.testing.assert_array_equal(predicted[complete], reference.predict(frame[complete]))
    with pytest.warns(MissingValuesWarning, match=f"are not scored: {n} of 240 rows"):
        score = model.score(own)
    assert score == reference.score(frame[complete])
    assert score.n_events == 240 - n
    with pytest.warns(MissingValuesWarning, match="get NaN"):
        lower, upper = model.predict_interval(own)
    np.testing.assert_array_equal(np.isnan(lower), ~complete)
    np.testing.assert_array_equal(np.isnan(upper), ~complete)
    with pytest.raises(MissingValuesError, match="pass missing='drop'"):
        reference.predict(own)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("target", "kind"), CASES, ids=NAMES)
def test_gaps_are_filled_with_values_of_the_fit(target, kind, library):
    frame = with_gaps(features(shop(), target))
    model = fitted(kind, LIBRARIES[library](frame), target, missing="impute")
    fill = {"price": frame["price"].median(), "brand": frame["brand"].mode()[0], "size": frame["size"].mode()[0]}
    assert model.recipe_.fill == {**fill, "promo": 0.0}
    filled = frame.fillna(fill)
    np.testing.assert_array_equal(model.coef_, fitted(kind, filled, target).coef_)
    # the values are those of the fit, whatever else is in the table
    rows = LIBRARIES[library](frame.iloc[:3])
    np.testing.assert_array_equal(model.predict(rows), model.predict(filled.iloc[:3]))


def test_rows_without_target_or_id_are_never_filled_in():
    frame = features(shop(), "sales")
    lost = frame.copy()
    lost.loc[[0, 7], "sales"] = np.nan
    lost.loc[9, "store"] = None
    for missing in ("drop", "impute"):
        with pytest.warns(MissingValuesWarning, match="are left out: 3 of 240 rows"):
            model = fitted(HLCRRegressor, lost, "sales", missing=missing)
        expected = fitted(HLCRRegressor, frame.drop(index=[0, 7, 9]), "sales")
        np.testing.assert_array_equal(model.coef_, expected.coef_)
        with pytest.warns(MissingValuesWarning, match="get NaN: 1 of 240 rows"):
            assert np.flatnonzero(np.isnan(model.predict(lost))).tolist() == [9]
        with pytest.warns(MissingValuesWarning, match="are not scored: 3 of 240 rows"):
            assert model.score(lost).n_events == 237
        with pytest.warns(MissingValuesWarning, match="are left out: 3 of 240"):
            model.adapt(lost)
    with pytest.raises(ValueError, match=r"`y` has 2 NaN values in 240 rows; .*missing='drop'"):
        fitted(HLCRRegressor, lost.assign(store=frame["store"]), "sales")


@pytest.mark.parametrize("missing", ["drop", "impute"])
def test_arrays_obey_missing_too(missing, tmp_path):
    frame = shop()
    X, y = by_hand(frame), frame["sales"].to_numpy()
    X[::20, 0] = np.nan
    complete = ~np.isnan(X).any(axis=1)
    ids = {"agent": frame["store"].to_numpy(), "entity": frame["product"].to_numpy()}
    model = HLCRRegressor(**CENTRAL, missing=missing)
    if missing == "drop":
        with pytest.warns(MissingValuesWarning, match="are left out: 12 of 240"):
            model.fit(X, y, **ids)
        expected = HLCRRegressor(**CENTRAL).fit(X[complete], y[complete], **{k: v[complete] for k, v in ids.items()})
        with pytest.warns(MissingValuesWarning, match="get NaN: 12 of 240"):
            predicted = model.predict(X, **ids)
        np.testing.assert_array_equal(np.isnan(predicted), ~complete)
    else:
        filled = np.where(np.isnan(X), np.nanmedian(X, axis=0), X)
        expected = HLCRRegressor(**CENTRAL).fit(filled, y, **ids)
        model.fit(X, y, **ids)
        np.testing.assert_array_equal(model.predict(X[:21], agent=NEW), expected.predict(filled[:21], agent=NEW))
        model.save(tmp_path / "model")
        loaded = fedhlcr.load(tmp_path / "model")
        np.testing.assert_array_equal(loaded.predict(X, **ids), model.predict(X, **ids))
        assert loaded.missing == "impute"
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    with pytest.raises(ValueError, match=r"`X` has 12 NaN values in 240 rows \(12 in column 0\).*missing='drop'"):
        HLCRRegressor(**CENTRAL).fit(X, y, **ids)


def test_all_rows_with_gaps():
    frame = features(shop(), "sales")
    model = fitted(HLCRRegressor, frame, "sales").set_params(missing="drop")
    empty = frame.assign(price=np.nan)
    with pytest.warns(MissingValuesWarning, match="240 of 240"):
        assert np.isnan(model.predict(empty)).all()
    with (
        pytest.warns(MissingValuesWarning, match="240 of 240"),
        pytest.raises(DataError, match="every row has missing values"),
    ):
        model.score(empty)
    with pytest.raises(DataError, match="nothing is left to fit"):
        fitted(HLCRRegressor, empty, "sales", missing="drop")


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT], ids=["None", "NaN", "NA", "NaT"])
def test_every_kind_of_missing_value_counts(missing):
    frame = features(shop(), "sales")
    frame["brand"] = frame["brand"].astype(object)
    frame.loc[3, "brand"] = missing
    frame["price"] = frame["price"].astype(object)
    frame.loc[8, "price"] = missing
    frame["promo"] = frame["promo"].astype("boolean")
    frame.loc[9, "promo"] = pd.NA
    with pytest.warns(MissingValuesWarning, match="3 of 240 rows"):
        fitted(HLCRRegressor, frame, "sales", missing="drop")


def test_level_order_of_the_type_is_kept():
    levels = ["S", "M", "L"]
    frame = features(shop(), "sales")
    enum = pl.from_pandas(frame.assign(size=frame["size"].astype(str))).with_columns(
        pl.col("size").cast(pl.Enum(["XS", *levels, "XL"]))
    )
    codes = pa.array(frame["size"].cat.codes)
    # the first releases of polars do not tell arrow that an enum has an order
    ordered = pa.DictionaryArray.from_arrays(codes, list(frame["size"].cat.categories), ordered=True)
    arrow = enum.drop("size").to_arrow().append_column("size", ordered)
    for table in (frame, enum, arrow):
        assert fitted(HLCRRegressor, table, "sales").recipe_.categorical["size"] == levels
    unordered = enum.with_columns(pl.col("size").cast(pl.String).cast(pl.Categorical))
    for table in (unordered, unordered.to_arrow()):
        assert fitted(HLCRRegressor, table, "sales").recipe_.categorical["size"] == ["L", "M", "S"]


def test_few_texts_are_taken_as_categories_with_a_warning():
    frame = features(shop(), "sales")
    with pytest.warns(CategoriesWarning, match=r"categories: 'brand' \(3 levels\).*categories=\['brand'\]") as caught:
        model = HLCRRegressor(**CENTRAL).fit(frame, "sales", **IDS)
    (warning,) = [each.message for each in caught if each.category is CategoriesWarning]
    assert "acme" not in str(warning)
    np.testing.assert_array_equal(model.coef_, fitted(HLCRRegressor, frame, "sales").coef_)


REFUSED = {
    "ids": ([f"id {row}" for row in range(240)], "240 different texts in 240 rows, as ids or notes do: drop it"),
    "numbers": (["1.5", "2"] * 120, "numbers written as texts: turn it into numbers"),
    "dates": (
        ["2024-03-01", "2024-03-02"] * 120,
        "dates or times: turn them into numbers first, for example days since a date",
    ),
    "decimal commas": (["1,5", "2,5"] * 120, "numbers with a decimal comma: write a decimal point"),
    "nothing": (["", "NA"] * 120, "no values at all: drop it"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("library", LIBRARIES)
def test_other_texts_are_refused_by_name(case, library):
    texts, message = REFUSED[case]
    frame = LIBRARIES[library](features(shop(), "sales").drop(columns="brand").assign(code=texts))
    with pytest.raises(DataError, match=f"column 'code' of `X` holds {message}, or name it in `categories`"):
        HLCRRegressor(**CENTRAL).fit(frame, "sales", **IDS)


def test_declared_texts_are_categories_whatever_they_look_like():
    frame = features(shop(), "sales").assign(code=["007", "8"] * 120, year=[2023, 2024] * 120)
    model = HLCRRegressor(**CENTRAL, categories=["brand", "code", "year"]).fit(frame, "sales", **IDS)
    assert model.recipe_.categorical["code"] == ["8", "007"]
    assert model.recipe_.categorical["year"] == ["2023", "2024"]
    with pytest.raises(DataError, match="column 'brand' of `X` holds texts: drop it, or name it in `categories`"):
        HLCRRegressor(**CENTRAL, categories=["code"]).fit(frame, "sales", **IDS)
    with pytest.raises(ArgumentError, match="`categories` names 'colour', but `X` has no such feature"):
        HLCRRegressor(**CENTRAL, categories=["colour"]).fit(frame, "sales", **IDS)
    with pytest.raises(ArgumentError, match="`categories` names columns, but `X` is an array"):
        HLCRRegressor(**CENTRAL, categories=["colour"]).fit(by_hand(frame), frame["sales"])


def test_declared_levels_are_those_of_the_model(tmp_path):
    frame = features(shop(), "sales").assign(year=[2023, 2024] * 120)
    brands = sorted(frame["brand"].unique())
    brand, years, sizes = [*brands[::-1], "none of these"], np.array([2025, 2024, 2023]), ("L", "M", "S")
    declared = {"brand": brand, "year": years, "size": sizes}
    model = HLCRRegressor(**CENTRAL, categories=declared).fit(frame, "sales", **IDS)
    assert model.recipe_.categorical == {"brand": brand, "year": ["2025", "2024", "2023"], "size": list(sizes)}
    assert "brand=none of these" in list(model.feature_names_in_)
    model.save(tmp_path / "model")
    loaded = fedhlcr.load(tmp_path / "model")
    assert loaded.categories == {"brand": brand, "year": [2025, 2024, 2023], "size": list(sizes)}
    np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))
    frame.to_parquet(tmp_path / "shop.parquet")
    names = {"target": "sales", "agent": "store", "entity": "product"}
    from_file = HLCRRegressor(**CENTRAL, categories=declared).fit_files(tmp_path / "shop.parquet", **names)
    assert from_file.recipe_ == model.recipe_
    np.testing.assert_array_equal(from_file.coef_, model.coef_)
    few = {**declared, "brand": brands[:1]}
    with pytest.raises(DataError, match="column 'brand' has levels that are not declared"):
        HLCRRegressor(**CENTRAL, categories=few).fit(frame, "sales", **IDS)
    with pytest.raises(DataError, match="column 'brand' has levels that are not declared"):
        HLCRRegressor(**CENTRAL, categories=few).fit_files(tmp_path / "shop.parquet", **names)


def test_dates_are_refused_by_name():
    frame = features(shop(), "sales").assign(when=pd.Timestamp("2024-01-01"))
    with pytest.raises(DataError, match="column 'when' of `X` holds dates or times: turn it into numbers"):
        fitted(HLCRRegressor, frame, "sales")


def test_unknown_levels_are_refused():
    frame = features(shop(), "sales")
    model = fitted(HLCRRegressor, frame, "sales")
    frame.loc[[0, 5], "brand"] = "new brand"
    with pytest.raises(DataError, match="column 'brand' holds 1 level that the model does not know, in 2 of 240 rows"):
        model.predict(frame)


@pytest.mark.parametrize(("target", "kind"), CASES, ids=NAMES)
def test_saved_models_read_frames_as_before(target, kind, tmp_path):
    frame = with_gaps(features(shop(), target))
    model = kind(**settings(kind), categories=["brand"], missing="impute").fit(frame, target, **IDS)
    model.save(tmp_path / "model")
    loaded = fedhlcr.load(tmp_path / "model")
    assert loaded.recipe_ == model.recipe_
    assert (loaded.categories, loaded.missing) == (["brand"], "impute")
    np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))
    assert repr(loaded.score(frame)) == repr(model.score(frame))
    page = render_report(model, HeldOut(frame))
    assert f"The target is “{target}”, the agent is “store”, and the entity is “product”." in page
    assert "categories=[&#39;brand&#39;" in page or "categories=['brand'" in page


@pytest.mark.parametrize("missing", ["drop", "impute"])
@pytest.mark.parametrize("target", TARGETS)
def test_fit_is_that_of_the_command_line(target, missing, tmp_path, capsys):
    frame = with_gaps(features(shop(), target))
    table, out = tmp_path / "shop.parquet", tmp_path / "shop.fedhlcr"
    frame.assign(size=frame["size"].astype(object)).to_parquet(table)
    roles = ["--target", target, "--agent", "store", "--entity", "product"]
    options = ["--categories", "brand,size", "--missing", missing, "--sweeps", "12", "--max-clusters", "4"]
    assert run(["fit", str(table), *roles, *options, "--out", str(out)]) == 0
    by_command = fedhlcr.load(out)
    kind = KINDS[TARGETS[target]][0]
    texts = frame.assign(size=frame["size"].astype(object))
    model = kind(n_sweeps=12, max_clusters=4, categories=["brand", "size"], missing=missing)
    with pytest.warns(MissingValuesWarning) if missing == "drop" else nullcontext():
        model.fit(texts, target, **IDS)
    assert model.recipe_ == by_command.recipe_
    np.testing.assert_array_equal(model.coef_, by_command.coef_)


@pytest.mark.filterwarnings("ignore::fedhlcr.exceptions.DataWarning")
def test_private_models_keep_no_medians():
    pytest.importorskip("opendp", reason="the privacy extra is not installed")
    frame = features(shop(), "sales")[["store", "product", "price", "promo", "sales"]]
    private = {"privacy": fedhlcr.DifferentialPrivacy(8, rounds=3), "n_clusters": 2}
    model = FedHLCRRegressor(**private).fit(frame, "sales", **IDS)
    assert model.recipe_.fill == {}
    assert np.isfinite(model.predict(frame)).all()
    with pytest.raises(ArgumentError, match="missing='impute' takes medians of all events"):
        FedHLCRRegressor(**private, missing="impute").fit(frame, "sales", **IDS)
