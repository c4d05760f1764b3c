"""Codes of ids in order of appearance: against dictionaries, with nearly full tables, and made again."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhlcr.data.ids import Texts, read_ids
from fedhlcr.data.streaming import id_tables
from fedhlcr.data.streaming.id_tables import IdTable, NumberTable, TextTable, is_whole


def codes_by_dictionary(items):
    known = {}
    return [known.setdefault(item, len(known)) for item in items], list(known)


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 5)), max_size=5))
def test_numbers_have_codes_in_order_of_appearance(pieces):
    table = NumberTable()
    codes = [table.codes(np.array(piece, dtype=np.int64)).tolist() for piece in pieces]
    expected, known = codes_by_dictionary([number for piece in pieces for number in piece])
    assert [code for piece in codes for code in piece] == expected
    assert table.numbers.tolist() == known


@given(st.lists(st.lists(st.text(max_size=4)), max_size=5))
def test_texts_have_codes_in_order_of_appearance(pieces):
    table = TextTable()
    codes = [table.codes(Texts.of(piece)).tolist() for piece in pieces]
    expected, known = codes_by_dictionary([text for piece in pieces for text in piece])
    assert [code for piece in codes for code in piece] == expected
    assert list(table.texts) == known


def test_ids_with_the_same_slot_are_different_ids(monkeypatch):
    # as many slots as ids, but one: almost every id meets the slots of others
    monkeypatch.setattr(id_tables, "n_slots_for", lambda n_items: 1024)
    texts, numbers = [f"id {i}" for i in range(1023)], np.arange(1023) * 2**40
    table = TextTable()
    assert table.codes(Texts.of(texts)).tolist() == list(range(1023))
    assert table.codes(Texts.of([])).tolist() == []
    whole = NumberTable()
    assert whole.codes(numbers).tolist() == list(range(1023))
    assert len(whole) == len(table) == 1023


def test_table_made_again_goes_on():
    table, numbers = TextTable(), NumberTable()
    table.codes(Texts.of(["b", "a", "b"]))
    numbers.codes(np.array([5, -5]))
    assert TextTable(table.texts).codes(Texts.of(["a", "c", "b"])).tolist() == [1, 2, 0]
    assert NumberTable(numbers.numbers.copy()).codes(np.array([-5, 7])).tolist() == [1, 2]


COLUMNS = {
    "whole": pa.array([3, 1, 2, 3, -4, 10], pa.int32()),
    "texts": pa.array(["b", "10", "9", "007", "b", "ü"]),
    "floats": pa.array([7.0, 7.5, -0.0, 0.0, 7.0, 1e300]),
    "times": pa.array([0, 86_400_000, 1, 0, 5, 86_400_000], pa.timestamp("ms")),
    "logical": pa.array([True, False, True, True, False, False]),
    "large": pa.array([2**64 - 1, 1, 2, 3, 1, 1], pa.uint64()),
    "bytes": pa.array([b"a", b"\xff", b"a", b"b", b"c", b"\xff"]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_ids_in_pieces_are_those_of_the_whole_column(name):
    column = pa.chunked_array([COLUMNS[name]])
    whole = read_ids(column, "id", len(column))
    table = IdTable("id", is_whole=is_whole(column.type))
    codes = np.concatenate([table.codes(column.slice(first, 2)) for first in (0, 2, 4)])
    ids = table.sorted()
    assert list(ids.texts) == list(whole.texts)
    assert ids.codes[codes].tolist() == whole.codes.tolist()


@pytest.mark.parametrize(
    ("texts", "is_decimal", "expected"),
    [(["7.0", "8.50", "7.00"], True, ["7", "8.50"]), (["7.0", "8.0"], False, ["7.0", "8.0"])],
)
def test_ids_with_decimal_points_are_whole_numbers_if_all_have_one(texts, is_decimal, expected):
    table = IdTable("id", is_whole=False)
    for text in texts:
        table.codes(pa.chunked_array([[text]]))
    assert sorted(table.sorted(is_decimal=is_decimal).texts) == sorted(expected)
