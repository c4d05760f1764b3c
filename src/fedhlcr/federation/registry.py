"""The agents that the server knows, in the order of their registration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import IndexArray
from fedhlcr._support.checks import within
from fedhlcr.data.ids import natural_key
from fedhlcr.federation.messages import MOST_ROUNDS, NEVER
from fedhlcr.storage.records import stored

# Stands for the position of an agent that is not registered.
UNREGISTERED = -1


@dataclass
class Registry:
    """Agents by name and position, the round of each one's last accepted contribution, and who has withdrawn.

    Agents that are registered together get positions in the natural order of their names.
    """

    names: list[str] = stored(list, "agents", name="agents", default_factory=list)
    accepted_round: IndexArray = stored(
        "i8", "agents", possible=within(NEVER, MOST_ROUNDS), default_factory=lambda: np.empty(0, dtype=np.int64)
    )
    withdrawn: NDArray[np.bool_] = stored("b1", "agents", default_factory=lambda: np.empty(0, dtype=bool))

    def __post_init__(self) -> None:
        self._position = {name: position for position, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)

    @property
    def withdrawn_names(self) -> set[str]:
        return {self.names[position] for position in np.flatnonzero(self.withdrawn)}

    @property
    def leaving(self) -> IndexArray:
        """Positions of agents that have withdrawn while their sums are still in the total of secure aggregation."""
        return np.flatnonzero(self.withdrawn & (self.accepted_round != NEVER))

    def find(self, names: Iterable[str]) -> IndexArray:
        """Positions of agents by name; UNREGISTERED for unknown ones."""
        return np.array([self._position.get(name, UNREGISTERED) for name in names], dtype=np.int64)

    def register(self, names: Sequence[str]) -> IndexArray:
        """Positions of agents by name; unknown ones are registered."""
        positions = self.find(names)
        if (positions == UNREGISTERED).any():
            new = {name for name in names if name not in self._position}
            for name in sorted(new, key=natural_key):
                self._position[name] = len(self.names)
                self.names.append(name)
            self.accepted_round = np.append(self.accepted_round, np.full(len(new), NEVER))
            self.withdrawn = np.append(self.withdrawn, np.zeros(len(new), dtype=bool))
            positions = self.find(names)
        return positions
