"""Tables on disk: only what was asked for, and errors without values."""

import bz2
import gzip
import io
import lzma
import os
import struct
import sys
import threading
import warnings
import zipfile
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from fedhlcr.cli.shell import option_text
from fedhlcr.data.table_files import open_table, read_columns
from fedhlcr.exceptions import FileError

SECRET = "867.5309"


def test_columns_are_returned_in_the_order_of_the_request(csv, tmp_path):
    parquet = tmp_path / "events.parquet"
    pa.parquet.write_table(pa.table({"secret": ["a"], "y": [1.0], "x": [2.0]}), parquet)
    assert read_columns(csv, ["y", "x"]).column_names == ["y", "x"]
    assert read_columns(parquet, ["y", "x"]).column_names == ["y", "x"]


def packed_by_arrow(data, codec):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def arrow_bytes(table, writer=pa.ipc.new_file, **how):
    sink = io.BytesIO()
    with writer(sink, table.schema, **how) as out:
        out.write_table(table)
    return sink.getvalue()


def parquet_bytes(table, **how):
    sink = io.BytesIO()
    pa.parquet.write_table(table, sink, **how)
    return sink.getvalue()


def in_typed_formats(column, folder):
    """Yield the path of a file whose only column is x: first as Parquet, then as Arrow.

    Views of text are written as Arrow only where pyarrow is older than 21 and cannot write them as Parquet.
    """
    path, table = folder / "events", pa.table({"x": column})
    only_arrow = pa.types.is_string_view(column.type) and int(pa.__version__.split(".")[0]) < 21
    for to_bytes in (arrow_bytes,) if only_arrow else (parquet_bytes, arrow_bytes):
        path.write_bytes(to_bytes(table))
        yield path


def feather_bytes(table, **how):
    sink = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pa.feather.write_feather(table, sink, **how)
    return sink.getvalue()


TEXT = "id,x,y\n007,1,2.5\n08,2,3.5\n"


EVENTS = pa.table({"id": ["007", "08"], "x": [1, 2], "y": [2.5, 3.5]})


FORMATS = {
    "comma": TEXT.encode(),
    "tab": TEXT.replace(",", "\t").encode(),
    "semicolon": TEXT.replace(",", ";").encode(),
    "bar": TEXT.replace(",", "|").encode(),
    "carriage returns": TEXT.replace("\n", "\r\n").encode(),
    "old carriage returns": TEXT.replace("\n", "\r").encode(),
    "mark": b"\xef\xbb\xbf" + TEXT.encode(),
    "no last line end": TEXT.strip().encode(),
    "empty lines": ("\n" + TEXT.replace("\n", "\n\n")).encode(),
    "quotes": b'"id","x","y"\n"007","1","2.5"\n"08","2","3.5"\n',
    "spaces": b"id,x,y\n007, 1, 2.5 \n08,2 ,\t3.5\n",
    "powers": b"id,x,y\n007,1e0,25e-1\n08,+2.,+.35E1\n",
    "parquet": parquet_bytes(EVENTS),
    "parquet zstd": parquet_bytes(EVENTS, compression="zstd"),
    "parquet gzip": parquet_bytes(EVENTS, compression="gzip"),
    "arrow": arrow_bytes(EVENTS),
    "arrow stream": arrow_bytes(EVENTS, pa.ipc.new_stream),
    "feather": feather_bytes(EVENTS),
    "feather lz4": feather_bytes(EVENTS, compression="lz4"),
    "feather zstd": feather_bytes(EVENTS, compression="zstd"),
}


PACKERS = {
    "plain": lambda data: data,
    "gz": gzip.compress,
    "gz in two": lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:]),
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda data: packed_by_arrow(data, "zstd"),
    "lz4": lambda data: packed_by_arrow(data, "lz4"),
    "twice": lambda data: gzip.compress(bz2.compress(data)),
}


def assert_events(table):
    assert table.column_names == ["y", "id", "x"]
    assert table["id"].to_pylist() == ["007", "08"]
    assert table.schema.field("x").type == table.schema.field("y").type == pa.float64()
    assert (table["x"].to_pylist(), table["y"].to_pylist()) == ([1.0, 2.0], [2.5, 3.5])


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_is_recognised_by_its_content(kind, packer, tmp_path):
    path = tmp_path / "events"
    path.write_bytes(PACKERS[packer](FORMATS[kind]))
    assert_events(read_columns(path, ["y", "id", "x"], texts=["id"]))


@pytest.mark.parametrize("name", ["events.csv.gz", "events.parquet", "events.feather"])
def test_endings_of_names_do_not_matter_except_for_text(name, tmp_path):
    """A Parquet file called .csv, and the like; only text is not called like something else."""
    path = tmp_path / "events.csv"
    path.write_bytes(FORMATS["parquet"])
    assert_events(read_columns(path, ["y", "id", "x"], texts=["id"]))
    path = tmp_path / name
    path.write_bytes(FORMATS["comma"])
    with pytest.raises(FileError, match="not in the format that its name says"):
        read_columns(path, ["y"])


def offsets(*places):
    return pa.py_buffer(np.array(places, dtype=np.int32).tobytes())


def far_texts(data=b"abc"):
    """Three texts, of which the second ends far behind the data, and the third begins there."""
    return pa.StringArray.from_buffers(3, offsets(0, 1, 2**31 - 1, 3), pa.py_buffer(data))


# Columns that their types do not allow. Arrow writes and reads them without a word, and crashes when it uses them.
FORGED = {
    "offset of texts": far_texts,
    "negative offset": lambda: pa.StringArray.from_buffers(3, offsets(0, -5, 2, 3), pa.py_buffer(b"abc")),
    "offset of large texts": lambda: pa.LargeStringArray.from_buffers(
        3, pa.py_buffer(np.array([0, 1, 2**60, 3]).tobytes()), pa.py_buffer(b"abc")
    ),
    "place in a dictionary": lambda: pa.DictionaryArray.from_arrays(
        pa.array([0, 2**30, 1], pa.int32()), pa.array(["a", "b"]), safe=False
    ),
    "text of a dictionary": lambda: pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int32()), far_texts()),
    "offset of lists": lambda: pa.Array.from_buffers(
        pa.list_(pa.int32()), 3, [None, offsets(0, 1, 2**31 - 1, 3)], children=[pa.array([1, 2, 3], pa.int32())]
    ),
    "text in a list": lambda: pa.ListArray.from_arrays([0, 1, 2, 3], far_texts()),
    "text in a record": lambda: pa.StructArray.from_arrays([far_texts()], ["text"]),
    "bytes": lambda: pa.StringArray.from_buffers(3, offsets(0, 1, 2, 3), pa.py_buffer(b"a\xffc")),
}
WRITERS = {
    "file": lambda table: arrow_bytes(table),
    "stream": lambda table: arrow_bytes(table, pa.ipc.new_stream),
    "lz4": lambda table: feather_bytes(table, compression="lz4"),
    "zstd": lambda table: feather_bytes(table, compression="zstd"),
    "gz": lambda table: gzip.compress(arrow_bytes(table)),
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("forged", FORGED)
def test_arrow_files_are_checked_before_they_are_read(forged, writer, tmp_path):
    path = tmp_path / "events.arrow"
    path.write_bytes(WRITERS[writer](pa.table({"y": [1.0, 2.0, 3.0], "forged": FORGED[forged]()})))
    found = "texts that are not in UTF-8; write" if forged == "bytes" else "is damaged; copy or write"
    with pytest.raises(FileError, match=f"'events.arrow' cannot be read: its column 'forged' .*{found}"):
        open_table(path)


def test_columns_of_other_lengths_are_refused(tmp_path):
    """What a batch says of its rows, and a column of its own, need not agree."""
    table = pa.table({"y": [1.0, 2.0, 3.0], "x": [1.0, 2.0, 3.0]})
    data = bytearray(arrow_bytes(table))
    shorter = struct.pack("<qq", 3, 0)
    # the second of these is the field node of x: its length and the number of its nulls
    place = data.rindex(shorter, 0, data.rindex(np.array([1.0, 2.0, 3.0]).tobytes()))
    data[place : place + 8] = struct.pack("<q", 2)
    (tmp_path / "events").write_bytes(data)
    with pytest.raises(FileError, match="'events' cannot be read"):
        open_table(tmp_path / "events")


def test_feather_files_of_version_1_are_refused(tmp_path):
    path = tmp_path / "events.feather"
    path.write_bytes(feather_bytes(EVENTS, version=1))
    with pytest.raises(FileError, match=r"'events.feather' is a Feather file of version 1.*write it as version 2"):
        open_table(path)


@pytest.mark.parametrize("kind", ["text", "dictionary"])
def test_texts_of_parquet_that_are_not_utf8_are_refused(kind, tmp_path):
    texts = pa.array([b"north", b"s\xfcd", b"east"], pa.binary())
    column = pa.Array.from_buffers(pa.string(), 3, texts.buffers())
    if kind == "dictionary":
        column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int32()), column)
    table = pa.table({"y": [1.0, 2.0, 3.0], "region": column})
    (tmp_path / "sales").mkdir()
    for path in (tmp_path / "sales.parquet", tmp_path / "sales" / "part.parquet"):
        path.write_bytes(parquet_bytes(table))
    for source in (tmp_path / "sales.parquet", tmp_path / "sales"):
        file = open_table(source)
        named = "parquet' cannot be read: its column 'region' holds texts that are not in UTF-8"
        for read in (file.read, lambda *given, file=file: list(file.read_pieces(*given))):
            with pytest.raises(FileError, match=named) as error:
                read(["y", "region"], ["region"])
            assert "north" not in str(error.value)
            assert read(["y"])


class Stdin:
    def __init__(self, data):
        self.buffer = io.BytesIO(data)


@pytest.mark.parametrize("kind", ["comma", "mark", "semicolon", "parquet", "arrow stream"])
@pytest.mark.parametrize("packer", ["plain", "gz"])
def test_tables_from_standard_input(kind, packer, monkeypatch):
    monkeypatch.setattr(sys, "stdin", Stdin(PACKERS[packer](FORMATS[kind])))
    assert_events(open_table("-").read(["y", "id", "x"], texts=["id"]))
    monkeypatch.setattr(sys, "stdin", Stdin(b""))
    with pytest.raises(FileError, match=r"^standard input is empty"):
        open_table("-")


def test_tables_from_named_pipes(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(FORMATS["comma"],))
    writer.start()
    assert_events(read_columns(path, ["y", "id", "x"], texts=["id"]))
    writer.join()


NUMBER_COLUMNS = {
    "dictionary": pa.array([1.0, None, 2.0]).dictionary_encode(),
    "decimal": pa.array([Decimal("1.00"), None, Decimal("2.00")]),
    "large decimal": pa.array([Decimal("1.00"), None, Decimal("2.00")], pa.decimal256(40, 2)),
    "int": pa.array([1, None, 2], pa.int8()),
    "unsigned": pa.array([1, None, 2], pa.uint64()),
    "float": pa.array([1, None, 2], pa.float32()),
    "half": pa.array([np.float16(1), None, np.float16(2)], pa.float16()),
    "text": pa.array(["1", None, "2.0"]),
    "large text": pa.array(["1", "", "2"], pa.large_string()),
    "text view": pa.array(["1", "NA", "2"], pa.string_view()),
    "dictionary of text": pa.array(["1", None, "2"]).dictionary_encode(),
}


@pytest.mark.parametrize("kind", NUMBER_COLUMNS)
def test_numbers_of_any_type(kind, tmp_path):
    for path in in_typed_formats(NUMBER_COLUMNS[kind], tmp_path):
        assert read_columns(path, ["x"])["x"].to_pylist() == [1.0, None, 2.0]


def test_booleans_and_nulls_are_numbers(tmp_path):
    path = tmp_path / "events"
    path.write_bytes(parquet_bytes(pa.table({"x": [True, None, False], "y": pa.nulls(3)})))
    table = read_columns(path, ["x", "y"])
    assert table.to_pydict() == {"x": [1.0, None, 0.0], "y": [None, None, None]}


TEXT_COLUMNS = {
    "text": pa.array(["007", None, "b"]),
    "large text": pa.array(["007", None, "b"], pa.large_string()),
    "text view": pa.array(["007", None, "b"], pa.string_view()),
    "dictionary": pa.array(["007", None, "b"]).dictionary_encode(),
    "dictionary of large text": pa.array(["007", None, "b"], pa.large_string()).dictionary_encode(),
}


@pytest.mark.parametrize("kind", TEXT_COLUMNS)
def test_texts_of_any_type(kind, tmp_path):
    for path in in_typed_formats(TEXT_COLUMNS[kind], tmp_path):
        column = read_columns(path, ["x"], texts=["x"])["x"]
        assert column.type == pa.string()
        assert column.to_pylist() == ["007", None, "b"]


def test_partition_folders_are_columns(tmp_path):
    """Of texts: 007 is no number."""
    data = tmp_path / "data"
    for store, x in (("007", 1), ("north%20side", 2), ("__HIVE_DEFAULT_PARTITION__", 3)):
        folder = data / f"store={store}" / "year=2024"
        folder.mkdir(parents=True)
        (folder / "part-0.parquet").write_bytes(parquet_bytes(pa.table({"x": [x, x]})))
    (data / "_SUCCESS").write_text("")
    (data / "README.md").write_text("about")
    (data / ".part.parquet").write_text("half written")
    table = open_table(data)
    assert table.columns == ("x", "store", "year")
    read = table.read(["store", "year", "x"], texts=["store"])
    assert read["store"].to_pylist() == ["007", "007", None, None, "north side", "north side"]
    assert read["year"].to_pylist() == [2024.0] * 6
    assert read["x"].to_pylist() == [1.0, 1.0, 3.0, 3.0, 2.0, 2.0]
    assert table.read(["store"], texts=["store"]).num_rows == 6
    assert table.read_as_is(["store"]).num_rows == 6


def test_folders_may_have_names_of_files(tmp_path):
    """As Spark calls them."""
    for day in (1, 2):
        folder = tmp_path / "data" / f"day{day}.parquet"
        folder.mkdir(parents=True)
        (folder / "part-0.snappy.parquet").write_bytes(parquet_bytes(pa.table({"x": [day]})))
    assert open_table(tmp_path / "data").read(["x"]).to_pydict() == {"x": [1.0, 2.0]}


def folder_of(tmp_path, *tables):
    folder = tmp_path / "data"
    folder.mkdir()
    for number, table in enumerate(tables):
        (folder / f"{number}.parquet").write_bytes(table if isinstance(table, bytes) else parquet_bytes(table))
    return folder


def test_files_of_a_folder_may_have_different_number_types(tmp_path):
    tables = (
        pa.table({"x": [1], "id": pa.array(["a"]).dictionary_encode()}),
        pa.table({"id": ["b"], "x": [0.5]}),
        pa.table({"x": pa.nulls(1), "id": pa.array(["c"], pa.large_string())}),
    )
    table = read_columns(folder_of(tmp_path, *tables), ["id", "x"], texts=["id"])
    assert table.to_pydict() == {"id": ["a", "b", "c"], "x": [1.0, 0.5, None]}


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (pa.table({"x": [SECRET]}), "different types"),
        (pa.table({"z": [SECRET]}), "'1.parquet' has no column 'x'"),
        (b"PAR1" + SECRET.encode(), "'1.parquet' cannot be read"),
        (SECRET.encode(), "'1.parquet' cannot be read"),
        (b"", "'1.parquet' cannot be read"),
    ],
)
def test_folder_with_one_different_file_is_refused(second, message, tmp_path):
    folder = folder_of(tmp_path, pa.table({"x": [1.0]}), second)
    with pytest.raises(FileError, match=message) as caught:
        read_columns(folder, ["x"])
    assert SECRET not in str(caught.value)


def test_duplicate_and_empty_names(tmp_path):
    path = tmp_path / "events.csv"
    path.write_text(",x,x,y,\n0,1,2,3,4\n")
    table = open_table(path)
    assert table.columns == ("", "x", "x", "y", "")
    assert table.read(["y"])["y"].to_pylist() == [3.0]
    with pytest.raises(FileError, match="more than one column 'x'; rename"):
        table.read(["x"])
    double = pa.table([[1.0], [2.0], [3.0]], names=["x", "x", "y"])
    for data in (arrow_bytes(double), parquet_bytes(double)):
        path.write_bytes(data)
        assert read_columns(path, ["y"])["y"].to_pylist() == [3.0]
        with pytest.raises(FileError, match="more than one column 'x'; rename"):
            read_columns(path, ["x"])


def test_header_without_rows_is_refused(tmp_path):
    path = tmp_path / "events.csv"
    for text in ("x,y\n", "x,y", "\nx,y\r\n\n"):
        path.write_text(text)
        with pytest.raises(FileError, match="no rows below its header"):
            read_columns(path, ["x", "y"], texts=["x"])
    path.write_bytes(parquet_bytes(pa.table({"x": pa.array([], pa.string()), "y": pa.nulls(0)})))
    assert read_columns(path, ["x", "y"], texts=["x"]).num_rows == 0


def test_similar_names_are_suggested_but_never_values(tmp_path):
    path = tmp_path / "events.csv"
    path.write_text("Sales,store\n1,2\n")
    with pytest.raises(FileError, match="did you mean 'Sales'"):
        read_columns(path, ["sales"])
    path.write_text("store7,1.5\nstore8,2.5\n")
    with pytest.raises(FileError, match="first line must hold the column names") as caught:
        read_columns(path, ["store"])
    assert "store7" not in str(caught.value)


def halves(data):
    return {"front": data[: len(data) // 2], "back": data[len(data) // 2 :]}


LONG = pa.table({"x": np.arange(3000.0), "y": [SECRET] * 3000})
NUMBERS = parquet_bytes(pa.table({"x": np.arange(1000.0), "y": np.arange(1000.0)}), compression="gzip")


DAMAGED = {
    **{f"parquet {half}": data for half, data in halves(parquet_bytes(LONG)).items()},
    **{f"arrow {half}": data for half, data in halves(arrow_bytes(LONG)).items()},
    **{f"stream {half}": data for half, data in halves(arrow_bytes(LONG, pa.ipc.new_stream)).items()},
    **{
        f"{packer} {half}": data
        for packer, pack in PACKERS.items()
        if packer not in ("plain", "gz in two")
        for half, data in halves(pack(np.random.default_rng(0).bytes(9000))).items()
    },
    "flipped gz": gzip.compress(b"x,y\n" * 5000)[:-9] + bytes(9),
    "flipped xz": lzma.compress(b"x,y\n" * 5000)[:-30] + bytes(30),
    "rubbish": np.random.default_rng(1).bytes(5000),
    "utf-16": "x,y\n1,2\n".encode("utf-16"),
    "utf-16 without mark": "x,y\n1,2\n".encode("utf-16-le"),
    "latin-1 names": "größe,x\n1,2\n".encode("latin-1"),
    "latin-1 values": f"x,y\ngröße {SECRET},2\n".encode("latin-1"),
    "latin-1 values and ragged": f"x,y\ngröße {SECRET}\n".encode("latin-1"),
    "dates": parquet_bytes(pa.table({"x": ["a"], "y": pa.array([0], pa.timestamp("s"))})),
    "lists of numbers": parquet_bytes(pa.table({"x": ["a"], "y": [[1.0, 2.0]]})),
    "lists of texts": parquet_bytes(pa.table({"x": [[SECRET]], "y": [1.0]})),
    "records": arrow_bytes(pa.table({"x": [{"a": SECRET}], "y": [1.0]})),
    "bytes": parquet_bytes(pa.table({"x": ["a"], "y": [b"\xff"]})),
    "only line ends": b"\n\n\n",
    "only a mark": b"\xef\xbb\xbf",
    "an open quote": f'x,y\n1,2\n"{SECRET},3\n4,5\n'.encode(),
    "packed nothing": gzip.compress(b""),
    "old spreadsheet": b"\xd0\xcf\x11\xe0" + bytes(100),
    "empty": b"",
    "ragged": f"x,y\n1,2\n{SECRET}\n".encode(),
    "a column twice": f"x,x,y\n1,2,{SECRET}\n".encode(),
    "no such column": f"a,y\n{SECRET},2\n".encode(),
    "not text": b"x,y\n\xff\xfe" + SECRET.encode() + b",2\n" + bytes(range(128, 256)),
    "a single value": SECRET.encode(),
    "flipped parquet": NUMBERS[:40] + bytes(20) + NUMBERS[60:],
}


@pytest.mark.parametrize("kind", DAMAGED)
@pytest.mark.parametrize("name", ["events", "events.csv"])
def test_damaged_tables_give_one_line_without_values(kind, name, tmp_path):
    path = tmp_path / name
    path.write_bytes(DAMAGED[kind])
    message = assert_refused(path)
    if kind.endswith("front"):
        assert "damaged" in message
        assert "UTF-8" not in message


def assert_refused(path):
    with pytest.raises(FileError) as caught:
        read_columns(path, ["x", "y"], texts=["x"])
    message = str(caught.value)
    assert SECRET not in message
    assert "\n" not in message
    assert len(message) < 400
    assert caught.value.__cause__ is None
    return message


def test_files_that_are_not_tables_are_refused(tmp_path):
    path = tmp_path / "events.xlsx"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("xl/worksheets/sheet1.xml", SECRET)
    assert "spreadsheet" in assert_refused(path)
    assert "device" in assert_refused("/dev/zero")
    assert "too long" in assert_refused(tmp_path / ("x" * 256))
    (tmp_path / "empty").mkdir()
    assert "folder without Parquet" in assert_refused(tmp_path / "empty")
    assert_refused(tmp_path / "absent")
    for name in ("events.xlsx", "events.parquet", "events.csv.gz"):
        (tmp_path / name).write_text(SECRET)
        assert_refused(tmp_path / name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_files_are_refused(csv, tmp_path):
    csv.chmod(0)
    assert "Permission denied" in assert_refused(csv)


@pytest.mark.parametrize(
    "text", ['{"x": [1, 2]}', '[{"x": 1},\n {"x": 2}]\n', '{"x": 1}\n{"x": 2}\n', "[[1, 2]]", " {}"]
)
def test_json_is_called_json(text, tmp_path):
    path = tmp_path / "events.json"
    path.write_text(text)
    with pytest.raises(FileError, match=r"'events.json' is JSON, which is not supported; save it as CSV, Parquet"):
        read_columns(path, ["x"])


def test_header_in_brackets_is_not_json(tmp_path):
    path = tmp_path / "events.csv"
    path.write_text("[x],[y]\n1,2\n")
    assert read_columns(path, ["[x]"]).to_pydict() == {"[x]": [1.0]}


def test_only_close_names_that_are_not_in_use_are_suggested(tmp_path):
    path = tmp_path / "events.csv"
    path.write_text("agent,agents,sales\n1,1,2\n")
    columns = "its columns are 'agent', 'agents', 'sales'."
    for wanted, cure in ((["target"], columns), (["agent", "agentt"], "did you mean 'agents'?")):
        with pytest.raises(FileError) as caught:
            open_table(path).require(wanted)
        assert str(caught.value).endswith(cure)


def test_missing_column_is_named_with_its_setting(tmp_path):
    path = tmp_path / "events.csv"
    path.write_text("agent,{x}\n1,2\n")
    with pytest.raises(FileError) as caught:
        open_table(path).require(["agent", "{y z}"], settings={"target": "{y z}", "agent": "agent", "entity": None})
    assert str(caught.value) == "'events.csv' has no column '{y z}' (target); check the spelling."
    assert caught.value.worded(option_text).startswith("'events.csv' has no column '{y z}' (--target); ")


@pytest.mark.parametrize(
    "header", ["north,kale,", "north,kale,NA", "north,2024-01-31", "north,kale,$12", 'north,"1,5"']
)
def test_first_line_that_may_be_a_row_is_not_shown(header, tmp_path):
    path = tmp_path / "events.csv"
    path.write_text(f"{header}\n{header}\n")
    with pytest.raises(FileError, match=r"has no column 'sales'; check the spelling") as caught:
        open_table(path).require(["sales"])
    assert "kale" not in str(caught.value)
    assert "north" not in str(caught.value)
