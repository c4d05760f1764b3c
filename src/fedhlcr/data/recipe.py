"""How a raw table becomes features: which columns, categories as 0 and 1, and missing values.

A recipe is learnt once, from the training table, and kept with the model. When the model predicts another table, the
levels of categories and the values that replace missing ones are still those of the training table. Errors name
columns and counts of rows, never a value.
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
from fedhlcr._support.wording import COLUMN, ROW, Noun, listed
from fedhlcr.data.categories import class_values, classes_of, level_texts, levels_of, median, most_common_level
from fedhlcr.data.columns import counts_missing, kinds_missing, rows_missing
from fedhlcr.data.encoded import EncodedTable
from fedhlcr.data.ids import canonical_text, is_missing, read_ids
from fedhlcr.data.inputs import as_frame
from fedhlcr.data.table_files import TableFile
from fedhlcr.exceptions import ArgumentTypeError, CodecError, DataError, MissingValuesError, Setting

LEVEL, CLASS = Noun("level", "levels"), Noun("class", "classes")
MissingPolicy = Literal["refuse", "drop", "impute"]
POLICIES: tuple[str, ...] = get_args(MissingPolicy)
# Fields that a recipe has only if the target has classes, or an exposure.
LATER_FIELDS = ("classes", "exposure")
# Columns that number the rows, as pandas writes them to CSV and to Parquet.
INDEX_NAME = re.compile(r"(__index_level_\d+__)?$")


class Prepared(NamedTuple):
    """The result of preparing a raw table.

    Attributes
    ----------
    table : features and ids, ready for a model
    target : (events,) numbers or classes, or None if it was not asked for
    rows : (events,) row of each event in the raw table, counted from 0; dropped rows are left out
    notes : what was done to the table, for the user
    id_columns : the id columns as they were in the raw table, without the dropped rows
    exposure : (events,), or None if the recipe has none
    """

    table: EncodedTable
    target: NDArray[Any] | None
    rows: IndexArray
    notes: tuple[str, ...]
    id_columns: pa.Table
    exposure: FloatArray | None = None

    def take(self, rows: IndexArray) -> Prepared:
        """Return the given events."""
        target, exposure = (None if values is None else values[rows] for values in (self.target, self.exposure))
        id_columns = self.id_columns.take(pa.array(rows))
        return Prepared(self.table.take(rows), target, self.rows[rows], self.notes, id_columns, exposure)


@dataclass(frozen=True)
class Recipe:
    """What a model reads from a table.

    Attributes
    ----------
    target, agent, entity : names of columns; without `agent` all events belong to one agent
    features : names of the feature columns, in order
    categorical : levels of the features that are categories, in natural order
    fill : the value that replaces a missing one of each feature: the median or the most common level
    missing : what to do about missing values, unless another policy is passed
    classes : the two classes of the target, as texts and in order; empty before they are learnt, None if the target is
        a number
    exposure : name of the column with the exposure of each event, for counts; None if there is none
    """

    target: str
    agent: str | None
    entity: str
    features: tuple[str, ...]
    categorical: dict[str, list[str]] = field(default_factory=dict)
    fill: dict[str, float | str] = field(default_factory=dict)
    missing: MissingPolicy = "refuse"
    classes: list[str] | None = None
    exposure: str | None = None

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for name in (self.agent, self.entity) if name is not None))

    @property
    def encoded_features(self) -> tuple[str, ...]:
        """Names of the model's features. A category of two levels is one feature, otherwise each level is one."""
        return tuple(
            encoded
            for name in self.features
            for encoded in (
                [f"{name}={level}" for level in self._encoded_levels(name)] if name in self.categorical else [name]
            )
        )

    def _encoded_levels(self, name: str) -> list[str]:
        levels = self.categorical[name]
        return levels[1:] if len(levels) == 2 else levels

    def read(self, file: TableFile, *, target: bool, require_ids: bool = True, exposure: bool = True) -> pa.Table:
        """Return the raw columns of a file that this recipe uses. Ids may be absent unless they are required."""
        ids = [name for name in self.ids if require_ids or name in file.columns]
        names = [*ids, *self.features, *([self.target] if target else [])]
        if exposure and self.exposure is not None:
            names.append(self.exposure)
        return file.read(names, {*ids, *self._text_columns})

    @property
    def _text_columns(self) -> set[str]:
        """Columns of categories, and the target if it has classes."""
        return {*self.categorical, *([] if self.classes is None else [self.target])}

    def learn(self, raw: pa.Table) -> tuple[Recipe, Prepared]:
        """Return this recipe with the levels and medians of a raw table, and the table prepared by it."""
        if not len(raw):
            raise DataError("the table has no rows; at least one event is needed.")
        gaps = self._gaps(raw, self.missing)
        # dropped rows count neither for levels nor for medians
        dropped = [gap for name, gap in gaps.items() if self.missing == "drop" or name not in self.features]
        texts = self._level_texts(raw)
        kept = pa.array(~np.logical_or.reduce(dropped)) if dropped else None
        taught = texts if kept is None else texts.filter(kept)
        if not len(taught):
            raise DataError(f"{_all_missing(raw, gaps)}; nothing is left to fit.")
        levels = {name: levels_of(name, taught[name]) for name in self.categorical}
        fill: dict[str, float | str] = {
            name: most_common_level(taught[name]) if name in levels else median(name, taught[name])
            for name in self.features
        }
        classes = None if self.classes is None else classes_of(self.target, taught[self.target])
        recipe = replace(self, categorical=levels, fill=fill, classes=classes)
        recipe._require_distinct_names()
        return recipe, recipe._prepared(raw, texts, gaps, self.missing)

    def _level_texts(self, raw: pa.Table) -> pa.Table:
        """Return the table with the texts of their levels in the columns that are categories or classes."""
        return pa.table({n: level_texts(raw[n]) if n in self._text_columns else raw[n] for n in raw.column_names})

    def _require_distinct_names(self) -> None:
        names = [*self.ids, *self.encoded_features]
        if double := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
            raise DataError(
                f"a level of a category and another column are both called {double[0]!r}; rename one of the columns."
            )

    def _gaps(self, raw: pa.Table, policy: MissingPolicy) -> dict[str, NDArray[np.bool_]]:
        """Return which rows lack a value, for each column that has such rows. The policy "refuse" raises an error."""
        named = (*self.ids, *self.features, self.target, self.exposure)
        present = [name for name in named if name is not None and name in raw.column_names]
        gaps = {name: rows_missing(raw[name], is_id=name in self.ids) for name in present}
        gaps = {name: gap for name, gap in gaps.items() if gap.any()}
        if gaps and policy == "refuse":
            raise self._missing_values(raw, gaps)
        return gaps

    def _missing_values(self, raw: pa.Table, gaps: Mapping[str, NDArray[np.bool_]]) -> MissingValuesError:
        n_rows = int(np.logical_or.reduce(list(gaps.values())).sum())
        rows = f"{n_rows:,} of {ROW.count(len(raw))} {'has' if n_rows == 1 else 'have'}"
        never_filled = [repr(name) for name in gaps if name not in self.features]
        can_fill = len(never_filled) < len(gaps)
        cure = "drop these rows, or replace these values by the median or the most common level"
        if never_filled:
            rest = f"{cure}; rows without a usable {listed(never_filled, 'or')} are always dropped"
            kept = "exposures, targets and ids" if self.exposure in gaps else "targets and ids"
            cure = rest if can_fill else f"drop these rows; {kept} are never replaced"
        policies = ("drop", "impute") if can_fill else ("drop",)
        options = tuple(Setting("missing", policy) for policy in policies)
        return MissingValuesError(
            f"{rows} {kinds_missing(raw, gaps)} values: {counts_missing(gaps)}; {cure}.", options=options
        )

    def prepare(self, raw: pa.Table, missing: MissingPolicy | None = None) -> Prepared:
        """Check a raw table and encode its features. Rows without a target or an id are dropped, never filled."""
        policy = self.missing if missing is None else missing
        gaps = self._gaps(raw, policy)
        return self._prepared(raw, self._level_texts(raw), gaps, policy)

    def _prepared(
        self, raw: pa.Table, texts: pa.Table, gaps: Mapping[str, NDArray[np.bool_]], policy: MissingPolicy
    ) -> Prepared:
        """Drop rows and replace missing values by the policy, and encode the rest; `texts` as from `_level_texts`."""
        notes = []
        rows = np.arange(len(raw))
        filled = {name for name in gaps if name in self.features} if policy == "impute" else set()
        dropped = {name: gap for name, gap in gaps.items() if name not in filled}
        if dropped:
            rows = np.flatnonzero(~np.logical_or.reduce(list(dropped.values())))
            if not len(rows):
                raise DataError(f"{_all_missing(raw, gaps)}; none is left.")
            notes.append(f"dropped {ROW.count(len(raw) - len(rows))} with {kinds_missing(raw, dropped)} values")
            raw, texts = raw.take(pa.array(rows)), texts.take(pa.array(rows))
        # missing values of dropped rows need no replacement
        gaps = {name: gaps[name][rows] for name in sorted(filled) if gaps[name][rows].any()}
        if gaps:
            notes.append(f"filled {kinds_missing(raw, gaps)} values: {counts_missing(gaps)}")
        id_columns = raw.select([name for name in self.ids if name in raw.column_names])
        ids = {name: read_ids(id_columns[name], name, len(rows)) for name in id_columns.column_names}
        table = EncodedTable(np.column_stack(self._encoded(texts, filled)), self.encoded_features, ids)
        target = self._targets(texts) if self.target in raw.column_names else None
        exposure = self._exposures(raw) if self.exposure in raw.column_names else None
        return Prepared(table, target, rows, tuple(notes), id_columns, exposure)

    def _targets(self, texts: pa.Table) -> NDArray[Any]:
        if self.classes is None:
            return np.asarray(texts[self.target].to_numpy())
        return class_values(self.classes)[self._codes(self.target, texts[self.target], self.classes, CLASS)]

    def _exposures(self, raw: pa.Table) -> FloatArray:
        exposures = np.asarray(raw[self.exposure].to_numpy(), dtype=np.float64)
        if n_wrong := int((exposures <= 0.0).sum()):
            raise DataError(
                f"column {self.exposure!r} is the exposure and must hold positive numbers, but {n_wrong:,} of "
                f"{ROW.count(len(exposures))} are zero or negative; correct them, or leave these rows out: an event "
                "that was not exposed cannot have a count."
            )
        return exposures

    def _encoded(self, texts: pa.Table, filled: Collection[str]) -> list[NDArray[Any]]:
        """Return the columns of the model's features."""
        out: list[NDArray[Any]] = []
        for name in self.features:
            column, fill = texts[name], self._fill_of(name) if name in filled else None
            if name not in self.categorical:
                numbers = column.to_numpy().astype(np.float64)
                out.append(numbers if fill is None else np.where(rows_missing(column), fill, numbers))
                continue
            filled_texts = column if fill is None else pc.fill_null(column, fill)
            codes = self._codes(name, filled_texts, self.categorical[name])
            first = len(self.categorical[name]) - len(self._encoded_levels(name))
            out += [(codes == code).astype(np.float64) for code in range(first, len(self.categorical[name]))]
        return out

    def _fill_of(self, name: str) -> float | str:
        if name not in self.fill:
            raise DataError(
                f"the model has no value to replace missing ones of column {name!r}; drop these rows instead."
            )
        return self.fill[name]

    def _codes(self, name: str, texts: pa.ChunkedArray, levels: list[str], what: Noun = LEVEL) -> IndexArray:
        codes = pc.index_in(texts, pa.array(levels, pa.string()))
        if codes.null_count:
            n_levels = pc.count_distinct(texts.filter(pc.is_null(codes))).as_py()
            raise DataError(
                f"column {name!r} holds {what.count(n_levels)} that the model does not know, in "
                f"{codes.null_count:,} of {ROW.count(len(codes))}; correct or drop them, or fit a model with them."
            )
        return codes.to_numpy().astype(np.int64)

    def is_raw(self, X: Any) -> bool:
        """Return whether X is a raw table, which `encode` turns into features.

        A model that was fitted by the command line has a recipe, and Python users pass it either form: the table as it
        was on disk, or features that they prepared themselves. The names of the columns decide, never the values.
        Only a dataframe can be raw. Arrays and an EncodedTable hold the model's features already. So does a dataframe
        that has the columns `encoded_features`, unless it has all raw columns as well.
        """
        frame = as_frame(X)
        if frame is None:
            return False
        return set(self.features) <= set(frame.columns) or not set(self.encoded_features) <= set(frame.columns)

    def encode(self, frame: Any) -> EncodedTable:
        """Encode a raw dataframe: read the columns of this recipe, and ids if they are there.

        Every row of the frame is encoded. If rows have gaps that cannot be filled, the whole frame is refused.
        """
        wrapped = as_frame(frame)
        if wrapped is None:
            raise ArgumentTypeError(f"`frame` must be a dataframe, but is of type {type(frame).__name__}.")
        columns = tuple(name for name in wrapped.columns if isinstance(name, str))
        file = TableFile("X", columns, lambda names, _: pa.table({n: _arrow_column(wrapped[n]) for n in names}))
        raw = self.read(file, target=False, require_ids=False, exposure=False)
        prepared = self.prepare(raw, "impute" if self.missing == "impute" else "refuse")
        if len(prepared.rows) < len(raw):
            raise DataError(f"`X` has {ROW.count(len(raw) - len(prepared.rows))} without an id; drop such rows first.")
        return prepared.table

    def to_json(self) -> dict[str, Any]:
        fields = asdict(self) | {"features": list(self.features)}
        # releases before these fields neither write nor read them
        return {name: value for name, value in fields.items() if name not in LATER_FIELDS or value is not None}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Read a recipe from a model file. Everything is checked, because anyone may have written the file."""
        recipe = cls(**{**value, "features": tuple(value["features"])})
        roles = (recipe.target, *recipe.ids, *([] if recipe.exposure is None else [recipe.exposure]))
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
            and (recipe.classes is None or (_are_texts(recipe.classes) and len(recipe.classes) == 2))
        )
        if not sound:
            raise CodecError("the recipe is malformed; save the model again.")
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
    has_classes: bool = False,
    exposure: str | None = None,
) -> Recipe:
    """Return a recipe that has yet to learn from the table. Without `features`, all other columns with a name are."""
    named = {"target": target, "agent": agent, "entity": entity, "exposure": exposure}
    file.require([name for name in named.values() if name is not None], settings=named)
    if not features:
        features = [name for name in file.columns if not INDEX_NAME.match(name) and name not in named.values()]
        features = [*features, *categorical]
    features = list(dict.fromkeys(features))
    roles = {name: role for role, name in named.items() if name is not None}
    for name in (*features, *categorical):
        if name in roles:
            raise DataError(f"column {name!r} is the {roles[name]} and cannot also be a feature; name it only once.")
    if target in (agent, entity):
        raise DataError(f"column {target!r} cannot be both target and id; name another column for one of them.")
    if exposure is not None and exposure in (target, agent, entity):
        raise DataError(f"column {exposure!r} cannot be the exposure and the target or an id; name another column.")
    if extra := [name for name in categorical if name not in features]:
        names = ", ".join(map(repr, extra))
        raise DataError(f"categorical columns must be features, but these are not: {names}; add them to the features.")
    if not features:
        raise DataError(_no_feature(file))
    levels: dict[str, list[str]] = {name: [] for name in features if name in categorical}
    classes: list[str] | None = [] if has_classes else None
    return Recipe(target, agent, entity, tuple(features), levels, missing=missing, classes=classes, exposure=exposure)


def _all_missing(raw: pa.Table, gaps: Mapping[str, NDArray[np.bool_]]) -> str:
    return f"every row has {kinds_missing(raw, gaps)} values: {counts_missing(gaps)}"


def _no_feature(file: TableFile) -> str:
    if unnamed := file.columns.count(""):
        them = "it" if unnamed == 1 else "them"
        unnamed_ones = COLUMN.count(unnamed)
        return f"{file.name!r} has no feature except {unnamed_ones} without a name; name {them} in the first line."
    cure = "add at least one feature; a column of ones fits only the mean of each cluster"
    return f"{file.name!r} has no columns besides the target and the ids; {cure}."


def note_on_unnamed(file: TableFile) -> str | None:
    """Return a note on columns that are left out because they have no name, unless it is only the first: row names."""
    unnamed = [place for place, name in enumerate(file.columns) if not name]
    return None if unnamed in ([], [0]) else f"left out {COLUMN.count(len(unnamed))} without a name in the first line"


def _are_texts(values: Any) -> bool:
    """Return whether this is a list of distinct texts."""
    return (
        isinstance(values, list) and all(isinstance(value, str) for value in values) and len(set(values)) == len(values)
    )


def _is_finite(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def _arrow_column(series: Any) -> pa.ChunkedArray:
    """Return a column of a user's frame. A column of several types becomes texts."""
    try:
        return pa.chunked_array([series.to_arrow()])
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        texts = [None if is_missing(value) else canonical_text(value) for value in series.to_list()]
        return pa.chunked_array([pa.array(texts, pa.string())])
