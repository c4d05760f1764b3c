"""Tables on their way into an estimator, as its parameters say, and predictions on their way out, as the user asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from fedhlcr._support.threads import available_threads
from fedhlcr.data import frames, inputs
from fedhlcr.data.categories import class_texts, class_values
from fedhlcr.data.formula import Formula, parse_formula
from fedhlcr.data.frames import Given, Learned
from fedhlcr.data.hierarchy import EntityIndex, Hierarchy, build_hierarchy
from fedhlcr.data.ids import NEW
from fedhlcr.data.inputs import EncodedTable, header_of, learn_classes, one_class, read_exposure, read_target
from fedhlcr.data.recipe import Recipe
from fedhlcr.data.scarcity import TableShape, find_scarcity
from fedhlcr.estimators.streamed import StreamedEvents
from fedhlcr.estimators.training import EventsInMemory, TrainingEvents
from fedhlcr.exceptions import ArgumentError, ArgumentTypeError, MissingDependencyError, give_warning
from fedhlcr.posterior.event_rows import LEFT_OUT, Schema
from fedhlcr.settings import SETTINGS, MissingPolicy

OutputName = Literal["pandas", "polars", "default"]
OUTPUTS = ("pandas", "polars", "default")


@dataclass(frozen=True)
class TableToFit:
    """A table to fit a model to.

    Attributes
    ----------
    data : its events
    schema : how later tables become events
    seed : of the fit
    fits_intercept : whether the model has an intercept: `fit_intercept`, unless the formula leaves it out
    is_weighted : whether events have weights
    """

    data: TrainingEvents
    schema: Schema
    seed: int
    fits_intercept: bool
    is_weighted: bool = False

    @property
    def feature_names(self) -> Any:
        return self.schema.feature_names


class LearnedTable(NamedTuple):
    """Events that were read, the recipe for later tables, and whether the model has an intercept."""

    table: Learned
    fits_intercept: bool


def thread_count(estimator: Any) -> int:
    """Number of threads to run with: `n_threads`, or all cores if it is None."""
    n_threads = getattr(estimator, "n_threads", 1)
    return available_threads() if n_threads is None else int(n_threads)


def missing_policy(estimator: Any) -> MissingPolicy:
    """The parameter `missing` by its present name."""
    policy: MissingPolicy = SETTINGS["missing"].current(estimator.missing)
    return policy


def check_features(estimator: Any, features: Any) -> None:
    """Compare the names and the number of features with those that were fitted, as scikit-learn does."""
    validate_data(estimator, features, reset=False, skip_check_array=True)


def read_training(estimator: Any, given: Given) -> TableToFit:
    """Read the table given to `fit`; warn if it is too small or too plain."""
    if given.agent is NEW or given.entity is NEW:
        raise ArgumentError("fedhlcr.NEW is for predictions; pass one id per event row to `fit`.")
    is_private = getattr(estimator, "privacy", None) is not None
    if is_private and estimator.missing == "impute":
        raise ArgumentError("missing='impute' takes medians of all events, which `privacy` forbids; use 'drop'.")
    learned = learn_table(estimator, given)
    read, recipe = learned.table
    hierarchy, schema = sorted_events(estimator, estimator.family, read.given)
    schema = replace(schema, agent_column=read.names.agent, entity_column=read.names.entity)
    if recipe is not None:
        # medians of events are not differentially private
        fill = {} if is_private else recipe.fill
        classes = None if schema.classes is None else class_texts(schema.classes)
        schema = replace(schema, recipe=replace(recipe, fill=fill, classes=classes))
    data = EventsInMemory(hierarchy)
    _warn_of_scarcity(estimator, data.shape()._replace(has_entity_ids=given.entity is not None), hierarchy.index)
    seed = _seed(estimator.random_state)
    return TableToFit(data, schema, seed, learned.fits_intercept, given.sample_weight is not None)


def learn_table(estimator: Any, given: Given) -> LearnedTable:
    """Read the table of a fit as the constructor's arguments say, without rows that were left out."""
    given, formula = _read_formula(estimator, given)
    needs_levels = getattr(estimator, "privacy", None) is not None
    learned = frames.learn(
        given,
        categories=estimator.categories,
        missing=missing_policy(estimator),
        formula=formula if formula is None or estimator.fit_intercept else formula.without_intercept(),
        needs_levels=needs_levels,
    )
    frames.warn_of_rows_left_out(learned.events, LEFT_OUT)
    return LearnedTable(learned, estimator.fit_intercept and (formula is None or formula.has_intercept))


def _read_formula(estimator: Any, given: Given) -> tuple[Given, Formula | None]:
    """Return the arguments of a fit with the names that the formula has, and the formula; None if there is none."""
    if estimator.formula is None:
        return given, None
    frame = None if isinstance(given.X, EncodedTable) else inputs.as_frame(given.X)
    if frame is None:
        raise ArgumentTypeError(f"a formula needs a dataframe, but `X` is of type {type(given.X).__name__}.")
    columns = [name for name in frame.columns if isinstance(name, str)]
    taken = [name for name in (given.sample_weight, given.exposure) if isinstance(name, str)]
    formula = parse_formula(estimator.formula, columns, taken)
    roles = {"y": formula.target, "agent": formula.agent, "entity": formula.entity}
    for role, name in roles.items():
        value = getattr(given, role)
        if value is not None and not (isinstance(value, str) and value == name):
            raise ArgumentError(f"the formula names the target and the groups; leave `{role}` out of `fit`.")
    return given._replace(**roles), formula


def sorted_events(estimator: Any, family: Any, given: Given) -> tuple[Hierarchy, Schema]:
    """Check the table of a fit, sort its events by agent and entity, and learn how later tables become events."""
    frame = None if isinstance(given.X, EncodedTable) else inputs.as_frame(given.X)
    given, names = frames.resolve(given, frame)
    features = given.X
    if frame is not None and any(names):
        features = frame.drop([name for name in dict.fromkeys(names) if name is not None]).to_native()
    matrix = inputs.feature_matrix(features)
    validate_data(estimator, inputs.named_features(features, matrix), reset=True, skip_check_array=True)
    n_rows = len(matrix)
    classes = learn_classes(given.y, n_rows) if family.has_classes else None
    target = read_target(family, classes, given.y, n_rows)
    weight = inputs.weight_vector(given.sample_weight, n_rows)
    offset = read_exposure(family, given.exposure, n_rows)
    n_threads = thread_count(estimator)
    hierarchy = build_hierarchy(matrix, target, weight, given.agent, given.entity, offset, n_threads)
    schema = _schema(estimator, family, hierarchy.index)
    return hierarchy, replace(schema, agent_column=names.agent, entity_column=names.entity, classes=classes)


def _schema(estimator: Any, family: Any, index: EntityIndex) -> Schema:
    names = getattr(estimator, "feature_names_in_", None)
    sole_agent = index.agent_ids if index.n_agents == 1 else None
    return Schema(family, estimator.n_features_in_, names, None, None, sole_agent, None, None)


def streamed_training(estimator: Any, data: StreamedEvents) -> TableToFit:
    """The same for a table that was read into a work folder."""
    recipe = data.recipe
    family = estimator.family
    validate_data(estimator, header_of(recipe.encoded_features), reset=True, skip_check_array=True)
    classes = _declared_classes(recipe, data.shape()) if family.has_classes else None

    def read_encoded(target: np.ndarray) -> np.ndarray:
        # a recipe has encoded classes as 0 and 1
        return target if family.has_classes else read_target(family, None, target, len(target))

    data.read_target = read_encoded
    data.read_offset = lambda exposure, n_rows: read_exposure(family, exposure, n_rows)
    _warn_of_scarcity(estimator, data.shape()._replace(has_entity_ids=True), data.index)
    schema = replace(
        _schema(estimator, family, data.index),
        agent_column=recipe.agent,
        entity_column=recipe.entity,
        classes=classes,
        recipe=recipe,
    )
    return TableToFit(data, schema, _seed(estimator.random_state), estimator.fit_intercept)


def _declared_classes(recipe: Recipe, shape: TableShape) -> Any:
    if recipe.classes is None:
        raise ArgumentError("the table's target is a number, but a classifier needs two classes.")
    if not shape.target_varies:
        raise one_class()
    return class_values(recipe.classes)


def _seed(random_state: Any) -> int:
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))


def _warn_of_scarcity(estimator: Any, shape: TableShape, index: EntityIndex) -> None:
    """Warn of a table that is too small or too plain."""
    lacks_agents = index.n_agents == 1 and estimator.effects == "entity+agent"
    for warning in find_scarcity(shape._replace(lacks_agents=lacks_agents)):
        give_warning(warning)


def answer(columns: dict[str, NDArray[Any]], X: Any, output: str) -> Any:
    """Columns of predictions as the user wants them: a single one as an array or series."""
    if output == "default":
        return tuple(columns.values()) if len(columns) > 1 else next(iter(columns.values()))
    return _in_pandas(columns, X) if output == "pandas" else _in_polars(columns)


def check_output_name(value: Any, argument: str) -> None:
    """Refuse anything but the name of an output."""
    if value not in OUTPUTS:
        raise ArgumentError(f"`{argument}` must be 'pandas', 'polars' or 'default', but is {value!r}.")


def _in_pandas(columns: dict[str, NDArray[Any]], X: Any) -> Any:
    try:
        import pandas as pd
    except ImportError:
        raise MissingDependencyError("output='pandas' needs pandas; install it with: pip install pandas") from None
    index = X.index if isinstance(X, pd.DataFrame) else None
    if len(columns) > 1:
        return pd.DataFrame(columns, index=index)
    ((name, values),) = columns.items()
    return pd.Series(values, index=index, name=name)


def _in_polars(columns: dict[str, NDArray[Any]]) -> Any:
    try:
        import polars as pl
    except ImportError:
        raise MissingDependencyError("output='polars' needs polars; install it with: pip install polars") from None
    series = [pl.Series(name, _plain(values)) for name, values in columns.items()]
    return pl.DataFrame(series) if len(series) > 1 else series[0]


def _plain(values: NDArray[Any]) -> NDArray[Any] | Sequence[Any]:
    """Values as polars takes them: objects as a list, whose type it finds out."""
    return values.tolist() if values.dtype.kind in "OU" else np.ascontiguousarray(values)
