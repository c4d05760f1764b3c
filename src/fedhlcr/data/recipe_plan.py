"""Plan a recipe: check the columns that the user named, and choose the features where no one did."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fedhlcr._support.wording import COLUMN
from fedhlcr.data.categories import Categories, declared_levels
from fedhlcr.data.recipe import Recipe
from fedhlcr.data.table_files import TableFile
from fedhlcr.exceptions import DataError
from fedhlcr.settings import MissingPolicy

# Columns that number the rows, as pandas writes them to CSV and to Parquet.
INDEX_NAME = re.compile(r"(__index_level_\d+__)?$")


def plan_recipe(
    file: TableFile,
    *,
    target: str,
    agent: str | None,
    entity: str,
    features: Sequence[str] = (),
    categorical: Categories = (),
    missing: MissingPolicy = "refuse",
    has_classes: bool = False,
    has_counts: bool = False,
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
    declared = declared_levels(categorical)
    levels: dict[str, list[str]] = {name: declared.get(name, []) for name in features if name in categorical}
    classes: list[str] | None = [] if has_classes else None
    return Recipe(
        target,
        agent,
        entity,
        tuple(features),
        levels,
        missing=missing,
        classes=classes,
        exposure=exposure,
        has_counts=has_counts,
        declared=list(declared) or None,
    )


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
