"""Events that agents keep: for columns that are made from them later, such as curves, and for weights of events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, ranges
from fedhlcr._support.checks import finite, positive
from fedhlcr.storage.reader import RecordReader
from fedhlcr.storage.records import Sizes, stored


@dataclass(frozen=True)
class EventStore:
    """The events of entities, in the order of the entities. They stay with their agents.

    Attributes
    ----------
    X : (events, n_features) in the user's units, or in those of a run
    y, weight : (events,)
    offset : (events,) what is added to the linear part of an event, such as the log of its exposure; None for none
    event_start : (entities + 1,) events of entity e are [event_start[e], event_start[e + 1])
    """

    X: FloatArray = stored("f8", "events", "features", possible=finite, name="x")
    y: FloatArray = stored("f8", "events", possible=finite)
    weight: FloatArray = stored("f8", "events", possible=positive)
    event_start: NDArray[np.int64] = stored("i8", "entities + 1", name="start")
    offset: FloatArray | None = stored("f8", "events", possible=finite, optional=True, default=None)

    def check_record(self, reader: RecordReader, sizes: Sizes) -> None:  # noqa: ARG002
        start = self.event_start
        # every entity has events
        reader.require(start[0] == 0 and start[-1] == self.n_events and (np.diff(start) > 0).all(), "start")

    @classmethod
    def empty(cls, n_features: int) -> EventStore:
        """A store without entities."""
        return cls(np.empty((0, n_features)), np.empty(0), np.empty(0), np.zeros(1, dtype=np.int64))

    @property
    def n_entities(self) -> int:
        return len(self.event_start) - 1

    @property
    def n_events(self) -> int:
        return len(self.y)

    def of_entities(self, first: int, last: int) -> EventStore:
        """The events of the entities [first, last), as views."""
        start = self.event_start[first]
        stop = self.event_start[last]
        return self._rows(slice(start, stop), self.event_start[first : last + 1] - start)

    def places(self, entities: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions of the events of the given entities, one entity after the other; a negative entity has none."""
        return ranges(self.event_start[entities], self._sizes(entities))

    def take(self, entities: NDArray[np.int64]) -> EventStore:
        """The events of the given entities, in their order; a negative entity has none."""
        rows = self.places(entities)
        start = np.concatenate([[0], np.cumsum(self._sizes(entities))])
        return self._rows(rows, start)

    def where(self, kept: NDArray[np.bool_]) -> EventStore:
        """The events that are kept, of the same entities."""
        start = np.concatenate([[0], np.cumsum(kept)])[self.event_start]
        return self._rows(kept, start)

    def _rows(self, rows: Any, event_start: NDArray[np.int64]) -> EventStore:
        offset = None if self.offset is None else self.offset[rows]
        return EventStore(self.X[rows], self.y[rows], self.weight[rows], event_start, offset)

    @property
    def offsets(self) -> FloatArray:
        """The offsets; 0 where there are none."""
        return np.zeros(self.n_events) if self.offset is None else self.offset

    def _sizes(self, entities: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.where(entities < 0, 0, np.diff(self.event_start, append=0)[entities])


def joined(
    n_entities: int, one: EventStore, one_places: NDArray[np.int64], other: EventStore, other_places: NDArray[np.int64]
) -> tuple[EventStore, NDArray[np.int64]]:
    """The events of two stores in one, and the positions in it of the events of the first.

    Entities of the stores become the entities `one_places` and `other_places`, of `n_entities`. Where an entity has
    events in both, those of the first store come first.
    """
    owners = (np.repeat(places, np.diff(of.event_start)) for places, of in ((one_places, one), (other_places, other)))
    owner = np.concatenate(list(owners))
    order = np.argsort(owner, kind="stable")
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    start = np.searchsorted(owner[order], np.arange(n_entities + 1)).astype(np.int64)
    X, y, weight = (np.concatenate([getattr(of, name) for of in (one, other)])[order] for name in ("X", "y", "weight"))
    offset = None
    if one.offset is not None or other.offset is not None:
        offset = np.concatenate([one.offsets, other.offsets])[order]
    return EventStore(X, y, weight, start, offset), position[: one.n_events]
