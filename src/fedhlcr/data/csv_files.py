"""CSV files: the header, the delimiter, and the columns as floats or as texts."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from fedhlcr._support.wording import ROW
from fedhlcr.data.columns import MISSING_TEXTS, NUMBER, PATTERNS, NumberTexts
from fedhlcr.exceptions import FileError

# Maximum length of the header in bytes.
HEADER_SIZE = 1 << 20
# Bytes that are parsed at a time. A row must not be longer.
BLOCK_SIZE = 1 << 20
DELIMITERS = (",", ";", "\t", "|")
# How JSON begins. A header may begin with a bracket too, as in "[id],[price]", but is followed by a letter.
JSON_START = re.compile(r'\s*(\{\s*["}]|\[\s*[]{["\d-])')


def csv_columns(name: str, source: Path | io.BytesIO) -> tuple[str, tuple[str, ...]]:
    """Return the delimiter that splits the first line into the most names, and these names."""
    if isinstance(source, Path):
        with source.open("rb") as file:
            start = file.read(HEADER_SIZE)
    else:
        start = source.getvalue()[:HEADER_SIZE]
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise FileError(f"{name!r} is in UTF-16; save it in UTF-8.")
    if b"\0" in start:
        raise FileError(f"{name!r} is not a table in a supported format; save it as CSV, Parquet, Arrow or Feather.")
    text = start.decode("utf-8-sig", errors="replace")
    if JSON_START.match(text):
        raise FileError(f"{name!r} is JSON, which is not supported; save it as CSV, Parquet, Arrow or Feather.")
    headers = {delimiter: _first_line(text, delimiter) for delimiter in DELIMITERS}
    delimiter, names = max(headers.items(), key=lambda header: len(header[1]))
    if any("\N{REPLACEMENT CHARACTER}" in column for column in names):
        raise FileError(f"the column names of {name!r} are not in UTF-8; save it in UTF-8.")
    if not names:
        raise FileError(f"{name!r} is empty; a table has at least a line of column names.")
    if len(start) < HEADER_SIZE and len(start.strip().splitlines()) == 1:
        raise FileError(f"{name!r} has no rows below its header; add at least one event.")
    return delimiter, names


def _first_line(text: str, delimiter: str) -> tuple[str, ...]:
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    return next((tuple(row) for row in rows if row), ())


def csv_loader(
    name: str, source: Path | io.BytesIO, delimiter: str
) -> Callable[[Sequence[str], Collection[str]], pa.Table]:
    """Return a function that reads columns: those among `texts` as they are written, the others as floats."""

    def load(wanted: Sequence[str], texts: Collection[str]) -> pa.Table:
        types = {column: pa.string() if column in texts else pa.float64() for column in wanted}
        # if commas do not separate fields, they may be decimal commas
        for decimal_point in _decimal_points(delimiter):
            with contextlib.suppress(pa.ArrowInvalid):
                return _read(source, delimiter, types, decimal_point=decimal_point)
        # a value is not a number, or a row is broken: read everything as text to find out
        types = dict.fromkeys(wanted, pa.string())
        try:
            table = _read(source, delimiter, types)
        except pa.ArrowInvalid:
            _require_utf8(name, source)
            _refuse_broken_rows(name, source, delimiter, types)
            raise
        rules = NumberTexts([column for column in wanted if column not in texts], _patterns(delimiter))
        rules.add(table)
        rules.require(name)
        return rules.converted_table(table)

    return load


def csv_pieces(
    name: str, source: Path, delimiter: str, wanted: Sequence[str], texts: Collection[str]
) -> Iterator[tuple[pa.Table, int]]:
    """Yield the columns in pieces, as `csv_loader` reads them at once, each with the bytes of the file read so far.

    All numbers are first taken as floats. If one is not, the whole file is read once to find out how its numbers are
    written, and the rest is read accordingly: the pieces before hold the same numbers either way.
    """
    types = {column: pa.string() if column in texts else pa.float64() for column in wanted}
    n_rows = 0
    decimal_point = "."
    rules = None
    while True:
        try:
            for table, n_bytes in _skipping(_stream(source, delimiter, types, decimal_point=decimal_point), n_rows):
                n_rows += len(table)
                yield (table if rules is None else rules.converted_table(table)), n_bytes
            return
        except pa.ArrowInvalid:
            if rules is not None:
                raise
        if decimal_point == "." and "," in _decimal_points(delimiter) and _fits(source, delimiter, types, ","):
            decimal_point = ","
        else:
            types = dict.fromkeys(wanted, pa.string())
            rules = _number_rules(name, source, delimiter, [column for column in wanted if column not in texts])


def _number_rules(name: str, source: Path, delimiter: str, numbers: Sequence[str]) -> NumberTexts:
    """Read a whole file in pieces to find out how its numbers are written; refuse what is not a number."""
    types = dict.fromkeys(numbers, pa.string())
    rules = NumberTexts(numbers, _patterns(delimiter))
    try:
        for table, _ in _stream(source, delimiter, types):
            rules.add(table)
    except pa.ArrowInvalid:
        _require_utf8(name, source)
        _refuse_broken_rows(name, source, delimiter, types)
        raise
    rules.require(name)
    return rules


def _patterns(delimiter: str) -> tuple[str, ...]:
    return (NUMBER,) if delimiter == "," else PATTERNS


def _decimal_points(delimiter: str) -> str:
    return "." if delimiter == "," else ".,"


def _fits(source: Path, delimiter: str, types: dict[str, Any], decimal_point: str) -> bool:
    """Whether a whole file can be read so."""
    try:
        for _ in _stream(source, delimiter, types, decimal_point=decimal_point):
            pass
    except pa.ArrowInvalid:
        return False
    return True


def _skipping(pieces: Iterator[tuple[pa.Table, int]], n_rows: int) -> Iterator[tuple[pa.Table, int]]:
    """The pieces without the first rows."""
    for table, n_bytes in pieces:
        if n_rows < len(table):
            yield table.slice(n_rows), n_bytes
        n_rows = max(0, n_rows - len(table))


def _require_utf8(name: str, source: Path | io.BytesIO) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")()
    with source.open("rb") if isinstance(source, Path) else io.BytesIO(source.getvalue()) as file:
        try:
            while chunk := file.read(HEADER_SIZE):
                decoder.decode(chunk)
        except UnicodeDecodeError:
            raise FileError(f"{name!r} is not in UTF-8; save it in UTF-8.") from None


def _refuse_broken_rows(name: str, source: Path | io.BytesIO, delimiter: str, types: dict[str, Any]) -> None:
    """Raise a FileError if rows have more or fewer fields than the header."""
    broken: list[int] = []

    def pass_over(row: Any) -> str:
        broken.append(row.number)
        return "skip"

    for _ in _stream(source, delimiter, types, pass_over):
        pass
    if broken:
        # the header does not count as a row
        raise FileError(
            f"{name!r} has {ROW.count(len(broken))} with more or fewer fields than its "
            f"first line (first: row {broken[0] - 1:,}); correct them."
        )


def _read(source: Path | io.BytesIO, delimiter: str, types: dict[str, Any], decimal_point: str = ".") -> pa.Table:
    options = _options(delimiter, types, decimal_point, None)
    with _opened(source) as file:
        return pa.csv.read_csv(file, *options)


def _stream(
    source: Path | io.BytesIO,
    delimiter: str,
    types: dict[str, Any],
    on_broken_row: Callable[[Any], str] | None = None,
    decimal_point: str = ".",
) -> Iterator[tuple[pa.Table, int]]:
    """Yield the rows in pieces, each with the number of bytes read so far."""
    options = _options(delimiter, types, decimal_point, on_broken_row)
    with _opened(source) as file, pa.csv.open_csv(file, *options) as reader:
        for batch in reader:
            yield pa.Table.from_batches([batch]), file.tell()


def _options(
    delimiter: str, types: dict[str, Any], decimal_point: str, on_broken_row: Callable[[Any], str] | None
) -> tuple[Any, Any, Any]:
    convert = pa.csv.ConvertOptions(
        include_columns=list(types),
        column_types=types,
        null_values=list(MISSING_TEXTS),
        strings_can_be_null=False,
        decimal_point=decimal_point,
    )
    parse = pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=on_broken_row)
    # arrow numbers rows only if it reads with one thread
    return pa.csv.ReadOptions(use_threads=on_broken_row is None, block_size=BLOCK_SIZE), parse, convert


@contextlib.contextmanager
def _opened(source: Path | io.BytesIO) -> Iterator[Any]:
    if isinstance(source, io.BytesIO):
        source.seek(0)
        yield source
        return
    # not by name: arrow would decompress a file by the ending of its name
    with pa.OSFile(str(source)) as file:
        yield file
