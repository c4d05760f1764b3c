"""What the user calls agents, entities, features and the target, and how a page shows the names of single ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fedhlcr._support.wording import AGENT, ENTITY, Noun, noun, printable
from fedhlcr.analysis.effects import feature_names, target_name
from fedhlcr.estimators.base import HierarchicalPredictor

# Of longer names, the middle is left out.
LONGEST = 200
# Shown in place of an empty name.
NO_NAME = "(no name)"


class Names(NamedTuple):
    """What the user calls things."""

    agent: Noun
    entity: Noun
    target: str
    features: tuple[str, ...]

    @classmethod
    def of(cls, model: HierarchicalPredictor) -> Names:
        recipe = getattr(model, "recipe_", None)
        agent = noun(getattr(recipe, "agent", None) or getattr(model, "agent_column_", None), AGENT)
        entity = noun(getattr(recipe, "entity", None) or getattr(model, "entity_column_", None), ENTITY)
        if agent == entity:
            agent = AGENT
            entity = ENTITY
        return cls(agent, entity, target_name(model), tuple(printable(name) for name in feature_names(model)))


def names_to_show(texts: Iterable[str]) -> list[str]:
    """Names on one line each. Where each row is its own entity, ids start with a zero byte, which is removed."""
    return [shortened(printable(text.removeprefix("\0"))) or NO_NAME for text in texts]


def shortened(name: str, longest: int = LONGEST) -> str:
    """A name without its middle if it is too long."""
    half = (longest - 1) // 2
    return name if len(name) <= longest else f"{name[:half]}…{name[-half:]}"


def named(identifier: str, what: Noun) -> str:
    """An id in a sentence; a bare number gets its noun: "store 7"."""
    return f"{what.one} {identifier}" if identifier.isdigit() else identifier


def begins_with(entity: str, agent: str) -> bool:
    """Whether an entity's id already names its agent: it starts with the agent's id and a separator."""
    rest = entity.removeprefix(agent)
    return entity.startswith(agent) and len(rest) > 1 and not rest[0].isalnum()
