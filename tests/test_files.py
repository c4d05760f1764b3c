"""Tables on disk: only what was asked for, and errors without values."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from fedhlcr.files import FileError, read_columns

SECRET = "867.5309"


@pytest.fixture
def csv(tmp_path):
    path = tmp_path / "events.csv"
    path.write_text("id,x,y,secret\n007,1,2.5,a\n08,2,3.5,b\n,3,4.5,c\n")
    return path


def test_only_the_named_columns_come_in_the_order_asked(csv, tmp_path):
    parquet = tmp_path / "events.parquet"
    pa.parquet.write_table(pa.table({"secret": ["a"], "y": [1.0], "x": [2.0]}), parquet)
    assert read_columns(csv, ["y", "x"]).column_names == ["y", "x"]
    assert read_columns(parquet, ["y", "x"]).column_names == ["y", "x"]


def test_ids_are_texts(csv):
    assert read_columns(csv, ["id"], texts=["id"])["id"].to_pylist() == ["007", "08", ""]


@pytest.mark.parametrize("text", ["NA", "null", "nan"])
def test_an_id_may_look_like_nothing(text, tmp_path):
    path = tmp_path / "events.csv"
    path.write_text(f"id,x\n{text},1\n")
    assert read_columns(path, ["id", "x"], texts=["id"])["id"].to_pylist() == [text]


def test_compressed_and_marked_files_are_read(csv, tmp_path):
    packed = tmp_path / "events.csv.gz"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + csv.read_bytes()))
    assert read_columns(packed, ["id", "y"])["y"].to_pylist() == [2.5, 3.5, 4.5]


def test_quoted_names_and_line_breaks_are_read(tmp_path):
    path = tmp_path / "events.csv"
    path.write_text('"a, b","c"\r\n1,2\r\n')
    assert read_columns(path, ["a, b"])["a, b"].to_pylist() == [1]


def broken(kind, tmp_path):
    path = tmp_path / "events.csv"
    match kind:
        case "absent":
            return path
        case "folder":
            return tmp_path
        case "empty":
            path.write_text("")
        case "ragged":
            path.write_text(f"x,y\n1,2\n{SECRET}\n")
        case "double":
            path.write_text(f"x,x,y\n1,2,{SECRET}\n")
        case "no such column":
            path.write_text(f"a,y\n{SECRET},2\n")
        case "not text":
            path.write_bytes(b"x,y\n\xff\xfe" + SECRET.encode() + b",2\n" + bytes(range(128, 256)))
        case "unknown kind":
            path = tmp_path / "events.xlsx"
            path.write_text(SECRET)
        case "half a parquet" | "no parquet":
            path = tmp_path / "events.parquet"
            pa.parquet.write_table(pa.table({"x": np.arange(1000.0), "y": np.arange(1000.0)}), path)
            whole = path.read_bytes()
            path.write_bytes(whole[: len(whole) // 2] if kind == "half a parquet" else SECRET.encode())
        case "flipped parquet":
            path = tmp_path / "events.parquet"
            pa.parquet.write_table(pa.table({"x": np.arange(1000.0), "y": np.arange(1000.0)}), path, compression="gzip")
            data = bytearray(path.read_bytes())
            data[40:60] = bytes(20)
            path.write_bytes(bytes(data))
        case "not gzip":
            path = tmp_path / "events.csv.gz"
            path.write_text(SECRET)
    return path


KINDS = [
    *("absent", "folder", "empty", "ragged", "double", "no such column", "not text", "unknown kind"),
    *("half a parquet", "no parquet", "flipped parquet", "not gzip"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_read_is_told_in_one_line_without_values(kind, tmp_path):
    with pytest.raises(FileError) as caught:
        read_columns(broken(kind, tmp_path), ["x", "y"], texts=["x"])
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is None
