"""Files that commands write: checked before the work, written completely or not at all."""

from __future__ import annotations

import csv
import gzip
import io
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet

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


def write_output(path: Path, data: bytes) -> None:
    _write({path: data})


def _write(files: Mapping[atomic.PathLike, bytes]) -> None:
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
    if _kind(path) is None:
        raise OutputError(f"cannot write {str(path)!r}: its name must end in {FORMATS}.")


def write_table(path: Path | None, table: pa.Table) -> None:
    """Write a table in the format of the name's ending; None and "-" are CSV on standard output."""
    if path is None or str(path) == STDOUT:
        sys.stdout.flush()
        sys.stdout.buffer.write(_csv(table))
        sys.stdout.buffer.flush()
        return
    write_tables({path: table})


def free_name(name: str, taken: Collection[str]) -> str:
    """Return the name of a column, with underscores appended while another column has the same name."""
    while name in taken:
        name += "_"
    return name


def write_tables(tables: Mapping[Path, pa.Table]) -> None:
    """Write tables in the formats of their names' endings: all of them or none."""
    _write({path: _formatted(table, _kind(path)) for path, table in tables.items()})


def _formatted(table: pa.Table, kind: str | None) -> bytes:
    sink = io.BytesIO()
    match kind:
        case "parquet":
            pa.parquet.write_table(table, sink)
        case "feather":
            pa.feather.write_feather(table, sink)
        case "gzip":
            sink.write(gzip.compress(_csv(table), mtime=0))
        case _:
            sink.write(_csv(table))
    return sink.getvalue()


def _csv(table: pa.Table) -> bytes:
    """Return CSV. Quotes are used only if a text needs them."""
    header = io.StringIO()
    csv.writer(header, lineterminator="\n").writerow(table.column_names)
    for quoting in ("none", "needed"):
        sink = io.BytesIO(header.getvalue().encode())
        sink.seek(0, io.SEEK_END)
        try:
            pa.csv.write_csv(table, sink, pa.csv.WriteOptions(include_header=False, quoting_style=quoting))
        except pa.ArrowInvalid:
            continue
        return sink.getvalue()
    raise OutputError("the table has a column that CSV cannot hold; choose a name that ends in .parquet.")


def _kind(path: Path) -> str | None:
    endings = {
        ".csv": "csv",
        ".csv.gz": "gzip",
        ".parquet": "parquet",
        ".pq": "parquet",
        ".feather": "feather",
        ".arrow": "feather",
    }
    return next((kind for ending, kind in endings.items() if path.name.lower().endswith(ending)), None)
