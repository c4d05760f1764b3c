"""Sums of many agents by cluster, stacked and sparse.

The same sums take five forms on their way from the agents to the server's state. Each exists for one reason:

    `kernels.arguments.AgentAnswers`   what the label kernel counts for a block of agents: (agents, clusters), dense,
                                       because compiled code writes to fixed places. Counts only, no matrices.
    `AgentSums`                        many agents, a row for each cluster in which an agent has entities. Most agents
                                       use few of up to 64 clusters, so dense matrices would fill the memory.
                                       The pages of the server's ledger and the records of a survey are `AgentSums`.
    `messages.Contribution`            one agent, dense: what travels. A row for every cluster, so that the size of the
                                       message does not show how many clusters the agent uses.
    `messages.Contributions`           the `AgentSums` of one round, with the agents' names and the round they belong
                                       to. It passes inside a process, from a shard to the server, without bytes.
    `model.sums.ClusterSums`           the sum over all agents: what the server draws the globals from. A centralised
                                       sampler uses it too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import CountArray, FloatArray, IndexArray, for_kernels, ranges
from fedhlcr._support.checks import finite, not_negative
from fedhlcr.kernels.grams import add_rows
from fedhlcr.model.schema import GRAMS, SumSchema
from fedhlcr.model.sums import ClusterSums
from fedhlcr.storage import codec
from fedhlcr.storage.reader import RecordReader
from fedhlcr.storage.records import Below, Stored, read_fields, under

PREFIX = "sums_"
# Agents in one page of the server's ledger and in one shard of a simulation: the answers of a shard fill a page.
PAGE_SIZE = 512


@dataclass(frozen=True)
class AgentSums:
    """Sums by agent and cluster. Agent i has the rows [row_start[i], row_start[i + 1]), one for each of its clusters.

    Attributes
    ----------
    schema : names and sizes of the blocks and scalars
    row_start : (agents + 1,)
    clusters : (rows,) original clusters
    entity_counts, table_counts : (rows,) N_ik and m_ik
    blocks : by name, (rows, size)
    scalars : (agents, scalars), columns named by the schema
    """

    schema: SumSchema
    row_start: IndexArray
    clusters: CountArray
    entity_counts: CountArray
    table_counts: CountArray
    blocks: dict[str, FloatArray]
    scalars: FloatArray

    @classmethod
    def empty(cls, schema: SumSchema, n_agents: int) -> AgentSums:
        none = np.empty(0, dtype=np.int32)
        rows = np.zeros(n_agents + 1, dtype=np.int64)
        scalars = np.zeros((n_agents, len(schema.scalars)))
        return cls(schema, rows, none, none, none, schema.zero_blocks(0), scalars)

    def __len__(self) -> int:
        return len(self.scalars)

    def to_record(self) -> codec.Record:
        counts = {"entity_counts": self.entity_counts, "table_counts": self.table_counts}
        values = {"row_start": self.row_start, "clusters": self.clusters, **counts, **self.blocks}
        return under(PREFIX, {**values, "scalars": self.scalars})

    @classmethod
    def read(cls, reader: RecordReader, schema: SumSchema, n_clusters: int) -> AgentSums:
        """Read the fields of `to_record`, and check every value."""
        own = reader.part(PREFIX)
        blocks = {block.name: Stored("f8", ("rows", block.size), block.possible) for block in schema.blocks}
        table = {
            "scalars": Stored("f8", ("agents", len(schema.scalars)), finite),
            "clusters": Stored("i4", ("rows",), Below("clusters")),
            "row_start": Stored("i8", ("agents + 1",)),
            "entity_counts": Stored("i4", ("rows",), not_negative),
            "table_counts": Stored("i4", ("rows",), not_negative),
        }
        sizes = {"clusters": n_clusters}
        values = read_fields(table, own, sizes)
        row_start = values["row_start"]
        own.require(row_start[0] == 0 and row_start[-1] == sizes["rows"], "row_start")
        own.require((row_start[1:] >= row_start[:-1]).all(), "row_start")
        return cls(schema, blocks=read_fields(blocks, own, sizes), **values)

    @property
    def grams(self) -> FloatArray:
        """(rows, packed) M_ik."""
        return self.blocks[GRAMS]

    def scalar(self, name: str) -> FloatArray:
        """(agents,) the scalar of that name."""
        return self.schema.column(self.scalars, name)

    @cached_property
    def row_owner(self) -> IndexArray:
        """(rows,) the agent of each row."""
        return np.repeat(np.arange(len(self)), np.diff(self.row_start))

    def by_agent(self, rows: NDArray[Any]) -> FloatArray:
        """(agents,) the values of an agent's rows, summed."""
        return weighted_counts(self.row_owner, rows, len(self))

    def take(self, agents: IndexArray) -> AgentSums:
        """The sums of the given agents only, in the given order."""
        sizes = np.diff(self.row_start)[agents]
        row_start = np.concatenate([[0], np.cumsum(sizes)])
        rows = ranges(self.row_start[agents], sizes)
        return AgentSums(
            self.schema,
            row_start,
            self.clusters[rows],
            self.entity_counts[rows],
            self.table_counts[rows],
            {name: block[rows] for name, block in self.blocks.items()},
            self.scalars[agents],
        )

    @classmethod
    def stack(cls, parts: Sequence[AgentSums]) -> AgentSums:
        """The agents of all parts, one part after the other. There must be at least one part."""
        schema = parts[0].schema
        n_rows = np.cumsum([0, *(part.row_start[-1] for part in parts)])
        starts = [part.row_start[:-1] + rows for part, rows in zip(parts, n_rows, strict=False)]
        return cls(
            schema,
            np.concatenate([*starts, n_rows[-1:]]),
            np.concatenate([part.clusters for part in parts]),
            np.concatenate([part.entity_counts for part in parts]),
            np.concatenate([part.table_counts for part in parts]),
            {block.name: np.concatenate([part.blocks[block.name] for part in parts]) for block in schema.blocks},
            np.concatenate([part.scalars for part in parts]),
        )

    def replace(self, agents: IndexArray, new: AgentSums) -> AgentSums:
        """The same sums, with those of the given agents (ascending positions) replaced by `new`."""
        if len(agents) == len(self):
            return new
        order = np.arange(len(self))
        order[agents] = len(self) + np.arange(len(agents))
        return self.stack([self, new]).take(order)

    def total(self, n_clusters: int, weights: FloatArray | None = None) -> ClusterSums:
        """Sums over the agents by original cluster, added in the agents' order, each with its weight (agents,)."""
        blocks = self.schema.zero_blocks(n_clusters)
        own_scalars = self.scalars
        own_rows: dict[str, FloatArray] = self.blocks
        counts: tuple[NDArray[Any], NDArray[Any]] = (self.entity_counts, self.table_counts)
        if weights is not None:
            of_row = weights[self.row_owner]
            own_scalars = self.scalars * weights[:, None]
            own_rows = {name: block * of_row[:, None] for name, block in self.blocks.items()}
            counts = (self.entity_counts * of_row, self.table_counts * of_row)
        for name, block in blocks.items():
            add_rows(for_kernels(own_rows[name]), self.clusters.astype(np.int64), block)
        entities, tables = (weighted_counts(self.clusters, count, n_clusters) for count in counts)
        return ClusterSums.of(self.schema, blocks, entities, tables, own_scalars.sum(axis=0))


def weighted_counts(places: NDArray[np.integer], weights: NDArray[Any], n_places: int) -> FloatArray:
    """(n_places,) the sum of the weights at each place."""
    return np.bincount(places, weights=weights, minlength=n_places).astype(np.float64, copy=False)
