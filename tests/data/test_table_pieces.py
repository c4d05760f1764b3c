"""Tables piece by piece: the same values and errors as when they are read at once."""

from __future__ import annotations

import datetime
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from fedhlcr.data import csv_files, table_pieces
from fedhlcr.data.table_files import open_table
from fedhlcr.exceptions import FileError


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(table_pieces, "PIECE_ROWS", 3)
    monkeypatch.setattr(csv_files, "BLOCK_SIZE", 64)


def joined(file, columns, texts=(), first=0):
    pieces = [piece for piece, _ in file.read_pieces(columns, texts, first)]
    return pa.concat_tables(pieces)


def require_same(path, columns, texts=(), n_pieces=2):
    file = open_table(path)
    whole = file.read(columns, texts)
    positions = [position for _, position in file.read_pieces(columns, texts)]
    assert len(positions) >= n_pieces
    assert positions == sorted(positions)
    assert positions[-1] == file.size
    assert repr(joined(file, columns, texts).to_pydict()) == repr(whole.to_pydict())
    for first in (1, 4, len(whole) - 1):
        assert repr(joined(file, columns, texts, first).to_pydict()) == repr(whole.slice(first).to_pydict())


def write(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pa.parquet.write_table(pa.table(columns), path, row_group_size=4)


def test_folder_of_mixed_types(tmp_path):
    write(tmp_path / "d" / "a.parquet", i=pa.array([1, 2, 3, 4, 5], pa.int32()), x=pa.array([1, 2, 3, None, 5]))
    write(tmp_path / "d" / "b.parquet", i=pa.array([7.0, 8.5], pa.float32()), x=pa.array([1.5, float("nan")]))
    write(tmp_path / "d" / "c.parquet", i=pa.array([], pa.int64()), x=pa.array([], pa.null()))
    require_same(tmp_path / "d", ["i", "x"], ["i"])
    require_same(tmp_path / "d", ["x", "i"])


def test_partition_folders_and_dictionaries(tmp_path):
    names = pa.array(["u", "v", "u", None, "w"])
    write(tmp_path / "d" / "shop=north%20east" / "a.parquet", e=names.dictionary_encode(), x=pa.array(range(5)))
    write(tmp_path / "d" / "shop=__HIVE_DEFAULT_PARTITION__" / "b.parquet", e=names, x=pa.array(range(5)))
    require_same(tmp_path / "d", ["shop", "e", "x"], ["shop", "e"])
    require_same(tmp_path / "d", ["shop"], ["shop"])


def test_dates_and_booleans(tmp_path):
    days = [datetime.date(2024, 1, day) for day in range(1, 9)]
    write(tmp_path / "a.parquet", day=pa.array(days), b=pa.array([True, False] * 4))
    require_same(tmp_path / "a.parquet", ["day", "b"], ["day"])


@pytest.mark.parametrize("texts", [["1", " +2", "3e-1", "NA", ".5"], ["true", "FALSE", "", "True", "false"]])
def test_numbers_as_texts_in_parquet(tmp_path, texts):
    write(tmp_path / "a.parquet", x=pa.array(texts), y=pa.array(range(5)))
    require_same(tmp_path / "a.parquet", ["x", "y"])


CSV = {
    "plain": ("id,x,y", ["a,1,2", "b,3.5,NA", "007,1e-3,0", '"q,r",,4', "NA,5,6", "c,7,8", "d,9,10"] * 3),
    "commas": ("id;x;y", ["a;1;2", "b;3,5;NA", "c;1,25;0", "d;5;6"] * 6),
    "commas_late": ("id;x;y", [*["a;1;2"] * 30, "b;3,5;NA", "c;1,25;0"]),
    "logical": ("id,x,y", [*["a,true,2", "b,False,3"] * 12, "c,,1"]),
    "plus_late": ("id,x,y", [*["a,1,2", "b,2.5,3"] * 12, "c,+3,1"]),
    "plus_late_commas": ("id;x;y", [*["a;1;2", "b;2;3"] * 12, "c;+3,5;1"]),
}


@pytest.mark.parametrize("case", CSV)
def test_csv(tmp_path, case):
    header, rows = CSV[case]
    (tmp_path / "t.csv").write_text("\n".join([header, *rows, ""]))
    require_same(tmp_path / "t.csv", ["id", "x", "y"], ["id"])


BROKEN = {
    "text": ("id,x", [*["a,1"] * 30, "b,many", "c,few", *["a,1"] * 9]),
    "thousands": ("id,x", [*["a,1"] * 30, 'b,"1,000"', *["a,1"] * 9]),
    "mixed_commas": ("id;x", [*["a;1.5"] * 30, *["a;1,5"] * 9]),
    "logical_and_numbers": ("id,x", [*["a,true"] * 30, *["a,1"] * 9]),
    "fields": ("id,x", [*["a,1"] * 30, "b,1,2", *["a,1"] * 9]),
}


@pytest.mark.parametrize("case", BROKEN)
def test_errors_of_csv_are_those_of_the_whole_table(tmp_path, case):
    header, rows = BROKEN[case]
    (tmp_path / "t.csv").write_text("\n".join([header, *rows, ""]))
    file = open_table(tmp_path / "t.csv")
    with pytest.raises(FileError) as at_once:
        file.read(["id", "x"], ["id"])
    with pytest.raises(FileError) as in_pieces:
        joined(file, ["id", "x"], ["id"])
    assert str(at_once.value) == str(in_pieces.value)


def test_errors_of_folders_are_those_of_the_whole_table(tmp_path):
    write(tmp_path / "d" / "a.parquet", i=pa.array(["1", "x"]), x=pa.array([1, 2]))
    write(tmp_path / "d" / "b.parquet", i=pa.array([1, 2]), z=pa.array([1, 2]))
    file = open_table(tmp_path / "d")
    for columns in (["i"], ["x"], ["nothing"]):
        with pytest.raises(FileError) as at_once:
            file.read(columns)
        with pytest.raises(FileError) as in_pieces:
            joined(file, columns)
        assert str(at_once.value) == str(in_pieces.value)


def test_table_in_memory_has_pieces(tmp_path):
    pa.feather.write_feather(pa.table({"x": np.arange(10.0)}), tmp_path / "t.feather")
    file = open_table(tmp_path / "t.feather")
    assert file.size is None
    assert file.bytes_in_memory == 0
    assert joined(file, ["x"], first=4)["x"].to_pylist() == list(range(4, 10))


def test_skipped_files_count_for_types_and_numbers(tmp_path):
    for number, texts in enumerate((["1.5", "2"], ["3"], ["4", "5", "6"])):
        # numbers in the first file let those of all files be floats
        table = pa.table({"x": texts, "id": pa.array([number] * len(texts), pa.int64() if number else pa.float64())})
        pa.parquet.write_table(table, tmp_path / f"{number}.parquet")
    file = open_table(tmp_path)
    part = replace(file, pieces=replace(file.pieces, skipped=frozenset([0, 2])))
    assert joined(part, ["x", "id"], ["id"]).equals(joined(file, ["x", "id"], ["id"]).slice(2, 1))
    pa.parquet.write_table(pa.table({"x": ["none"], "id": [0.0]}), tmp_path / "0.parquet")
    with pytest.raises(FileError, match="must hold numbers"):
        joined(open_table(tmp_path), ["x"])
    with pytest.raises(FileError, match="must hold numbers"):
        joined(part, ["x"])
