"""Columns of any table as numbers or as texts, and their missing values.

Errors say how many rows are wrong, never what is in them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedhlcr._support.wording import ROW, listed
from fedhlcr.data.ids import canonical_text, is_missing
from fedhlcr.exceptions import FileError, TextColumnError
from fedhlcr.settings import MissingPolicy

# Texts that mean a missing value in numbers and categories. In ids only the empty text does.
MISSING_TEXTS = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NAN", "-nan", "NULL", "null", "None")
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?(inf|Inf|INF|infinity|Infinity)$"
DECIMAL = r"^-?\d+\.\d+$"
WHOLE_DECIMAL = r"^(-?(0|[1-9]\d*))\.0+$"
COMMA_NUMBER = NUMBER.replace(r"\.", ",")
PATTERNS = (NUMBER, COMMA_NUMBER)
# Larger numbers overflow when they are squared and summed, so they count as missing.
LARGEST = 1e100
# What texts in a column of numbers may be: pattern, name and cure. The first pattern that fits all of them counts.
NOT_NUMBERS = (
    (
        r"^[+-]?\d{1,3}([ ,.'’\x{a0}\x{202f}]\d{3})+([.,]\d+)?$",
        "numbers with thousands separators",
        "remove the separators",
    ),
    (COMMA_NUMBER, "numbers with a decimal comma", "write a decimal point"),
    (
        r"^(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2}))([T ].*)?$|^\d{1,2}:\d{2}(:\d{2}.*)?$",
        "dates or times",
        "turn them into numbers first, for example days since a date",
    ),
    (
        r"^[$€£¥]\s*[+-]?[\d.,]+$|^[+-]?[\d.,]+\s*[%$€£¥]$",
        "numbers with a percent or currency sign",
        "remove the sign",
    ),
)
TEXT_CURE = (
    "correct them, or, if it is a feature, name it as a category (--categories; in Python `categories`) or leave it out"
)
POLICIES: tuple[str, ...] = get_args(MissingPolicy)
MISSING = "missing"
INFINITE = "infinite"
TOO_LARGE = f"too large ({LARGEST:g} or more)"
# Rows with a missing value, by the name of the column; columns without any are left out.
Gaps = Mapping[str, NDArray[np.bool_]]


def arrow_column(series: Any) -> pa.ChunkedArray:
    """Return a column of a user's frame. A column of several types becomes texts."""
    if series.implementation.is_pandas():
        series = _with_plain_type(series)
    try:
        found = series.to_arrow()
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        # values of several types, or whole numbers of more than 64 bits
        texts = [None if is_missing(value) else canonical_text(value) for value in series.to_list()]
        found = pa.array(texts, pa.string())
    return found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found])


def _with_plain_type(series: Any) -> Any:
    """A column of pandas of a type that arrow knows: intervals as texts, periods as times, sparse columns as dense."""
    import narwhals as nw

    native = series.to_native()
    kind = str(native.dtype)
    if kind.startswith("period["):
        native = native.dt.to_timestamp()
    elif kind.startswith("Sparse["):
        native = native.sparse.to_dense()
    elif kind == "category" and str(native.cat.categories.dtype).startswith(("interval[", "period[")):
        native = native.cat.rename_categories(str)
    return nw.from_native(native, series_only=True)


def validated(name: str, table: pa.Table) -> pa.Table:
    """Return a table that was read from a file, once all of its values are known to be what their types say.

    Arrow trusts a file: an offset or a position in a dictionary may point anywhere, and a text may hold any bytes. The
    first of these ends the process when it is followed.
    """
    # lengths, which single columns do not know
    table.validate()
    for own, column in zip(table.column_names, table.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowException as error:
            # the message itself may quote the column
            is_text = "UTF8" in str(error)
            found = "holds texts that are not in UTF-8" if is_text else "is damaged"
            cure = "write the file again, in UTF-8" if is_text else "copy or write the file again"
            raise FileError(f"{name!r} cannot be read: its column {own!r} {found}; {cure}.") from None
    return table


def without_missing_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return texts with null for each text that means a missing value."""
    return pc.if_else(pc.is_in(column, pa.array(MISSING_TEXTS)), pa.scalar(None, column.type), column)


def rows_missing(column: pa.ChunkedArray, *, is_id: bool = False) -> NDArray[np.bool_]:
    """Return which rows lack a value: null, NaN, infinite or too large numbers, and texts that mean a missing value.

    Only the empty text is a missing id.
    """
    if pa.types.is_floating(column.type):
        # a comparison with NaN is false
        return ~(np.abs(column.to_numpy()) < LARGEST)
    if pa.types.is_string(column.type):
        column = pc.if_else(pc.equal(column, ""), None, column) if is_id else without_missing_texts(column)
    return pc.is_null(column).to_numpy(zero_copy_only=False).astype(bool)


def as_texts(name: str, table: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return ids and categories as they are written. Numbers and dates of Parquet keep their type."""
    column = decoded(column)
    kind = column.type
    if pa.types.is_nested(kind):
        raise FileError(
            f"column {name!r} of {table!r} must hold text, numbers or dates, but it holds lists or records; "
            "leave it out."
        )
    return column.cast(pa.string()) if pa.types.is_null(kind) else column


def with_whole_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return ids of CSV. If all of them have a decimal point, 7.0 is 7.

    Some programs write whole numbers with a decimal point if one of them is missing.
    """
    return without_decimal(column) if are_decimal(column) else column


def are_decimal(column: pa.ChunkedArray) -> bool:
    """Whether all ids of a column of CSV have a decimal point."""
    return bool(pc.all(pc.match_substring_regex(column.filter(pc.not_equal(column, "")), DECIMAL), min_count=0).as_py())


def without_decimal(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return ids with 7.0 as 7."""
    return pc.replace_substring_regex(column, WHOLE_DECIMAL, r"\1")


def without_decimals(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return the table with 7.0 as 7 in these columns of ids."""
    for name in columns:
        place = table.column_names.index(name)
        table = table.set_column(place, name, without_decimal(table[name]))
    return table


def as_numbers(name: str, table: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return floats, null where they are missing."""
    column = decoded(column)
    kind = column.type
    if pa.types.is_string(kind):
        return parsed(name, table, column)
    if pa.types.is_boolean(kind):
        return column.cast(pa.int8()).cast(pa.float64())
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.float64(), safe=False)
    if pa.types.is_null(kind):
        return column.cast(pa.float64())
    came = "dates or times" if pa.types.is_temporal(kind) else "values of another type"
    cure = "turn it into numbers first, for example days since a date" if pa.types.is_temporal(kind) else "leave it out"
    raise FileError(f"column {name!r} of {table!r} must hold numbers, but it holds {came}; {cure}.")


def decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column without dictionary, run-end or extension encoding, with one type for texts, without float16."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.cast(column.type.storage_type)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_run_end_encoded(column.type):
        column = pa.chunked_array([pc.run_end_decode(chunk) for chunk in column.chunks], column.type.value_type)
    if str(column.type) in ("large_string", "string_view"):
        column = column.cast(pa.string())
    if pa.types.is_float16(column.type):
        # arrow finds no values in a column of this type
        column = column.cast(pa.float32())
    return column


def parsed(name: str, table: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return numbers that are written as text. "true" and "false" are 1 and 0."""
    rules = NumberTexts([name])
    rules.add({name: column})
    rules.require(table)
    return rules.converted(name, column)


class NumberTexts:
    """How the numbers in columns of texts are written, found out from all rows, which may come in pieces.

    Parameters
    ----------
    names : names of the columns
    patterns : the ways to write numbers that are possible; the one that fits most texts is the one of all columns
    """

    def __init__(self, names: Sequence[str], patterns: Sequence[str] = (NUMBER,)) -> None:
        self._names = list(names)
        self._tallies = {name: _Tally({pattern: _Wrong() for pattern in patterns}) for name in names}
        self._patterns = patterns

    def add(self, table: Mapping[str, pa.ChunkedArray] | pa.Table) -> None:
        """Look at the next rows."""
        for name, tally in self._tallies.items():
            tally.add(without_missing_texts(pc.utf8_trim_whitespace(table[name])))

    @property
    def _pattern(self) -> str:
        tallies = self._tallies.values()
        return min(self._patterns, key=lambda pattern: sum(tally.wrong[pattern].count for tally in tallies))

    def require(self, table: str) -> None:
        """Refuse texts that are not numbers."""
        for name, tally in self._tallies.items():
            wrong = tally.wrong[self._pattern]
            if wrong.count and not tally.is_logical:
                came, cure = wrong.described()
                hold = "holds" if wrong.count == 1 else "hold"
                rows = (
                    f"{wrong.count:,} of its {ROW.count(tally.n_rows)} {hold} {came} (first: row {wrong.first + 1:,})"
                )
                message = f"column {name!r} of {table!r} must hold numbers, but {rows}; {cure}."
                raise TextColumnError(message, name) if cure == TEXT_CURE else FileError(message)

    def converted(self, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return some rows of a column as numbers, null where they are missing."""
        column = without_missing_texts(pc.utf8_trim_whitespace(column))
        if self._tallies[name].is_logical:
            return pc.if_else(pc.equal(pc.utf8_lower(column), "true"), 1.0, 0.0)
        # arrow can parse neither a plus sign nor, by default, a decimal comma
        return pc.replace_substring(pc.replace_substring_regex(column, r"^\+", ""), ",", ".").cast(pa.float64())

    def converted_table(self, table: pa.Table) -> pa.Table:
        """Return some rows of a table, with these columns as numbers."""
        names = table.column_names
        return pa.table({n: self.converted(n, table[n]) if n in self._tallies else table[n] for n in names})


class _Wrong:
    """The texts of a column that do not match a pattern."""

    def __init__(self) -> None:
        self.count = 0
        self.first = 0
        self._fitting = list(NOT_NUMBERS)

    def add(self, column: pa.ChunkedArray, pattern: str, n_before: int) -> None:
        wrong = pc.fill_null(pc.invert(pc.match_substring_regex(column, pattern)), False)
        if not (n_wrong := pc.sum(wrong).as_py() or 0):
            return
        if not self.count:
            self.first = n_before + pc.index(wrong, True).as_py()
        self.count += n_wrong
        texts = column.filter(wrong)
        self._fitting = [kind for kind in self._fitting if pc.all(pc.match_substring_regex(texts, kind[0])).as_py()]

    def described(self) -> tuple[str, str]:
        """What the texts are that should be numbers, and the cure."""
        return self._fitting[0][1:] if self._fitting else ("text", TEXT_CURE)


class _Tally:
    """What is known of one column of texts."""

    def __init__(self, wrong: dict[str, _Wrong]) -> None:
        self.n_rows = 0
        self.wrong = wrong
        self._has_values = False
        self._only_logical = True

    @property
    def is_logical(self) -> bool:
        """Whether all texts are "true" or "false"."""
        return self._has_values and self._only_logical

    def add(self, column: pa.ChunkedArray) -> None:
        if len(column) > column.null_count:
            self._has_values = True
            lower = pc.utf8_lower(column.drop_null())
            self._only_logical &= pc.all(pc.is_in(lower, pa.array(["true", "false"]))).as_py()
        for pattern, wrong in self.wrong.items():
            wrong.add(column, pattern, self.n_rows)
        self.n_rows += len(column)


@dataclass
class _Count:
    """The missing values of one column: their number, and of which kinds they are."""

    count: int = 0
    kinds: list[str] = field(default_factory=list)

    def add(self, column: pa.ChunkedArray, gap: NDArray[np.bool_]) -> None:
        if not gap.any():
            return
        self.count += int(gap.sum())
        found = {MISSING}
        if pa.types.is_floating(column.type):
            values = column.to_numpy()[gap]
            has = {MISSING: np.isnan(values), INFINITE: np.isinf(values), TOO_LARGE: np.isfinite(values)}
            found = {kind for kind, which in has.items() if which.any()}
        self.kinds = [kind for kind in (MISSING, INFINITE, TOO_LARGE) if kind in found or kind in self.kinds]


@dataclass
class MissingCounts:
    """Counts of the missing values of a table, over all rows and over those that are kept.

    Attributes
    ----------
    columns : names of the columns, in the order of messages
    filled : columns whose missing values are replaced; rows with others are dropped
    n_rows, n_with_gaps, n_kept : numbers of rows: all, those with missing values, and those that are not dropped
    overall, kept : by the name of the column, in all rows and in kept ones
    """

    columns: list[str]
    filled: list[str]
    n_rows: int = 0
    n_with_gaps: int = 0
    n_kept: int = 0
    overall: dict[str, _Count] = field(default_factory=dict)
    kept: dict[str, _Count] = field(default_factory=dict)

    def add(self, raw: pa.Table, gaps: Gaps) -> NDArray[np.intp]:
        """Count the next rows, and return those that are kept."""
        dropping = [gap for name, gap in gaps.items() if name not in self.filled]
        dropped = np.logical_or.reduce(dropping) if dropping else np.zeros(len(raw), dtype=bool)
        for name, gap in gaps.items():
            self.overall.setdefault(name, _Count()).add(raw[name], gap)
            if name in self.filled:
                self.kept.setdefault(name, _Count()).add(raw[name], gap & ~dropped)
        self.n_rows += len(raw)
        self.n_kept += int((~dropped).sum())
        if gaps:
            self.n_with_gaps += int(np.logical_or.reduce(list(gaps.values())).sum())
        return np.flatnonzero(~dropped)

    def n_filled(self, name: str) -> int:
        """Missing values of a column in kept rows."""
        return self.kept[name].count if name in self.kept else 0

    @property
    def kinds(self) -> str:
        """What is wrong with the values that count as missing."""
        return _kinds(self.overall.values())

    @property
    def counts(self) -> str:
        """How many rows of each column lack a value."""
        return _counts({name: self.overall[name] for name in self.columns if name in self.overall})

    def all_missing(self) -> str:
        return f"every row has {self.kinds} values: {self.counts}"

    def notes(self) -> list[str]:
        """What was done to the table, for the user."""
        notes = []
        if self.n_kept < self.n_rows:
            kinds = _kinds(count for name, count in self.overall.items() if name not in self.filled)
            notes.append(f"dropped {ROW.count(self.n_rows - self.n_kept)} with {kinds} values")
        if filled := {name: self.kept[name] for name in sorted(self.kept) if self.kept[name].count}:
            notes.append(f"filled {_kinds(filled.values())} values: {_counts(filled)}")
        return notes

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        overall, kept = ({n: _Count(**count) for n, count in value[which].items()} for which in ("overall", "kept"))
        return cls(**{**value, "overall": overall, "kept": kept})


def find_gaps(raw: pa.Table, columns: Iterable[str | None], ids: Collection[str]) -> dict[str, NDArray[np.bool_]]:
    """Return which rows lack a value, for each of the columns that is there and has such rows."""
    present = [name for name in columns if name is not None and name in raw.column_names]
    gaps = {name: rows_missing(raw[name], is_id=name in ids) for name in present}
    return {name: gap for name, gap in gaps.items() if gap.any()}


def _kinds(counts: Iterable[_Count]) -> str:
    found = {kind for count in counts for kind in count.kinds}
    return listed([kind for kind in (MISSING, INFINITE, TOO_LARGE) if kind in found], "or")


def _counts(counts: Mapping[str, _Count]) -> str:
    return ", ".join(f"{name!r} {count.count:,}" for name, count in counts.items())
