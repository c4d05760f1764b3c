"""What users pass to models: a table, and targets, ids, weights and exposures as arrays or as names of its columns.

`learn` reads the table of a `fit` and plans how later tables are read, as a recipe. `read` reads such a later table.
Both return columns of the same rows. Rows that cannot be used are left out, unless the policy is to refuse them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.wording import ROW, listed
from fedhlcr.data.categories import Categories
from fedhlcr.data.columns import LARGEST
from fedhlcr.data.formula import Formula
from fedhlcr.data.ids import NEW, Ids, is_missing, native_array, require_length
from fedhlcr.data.inputs import EncodedTable, as_frame, feature_matrix, feature_names
from fedhlcr.data.recipe import Recipe
from fedhlcr.exceptions import (
    ArgumentError,
    DataError,
    DataWarning,
    MissingValuesError,
    MissingValuesWarning,
    warn_user,
)
from fedhlcr.settings import MissingPolicy

CURE = "pass missing='drop' to leave these rows out, or missing='impute' to fill medians and the most common levels in"


class Given(NamedTuple):
    """The arguments of a method: a table, and columns of it as arrays or names; None for those that were not passed."""

    X: Any
    y: Any = None
    agent: Any = None
    entity: Any = None
    sample_weight: Any = None
    exposure: Any = None


class ColumnNames(NamedTuple):
    """Names of the columns of X that were passed by name, or that `fit` used."""

    y: str | None = None
    agent: str | None = None
    entity: str | None = None
    sample_weight: str | None = None
    exposure: str | None = None


NO_NAMES = ColumnNames()


@dataclass(frozen=True)
class ReadEvents:
    """Columns that were read, without the rows that were left out.

    Attributes
    ----------
    given : the columns; X holds features only: encoded, or an array as it came
    names : the columns of the table that were used
    n_rows : number of rows of the table, if it was counted
    rows : (kept,) the rows that were not left out; None if all were kept
    """

    given: Given
    names: ColumnNames
    n_rows: int
    rows: IndexArray | None = None

    @property
    def n_left_out(self) -> int:
        return 0 if self.rows is None else self.n_rows - len(self.rows)

    def spread(self, values: FloatArray) -> FloatArray:
        """Values of the kept rows as values of all rows, NaN where a row was left out."""
        if self.rows is None:
            return values
        out = np.full((self.n_rows, *values.shape[1:]), np.nan)
        out[self.rows] = values
        return out


class Learned(NamedTuple):
    """What `fit` reads: the events, and the recipe for later tables if X is a table with names or gaps are filled."""

    events: ReadEvents
    recipe: Recipe | None


def learn(
    given: Given,
    *,
    categories: Categories,
    missing: MissingPolicy,
    formula: Formula | None = None,
    needs_levels: bool = False,
) -> Learned:
    """Read the table of a fit. An EncodedTable is ready already.

    Parameters
    ----------
    given : the arguments of `fit`
    categories : names of text columns that are categories, or their levels by name, or "auto"
    missing : what to do about rows with missing values
    formula : says which columns are which, if there is one
    needs_levels : whether the levels of all categories must be declared
    """
    frame = None if isinstance(given.X, EncodedTable) else as_frame(given.X)
    given, names = resolve(given, frame)
    if frame is None:
        _require_no_names(categories)
        if needs_levels:
            _require_declared(given.X)
        return _learn_array(given, names, missing)
    if formula is None:
        features = frame.drop([name for name in dict.fromkeys(names) if name is not None])
    else:
        features = frame.select(list(formula.columns))
    if feature_names(features.to_native()) is None:
        # names that are not texts are no names for scikit-learn either
        return _learn_array(given._replace(X=features.to_native()), names, missing)
    from fedhlcr.data.frame_columns import plan_features

    if formula is None:
        _warn_of_features_with_a_role(given, features)
    rows = _complete_rows(given, len(frame), missing)
    kept = features if rows is None else features[rows.tolist()]
    called = () if formula is None else formula.categories
    plan, raw = plan_features(kept, categories, called, needs_levels=needs_levels)
    plan = plan if formula is None else formula.planned(plan)
    with _naming_the_cure():
        recipe, prepared = replace(plan, missing=missing).learn(raw)
    events = _events(given, names, prepared.table, len(frame), _rows_of(rows, prepared.rows, len(kept)))
    target = _target_name(given.y, names.y, recipe)
    named = replace(recipe, target=target, agent=names.agent, entity=names.entity or "", exposure=names.exposure)
    return Learned(events, named)


def read(
    given: Given,
    recipe: Recipe | None,
    missing: MissingPolicy,
    remembered: ColumnNames,
    features: Collection[str] | None,
) -> ReadEvents:
    """Read a table for a fitted model.

    Parameters
    ----------
    given : the arguments of the method
    recipe : how a raw table becomes features, if the model has one
    missing : what to do about rows with missing values
    remembered : the columns that stand for arguments that were not passed
    features : names of the model's features; None if it was fitted to an array
    """
    frame = None if isinstance(given.X, EncodedTable) else as_frame(given.X)
    given, names = resolve(given, frame, remembered)
    if frame is None or features is None:
        if frame is not None:
            used = [name for name in dict.fromkeys([*names, *remembered]) if name in frame.columns]
            given = given._replace(X=frame.drop(used).to_native())
        return _read_array(given, names, recipe, missing)
    rows = _complete_rows(given, len(frame), missing)
    kept = frame if rows is None else frame[rows.tolist()]
    if rows is not None and not len(rows):
        return _events(given, names, None, len(frame), rows)
    if recipe is not None and recipe.is_raw(given.X):
        with _naming_the_cure():
            prepared = recipe.encode_features(kept, missing)
        return _events(given, names, prepared.table, len(frame), _rows_of(rows, prepared.rows, len(kept)))
    if lost := [name for name in features if name not in frame.columns]:
        raise ArgumentError(
            f"`X` has no column {', '.join(map(repr, lost))}, but `fit` used it; pass a table with the columns of "
            "`fit`, in any order."
        )
    matrix, complete = _usable(kept.select(list(features)).to_native(), missing, recipe)
    return _events(
        given,
        names,
        EncodedTable(matrix, tuple(features), {}),
        len(frame),
        _rows_of(rows, complete, len(kept)),
    )


def resolve(given: Given, frame: Any, remembered: ColumnNames = NO_NAMES) -> tuple[Given, ColumnNames]:
    """Replace names of columns by the columns. Where an argument is None, take the remembered column if it is there."""
    table = given.X if isinstance(given.X, EncodedTable) else frame
    present: Collection[str] = ()
    if table is not None:
        present = given.X.ids if isinstance(given.X, EncodedTable) else frame.columns
    values = {}
    names = {}
    for role in ColumnNames._fields:
        value = getattr(given, role)
        if value is None and getattr(remembered, role) in present:
            value = getattr(remembered, role)
        names[role] = value if isinstance(value, str) else None
        values[role] = _column(table, role, value, present) if isinstance(value, str) else value
    return given._replace(**values), ColumnNames(**names)


def _column(table: Any, role: str, name: str, present: Collection[str]) -> Any:
    if table is None:
        raise ArgumentError(
            f"`{role}` names a column, {name!r}, but `X` is an array without column names; pass one value per event "
            "row instead."
        )
    if name not in present:
        raise ArgumentError(
            f"`{role}` names the column {name!r}, but `X` has no such column; its columns are {list(table.columns)}."
        )
    return table.ids[name] if isinstance(table, EncodedTable) else table[name]


def _complete_rows(given: Given, n_rows: int, missing: MissingPolicy) -> IndexArray | None:
    """The rows that lack neither target nor id, weight or exposure; None if all do, or if others are refused later."""
    if missing == "refuse":
        return None
    gaps = np.zeros(n_rows, dtype=bool)
    for role in ColumnNames._fields:
        value = getattr(given, role)
        if value is None or value is NEW or isinstance(value, Real):
            continue
        own = missing_rows(value)
        require_length(own, role, "value", n_rows)
        gaps |= own
    return np.flatnonzero(~gaps) if gaps.any() else None


def _rows_of(first: IndexArray | None, second: IndexArray, n_left: int) -> IndexArray | None:
    """The rows that two steps keep; the second numbers those that the first has left."""
    if len(second) == n_left:
        return first
    return second if first is None else first[second]


def _events(given: Given, names: ColumnNames, X: Any, n_rows: int, rows: IndexArray | None) -> ReadEvents:
    columns = {role: take_rows(getattr(given, role), rows) for role in ColumnNames._fields}
    return ReadEvents(Given(X, **columns), names, n_rows, rows)


def _learn_array(given: Given, names: ColumnNames, missing: MissingPolicy) -> Learned:
    if isinstance(given.X, EncodedTable) or missing == "refuse":
        return Learned(ReadEvents(given, names, 0), None)
    matrix = feature_matrix(given.X, allows_gaps=True)
    rows = _complete_rows(given, len(matrix), missing)
    recipe = None
    if missing == "impute":
        kept = matrix if rows is None else matrix[rows]
        fill = {f"x{place}": _median(column, place) for place, column in enumerate(kept.T)}
        recipe = Recipe("", None, "", tuple(fill), {}, dict(fill), "impute")
    events = _read_array(given, names, recipe, missing)
    if events.rows is not None and not len(events.rows):
        raise DataError("every row has missing values; nothing is left to fit.")
    return Learned(events, recipe)


def _median(column: FloatArray, place: int) -> float:
    usable = column[np.abs(column) < LARGEST]
    if not len(usable):
        raise DataError(f"column {place} of `X` has only missing values; leave it out.")
    # without the sign of zero, which no order knows
    return float(np.median(usable)) + 0.0


def _read_array(given: Given, names: ColumnNames, recipe: Recipe | None, missing: MissingPolicy) -> ReadEvents:
    if isinstance(given.X, EncodedTable) or missing == "refuse":
        return ReadEvents(given, names, 0)
    matrix = feature_matrix(given.X, allows_gaps=True)
    rows = _complete_rows(given, len(matrix), missing)
    kept = matrix if rows is None else matrix[rows]
    usable, complete = _usable(kept, missing, recipe)
    return _events(given, names, usable, len(matrix), _rows_of(rows, complete, len(kept)))


def _usable(X: Any, missing: MissingPolicy, recipe: Recipe | None) -> tuple[FloatArray, IndexArray]:
    """The usable rows of features that are numbers, and which rows these are. Gaps are filled if the policy says so."""
    if missing == "refuse":
        matrix = feature_matrix(X)
        return matrix, np.arange(len(matrix))
    matrix = feature_matrix(X, allows_gaps=True)
    gaps = ~(np.abs(matrix) < LARGEST)
    if missing == "impute" and gaps.any():
        if recipe is None or len(recipe.fill) != matrix.shape[1] or recipe.categorical:
            raise DataError(
                "`X` has missing values, and the model has no values to fill in; pass the table as it was in `fit`, "
                "or drop these rows."
            )
        matrix = np.where(gaps, np.array([float(recipe.fill[name]) for name in recipe.features]), matrix)
        gaps = np.zeros(0, dtype=bool)
    complete = ~gaps.any(axis=1) if gaps.ndim == 2 else np.ones(len(matrix), dtype=bool)
    rows = np.flatnonzero(complete)
    return (matrix if len(rows) == len(matrix) else matrix[rows]), rows


def _warn_of_features_with_a_role(given: Given, features: Any) -> None:
    """Warn of a target, or of ids, weights or exposures, that are also a feature of the same name and values."""
    found = {}
    for role in ColumnNames._fields:
        name = getattr(getattr(given, role), "name", None)
        if isinstance(name, str) and name in features.columns and are_same(getattr(given, role), features[name]):
            found[role] = name
    if found:
        roles = ", ".join(f"{name!r} (`{role}`)" for role, name in found.items())
        cure = ", ".join(f"{role}={name!r}" for role, name in found.items())
        warn_user(
            f"Columns of `X` are features although they were passed as other arguments too: {roles}. Pass {cure}, so "
            "that they are no features; or drop them from `X`.",
            DataWarning,
        )


def warn_of_rows_left_out(events: ReadEvents, what: str) -> None:
    """Say how many rows were left out; `what` says what happened to them."""
    if n := events.n_left_out:
        warn_user(
            f"Rows with missing values {what}: {n:,} of {ROW.count(events.n_rows)}.",
            MissingValuesWarning,
        )


class _naming_the_cure:  # noqa: N801
    """Context: errors about missing values name the parameter of the estimators."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, MissingValuesError):
            found = error.message.partition(";")[0]
            raise MissingValuesError(f"{found}; {CURE}.", options=error.options) from None


def _require_no_names(categories: Categories) -> None:
    if not isinstance(categories, str) and len(categories):
        raise ArgumentError(
            "`categories` names columns, but `X` is an array without column names; pass a dataframe, or leave "
            "`categories` out."
        )


def _require_declared(X: Any) -> None:
    """Refuse an encoded table whose features are named after levels that may come from rows."""
    if isinstance(X, EncodedTable) and X.undeclared:
        raise DataError(
            f"`X` is encoded already, and the levels of {listed([repr(name) for name in X.undeclared])} may have been "
            "taken from its rows; they would be in the model without noise, which `privacy` forbids. Pass the "
            "dataframe as it was before, and all levels that may occur as `categories`."
        )


def _target_name(y: Any, name: str | None, recipe: Recipe) -> str:
    """The name of the target: that of its column, or of the series that was passed, unless a feature has it."""
    own = getattr(y, "name", None) if name is None else name
    taken = {*recipe.features, *recipe.encoded_features}
    return own if isinstance(own, str) and own not in taken else ""


def missing_rows(values: Any) -> NDArray[np.bool_]:
    """(rows,) which values are missing: None, NaN, pd.NA, null, and infinite or too large numbers."""
    if isinstance(values, Ids):
        return np.zeros(len(values.codes), dtype=bool)
    array = native_array(values)
    if not isinstance(array, np.ndarray):
        return np.array([is_missing(value) for value in array], dtype=bool)
    if array.dtype.kind == "f":
        # a comparison with NaN is false
        gaps = ~(np.abs(array) < LARGEST)
    elif array.dtype.kind in "mM":
        gaps = np.isnat(array)
    elif array.dtype.kind == "O":
        gaps = _missing_objects(array)
    else:
        gaps = np.zeros(array.shape, dtype=bool)
    return np.asarray(gaps if gaps.ndim == 1 else gaps.reshape(len(gaps), -1).any(axis=1))


def _missing_objects(array: NDArray[Any]) -> NDArray[np.bool_]:
    import pyarrow as pa

    if array.ndim == 1:
        try:
            return np.asarray(pa.array(array, from_pandas=True).is_null().to_numpy(zero_copy_only=False), dtype=bool)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            # several types in one column
            pass
    return np.array([is_missing(value) for value in array.ravel()], dtype=bool).reshape(array.shape)


def take_rows(values: Any, rows: IndexArray | None) -> Any:
    """The given rows of a column; None and single values stay as they are."""
    if rows is None or values is None or values is NEW or isinstance(values, Real | str):
        return values
    if isinstance(values, Ids):
        return values.take(rows)
    if isinstance(values, np.ndarray):
        return values[rows]
    import narwhals as nw

    # a series without its gaps keeps its type; an array of it would hold objects or floats
    wrapped = nw.from_native(values, pass_through=True, allow_series=True)
    if isinstance(wrapped, nw.Series | nw.DataFrame):
        return wrapped[rows.tolist()]
    return [values[row] for row in rows]


def are_same(values: Any, column: Any) -> bool:
    """Whether two columns have the same values wherever neither is missing."""
    first = native_array(values)
    second = native_array(column)
    if not isinstance(first, np.ndarray) or first.shape != second.shape:
        return False
    both = ~(missing_rows(first) | missing_rows(second))
    return bool(np.all(first[both] == second[both]))
