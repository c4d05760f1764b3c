"""From the argument DATA to events that a model accepts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import typer
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.cli.options import Roles, split_names
from fedhlcr.cli.shell import Shell, plural
from fedhlcr.data.categories import class_texts
from fedhlcr.data.columns import TEXT_CURE
from fedhlcr.data.families import COUNT, FAMILIES, Family, FamilyName
from fedhlcr.data.formula import parse_formula
from fedhlcr.data.hierarchy import UNKNOWN, index_pairs, row_sole_agent
from fedhlcr.data.ids import Ids
from fedhlcr.data.inputs import EncodedTable
from fedhlcr.data.recipe import Prepared, Recipe
from fedhlcr.data.recipe_plan import note_on_unnamed, plan_recipe
from fedhlcr.data.table_files import TableFile, open_table, source_name
from fedhlcr.data.target_values import TargetValues, Told
from fedhlcr.exceptions import DataError, Setting, TextColumnError
from fedhlcr.settings import MissingPolicy

if TYPE_CHECKING:
    from fedhlcr.analysis.evaluation import HeldOut

# How to choose another family than the one that was told.
OTHER_FAMILIES: dict[FamilyName, str] = {
    "real": "choose --family count or --family binary for another model, or --family real to silence this note",
    "binary": "a classifier is fitted; choose --family real for a regression on 0 and 1",
    "count": "a model of counts is fitted; choose --family real for a regression on real numbers",
}
# Tables that would take more memory are read in batches, unless the user chooses.
LARGE_TABLE = 1 << 28
NO_OTHER_FAMILY = "a classifier is fitted; for a regression (--family real), write them as 0 and 1"


@dataclass(frozen=True)
class Events:
    """Events for a model: ids, features and, if they were asked for, targets."""

    recipe: Recipe
    prepared: Prepared

    @classmethod
    def of(cls, recipe: Recipe, table: EncodedTable, target: NDArray[Any], exposure: FloatArray | None) -> Events:
        """Return events that are encoded already."""
        rows = np.arange(len(table))
        return cls(recipe, Prepared(table, target, rows, (), pa.table({}), exposure))

    @property
    def table(self) -> EncodedTable:
        return self.prepared.table

    @property
    def y(self) -> NDArray[Any]:
        """Numbers, or classes as the model knows them."""
        assert self.prepared.target is not None
        return self.prepared.target

    @property
    def exposure(self) -> FloatArray | None:
        return self.prepared.exposure

    @property
    def held_out(self) -> HeldOut:
        """The events as an evaluation or a report takes them."""
        # imported here, because it takes long to import, and few commands need it
        from fedhlcr.analysis.evaluation import HeldOut

        return HeldOut(self.table, self.y, self.agents, self.entities, self.exposure)

    @property
    def with_exposure(self) -> dict[str, Any]:
        """The argument `exposure` of a model's methods, if there is one; only models of counts have it."""
        return {} if self.exposure is None else {"exposure": self.exposure}

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


@dataclass(frozen=True)
class TrainingTable:
    """A table to fit a model to, which has been opened but not read.

    Attributes
    ----------
    file : the table
    plan : a recipe that has yet to learn from it
    family : the family of its target
    has_intercept : whether regressions have an intercept
    """

    file: TableFile
    plan: Recipe
    family: Family
    has_intercept: bool = True

    def read(self, shell: Shell) -> Events:
        """Read the table at once."""
        with shell.stage(f"reading {self.file.name}"), advice_on_the_target(self):
            recipe, prepared = self.plan.learn(self.plan.read(self.file, target=True))
        tell_learned(recipe, prepared.notes, shell)
        return Events(recipe, prepared)


@contextmanager
def advice_on_the_target(table: TrainingTable) -> Iterator[None]:
    """Where the target holds texts, say what to do about a target: it can be neither a category nor left out."""
    try:
        yield
    except TextColumnError as error:
        if error.column != table.plan.target:
            raise
        found = error.message.removesuffix(f"; {TEXT_CURE}.")
        found = f"{found}; it is the target, so correct them, or name another column"
        if not _told(table.file, error.column).family.has_classes:
            raise DataError(f"{found}.") from None
        cure = f"{found}, or, as it holds two values, fit a classifier."
        raise DataError(cure, options=(Setting("family", "binary"),)) from None


def open_training(
    source: str,
    roles: Roles,
    *,
    features: list[str] | None,
    categories: list[str] | None,
    missing: MissingPolicy,
    family: str,
    shell: Shell,
    formula: str | None = None,
) -> TrainingTable:
    """Open a table to fit a model to, plan a recipe, and tell the family of its target."""
    with shell.stage(f"reading {source_name(source)}"):
        file = open_table(source)
        parsed = None
        if formula is not None:
            parsed = parse_formula(formula, file.columns, [] if roles.exposure is None else [roles.exposure])
            roles = replace(roles, target=parsed.target, agent=parsed.agent, entity=parsed.entity)
            features = list(parsed.columns)
            categories = list(parsed.categories)
        assert roles.target is not None
        assert roles.entity is not None
        told = _family(file, roles.target, family, shell)
        if roles.exposure is not None and told is not COUNT:
            raise typer.BadParameter(
                f"is for counts, but the target is {told}; leave it out, or add --family count.",
                param_hint="--exposure",
            )
        plan = plan_recipe(
            file,
            target=roles.target,
            agent=roles.agent,
            entity=roles.entity,
            features=split_names("--features", features, file.columns),
            categorical=split_names("--categories", categories, file.columns),
            missing=missing,
            has_classes=told.has_classes,
            has_counts=told is COUNT,
            exposure=roles.exposure,
        )
        if parsed is not None:
            plan = parsed.planned(plan)
    unnamed = None if features else note_on_unnamed(file)
    if unnamed:
        shell.note(unnamed)
    return TrainingTable(file, plan, told, parsed is None or parsed.has_intercept)


def training_events(source: str, roles: Roles, **settings: Any) -> tuple[Events, Family]:
    """Read a table to fit a model to, learn a recipe from it, and tell the family of its target.

    `settings` are those of `open_training`.
    """
    table = open_training(source, roles, **settings)
    return table.read(settings["shell"]), table.family


def tell_learned(recipe: Recipe, notes: tuple[str, ...], shell: Shell) -> None:
    """Print notes on a table that a recipe has learned from."""
    for note in notes:
        shell.note(note)
    if recipe.classes is not None:
        shell.note(f"probabilities are those of {recipe.classes[1]!r} in the column {recipe.target!r}")


def _family(file: TableFile, target: str, family: str, shell: Shell) -> Family:
    """Return the family that the user chose or, with "auto", that of the column. A note says why."""
    if family != "auto":
        return FAMILIES[cast(FamilyName, family)]
    file.require([target], settings={"target": target})
    told = _told(file, target)
    if told.reason:
        cure = NO_OTHER_FAMILY if told.is_text else OTHER_FAMILIES[told.family.name]
        shell.note(f"target {target!r} is taken as {told.family}: {told.reason}; {cure}")
    return told.family


def _told(file: TableFile, target: str) -> Told:
    """The family of a column."""
    values = TargetValues(target)
    for piece, _ in file.read_pieces([target], {target}):
        values.add(piece[target])
        if values.are_many:
            break
    return values.told()


def open_events(source: str, shell: Shell) -> TableFile:
    """Open a table, which may take a while: what comes from a pipe or is compressed is read at once."""
    with shell.stage(f"opening {source_name(source)}"):
        return open_table(source)


def events_for(
    model: Any,
    source: str | TableFile,
    roles: Roles,
    *,
    target: bool,
    missing: MissingPolicy | None,
    shell: Shell,
    lenient: bool = False,
) -> Events:
    """Read a table for a fitted model. With `lenient`, the id columns may be missing."""
    recipe = recipe_of(model, roles, target=target, shell=shell)
    file = source if isinstance(source, TableFile) else open_events(source, shell)
    if file is not source:
        note_on_memory(file, shell)
    with shell.stage(f"reading {file.name}"):
        raw = recipe.read(file, target=target, require_ids=not lenient)
        if not len(raw):
            raise DataError(f"{file.name!r} has no rows below its header; add at least one event.")
        events = Events(recipe, recipe.prepare(raw, missing))
    for note in events.prepared.notes:
        shell.note(note)
    return events


def events_to_predict(
    model: Any,
    source: str | TableFile,
    roles: Roles,
    *,
    target: bool,
    missing: MissingPolicy | None,
    new_agents: bool,
    shell: Shell,
) -> Events:
    """Read a table for a model to predict. Unknown agents are refused, unless `new_agents` is True."""
    unknown = UnknownIds(model, new_agents=new_agents)
    lenient = unknown.may_be_absent
    events = events_for(model, source, roles, target=target, missing=missing, lenient=lenient, shell=shell)
    unknown.add(events)
    unknown.report(shell)
    return events


class UnknownIds:
    """Counts the rows of agents and entities that a model does not know.

    Parameters
    ----------
    model : a fitted model
    new_agents : whether unknown agents are allowed
    """

    def __init__(self, model: Any, *, new_agents: bool) -> None:
        self._index = model.posterior_.memory.entities.index
        self._likelihood = model.posterior_.likelihood.name
        self._new_agents = new_agents
        self._agents: set[str] = set()
        self._n_rows_of_agents = self._n_rows_of_entities = 0

    @property
    def knows_nobody(self) -> bool:
        """Whether the model is public: then every agent is new to it."""
        return not self._index.n_entities

    @property
    def may_be_absent(self) -> bool:
        """Whether a table may lack columns of ids."""
        return self._new_agents or self.knows_nobody

    @property
    def is_refused(self) -> bool:
        """Whether there were unknown agents that are not allowed."""
        return bool(self._agents) and not self._new_agents

    def add(self, events: Events) -> None:
        """Count the next events."""
        # `split` needs no kernels
        from fedhlcr.kernels import ahead

        # what follows predicts, so that all is compiled at once
        ahead.prepare(ahead.for_predictions(self._likelihood))
        if self.knows_nobody:
            return
        if events.recipe.agent is None:
            agents = np.zeros(len(events), dtype=np.int64)
        else:
            ids = _ids_or_one(events.agents, len(events))
            agents = self._index.find_agents(ids)
            is_new = agents == UNKNOWN
            self._n_rows_of_agents += int(is_new.sum())
            self._agents |= {ids.texts[code] for code in np.unique(ids.codes[is_new]).tolist()}
        entities = self._index.find_entities(agents, _ids_or_one(events.entities, len(events)))
        self._n_rows_of_entities += int(((entities == UNKNOWN) & (agents != UNKNOWN)).sum())

    def report(self, shell: Shell) -> None:
        """Refuse unknown agents that are not allowed, and print a note on unknown entities."""
        if self.knows_nobody:
            shell.note("the model is public and knows no agents, so every row is predicted for a new agent")
        if self.is_refused:
            rows = plural(self._n_rows_of_agents, "row")
            raise DataError(
                f"the model does not know {plural(len(self._agents), 'agent')} ({rows}); add --new-agents to predict "
                "them, or adapt the model to their events first."
            )
        if self._n_rows_of_entities:
            rows = plural(self._n_rows_of_entities, "row")
            shell.note(
                f"{rows} of entities that the model does not know; their predictions use what it knows of their agents"
            )


def seen(model: Any, events: Events) -> bool:
    """Return whether the model was fitted to these events."""
    from fedhlcr.analysis.evaluation import was_fitted

    return was_fitted(model, events.table, events.y, events.agents, events.entities)


def recipe_of(model: Any, roles: Roles, *, target: bool, shell: Shell) -> Recipe:
    """Return the model's recipe, or one from its feature names, with the columns that the user named."""
    recipe = _renamed_recipe(model, roles, target=target)
    own = model.recipe_
    if target and own is not None and recipe.target != own.target:
        shell.note(f"the model was fitted to {own.target!r}, but is now compared with {recipe.target!r}")
    return recipe


def _renamed_recipe(model: Any, roles: Roles, *, target: bool) -> Recipe:
    own: Recipe | None = model.recipe_
    features = getattr(model, "feature_names_in_", None)
    if own is None and features is None:
        raise DataError("the model was fitted to arrays without column names; use it from Python, with arrays.")
    known = Roles(
        roles.target or (own.target if own else None) or None,
        roles.agent or (own.agent if own else model.agent_column_),
        roles.entity or (own.entity if own else model.entity_column_) or None,
    )
    for name, value in (("target", known.target), ("entity", known.entity)):
        if value is None and (name != "target" or target):
            raise DataError(f"the model does not know which column is the {name}; name it with --{name}.")
    if roles.exposure is not None and not model.family.has_exposure:
        raise typer.BadParameter("is for counts, but this is another model; leave it out.", param_hint="--exposure")
    if own is None:
        assert features is not None
        classes = class_texts(model.classes_) if model.family.has_classes else None
        own = Recipe("", None, "", tuple(map(str, features)), classes=classes)
    return replace(
        own,
        target=known.target or "",
        agent=known.agent,
        entity=known.entity or "",
        exposure=roles.exposure or own.exposure,
        has_counts=model.family.has_exposure,
    )


def is_streamed(file: TableFile, chosen: bool | None) -> bool:
    """Return whether to read a table in batches: as the user chose, otherwise if it is large."""
    return file.pieces is not None and (file.bytes_in_memory > LARGE_TABLE if chosen is None else chosen)


def note_on_memory(file: TableFile, shell: Shell) -> None:
    """Print a note if a command that reads tables at once gets a large one."""
    if (size := file.bytes_in_memory) > LARGE_TABLE:
        shell.note(f"{file.name!r} is read at once and takes about {size / 1e9:.1f} GB of memory")
