"""From DATA on the command line to events for a model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.analysis.evaluation import was_fitted
from fedhlcr.cli.options import Missing, split_names
from fedhlcr.cli.shell import Shell, plural
from fedhlcr.data.encoded import EncodedTable
from fedhlcr.data.hierarchy import UNKNOWN, index_pairs, row_sole_agent
from fedhlcr.data.ids import Ids
from fedhlcr.data.recipe import Prepared, Recipe, note_on_unnamed, plan_recipe
from fedhlcr.data.splitting import hold_out_events
from fedhlcr.data.table_files import open_table, source_name
from fedhlcr.exceptions import DataError


@dataclass(frozen=True)
class Roles:
    """Names of columns, where the user gave any."""

    target: str | None = None
    agent: str | None = None
    entity: str | None = None


@dataclass(frozen=True)
class Events:
    """Events for a model: ids and features, and the targets, if they were asked for."""

    recipe: Recipe
    prepared: Prepared

    @property
    def table(self) -> EncodedTable:
        return self.prepared.table

    @property
    def y(self) -> FloatArray:
        assert self.prepared.target is not None
        return self.prepared.target

    def __len__(self) -> int:
        return len(self.table)

    @property
    def agents(self) -> Ids | None:
        """The agent of each row, or None if the table has no such column."""
        return None if self.recipe.agent is None else self.table.ids.get(self.recipe.agent)

    @property
    def entities(self) -> Ids | None:
        """The entity of each row, or None if the table has no such column."""
        return self.table.ids.get(self.recipe.entity)

    @property
    def n_entities(self) -> int:
        agents, entities = (_ids_or_one(ids, len(self)) for ids in (self.agents, self.entities))
        return index_pairs(agents, entities, agents.codes, entities.codes)[0].n_entities

    def take(self, rows: IndexArray) -> Events:
        return Events(self.recipe, self.prepared.take(rows))


def _ids_or_one(ids: Ids | None, n_rows: int) -> Ids:
    """Return the ids, or, if there are none, the same id for every row."""
    return row_sole_agent("", n_rows) if ids is None else ids


def training_events(
    source: str,
    roles: Roles,
    *,
    features: list[str] | None,
    categorical: list[str] | None,
    missing: Missing,
    shell: Shell,
) -> Events:
    """A table to fit a model to, with a recipe that was learnt from it."""
    assert roles.target is not None
    assert roles.entity is not None
    with shell.stage(f"reading {source_name(source)}"):
        file = open_table(source)
        plan = plan_recipe(
            file,
            target=roles.target,
            agent=roles.agent,
            entity=roles.entity,
            features=split_names(features, file.columns),
            categorical=split_names(categorical, file.columns),
            missing=missing.value,
        )
        recipe, prepared = plan.learn(plan.read(file, target=True))
    unnamed = None if features else note_on_unnamed(file)
    for note in (*prepared.notes, *([unnamed] if unnamed else [])):
        shell.note(note)
    return Events(recipe, prepared)


def events_for(
    model: Any,
    source: str,
    roles: Roles,
    *,
    target: bool,
    missing: Missing | None,
    shell: Shell,
    lenient: bool = False,
) -> Events:
    """A table for a model that has been fitted; `lenient` where columns of ids need not be there."""
    recipe = _recipe_of(model, roles, target=target)
    own = model.recipe_
    if target and own is not None and recipe.target != own.target:
        shell.note(f"the model was fitted to {own.target!r}; here {recipe.target!r} is taken for it")
    with shell.stage(f"reading {source_name(source)}"):
        file = open_table(source)
        raw = recipe.read(file, target=target, require_ids=not lenient)
        if not len(raw):
            raise DataError(f"{file.name!r} has no rows below its header.")
        events = Events(recipe, recipe.prepare(raw, None if missing is None else missing.value))
    for note in events.prepared.notes:
        shell.note(note)
    return events


def events_to_predict(
    model: Any,
    source: str,
    roles: Roles,
    *,
    target: bool,
    missing: Missing | None,
    new_agents: bool,
    shell: Shell,
) -> Events:
    """A table for a model to predict; agents it does not know are refused, unless `new_agents` are welcome."""
    lenient = new_agents or _knows_nobody(model)
    events = events_for(model, source, roles, target=target, missing=missing, lenient=lenient, shell=shell)
    _tell_unknown(model, events, new_agents=new_agents, shell=shell)
    return events


def _knows_nobody(model: Any) -> bool:
    """Whether a model is public: all agents are new to it, whatever they are called."""
    return not len(model.agent_ids_)


def _tell_unknown(model: Any, events: Events, *, new_agents: bool, shell: Shell) -> None:
    """Entities the model does not know are told of; agents are refused, unless they are welcome or it knows none."""
    index = model.posterior_.memory.entities.index
    if _knows_nobody(model):
        shell.note("the model is public and knows no agents: every row is predicted as a new agent's")
        return
    if events.recipe.agent is None:
        agents = np.zeros(len(events), dtype=np.int64)
    else:
        ids = _ids_or_one(events.agents, len(events))
        agents = index.find_agents(ids)
        n_new = len(np.unique(ids.codes[agents == UNKNOWN]))
        if n_new and not new_agents:
            rows = plural(int((agents == UNKNOWN).sum()), "row")
            raise DataError(
                f"the model does not know {plural(n_new, 'agent')} ({rows}); predict new agents too (--new-agents), or "
                "adapt the model to their events first."
            )
    entities = index.find_entities(agents, _ids_or_one(events.entities, len(events)))
    n_rows = int(((entities == UNKNOWN) & (agents != UNKNOWN)).sum())
    if n_rows:
        rows = plural(n_rows, "row")
        shell.note(f"{rows} of entities the model does not know, predicted from what it knows of their agents")


def hold_out_rows(agents: Any, entities: Any, share: float, seed: int) -> tuple[IndexArray, IndexArray]:
    """Numbers of the rows to fit, and of those to hold out, by the ids of all rows."""
    train, test = hold_out_events(agents, entities, fraction=share, random_state=seed)
    if not len(test):
        raise DataError("no entity has enough events to hold some out; hold out a larger share, or add events.")
    return train, test


def seen(model: Any, events: Events) -> bool:
    """Whether these are events the model was fitted to."""
    return was_fitted(model, events.table, events.y, events.agents, events.entities)


def _recipe_of(model: Any, roles: Roles, *, target: bool) -> Recipe:
    """The model's own, or one from the names of its columns and what the user says."""
    own: Recipe | None = model.recipe_
    features = getattr(model, "feature_names_in_", None)
    if own is None and features is None:
        raise DataError("the model was fitted to arrays without column names; use it from Python, with arrays.")
    known = Roles(
        roles.target or (own.target if own else None),
        roles.agent or (own.agent if own else model.agent_column_),
        roles.entity or (own.entity if own else model.entity_column_),
    )
    for name, value in (("target", known.target), ("entity", known.entity)):
        if value is None and (name != "target" or target):
            raise DataError(f"the model does not know which column is the {name}; name it with --{name}.")
    if own is None:
        assert features is not None
        return Recipe(known.target or "", known.agent, known.entity or "", tuple(map(str, features)))
    return replace(own, target=known.target or "", agent=known.agent, entity=known.entity or "")
