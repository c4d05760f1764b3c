"""The agents that the server knows, in the order of their registration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from fedhlcr._support.arrays import IndexArray
from fedhlcr._support.checks import within
from fedhlcr.data.ids import natural_key
from fedhlcr.federation.messages import MOST_ROUNDS, NEVER
from fedhlcr.storage import codec
from fedhlcr.storage.reader import RecordReader

# Stands for the position of an agent that is not registered.
UNREGISTERED = -1


class Registry:
    """Agents by name and position, the round of each one's last accepted contribution, and who has withdrawn.

    Agents that are registered together get positions in the natural order of their names.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self._position: dict[str, int] = {}
        self.accepted_round = np.empty(0, dtype=np.int64)
        self.withdrawn = np.empty(0, dtype=bool)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def withdrawn_names(self) -> set[str]:
        return {self.names[position] for position in np.flatnonzero(self.withdrawn)}

    def find(self, names: Iterable[str]) -> IndexArray:
        """Positions of agents by name; UNREGISTERED for unknown ones."""
        return np.array([self._position.get(name, UNREGISTERED) for name in names], dtype=np.int64)

    def register(self, names: Sequence[str]) -> IndexArray:
        """Positions of agents by name; unknown ones are registered."""
        positions = self.find(names)
        if (positions == UNREGISTERED).any():
            new = {name for name in names if name not in self._position}
            self._enter(sorted(new, key=natural_key))
            positions = self.find(names)
        return positions

    def _enter(self, names: list[str]) -> None:
        for name in names:
            self._position[name] = len(self.names)
            self.names.append(name)
        self.accepted_round = np.append(self.accepted_round, np.full(len(names), NEVER))
        self.withdrawn = np.append(self.withdrawn, np.zeros(len(names), dtype=bool))

    def to_record(self) -> codec.Record:
        return {"agents": self.names, "accepted_round": self.accepted_round, "withdrawn": self.withdrawn}

    @classmethod
    def read(cls, reader: RecordReader) -> Registry:
        registry = cls()
        registry._enter(reader.texts("agents"))
        size = (len(registry),)
        registry.accepted_round = reader.array("accepted_round", "i8", size, within(NEVER, MOST_ROUNDS))
        registry.withdrawn = reader.array("withdrawn", "b1", size)
        return registry
