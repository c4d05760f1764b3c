"""Tables that are written batch by batch, in the format of the file's name."""

from __future__ import annotations

import csv
import gzip
import io
from contextlib import suppress
from types import TracebackType
from typing import Any, BinaryIO, Self

import pyarrow as pa
import pyarrow.csv

from fedhlcr.exceptions import OutputError


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
