"""Tables on disk: the named columns of a CSV or Parquet file, and nothing else of it.

Errors never contain a value of the file, only names that were asked for.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

# Bytes in which the header of a CSV file must be found.
HEADER_SIZE = 1 << 20
CSV_SUFFIXES = (".csv", ".csv.gz", ".csv.bz2", ".csv.zst")
PARQUET_SUFFIXES = (".parquet", ".pq")


class FileError(ValueError):
    """A file that cannot be read as the table it should be."""


def read_columns(path: Path, columns: Sequence[str], texts: Sequence[str] = ()) -> pa.Table:
    """The named columns of a file; those among `texts` are read as text, for ids are not numbers ("007")."""
    if path.is_dir():
        raise FileError(f"{path.name!r} is a folder; name a file in it.")
    if not path.exists():
        raise FileError(f"{path.name!r} does not exist; check the path, relative ones start where the program started.")
    is_parquet = path.name.lower().endswith(PARQUET_SUFFIXES)
    if not is_parquet and not path.name.lower().endswith(CSV_SUFFIXES):
        raise FileError(f"{path.name!r} is neither {', '.join((*CSV_SUFFIXES, *PARQUET_SUFFIXES))}; convert it.")
    try:
        present = pa.parquet.read_schema(path).names if is_parquet else _header(path)
        _require(path, columns, present)
        table = pa.parquet.read_table(path, columns=list(columns)) if is_parquet else _read_csv(path, columns, texts)
    except FileError:
        raise
    except (pa.ArrowException, UnicodeDecodeError, csv.Error) as error:
        # arrow's own words may quote the file
        cure = "check that it is whole, in UTF-8, and has as many fields in every row"
        raise FileError(f"{path.name!r} cannot be read ({type(error).__name__}); {cure}.") from None
    except OSError as error:
        raise FileError(f"{path.name!r} cannot be read: {error.strerror or 'it is damaged'}.") from None
    return table.select(list(columns))


def _read_csv(path: Path, columns: Sequence[str], texts: Sequence[str]) -> pa.Table:
    convert = pa.csv.ConvertOptions(include_columns=list(columns), column_types=dict.fromkeys(texts, pa.string()))
    return pa.csv.read_csv(path, convert_options=convert)


def _header(path: Path) -> list[str]:
    with pa.input_stream(path, compression="detect") as stream:
        start = stream.read(HEADER_SIZE).decode("utf-8-sig", errors="ignore")
    return next(csv.reader(start.splitlines()), [])


def _require(path: Path, columns: Sequence[str], present: Sequence[str]) -> None:
    if missing := [name for name in columns if name not in present]:
        raise FileError(f"{path.name!r} has no column {', '.join(map(repr, missing))}; check the spelling.")
    if double := [name for name in columns if list(present).count(name) > 1]:
        raise FileError(f"{path.name!r} has several columns {', '.join(map(repr, double))}; rename or drop the copies.")
