"""Checks of what users pass in: arrays and dataframes of any library become numbers and ids.

Errors name the argument, what was expected, what came and the cure. They say how many values are wrong and in which
columns. They never quote a value, because messages may leave the agent.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray, for_kernels
from fedhlcr._support.wording import COLUMN, ROW, Noun
from fedhlcr.data.families import Family, wrong_counts
from fedhlcr.data.ids import Ids, is_missing, native_array, require_length
from fedhlcr.exceptions import ArgumentError, ArgumentTypeError, DataError, DataTypeError

if TYPE_CHECKING:
    import narwhals as nw


# Largest and smallest exposure: beyond, sums of squares lose their digits.
LARGEST_EXPOSURE = 1e15
SMALLEST_EXPOSURE = 1e-15
VALUE = {kind: Noun(f"{kind} value", f"{kind} values") for kind in ("NaN", "infinite")}
CLASS_CURE = "drop these rows; the estimators leave them out with missing='drop'"


def as_frame(X: Any) -> nw.DataFrame[Any] | None:
    """Return X as a narwhals frame, or None if it is not a dataframe."""
    # imported here, because a table that was encoded before needs no library of dataframes
    import narwhals as nw
    from narwhals.exceptions import DuplicateError

    try:
        frame = nw.from_native(X, pass_through=True)
    except DuplicateError:
        raise ArgumentError("`X` has more than one column of the same name; rename or drop the copies.") from None
    if isinstance(frame, nw.LazyFrame):
        raise ArgumentError("`X` is a lazy frame, which holds no values yet; collect() it first.")
    return frame if isinstance(frame, nw.DataFrame) else None


def feature_matrix(X: Any, *, allows_gaps: bool = False) -> FloatArray:
    """Return the features as a float matrix; refuse text and missing or infinite values, by column.

    With `allows_gaps`, missing values are NaN, and infinite ones stay.

    An EncodedTable has been checked already. Constant and collinear columns are fine: the prior on the coefficients
    takes care of them.
    """
    if isinstance(X, EncodedTable):
        return _with_rows(X.matrix)
    # imported here and below, because scikit-learn takes a second to import and a running node has no table to check
    from sklearn.utils.validation import check_array

    frame = as_frame(X)
    names = None if frame is None else list(frame.columns)
    X = _two_dimensional(X) if frame is None else _stacked(frame)
    matrix = _with_rows(check_array(X, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=0, input_name="X"))
    if not allows_gaps:
        _refuse_not_finite(matrix, "`X`", names)
    # a table that is read-only is copied, also one that is mapped from a file; larger ones are read by `fit_files`
    return for_kernels(matrix)


def _stacked(frame: nw.DataFrame[Any]) -> FloatArray:
    """Return the columns of a frame side by side; each must hold numbers."""
    import narwhals as nw

    for name, dtype in frame.schema.items():
        if not (dtype.is_numeric() or dtype == nw.Boolean):
            if not all(isinstance(name, str) for name in frame.columns):
                raise DataError(
                    f"column {name!r} of `X` holds {dtype}, but the names of the columns are not all texts, so that "
                    "columns are taken as they come and must hold numbers; rename them first, for example by "
                    "X.columns = X.columns.astype(str)."
                )
            raise _not_a_number(f"column {name!r} of `X`", str(dtype))
    columns = [_column(frame[:, place]) for place in range(len(frame.columns))]
    return np.column_stack(columns) if columns else np.empty((len(frame), 0))


def _two_dimensional(X: Any) -> NDArray[Any]:
    if hasattr(X, "to_frame"):
        raise ArgumentError(
            "Expected 2D array, got 1D array instead: `X` is a series, not a table with a row per event; for a single "
            "row write table.iloc[[0]], for a single feature X.to_frame()."
        )
    array = _numeric_array(X, "X")
    if array.ndim != 2:
        raise ArgumentError(
            f"Expected 2D array, got {array.ndim}D array instead: `X` must have a row per event and a column per "
            "feature. Reshape your data with X.reshape(-1, 1) if it has a single feature."
        )
    return array


def _with_rows(matrix: FloatArray) -> FloatArray:
    if not len(matrix):
        raise ArgumentError("`X` is empty: found array with 0 sample(s) while a minimum of 1 is required.")
    return matrix


def named_features(features: Any, matrix: FloatArray) -> Any:
    """Return what scikit-learn reads the names of the features from: a table, or the matrix if there are no names."""
    if isinstance(features, EncodedTable):
        return features.header()
    return matrix if as_frame(features) is None else features


def feature_names(features: Any) -> list[str] | None:
    """Return the names of the features; None if they have none, or if names are not texts."""
    if isinstance(features, EncodedTable):
        return list(features.names)
    frame = as_frame(features)
    if frame is None or not all(isinstance(name, str) for name in frame.columns):
        return None
    return list(frame.columns)


def target_vector(y: Any, n_rows: int) -> FloatArray:
    """Return the target as a vector of n_rows finite floats."""
    if y is None:
        raise ArgumentError("requires y to be passed, but the target y is None; pass one target per event row.")
    vector = number_vector(y, "y")
    require_length(vector, "y", "target", n_rows)
    return vector


def number_vector(values: Any, name: str) -> FloatArray:
    """Return values as a vector of finite floats; `name` is the argument's."""
    vector = _numeric_array(native_array(values), name)
    if vector.ndim == 0:
        raise ArgumentError(
            f"`{name}` must hold a value per event row, but is a single number; pass a column, or the name of one. "
            "Names of columns are texts."
        )
    if vector.ndim != 1:
        from sklearn.utils.validation import column_or_1d

        vector = column_or_1d(vector, warn=True)
    vector = vector.astype(np.float64)
    _refuse_not_finite(vector[:, None], f"`{name}`", None)
    return vector


def log_exposure(exposure: Any, n_rows: int) -> FloatArray | None:
    """Return the logarithm of each event's exposure, or None if no exposure is given; a single number is for all."""
    if exposure is None:
        return None
    if isinstance(exposure, str | bytes | bool):
        raise ArgumentError(
            "`exposure` must be a number or one number per event row, not a name or a truth value; pass the column "
            "itself, for example X['days'], and leave it out of the features."
        )
    values = np.full(n_rows, exposure, dtype=np.float64) if np.ndim(exposure) == 0 else exposure
    vector = number_vector(values, "exposure")
    require_length(vector, "exposure", "exposure", n_rows)
    if (wrong := (vector < SMALLEST_EXPOSURE) | (vector > LARGEST_EXPOSURE)).any():
        n_wrong = int(wrong.sum())
        raise ArgumentError(
            f"`exposure` must hold positive numbers, but {n_wrong} of {n_rows} {'is' if n_wrong == 1 else 'are'} zero, "
            "negative or extreme; an event that was not exposed cannot have a count: leave it out."
        )
    return np.log(vector)


def weight_vector(sample_weight: Any, n_rows: int) -> FloatArray:
    """Return how often each event counts: once if `sample_weight` is None; a single number is for all events."""
    if sample_weight is None:
        return np.ones(n_rows)
    if isinstance(sample_weight, Real):
        sample_weight = np.full(n_rows, sample_weight, dtype=np.float64)
    weight = _numeric_array(native_array(sample_weight), "sample_weight").astype(np.float64)
    if weight.ndim != 1:
        raise ArgumentError(f"`sample_weight` must be one number per event row, but it has {weight.ndim} dimensions.")
    require_length(weight, "sample_weight", "weight", n_rows)
    _refuse_not_finite(weight[:, None], "`sample_weight`", None)
    if (weight < 0).any():
        raise ArgumentError(
            f"`sample_weight` must not be negative, but {int((weight < 0).sum())} of {len(weight)} weights are; "
            "a weight says how often an event counts."
        )
    if not (weight > 0).any():
        raise ArgumentError("`sample_weight` is zero for every event; at least one event must count.")
    return weight


def _column(series: nw.Series[Any]) -> FloatArray:
    """Return a numeric column as floats, with NaN for missing values."""
    import narwhals as nw

    return series.cast(nw.Float64).to_numpy().astype(np.float64)


def _numeric_array(values: Any, argument: str) -> NDArray[Any]:
    """Return an array of numbers. Refuse other values before a conversion error would quote them."""
    # if nobody imported it, there is no sparse matrix
    sparse = sys.modules.get("scipy.sparse")
    if sparse is not None and sparse.issparse(values):
        raise ArgumentTypeError(
            f"`{argument}` is a sparse matrix, but dense data is required; use toarray() to convert it."
        )
    try:
        array = np.asarray(values)
    except ValueError:
        raise ArgumentError(f"`{argument}` has rows of different lengths; pass a table of numbers.") from None
    kind = array.dtype.kind
    if kind == "c":
        raise ArgumentError(f"Complex data not supported: `{argument}` must hold real numbers.")
    if kind in "USmM":
        raise _not_a_number(f"`{argument}`", "dates" if kind in "mM" else "text")
    if kind != "O":
        return array
    numbers = np.empty(array.shape, dtype=np.float64)
    for place, value in np.ndenumerate(array):
        try:
            numbers[place] = np.nan if is_missing(value) else float(value)
        except ValueError:
            column = f"column {place[1]} of " if array.ndim == 2 else ""
            raise _not_a_number(f"{column}`{argument}`", "text") from None
        except TypeError:
            # scikit-learn's own checks look for the built-in message
            raise DataTypeError(
                f"`{argument}` holds objects that are not numbers (float() argument must be a string or a real number)."
            ) from None
    return numbers


def _not_a_number(where: str, came: str) -> DataError:
    cure = "turn it into numbers first"
    if "`X`" in where:
        cure = (
            "drop it, or turn it into numbers first (dates into days or seconds; categories by one-hot encoding, for "
            "example with sklearn.preprocessing.OneHotEncoder)"
        )
    return DataError(f"{where} must hold numbers, but it holds {came}; {cure}.")


def _refuse_not_finite(matrix: FloatArray, what: str, names: list[str] | None) -> None:
    bad = (~np.isfinite(matrix)).sum(axis=0)
    if not bad.any():
        return
    n_infinite = int(np.isinf(matrix).sum())
    n_nan = int(bad.sum()) - n_infinite
    counts = " and ".join(f"{VALUE[kind].count(n)}" for kind, n in (("NaN", n_nan), ("infinite", n_infinite)) if n)
    if matrix.shape[1] == 1 and names is None and what != "`X`":
        where = ""
    else:
        columns = np.flatnonzero(bad)
        shown = [f"{int(bad[c])} in {f'column {c}' if names is None else repr(names[c])}" for c in columns[:10]]
        more = [f"more in {COLUMN.count(len(columns) - 10)}"] if len(columns) > 10 else []
        where = f" ({', '.join([*shown, *more])})"
    cure = "drop these rows, or fill them in, for example with sklearn.impute.SimpleImputer"
    if what == "`X`":
        cure = (
            "drop these rows, or fill them in; the estimators do it with missing='drop' or missing='impute', and "
            "sklearn.impute.SimpleImputer does it for all others"
        )
    if what == "`y`":
        cure = "drop these rows; the estimators leave them out with missing='drop'"
    if n_infinite:
        cure = "drop these rows, or replace the infinite values by numbers (an imputer accepts NaN, but not infinity)"
    raise DataError(f"{what} has {counts} in {ROW.count(len(matrix))}{where}; {cure}.")


@dataclass(frozen=True)
class EncodedTable:
    """A table that has been checked and encoded. Models accept it as `X` and do not check it again.

    Attributes
    ----------
    matrix : (events, features) finite numbers
    names : names of the features, in the order of the matrix's columns
    ids : the ids of each id column, by the column's name
    undeclared : categories whose levels, which are in the names, may come from rows
    """

    matrix: FloatArray
    names: tuple[str, ...]
    ids: Mapping[str, Ids]
    undeclared: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.matrix)

    @property
    def columns(self) -> list[str]:
        """Names of the id columns and of the features."""
        return [*self.ids, *self.names]

    def header(self) -> pa.Table:
        """Return a table without rows that has the names of the features."""
        return header_of(self.names)

    def take(self, rows: IndexArray | slice) -> EncodedTable:
        """Return the given rows."""
        return replace(self, matrix=self.matrix[rows], ids={name: ids.take(rows) for name, ids in self.ids.items()})


def header_of(names: Iterable[str]) -> pa.Table:
    """Return a table without rows that has columns of these names."""
    return pa.table({name: pa.array([], pa.float64()) for name in names})


def read_target(family: Family, classes: NDArray[Any] | None, y: Any, n_rows: int) -> FloatArray:
    """(n_rows,) a target as numbers: 1 for the second of two classes, 0 for the first."""
    if classes is not None:
        labels = class_labels(y, n_rows)
        if unknown := int((~np.isin(labels, classes)).sum()):
            raise ArgumentError(
                f"`y` has {unknown} of {n_rows} events whose class is not one of the two that were fitted; leave these "
                "events out, or fit the model again."
            )
        return (labels == classes[1]).astype(np.float64)
    target = target_vector(y, n_rows)
    if faults := family.faults(target):
        name = getattr(y, "name", None)
        raise wrong_counts(f"column {name!r}" if isinstance(name, str) else "`y`", faults, n_rows, in_fit=True)
    return target


def learn_classes(y: Any, n_rows: int) -> NDArray[Any]:
    """The two classes of a target, sorted; others than two are refused."""
    from sklearn.utils.multiclass import check_classification_targets, type_of_target

    labels = class_labels(y, n_rows)
    check_classification_targets(labels)
    classes = np.unique(labels)
    if len(classes) > 2:
        # scikit-learn's own checks look for the first words
        raise ArgumentError(
            f"Only binary classification is supported. The type of the target is {type_of_target(labels)}: `y` has "
            f"{len(classes)} classes, but this model is for two. Wrap it: "
            "sklearn.multiclass.OneVsRestClassifier fits one model for each class against all others; the how-to "
            "'More than two classes' shows it with agents and entities."
        )
    if len(classes) < 2:
        raise one_class()
    return classes


def one_class() -> ArgumentError:
    return ArgumentError(
        "`y` has only one class; a classifier needs events of two classes (least 2 classes). Check the target, or that "
        "the events were not filtered by it."
    )


def class_labels(y: Any, n_rows: int) -> NDArray[Any]:
    """(n_rows,) the class of each event, as the user wrote it."""
    from sklearn.utils.validation import column_or_1d

    if y is None:
        raise ArgumentError("requires y to be passed, but the target y is None; pass one class per event row.")
    labels = column_or_1d(native_array(y), warn=True)
    require_length(labels, "y", "class", n_rows)
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        missing = int((~np.isfinite(labels)).sum())
        raise ArgumentError(
            f"`y` has {missing} missing or infinite classes (NaN or inf) in {n_rows} rows; {CLASS_CURE}."
        )
    if labels.dtype.kind == "O" and (missing := sum(is_missing(label) for label in labels)):
        raise ArgumentError(f"`y` has {missing} missing classes (NaN) in {n_rows} rows; {CLASS_CURE}.")
    if labels.dtype.kind == "O" and all(isinstance(label, bool | np.bool_) for label in labels):
        labels = labels.astype(bool)
    return np.asarray(labels)


def read_exposure(family: Family, exposure: Any, n_rows: int) -> FloatArray | None:
    """(n_rows,) what is added to the linear part of each event, the logarithm of its exposure; only counts have one."""
    if not family.has_exposure and exposure is not None:
        raise ArgumentError("`exposure` is for counts; leave it out, or use a model of counts.")
    return log_exposure(exposure, n_rows)
