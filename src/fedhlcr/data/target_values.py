"""The family of a target, told from the values of its column."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedhlcr._support.arrays import FloatArray
from fedhlcr.data.categories import level_texts
from fedhlcr.data.families import BINARY, COUNT, REAL, Family

# Two numbers that are classes. Other pairs may be measurements.
CLASS_NUMBERS = ((0.0, 1.0), (-1.0, 1.0))
# Counts have few distinct values: at most so many, and at most this share of the rows.
MOST_COUNT_VALUES = 1000
MOST_DISTINCT_SHARE = 0.5
# Larger whole numbers are rather ids, years or amounts.
LARGEST_USUAL_COUNT = 10_000.0


class Told(NamedTuple):
    """The family of a target, and why: "it holds …". Without a reason the target holds plain real numbers."""

    family: Family
    reason: str = ""
    is_text: bool = False


def family_of(name: str, column: pa.ChunkedArray) -> Told:
    """Tell the family of a target from its column: texts, as CSV has them, or numbers.

    Two classes are two texts, true and false, or the numbers 0 and 1 or -1 and 1. Counts are whole numbers from 0
    onwards with few distinct values, most of them in the lower half of their range. In doubt, a target is real.
    """
    values = TargetValues(name)
    values.add(column)
    return values.told()


class TargetValues:
    """The distinct values of a target, from all rows, which may come in pieces.

    Parameters
    ----------
    name : name of its column

    Attributes
    ----------
    are_many : whether there are so many that the target is real whatever follows
    """

    def __init__(self, name: str) -> None:
        self.are_many = False
        self._name = name
        self._counts: dict[str, int] = {}

    def add(self, column: pa.ChunkedArray) -> None:
        """Count the values of the next rows."""
        self.are_many = self.are_many or pc.count_distinct(column).as_py() > MOST_COUNT_VALUES
        if self.are_many:
            return
        pairs = pc.value_counts(pc.drop_null(column))
        texts = level_texts(self._name, pa.chunked_array([pairs.field("values")])).to_pylist()
        for text, count in zip(texts, pairs.field("counts").to_pylist(), strict=True):
            if text is not None:
                self._counts[text] = self._counts.get(text, 0) + count
        self.are_many = len(self._counts) > MOST_COUNT_VALUES

    def told(self) -> Told:
        """The family, if these are all values."""
        if self.are_many:
            return Told(REAL)
        try:
            numbers = np.array([float(text) for text in self._counts])
        except ValueError:
            # other texts are refused where the column is read as numbers
            return Told(BINARY, "it holds two values", is_text=True) if len(self._counts) == 2 else Told(REAL)
        order = np.argsort(numbers)
        return _of_numbers(numbers[order], np.array(list(self._counts.values()), dtype=np.float64)[order])


def _of_numbers(numbers: FloatArray, counts: FloatArray) -> Told:
    """The family of numbers with these distinct values, ascending, and their numbers of rows."""
    if tuple(numbers.tolist()) in CLASS_NUMBERS:
        return Told(BINARY, "it holds two values")
    if len(numbers) == 2:
        return Told(REAL, "it holds two numbers, which are not 0 and 1")
    if len(numbers) < 2 or (numbers < 0.0).any() or (numbers % 1.0 != 0.0).any():
        return Told(REAL)
    n_rows = counts.sum()
    median = numbers[np.searchsorted(np.cumsum(counts), 0.5 * n_rows)]
    if numbers[0] > 0.0:
        return Told(REAL, "it holds whole numbers, but no zeros as counts usually do")
    if len(numbers) > MOST_DISTINCT_SHARE * n_rows or numbers[-1] > LARGEST_USUAL_COUNT:
        return Told(REAL, "it holds whole numbers, but too many different or too large ones to look like counts")
    if median > 0.5 * numbers[-1]:
        return Told(REAL, "it holds whole numbers, but most in the upper half of their range, unlike counts")
    return Told(COUNT, "it holds whole numbers from 0 onwards")
