"""How the names of single agents and entities are shown."""

from __future__ import annotations

from collections.abc import Iterable

from fedhlcr._support.wording import Noun, printable

# Of longer names, the middle is left out.
LONGEST = 200
# Shown in place of an empty name.
NO_NAME = "(no name)"


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
