"""What it takes to make the same model again."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any

import fedhlcr
from fedhlcr.predictor import HierarchicalPredictor
from fedhlcr.wording import printable

# Parameters that change nothing of the result, and a path that means nothing elsewhere.
WITHOUT_EFFECT = frozenset({"n_threads", "verbose", "checkpoint", "checkpoint_every"})


@dataclass(frozen=True)
class Setting:
    name: str
    value: str
    is_default: bool


@dataclass(frozen=True)
class Settings:
    """Parameters, seed, version, code that fits the same model, and where it came from, as far as it is known."""

    estimator: str
    parameters: tuple[Setting, ...]
    seed: int
    version: str
    snippet: str
    provenance: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, model: HierarchicalPredictor) -> Settings:
        signature = inspect.signature(type(model).__init__).parameters
        given = model.get_params(deep=False)
        parameters = tuple(
            Setting(name, _told(value), _is_default(value, signature[name].default))
            for name, value in given.items()
            if name != "checkpoint"
        )
        provenance = getattr(model, "provenance_", None) or {}
        changed = {
            name: value
            for name, value in given.items()
            if name not in WITHOUT_EFFECT | {"random_state"} and not _is_default(value, signature[name].default)
        }
        return cls(
            estimator=type(model).__name__,
            parameters=parameters,
            seed=model.seed_,
            version=fedhlcr.__version__,
            snippet=_snippet(model, changed),
            provenance=tuple((printable(key), _told(value)) for key, value in dict(provenance).items()),
        )


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))


def _told(value: Any) -> str:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping | list | tuple):
        return printable(json.dumps(value, ensure_ascii=False, default=str))
    if value is None or isinstance(value, bool | int | float) or is_dataclass(value):
        return printable(repr(value))
    # a generator, say, of which the text tells nothing
    return type(value).__name__


def _snippet(model: HierarchicalPredictor, changed: dict[str, Any]) -> str:
    """Python that fits the same model; ids of the columns where these are known."""
    name = type(model).__name__
    imports = [f"from fedhlcr import {name}"]
    imports += [
        f"from {type(value).__module__} import {type(value).__name__}"
        for value in changed.values()
        if is_dataclass(value)
    ]
    arguments = ", ".join(f"{key}={value!r}" for key, value in {**changed, "random_state": model.seed_}.items())
    recipe = getattr(model, "recipe_", None)
    agent = getattr(recipe, "agent", None) or getattr(model, "agent_column_", None)
    entity = getattr(recipe, "entity", None) or getattr(model, "entity_column_", None)
    target = getattr(recipe, "target", None)
    lines = [*imports, "", f"model = {name}({arguments})"]
    if agent and entity:
        rest = f" but {target!r}" if target else ""
        lines.append(f"# frame: the table with all columns{rest}; y: {repr(target) if target else 'the target'}")
        lines.append(f"model.fit(frame, y, agent={agent!r}, entity={entity!r})")
    else:
        lines.append("model.fit(X, y, agent=agent, entity=entity)")
    categorical = getattr(recipe, "categorical", None)
    if categorical:
        columns = ", ".join(repr(str(column)) for column in categorical)
        lines.insert(-1, f"# a column of 0 and 1 for each level, named column=level, takes the place of {columns}")
    return "\n".join(lines)
