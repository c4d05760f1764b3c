"""Learn a recipe from a table that is read piece by piece: the levels, fills, classes and errors of `Recipe.learn`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.data.categories import classes_of, level_texts, most_common, no_values
from fedhlcr.data.columns import MissingCounts
from fedhlcr.data.families import count_faults, wrong_counts
from fedhlcr.data.recipe import Recipe, wrong_exposures
from fedhlcr.exceptions import DataError

# A category with more levels is refused before all rows are read.
MOST_LEVELS_KEPT = 100_000


def _count_levels(counts: dict[str, int], name: str, texts: pa.ChunkedArray) -> FloatArray:
    """Add the levels of some rows to `counts`; return the number of each row's level, NaN where it is missing."""
    encoded = texts.combine_chunks().dictionary_encode()
    local = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy().astype(np.int64)
    rows = np.bincount(local, minlength=len(encoded.dictionary) + 1)
    for text, count in zip(encoded.dictionary.to_pylist(), rows[:-1].tolist(), strict=True):
        counts[text] = counts.get(text, 0) + count
    if len(counts) > MOST_LEVELS_KEPT:
        raise DataError(f"column {name!r} has more than {MOST_LEVELS_KEPT:,} levels; leave it out, or group them.")
    place = {text: code for code, text in enumerate(counts)}
    own = [float(place[text]) for text in encoded.dictionary.to_pylist()]
    return np.array([*own, np.nan])[local]


def _distinct(counts: dict[str, int]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(list(counts), pa.string())])


class RecipeLearner:
    """What a recipe learns from the rows so far.

    Its columns are the features in the recipe's order, then the target, then the exposure if there is one. A category
    is the number of its level in the order of appearance. Missing values that will be filled are NaN.

    Parameters
    ----------
    plan : a recipe that has yet to learn
    state : of an earlier learner, from `to_json`
    """

    def __init__(self, plan: Recipe, state: dict[str, Any] | None = None) -> None:
        self.plan = plan
        self._texts = [name for name in self.columns if plan.is_text(name)]
        self._tally = plan.new_tally() if state is None else MissingCounts.from_json(state["tally"])
        # of each column of texts, the rows of each level, in the order of appearance
        self._levels: dict[str, dict[str, int]]
        self._levels = {name: {} for name in self._texts} if state is None else state["levels"]
        self._n_wrong_exposures = 0 if state is None else int(state["wrong_exposures"])
        self._count_faults: dict[str, int] = {} if state is None else dict(state["count_faults"])

    @property
    def columns(self) -> tuple[str, ...]:
        exposure = self.plan.exposure
        return (*self.plan.features, self.plan.target, *([] if exposure is None else [exposure]))

    @property
    def n_rows(self) -> int:
        """Rows read so far."""
        return self._tally.n_rows

    @property
    def n_events(self) -> int:
        """Rows that were kept so far."""
        return self._tally.n_kept

    def to_json(self) -> dict[str, Any]:
        wrong = {"wrong_exposures": self._n_wrong_exposures, "count_faults": self._count_faults}
        return {"tally": self._tally.to_json(), "levels": self._levels, **wrong}

    def add(self, raw: pa.Table) -> tuple[pa.Table, FloatArray]:
        """Learn from the next rows; return those that are kept, and their columns (columns, rows)."""
        gaps = self.plan.find_gaps(raw)
        rows = self._tally.add(raw, gaps)
        kept = raw if len(rows) == len(raw) else raw.take(pa.array(rows))
        out = np.empty((len(self.columns), len(rows)))
        for name, values in zip(self.columns, out, strict=True):
            if name in self._levels:
                values[:] = _count_levels(self._levels[name], name, level_texts(name, kept[name]))
                continue
            values[:] = kept[name].to_numpy()
            if name in gaps:
                values[gaps[name][rows]] = np.nan
        if self.plan.exposure is not None:
            self._n_wrong_exposures += int((out[-1] <= 0.0).sum())
        if self.plan.has_counts:
            for what, n_wrong in count_faults(out[len(self.plan.features)]).items():
                self._count_faults[what] = self._count_faults.get(what, 0) + n_wrong
        return kept, out

    def finish(self, median: Callable[[int, int], float]) -> tuple[Recipe, tuple[str, ...]]:
        """The recipe and notes on missing values; `median` returns that of a column with so many values."""
        plan = self.plan
        plan.check_gaps(self._tally)
        levels = {name: plan.learned_levels(name, _distinct(self._levels[name])) for name in plan.categorical}
        fill: dict[str, float | str] = {}
        for place, name in enumerate(plan.features):
            if name in levels:
                fill[name] = most_common(self._levels[name])
            elif n_values := self.n_events - self._tally.n_filled(name):
                fill[name] = median(place, n_values)
            else:
                raise no_values(name)
        classes = None if plan.classes is None else classes_of(plan.target, _distinct(self._levels[plan.target]))
        recipe = plan.taught(levels, fill, classes)
        if self._count_faults:
            raise wrong_counts(f"column {plan.target!r}", self._count_faults, self.n_events, in_fit=True)
        if self._n_wrong_exposures:
            raise wrong_exposures(str(plan.exposure), self._n_wrong_exposures, self.n_events)
        return recipe, tuple(self._tally.notes())

    def encoder(self, recipe: Recipe) -> EventEncoder:
        """How the columns become events, by a recipe that has learned."""
        known = {**recipe.categorical} | ({} if recipe.classes is None else {recipe.target: recipe.classes})
        ranks = {
            name: np.array([known[name].index(text) for text in levels], dtype=np.int64)
            for name, levels in self._levels.items()
        }
        return EventEncoder(recipe, self.columns, ranks)


@dataclass(frozen=True)
class EventEncoder:
    """Turns columns of a `RecipeLearner` into features, targets and exposures.

    Attributes
    ----------
    ranks : for each category, the position of each level, in the order of appearance, among the sorted levels
    """

    recipe: Recipe
    columns: tuple[str, ...]
    ranks: dict[str, IndexArray]

    def features(self, columns: FloatArray) -> FloatArray:
        """(rows, encoded features) of columns (columns, rows)."""
        recipe = self.recipe
        parts = []
        for name, values in zip(recipe.features, columns, strict=False):
            if name not in recipe.categorical:
                fill = float(recipe.fill[name])
                parts.append(np.where(np.isnan(values), fill, values) if recipe.missing == "impute" else values)
                continue
            parts += recipe.indicators(name, self._ranks(name, values))
        return np.ascontiguousarray(np.column_stack(parts))

    def _ranks(self, name: str, values: FloatArray) -> IndexArray:
        missing = np.isnan(values)
        ranks = self.ranks[name][np.where(missing, 0.0, values).astype(np.int64)]
        return np.where(missing, self.recipe.categorical[name].index(str(self.recipe.fill[name])), ranks)

    def targets(self, columns: FloatArray) -> FloatArray:
        """(rows,) targets as numbers: 1 for the second of two classes, 0 for the first."""
        values = columns[len(self.recipe.features)]
        if self.recipe.classes is None:
            return values
        return self.ranks[self.recipe.target][values.astype(np.int64)].astype(np.float64)

    def exposures(self, columns: FloatArray) -> FloatArray | None:
        """(rows,) exposures; None if there are none."""
        return None if self.recipe.exposure is None else columns[len(self.recipe.features) + 1]
