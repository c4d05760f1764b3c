"""How a raw table becomes features: which columns, categories as 0 and 1, and missing values.

A recipe is learnt once, from the training table, and kept with the model. When the model predicts another table, the
levels of categories and the values that replace missing ones are still those of the training table. Errors name
columns and counts of rows, never a value.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.wording import ROW, Noun, listed
from fedhlcr.data.categories import class_values, classes_of, level_texts, levels_of, median, most_common_level
from fedhlcr.data.columns import POLICIES, Gaps, MissingCounts, arrow_column, find_gaps, rows_missing
from fedhlcr.data.families import count_faults, wrong_counts
from fedhlcr.data.ids import read_ids
from fedhlcr.data.inputs import EncodedTable, as_frame
from fedhlcr.data.table_files import TableFile
from fedhlcr.data.terms import INTERCEPT, LevelFeatures, Term, are_sound, feature_columns, feature_names, level_features
from fedhlcr.exceptions import ArgumentTypeError, CodecError, DataError, MissingValuesError, Setting
from fedhlcr.settings import MissingPolicy

LEVEL = Noun("level", "levels")
CLASS = Noun("class", "classes")
# Fields that a recipe has only if the target has classes or an exposure, if features are terms of a formula, or as
# long as it has not learned.
LATER_FIELDS = ("classes", "exposure", "terms", "declared")


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
    target, agent, entity : names of columns; without `agent` all events belong to one agent. A recipe of a table in
        memory has "" for a target or an entity that was not one of its columns
    features : names of the feature columns, in order
    categorical : levels of the features that are categories, in natural order or that of the column's type; before the
        recipe has learned, the order of the type, or nothing
    fill : the value that replaces a missing one of each feature: the median or the most common level
    missing : what to do about missing values, unless another policy is passed
    classes : the two classes of the target, as texts and in order; empty before they are learnt, None if the target is
        a number
    exposure : name of the column with the exposure of each event, for counts; None if there is none
    terms : products of features that the model has in place of them, as in a formula; None if it has them as they are
    has_counts : whether the target must hold counts; files do not have it
    declared : before the recipe has learned, the categories whose levels are those of `categorical`, whatever the table
        holds; None if there are none
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
    terms: tuple[Term, ...] | None = None
    has_counts: bool = field(default=False, compare=False)
    declared: list[str] | None = None

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for name in (self.agent, self.entity) if name))

    @property
    def encoded_features(self) -> tuple[str, ...]:
        """Names of the model's features. A category of two levels is one feature, otherwise each level is one."""
        if self.terms is not None:
            return feature_names(self.terms, self.categorical)
        return tuple(
            encoded
            for name in self.features
            for encoded in (
                [f"{name}={level}" for level in self._encoded_levels(name)] if name in self.categorical else [name]
            )
        )

    def level_features(self, *, has_intercept: bool) -> list[LevelFeatures]:
        """The features of categories that add up to other features or to 1."""
        terms = (INTERCEPT, *((name,) for name in self.features)) if self.terms is None else self.terms
        return level_features(terms, self.categorical, has_intercept=has_intercept)

    def _encoded_levels(self, name: str) -> list[str]:
        levels = self.categorical[name]
        return levels[1:] if len(levels) == 2 else levels

    def read(self, file: TableFile, *, target: bool, require_ids: bool = True, exposure: bool = True) -> pa.Table:
        """Return the raw columns of a file that this recipe uses. Ids may be absent unless they are required."""
        return file.read(*self.wanted(file, target=target, require_ids=require_ids, exposure=exposure))

    def wanted(
        self, file: TableFile, *, target: bool, require_ids: bool = True, exposure: bool = True
    ) -> tuple[list[str], set[str]]:
        """Return the columns of a file that this recipe uses, and those of them that are texts."""
        ids = [name for name in self.ids if require_ids or name in file.columns]
        names = [*ids, *self.features, *([self.target] if target else [])]
        if exposure and self.exposure is not None:
            names.append(self.exposure)
        return names, {*ids, *self._text_columns}

    def is_text(self, name: str) -> bool:
        """Whether a column is read as text and holds levels: a category, or a target with classes."""
        return name in self._text_columns

    @property
    def _text_columns(self) -> set[str]:
        """Columns of categories, and the target if it has classes."""
        return {*self.categorical, *([] if self.classes is None else [self.target])}

    def learn(self, raw: pa.Table) -> tuple[Recipe, Prepared]:
        """Return this recipe with the levels and medians of a raw table, and the table prepared by it."""
        gaps = self.find_gaps(raw)
        tally = self.new_tally()
        rows = tally.add(raw, gaps)
        self.check_gaps(tally)
        texts = self.with_level_texts(raw)
        # dropped rows count neither for levels nor for medians
        taught = texts if len(rows) == len(raw) else texts.take(pa.array(rows))
        levels = {name: self.learned_levels(name, taught[name]) for name in self.categorical}
        fill: dict[str, float | str] = {
            name: most_common_level(taught[name]) if name in levels else median(name, taught[name])
            for name in self.features
        }
        classes = None if self.classes is None else classes_of(self.target, taught[self.target])
        recipe = self.taught(levels, fill, classes)
        return recipe, recipe._with_counts(recipe._prepared(raw, texts, rows, tally, self.declared or ()), in_fit=True)

    def learned_levels(self, name: str, texts: pa.ChunkedArray) -> list[str]:
        """Return the levels of a category, from its texts in a table."""
        return levels_of(name, texts, self.categorical[name], are_declared=name in (self.declared or ()))

    def taught(self, levels: dict[str, list[str]], fill: dict[str, float | str], classes: list[str] | None) -> Recipe:
        """Return this recipe with what it learned from a table."""
        recipe = replace(self, categorical=levels, fill=fill, classes=classes, declared=None)
        recipe._require_distinct_names()
        return recipe

    def find_gaps(self, raw: pa.Table) -> Gaps:
        """Return which rows lack a value, for each column that has such rows."""
        return find_gaps(raw, (*self.ids, *self.features, self.target, self.exposure), self.ids)

    def new_tally(self, missing: MissingPolicy | None = None) -> MissingCounts:
        """Return an empty tally of missing values. Targets and ids are never filled."""
        named = (*self.ids, *self.features, self.target, self.exposure)
        policy = self.missing if missing is None else missing
        filled = list(self.features) if policy == "impute" else []
        return MissingCounts([name for name in named if name is not None], filled)

    def check_gaps(self, tally: MissingCounts, missing: MissingPolicy | None = None) -> None:
        """Refuse a table without rows, with missing values that the policy does not allow, or with nothing left."""
        if not tally.n_rows:
            raise DataError("the table has no rows; at least one event is needed.")
        self._refuse_gaps(tally, missing)
        if not tally.n_kept:
            raise DataError(f"{tally.all_missing()}; nothing is left to fit.")

    def _refuse_gaps(self, tally: MissingCounts, missing: MissingPolicy | None) -> None:
        if tally.n_with_gaps and (self.missing if missing is None else missing) == "refuse":
            raise self._missing_values(tally)

    def with_level_texts(self, raw: pa.Table) -> pa.Table:
        """Return the table with the texts of their levels in the columns that are categories or classes."""
        return pa.table({n: level_texts(n, raw[n]) if n in self._text_columns else raw[n] for n in raw.column_names})

    def _require_distinct_names(self) -> None:
        names = [*self.ids, *self.encoded_features]
        if double := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
            raise DataError(
                f"a level of a category and another column are both called {double[0]!r}; rename one of the columns."
            )

    def _missing_values(self, tally: MissingCounts) -> MissingValuesError:
        n_rows = tally.n_with_gaps
        gaps = tally.overall
        rows = f"{n_rows:,} of {ROW.count(tally.n_rows)} {'has' if n_rows == 1 else 'have'}"
        never_filled = [repr(name) for name in tally.columns if name in gaps and name not in self.features]
        can_fill = len(never_filled) < len(gaps)
        cure = "drop these rows, or replace these values by the median or the most common level"
        if never_filled:
            rest = f"{cure}; rows without a usable {listed(never_filled, 'or')} are always dropped"
            kept = "exposures, targets and ids" if self.exposure in gaps else "targets and ids"
            cure = rest if can_fill else f"drop these rows; {kept} are never replaced"
        policies = ("drop", "impute") if can_fill else ("drop",)
        options = tuple(Setting("missing", policy) for policy in policies)
        return MissingValuesError(f"{rows} {tally.kinds} values: {tally.counts}; {cure}.", options=options)

    def prepare(self, raw: pa.Table, missing: MissingPolicy | None = None) -> Prepared:
        """Check a raw table and encode its features. Rows without a target or an id are dropped, never filled."""
        tally = self.new_tally(missing)
        rows = tally.add(raw, self.find_gaps(raw))
        self._refuse_gaps(tally, missing)
        if len(raw) and not len(rows):
            raise DataError(f"{tally.all_missing()}; none is left.")
        return self._with_counts(self._prepared(raw, self.with_level_texts(raw), rows, tally))

    def _prepared(
        self,
        raw: pa.Table,
        texts: pa.Table,
        rows: NDArray[np.intp],
        tally: MissingCounts,
        declared: Collection[str] = (),
    ) -> Prepared:
        """Replace missing values of the rows that are kept, and encode them.

        `texts` as from `with_level_texts`. `declared` are the categories whose levels are known to be declared.
        """
        if len(rows) < len(raw):
            raw = raw.take(pa.array(rows))
            texts = texts.take(pa.array(rows))
        filled = [name for name, count in tally.kept.items() if count.count]
        id_columns = raw.select([name for name in self.ids if name in raw.column_names])
        ids = {name: read_ids(id_columns[name], name, len(rows)) for name in id_columns.column_names}
        undeclared = tuple(name for name in self.categorical if name not in declared)
        table = EncodedTable(np.column_stack(self._encoded(texts, filled)), self.encoded_features, ids, undeclared)
        target = self._targets(texts) if self.target in raw.column_names else None
        exposure = self._exposures(raw) if self.exposure in raw.column_names else None
        return Prepared(table, target, rows, tuple(tally.notes()), id_columns, exposure)

    def _with_counts(self, prepared: Prepared, *, in_fit: bool = False) -> Prepared:
        """Refuse a target that must hold counts and holds something else."""
        if self.has_counts and prepared.target is not None and (faults := count_faults(prepared.target)):
            raise wrong_counts(f"column {self.target!r}", faults, len(prepared.target), in_fit=in_fit)
        return prepared

    def _targets(self, texts: pa.Table) -> NDArray[Any]:
        if self.classes is None:
            return np.asarray(texts[self.target].to_numpy())
        return class_values(self.classes)[self._codes(self.target, texts[self.target], self.classes, CLASS)]

    def _exposures(self, raw: pa.Table) -> FloatArray:
        exposures = np.asarray(raw[self.exposure].to_numpy(), dtype=np.float64)
        if n_wrong := int((exposures <= 0.0).sum()):
            raise wrong_exposures(str(self.exposure), n_wrong, len(exposures))
        return exposures

    def _encoded(self, texts: pa.Table, filled: Collection[str]) -> list[NDArray[Any]]:
        """Return the columns of the model's features."""
        columns: dict[str, NDArray[Any]] = {}
        for name in self.features:
            column = texts[name]
            fill = self._fill_of(name) if name in filled else None
            if name not in self.categorical:
                numbers = column.to_numpy().astype(np.float64)
                columns[name] = numbers if fill is None else np.where(rows_missing(column), fill, numbers)
                continue
            filled_texts = column if fill is None else pc.fill_null(column, fill)
            columns[name] = self._codes(name, filled_texts, self.categorical[name])
        if self.terms is not None:
            return [*feature_columns(self.terms, self.categorical, columns)]
        encoded = (
            [values] if n not in self.categorical else self.indicators(n, values) for n, values in columns.items()
        )
        return [values for own in encoded for values in own]

    def indicators(self, name: str, codes: IndexArray) -> list[NDArray[Any]]:
        """Return the features of a category, whose levels have these positions among all levels."""
        n_levels = len(self.categorical[name])
        first = n_levels - len(self._encoded_levels(name))
        return [(codes == code).astype(np.float64) for code in range(first, n_levels)]

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

    def encode_features(self, frame: Any, missing: MissingPolicy) -> Prepared:
        """Encode the features of a raw dataframe, whose columns may be in any order; other columns are ignored."""
        wrapped = as_frame(frame)
        if wrapped is None:
            raise ArgumentTypeError(f"`frame` must be a dataframe, but is of type {type(frame).__name__}.")
        columns = tuple(name for name in wrapped.columns if isinstance(name, str))
        file = TableFile("X", columns, lambda names, _: pa.table({n: arrow_column(wrapped[n]) for n in names}))
        raw = file.read(self.features, set(self.categorical))
        tally = self.new_tally(missing)
        rows = tally.add(raw, find_gaps(raw, self.features, ()))
        self._refuse_gaps(tally, missing)
        return self._prepared(raw, self.with_level_texts(raw), rows, tally)

    def to_json(self) -> dict[str, Any]:
        fields = asdict(self) | {"features": list(self.features)}
        del fields["has_counts"]
        # releases before these fields neither write nor read them
        return {name: value for name, value in fields.items() if name not in LATER_FIELDS or value is not None}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Read a recipe from a model file. Everything is checked, because anyone may have written the file."""
        recipe = cls(**{**value, "features": tuple(value["features"])})
        if recipe.terms is not None:
            if not are_sound(recipe.terms, recipe.features, recipe.categorical):
                raise CodecError("the recipe is malformed: its terms are not those of a formula; save the model again.")
            recipe = replace(recipe, terms=tuple(map(tuple, recipe.terms)))
        roles = (recipe.target, *recipe.ids, *([] if recipe.exposure is None else [recipe.exposure]))
        sound = (
            _are_texts(value["features"])
            and _are_texts(list(dict.fromkeys(roles)))
            and not set(roles) & set(recipe.features)
            and set(recipe.categorical) <= set(recipe.features)
            and set(recipe.fill) in (set(recipe.features), set())
            and all(levels and _are_texts(levels) for levels in recipe.categorical.values())
            and all(
                fill in recipe.categorical[name] if name in recipe.categorical else _is_finite(fill)
                for name, fill in recipe.fill.items()
            )
            and recipe.missing in POLICIES
            and (recipe.classes is None or (_are_texts(recipe.classes) and len(recipe.classes) == 2))
            and recipe.declared is None
        )
        if not sound:
            raise CodecError("the recipe is malformed; save the model again.")
        return recipe


def wrong_exposures(name: str, n_wrong: int, n_rows: int) -> DataError:
    are = "is" if n_wrong == 1 else "are"
    return DataError(
        f"column {name!r} is the exposure and must hold positive numbers, but {n_wrong:,} of {ROW.count(n_rows)} {are} "
        "zero or negative; correct them, or leave these rows out: an event that was not exposed cannot have a count."
    )


def _are_texts(values: Any) -> bool:
    """Return whether this is a list of distinct texts."""
    return (
        isinstance(values, list) and all(isinstance(value, str) for value in values) and len(set(values)) == len(values)
    )


def _is_finite(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value)
