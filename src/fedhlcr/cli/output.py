"""Files that commands write: checked before the work, written completely or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from fedhlcr.cli.writing import TableWriter
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
