"""Share a table in a work folder out to the workers of a cluster, which read their agents' events from its files.

The driver passes over the events once more, in the order of the table. It finds which files have events of each worker,
which of these are held out, a digest of the others, and a sample of all. None of its arrays has a row for each event,
except that holding out takes a byte for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.analysis.fit_comparison import Sample
from fedhlcr.data.table_pieces import ParquetSource
from fedhlcr.engines.ray.files import EventDigest, FilePart
from fedhlcr.engines.ray.parts import part_of
from fedhlcr.estimators.streamed import StreamedEvents
from fedhlcr.exceptions import ArgumentError
from fedhlcr.kernels.sorting import place_events


class SharedTable:
    """A table in a work folder.

    Attributes
    ----------
    sample : some events to compare models on, once the table is shared out; None if that makes no sense
    """

    def __init__(self, data: StreamedEvents) -> None:
        if data.origin.source is None:
            raise ArgumentError(
                "the workers of a cluster read Parquet and CSV files, but the table is of another format or "
                "compressed; write it as Parquet, or pass it to `fit`."
            )
        self._data = data
        self._source = data.origin.source
        self.sample: Sample | None = None

    def parts(self, ranges: Sequence[range]) -> list[FilePart]:
        """What each worker needs to find the events of its agents, which are given by their positions."""
        start = self._data.index.agent_start
        bounds = start[[*(agents.start for agents in ranges), ranges[-1].stop]]
        holds_out = self._data.sorter.holds_out
        shares = [_Share(int(first), holds_out=holds_out) for first in bounds[:-1]]
        self._pass_over(bounds, shares)
        return [self._part(agents, share) for agents, share in zip(ranges, shares, strict=True)]

    def _pass_over(self, bounds: IndexArray, shares: list[_Share]) -> None:
        """Let each worker's share see its events, in the order of the table; `bounds` are of the workers' entities."""
        data = self._data
        sorter = self._data.sorter
        sampler = _Sampler(data)
        file_of = self._file_of_blocks()
        with data.bar("sharing out") as bar, data.work.disk_errors():
            # an earlier process may have written some
            data.work.forget(sorter.held_out.files)
            for number, (entity, columns, kept) in enumerate(sorter.blocks()):
                sorter.held_out.append(entity[~kept], columns[:, ~kept])
                fitted = self._events(entity[kept], columns[:, kept])
                sampler.add(fitted)
                place = np.cumsum(kept) - 1
                for share, own in zip(shares, _by_owner(entity, bounds), strict=True):
                    if len(own):
                        share.add(int(file_of[number]), kept[own], fitted.take(place[own[kept[own]]]))
                bar.reach(sampler.n_events)
        self.sample = sampler.sample()

    def _events(self, entity: IndexArray, columns: FloatArray) -> _SharedEvents:
        encoder = self._data.sorter.encoder
        target = self._data.read_target(encoder.targets(columns))
        return _SharedEvents(entity, encoder.features(columns), target, encoder.exposures(columns))

    def _file_of_blocks(self) -> IndexArray:
        """(blocks,) the position of the file that each block of the spool is from."""
        rows = self._data.origin.block_rows
        if not isinstance(self._source, ParquetSource):
            return np.zeros(len(rows), dtype=np.int64)
        return np.searchsorted(np.cumsum([part.n_rows for part in self._source.parts]), rows, "right")

    def _part(self, agents: range, share: _Share) -> FilePart:
        data = self._data
        first, last = data.index.agent_start[[agents.start, agents.stop]].tolist()
        start = data.sorter.event_start[first : last + 1]
        return FilePart(
            self._source.path.resolve(),
            frozenset(range(len(self._source.files))) - share.files,
            data.recipe,
            part_of(data.index, agents),
            start - start[0],
            share.held_out_bits(),
            str(share.digest),
        )


class _SharedEvents(NamedTuple):
    """Events that are fitted, as numbers."""

    entity: IndexArray
    X: FloatArray
    y: FloatArray
    exposure: FloatArray | None

    def take(self, places: IndexArray) -> _SharedEvents:
        exposure = None if self.exposure is None else self.exposure[places]
        return _SharedEvents(self.entity[places], self.X[places], self.y[places], exposure)


def _by_owner(entity: IndexArray, bounds: IndexArray) -> list[IndexArray]:
    """The places of each worker's events, in their order; worker w has the entities [bounds[w], bounds[w + 1])."""
    owner = np.searchsorted(bounds, entity, "right") - 1
    order = np.argsort(owner, kind="stable")
    return np.split(order, np.searchsorted(owner[order], np.arange(1, len(bounds) - 1)))


class _Share:
    """The events of one worker: the files they are in, which are held out, and a digest of the others.

    Parameters
    ----------
    first : the worker's first entity
    holds_out : whether any events are held out
    """

    def __init__(self, first: int, *, holds_out: bool) -> None:
        self._first = first
        self._holds_out = holds_out
        self._held_out: list[NDArray[np.bool_]] = []
        self.files = set[int]()
        self.digest = EventDigest()

    def add(self, file: int, kept: NDArray[np.bool_], fitted: _SharedEvents) -> None:
        """See the next events of the table, of which those that are kept are `fitted`."""
        self.files.add(file)
        if self._holds_out:
            self._held_out.append(~kept)
        self.digest.add(fitted.entity - self._first, *fitted[1:])

    def held_out_bits(self) -> NDArray[np.uint8] | None:
        return np.packbits(np.concatenate(self._held_out)) if self._holds_out else None


class _Sampler:
    """Keeps the events that models are compared on."""

    def __init__(self, data: StreamedEvents) -> None:
        self._rows, self._entities = data.sampled
        self._following = data.sorter.event_start[:-1].copy()
        self._has_sample = data.has_sample
        self._X = np.empty((len(self._rows), data.shape().n_features))
        self._y = np.empty(len(self._rows))
        self.n_events = 0

    def add(self, events: _SharedEvents) -> None:
        places = np.empty(len(events.entity), dtype=np.int64)
        place_events(events.entity, self._following, places)
        self.n_events += len(places)
        chosen = np.isin(places, self._rows)
        at = np.searchsorted(self._rows, places[chosen])
        self._X[at] = events.X[chosen]
        self._y[at] = events.y[chosen]

    def sample(self) -> Sample | None:
        return Sample(self._X, self._y, self._entities) if self._has_sample else None
