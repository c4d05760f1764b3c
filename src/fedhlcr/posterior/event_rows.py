"""Read tables for a fitted model, without scikit-learn: features, and which agent and entity each row belongs to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.wording import AGENT
from fedhlcr.data import frames, inputs
from fedhlcr.data.families import Family
from fedhlcr.data.frames import ColumnNames, Given, ReadEvents
from fedhlcr.data.hierarchy import UNKNOWN, EntityIndex, has_entity_ids, row_agents, row_entities, row_sole_agent
from fedhlcr.data.ids import NEW, Ids, read_ids
from fedhlcr.data.inputs import read_exposure, read_target
from fedhlcr.data.recipe import Recipe
from fedhlcr.exceptions import ArgumentError, DataError, DataWarning, ForgottenIdsWarning, warn_user
from fedhlcr.posterior.prediction import Profiles
from fedhlcr.settings import MissingPolicy

# What happens to rows with missing values.
UNPREDICTED = "get NaN"
UNSCORED = "are not scored"
LEFT_OUT = "are left out"


@dataclass(frozen=True, eq=False)
class Schema:
    """What `fit` learned of its table: how later tables become events.

    Attributes
    ----------
    family : what the target is
    n_features : number of the features, encoded
    feature_names : (n_features,) their names, or None
    agent_column, entity_column : names of the columns of ids, or None
    sole_agent : (1,) id of the agent if there was only one, or None
    classes : (2,) the classes of a binary target, or None
    recipe : how a raw table becomes features, or None
    """

    family: Family
    n_features: int
    feature_names: NDArray[np.object_] | None
    agent_column: str | None
    entity_column: str | None
    sole_agent: NDArray[np.object_] | None
    classes: NDArray[Any] | None
    recipe: Recipe | None

    def agents_or_sole(self, agent: Any, n_rows: int) -> Any:
        """The agents as given; if None, the sole agent of the fit, if there was one."""
        return row_sole_agent(self.sole_agent[0], n_rows) if agent is None and self.sole_agent is not None else agent

    def find(self, index: EntityIndex, agent: Any, entity: Any, n_rows: int) -> Profiles:
        """Which agent and entity of the index each row belongs to."""
        unknown = np.full(n_rows, UNKNOWN, dtype=np.int64)
        agents = unknown if agent is None else index.find_agents(row_agents(agent, n_rows))
        entities = unknown if entity is None else index.find_entities(agents, row_entities(entity, n_rows))
        return Profiles.of(agents, entities)


@dataclass(frozen=True, eq=False)
class EventRows:
    """Rows of a table for a fitted model, without those that have missing values.

    Attributes
    ----------
    schema : of the model
    read : the columns as they were read; it spreads results over all rows
    matrix : (events, n_features_in_) the features in the user's units
    profiles : which agent and which entity of the model each row belongs to
    agent, entity : the ids of the rows, or None
    """

    schema: Schema
    read: ReadEvents
    matrix: FloatArray
    profiles: Profiles
    agent: Ids | None
    entity: Ids | None

    def __len__(self) -> int:
        return len(self.matrix)

    @property
    def features(self) -> Any:
        """Encoded features, as a table or array."""
        return self.read.given.X

    @property
    def agents(self) -> IndexArray:
        """(events,) position of each row's agent, or UNKNOWN."""
        return self.profiles.agents[self.profiles.of_row]

    @property
    def entities(self) -> IndexArray:
        """(events,) position of each row's entity, or UNKNOWN."""
        return self.profiles.entities[self.profiles.of_row]

    @property
    def offset(self) -> FloatArray | None:
        """(events,) what is added to the linear part, or None."""
        return read_exposure(self.schema.family, self.read.given.exposure, len(self))

    @property
    def target(self) -> FloatArray:
        """(events,) the target as numbers."""
        return read_target(self.schema.family, self.schema.classes, self.read.given.y, len(self))

    @property
    def weight(self) -> FloatArray:
        """(events,) how often each event counts."""
        return inputs.weight_vector(self.read.given.sample_weight, len(self))

    def required(self) -> EventRows:
        """The same rows, if there are any."""
        if not len(self):
            raise DataError("every row has missing values; none is left.")
        return self

    def warn_of_forgotten_exposure(self) -> None:
        """Warn of counts without exposure, if the model was fitted with a column of exposures."""
        recipe = self.schema.recipe
        if recipe is not None and recipe.exposure is not None and self.read.given.exposure is None:
            warn_user(
                f"The model was fitted with the exposure {recipe.exposure!r}, but no `exposure` was passed, and `X` "
                "has no such column: every event counts as one of exposure 1. Pass one exposure per row; exposure=1 "
                "says that all are 1.",
                DataWarning,
            )


def read_rows(
    schema: Schema,
    index: EntityIndex,
    given: Given,
    fate: str,
    *,
    missing: MissingPolicy = "refuse",
    target: bool = False,
    needs_ids: bool = False,
    check: Callable[[Any], None] | None = None,
) -> EventRows:
    """Read a table for a fitted model.

    Parameters
    ----------
    schema, index : of the model
    given : the arguments of a method
    fate : what happens to rows with missing values, for the warning
    missing : what to do about missing values; "refuse" does what the recipe says
    target : whether the target's column stands for a `y` that was not passed
    needs_ids : whether the caller refuses rows without ids, so that nobody must be warned
    check : called with the features, to compare their names and number with those that were fitted
    """
    names = None if schema.feature_names is None else [str(name) for name in schema.feature_names]
    recipe = schema.recipe
    policy = recipe.missing if missing == "refuse" and recipe is not None else missing
    remembered = ColumnNames(
        (recipe.target or None) if recipe is not None and target else None,
        schema.agent_column,
        schema.entity_column,
        None,
        None if recipe is None else recipe.exposure,
    )
    read = frames.read(given, recipe, policy, remembered, names)
    frames.warn_of_rows_left_out(read, fate)
    if read.rows is not None and not len(read.rows):
        none = np.empty(0, dtype=np.int64)
        return EventRows(schema, read, np.empty((0, schema.n_features)), Profiles.of(none, none), None, None)
    matrix = inputs.feature_matrix(read.given.X)
    if check is not None:
        check(inputs.named_features(read.given.X, matrix))
    elif matrix.shape[1] != schema.n_features:
        raise ArgumentError(f"`X` has {matrix.shape[1]} features, but the model has {schema.n_features}.")
    n_rows = len(matrix)
    agent, entity = (None if ids is NEW else ids for ids in (read.given.agent, read.given.entity))
    agent = None if agent is None else read_ids(agent, "agent", n_rows)
    entity = None if entity is None else read_ids(entity, "entity", n_rows)
    # whoever says that agents are new does not mean the sole agent
    known = schema.agents_or_sole(agent, n_rows) if read.given.agent is None else agent
    rows = EventRows(schema, read, matrix, schema.find(index, known, entity, n_rows), agent, entity)
    if not needs_ids:
        _warn_of_forgotten_ids(rows, index)
    return rows


def _warn_of_forgotten_ids(rows: EventRows, index: EntityIndex) -> None:
    """Warn of rows without ids, if the model was fitted with ids and the user did not say that they are new.

    All entities of a new agent are new, so rows of new agents need no entities.
    """
    agent = rows.read.given.agent
    entity = rows.read.given.entity
    if not index.n_entities or agent is NEW:
        return
    if agent is None and rows.schema.sole_agent is None:
        role = "agent"
        meaning = "an event of a new agent"
        known = f"with {AGENT.count(index.n_agents)}"
        column = rows.schema.agent_column
    elif entity is None and has_entity_ids(index) and (rows.profiles.agents != UNKNOWN).any():
        role = "entity"
        meaning = "an event of a new entity"
        known = "with ids of entities"
        column = rows.schema.entity_column
    else:
        return
    lost = "" if column is None else f", and `X` has no column {column!r}"
    warn_user(
        f"The model was fitted {known}, but no `{role}` was passed{lost}: every row counts as {meaning}. Pass one "
        f"id per row as `{role}`; if the rows are those of new {'agents' if role == 'agent' else 'entities'}, "
        f"{role}=fedhlcr.NEW says so.",
        ForgottenIdsWarning,
    )
