"""Sums of many agents by cluster, stacked and sparse: only clusters an agent has entities in take room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import CountArray, FloatArray, IndexArray, ranges
from fedhlcr.kernels.arguments import N_SCALARS
from fedhlcr.kernels.grams import add_rows
from fedhlcr.samplers.state import ClusterSums
from fedhlcr.storage import codec
from fedhlcr.storage.reader import RecordReader, not_negative, within


@dataclass(frozen=True)
class AgentSums:
    """Agent i has the rows [row_start[i], row_start[i + 1]), a row for each cluster it has entities in.

    Attributes
    ----------
    clusters : (rows,) original ids
    entity_counts, table_counts : (rows,)
    grams : (rows, packed)
    scalars : (agents, 4), columns as in `kernels.arguments`
    """

    row_start: IndexArray
    clusters: CountArray
    entity_counts: CountArray
    table_counts: CountArray
    grams: FloatArray
    scalars: FloatArray

    @classmethod
    def empty(cls, n_agents: int, packed_size: int) -> AgentSums:
        none = np.empty(0, dtype=np.int32)
        rows = np.zeros(n_agents + 1, dtype=np.int64)
        return cls(rows, none, none, none, np.empty((0, packed_size)), np.zeros((n_agents, N_SCALARS)))

    def __len__(self) -> int:
        return len(self.scalars)

    def to_record(self) -> codec.Record:
        return {f"sums_{f.name}": getattr(self, f.name) for f in fields(self)}

    @classmethod
    def read(cls, reader: RecordReader, n_clusters: int, packed_size: int) -> AgentSums:
        """From the fields of `to_record`, checked."""
        own = reader.part("sums_")
        scalars = own.array("scalars", "f8", (None, N_SCALARS), np.isfinite)
        clusters = own.array("clusters", "i4", (None,), within(0, n_clusters))
        row_start = own.array("row_start", "i8", (len(scalars) + 1,))
        own.require(row_start[0] == 0 and row_start[-1] == len(clusters), "row_start")
        own.require((row_start[1:] >= row_start[:-1]).all(), "row_start")
        return cls(
            row_start,
            clusters,
            own.array("entity_counts", "i4", clusters.shape, not_negative),
            own.array("table_counts", "i4", clusters.shape, not_negative),
            own.array("grams", "f8", (len(clusters), packed_size), np.isfinite),
            scalars,
        )

    @property
    def row_owner(self) -> IndexArray:
        """(rows,) the agent of each row."""
        return np.repeat(np.arange(len(self)), np.diff(self.row_start))

    def by_agent(self, rows: NDArray[Any]) -> FloatArray:
        """(agents,) sums of a column of the rows."""
        return weighted_counts(self.row_owner, rows, len(self))

    def take(self, agents: IndexArray) -> AgentSums:
        """The given agents alone, in that order."""
        sizes = np.diff(self.row_start)[agents]
        row_start = np.concatenate([[0], np.cumsum(sizes)])
        rows = ranges(self.row_start[agents], sizes)
        return AgentSums(
            row_start,
            self.clusters[rows],
            self.entity_counts[rows],
            self.table_counts[rows],
            self.grams[rows],
            self.scalars[agents],
        )

    @classmethod
    def stack(cls, parts: Sequence[AgentSums]) -> AgentSums:
        """The agents of all parts, one after the other."""
        stacked = {f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls)}
        n_rows = np.cumsum([0, *(part.row_start[-1] for part in parts)])
        starts = [part.row_start[:-1] + rows for part, rows in zip(parts, n_rows, strict=False)]
        return cls(**stacked | {"row_start": np.concatenate([*starts, n_rows[-1:]])})

    def replace(self, agents: IndexArray, new: AgentSums) -> AgentSums:
        """These sums with those of the given agents (ascending) replaced."""
        if len(agents) == len(self):
            return new
        order = np.arange(len(self))
        order[agents] = len(self) + np.arange(len(agents))
        return self.stack([self, new]).take(order)

    def total(self, n_clusters: int) -> ClusterSums:
        """Sums over the agents by original cluster, in the agents' order."""
        grams = np.zeros((n_clusters, self.grams.shape[1]))
        add_rows(self.grams, self.clusters, grams)
        entities, tables = (
            weighted_counts(self.clusters, counts, n_clusters) for counts in (self.entity_counts, self.table_counts)
        )
        return ClusterSums.from_parts(grams, entities, tables, self.scalars.sum(axis=0))


def weighted_counts(places: NDArray[np.integer], weights: NDArray[Any], n_places: int) -> FloatArray:
    """Sums of the weights by place."""
    return np.bincount(places, weights=weights, minlength=n_places).astype(np.float64, copy=False)
