"""Categories: their levels as texts, classes of a target, and the usual value of a feature, which fills gaps."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedhlcr._support.wording import Noun
from fedhlcr.data.columns import NUMBER, WHOLE_DECIMAL, rows_missing, without_missing_texts
from fedhlcr.data.ids import canonical_text, natural_key
from fedhlcr.exceptions import ArgumentError, DataError, Setting

# A column with more levels probably holds ids. Each level is a feature, and Gram matrices grow with its square.
MOST_LEVELS = 100
DISTINCT = Noun("distinct value", "distinct values")


# Names of features that are categories, or their levels by name.
Categories = str | Collection[str] | Mapping[str, Sequence[Any]]


def declared_levels(categories: Categories) -> dict[str, list[str]]:
    """Return the levels of each category as texts, in the user's order, where the user declares them."""
    if not isinstance(categories, Mapping):
        return {}
    return {name: _declared(name, levels) for name, levels in categories.items()}


def _declared(name: str, levels: Any) -> list[str]:
    if isinstance(levels, (str, bytes)) or not isinstance(levels, Iterable):
        raise ArgumentError(
            f"`categories` must hold a list of levels for {name!r}, but holds {type(levels).__name__}; write it as in "
            "categories={'size': ['S', 'M', 'L']}."
        )
    texts = level_texts(name, pa.chunked_array([pa.array([canonical_text(level) for level in levels], pa.string())]))
    found = texts.to_pylist()
    if None in found or not found or len(set(found)) < len(found) or len(found) > MOST_LEVELS:
        raise ArgumentError(
            f"the levels of {name!r} in `categories` must be 1 to {MOST_LEVELS} different ones, none of them a text "
            f"for missing values, but there are {len(found):,}, {len(set(found) - {None}):,} of which count; correct "
            "the list."
        )
    return found


def level_texts(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return categories as texts, the same for every format: 1, 1.0 and "1.0" are "1", True and "TRUE" are "true"."""
    if not pa.types.is_string(column.type):
        if pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))
        try:
            distinct = pc.unique(pc.drop_null(column))
            texts = pa.array([canonical_text(value) for value in distinct.to_pylist()], pa.string())
            column = pa.chunked_array([texts.take(pc.index_in(column, distinct).combine_chunks())])
        except (pa.ArrowException, OverflowError, ValueError):
            # the message of these errors may quote a value
            raise DataError(
                f"column {name!r} holds values of the type {column.type} that cannot be levels or classes, such as "
                "times outside of the years 1 to 9999; correct them, or leave the column out."
            ) from None
    column = pc.replace_substring_regex(without_missing_texts(column), WHOLE_DECIMAL, r"\1")
    lower = pc.utf8_lower(column)
    return pc.if_else(pc.is_in(lower, pa.array(["true", "false"])), lower, column)


def levels_of(name: str, texts: pa.ChunkedArray, order: Sequence[str] = (), *, are_declared: bool = False) -> list[str]:
    """Return the distinct levels of a category in the given order, others in natural order behind them.

    `texts` as `level_texts` returns them. Levels that do not occur are left out; if they are declared, all of `order`
    are levels, and no others.
    """
    levels = pc.unique(pc.drop_null(texts)).to_pylist()
    if len(levels) > MOST_LEVELS:
        raise DataError(
            f"column {name!r} has {len(levels):,} levels, but a category may have at most {MOST_LEVELS}; leave it "
            "out, or group its levels."
        )
    if not levels:
        raise no_values(name)
    if are_declared:
        if n_others := len(set(levels) - set(order)):
            raise DataError(
                f"column {name!r} has levels that are not declared: {n_others:,} besides the {len(order):,} in "
                "`categories`; add what is missing there, or correct or drop these rows."
            )
        return list(order)
    rank = {level: place for place, level in enumerate(order)}
    return sorted(levels, key=lambda level: (rank.get(level, len(rank)), natural_key(level)))


def classes_of(name: str, texts: pa.ChunkedArray) -> list[str]:
    """Return the two classes of a target, in the order of their values; `texts` as `level_texts` returns them."""
    levels = pc.unique(pc.drop_null(texts)).to_pylist()
    if len(levels) != 2:
        found = f"column {name!r} has {DISTINCT.count(len(levels))}, but a binary target has two"
        more = "More than two classes need Python: the how-to 'More than two classes' fits one model for each."
        if not all(re.match(NUMBER, level) for level in levels):
            raise DataError(f"{found}; check the column. {more}" if len(levels) > 2 else f"{found}; check the column.")
        raise DataError(
            f"{found}; check the column, or choose another family. {more}",
            options=(Setting("family", "real"), Setting("family", "count")),
        )
    return sorted(levels, key=natural_key if _are_whole(levels) else None)


def class_texts(classes: NDArray[Any]) -> list[str]:
    """Return the classes of a model as texts, as a recipe has them."""
    texts = [canonical_text(value) for value in classes]
    return [text.lower() for text in texts] if classes.dtype.kind == "b" else texts


def class_values(classes: list[str]) -> NDArray[Any]:
    """Return classes as Python users expect them: booleans, whole numbers or texts."""
    if classes == ["false", "true"]:
        return np.array([False, True])
    return np.array([int(text) for text in classes] if _are_whole(classes) else classes)


def _are_whole(texts: list[str]) -> bool:
    """Return whether all texts are whole numbers that fit into 64 bits."""
    return all(len(text) < 19 and natural_key(text)[0] == 0 for text in texts)


def most_common_level(texts: pa.ChunkedArray) -> str:
    """Return the level that occurs most often, the first in natural order if several do."""
    pairs = pc.value_counts(pc.drop_null(texts)).to_pylist()
    return most_common({pair["values"]: pair["counts"] for pair in pairs})


def most_common(counts: dict[str, int]) -> str:
    """Return the level with the highest count, the first in natural order if several have it."""
    return max(sorted(counts, key=natural_key), key=lambda level: counts[level])


def median(name: str, column: pa.ChunkedArray) -> float:
    """Return the median of the values that are not missing."""
    numbers = column.to_numpy()[~rows_missing(column)]
    if not len(numbers):
        raise no_values(name)
    # without the sign of zero, which no order knows
    return float(np.median(numbers)) + 0.0


def no_values(name: str) -> DataError:
    return DataError(f"column {name!r} has only missing values; leave it out.")
