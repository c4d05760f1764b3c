"""How agents are shared out to workers, and what a worker builds its agents from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.data.hierarchy import EntityIndex, Hierarchy
from fedhlcr.data.ids import NO_ROWS, Ids, Texts
from fedhlcr.federation.sums import PAGE_SIZE

# With at most so many agents, a block may be shared by several workers: then its agents report one by one.
MOST_SINGLE = 8 * PAGE_SIZE


class Part(Protocol):
    """What a worker builds its agents from, as often as it must."""

    def load(self) -> Hierarchy:
        """The events of the part's agents, in arrays of their own."""


@dataclass(frozen=True)
class TablePart:
    """Events of consecutive agents of a table in the driver's memory; Ray's object store keeps a copy of them."""

    X: FloatArray
    y: FloatArray
    weight: FloatArray
    offset: FloatArray | None
    event_start: IndexArray
    index: EntityIndex

    @classmethod
    def of(cls, hierarchy: Hierarchy, agents: range) -> TablePart:
        """The part of the given agents."""
        start = hierarchy.index.agent_start
        events = hierarchy.events.of_entities(int(start[agents.start]), int(start[agents.stop]))
        return cls(
            events.X, events.y, events.weight, events.offset, events.event_start, part_of(hierarchy.index, agents)
        )

    def load(self) -> Hierarchy:
        # copies: arrays in the object store are read-only, and kernels are compiled for writable ones
        offset = None if self.offset is None else self.offset.copy()
        X = self.X.copy()
        y = self.y.copy()
        weight = self.weight.copy()
        return Hierarchy(X, y, weight, self.event_start.copy(), own_copy(self.index), offset)


def part_of(index: EntityIndex, agents: range) -> EntityIndex:
    """The index of consecutive agents alone."""
    pairs = slice(*index.agent_start[[agents.start, agents.stop]].tolist())
    entities, entity_of = np.unique(index.entity_of[pairs], return_inverse=True)
    return EntityIndex(
        _chosen(index.agents, np.arange(agents.start, agents.stop)),
        _chosen(index.entities, entities),
        index.agent_of[pairs] - agents.start,
        entity_of.astype(np.int64),
    )


def _chosen(ids: Ids, positions: IndexArray) -> Ids:
    return Ids(ids.texts.take(positions), NO_ROWS, None if ids.own is None else ids.own[positions])


def own_copy(index: EntityIndex) -> EntityIndex:
    """The same index in arrays of its own: those in Ray's object store are read-only, and kernels need others."""
    agents, entities = (_with_own_texts(ids) for ids in (index.agents, index.entities))
    return EntityIndex(agents, entities, index.agent_of.copy(), index.entity_of.copy())


def _with_own_texts(ids: Ids) -> Ids:
    return replace(ids, texts=Texts(ids.texts.data.copy(), ids.texts.offsets.copy()))


def share_out(agent_start: IndexArray, n_workers: int) -> list[range]:
    """Consecutive agents for each of at most `n_workers` workers, with about equally many entities.

    A worker has whole blocks of PAGE_SIZE agents. Only if there are few agents, and fewer blocks than workers, several
    workers share a block.
    """
    n_agents = len(agent_start) - 1
    sizes = np.diff(agent_start).astype(np.float64)
    blocks = [*range(0, n_agents, PAGE_SIZE), n_agents]
    n_blocks = len(blocks) - 1
    if n_blocks >= n_workers or n_agents > MOST_SINGLE:
        cuts = balanced(np.add.reduceat(sizes, blocks[:-1]), n_workers)
        return [range(blocks[first], blocks[last]) for first, last in pairwise(cuts)]
    ranges = []
    for number, (first, last) in enumerate(pairwise(blocks)):
        n_own = n_workers // n_blocks + (number < n_workers % n_blocks)
        ranges += [range(first + a, first + b) for a, b in pairwise(balanced(sizes[first:last], n_own))]
    return ranges


def balanced(sizes: NDArray[np.float64], n_groups: int) -> list[int]:
    """Bounds of at most n_groups consecutive groups, none of them empty, of about the same size in total."""
    n_groups = min(n_groups, len(sizes))
    ends = np.cumsum(sizes)
    bounds = [0]
    for number in range(1, n_groups):
        wanted = int(np.searchsorted(ends, ends[-1] * number / n_groups)) + 1
        # one for each group before and behind
        bounds.append(min(max(wanted, bounds[-1] + 1), len(sizes) - n_groups + number))
    return [*bounds, len(sizes)]
