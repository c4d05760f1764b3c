"""Files that commands write: checked before the work, written completely or not at all."""

from __future__ import annotations

import csv
import gzip
import io
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import pyarrow as pa
import pyarrow.csv

from fedhlcr.data.table_files import STDIN
from fedhlcr.exceptions import OutputError
from fedhlcr.storage import atomic

STDOUT = STDIN
FORMATS = ".csv, .csv.gz, .parquet, .feather or .arrow"


def check_output(path: Path | None, *inputs: str | Path | None) -> None:
    """Refuse, before the work, a path that cannot be written to, or that is one of the inputs."""
    if path is None:
        return
    if str(path) == STDOUT:
        raise OutputError("only tables can be written to standard output; name a file.")
    folder = Path(os.path.realpath(path)).parent
    if path.is_dir():
        raise OutputError(f"cannot write {str(path)!r}: it is a folder; name a file in it.")
    if not folder.is_dir():
        raise OutputError(f"cannot write {str(path)!r}: the folder does not exist; create it first.")
    if not os.access(folder if not path.exists() else path, os.W_OK):
        raise OutputError(f"cannot write {str(path)!r}: permission denied.")
    for source in inputs:
        if source is not None and path.exists() and Path(source).exists() and path.samefile(source):
            raise OutputError(f"cannot write {str(path)!r}: it is the input; name another file.")


def write_output(path: Path, data: atomic.Content) -> None:
    write_outputs({path: data})


def write_outputs(files: Mapping[atomic.PathLike, atomic.Content]) -> None:
    """Write files one after the other: all of them or none."""
    with output_errors():
        atomic.replace_files(files)


@contextmanager
def output_errors() -> Iterator[None]:
    """Turn the system's errors in writing files into OutputErrors."""
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write {error.filename!r}: {error.strerror or type(error).__name__}.") from None


def check_table_output(path: Path | None, *inputs: str | Path | None, stdout: bool = False) -> None:
    """Refuse a path for a table, as `check_output` does. The ending of the name is the format."""
    if path is None or (stdout and str(path) == STDOUT):
        return
    check_output(path, *inputs)
    if path.exists() and not path.is_file():
        return
    if table_kind(path) is None:
        raise OutputError(f"cannot write {str(path)!r}: its name must end in {FORMATS}.")


def write_table(path: Path | None, table: pa.Table) -> None:
    """Write a table in the format of the name's ending; None and "-" are CSV on standard output."""
    if path is None or str(path) == STDOUT:
        sys.stdout.flush()
        _append(table, "csv", sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    write_tables({path: table})


def table_kind(path: Path) -> str | None:
    """The format that the ending of a table's name says; None for another ending, such as that of a device."""
    endings = {
        ".csv": "csv",
        ".csv.gz": "gzip",
        ".parquet": "parquet",
        ".pq": "parquet",
        ".feather": "feather",
        ".arrow": "feather",
    }
    return next((kind for ending, kind in endings.items() if path.name.lower().endswith(ending)), None)


def write_tables(tables: Mapping[Path, pa.Table]) -> None:
    """Write tables in the formats of their names' endings: all of them or none."""
    write_outputs({path: partial(_append, table, table_kind(path)) for path, table in tables.items()})


def _append(table: pa.Table, kind: str | None, file: BinaryIO) -> None:
    with TableWriter(file, kind) as writer:
        writer.write(table)


class TableWriter:
    """Write batches of a table to a file that is open; the first one decides on columns and types.

    Parameters
    ----------
    file : binary file to write to; it is not closed
    kind : "csv", "gzip" (compressed CSV), "parquet" or "feather"
    """

    def __init__(self, file: BinaryIO, kind: str | None) -> None:
        self._file = file
        self._kind = kind
        self._writer: Any = None
        self._quoting = "none"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._writer is None:
            return
        if error is None:
            self._writer.close()
        elif self._kind == "parquet":
            # nobody will read the incomplete file, but an open writer would write again when it is deleted
            self._writer.is_open = False
        else:
            with suppress(Exception):
                self._writer.close()

    def write(self, table: pa.Table) -> None:
        """Append rows."""
        if self._kind == "parquet":
            self._open_parquet(table)
            self._writer.write_table(table)
        elif self._kind == "feather":
            # batches have dictionaries of their own, of which a file may have one only
            table = without_dictionaries(table)
            self._open_feather(table)
            self._writer.write_table(table)
        else:
            self._write_csv(table)

    def _open_parquet(self, table: pa.Table) -> None:
        if self._writer is None:
            from pyarrow.parquet import ParquetWriter

            self._writer = ParquetWriter(self._file, table.schema)

    def _open_feather(self, table: pa.Table) -> None:
        if self._writer is None:
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            self._writer = pa.ipc.new_file(self._file, table.schema, options=options)

    def _write_csv(self, table: pa.Table) -> None:
        if self._writer is None:
            header = io.StringIO()
            csv.writer(header, lineterminator="\n").writerow(table.column_names)
            self._writer = _Plain(self._file)
            if self._kind == "gzip":
                # no name and no time, so that the same table gives the same file
                self._writer = gzip.GzipFile(filename="", mode="wb", fileobj=self._file, mtime=0)
            self._writer.write(header.getvalue().encode())
        self._writer.write(self._csv_rows(table))

    def _csv_rows(self, table: pa.Table) -> bytes:
        """Return rows as CSV. Quotes are used only from the first batch on in which a text needs them."""
        for quoting in ("none", "needed") if self._quoting == "none" else ("needed",):
            sink = io.BytesIO()
            try:
                pa.csv.write_csv(table, sink, pa.csv.WriteOptions(include_header=False, quoting_style=quoting))
            except pa.ArrowInvalid:
                continue
            self._quoting = quoting
            return sink.getvalue()
        raise OutputError("the table has a column that CSV cannot hold; choose a name that ends in .parquet.")


def without_dictionaries(table: pa.Table) -> pa.Table:
    """Return the table with values instead of dictionaries of values."""
    fields = [f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in table.schema]
    return table.cast(pa.schema(fields, table.schema.metadata))


class _Plain:
    """A file to which nothing is added at the end."""

    def __init__(self, file: BinaryIO) -> None:
        self.write = file.write

    def close(self) -> None:
        """Do nothing: the file stays open."""
