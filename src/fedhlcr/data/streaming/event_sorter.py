"""The second pass: sort events by entity, in two steps that never hold more than a small part in memory.

Events go to buckets first: each has the events of consecutive entities, in the order of the table. Then each bucket is
sorted by itself. The order of an entity's events is that of the table, so sums over them are the same as in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.data.exact_sums import ExactSums
from fedhlcr.data.streaming.order_statistics import order_statistics
from fedhlcr.data.streaming.recipe_learner import EventEncoder
from fedhlcr.data.streaming.spool import ITEM, EventSpool
from fedhlcr.data.streaming.work_folder import WorkFolder
from fedhlcr.kernels.sorting import count_events

# About so many bytes of events are sorted at a time, in at most so many buckets.
BUCKET_BYTES = 1 << 25
MOST_BUCKETS = 512


class EventSorter:
    """Sorts the events of a spool by entity.

    Parameters
    ----------
    work : the folder
    spool : events in the order of the table, with codes of pairs
    encoder : how columns become features
    places : position of each pair's entity in the index, by the pair's code
    n_entities : number of entities
    held_out : which events are left out, or None for none
    """

    def __init__(
        self,
        work: WorkFolder,
        spool: EventSpool,
        encoder: EventEncoder,
        places: IndexArray,
        n_entities: int,
        held_out: NDArray[np.bool_] | None,
    ) -> None:
        self._work = work
        self._spool = spool
        self.encoder = encoder
        self._places = places
        self._n_entities = n_entities
        self._held_out = held_out
        self._n_columns = len(encoder.columns)
        self.held_out = EventSpool(work, "held-out", self._n_columns)

    @cached_property
    def event_start(self) -> IndexArray:
        """(entities + 1,) sorted events of entity e are [event_start[e], event_start[e + 1])."""
        name = "event-start"
        if not self._work.size(name):
            counts = np.zeros(self._n_entities, dtype=np.int64)
            first = 0
            for codes in self._spool.codes():
                count_events(self._places[codes], self._is_kept(first, len(codes)), counts)
                first += len(codes)
            self._work.append(name, np.concatenate([[0], np.cumsum(counts)]))
            self._work.save()
        return self._work.read(name, np.int64)

    @property
    def n_events(self) -> int:
        return int(self.event_start[-1])

    @property
    def holds_out(self) -> bool:
        """Whether some events are held out; to be asked before `sort`."""
        return self._held_out is not None

    def _is_kept(self, first: int, size: int) -> NDArray[np.bool_]:
        """(size,) whether the events from `first` onwards are kept."""
        return np.ones(size, dtype=bool) if self._held_out is None else ~self._held_out[first : first + size]

    @cached_property
    def bounds(self) -> IndexArray:
        """(buckets + 1,) bucket b has the events of entities [bounds[b], bounds[b + 1])."""
        n_bytes = self.n_events * ITEM * (1 + self._n_columns)
        n_buckets = max(1, min(MOST_BUCKETS, -(-n_bytes // BUCKET_BYTES)))
        cuts = np.searchsorted(self.event_start, np.linspace(0, self.n_events, n_buckets + 1)[1:-1])
        return np.unique([0, *cuts.tolist(), self._n_entities])

    @property
    def n_buckets(self) -> int:
        return len(self.bounds) - 1

    def sort(self, progress: Callable[[int], None]) -> None:
        """Write the buckets, from where an earlier process has stopped; `progress` gets numbers of events."""
        state = self._state
        if state.get("done"):
            return
        sums = self._sums
        first = state["events"]
        blocks = self.blocks(state["blocks"], first)
        for number, (entity, columns, kept) in enumerate(blocks, state["blocks"] + 1):
            first += len(kept)
            if not kept.all():
                self.held_out.append(entity[~kept], columns[:, ~kept])
                entity = entity[kept]
                columns = columns[:, kept]
            target = self.encoder.targets(columns)
            sums.add(self.encoder.features(columns), target, np.ones(len(target)))
            self._write(entity, columns)
            progress(first)
            if self._work.is_due():
                self._save(blocks=number, events=first)
        self._save(done=True)
        self._work.forget(self._spool.files)
        self._places = np.empty(0, dtype=np.int64)
        self._held_out = None

    def blocks(
        self, first_block: int = 0, first_event: int = 0
    ) -> Iterator[tuple[IndexArray, FloatArray, NDArray[np.bool_]]]:
        """Yield the events in the order of the table, until they are sorted: entities, columns, which are kept."""
        for codes, columns in self._spool.blocks(first_block):
            yield self._places[codes], columns, self._is_kept(first_event, len(codes))
            first_event += len(codes)

    @property
    def _state(self) -> dict[str, Any]:
        state: dict[str, Any] = self._work.state.get("sorting", {"blocks": 0, "events": 0})
        return state

    @property
    def n_done(self) -> int:
        """Events that an earlier process has sorted."""
        return self.n_events if self._state.get("done") else int(self._state["events"])

    def _save(self, **state: object) -> None:
        self._work.save(sorting={**state, "sums": self._sums.totals.tolist()})

    @cached_property
    def _sums(self) -> ExactSums:
        saved = self._state.get("sums")
        if saved is None:
            return ExactSums.empty(len(self.encoder.recipe.encoded_features))
        return ExactSums(np.array(saved, dtype=np.int64))

    def _write(self, entity: IndexArray, columns: FloatArray) -> None:
        """Append events to their buckets: rows of the entity's number and all columns."""
        bucket = np.searchsorted(self.bounds, entity, "right") - 1
        order = np.argsort(bucket.astype(np.uint16), kind="stable")
        rows = np.column_stack([entity.astype(np.float64), columns.T])[order]
        ends = np.cumsum(np.bincount(bucket, minlength=self.n_buckets))
        for number in np.unique(bucket).tolist():
            self._work.append(self.bucket_file(number), rows[ends[number - 1] if number else 0 : ends[number]])

    @staticmethod
    def bucket_file(bucket: int) -> str:
        return f"bucket-{bucket}"

    def bucket(self, number: int) -> tuple[FloatArray, FloatArray, IndexArray, FloatArray | None]:
        """The sorted events of a bucket: features, targets, where the events of each entity start, and exposures."""
        rows = self._work.read(self.bucket_file(number), np.float64).reshape(-1, 1 + self._n_columns)
        first = self.bounds[number]
        last = self.bounds[number + 1]
        own = rows[:, 0].astype(np.int64) - first
        # numpy sorts small whole numbers by counting
        order = np.argsort(own.astype(np.uint16) if last - first < 1 << 16 else own, kind="stable")
        columns = rows[order, 1:].T
        encoder = self.encoder
        start = self.event_start[first : last + 1] - self.event_start[first]
        target = np.ascontiguousarray(encoder.targets(columns))
        exposure = encoder.exposures(columns)
        return encoder.features(columns), target, start, None if exposure is None else np.ascontiguousarray(exposure)

    def means(self) -> FloatArray:
        """(n_features + 1,) means of features and target."""
        return self._sums.means()

    @property
    def target_varies(self) -> bool:
        """Whether the events that are kept have more than one target."""
        if "target_varies" not in self._work.state:
            place = len(self.encoder.recipe.features)
            first = 0
            lowest = np.inf
            highest = -np.inf
            for values in self._spool.column(place):
                kept = values[self._is_kept(first, len(values))]
                lowest = min(lowest, kept.min(initial=np.inf))
                highest = max(highest, kept.max(initial=-np.inf))
                first += len(values)
            self._work.save(target_varies=bool(highest > lowest))
        return bool(self._work.state["target_varies"])

    def quantiles(self, columns: Sequence[int], levels: FloatArray) -> FloatArray:
        """(encoded features, levels) quantiles of the features at the positions `columns`; 0 for all others.

        Indicators of categories count as others: with two values they cannot bend. To be called before `sort`.
        """
        recipe = self.encoder.recipe
        encoded = recipe.encoded_features
        out = np.zeros((len(encoded), len(levels)))
        known = self._work.state.get("quantiles", {})
        ranks = np.ceil(levels * self.n_events).astype(np.int64) - 1
        for place, name in enumerate(recipe.features):
            position = encoded.index(name) if name in encoded else -1
            if name in recipe.categorical or position not in columns:
                continue
            if name not in known:
                values = order_statistics(partial(self._kept_values, place), ranks.tolist())
                self._work.save(quantiles=known | {name: values.tolist()})
                known = self._work.state["quantiles"]
            out[position] = known[name]
        return out

    def _kept_values(self, place: int) -> Iterator[FloatArray]:
        """The values of a feature, in the order of the table."""
        first = 0
        fill = float(self.encoder.recipe.fill[self.encoder.columns[place]])
        for values in self._spool.column(place):
            kept = values[self._is_kept(first, len(values))]
            yield np.where(np.isnan(kept), fill, kept)
            first += len(values)
