"""Tables on disk or from a pipe: reads the named columns, as numbers or as text, and no others.

The format is recognised by the first bytes, not by the name: CSV, Parquet (a file, or a folder of files), Arrow and
Feather, compressed or not. Errors contain names of columns, never a value of the table.
"""

from __future__ import annotations

import bz2
import csv
import difflib
import gzip
import io
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet

from fedhlcr.data.columns import (
    MISSING_TEXTS,
    NUMBER,
    are_decimal,
    as_numbers,
    as_texts,
    decoded,
    validated,
    with_whole_numbers,
)
from fedhlcr.data.csv_files import csv_columns, csv_loader
from fedhlcr.data.table_pieces import (
    CsvSource,
    ParquetPart,
    ParquetSource,
    Piece,
    PieceSource,
    common_types,
    rows_per_piece,
)
from fedhlcr.exceptions import Advice, FileError

STDIN = "-"
PARQUET_SUFFIXES = (".parquet", ".pq")
# Similarity from which a column name is suggested for another. "target" and "agent", of .73, are different names.
CLOSE_NAME = 0.75
# Up to so many columns, an error lists them all.
FEW_COLUMNS = 10
# Files with these endings are never CSV.
BINARY_SUFFIXES = (*PARQUET_SUFFIXES, ".arrow", ".feather", ".ipc", ".gz", ".bz2", ".xz", ".zst", ".lz4")
# The name of a partition folder for rows without a value.
NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
UNPACKERS: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": gzip.decompress,
    b"BZh": bz2.decompress,
    b"\xfd7zXZ\x00": lzma.decompress,
    b"\x28\xb5\x2f\xfd": lambda data: _unpack(data, "zstd"),
    b"\x04\x22\x4d\x18": lambda data: _unpack(data, "lz4"),
}
# The errors that libraries raise for tables that are damaged or in another format.
DAMAGE = (pa.ArrowException, ValueError, TypeError, LookupError, EOFError, csv.Error, zlib.error, lzma.LZMAError)


def read_columns(path: Path, columns: Sequence[str], texts: Collection[str] = ()) -> pa.Table:
    """Return the named columns of a table. Those among `texts` are read as text: ids such as "007" are not numbers."""
    return open_table(path).read(columns, texts)


class Unquoted(str):
    """A name that messages show without quotes, because no file has it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def source_name(source: str | Path) -> str:
    """Return the name of a table for messages."""
    return Unquoted("standard input") if str(source) == STDIN else Path(source).name


def open_table(source: str | Path) -> TableFile:
    """Open a table and read the names of its columns; "-" is standard input."""
    if str(source) == STDIN:
        if sys.stdin is None:
            raise FileError("standard input is closed; name a file, or pipe a table in.")
        data = sys.stdin.buffer.read()
        return _table_of(source_name(source), io.BytesIO(data), data[:8])
    path = Path(source)
    with _reading(path.name):
        if not path.exists():
            cure = "check the path; a relative path starts at the current folder"
            raise FileError(f"{path.name!r} does not exist; {cure}.")
        if path.is_dir():
            return _folder(path)
        if path.is_fifo():
            # a pipe can be read only once
            data = path.read_bytes()
            return _table_of(path.name, io.BytesIO(data), data[:8])
        if not path.is_file():
            raise FileError(f"{path.name!r} is a device, not a file; name a file.")
        with path.open("rb") as file:
            start = file.read(8)
        return _table_of(path.name, path, start)


@dataclass(frozen=True)
class TableFile:
    """A table that has been opened. The names of its columns are known; rows are read on request.

    Attributes
    ----------
    name : name of the file, for messages
    columns : names of the columns, in order
    is_csv : whether the values are texts, without types
    pieces : how to read the table piece by piece; None if it is in memory
    parts : the files of a folder
    """

    name: str
    columns: tuple[str, ...]
    _load: Callable[[Sequence[str], Collection[str]], pa.Table]
    is_csv: bool = False
    pieces: PieceSource | None = None
    parts: tuple[TableFile, ...] = ()

    @classmethod
    def of_arrow(cls, name: str, table: pa.Table) -> TableFile:
        """Return a table that is in memory."""
        return cls(name, tuple(table.column_names), lambda columns, _: table.select(list(columns)))

    def read(self, columns: Sequence[str], texts: Collection[str] = ()) -> pa.Table:
        """Return the named columns, in this order: those among `texts` as texts, the others as floats.

        Missing numbers are null. An id may be called "NA". If all ids of a CSV column have a decimal point, 7.0 is 7.
        """
        columns = list(dict.fromkeys(columns))
        table = self._loaded(columns, texts)
        with _reading(self.name, self.is_csv):
            return pa.table({name: self._converted(name, table[name], is_text=name in texts) for name in columns})

    def read_pieces(self, columns: Sequence[str], texts: Collection[str] = (), first: int = 0) -> Iterator[Piece]:
        """Yield the rows from `first` onwards, as `read` has them, each piece with its position in the table.

        Ids of CSV are left as they are written.
        """
        columns = list(dict.fromkeys(columns))
        for table in (self, *self.parts):
            table.require(columns)
        with _reading(self.name, self.is_csv):
            if self.pieces is not None:
                yield from self.pieces.read(columns, texts, first)
                return
        table = self.read(columns, texts)
        step = rows_per_piece(len(columns))
        for start in range(first, len(table), step):
            piece = table.slice(start, step)
            yield piece, start + len(piece)

    def read_pieces_as_is(self, columns: Sequence[str] | None = None) -> Iterator[Piece]:
        """Yield these columns, or all, as `read_as_is` has them, each piece with its position. Large tables only."""
        assert self.pieces is not None
        wanted = self.columns if columns is None else columns
        for table in (self, *self.parts):
            table.require(wanted)
        with _reading(self.name, self.is_csv):
            # a folder has the common types of its files, without dictionaries, also if it is read at once
            own = None if self.parts or not isinstance(self.pieces, ParquetSource) else self.pieces.schema
            for piece, position in self.pieces.raw(wanted, wanted, 0):
                yield piece if own is None else piece.cast(pa.schema([own.field(n) for n in wanted])), position

    def decimal_ids(self, columns: Sequence[str]) -> list[str]:
        """Return those of these columns of CSV in which all ids have a decimal point, so that 7.0 is 7."""
        left = set(columns) if self.is_csv else set()
        for raw, _ in self.read_pieces(columns, columns) if left else ():
            left -= {name for name in left if not are_decimal(raw[name])}
            if not left:
                break
        return sorted(left)

    @property
    def size(self) -> int | None:
        """The position of the last piece; None if the table is in memory."""
        return None if self.pieces is None else self.pieces.size

    @property
    def bytes_in_memory(self) -> int:
        """About how much memory the whole table would take; 0 if it is in memory already."""
        if self.pieces is None:
            return 0
        n_rows = self.pieces.n_rows
        return self.pieces.size if n_rows is None else 8 * n_rows * len(self.columns)

    def read_as_is(self, columns: Sequence[str]) -> pa.Table:
        """Return all columns as they are written: texts for CSV, otherwise with their types. `columns` must exist."""
        self.require(columns)
        return self._loaded(self.columns, self.columns)

    def _converted(self, name: str, column: pa.ChunkedArray, *, is_text: bool) -> pa.ChunkedArray:
        if not is_text:
            return as_numbers(name, self.name, column)
        texts = as_texts(name, self.name, column)
        return with_whole_numbers(texts) if self.is_csv else texts

    def _loaded(self, columns: Sequence[str], texts: Collection[str]) -> pa.Table:
        self.require(columns)
        with _reading(self.name, self.is_csv):
            return self._load(columns, texts).select(list(columns))

    def require(self, columns: Sequence[str], settings: Mapping[str, str | None] | None = None) -> None:
        """Raise a FileError unless every column exists exactly once. `settings` are those that named a column."""
        if missing := [name for name in columns if name not in self.columns]:
            named_by = {name: setting for setting, name in (settings or {}).items() if name is not None}
            named = ", ".join(
                _literal(repr(name)) + (f" ({{{named_by[name]}}})" if name in named_by else "") for name in missing
            )
            cure = _literal(self._cure(missing, present=set(columns)))
            raise FileError(
                f"{self.name!r} has no column", Advice(f"{named}; {cure}", **dict.fromkeys(named_by.values()))
            )
        if double := [name for name in columns if self.columns.count(name) > 1]:
            double = list(dict.fromkeys(double))
            raise FileError(
                f"{self.name!r} has more than one column {', '.join(map(repr, double))}; rename or drop the copies."
            )

    def _cure(self, missing: Sequence[str], present: Collection[str]) -> str:
        """Suggest columns of almost the same names, except those that are `present`: they are asked for already."""
        if any(re.match(NUMBER, name.strip()) for name in self.columns):
            # the first line is probably a row, whose values must not be shown
            return "check the spelling; the first line must hold the column names, but some of them are numbers."
        plain = {name.strip().casefold(): name for name in self.columns if name not in present}
        found = [
            near
            for name in missing
            for near in difflib.get_close_matches(name.strip().casefold(), plain, 1, CLOSE_NAME)
        ]
        if found:
            return f"did you mean {', '.join(repr(plain[near]) for near in found)}?"
        if len(self.columns) <= FEW_COLUMNS and all(map(_is_surely_a_name, self.columns)):
            return f"its columns are {', '.join(map(repr, self.columns))}."
        return "check the spelling."


def _literal(text: str) -> str:
    """Return a text for `Advice` in which braces are only braces."""
    return text.replace("{", "{{").replace("}", "}}")


def _is_surely_a_name(name: str) -> bool:
    """Whether this cannot be a number, a date or a missing value, as the first line of a table without header has."""
    return name[:1].isalpha() and name not in MISSING_TEXTS


def _table_of(name: str, source: Path | io.BytesIO, start: bytes) -> TableFile:
    """Open a table in the format that its first bytes show."""
    if not start:
        raise FileError(f"{name!r} is empty; a table has at least a line of column names.")
    for magic, unpack in UNPACKERS.items():
        if start.startswith(magic):
            with _reading(name):
                data = unpack(source.read_bytes() if isinstance(source, Path) else source.getvalue())
            return _table_of(name, io.BytesIO(data), data[:8])
    if start.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
        raise FileError(f"{name!r} is a spreadsheet or a zip archive; save it as CSV or Parquet.")
    if start.startswith(b"PAR1"):
        return _parquet(name, source)
    if start.startswith(b"FEA1"):
        # arrow follows what such a file says before anyone can check it, and will drop the format
        raise FileError(
            f"{name!r} is a Feather file of version 1, which is not read; write it as version 2 or Parquet."
        )
    if start.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return _arrow(name, source, start)
    if isinstance(source, Path) and source.suffix.lower() in BINARY_SUFFIXES:
        raise FileError(f"{name!r} is not in the format that its name says, or is damaged; write it again.")
    with _reading(name, is_csv=True):
        delimiter, columns = csv_columns(name, source)
    pieces = CsvSource(name, source, delimiter) if isinstance(source, Path) else None
    return TableFile(name, columns, csv_loader(name, source, delimiter), is_csv=True, pieces=pieces)


def _folder(path: Path) -> TableFile:
    """Open all Parquet files in a folder and its subfolders as one table."""
    files = (file for file in path.rglob("*") if file.suffix.lower() in PARQUET_SUFFIXES and file.is_file())
    below = sorted(file.relative_to(path) for file in files)
    # such names are not data: other programs leave them beside the data
    below = [file for file in below if not any(part.startswith((".", "_")) for part in file.parts)]
    if not below:
        raise FileError(f"{path.name!r} is a folder without Parquet files; name a file in it.")
    parts = tuple(_part(path, file) for file in below)
    columns = tuple(dict.fromkeys(name for part in parts for name in part.columns))

    def load(wanted: Sequence[str], texts: Collection[str]) -> pa.Table:
        tables = [part._loaded(wanted, texts) for part in parts]
        tables = [pa.table({name: decoded(table[name]) for name in wanted}) for table in tables]
        types = common_types(path.name, [table.schema for table in tables])
        return pa.concat_tables([table.cast(types) for table in tables])

    own = tuple(file for part in parts if isinstance(part.pieces, ParquetSource) for file in part.pieces.parts)
    return TableFile(path.name, columns, load, pieces=ParquetSource(path.name, path, own), parts=parts)


def _part(root: Path, path: Path) -> TableFile:
    """Open one file of a folder. Subfolders such as store=north are columns."""
    file = _parquet(str(path), root / path)
    folders = dict(folder.split("=", 1) for folder in path.parts[:-1] if "=" in folder)
    values = {unquote(name): unquote(value) for name, value in folders.items()}
    partitions = {
        name: None if value == NO_PARTITION else value for name, value in values.items() if name not in file.columns
    }

    def load(columns: Sequence[str], texts: Collection[str]) -> pa.Table:
        own = [name for name in columns if name not in partitions]
        table = file._load(own or file.columns[:1], texts)
        for name in partitions.keys() & set(columns):
            table = table.append_column(name, pa.repeat(pa.scalar(partitions[name], pa.string()), len(table)))
        return table

    source = ParquetSource(str(path), root / path, (ParquetPart(root / path, partitions),))
    return TableFile(str(path), (*file.columns, *partitions), load, pieces=source)


def _parquet(name: str, source: Path | io.BytesIO) -> TableFile:
    with _reading(name), pa.parquet.ParquetFile(source) as file:
        columns = tuple(file.schema_arrow.names)

    def load(wanted: Sequence[str], _: Collection[str]) -> pa.Table:
        # opened only now: a folder may hold more files than a process may have open
        with pa.parquet.ParquetFile(source) as file:
            return validated(name, file.read(columns=list(wanted)))

    pieces = ParquetSource(name, source, (ParquetPart(source),)) if isinstance(source, Path) else None
    return TableFile(name, columns, load, pieces=pieces)


def _arrow(name: str, source: Path | io.BytesIO, start: bytes) -> TableFile:
    read = pa.ipc.open_file if start.startswith(b"ARROW1") else pa.ipc.open_stream
    with _reading(name), pa.OSFile(str(source)) if isinstance(source, Path) else source as file:
        table = read(file).read_all()
        return TableFile.of_arrow(name, validated(name, table))


def _unpack(data: bytes, codec: str) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), codec) as stream:
        return bytes(stream.read())


@contextmanager
def _reading(name: str, is_csv: bool = False) -> Iterator[None]:
    """Turn the errors of libraries into FileErrors without their text, which may quote the table."""
    try:
        yield
    except FileError:
        raise
    except DAMAGE as error:
        cure = "it is damaged or incomplete, so copy or write it again"
        if is_csv:
            cure = "check that it is complete, in UTF-8, and has the same number of fields in every row"
        raise FileError(f"{name!r} cannot be read ({type(error).__name__}); {cure}.") from None
    except OSError as error:
        raise FileError(f"{name!r} cannot be read: {error.strerror or 'it is damaged'}.") from None
