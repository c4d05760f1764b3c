"""How to reproduce a model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

from fedhlcr._support.version import __version__
from fedhlcr._support.wording import UNPRINTABLE, capital, listed, number, printable
from fedhlcr.analysis.effects import id_columns
from fedhlcr.analysis.facts import Facts
from fedhlcr.analysis.words import privacy_words
from fedhlcr.data.hierarchy import has_entity_ids
from fedhlcr.data.ids import canonical_text
from fedhlcr.data.recipe import Recipe
from fedhlcr.data.terms import term_name
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.settings import SETTINGS
from fedhlcr.storage.model_file import plain_settings

# Parameters that do not change the result.
WITHOUT_EFFECT = frozenset({"n_threads", "verbose", "checkpoint", "checkpoint_every"})


def reproduction(facts: Facts, code: str | None = None) -> dict[str, Any]:
    """How to reproduce a model, as far as this is known, with every parameter.

    `code` is a command or Python that takes the place of what the model knows. The page shows:

    claim, code : a sentence that introduces the command or the code, and this itself
    preparation : how the table was prepared for the fit, in sentences
    privacy : what differential privacy guarantees, in a sentence; empty without it
    parameters : (name, value, whether it is the default)
    """
    model = facts.model
    given = plain_settings(model.settings)
    family = model.family.name
    is_default = {name: _is_default(value, SETTINGS[name].default_for(family)) for name, value in given.items()}
    changed = {
        name: value
        for name, value in given.items()
        if not is_default[name] and name not in WITHOUT_EFFECT | {"random_state"}
    }
    command = model.provenance_.get("command") if model.recipe_ is not None and code is None else None
    if command:
        code = UNPRINTABLE.sub("\ufffd", str(command))
    privacy = privacy_words(model)
    provenance = [(printable(key), _as_text(value)) for key, value in model.provenance_.items() if key != "command"]
    return {
        "estimator": model.saved_as,
        "parameters": [
            (name, _as_text(value), is_default[name]) for name, value in given.items() if name != "checkpoint"
        ],
        "seed": model.seed_,
        "version": __version__,
        "claim": _claim(facts, "command" if command else "code"),
        "code": code or _snippet(model, changed),
        "preparation": [] if model.recipe_ is None else _preparation(facts, model.recipe_),
        "provenance": provenance,
        "privacy": privacy
        and f"Differential privacy of the run, and of the model saved without the agents' part: {privacy}.",
        "finds_clusters": facts.finds_clusters,
    }


def _claim(facts: Facts, what: str) -> str:
    """Introduce the command or the code."""
    provenance = facts.model.provenance_
    of_fit = provenance.get("events", facts.n_events)
    # a public model holds no events, whatever it was fitted with
    if "adapted" in provenance or (facts.n_events and of_fit != facts.n_events):
        return f"It was fitted with this {what}, and adapted to other events afterwards:"
    if privacy_words(facts.model):
        return f"It was fitted with this {what}; the noise is new in every run, so another run gives another model:"
    return f"This {what} reproduces it from the same {'table' if what == 'command' else 'events'}:"


def _preparation(facts: Facts, recipe: Recipe) -> list[str]:
    """What a recipe does to a table."""
    one_agent = facts.model.sole_agent_ is not None or not facts.n_events
    agent = f"the agent is {_quoted(recipe.agent)}" if recipe.agent else "there is one agent" if one_agent else ""
    roles = [
        f"the target is {_quoted(recipe.target)}" if recipe.target else "",
        agent,
        f"the entity is {_quoted(recipe.entity)}" if recipe.entity else "",
    ]
    named = [role for role in roles if role]
    sentences = [
        f"{'Features are' if len(recipe.features) > 1 else 'The feature is'} "
        f"{listed([_quoted(name) for name in recipe.features])}."
    ]
    if named:
        words = listed(named) if len(named) < 3 else f"{named[0]}, {named[1]}, and {named[2]}"
        sentences[0] = f"{capital(words)}. {sentences[0]}"
    if recipe.terms is not None:
        terms = [_quoted(term_name(term)) for term in recipe.terms if term]
        sentences.append(f"They enter the model as {listed(terms)}.")
    for name, levels in recipe.categorical.items():
        texts = [_quoted(level) for level in levels]
        if len(levels) == 2:
            sentences.append(f"{_quoted(name)} is a category: 1 where it is {texts[1]}, 0 where it is {texts[0]}.")
        else:
            sentences.append(f"{_quoted(name)} is a category with one column of 0 and 1 per level: {listed(texts)}.")
    if recipe.missing == "impute":
        fills = [
            f"{_quoted(name)} with {_quoted(fill) if isinstance(fill, str) else number(fill, 6)}"
            for name, fill in recipe.fill.items()
        ]
        sentences.append(
            "Missing numbers were filled with the median, missing categories with the most common level: "
            f"{listed(fills)}. Rows without a target or an id were dropped."
        )
    elif recipe.missing == "drop":
        sentences.append("Rows with missing values were dropped.")
    else:
        sentences.append("Tables with missing values are refused.")
    return sentences


def _quoted(name: str) -> str:
    return f"“{printable(name)}”"


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping | list | tuple):
        return printable(json.dumps(value, ensure_ascii=False, default=str))
    if value is None or isinstance(value, bool | int | float) or is_dataclass(value):
        return printable(repr(value))
    # the text of other objects, such as a random generator, is of no use
    return type(value).__name__


def _snippet(model: HierarchicalPredictor, changed: dict[str, Any]) -> str:
    """Python code that fits the same model."""
    name = model.saved_as
    recipe = model.recipe_
    if recipe is not None:
        if recipe.categorical:
            changed = {**changed, "categories": list(recipe.categorical)}
        if recipe.missing != "refuse":
            changed = {**changed, "missing": recipe.missing}
    imports = [f"from fedhlcr import {name}"]
    imports += [
        f"from {type(value).__module__} import {type(value).__name__}"
        for value in changed.values()
        if is_dataclass(value)
    ]
    arguments = ", ".join(f"{key}={value!r}" for key, value in {**changed, "random_state": model.seed_}.items())
    return "\n".join([*imports, "", f"model = {name}({arguments})", *_fit_call(model)])


def _fit_call(model: HierarchicalPredictor) -> list[str]:
    recipe = model.recipe_
    exposure = f", exposure={recipe.exposure!r}" if recipe is not None and recipe.exposure else ""
    if model.formula is not None:
        return ["# frame: the table with the columns of the formula", f"model.fit(frame{exposure})"]
    ids = {role: repr(column) if column else role for role, column in _id_columns(model).items()}
    given = "".join(f", {role}={value}" for role, value in ids.items())
    if recipe is not None and model.feature_names_in_ is not None:
        y = repr(recipe.target) if recipe.target else "y"
        features = "the ids and these features" if recipe.target else "these features, and ids that are named"
        return [f"# frame: the table with {features}", f"model.fit(frame, {y}{given}{exposure})"]
    if any(_id_columns(model).values()):
        return ["# frame: the table with all columns but the target, which is y", f"model.fit(frame, y{given})"]
    return [f"model.fit(X, y{given})"]


def _id_columns(model: HierarchicalPredictor) -> dict[str, str | None]:
    """The ids that a model was fitted with, and the names of their columns, if they were columns."""
    columns = dict(zip(("agent", "entity"), id_columns(model), strict=True))
    without = set()
    if model.sole_agent_ is not None and canonical_text(model.sole_agent_[0]) == "":
        without.add("agent")
    index = model.posterior_.memory.entities.index
    if index.n_entities and not has_entity_ids(index):
        without.add("entity")
    return {role: name for role, name in columns.items() if role not in without}
