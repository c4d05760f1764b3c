"""Workers that read their agents' events from the table's files, which every node must find under the same path.

The driver has passed over the table: it knows the recipe, all agents and entities, and how many events each has. A
worker reads the files that have events of its agents, and takes the rows that have the ids of these.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.data.categories import class_values
from fedhlcr.data.columns import rows_missing, without_decimals
from fedhlcr.data.hierarchy import UNKNOWN, EntityIndex, Hierarchy, row_agents, row_entities
from fedhlcr.data.recipe import Prepared, Recipe
from fedhlcr.data.table_files import TableFile, open_table
from fedhlcr.data.table_pieces import ParquetSource
from fedhlcr.engines.ray.parts import own_copy
from fedhlcr.exceptions import DataError, FileError
from fedhlcr.kernels.sorting import place_events
from fedhlcr.storage import scratch


class EventDigest:
    """A digest of events in the order of the table, in whatever pieces they come: two readers compare theirs."""

    def __init__(self) -> None:
        self._digest = blake2b(digest_size=16)

    def add(self, entity: IndexArray, X: FloatArray, y: FloatArray, exposure: FloatArray | None) -> None:
        columns = [entity.astype(np.float64), X, y, *([] if exposure is None else [exposure])]
        self._digest.update(np.ascontiguousarray(np.column_stack(columns)).data)

    def __str__(self) -> str:
        return self._digest.hexdigest()


@dataclass(frozen=True)
class FilePart:
    """How a worker finds the events of its agents.

    Attributes
    ----------
    path : of a file, or of a folder of Parquet files
    skipped : positions of the folder's files that have none of its events
    recipe : how rows become events, with all that it has learned from the table
    index : the worker's agents and entities
    event_start : (entities + 1,) where the events of each entity start
    held_out : whether each event, in the order of the table, is held out, as bits; None for none
    digest : of the events that are not, as the driver has read them
    """

    path: Path
    skipped: frozenset[int]
    recipe: Recipe
    index: EntityIndex
    event_start: IndexArray
    held_out: NDArray[np.uint8] | None
    digest: str

    def load(self) -> Hierarchy:
        node = platform.node()
        index = own_copy(self.index)
        sorted_events = _SortedEvents(self.event_start.copy(), self.recipe)
        try:
            for entity, prepared in self._events(self._open(), index):
                sorted_events.add(entity, prepared)
        except FileError as error:
            raise FileError(
                f"a worker on node {node!r}: {error} Every node must have the table under the path that the driver "
                "was given; use a shared file system."
            ) from None
        except DataError:
            # a level, a class or an exposure that the driver has not seen
            sorted_events.are_known = False
        if not sorted_events.are_known or str(sorted_events.digest) != self.digest:
            raise FileError(
                f"a worker on node {node!r} has read other events from {self.path.name!r} than the driver; the files "
                "have changed, or are not the same on all nodes. Fit again."
            )
        return sorted_events.hierarchy(index)

    def _open(self) -> TableFile:
        file = open_table(self.path)
        if not self.skipped or not isinstance(file.pieces, ParquetSource):
            return file
        return replace(file, pieces=replace(file.pieces, skipped=self.skipped))

    def _events(self, file: TableFile, index: EntityIndex) -> Iterator[tuple[IndexArray, Prepared]]:
        """The events of the worker's agents, in the order of the table, with their entities."""
        decimals = file.decimal_ids(self.recipe.ids)
        held_out = None
        n_seen = 0
        if self.held_out is not None:
            held_out = np.unpackbits(self.held_out).astype(bool)
        for piece, _ in file.read_pieces(*self.recipe.wanted(file, target=True)):
            entity, own = self._own_rows(without_decimals(piece, decimals), index)
            if held_out is not None:
                fitted = np.flatnonzero(~held_out[n_seen : n_seen + len(own)])
                n_seen += len(own)
                entity = entity[fitted]
                own = own.take(pa.array(fitted))
            if len(own):
                yield entity, self.recipe.prepare(own)

    def _own_rows(self, raw: pa.Table, index: EntityIndex) -> tuple[IndexArray, pa.Table]:
        """The rows that are events of the worker's agents, and their entities."""
        recipe = self.recipe
        named = ~np.logical_or.reduce([rows_missing(raw[name], is_id=True) for name in recipe.ids])
        if not named.all():
            raw = raw.filter(pa.array(named))
        agents = index.find_agents(row_agents(None if recipe.agent is None else raw[recipe.agent], len(raw)))
        entity = index.find_entities(agents, row_entities(raw[recipe.entity], len(raw)))
        own = np.flatnonzero(entity != UNKNOWN)
        raw = raw.take(pa.array(own))
        entity = entity[own]
        kept = recipe.new_tally().add(raw, recipe.find_gaps(raw))
        return entity[kept], raw if len(kept) == len(raw) else raw.take(pa.array(kept))


class _SortedEvents:
    """Events that come in the order of the table, sorted by entity as they come; large arrays are in files.

    Attributes
    ----------
    are_known : whether no entity has got more events than it should have
    """

    def __init__(self, event_start: IndexArray, recipe: Recipe) -> None:
        n_events = int(event_start[-1])
        self._start = event_start
        self._following = event_start[:-1].copy()
        self._recipe = recipe
        self._X = scratch.empty((n_events, len(recipe.encoded_features)))
        self._y = scratch.empty((n_events,))
        self._offset = None
        if recipe.exposure is not None:
            self._offset = scratch.empty((n_events,))
        self.digest = EventDigest()
        self.are_known = True

    def add(self, entity: IndexArray, events: Prepared) -> None:
        X = events.table.matrix
        y = events.target
        exposure = events.exposure
        assert y is not None
        if self._recipe.classes is not None:
            y = y == class_values(self._recipe.classes)[1]
        y = y.astype(np.float64)
        self.digest.add(entity, X, y, exposure)
        places = np.empty(len(entity), dtype=np.int64)
        place_events(entity, self._following, places)
        self.are_known = self.are_known and bool((places < self._start[entity + 1]).all())
        if not self.are_known:
            return
        self._X[places] = X
        self._y[places] = y
        if self._offset is not None and exposure is not None:
            self._offset[places] = np.log(exposure)

    def hierarchy(self, index: EntityIndex) -> Hierarchy:
        weight = scratch.empty(self._y.shape)
        weight[:] = 1.0
        return Hierarchy(self._X, self._y, weight, self._start, index, self._offset)
