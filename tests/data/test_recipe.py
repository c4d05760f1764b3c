"""From raw tables to features: levels, missing values, and the same result from every kind of table."""

import datetime
import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

import fedhlcr
from fedhlcr import cli
from fedhlcr.data.categories import MOST_LEVELS
from fedhlcr.data.recipe import Recipe
from fedhlcr.data.recipe_plan import note_on_unnamed, plan_recipe
from fedhlcr.data.table_files import TableFile, open_table
from fedhlcr.exceptions import DataError, FileError, MissingValuesError, MissingValuesWarning

SECRET = "chartreuse"
ROLES = {"target": "y", "agent": "store", "entity": "product"}


def table(**columns):
    n_rows = max(len(values) for values in columns.values())
    rest = {"store": ["a", "b"] * n_rows, "product": list(range(n_rows)), "y": [float(n) for n in range(n_rows)]}
    return pa.table({name: values[:n_rows] for name, values in (rest | columns).items()})


def file_of(data):
    return TableFile.of_arrow("events", data)


def learnt(data, categorical=(), missing="refuse", **more):
    plan = plan_recipe(file_of(data), **ROLES, categorical=categorical, missing=missing, **more)
    return plan.learn(plan.read(file_of(data), target=True))


def prepared(recipe, data, missing=None, *, target=True):
    return recipe.prepare(recipe.read(file_of(data), target=target), missing)


def features(result):
    return dict(zip(result.table.names, result.table.matrix.T.tolist(), strict=True))


def test_levels_have_natural_order():
    recipe, result = learnt(table(x=["10", "b", "9", "a", "9"]), ["x"])
    assert recipe.categorical == {"x": ["9", "10", "a", "b"]}
    assert recipe.encoded_features == ("x=9", "x=10", "x=a", "x=b")
    assert features(result) == {
        "x=9": [0, 0, 1, 0, 1],
        "x=10": [1, 0, 0, 0, 0],
        "x=a": [0, 0, 0, 1, 0],
        "x=b": [0, 1, 0, 0, 0],
    }


def test_two_levels_are_one_feature_and_one_level_is_constant():
    _, result = learnt(table(x=["no", "yes", "no"], z=["same", "same", "same"]), ["x", "z"])
    assert features(result) == {"x=yes": [0, 1, 0], "z=same": [1, 1, 1]}


LIKE_ONE_AND_TWO = {
    "whole": pa.array([1, 2, 1]),
    "small": pa.array([1, 2, 1], pa.uint8()),
    "float": pa.array([1.0, 2.0, 1.0]),
    "text": pa.array(["1", "2", "1"]),
    "text of floats": pa.array(["1.0", "2.0", "1.00"]),
    "dictionary": pa.array(["1", "2", "1"]).dictionary_encode(),
    "view": pa.array(["1", "2", "1"], pa.string_view()),
}


@pytest.mark.parametrize("kind", LIKE_ONE_AND_TWO)
def test_numbers_are_the_same_level_in_every_type(kind):
    recipe, _ = learnt(table(x=["1", "2", "3"]), ["x"])
    assert features(prepared(recipe, table(x=LIKE_ONE_AND_TWO[kind]))) == {
        "x=1": [1, 0, 1],
        "x=2": [0, 1, 0],
        "x=3": [0, 0, 0],
    }


@pytest.mark.parametrize("values", [[True, False], ["true", "false"], ["True", "False"], ["TRUE", "FALSE"]])
def test_booleans_are_the_same_level_in_every_type(values):
    recipe, _ = learnt(table(x=[True, False, True]), ["x"])
    assert recipe.categorical == {"x": ["false", "true"]}
    assert features(prepared(recipe, table(x=values))) == {"x=true": [1, 0]}


def test_dates_can_be_categories_and_numbers_like_007_stay_texts():
    day = datetime.date(2024, 2, 29)
    recipe, _ = learnt(table(x=[day, day], z=["007", "7"]), ["x", "z"])
    assert recipe.categorical == {"x": ["2024-02-29"], "z": ["7", "007"]}
    assert features(prepared(recipe, table(x=["2024-02-29"], z=["007"]))) == {"x=2024-02-29": [1], "z=007": [1]}


def test_unknown_levels_are_counted_but_not_shown():
    recipe, _ = learnt(table(x=["a", "b", "c"]), ["x"])
    with pytest.raises(DataError, match=r"'x' holds 2 levels that the model does not know, in 3 of 4 rows") as caught:
        prepared(recipe, table(x=[SECRET, "a", SECRET, "d"]))
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("kind", ["text", "float", "null"])
def test_missing_categories(kind):
    given = {
        "text": pa.array(["1", "NA", "2", "", "2"]),
        "float": pa.array([1.0, float("nan"), 2.0, float("nan"), 2.0]),
        "null": pa.array([1, None, 2, None, 2]),
    }[kind]
    with pytest.raises(DataError, match="2 of 5 rows have missing values: 'x' 2;"):
        learnt(table(x=given), ["x"])
    recipe, result = learnt(table(x=given), ["x"], "impute")
    assert recipe.categorical == {"x": ["1", "2"]}
    assert recipe.fill == {"x": "2"}
    assert features(result) == {"x=2": [0, 1, 1, 1, 1]}
    recipe, result = learnt(table(x=given), ["x"], "drop")
    assert result.rows.tolist() == [0, 2, 4]


GAPS = table(
    x=[1.0, None, 3.0, float("inf"), 8.0, 100.0],
    y=[1.0, 2.0, 3.0, 4.0, 5.0, None],
    store=["a", "a", "b", "b", None, "a"],
)


def test_missing_values_are_refused_with_counts_of_each_column():
    told = (
        "4 of 6 rows have missing or infinite values: 'store' 1, 'x' 2, 'y' 1; drop these rows, or replace these "
        "values by the median or the most common level; rows without a usable 'store' or 'y' are always dropped."
    )
    with pytest.raises(MissingValuesError, match=f"^{told}$") as caught:
        learnt(GAPS)
    assert caught.value.options == (("missing", "drop"), ("missing", "impute"))


def test_missing_targets_can_only_be_dropped():
    with pytest.raises(MissingValuesError, match="1 of 2 rows has missing values: 'y' 1; drop these rows; ") as caught:
        learnt(table(x=[1.0, 2.0], y=[1.0, None]))
    assert caught.value.options == (("missing", "drop"),)


def test_values_that_are_too_large_are_named():
    data = table(x=[1.0, -1e300, 3.0])
    with pytest.raises(MissingValuesError, match=r"1 of 3 rows has too large \(1e\+100 or more\) values: 'x' 1"):
        learnt(data)
    assert learnt(data, missing="drop")[1].notes == ("dropped 1 row with too large (1e+100 or more) values",)


def test_filled_values_of_dropped_rows_are_not_counted():
    data = table(x=[1.0, None, 3.0, None, 5.0], z=[1.0, 2.0, 3.0, None, 5.0], y=[1.0, 2.0, 3.0, None, 5.0])
    notes = learnt(data, missing="impute")[1].notes
    assert notes == ("dropped 1 row with missing values", "filled missing values: 'x' 1")


def test_rows_with_missing_values_are_dropped():
    recipe, result = learnt(GAPS, missing="drop")
    assert result.rows.tolist() == [0, 2]
    assert result.target.tolist() == [1.0, 3.0]
    assert result.notes == ("dropped 4 rows with missing or infinite values",)
    assert recipe.fill == {"x": 2.0}, "what is dropped teaches nothing"


def test_only_features_are_imputed():
    recipe, result = learnt(GAPS, missing="impute")
    assert recipe.fill == {"x": 2.0}
    assert result.rows.tolist() == [0, 1, 2, 3]
    assert features(result) == {"x": [1.0, 2.0, 3.0, 2.0]}
    assert result.notes == ("dropped 2 rows with missing values", "filled missing or infinite values: 'x' 2")


def test_imputed_values_come_from_the_training_table():
    recipe, _ = learnt(table(x=[1.0, 2.0, 9.0], z=["a", "b", "b"]), ["z"])
    new = table(x=[None, 50.0], z=["a", None])
    with pytest.raises(DataError, match="'x' 1, 'z' 1"):
        prepared(recipe, new)
    assert features(prepared(recipe, new, "impute")) == {"x": [2.0, 50.0], "z=b": [0, 1]}
    with pytest.raises(DataError, match="every row has missing values"):
        prepared(recipe, new, "drop")


def test_prediction_needs_no_target_column():
    recipe, _ = learnt(table(x=[1.0, 2.0]))
    new = table(x=[3.0], y=[None])
    assert prepared(recipe, new, target=False).target is None
    assert len(prepared(recipe, new.drop_columns(["y"]), target=False).table) == 1


@pytest.mark.parametrize("missing", ["refuse", "drop", "impute"])
@pytest.mark.parametrize("categorical", [(), ("x",)])
def test_columns_with_only_missing_values_are_refused(missing, categorical):
    with pytest.raises(DataError, match="'x'"):
        learnt(table(x=pa.nulls(3), z=[1.0, 2.0, 3.0]), categorical, missing)


def test_constant_columns_are_features():
    recipe, result = learnt(table(x=[2.0, 2.0]))
    assert recipe.encoded_features == ("x",)
    assert features(result) == {"x": [2.0, 2.0]}


def test_too_many_levels_are_refused():
    with pytest.raises(DataError, match=f"{MOST_LEVELS + 1} levels, but a category may have at most {MOST_LEVELS}"):
        learnt(table(x=[f"{SECRET}{n}" for n in range(MOST_LEVELS + 1)]), ["x"])
    learnt(table(x=[str(n) for n in range(MOST_LEVELS)]), ["x"])


@pytest.mark.parametrize(
    ("data", "how", "message"),
    [
        (table(x=["a", "b"]), {}, r"numbers, but 2 of its 2 rows hold text \(first: row 1\); .* \(--categories"),
        (table(x=[1.0]), {"categorical": ["z"]}, "no column 'z'"),
        (table(x=[1.0], z=["a"]), {"features": ["x"], "categorical": ["z"]}, "these are not: 'z'"),
        (table(x=[1.0]), {"features": ["x", "y"]}, "'y' is the target"),
        (table(x=[1.0]), {"features": ["store"]}, "'store' is the agent"),
        (table(x=[1.0]), {"categorical": ["product"]}, "'product' is the entity"),
        (table(x=[1.0]), {"features": ["w"]}, "no column 'w'"),
        (table(x=[1.0]).drop_columns(["x"]), {}, "add at least one feature"),
        (table(x=[1.0]).slice(0, 0), {}, "no rows"),
        (table(x=["a", "b", "c"], **{"x=a": [1.0, 2.0, 3.0]}), {"categorical": ["x"]}, "both called 'x=a'"),
        (table(x=[datetime.date(2024, 1, 1)]), {}, "dates or times"),
    ],
)
def test_bad_tables_are_refused(data, how, message):
    with pytest.raises((DataError, FileError), match=message) as caught:
        learnt(data, **({"categorical": ()} | how))
    assert "\n" not in str(caught.value)


def test_target_cannot_be_an_id():
    with pytest.raises(DataError, match="both target and id"):
        plan_recipe(file_of(table(x=[1.0])), target="product", agent="store", entity="product")


def test_row_numbers_of_pandas_are_not_features(tmp_path):
    frame = table(x=[1.0, 2.0]).to_pandas().set_index(pd.Index([5, 9]))
    frame.to_csv(tmp_path / "events.csv")
    frame.to_parquet(tmp_path / "events.parquet")
    for name in ("events.csv", "events.parquet"):
        assert plan_recipe(open_table(tmp_path / name), **ROLES).features == ("x",)


def test_columns_named_twice_count_once():
    assert plan_recipe(file_of(table(x=[1.0])), **ROLES, features=["x", "x"]).features == ("x",)


def test_agent_may_be_the_entity_column_or_missing():
    data = file_of(table(x=[1.0, 2.0]))
    assert plan_recipe(data, target="y", agent="store", entity="store").ids == ("store",)
    assert plan_recipe(data, target="y", agent=None, entity="store").ids == ("store",)


def test_recipes_survive_json():
    recipe, _ = learnt(table(x=[0.1, 2.0, 1 / 3], z=["ü", "\0", "10"]), ["z"], "impute")
    assert Recipe.from_json(json.loads(json.dumps(recipe.to_json()))) == recipe


RAW = {
    "size": [0.5, 1.5, None, 2.5] * 15,
    "color": ["red", "green", "blue", None] * 15,
    "year": [2020, 2021, 2022] * 20,
    "on sale": [True, False] * 30,
    "store": ["north", "south", "east"] * 20,
    "product": ["007", "8"] * 30,
    "extra": [[1], "mixed", 3.0, None] * 15,
}


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A model that the command has fitted, and the raw table."""
    folder = tmp_path_factory.mktemp("fitted")
    frame = pd.DataFrame(RAW)
    frame["y"] = np.arange(60) % 7 + 2.0 * frame["on sale"] + frame["size"].fillna(1.5)
    frame.drop(columns="extra").to_csv(folder / "events.csv", index=False)
    arguments = ["--target", "y", "--agent", "store", "--entity", "product", "--missing", "impute", "--quiet"]
    arguments += ["--categories", "color,year", "--sweeps", "20", "--max-clusters", "4"]
    model = folder / "model.fedhlcr"
    assert cli.run(["fit", str(folder / "events.csv"), *arguments, "--out", str(model)]) == 0
    return model, frame


def predicted_by_command(model, path):
    out = path.with_suffix(".out.parquet")
    assert cli.run(["predict", str(model), str(path), "--out", str(out), "--quiet"]) == 0
    return pa.parquet.read_table(out)["prediction"].to_numpy()


FRAMES = {
    "pandas": lambda frame: frame,
    "pandas categories": lambda frame: frame.astype({"color": "category", "year": "category", "store": "category"}),
    "pandas objects": lambda frame: frame.astype(object),
    "pandas floats": lambda frame: frame.astype({"year": float}),
    "pandas other order": lambda frame: frame[frame.columns[::-1]],
    "polars": lambda frame: pl.from_pandas(frame.drop(columns="extra")),
    "polars categories": lambda frame: pl.from_pandas(frame.drop(columns="extra")).with_columns(
        pl.col("color").cast(pl.Categorical)
    ),
    "pyarrow": lambda frame: pa.Table.from_pandas(frame.drop(columns="extra")),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_raw_frame_is_predicted_as_by_the_command(kind, fitted, tmp_path):
    model, frame = fitted
    path = tmp_path / "new.csv"
    frame.drop(columns=["extra", "y"]).to_csv(path, index=False)
    expected = predicted_by_command(model, path)
    loaded = fedhlcr.load(model)
    np.testing.assert_array_equal(loaded.predict(FRAMES[kind](frame)), expected)
    path = tmp_path / "new.parquet"
    frame.drop(columns=["extra"]).to_parquet(path)
    np.testing.assert_array_equal(predicted_by_command(model, path), expected)


def test_mixed_types_in_a_column_of_a_frame(fitted):
    model, frame = fitted
    loaded, mixed = fedhlcr.load(model), frame.copy()
    mixed["year"] = [year if row % 2 else str(year) for row, year in enumerate(frame["year"])]
    mixed["size"] = pd.Series([size if row % 2 else str(size) for row, size in enumerate(frame["size"])], dtype=object)
    np.testing.assert_array_equal(loaded.predict(mixed), loaded.predict(frame))
    mixed["size"] = pd.Series([SECRET, *frame["size"][1:]], dtype=object)
    with pytest.raises(ValueError, match=r"'size' .* must hold numbers, but 1 of its 60 rows") as caught:
        loaded.predict(mixed)
    assert SECRET not in str(caught.value)


def test_frame_is_predicted_completely_or_refused(fitted):
    model, frame = fitted
    loaded = fedhlcr.load(model)
    lost = frame.copy()
    lost.loc[3, "store"] = None
    # ids are never filled in
    with pytest.warns(MissingValuesWarning, match="Rows with missing values get NaN: 1 of 60 rows"):
        assert np.flatnonzero(np.isnan(loaded.predict(lost))).tolist() == [3]
    loaded.recipe_ = Recipe(**(loaded.recipe_.to_json() | {"missing": "refuse"}))
    with pytest.raises(DataError, match="30 of 60 rows have missing values") as caught:
        loaded.predict(frame)
    # options are the command's
    assert "--" not in str(caught.value)
    loaded.set_params(missing="drop")
    with pytest.warns(MissingValuesWarning, match="30 of 60 rows"):
        assert np.isnan(loaded.predict(frame)).sum() == 30


def test_new_fit_in_python_forgets_the_recipe(fitted):
    model, frame = fitted
    loaded = fedhlcr.load(model)
    X = frame[["size", "year"]].fillna(0.0)
    loaded.fit(X, frame["y"])
    assert loaded.recipe_.features == ("size", "year")
    assert loaded.recipe_.target == "y"
    assert "data" not in loaded.provenance_
    assert len(loaded.predict(X)) == len(X)


def test_model_without_a_recipe_cannot_impute():
    recipe = Recipe("y", None, "product", ("x",))
    with pytest.raises(DataError, match="no value to replace missing ones of column 'x'"):
        prepared(recipe, table(x=[1.0, None]), "impute")


def test_encoded_features_are_accepted_as_they_are(fitted):
    model, frame = fitted
    loaded = fedhlcr.load(model)
    recipe, expected = loaded.recipe_, loaded.predict(frame)
    ids = {"agent": frame["store"], "entity": frame["product"]}
    encoded = recipe.encode_features(frame, "impute").table
    as_frame = pd.DataFrame(encoded.matrix, columns=list(encoded.names))
    for X, more in (
        (encoded, ids),
        (as_frame, ids),
        (as_frame.assign(**frame[["store", "product"]]), {}),
    ):
        assert not recipe.is_raw(X)
        np.testing.assert_array_equal(loaded.predict(X, **more), expected)
    assert recipe.is_raw(frame)
    assert recipe.is_raw(frame.assign(**as_frame)), "a frame that has all raw columns is raw"
    assert not recipe.is_raw(encoded.matrix)
    with pytest.raises(TypeError, match="`frame` must be a dataframe, but is of type ndarray"):
        recipe.encode_features(encoded.matrix, "refuse")


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_missing_feature_of_a_frame_is_named(kind, fitted):
    model, frame = fitted
    loaded = fedhlcr.load(model)
    for missing in ("color", "size"):
        with pytest.raises(FileError, match=f"has no column '{missing}'; its columns are '"):
            loaded.predict(FRAMES[kind](frame.drop(columns=missing)))
    with pytest.raises(FileError, match="has no column 'color'; did you mean 'Color'"):
        loaded.predict(FRAMES[kind](frame.rename(columns={"color": "Color"})))


def named(tmp_path, header, row="1,2,3,4,5,6"):
    """A table of these columns, as CSV has them."""
    path = tmp_path / "events.csv"
    cut = ",".join(row.split(",")[: header.count(",") + 1])
    path.write_text(f"{header}\n{cut}\n{cut}\n")
    return open_table(path)


@pytest.mark.parametrize(
    ("header", "note"),
    [
        ("y,store,product,x", None),
        (",y,store,product,x", None),
        ("y,store,product,x,", "left out 1 column without a name in the first line"),
        (",y,store,product,x,", "left out 2 columns without a name in the first line"),
    ],
)
def test_columns_without_a_name_are_left_out_with_a_note(header, note, tmp_path):
    file = named(tmp_path, header)
    assert plan_recipe(file, **ROLES).features == ("x",)
    assert note_on_unnamed(file) == note


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ("y,store,product", "a column of ones fits only the mean"),
        ("y,store,product,", "no feature except 1 column without a name; name it in the first line"),
        ("y,store,product,,", "no feature except 2 columns without a name; name them in the first line"),
        ("y,store,product,y", "more than one column 'y'"),
        ("y,store,product,store", "more than one column 'store'"),
    ],
)
def test_tables_without_a_feature_are_refused(header, told, tmp_path):
    with pytest.raises(ValueError, match=told):
        plan_recipe(named(tmp_path, header), **ROLES)
