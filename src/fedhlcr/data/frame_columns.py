"""The feature columns of a user's dataframe: which are numbers, which are categories, and which are neither.

Columns of a categorical type (pandas Categorical, polars Enum and Categorical, arrow dictionary) are categories.
Texts are categories if the user names them or, with "auto", if they are neither numbers nor dates and have few levels:
at most `MOST_LEVELS`, and at least `ROWS_PER_LEVEL` rows for each on average.

Levels come from the rows, unless the user declares them: in `categories`, or by the type polars Enum. A pandas
Categorical, ordered or not, does not count as a declaration: `astype("category")` and `pd.cut` take its levels from the
rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fedhlcr._support.wording import listed
from fedhlcr.data.categories import MOST_LEVELS, Categories, declared_levels, level_texts
from fedhlcr.data.columns import NOT_NUMBERS, NUMBER, arrow_column, as_numbers, decoded, without_missing_texts
from fedhlcr.data.recipe import LEVEL, Recipe
from fedhlcr.data.recipe_plan import INDEX_NAME
from fedhlcr.exceptions import ArgumentError, CategoriesWarning, DataError, warn_user

AUTO = "auto"
# Rows that a level of an undeclared category has at least, on average.
ROWS_PER_LEVEL = 5


def plan_features(
    frame: Any, categories: Categories, called: Collection[str] = (), *, needs_levels: bool = False
) -> tuple[Recipe, pa.Table]:
    """Return a recipe that has yet to learn from the table, and the table: numbers as floats, categories as texts.

    Parameters
    ----------
    frame : narwhals frame that holds features only
    categories : names of text columns that are categories, or their levels by name, or "auto"
    called : columns that a formula calls categories
    needs_levels : whether the levels of all categories must be declared
    """
    names = [name for name in frame.columns if not INDEX_NAME.match(name)]
    if not names:
        raise DataError(
            "`X` has no feature (0 feature(s)): it has no columns besides the target and the ids; add at least one "
            "feature. A column of ones fits only the mean of each cluster."
        )
    columns = {name: arrow_column(frame[name]) for name in names}
    declared = _declared(columns, categories, called)
    levels = declared_levels(categories)
    if needs_levels:
        levels |= {name: _enum_levels(frame[name]) for name in names if name not in levels and _is_enum(frame[name])}
        _require_levels(columns, declared, levels)
    taken = _undeclared(columns, declared) if categories == AUTO else []
    chosen = [name for name in names if name in {*declared, *taken}]
    orders = {n: levels[n] if n in levels else _level_order(frame[n], columns[n]) for n in chosen}
    _refuse_the_rest(columns, orders)
    raw = {n: decoded(column) if n in orders else as_numbers(n, "X", column) for n, column in columns.items()}
    return Recipe("", None, "", tuple(names), orders, declared=list(levels) or None), pa.table(raw)


def _declared(columns: dict[str, pa.ChunkedArray], categories: Categories, called: Collection[str]) -> list[str]:
    """Columns that are categories by their type, or because the user names them."""
    named = {*called, *(() if isinstance(categories, str) else categories)}
    if lost := [name for name in named if name not in columns]:
        raise ArgumentError(
            f"`categories` names {listed([repr(name) for name in lost])}, but `X` has no such feature; its features "
            f"are {list(columns)}."
        )
    return [name for name, column in columns.items() if pa.types.is_dictionary(column.type) or name in named]


def _is_enum(series: Any) -> bool:
    """Whether a column is a polars Enum. To narwhals, ordered categories of pandas are an Enum, too."""
    import narwhals as nw

    return series.implementation.is_polars() and series.dtype == nw.Enum


def _enum_levels(series: Any) -> list[str]:
    """All levels of a polars Enum, whether they occur or not."""
    return declared_levels({series.name: series.dtype.categories})[series.name]


def _require_levels(
    columns: dict[str, pa.ChunkedArray], declared: Collection[str], levels: Mapping[str, list[str]]
) -> None:
    """Refuse categories, and texts that could become such, whose levels nobody has declared."""
    if lost := [n for n, column in columns.items() if n not in levels and (n in declared or _is_text(column))]:
        example = ", ".join(f"{name!r}: [...]" for name in lost)
        raise DataError(
            f"the levels of {listed([repr(name) for name in lost])} are not declared; taken from the rows, they would "
            f"be in the model without noise, which `privacy` forbids. Pass categories={{{example}}} with all levels "
            "that may occur (or a polars Enum; a pandas Categorical does not show who chose its levels), or drop the "
            "column."
        )


def _undeclared(columns: dict[str, pa.ChunkedArray], declared: Collection[str]) -> list[str]:
    """Text columns that are taken as categories although nobody said so; a warning names them."""
    found = {
        name: pc.count_distinct(without_missing_texts(decoded(column))).as_py()
        for name, column in columns.items()
        if name not in declared and _is_text(column) and _reason_against(column) is None
    }
    if found:
        named = ", ".join(f"{name!r} ({LEVEL.count(n_levels)})" for name, n_levels in found.items())
        warn_user(
            f"Text columns of `X` are taken as categories: {named}. To silence this, pass categories={list(found)!r}, "
            "or give them a categorical type; to leave one out, drop the column.",
            CategoriesWarning,
        )
    return list(found)


def _is_text(column: pa.ChunkedArray) -> bool:
    return pa.types.is_string(decoded(column).type)


def _reason_against(column: pa.ChunkedArray) -> tuple[str, str] | None:
    """Why texts do not look like a category, and the cure; None if they do."""
    texts = pc.drop_null(without_missing_texts(decoded(column)))
    levels = pc.unique(texts)
    if not len(levels):
        return "no values at all", "drop it"
    trimmed = pc.utf8_trim_whitespace(levels)
    kinds = ((NUMBER, "numbers written as texts", "turn it into numbers"), *NOT_NUMBERS)
    for pattern, kind, cure in kinds:
        if pc.all(pc.match_substring_regex(trimmed, pattern)).as_py():
            return kind, cure
    if len(levels) > MOST_LEVELS or ROWS_PER_LEVEL * len(levels) > len(texts):
        rows = "row" if len(texts) == 1 else "rows"
        return f"{len(levels):,} different texts in {len(texts):,} {rows}, as ids or notes do", "drop it"
    return None


def _refuse_the_rest(columns: dict[str, pa.ChunkedArray], categories: Collection[str]) -> None:
    """Refuse columns that are neither numbers nor categories; the error names all of them."""
    problems = []
    for name, column in columns.items():
        if name in categories:
            if pa.types.is_nested(decoded(column).type):
                problems.append(f"column {name!r} of `X` holds lists or records: drop it")
        elif _is_text(column):
            kind, cure = _reason_against(column) or ("texts", "drop it")
            problems.append(f"column {name!r} of `X` holds {kind}: {cure}, or name it in `categories`")
        elif pa.types.is_temporal(column.type):
            problems.append(
                f"column {name!r} of `X` holds dates or times: turn it into numbers, such as days, or drop it"
            )
        elif not _is_number(decoded(column).type):
            problems.append(f"column {name!r} of `X` holds values that are not numbers: drop it")
    if problems:
        raise DataError(f"`X` must hold numbers and categories, but {'; '.join(problems)}.")


def _is_number(kind: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_null)
    return any(test(kind) for test in tests)


def _level_order(series: Any, column: pa.ChunkedArray) -> list[str]:
    """The levels in the order of the column's type, where it has one; otherwise none, which means natural order."""
    import narwhals as nw

    if not pa.types.is_dictionary(column.type):
        return []
    has_order = series.implementation.is_pandas_like() or series.dtype == nw.Enum or column.type.ordered
    if not has_order or not column.num_chunks:
        return []
    levels: Sequence[Any] = level_texts(
        series.name, decoded(pa.chunked_array([column.chunk(0).dictionary]))
    ).to_pylist()
    return [level for level in dict.fromkeys(levels) if level is not None]
