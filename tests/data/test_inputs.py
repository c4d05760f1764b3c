"""Everything users may pass, and every refusal: it names the argument and the cure, and shows no value."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from fedhlcr import NEW, HLCRRegressor
from fedhlcr.exceptions import ForgottenIdsWarning, MissingValuesError

SECRET = 987654.25


def table(n=24):
    rng = np.random.default_rng(0)
    return {
        "hospital": np.repeat(["a", "b"], n // 2),
        "patient": np.tile(np.repeat([1, 2, 3], 2), n // 6),
        "dose": rng.normal(size=n),
        "age": rng.normal(size=n),
    }, rng.normal(size=n)


def fit(X, y, **kwargs):
    return HLCRRegressor(n_sweeps=4, max_clusters=2).fit(X, y, **kwargs)


FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}


@pytest.mark.parametrize("library", FRAMES)
def test_frames_of_every_library_give_the_same_fit(library):
    columns, y = table()
    X = np.column_stack([columns["dose"], columns["age"]])
    by_array = fit(X, y, agent=columns["hospital"], entity=columns["patient"])
    frame = FRAMES[library](columns)
    by_name = fit(frame, y, agent="hospital", entity="patient")
    assert list(by_name.feature_names_in_) == ["dose", "age"]
    assert (by_name.agent_column_, by_name.entity_column_) == ("hospital", "patient")
    np.testing.assert_array_equal(by_name.coef_, by_array.coef_)
    # the columns are found again
    np.testing.assert_array_equal(by_name.predict(frame), by_array.predict(X, columns["hospital"], columns["patient"]))


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_series_can_be_ids_and_targets(library):
    columns, y = table()
    series = pd.Series if library == "pandas" else pl.Series
    X = np.column_stack([columns["dose"], columns["age"]])
    by_series = fit(X, series(y), agent=series(columns["hospital"]), entity=series(columns["patient"]))
    by_array = fit(X, y, agent=columns["hospital"], entity=columns["patient"])
    np.testing.assert_array_equal(by_series.coef_, by_array.coef_)


def test_warning_if_a_known_id_column_is_missing():
    columns, y = table()
    frame = pd.DataFrame(columns)
    model = fit(frame, y, agent="hospital", entity="patient")
    message = "`X` has no column 'patient': every row counts as an event of a new entity"
    with pytest.warns(ForgottenIdsWarning, match=message):
        new_entities = model.predict(frame.drop(columns="patient"))
    np.testing.assert_allclose(new_entities, model.predict(frame, entity=np.full(len(y), "nobody")))


def test_rows_without_an_agent_belong_to_the_only_agent():
    columns, y = table()
    frame = pd.DataFrame({**columns, "hospital": "a"})
    model = fit(frame, y, agent="hospital", entity="patient")
    predicted = model.predict(frame.drop(columns="hospital"))
    np.testing.assert_array_equal(predicted, model.predict(frame))


def test_id_columns_are_never_features():
    columns, y = table()
    frame = pd.DataFrame(columns)
    model = fit(frame, y, agent="hospital", entity="patient")
    by_array = model.predict(frame, agent=columns["hospital"], entity=columns["patient"])
    np.testing.assert_array_equal(by_array, model.predict(frame))


REFUSALS = {
    "length of y": (lambda X, y, ids: fit(X, y[:-2], **ids), "`y` has 22 rows but `X` has 24"),
    "length of agent": (
        lambda X, y, ids: fit(X, y, agent=ids["agent"][:-1]),
        "`agent` has 23 rows but `X` has 24; pass one agent id",
    ),
    "length of entity": (lambda X, y, ids: fit(X, y, entity=ids["entity"][:-1]), "`entity` has 23 rows but `X` has 24"),
    "length of weights": (lambda X, y, ids: fit(X, y, sample_weight=np.ones(3)), "`sample_weight` has 3 rows"),
    "NaN in X": (
        lambda X, y, ids: fit(np.where(X[3, 1] == X, np.nan, X), y),
        r"`X` has 1 NaN value in 24 rows \(1 in column 1\)",
    ),
    "infinity in y": (
        lambda X, y, ids: fit(X, np.where(y == y[2], np.inf, y)),
        r"`y` has 1 infinite value in 24 rows; .*replace the infinite values by numbers",
    ),
    "no y": (lambda X, y, ids: fit(X, None), "requires y to be passed"),
    "empty": (lambda X, y, ids: fit(X[:0], y[:0]), "`X` is empty"),
    "no columns": (lambda X, y, ids: fit(X[:, :0], y), r"0 feature\(s\)"),
    "missing agent ids": (
        lambda X, y, ids: fit(X, y, agent=[None, *ids["agent"][1:]], entity=ids["entity"]),
        "`agent` has 1 missing id in 24 rows",
    ),
    "missing entity ids": (
        lambda X, y, ids: fit(X, y, agent=ids["agent"], entity=np.r_[np.nan, np.nan, ids["entity"][2:]]),
        "`entity` has 2 missing ids",
    ),
    "matrix of ids": (lambda X, y, ids: fit(X, y, entity=X), "`entity` must be one entity id per event row"),
    "name for an array": (lambda X, y, ids: fit(X, y, agent="hospital"), "`X` is an array without column names"),
    "no such column": (
        lambda X, y, ids: fit(pd.DataFrame(X, columns=["u", "v"]), y, agent="w"),
        r"no such column; its columns are \['u', 'v'\]",
    ),
    "negative weights": (lambda X, y, ids: fit(X, y, sample_weight=-np.ones(24)), "must not be negative, but 24"),
    "no weight": (lambda X, y, ids: fit(X, y, sample_weight=np.zeros(24)), "zero for every event"),
    "twice the column": (
        lambda X, y, ids: fit(pd.DataFrame(np.c_[X, X[:, 0]], columns=["u", "v", "u"]), y),
        "more than one column of the same name",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_bad_arguments_are_refused(case):
    columns, y = table()
    X = np.column_stack([columns["dose"], columns["age"]])
    action, message = REFUSALS[case]
    with pytest.raises(ValueError, match=message):
        action(X, y, {"agent": columns["hospital"], "entity": columns["patient"]})


@pytest.mark.parametrize("library", FRAMES)
def test_text_columns_are_named_with_the_cure(library):
    columns, y = table()
    frame = FRAMES[library]({**columns, "ward": [f"west {row}" for row in range(len(y))]})
    message = "column 'ward' of `X` holds 24 different texts in 24 rows.*: drop it, or name it in `categories`"
    with pytest.raises(ValueError, match=message) as refusal:
        fit(frame, y, agent="hospital", entity="patient")
    assert "west" not in str(refusal.value)


@pytest.mark.parametrize("library", FRAMES)
def test_missing_values_are_counted_by_column(library):
    columns, y = table()
    dose = [None if i < 3 else float(v) for i, v in enumerate(columns["dose"])]
    frame = FRAMES[library]({**columns, "dose": dose})
    with pytest.raises(MissingValuesError, match="3 of 24 rows have missing values: 'dose' 3; pass missing='drop'"):
        fit(frame, y, agent="hospital", entity="patient")


@pytest.mark.parametrize("bad", ["private", SECRET])
def test_messages_show_no_values(bad):
    columns, y = table()
    X = np.column_stack([columns["dose"], columns["age"]]).astype(object)
    X[0, 0] = bad if isinstance(bad, str) else np.inf
    X[1, 1] = SECRET
    with pytest.raises(ValueError, match="X") as refusal:
        fit(X, y)
    assert str(bad) not in str(refusal.value)
    assert str(SECRET) not in str(refusal.value)
    with pytest.raises(ValueError, match="y") as refusal:
        fit(np.ones((3, 1)), np.array([1.0, 2.0, bad if isinstance(bad, str) else np.nan], dtype=object))
    assert str(bad) not in str(refusal.value)


def test_constant_and_collinear_columns_are_accepted():
    columns, y = table()
    X = np.column_stack([columns["dose"], 2 * columns["dose"], np.full(len(y), 7.0)])
    model = fit(X, y, agent=columns["hospital"], entity=columns["patient"])
    assert np.isfinite(model.predict(X, agent=NEW)).all()


def test_known_times_stay_known_after_adapt():
    columns, y = table()
    X = np.column_stack([columns["dose"], columns["age"]])
    days = np.datetime64("2024-03-01") + columns["patient"].astype("timedelta64[D]")
    model = fit(X, y, agent=columns["hospital"], entity=days)
    adapted = model.adapt(X[:3], y[:3], agent=["new"] * 3, entity=days[:3])
    known = model.predict(X, agent=columns["hospital"], entity=days)
    np.testing.assert_array_equal(
        adapted.predict(X, agent=columns["hospital"], entity=list(days.astype("M8[us]"))), known
    )
    np.testing.assert_array_equal(
        model.responsibilities(*model.pair_ids_[1]), model.responsibilities("a", days.astype("M8[s]")[2])
    )


def test_row_numbers_do_not_match_rows_without_ids():
    columns, y = table()
    X = columns["dose"][:, None]
    model = fit(X, y)
    np.testing.assert_array_equal(model.predict(X, entity=np.arange(len(y))), model.predict(X))


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.full(24, SECRET), "Expected 2D array, got 1D array"),
        (np.full((24, 2), SECRET + 1j), "Complex data not supported"),
        (pl.Series([SECRET] * 24), "Expected 2D array, got 1D array"),
        ([[SECRET], [SECRET, SECRET]] * 12, "`X` has rows of different lengths"),
        (pl.LazyFrame({"a": [SECRET] * 24}), "lazy frame"),
        (np.array([[SECRET, pd.NA]] * 24, dtype=object), r"24 NaN values in 24 rows \(24 in column 1\)"),
    ],
)
def test_unusual_tables_are_refused_without_their_values(X, message):
    with pytest.raises(ValueError, match=message) as refusal:
        fit(X, np.zeros(24))
    assert "987654" not in str(refusal.value)


@pytest.mark.parametrize("argument", ["y", "sample_weight"])
def test_text_instead_of_numbers_is_refused(argument):
    with pytest.raises(
        ValueError, match=f"`{argument}` must hold numbers, but it holds text; turn it into numbers first"
    ):
        fit(**{"X": np.ones((2, 1)), "y": [1.0, 2.0], argument: ["private", "1"]})
