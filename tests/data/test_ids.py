"""Ids of any type are one id by their text, and missing ones are refused."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from fedhlcr import HLCRRegressor
from fedhlcr.data.ids import canonical_text, natural_key, read_ids

ID_COLUMNS = {
    "integers": [3, 1, 3, 2],
    "texts": ["b", "a", "b", "c"],
    "floats": [1.5, 0.5, 1.5, 2.5],
    "booleans": [True, False, True, True],
    "bytes": [b"x", b"y", b"x", b"z"],
    "dates": [datetime.date(2024, 1, d) for d in (2, 1, 2, 3)],
    "numpy dates": np.array(["2024-01-02", "2024-01-01", "2024-01-02", "2024-01-03"], dtype="datetime64[D]"),
    "mixed": ["a", 1, "a", (1, 2)],
    "tuples": [(1, 2), (1, 3), (1, 2), (4,)],
    "categories": pd.Series(["b", "a", "b", "c"], dtype="category"),
    "nullable integers": pd.Series([3, 1, 3, 2], dtype="Int64"),
}


@pytest.mark.parametrize("kind", ID_COLUMNS)
def test_ids_of_any_type(kind):
    ids = read_ids(_column(ID_COLUMNS[kind]), "agent", 4)
    assert ids.codes[0] == ids.codes[2] != ids.codes[1]
    assert len(ids.texts) == len(set(ids.codes.tolist()))


def _column(values):
    if isinstance(values, list) and any(isinstance(v, tuple) for v in values):
        column = np.empty(len(values), dtype=object)
        column[:] = values
        return column
    return values


MISSING = {
    "None": [None, "a"],
    "NaN": [np.nan, 1.0],
    "NA": pd.Series([pd.NA, 1], dtype="Int64"),
    "NaT": np.array(["NaT", "2024-01-01"], dtype="datetime64[D]"),
    "None among tuples": [None, (1, 2)],
}


@pytest.mark.parametrize("missing", MISSING.values(), ids=MISSING)
def test_missing_ids_of_any_type(missing):
    with pytest.raises(ValueError, match="1 missing id in 2 rows"):
        read_ids(_column(missing), "agent", 2)


def test_canonical_text_is_the_same_for_all_number_types():
    assert {canonical_text(v) for v in (7, np.int8(7), 7.0, np.float32(7), "7")} == {"7"}
    assert sorted(["10", "9", "b", "a10", "-3", "07"], key=natural_key) == ["-3", "9", "10", "07", "a10", "b"]


MOMENTS = {
    "seconds": np.array(["2024-01-01", "2024-01-02T03:04:05"], dtype="datetime64[s]"),
    "nanoseconds": np.array(["2024-01-01", "2024-01-02T03:04:05"], dtype="datetime64[ns]"),
    "Timestamps": [pd.Timestamp("2024-01-01"), pd.Timestamp("2024-01-02T03:04:05")],
    "datetimes": [datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 2, 3, 4, 5)],
    "pandas": pd.Series(pd.to_datetime(["2024-01-01T00:00:00", "2024-01-02T03:04:05"])),
    "polars": pl.Series([datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 2, 3, 4, 5)]),
}


@pytest.mark.parametrize("kind", MOMENTS)
def test_times_are_the_same_id_in_every_type(kind):
    assert read_ids(MOMENTS[kind], "entity", 2).texts == ["2024-01-01", "2024-01-02T03:04:05"]


def test_times_with_a_time_zone_are_converted_to_utc():
    zone = datetime.timezone(datetime.timedelta(hours=2))
    here = datetime.datetime(2024, 1, 1, 2, 30, tzinfo=zone)
    assert canonical_text(here) == canonical_text(pd.Timestamp(here)) == "2024-01-01T00:30:00Z"


def test_missing_id_in_a_list_of_texts_is_refused():
    with pytest.raises(ValueError, match="1 missing id in 2 rows"):
        read_ids(["a", float("nan")], "agent", 2)


def test_unusual_ids_are_accepted():
    odd = [2**70, 2**70 + 1, "\ud800", "naïve", "名前", ""]
    assert len(read_ids(odd, "agent", 6).texts) == 6
    X, y = np.arange(6.0)[:, None], np.arange(6.0)
    model = HLCRRegressor(n_sweeps=5).fit(X, y, agent=odd, entity=[1] * 6)
    assert len(model.agent_ids_) == 6


def test_missing_ids_of_an_arrow_dictionary_are_refused():

    column = pa.chunked_array([pa.array(["a", "b", None, "a"]).dictionary_encode()])
    with pytest.raises(ValueError, match="`agent` has 1 missing id in 4 rows"):
        read_ids(column, "agent", 4)
    numbers = pa.chunked_array([pa.array([7, 5, 7]).dictionary_encode()])
    assert read_ids(numbers, "agent", 3).texts == ["5", "7"]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64])
@pytest.mark.parametrize("start", [0, 100, -128, -(2**63), 2**63 - 50, 2**63 + 7])
def test_whole_numbers_are_counted_as_they_would_be_sorted(dtype, start):
    numbers = [start + step for step in (9, 3, 3, 17, 0, 9, 12)]
    if not all(np.iinfo(dtype).min <= number <= np.iinfo(dtype).max for number in numbers):
        return
    ids = read_ids(np.array(numbers, dtype=dtype), "agent", len(numbers))
    assert list(ids.texts) == [str(number) for number in sorted(set(numbers))]
    assert [int(ids.texts[code]) for code in ids.codes] == numbers
