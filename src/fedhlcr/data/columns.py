"""Columns of any table as numbers or as texts. Errors say how many rows are wrong, never what is in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedhlcr._support.wording import ROW, listed
from fedhlcr.exceptions import FileError

# Texts that mean a missing value in numbers and categories. In ids only the empty text does.
MISSING_TEXTS = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NAN", "-nan", "NULL", "null", "None")
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?(inf|Inf|INF|infinity|Infinity)$"
DECIMAL, WHOLE_DECIMAL = r"^-?\d+\.\d+$", r"^(-?(0|[1-9]\d*))\.0+$"
COMMA_NUMBER = NUMBER.replace(r"\.", ",")
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
TEXT_CURE = "correct them, or, if it is a feature, leave it out or treat it as categorical"


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


def counts_missing(gaps: Mapping[str, NDArray[np.bool_]]) -> str:
    """Say how many rows of each column lack a value."""
    return ", ".join(f"{name!r} {int(gap.sum()):,}" for name, gap in gaps.items())


def kinds_missing(raw: pa.Table, gaps: Mapping[str, NDArray[np.bool_]]) -> str:
    """Say what is wrong with values that count as missing."""
    numbers = [raw[name].to_numpy()[gap] for name, gap in gaps.items() if pa.types.is_floating(raw[name].type)]
    values = np.concatenate(numbers) if numbers else np.empty(0)
    kinds = {
        "missing": len(numbers) < len(gaps) or bool(np.isnan(values).any()),
        "infinite": bool(np.isinf(values).any()),
        f"too large ({LARGEST:g} or more)": bool(np.isfinite(values).any()),
    }
    return listed([kind for kind, occurs in kinds.items() if occurs], "or")


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
    if pc.all(pc.match_substring_regex(column.filter(pc.not_equal(column, "")), DECIMAL)).as_py():
        return pc.replace_substring_regex(column, WHOLE_DECIMAL, r"\1")
    return column


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
    """Return a column without dictionary, run-end or extension encoding, and with all texts as one type."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.cast(column.type.storage_type)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_run_end_encoded(column.type):
        column = pa.chunked_array([pc.run_end_decode(chunk) for chunk in column.chunks], column.type.value_type)
    if str(column.type) in ("large_string", "string_view"):
        column = column.cast(pa.string())
    return column


def parsed(name: str, table: str, column: pa.ChunkedArray, number: str = NUMBER) -> pa.ChunkedArray:
    """Return numbers that are written as text, each matching the pattern. "true" and "false" are 1 and 0."""
    column = without_missing_texts(pc.utf8_trim_whitespace(column))
    lower = pc.utf8_lower(column)
    if len(column) > column.null_count and pc.all(pc.is_in(lower.drop_null(), pa.array(["true", "false"]))).as_py():
        return pc.if_else(pc.equal(lower, "true"), 1.0, 0.0)
    wrong = _unlike(column, number)
    if n_wrong := _n_true(wrong):
        came, cure = _what_texts_are(column.filter(wrong))
        first = pc.index(wrong, True).as_py() + 1
        rows = f"{n_wrong:,} of its {ROW.count(len(column))} {'holds' if n_wrong == 1 else 'hold'}"
        raise FileError(
            f"column {name!r} of {table!r} must hold numbers, but {rows} {came} (first: row {first:,}); {cure}."
        )
    # arrow can parse neither a plus sign nor, by default, a decimal comma
    return pc.replace_substring(pc.replace_substring_regex(column, r"^\+", ""), ",", ".").cast(pa.float64())


def _what_texts_are(texts: pa.ChunkedArray) -> tuple[str, str]:
    """Say what texts are that should be numbers, and the cure."""
    for pattern, name, cure in NOT_NUMBERS:
        if pc.all(pc.match_substring_regex(texts, pattern)).as_py():
            return name, cure
    return "text", TEXT_CURE


def likelier_numbers(columns: Iterable[pa.ChunkedArray]) -> str:
    """Return the pattern that fits more of the texts: that of decimal points, or that of decimal commas."""
    trimmed = [without_missing_texts(pc.utf8_trim_whitespace(column)) for column in columns]
    return min((NUMBER, COMMA_NUMBER), key=lambda number: sum(_n_true(_unlike(column, number)) for column in trimmed))


def _unlike(column: pa.ChunkedArray, number: str) -> pa.ChunkedArray:
    """Return which texts are not numbers."""
    return pc.fill_null(pc.invert(pc.match_substring_regex(column, number)), False)


def _n_true(column: pa.ChunkedArray) -> int:
    return pc.sum(column).as_py() or 0
