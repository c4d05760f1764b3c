"""Disclosure control: an agent with few events or entities does not take part, because its sums would reveal them.

It is a rule of the agents: the server need not know it, and cannot switch it off. Without noise it is a rule of thumb,
not a guarantee; docs/explanation/privacy.md says what sums give away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.wording import AGENT, ENTITY, EVENT
from fedhlcr.exceptions import ArgumentError

MIN_ENTITIES = 5


@dataclass(frozen=True)
class DisclosureRule:
    """The fewest events and entities with which an agent takes part.

    An agent without events has nothing to disclose and may take part.

    Attributes
    ----------
    min_events : None for 3(F + 2), where F is the number of features
    min_entities : fewest entities
    """

    min_events: int | None = None
    min_entities: int = MIN_ENTITIES

    def __post_init__(self) -> None:
        for name in ("min_events", "min_entities"):
            value: Any = getattr(self, name)
            if name == "min_events" and value is None:
                continue
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 0:
                raise ArgumentError(
                    f"`{name}` of the disclosure rule must be a whole number of at least 0, but is {value!r}."
                )
            object.__setattr__(self, name, int(value))

    def least_events(self, n_features: int) -> int:
        """The fewest events of an agent whose events have this many features."""
        return 3 * (n_features + 2) if self.min_events is None else self.min_events

    def joins(self, n_events: NDArray[Any], n_entities: NDArray[Any], n_features: int) -> NDArray[np.bool_]:
        """(agents,) whether each agent takes part."""
        enough = (n_events >= self.least_events(n_features)) & (n_entities >= self.min_entities)
        return np.asarray(enough | (n_entities == 0))

    def reason(self, n_events: float, n_entities: int, n_features: int) -> str | None:
        """Why an agent does not take part, in words, or None."""
        least = self.least_events(n_features)
        lacks = []
        if n_entities == 0:
            return None
        if n_events < least:
            lacks.append(f"{EVENT.count(int(n_events))}, fewer than {least}")
        if n_entities < self.min_entities:
            lacks.append(f"{ENTITY.count(n_entities)}, fewer than {self.min_entities}")
        return " and ".join(lacks) or None

    def warning(self, n_left_out: int, n_agents: int, n_features: int) -> str:
        """What a person should know if agents are left out."""
        return (
            f"{n_left_out:,} of {AGENT.count(n_agents)} did not take part: an agent needs at least "
            f"{EVENT.count(self.least_events(n_features))} and {ENTITY.count(self.min_entities)}, so that its sums "
            "do not reveal single ones. They still get predictions."
        )


# Of agents on real devices, and of simulated ones, whose sums leave no device.
DEFAULT_RULE = DisclosureRule()
NO_RULE = DisclosureRule(0, 0)
