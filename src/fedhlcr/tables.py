"""What users pass in: arrays or dataframes of any kind, turned into numbers and ids, or refused.

Errors name the argument, what was expected, what came and the cure. They tell how many values are
wrong and in which columns, never the values: messages cross a privacy boundary.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from numbers import Real
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from narwhals.exceptions import DuplicateError
from numpy.typing import NDArray
from sklearn.utils.validation import check_array, column_or_1d

from fedhlcr.arrays import FloatArray


class IdColumns(NamedTuple):
    """Names of the table's columns that hold the ids, where the user gave names."""

    agent: str | None = None
    entity: str | None = None


NO_COLUMNS = IdColumns()


class Table(NamedTuple):
    """A user's table taken apart: features as they came, and the ids, if any."""

    features: Any
    agent: Any
    entity: Any
    columns: IdColumns


def take_apart(X: Any, agent: Any = None, entity: Any = None, remembered: IdColumns = NO_COLUMNS) -> Table:
    """Take the id columns out of X: those that `agent` and `entity` name, and those remembered from a fit.

    A remembered column serves where its argument is None, and is never a feature. If X lacks it the
    argument stays None, with a warning.
    """
    frame = as_frame(X)
    present = [] if frame is None else list(frame.columns)
    ids, columns = [], []
    for argument, given, known in (("agent", agent, remembered.agent), ("entity", entity, remembered.entity)):
        if given is None and known is not None:
            if known in present:
                given = known
            else:
                warnings.warn(
                    f"`X` has no column {known!r}, which `fit` took as {argument}, and no `{argument}` was passed: "
                    f"every row counts as a new {argument}.",
                    stacklevel=5,
                )
        columns.append(given if isinstance(given, str) else None)
        ids.append(_id_column(frame, argument, given) if isinstance(given, str) else given)
    id_columns = [name for name in dict.fromkeys([*columns, *remembered]) if name in present]
    features = frame.drop(id_columns).to_native() if frame is not None and id_columns else X
    return Table(features, ids[0], ids[1], IdColumns(*columns))


def _id_column(frame: nw.DataFrame[Any] | None, argument: str, name: str) -> nw.Series[Any]:
    if frame is None:
        raise ValueError(
            f"`{argument}` names a column, {name!r}, but `X` is an array without column names; "
            f"pass one {argument} id per event row instead."
        )
    if name not in frame.columns:
        raise ValueError(
            f"`{argument}` names the column {name!r}, but `X` has no such column; its columns are {frame.columns}."
        )
    return frame[name]


def as_frame(X: Any) -> nw.DataFrame[Any] | None:
    """X as a narwhals frame, or None if it is no dataframe."""
    try:
        frame = nw.from_native(X, pass_through=True, eager_only=True)
    except DuplicateError as error:
        raise ValueError(f"`X` has more than one column of the same name; rename or drop the copies. {error}") from None
    return frame if isinstance(frame, nw.DataFrame) else None


def feature_matrix(X: Any) -> FloatArray:
    """The features as a float matrix; text and missing or infinite values are refused by column.

    Constant and collinear columns are fine: the prior on the coefficients takes care of them.
    """
    frame = as_frame(X)
    if frame is not None:
        names = list(frame.columns)
        for name in names:
            dtype = frame.schema[name]
            if not (dtype.is_numeric() or dtype == nw.Boolean):
                raise _not_a_number(f"column {name!r} of `X`", str(dtype))
        X = np.column_stack([_column(frame[:, c]) for c in range(len(names))]) if names else np.empty((len(frame), 0))
    else:
        names = None
        _refuse_text(X, "`X`")
    matrix = check_array(X, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=0, input_name="X")
    if matrix.shape[0] == 0:
        raise ValueError("`X` is empty: found array with 0 sample(s) while a minimum of 1 is required.")
    _refuse_not_finite(matrix, "`X`", names)
    return np.ascontiguousarray(matrix)


def target_vector(y: Any, n_rows: int) -> FloatArray:
    """The target as a float vector of n_rows finite numbers."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None; pass one target per event row.")
    vector = np.asarray(_native_array(y))
    _refuse_text(vector, "`y`")
    vector = column_or_1d(vector, warn=True).astype(np.float64)
    _require_length(vector, "y", "target", n_rows)
    _refuse_not_finite(vector[:, None], "`y`", None)
    return vector


def weight_vector(sample_weight: Any, n_rows: int) -> FloatArray:
    """Frequencies of the events: None is 1 for each, a single number is that number for each."""
    if sample_weight is None:
        return np.ones(n_rows)
    if isinstance(sample_weight, Real):
        sample_weight = np.full(n_rows, sample_weight, dtype=np.float64)
    weight = np.asarray(_native_array(sample_weight))
    _refuse_text(weight, "`sample_weight`")
    weight = weight.astype(np.float64)
    if weight.ndim != 1:
        raise ValueError(f"`sample_weight` must be one number per event row, but it has {weight.ndim} dimensions.")
    _require_length(weight, "sample_weight", "weight", n_rows)
    _refuse_not_finite(weight[:, None], "`sample_weight`", None)
    if (weight < 0).any():
        raise ValueError(
            f"`sample_weight` must not be negative, but {int((weight < 0).sum())} of its values are; "
            "weights are frequencies of events."
        )
    if not (weight > 0).any():
        raise ValueError("`sample_weight` is zero for every event; at least one event must count.")
    return weight


class Ids(NamedTuple):
    """A column of ids: the distinct ones in natural order, and the code of each row."""

    values: NDArray[np.object_]  # as the user wrote them
    texts: list[str]  # canonical texts, sorted
    codes: NDArray[np.int64]  # (rows,)


def read_ids(values: Any, argument: str, n_rows: int) -> Ids:
    """Distinct ids of a column of any type and the code of each row; missing ids are refused."""
    array = np.asarray(_native_array(values))
    if array.ndim != 1:
        raise ValueError(
            f"`{argument}` must be one {argument} id per event row, but it is an array of {array.ndim} dimensions."
        )
    _require_length(array, argument, f"{argument} id", n_rows)
    distinct, codes, n_missing = _factorize(array)
    if n_missing:
        raise ValueError(
            f"`{argument}` has {n_missing} missing ids among {n_rows} rows; drop these rows or give them an id."
        )
    # ids that differ in type alone (1 and "1") are one id
    by_text: dict[str, int] = {}
    texts = [canonical_text(value) for value in distinct]
    for position, text in enumerate(texts):
        by_text.setdefault(text, position)
    ordered = sorted(by_text, key=natural_key)
    rank = {text: position for position, text in enumerate(ordered)}
    recode = np.array([rank[text] for text in texts], dtype=np.int64)
    first_values = np.empty(len(ordered), dtype=object)
    for text, position in by_text.items():
        first_values[rank[text]] = distinct[position]
    return Ids(first_values, ordered, recode[codes])


def canonical_text(value: Any) -> str:
    """One text for one id, whatever library or number type it came in: 7, numpy's 7 and 7.0 are "7"."""
    if isinstance(value, (bytes, np.bytes_)):
        return bytes(value).decode(errors="backslashreplace")
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value)


def natural_key(text: str) -> tuple[int, int, str]:
    """Sorts whole numbers by value and before everything else, texts by code point."""
    digits = text[1:] if text.startswith("-") else text
    whole = digits.isascii() and digits.isdigit() and (digits == "0" or not digits.startswith("0"))
    return (0, int(text), "") if whole else (1, 0, text)


def _factorize(array: NDArray[Any]) -> tuple[Sequence[Any], NDArray[np.int64], int]:
    """Distinct values, code of each row, and how many rows are missing."""
    if array.dtype.kind in "iubUSfmM":
        n_missing = int((array != array).sum()) if array.dtype.kind in "fmM" else 0
        distinct, codes = np.unique(array, return_inverse=True)
        return distinct.tolist() if array.dtype.kind not in "mM" else list(distinct), codes, n_missing
    import pyarrow as pa

    try:
        encoded = pa.array(array, from_pandas=True).dictionary_encode()
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return _factorize_mixed(array)
    if encoded.null_count:
        return [], np.zeros(len(array), dtype=np.int64), int(encoded.null_count)
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64), 0


def _factorize_mixed(array: NDArray[Any]) -> tuple[Sequence[Any], NDArray[np.int64], int]:
    """Ids of several types in one column: told apart by their canonical text."""
    n_missing = sum(_is_missing(value) for value in array)
    positions: dict[str, int] = {}
    distinct: list[Any] = []
    codes = np.empty(len(array), dtype=np.int64)
    for row, value in enumerate(array):
        text = canonical_text(value)
        if text not in positions:
            positions[text] = len(distinct)
            distinct.append(value)
        codes[row] = positions[text]
    return distinct, codes, n_missing


def _is_missing(value: Any) -> bool:
    return (
        value is None or type(value).__name__ in {"NAType", "NaTType"} or (isinstance(value, float) and value != value)
    )


def _native_array(values: Any) -> Any:
    """Series of any dataframe library as numpy; anything else as it is."""
    series = nw.from_native(values, pass_through=True, allow_series=True)
    if isinstance(series, nw.Series):
        return series.to_numpy()
    if isinstance(series, nw.DataFrame):
        return series.to_numpy()
    return values


def _column(series: nw.Series[Any]) -> FloatArray:
    """A numeric column as floats, with NaN where it is missing."""
    return series.cast(nw.Float64).to_numpy().astype(np.float64)


def _refuse_text(X: Any, what: str) -> None:
    """Refuse objects that are no numbers before a conversion error would show one of them."""
    if isinstance(X, list):
        X = np.asarray(X)
    kind = getattr(getattr(X, "dtype", None), "kind", "f")
    if kind in "USmM":
        raise _not_a_number(what, "text" if kind in "US" else "dates")
    if kind != "O":
        return
    for position, column in enumerate(np.atleast_2d(np.asarray(X, dtype=object).T)):
        try:
            np.array([np.nan if value is None else value for value in column.ravel()]).astype(np.float64)
        except TypeError:
            # scikit-learn's own checks know the built-in message
            raise TypeError(
                f"{what} has objects in column {position}; float() argument must be a string or a real number. "
                "Pass numbers."
            ) from None
        except ValueError:
            where = f"column {position} of {what}" if np.ndim(X) > 1 else what
            raise _not_a_number(where, "text") from None


def _not_a_number(where: str, came: str) -> ValueError:
    return ValueError(
        f"{where} must hold numbers, but it holds {came}; drop it, or turn it into numbers first "
        "(one-hot encode categories, for example with sklearn.preprocessing.OneHotEncoder)."
    )


def _refuse_not_finite(matrix: FloatArray, what: str, names: list[str] | None) -> None:
    bad = (~np.isfinite(matrix)).sum(axis=0)
    if not bad.any():
        return
    if matrix.shape[1] == 1 and names is None and what != "`X`":
        where = ""
    else:
        columns = np.flatnonzero(bad)
        shown = [f"{int(bad[c])} in {f'column {c}' if names is None else repr(names[c])}" for c in columns[:10]]
        more = f" and {len(columns) - 10} more columns" if len(columns) > 10 else ""
        where = f" ({', '.join(shown)}{more})"
    raise ValueError(
        f"{what} has {int(bad.sum())} NaN or infinite values in {len(matrix)} rows{where}; "
        "drop these rows or fill them in, for example with sklearn.impute.SimpleImputer."
    )


def _require_length(array: NDArray[Any], argument: str, item: str, n_rows: int) -> None:
    if len(array) != n_rows:
        raise ValueError(f"`{argument}` has {len(array)} rows but `X` has {n_rows}; pass one {item} per event row.")
