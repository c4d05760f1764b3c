"""Tables on disk or from a pipe: the named columns, as numbers or as text, and nothing else.

CSV, Parquet (a file, or a folder of them), Arrow and Feather, compressed or not, are told apart by how they begin,
not by how they are called. Errors never contain a value of the table, only names of columns.
"""

from __future__ import annotations

import bz2
import csv
import difflib
import gzip
import io
import lzma
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

STDIN = "-"
# Files called so are never CSV.
BINARY_SUFFIXES = (
    ".parquet",
    ".pq",
    ".arrow",
    ".feather",
    ".ipc",
    ".gz",
    ".bz2",
    ".xz",
    ".zst",
    ".lz4",
)
# Bytes in which the header of a CSV file must be found.
HEADER_SIZE = 1 << 20
DELIMITERS = (",", ";", "\t", "|")
# What stands for a missing value among numbers and categories; among ids only nothing at all does.
MISSING_TEXTS = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "None")
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?(inf|Inf|INF|infinity|Infinity)$"
UNPACKERS: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": gzip.decompress,
    b"BZh": bz2.decompress,
    b"\xfd7zXZ\x00": lzma.decompress,
    b"\x28\xb5\x2f\xfd": lambda data: _unpack(data, "zstd"),
    b"\x04\x22\x4d\x18": lambda data: _unpack(data, "lz4"),
}


class FileError(ValueError):
    """A table that cannot be read as what it should be."""


def read_columns(path: Path, columns: Sequence[str], texts: Collection[str] = ()) -> pa.Table:
    """The named columns of a table; those among `texts` are read as text, for ids are not numbers ("007")."""
    return open_table(path).read(columns, texts)


def open_table(source: str | Path) -> TableFile:
    """A table whose columns are known; "-" is CSV from a pipe."""
    path = Path(source)
    if str(source) == STDIN:
        data = sys.stdin.buffer.read()
        return _table_of("standard input", io.BytesIO(data), data[:8])
    if not path.exists():
        raise FileError(f"{path.name!r} does not exist; check the path, relative ones start where the program started.")
    if path.is_dir():
        return _folder(path)
    with _reading(path.name), path.open("rb") as file:
        start = file.read(8)
    return _table_of(path.name, path, start)


@dataclass(frozen=True)
class TableFile:
    """A table that has been opened: its columns are known, its rows are read when asked for.

    Attributes
    ----------
    name : of the file, for messages
    columns : names, in their order
    """

    name: str
    columns: tuple[str, ...]
    _load: Callable[[Sequence[str], Collection[str]], pa.Table]

    @classmethod
    def of_arrow(cls, name: str, table: pa.Table) -> TableFile:
        """A table that is in memory."""
        return cls(name, tuple(table.column_names), lambda columns, _: table.select(list(columns)))

    def read(self, columns: Sequence[str], texts: Collection[str] = ()) -> pa.Table:
        """The named columns, in this order: texts for those among `texts`, else floats; missing values are null.

        An id may be called "NA"; a number that is not there may too.
        """
        columns = list(dict.fromkeys(columns))
        self._require(columns)
        with _reading(self.name):
            table = self._load(columns, texts).select(columns)
        return pa.table(
            {
                name: _texts(table[name]) if name in texts else self._numbers(name, table[name], len(table))
                for name in columns
            }
        )

    def read_as_is(self, columns: Sequence[str]) -> pa.Table:
        """All columns as they are written, those named among them: of CSV as texts, else with their types."""
        self._require([*columns, *self.columns])
        with _reading(self.name):
            return self._load(self.columns, self.columns)

    def _require(self, columns: Sequence[str]) -> None:
        if missing := [name for name in columns if name not in self.columns]:
            # only names like those asked for: what stands in the first line may be a row, where there is no header
            alike = [name for wrong in missing for name in difflib.get_close_matches(wrong, self.columns, 1, 0.7)]
            cure = f"did you mean {', '.join(map(repr, alike))}?" if alike else "check the spelling."
            raise FileError(f"{self.name!r} has no column {', '.join(map(repr, missing))}; {cure}")
        if double := [name for name in columns if self.columns.count(name) > 1]:
            raise FileError(
                f"{self.name!r} has several columns {', '.join(map(repr, double))}; rename or drop the copies."
            )

    def _numbers(self, name: str, column: pa.ChunkedArray, n_rows: int) -> pa.ChunkedArray:
        kind = column.type
        if pa.types.is_dictionary(kind):
            column, kind = column.cast(kind.value_type), kind.value_type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return self._parsed(name, column, n_rows)
        if pa.types.is_boolean(kind):
            return column.cast(pa.int8()).cast(pa.float64())
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            return column.cast(pa.float64(), safe=False)
        if pa.types.is_null(kind):
            return column.cast(pa.float64())
        came = "dates or times" if pa.types.is_temporal(kind) else f"values of type {kind}"
        cure = "turn it into numbers first, for example days since a date" if pa.types.is_temporal(kind) else "drop it"
        raise FileError(f"column {name!r} of {self.name!r} must hold numbers, but it holds {came}; {cure}.")

    def _parsed(self, name: str, column: pa.ChunkedArray, n_rows: int) -> pa.ChunkedArray:
        """Numbers that are written as text; "true" and "false" are 1 and 0."""
        column = without_missing_texts(pc.utf8_trim_whitespace(column))
        lower = pc.utf8_lower(column)
        if len(column) > column.null_count and pc.all(pc.is_in(lower, pa.array(["true", "false"]))).as_py():
            return pc.if_else(pc.equal(lower, "true"), 1.0, 0.0)
        wrong = pc.fill_null(pc.invert(pc.match_substring_regex(column, NUMBER)), False)
        n_wrong = pc.sum(wrong).as_py() or 0
        if n_wrong:
            first = pc.index(wrong, True).as_py() + 1
            raise FileError(
                f"column {name!r} of {self.name!r} must hold numbers, but {n_wrong:,} of its {n_rows:,} rows hold "
                f"text, row {first:,} first; correct them, leave the column out, or take it as categorical."
            )
        return column.cast(pa.float64())


def without_missing_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts with null for what stands for a missing value."""
    return pc.if_else(pc.is_in(column, pa.array(MISSING_TEXTS)), pa.scalar(None, column.type), column)


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Ids and categories as they are written; numbers and dates of Parquet keep their type, null where it is null."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_large_string(kind) or pa.types.is_string(kind):
        return column.cast(pa.string())
    return column


def _table_of(name: str, source: Path | io.BytesIO, start: bytes) -> TableFile:
    """A table by how its bytes begin."""
    if not start:
        raise FileError(f"{name!r} is empty; a table has at least a line of column names.")
    for magic, unpack in UNPACKERS.items():
        if start.startswith(magic):
            with _reading(name):
                data = unpack(source.read_bytes() if isinstance(source, Path) else source.getvalue())
            return _table_of(name, io.BytesIO(data), data[:8])
    if start.startswith(b"PK\x03\x04") or start.startswith(b"\xd0\xcf\x11\xe0"):
        raise FileError(f"{name!r} is a spreadsheet or a zip archive; save it as CSV or Parquet.")
    if start.startswith(b"PAR1"):
        return _parquet(name, source)
    if start.startswith((b"ARROW1", b"FEA1", b"\xff\xff\xff\xff")):
        return _arrow(name, source, start)
    if isinstance(source, Path) and source.suffix.lower() in BINARY_SUFFIXES:
        raise FileError(f"{name!r} is not what its name says, or is damaged; write it again.")
    return _csv(name, source)


def _folder(path: Path) -> TableFile:
    if not any(file.suffix.lower() in (".parquet", ".pq") for file in path.rglob("*")):
        raise FileError(f"{path.name!r} is a folder without Parquet files; name a file in it.")
    # takes half a second to import
    from pyarrow.dataset import dataset

    with _reading(path.name):
        # folders such as store=north/ are a column
        data = dataset(path, format="parquet", partitioning="hive", exclude_invalid_files=False)
    return TableFile(path.name, tuple(data.schema.names), lambda columns, _: data.to_table(columns=list(columns)))


def _parquet(name: str, source: Path | io.BytesIO) -> TableFile:
    with _reading(name):
        file = pa.parquet.ParquetFile(source)
    return TableFile(name, tuple(file.schema_arrow.names), lambda columns, _: file.read(columns=list(columns)))


def _arrow(name: str, source: Path | io.BytesIO, start: bytes) -> TableFile:
    from pyarrow.feather import read_table

    file = str(source) if isinstance(source, Path) else source
    with _reading(name):
        if start.startswith(b"\xff\xff\xff\xff"):
            with pa.input_stream(file) as stream:
                table = pa.ipc.open_stream(stream).read_all()
        else:
            table = read_table(file)
    return TableFile.of_arrow(name, table)


def _csv(name: str, source: Path | io.BytesIO) -> TableFile:
    with _reading(name):
        delimiter, columns = _header(name, source)

    def load(wanted: Sequence[str], texts: Collection[str]) -> pa.Table:
        try:
            return read({column: pa.string() if column in texts else pa.float64() for column in wanted})
        except pa.ArrowInvalid:
            # something is no number, or a row is broken: the texts will tell
            return read(dict.fromkeys(wanted, pa.string()))

    def read(types: dict[str, Any]) -> pa.Table:
        if isinstance(source, io.BytesIO):
            source.seek(0)
        convert = pa.csv.ConvertOptions(
            include_columns=list(types), column_types=types, null_values=list(MISSING_TEXTS), strings_can_be_null=False
        )
        parse = pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
        return pa.csv.read_csv(source, parse_options=parse, convert_options=convert)

    return TableFile(name, columns, load)


def _header(name: str, source: Path | io.BytesIO) -> tuple[str, tuple[str, ...]]:
    """The delimiter that parts the first line into most names, and these."""
    if isinstance(source, Path):
        with source.open("rb") as file:
            start = file.read(HEADER_SIZE)
    else:
        start = source.getvalue()[:HEADER_SIZE]
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise FileError(f"{name!r} is in UTF-16; save it in UTF-8.")
    lines = start.decode("utf-8-sig", errors="ignore").splitlines()
    headers = {delimiter: tuple(next(csv.reader(lines, delimiter=delimiter), ())) for delimiter in DELIMITERS}
    return max(headers.items(), key=lambda header: len(header[1]))


def _unpack(data: bytes, codec: str) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), codec) as stream:
        return bytes(stream.read())


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Whatever goes wrong in reading is told in one line, without what the library says: that may quote the table."""
    try:
        yield
    except FileError:
        raise
    except (pa.ArrowException, UnicodeDecodeError, csv.Error, EOFError, lzma.LZMAError, KeyError, TypeError) as error:
        cure = "check that it is whole, in UTF-8, and has as many fields in every row"
        raise FileError(f"{name!r} cannot be read ({type(error).__name__}); {cure}.") from None
    except OSError as error:
        raise FileError(f"{name!r} cannot be read: {error.strerror or 'it is damaged'}.") from None
