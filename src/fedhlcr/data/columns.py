"""Columns of tables of any kind as numbers or as texts; errors say how many rows are wrong, never what is in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedhlcr._support.wording import listed
from fedhlcr.exceptions import FileError

# What stands for a missing value among numbers and categories; among ids only nothing at all does.
MISSING_TEXTS = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NAN", "-nan", "NULL", "null", "None")
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?(inf|Inf|INF|infinity|Infinity)$"
DECIMAL, WHOLE_DECIMAL = r"^-?\d+\.\d+$", r"^(-?(0|[1-9]\d*))\.0+$"
COMMA_NUMBER = NUMBER.replace(r"\.", ",")
# What is beyond cannot be squared and summed up: it counts as missing.
LARGEST = 1e100


def without_missing_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts with null for what stands for a missing value."""
    return pc.if_else(pc.is_in(column, pa.array(MISSING_TEXTS)), pa.scalar(None, column.type), column)


def rows_missing(column: pa.ChunkedArray, *, is_id: bool = False) -> NDArray[np.bool_]:
    """Rows without a value: null, NaN, infinite or too large; of texts, nothing, or, if no id, what stands for it."""
    if pa.types.is_floating(column.type):
        # NaN is below nothing
        return ~(np.abs(column.to_numpy()) < LARGEST)
    if pa.types.is_string(column.type):
        column = pc.if_else(pc.equal(column, ""), None, column) if is_id else without_missing_texts(column)
    return pc.is_null(column).to_numpy(zero_copy_only=False).astype(bool)


def counts_missing(gaps: Mapping[str, NDArray[np.bool_]]) -> str:
    """How many rows of each column lack a value."""
    return ", ".join(f"{name!r} {int(gap.sum()):,}" for name, gap in gaps.items())


def kinds_missing(raw: pa.Table, gaps: Mapping[str, NDArray[np.bool_]]) -> str:
    """What is wrong with values that count as missing."""
    numbers = [raw[name].to_numpy()[gap] for name, gap in gaps.items() if pa.types.is_floating(raw[name].type)]
    values = np.concatenate(numbers) if numbers else np.empty(0)
    kinds = {
        "missing": len(numbers) < len(gaps) or bool(np.isnan(values).any()),
        "infinite": bool(np.isinf(values).any()),
        f"too large ({LARGEST:g} or more)": bool(np.isfinite(values).any()),
    }
    return listed([kind for kind, occurs in kinds.items() if occurs], "or")


def as_texts(name: str, table: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Ids and categories as they are written; numbers and dates of Parquet keep their type, null where it is null."""
    column = decoded(column)
    kind = column.type
    if pa.types.is_nested(kind):
        raise FileError(
            f"column {name!r} of {table!r} must hold text, numbers or dates, but it holds lists or records."
        )
    return column.cast(pa.string()) if pa.types.is_null(kind) else column


def with_whole_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Ids of CSV; where all have a decimal point, as programs write numbers of which some are missing, 7.0 is 7."""
    if pc.all(pc.match_substring_regex(column.filter(pc.not_equal(column, "")), DECIMAL)).as_py():
        return pc.replace_substring_regex(column, WHOLE_DECIMAL, r"\1")
    return column


def as_numbers(name: str, table: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Floats, null where they are missing."""
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
    """The values themselves, where arrow stores them in another way, and all texts in one."""
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
    """Numbers that are written as text, each as the pattern says; "true" and "false" are 1 and 0."""
    column = without_missing_texts(pc.utf8_trim_whitespace(column))
    lower = pc.utf8_lower(column)
    if len(column) > column.null_count and pc.all(pc.is_in(lower.drop_null(), pa.array(["true", "false"]))).as_py():
        return pc.if_else(pc.equal(lower, "true"), 1.0, 0.0)
    wrong = _unlike(column, number)
    if n_wrong := _n_true(wrong):
        first = pc.index(wrong, True).as_py() + 1
        told = (
            f"{n_wrong:,} of its {len(column):,} rows {'holds' if n_wrong == 1 else 'hold'} text (first: row {first:,})"
        )
        cure = "correct them, or, if it is a feature, leave it out or treat it as categorical"
        raise FileError(f"column {name!r} of {table!r} must hold numbers, but {told}; {cure}.")
    # arrow reads neither a plus sign nor, here, a decimal comma
    return pc.replace_substring(pc.replace_substring_regex(column, r"^\+", ""), ",", ".").cast(pa.float64())


def likelier_numbers(columns: Iterable[pa.ChunkedArray]) -> str:
    """The pattern, of decimal points or of decimal commas, that fits more of the texts; points, if both do."""
    trimmed = [without_missing_texts(pc.utf8_trim_whitespace(column)) for column in columns]
    return min((NUMBER, COMMA_NUMBER), key=lambda number: sum(_n_true(_unlike(column, number)) for column in trimmed))


def _unlike(column: pa.ChunkedArray, number: str) -> pa.ChunkedArray:
    """Where texts are no numbers."""
    return pc.fill_null(pc.invert(pc.match_substring_regex(column, number)), False)


def _n_true(column: pa.ChunkedArray) -> int:
    return pc.sum(column).as_py() or 0
