"""How to reproduce a model."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any

from fedhlcr._support.version import __version__
from fedhlcr._support.wording import UNPRINTABLE, capital, listed, number, printable
from fedhlcr.analysis.words import privacy_words
from fedhlcr.data.hierarchy import has_entity_ids
from fedhlcr.data.ids import canonical_text
from fedhlcr.data.recipe import Recipe
from fedhlcr.data.terms import term_name
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.storage.model_file import plain_settings

# Parameters that do not change the result.
WITHOUT_EFFECT = frozenset({"n_threads", "verbose", "checkpoint", "checkpoint_every"})


@dataclass(frozen=True)
class Setting:
    name: str
    value: str
    is_default: bool


@dataclass(frozen=True)
class Settings:
    """How to reproduce a model, as far as this is known, with every parameter.

    Attributes
    ----------
    claim : a sentence that introduces the command or the code
    code : a command, or Python
    preparation : how the table was prepared for the fit, in sentences
    privacy : what differential privacy guarantees, in a sentence; None without it
    finds_clusters : whether the model chose the number of clusters itself
    """

    estimator: str
    parameters: tuple[Setting, ...]
    seed: int
    version: str
    claim: str
    code: str
    preparation: tuple[str, ...]
    provenance: tuple[tuple[str, str], ...]
    privacy: str | None
    finds_clusters: bool

    @classmethod
    def of(cls, model: HierarchicalPredictor, n_events: float, code: str | None = None) -> Settings:
        """The settings of a model that holds `n_events` events; `code` takes the place of what the model knows."""
        signature = inspect.signature(type(model).__init__).parameters
        given = plain_settings(model.get_params(deep=False))
        parameters = tuple(
            Setting(name, _as_text(value), _is_default(value, signature[name].default))
            for name, value in given.items()
            if name != "checkpoint"
        )
        changed = {
            name: value
            for name, value in given.items()
            if name not in WITHOUT_EFFECT | {"random_state"} and not _is_default(value, signature[name].default)
        }
        command = model.provenance_.get("command") if model.recipe_ is not None and code is None else None
        return cls(
            estimator=type(model).__name__,
            parameters=parameters,
            seed=model.seed_,
            version=__version__,
            claim=_claim(model, n_events, is_command=bool(command)),
            code=code or (UNPRINTABLE.sub("\ufffd", str(command)) if command else _snippet(model, changed)),
            preparation=()
            if model.recipe_ is None
            else _preparation(model.recipe_, one_agent=model.sole_agent_ is not None or not n_events),
            provenance=tuple(
                (printable(key), _as_text(value)) for key, value in model.provenance_.items() if key != "command"
            ),
            privacy=_privacy(model),
            finds_clusters=isinstance(model.n_clusters, str),
        )


def _privacy(model: HierarchicalPredictor) -> str | None:
    words = privacy_words(model)
    return words and f"Differential privacy of the run, and of the model saved without the agents' part: {words}."


def _claim(model: HierarchicalPredictor, n_events: float, *, is_command: bool) -> str:
    of_fit = model.provenance_.get("events", n_events)
    what = "command" if is_command else "code"
    # a public model holds no events, whatever it was fitted with
    if "adapted" in model.provenance_ or (n_events and of_fit != n_events):
        return f"It was fitted with this {what}, and adapted to other events afterwards:"
    if privacy_words(model):
        return f"It was fitted with this {what}; the noise is new in every run, so another run gives another model:"
    if is_command:
        return "This command reproduces it from the same table:"
    return "This code reproduces it from the same events:"


def _preparation(recipe: Recipe, *, one_agent: bool) -> tuple[str, ...]:
    """What a recipe does to a table."""
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
    return tuple(sentences)


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
    name = type(model).__name__
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
    if recipe is not None and hasattr(model, "feature_names_in_"):
        y = repr(recipe.target) if recipe.target else "y"
        features = "the ids and these features" if recipe.target else "these features, and ids that are named"
        return [f"# frame: the table with {features}", f"model.fit(frame, {y}{given}{exposure})"]
    if any(_id_columns(model).values()):
        return ["# frame: the table with all columns but the target, which is y", f"model.fit(frame, y{given})"]
    return [f"model.fit(X, y{given})"]


def _id_columns(model: HierarchicalPredictor) -> dict[str, str | None]:
    """The ids that a model was fitted with, and the names of their columns, if they were columns."""
    recipe = model.recipe_
    columns = {
        "agent": model.agent_column_ or (recipe and recipe.agent) or None,
        "entity": model.entity_column_ or (recipe and recipe.entity) or None,
    }
    without = set()
    if model.sole_agent_ is not None and canonical_text(model.sole_agent_[0]) == "":
        without.add("agent")
    index = model.posterior_.memory.entities.index
    if index.n_entities and not has_entity_ids(index):
        without.add("entity")
    return {role: name for role, name in columns.items() if role not in without}
