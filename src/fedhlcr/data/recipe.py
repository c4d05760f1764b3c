"""How a raw table becomes what a model is fitted to: which columns, categories as 0 and 1, missing values.

A recipe is learnt once, from the table a model is fitted to, and kept with the model: levels of categories and what
fills gaps are those of the training table, also when another is predicted. Errors name columns and numbers of rows,
never a value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.wording import Noun, listed
from fedhlcr.data.columns import WHOLE_DECIMAL, counts_missing, kinds_missing, rows_missing, without_missing_texts
from fedhlcr.data.ids import canonical_text, is_missing, natural_key
from fedhlcr.data.inputs import as_frame
from fedhlcr.data.table_files import TableFile
from fedhlcr.exceptions import DataError, MissingValuesError

ROW, LEVEL, COLUMN = Noun("row", "rows"), Noun("level", "levels"), Noun("column", "columns")
MissingPolicy = Literal["refuse", "drop", "impute"]
POLICIES: tuple[str, ...] = get_args(MissingPolicy)
# More levels than these are ids, not categories: a matrix of an entity grows with their square.
MOST_LEVELS = 100
# Columns that number the rows, as pandas writes them to CSV and to Parquet.
INDEX_NAME = re.compile(r"(__index_level_\d+__)?$")


class Prepared(NamedTuple):
    """Events ready for a model.

    Attributes
    ----------
    table : id columns and features, which are finite numbers
    target : (events,), or None where it was not asked for
    rows : (events,) their numbers in the raw table, from 0; fewer than there if rows were dropped
    notes : what was done to the table, for the user
    """

    table: pa.Table
    target: FloatArray | None
    rows: IndexArray
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Recipe:
    """What a model takes from a table.

    Attributes
    ----------
    target, agent, entity : names of columns; without `agent` there is one agent
    features : names of the columns that are features, in their order
    categorical : of those that are categories, the levels, in natural order
    fill : what stands in for a missing value of each feature: the median, or the most common level
    missing : what is done about missing values unless another policy is asked for
    """

    target: str
    agent: str | None
    entity: str
    features: tuple[str, ...]
    categorical: dict[str, list[str]] = field(default_factory=dict)
    fill: dict[str, float | str] = field(default_factory=dict)
    missing: MissingPolicy = "refuse"

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for name in (self.agent, self.entity) if name is not None))

    @property
    def encoded_features(self) -> tuple[str, ...]:
        """Names of the model's features: a category of several levels is a column for each, of two one column."""
        return tuple(
            encoded
            for name in self.features
            for encoded in ([f"{name}={level}" for level in self._told(name)] if name in self.categorical else [name])
        )

    def _told(self, name: str) -> list[str]:
        levels = self.categorical[name]
        return levels[1:] if len(levels) == 2 else levels

    def read(self, file: TableFile, *, target: bool, require_ids: bool = True) -> pa.Table:
        """The raw columns of a file that this recipe takes; ids only where they are there, if they are not required."""
        ids = [name for name in self.ids if require_ids or name in file.columns]
        names = [*ids, *self.features, *([self.target] if target else [])]
        return file.read(names, {*ids, *self.categorical})

    def learn(self, raw: pa.Table) -> tuple[Recipe, Prepared]:
        """This recipe with the levels and medians of a raw table, and the table prepared by it."""
        if not len(raw):
            raise DataError("the table has no rows; at least one event is needed.")
        gaps = self._gaps(raw, self.missing)
        # what is dropped teaches nothing
        dropped = [gap for name, gap in gaps.items() if self.missing == "drop" or name not in self.features]
        taught = raw.filter(pa.array(~np.logical_or.reduce(dropped))) if dropped else raw
        if not len(taught):
            raise DataError(f"{_all_missing(raw, gaps)}; nothing is left to fit.")
        recipe = replace(
            self,
            categorical={name: _levels(name, taught[name]) for name in self.categorical},
            fill={name: _fill(name, taught[name], name in self.categorical) for name in self.features},
        )
        recipe._require_distinct_names()
        return recipe, recipe.prepare(raw)

    def _require_distinct_names(self) -> None:
        names = [*self.ids, *self.encoded_features]
        if double := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
            raise DataError(
                f"a level of a category and another column are both called {double[0]!r}; rename one of the columns."
            )

    def _gaps(self, raw: pa.Table, policy: MissingPolicy) -> dict[str, NDArray[np.bool_]]:
        """Which rows lack a value, of the columns that have any; refused by the policy of that name."""
        present = [name for name in (*self.ids, *self.features, self.target) if name in raw.column_names]
        gaps = {name: rows_missing(raw[name], is_id=name in self.ids) for name in present}
        gaps = {name: gap for name, gap in gaps.items() if gap.any()}
        if gaps and policy == "refuse":
            raise self._missing_values(raw, gaps)
        return gaps

    def _missing_values(self, raw: pa.Table, gaps: Mapping[str, NDArray[np.bool_]]) -> MissingValuesError:
        n_rows = int(np.logical_or.reduce(list(gaps.values())).sum())
        told = (
            f"{n_rows:,} of {ROW.count(len(raw))} {'has' if n_rows == 1 else 'have'} {kinds_missing(raw, gaps)} values"
        )
        never_filled = [repr(name) for name in gaps if name not in self.features]
        can_fill = len(never_filled) < len(gaps)
        cure = "drop these rows, or fill the gaps with usual values"
        if never_filled:
            rest = f"{cure}; rows without {listed(never_filled, 'or')} are dropped in any case"
            cure = rest if can_fill else "drop these rows: targets and ids are never filled in"
        return MissingValuesError(f"{told}: {counts_missing(gaps)}; {cure}.", can_fill)

    def prepare(self, raw: pa.Table, missing: MissingPolicy | None = None) -> Prepared:
        """Check a raw table and make it features; what has no target or no id is never made up, but dropped."""
        policy = self.missing if missing is None else missing
        gaps = self._gaps(raw, policy)
        notes = []
        rows = np.arange(len(raw))
        filled = {name for name in gaps if name in self.features} if policy == "impute" else set()
        dropped = [gap for name, gap in gaps.items() if name not in filled]
        if dropped:
            rows = np.flatnonzero(~np.logical_or.reduce(dropped))
            if not len(rows):
                raise DataError(f"{_all_missing(raw, gaps)}; none is left.")
            why = kinds_missing(raw, {name: gap for name, gap in gaps.items() if name not in filled})
            notes.append(f"dropped {ROW.count(len(raw) - len(rows))} with {why} values")
            raw = raw.take(pa.array(rows))
        # of a row that was dropped nothing is filled
        gaps = {name: gaps[name][rows] for name in sorted(filled) if gaps[name][rows].any()}
        if gaps:
            notes.append(f"filled {kinds_missing(raw, gaps)} values: {counts_missing(gaps)}")
        columns = {name: raw[name] for name in self.ids if name in raw.column_names}
        columns |= dict(zip(self.encoded_features, self._encoded(raw, filled), strict=True))
        target = raw[self.target].to_numpy() if self.target in raw.column_names else None
        return Prepared(pa.table(columns), target, rows, tuple(notes))

    def _encoded(self, raw: pa.Table, filled: Collection[str]) -> list[NDArray[Any]]:
        out: list[NDArray[Any]] = []
        for name in self.features:
            column, fill = raw[name], self._fill_of(name) if name in filled else None
            if name not in self.categorical:
                numbers = column.to_numpy().astype(np.float64)
                out.append(numbers if fill is None else np.where(rows_missing(column), fill, numbers))
                continue
            texts = _level_texts(column)
            codes = self._codes(name, texts if fill is None else pc.fill_null(texts, fill))
            first = len(self.categorical[name]) - len(self._told(name))
            out += [(codes == code).astype(np.float64) for code in range(first, len(self.categorical[name]))]
        return out

    def _fill_of(self, name: str) -> float | str:
        if name not in self.fill:
            raise DataError(f"the model has no usual value to fill in for column {name!r}; drop these rows instead.")
        return self.fill[name]

    def _codes(self, name: str, texts: pa.ChunkedArray) -> IndexArray:
        codes = pc.index_in(texts, pa.array(self.categorical[name], pa.string()))
        if codes.null_count:
            n_levels = pc.count_distinct(texts.filter(pc.is_null(codes))).as_py()
            raise DataError(
                f"column {name!r} holds {LEVEL.count(n_levels)} the model has not seen, in "
                f"{codes.null_count:,} of {len(codes):,} rows; correct or drop these rows, or fit a model with them."
            )
        return codes.to_numpy().astype(np.int64)

    def encode(self, frame: Any) -> Any:
        """A user's dataframe as the model takes it; what is no dataframe, or encoded already, stays as it is."""
        wrapped = as_frame(frame)
        if wrapped is None:
            return frame
        columns = tuple(name for name in wrapped.columns if isinstance(name, str))
        if set(self.encoded_features) <= set(columns) and not set(self.features) <= set(columns):
            return frame
        file = TableFile("X", columns, lambda names, _: pa.table({n: _arrow_column(wrapped[n]) for n in names}))
        raw = self.read(file, target=False, require_ids=False)
        # every row of a frame has a prediction: none is dropped
        prepared = self.prepare(raw, "impute" if self.missing == "impute" else "refuse")
        if len(prepared.rows) < len(raw):
            raise DataError(f"`X` has {ROW.count(len(raw) - len(prepared.rows))} without an id; drop such rows first.")
        return prepared.table

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"features": list(self.features)}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """From what a model file says, checked: anyone may have written it."""
        recipe = cls(**{**value, "features": tuple(value["features"])})
        roles = (recipe.target, *recipe.ids)
        sound = (
            _are_texts(value["features"])
            and _are_texts(list(dict.fromkeys(roles)))
            and not set(roles) & set(recipe.features)
            and set(recipe.categorical) <= set(recipe.features) == set(recipe.fill)
            and all(levels and _are_texts(levels) for levels in recipe.categorical.values())
            and all(
                fill in recipe.categorical[name] if name in recipe.categorical else _is_finite(fill)
                for name, fill in recipe.fill.items()
            )
            and recipe.missing in POLICIES
        )
        if not sound:
            raise ValueError("the recipe is malformed")
        return recipe


def plan_recipe(
    file: TableFile,
    *,
    target: str,
    agent: str | None,
    entity: str,
    features: Sequence[str] = (),
    categorical: Collection[str] = (),
    missing: MissingPolicy = "refuse",
) -> Recipe:
    """Which columns are what, yet to be learnt from; without `features`, all that are nothing else and have a name."""
    named = {"target": target, "agent": agent, "entity": entity}
    file.require([name for name in named.values() if name is not None])
    if not features:
        features = [name for name in file.columns if not INDEX_NAME.match(name) and name not in named.values()]
        features = [*features, *categorical]
    features = list(dict.fromkeys(features))
    roles = {name: role for role, name in named.items() if name is not None}
    for name in (*features, *categorical):
        if name in roles:
            raise DataError(f"column {name!r} is the {roles[name]}, and cannot be a feature too.")
    if target in (agent, entity):
        raise DataError(f"column {target!r} cannot be both target and id.")
    if extra := [name for name in categorical if name not in features]:
        raise DataError(f"categorical columns must be features, but these are not: {', '.join(map(repr, extra))}.")
    if not features:
        raise DataError(_no_feature(file))
    levels: dict[str, list[str]] = {name: [] for name in features if name in categorical}
    return Recipe(target, agent, entity, tuple(features), levels, missing=missing)


def _all_missing(raw: pa.Table, gaps: Mapping[str, NDArray[np.bool_]]) -> str:
    return f"each of the {len(raw):,} rows has {kinds_missing(raw, gaps)} values: {counts_missing(gaps)}"


def _no_feature(file: TableFile) -> str:
    if unnamed := file.columns.count(""):
        them = "it" if unnamed == 1 else "them"
        return (
            f"{file.name!r} has no feature but {COLUMN.count(unnamed)} without a name; name {them} in the first line."
        )
    cure = "at least one feature is needed; a column of ones gives a model of levels alone"
    return f"{file.name!r} has no columns but the target and the ids; {cure}."


def note_on_unnamed(file: TableFile) -> str | None:
    """A remark on columns that are no features for want of a name; row names, the first column, go without saying."""
    unnamed = [place for place, name in enumerate(file.columns) if not name]
    return None if unnamed in ([], [0]) else f"left out {COLUMN.count(len(unnamed))} without a name in the first line"


def _are_texts(values: Any) -> bool:
    """Whether this is a list of texts, each once."""
    return (
        isinstance(values, list) and all(isinstance(value, str) for value in values) and len(set(values)) == len(values)
    )


def _is_finite(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def _arrow_column(series: Any) -> pa.ChunkedArray:
    """A column of a user's frame; one that holds several types becomes texts."""
    try:
        return pa.chunked_array([series.to_arrow()])
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        texts = [None if is_missing(value) else canonical_text(value) for value in series.to_list()]
        return pa.chunked_array([pa.array(texts, pa.string())])


def _level_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Categories as texts, the same in whatever table: 1, 1.0 and "1.0" are "1", True and "TRUE" are "true"."""
    if not pa.types.is_string(column.type):
        if pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))
        distinct = pc.unique(pc.drop_null(column))
        texts = pa.array([canonical_text(value) for value in distinct.to_pylist()], pa.string())
        column = pa.chunked_array([texts.take(pc.index_in(column, distinct).combine_chunks())])
    column = pc.replace_substring_regex(without_missing_texts(column), WHOLE_DECIMAL, r"\1")
    lower = pc.utf8_lower(column)
    return pc.if_else(pc.is_in(lower, pa.array(["true", "false"])), lower, column)


def _levels(name: str, column: pa.ChunkedArray) -> list[str]:
    levels = pc.unique(pc.drop_null(_level_texts(column))).to_pylist()
    if len(levels) > MOST_LEVELS:
        raise DataError(
            f"column {name!r} has {len(levels):,} levels, more than the {MOST_LEVELS} a category may have; leave it "
            "out, or group its levels."
        )
    if not levels:
        raise DataError(f"column {name!r} has no value at all; leave it out.")
    return sorted(levels, key=natural_key)


def _fill(name: str, column: pa.ChunkedArray, is_category: bool) -> float | str:
    """The median of numbers, the most common level of categories, of several the first."""
    if is_category:
        pairs = pc.value_counts(pc.drop_null(_level_texts(column))).to_pylist()
        counts = {pair["values"]: pair["counts"] for pair in pairs}
        return max(sorted(counts, key=natural_key), key=lambda level: counts[level])
    numbers = column.to_numpy()[~rows_missing(column)]
    if not len(numbers):
        raise DataError(f"column {name!r} has no value at all; leave it out.")
    return float(np.median(numbers))
