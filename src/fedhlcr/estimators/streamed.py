"""Events of a table larger than memory: sorted in a work folder, from there to matrices in a mapped file.

Every stage goes on where a killed process has stopped. Files are only appended to: matrices bucket by bucket, and
then in the units of the run.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.memory import give_back
from fedhlcr._support.progress import Bar
from fedhlcr._support.wording import ENTITY, EVENT
from fedhlcr.analysis.fit_comparison import Sample, sample_rows
from fedhlcr.data.events import EventStore
from fedhlcr.data.hierarchy import EntityIndex
from fedhlcr.data.recipe import Recipe
from fedhlcr.data.scarcity import FEWEST_ENTITIES, TableShape
from fedhlcr.data.streaming.event_sorter import EventSorter
from fedhlcr.data.streaming.work_folder import WorkFolder
from fedhlcr.data.table_pieces import PieceSource
from fedhlcr.estimators.training import RawMatrices, TrainingEvents, evenly_spaced
from fedhlcr.kernels.grams import add_rows
from fedhlcr.model.curves import QUANTILE_LEVELS, Curves, column_quantiles
from fedhlcr.model.gram import GramLayout, Standardization, event_grams
from fedhlcr.model.likelihood import AnyLikelihood

RAW = "matrices.raw"
SCALED = "matrices"
POOLED = "pooled"
SAMPLE = "sample"
SPACED = "spaced"
# Events in the user's units and in those of the run.
OWN_UNITS = "own"
RUN_UNITS = "run"
# Bytes of matrices that change their units at a time.
BLOCK_BYTES = 1 << 24


class Origin(NamedTuple):
    """Where the events come from: the files, and the row at which each block of the spool begins."""

    source: PieceSource | None
    block_rows: IndexArray


class StreamedEvents(TrainingEvents):
    """Events of a table in a work folder.

    Attributes
    ----------
    work, sorter : the folder, and what sorts the events there
    origin : where they come from
    recipe : how the table became features
    index : the agents and entities
    read_target, read_offset : how the estimator reads targets and exposures; set by it
    """

    def __init__(
        self, work: WorkFolder, sorter: EventSorter, index: EntityIndex, origin: Origin, *, shows_progress: bool
    ) -> None:
        self.work = work
        self.sorter = sorter
        self._index = index
        self.origin = origin
        self.recipe: Recipe = sorter.encoder.recipe
        self._shows_progress = shows_progress
        self.read_target: Callable[[FloatArray], FloatArray]
        self.read_offset: Callable[[Any, int], FloatArray | None]

    @property
    def index(self) -> EntityIndex:
        return self._index

    def shape(self) -> TableShape:
        n_features = len(self.recipe.encoded_features)
        varies = self.sorter.target_varies
        return TableShape(self.sorter.n_events, self._index.n_entities, n_features, target_varies=varies)

    def quantiles(self, columns: Sequence[int]) -> FloatArray:
        with self.work.disk_errors():
            return self.sorter.quantiles(columns, QUANTILE_LEVELS)

    def means(self, n_threads: int) -> FloatArray:
        del n_threads
        self._sort()
        return self.sorter.means()

    def _sort(self) -> None:
        with self.bar("sorting") as bar, self.work.disk_errors():
            bar.skip_to(self.sorter.n_done)
            self.sorter.sort(bar.reach)

    def bar(self, what: str) -> Bar:
        """A bar for the second pass over the events."""
        return Bar(self.sorter.n_events, f"pass 2 of 2, {what}", EVENT, self._shows_progress)

    def matrices(
        self, likelihood: AnyLikelihood, shift: FloatArray, curves: Curves | None, n_threads: int
    ) -> RawMatrices:
        self._sort()
        layout = likelihood.layout
        with self.work.disk_errors():
            if not self.work.size(POOLED):
                self._build(likelihood, shift, curves, n_threads)
                pooled = np.zeros(layout.packed_size)
                for block in self._raw_blocks(layout.packed_size, "adding up"):
                    # in the order of the rows, as where all of them are in memory
                    add_rows(block, np.zeros(len(block), dtype=np.int64), pooled[None])
                self.work.append(POOLED, pooled)
                self.work.save()
        return RawMatrices(self.work.read(POOLED, np.float64), lambda units: self._in_units(layout, units))

    def _build(self, likelihood: AnyLikelihood, shift: FloatArray, curves: Curves | None, n_threads: int) -> None:
        """Turn buckets into matrices, one after the other."""
        sorter = self.sorter
        work = self.work
        layout = likelihood.layout
        work.require_space(2 * self._index.n_entities * layout.packed_size * 8 - work.size(RAW))
        with self.bar("matrices") as bar:
            done = work.state.get("buckets", 0)
            bar.skip_to(int(sorter.event_start[sorter.bounds[done]]))
            for bucket in range(done, sorter.n_buckets):
                first = sorter.bounds[bucket]
                last = sorter.bounds[bucket + 1]
                events = self._bucket_events(bucket)
                expanded = events if curves is None else replace(events, X=curves.expand(events.X))
                agents = self._index.agent_of[first:last]
                work.append(RAW, event_grams(expanded, layout, shift, agents, n_threads))
                self._keep_sample(events, int(sorter.event_start[first]))
                if likelihood.needs_events:
                    self._append_events(OWN_UNITS, events)
                work.state["buckets"] = bucket + 1
                work.forget([sorter.bucket_file(bucket)])
                bar.reach(int(sorter.event_start[last]))

    def _bucket_events(self, bucket: int) -> EventStore:
        X, target, start, exposure = self.sorter.bucket(bucket)
        offset = self.read_offset(exposure, len(target))
        return EventStore(X, self.read_target(target), np.ones(len(target)), start, offset)

    @cached_property
    def sampled(self) -> tuple[IndexArray, IndexArray]:
        """Positions among the sorted events of some to compare models on, and of their entities."""
        return sample_rows(self.sorter.event_start)

    def _keep_sample(self, events: EventStore, first: int) -> None:
        spaced = evenly_spaced(self.sorter.n_events)
        sampled, spaced = (
            rows[(rows >= first) & (rows < first + events.n_events)] - first for rows in (self.sampled[0], spaced)
        )
        self.work.append(SAMPLE, np.column_stack([events.X[sampled], events.y[sampled]]))
        self.work.append(SPACED, events.X[spaced])

    def _in_units(self, layout: GramLayout, units: Standardization) -> FloatArray:
        """Write the matrices in the units of the run, and map them."""
        work = self.work
        row = layout.packed_size
        with work.disk_errors():
            if not work.size(SCALED):
                for block in self._raw_blocks(row, "changing units"):
                    work.append(SCALED, units.rescale(layout, block))
                work.forget([RAW])
            give_back()
            return self._mapped(SCALED, (-1, row))

    def _raw_blocks(self, row: int, what: str) -> Iterator[FloatArray]:
        """Matrices of `row` numbers in the user's units, a block of them after the other, with progress."""
        step = max(1, BLOCK_BYTES // (8 * row)) * row
        with Bar(self._index.n_entities, f"pass 2 of 2, {what}", ENTITY, self._shows_progress) as bar:
            for first in range(0, self.work.size(RAW) // 8, step):
                block = self.work.read(RAW, np.float64, 8 * first, step).reshape(-1, row)
                yield block
                bar.reach(first // row + len(block))

    def _mapped(self, name: str, shape: tuple[int, ...]) -> FloatArray:
        """An array in a file. It is writable, because kernels are compiled for such arrays, but must not be changed."""
        with self.work.file(name).open("rb") as file:
            mapped = mmap.mmap(file.fileno(), self.work.size(name), access=mmap.ACCESS_COPY)
        return np.frombuffer(mapped, dtype=np.float64).reshape(shape)

    def events(self, likelihood: AnyLikelihood, units: Standardization) -> EventStore:
        work = self.work
        sorter = self.sorter
        with work.disk_errors():
            if not work.state.get("has_events"):
                with self.bar("changing units") as bar:
                    for first, last in zip(sorter.bounds[:-1], sorter.bounds[1:], strict=True):
                        self._append_events(RUN_UNITS, likelihood.events_in(self._stored_events(first, last), units))
                        bar.reach(int(sorter.event_start[last]))
                work.state["has_events"] = True
                work.forget(_event_files(OWN_UNITS))
            x_file, y_file, weight_file, offset_file = _event_files(RUN_UNITS)
            X = self._mapped(x_file, (sorter.n_events, -1))
            y = self._mapped(y_file, (-1,))
            offset = self._mapped(offset_file, (-1,)) if work.size(offset_file) else None
            return EventStore(X, y, self._mapped(weight_file, (-1,)), sorter.event_start, offset)

    def _append_events(self, units: str, events: EventStore) -> None:
        arrays = (events.X, events.y, events.weight, events.offset)
        for name, array in zip(_event_files(units), arrays, strict=True):
            if array is not None:
                self.work.append(name, array)

    def _stored_events(self, first: int, last: int) -> EventStore:
        """Events of entities [first, last) in the user's units."""
        start = self.sorter.event_start[first : last + 1]
        begin = int(start[0])
        size = int(start[-1] - start[0])

        def read(name: str, width: int = 1) -> FloatArray:
            return self.work.read(name, np.float64, 8 * width * begin, width * size)

        width = len(self.recipe.encoded_features)
        x_file, y_file, weight_file, offset_file = _event_files(OWN_UNITS)
        offset = None if self.recipe.exposure is None else read(offset_file)
        X = read(x_file, width).reshape(size, width)
        return EventStore(X, read(y_file), read(weight_file), start - begin, offset)

    @property
    def has_sample(self) -> bool:
        """Whether it makes sense to compare models on a sample."""
        return self._index.n_entities >= FEWEST_ENTITIES and self.sorter.target_varies

    def sample(self) -> Sample | None:
        if not self.has_sample:
            return None
        rows = self.work.read(SAMPLE, np.float64).reshape(len(self.sampled[0]), -1)
        return Sample(rows[:, :-1], rows[:, -1], self.sampled[1])

    def usual_quantiles(self) -> FloatArray:
        X = self.work.read(SPACED, np.float64).reshape(-1, len(self.recipe.encoded_features))
        return column_quantiles(X, np.ones(len(X)))


def _event_files(units: str) -> list[str]:
    return [f"events-{units}.{part}" for part in ("x", "y", "weight", "offset")]
