"""Tables for an estimator: those that it is fitted to, and those that a fitted model predicts or scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import AGENT
from fedhlcr.data import frames, inputs
from fedhlcr.data.categories import Categories, class_texts
from fedhlcr.data.frames import ColumnNames, Given, Learned, ReadEvents
from fedhlcr.data.hierarchy import UNKNOWN, EntityIndex, Hierarchy, has_entity_ids
from fedhlcr.data.ids import NEW, Ids, read_ids
from fedhlcr.data.recipe import Recipe
from fedhlcr.estimators.formulas import FormulaReader
from fedhlcr.estimators.regressor import HierarchicalEstimator
from fedhlcr.estimators.rows import EventRows
from fedhlcr.estimators.score import Counts
from fedhlcr.exceptions import ArgumentError, DataError, DataWarning, ForgottenIdsWarning, warn_user
from fedhlcr.kernels import ahead
from fedhlcr.posterior import Posterior, Profiles
from fedhlcr.settings import SETTINGS, MissingPolicy

# What happens to rows with missing values.
UNPREDICTED = "get NaN"
UNSCORED = "are not scored"
LEFT_OUT = "are left out"


@dataclass(frozen=True)
class FittedEvents:
    """Rows of a table for a fitted model, without those that have missing values.

    Attributes
    ----------
    read : the columns as they were read; it spreads results over all rows
    features : encoded features, as a table or array
    matrix : (events, n_features_in_) the features in the user's units
    profiles : which agent and which entity of the model each row belongs to
    agent, entity : the ids of the rows, or None
    """

    read: ReadEvents
    features: Any
    matrix: FloatArray
    profiles: Profiles
    agent: Ids | None
    entity: Ids | None

    def __len__(self) -> int:
        return len(self.matrix)

    @property
    def counts(self) -> Counts:
        """How many rows are of known entities, of new entities, and of new agents."""
        agents, entities = (ids[self.profiles.of_row] for ids in (self.profiles.agents, self.profiles.entities))
        new_agents = agents == UNKNOWN
        new_entities = (entities == UNKNOWN) & (agents != UNKNOWN)
        return Counts(int((entities != UNKNOWN).sum()), int(new_entities.sum()), int(new_agents.sum()))


class TableReader(FormulaReader, HierarchicalEstimator):
    """An estimator that reads dataframes as they are: columns by name, categories, missing values."""

    categories: Categories
    missing: MissingPolicy
    posterior_: Posterior
    # how raw tables become features, where the model was fitted to one, and where the model comes from
    recipe_: Recipe | None = None
    provenance_: Mapping[str, Any] = MappingProxyType({})

    def _training_events(self, given: Given) -> Hierarchy:
        # a loaded model has those of an earlier fit
        self.recipe_ = None
        self.provenance_ = {}
        if given.agent is NEW or given.entity is NEW:
            raise ArgumentError("fedhlcr.NEW is for predictions; pass one id per event row to `fit`.")
        private = getattr(self, "privacy", None) is not None
        if private and self.missing == "impute":
            raise ArgumentError("missing='impute' takes medians of all events, which `privacy` forbids; use 'drop'.")
        read, recipe = self.learn_table(given)
        hierarchy = super()._training_events(read.given)
        self.agent_column_ = read.names.agent
        self.entity_column_ = read.names.entity
        if recipe is not None:
            classes = getattr(self, "classes_", None)
            # medians of events are not differentially private
            fill = {} if private else recipe.fill
            self.recipe_ = replace(recipe, fill=fill, classes=None if classes is None else class_texts(classes))
        return hierarchy

    def learn_table(self, given: Given) -> Learned:
        """Read the table of a fit as the constructor's arguments say, and learn how to read later ones.

        Parameters
        ----------
        given : the arguments of `fit`

        Returns
        -------
        Learned
            The events without rows that were left out, and the recipe.
        """
        given, formula = self._read_formula(given)
        needs_levels = getattr(self, "privacy", None) is not None
        learned = frames.learn(
            given, categories=self.categories, missing=self._missing(), formula=formula, needs_levels=needs_levels
        )
        frames.warn_of_rows_left_out(learned.events, LEFT_OUT)
        return learned

    def events_of(self, X: Any, y: Any = None, agent: Any = None, entity: Any = None, exposure: Any = None) -> Given:
        """Read events to compare with predictions: columns by name, without rows that have missing values.

        Parameters
        ----------
        X, y, agent, entity, exposure : as in `score`

        Returns
        -------
        Given
            The same arguments, with encoded features, and columns in place of names.
        """
        events = self._events(Given(X, y, agent, entity, exposure=exposure), LEFT_OUT, target=True)
        self._require_rows(events)
        # who forgot ids has been warned already
        is_sole = events.read.given.agent is None and self.sole_agent_ is not None
        agent = events.agent if events.agent is not None or is_sole else NEW
        entity = NEW if events.entity is None else events.entity
        return events.read.given._replace(X=events.features, agent=agent, entity=entity)

    def read_events(self, X: Any, agent: Any = None, entity: Any = None) -> EventRows:
        """Read event rows as `predict` does; X, agent and entity as there."""
        found = self._events(Given(X, agent=agent, entity=entity), LEFT_OUT)
        return EventRows(found.features, found.matrix, found.profiles, found.agent, found.entity)

    def _events(
        self,
        given: Given,
        fate: str,
        *,
        target: bool = False,
        needs_ids: bool = False,
        index: EntityIndex | None = None,
    ) -> FittedEvents:
        """Read a table for the fitted model.

        Parameters
        ----------
        given : the arguments of a method
        fate : what happens to rows with missing values, for the warning
        target : whether the target's column stands for a `y` that was not passed
        needs_ids : whether the caller refuses rows without ids, so that nobody must be warned
        index : the agents and entities, while `fit` runs
        """
        if index is None:
            check_is_fitted(self)
            ahead.prepare(ahead.for_predictions(self.posterior_.likelihood.name))
            index = self.posterior_.memory.entities.index
        names = getattr(self, "feature_names_in_", None)
        features = None if names is None else [str(name) for name in names]
        read = frames.read(given, self.recipe_, self._missing_policy(), self._remembered(target=target), features)
        frames.warn_of_rows_left_out(read, fate)
        agent, entity = (None if ids is NEW else ids for ids in (read.given.agent, read.given.entity))
        if read.rows is not None and not len(read.rows):
            none = np.empty(0, dtype=np.int64)
            return FittedEvents(read, None, np.empty((0, self.n_features_in_)), Profiles.of(none, none), None, None)
        matrix = self._features(inputs.Table(read.given.X, agent, entity, inputs.NO_COLUMNS), reset=False)
        agent = None if agent is None else read_ids(agent, "agent", len(matrix))
        entity = None if entity is None else read_ids(entity, "entity", len(matrix))
        sole = read.given.agent is None
        profiles = Profiles.of(*self._find(index, agent, entity, len(matrix), takes_sole=sole))
        if not needs_ids:
            self._warn_of_forgotten_ids(read, index, profiles)
        return FittedEvents(read, read.given.X, matrix, profiles, agent, entity)

    def _require_rows(self, events: FittedEvents) -> None:
        if not len(events):
            raise DataError("every row has missing values; none is left.")

    def _missing_policy(self) -> MissingPolicy:
        """What to do about missing values: as the constructor says, or else as the recipe does."""
        missing = self._missing()
        return self.recipe_.missing if missing == "refuse" and self.recipe_ is not None else missing

    def _missing(self) -> MissingPolicy:
        """The parameter `missing` by its present name."""
        policy: MissingPolicy = SETTINGS["missing"].current(self.missing)
        return policy

    def _remembered(self, *, target: bool) -> ColumnNames:
        """The columns that stand for arguments that were not passed."""
        recipe = self.recipe_
        y = recipe.target if recipe is not None and target else None
        exposure = None if recipe is None else recipe.exposure
        return ColumnNames(y or None, self.agent_column_, self.entity_column_, None, exposure)

    def _warn_of_forgotten_exposure(self, read: ReadEvents) -> None:
        """Warn of counts without exposure, if the model was fitted with a column of exposures."""
        column = None if self.recipe_ is None else self.recipe_.exposure
        if column is not None and read.given.exposure is None:
            warn_user(
                f"The model was fitted with the exposure {column!r}, but no `exposure` was passed, and `X` has no such "
                "column: every event counts as one of exposure 1. Pass one exposure per row; exposure=1 says that all "
                "are 1.",
                DataWarning,
            )

    def _warn_of_forgotten_ids(self, read: ReadEvents, index: EntityIndex, profiles: Profiles) -> None:
        """Warn of rows without ids, if the model was fitted with ids and the user did not say that they are new.

        All entities of a new agent are new, so rows of new agents need no entities.
        """
        agent = read.given.agent
        entity = read.given.entity
        if not index.n_entities or agent is NEW:
            return
        if agent is None and self.sole_agent_ is None:
            role = "agent"
            meaning = "an event of a new agent"
            known = f"with {AGENT.count(index.n_agents)}"
            column = self.agent_column_
        elif entity is None and has_entity_ids(index) and (profiles.agents != UNKNOWN).any():
            role = "entity"
            meaning = "an event of a new entity"
            known = "with ids of entities"
            column = self.entity_column_
        else:
            return
        lost = "" if column is None else f", and `X` has no column {column!r}"
        warn_user(
            f"The model was fitted {known}, but no `{role}` was passed{lost}: every row counts as {meaning}. Pass one "
            f"id per row as `{role}`; if the rows are those of new {'agents' if role == 'agent' else 'entities'}, "
            f"{role}=fedhlcr.NEW says so.",
            ForgottenIdsWarning,
        )
