"""The order of a table's rows by agent and entity, and the table in that order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.threads import Blocks, run_blocks
from fedhlcr.data.ids import Ids
from fedhlcr.kernels.sorting import find_pairs, pairs_ascend, sort_rows, take_rows


class RowOrder(NamedTuple):
    """Rows sorted by agent and entity; rows of the same pair keep their order.

    Attributes
    ----------
    rows : (events,) numbers of the rows
    agent_of, entity_of : (pairs,) the codes of each distinct pair, sorted by both
    start : (pairs + 1,) the rows of pair p are rows[start[p]:start[p + 1]]
    """

    rows: NDArray[np.int64]
    agent_of: NDArray[np.int64]
    entity_of: NDArray[np.int64]
    start: NDArray[np.int64]


def sort_by_pair(agents: Ids, entities: Ids, rows: NDArray[np.int64]) -> RowOrder:
    """Sort `rows`, which ascend, by the codes of both columns."""
    if not pairs_ascend(agents.codes, entities.codes):
        by_entity = np.empty_like(rows)
        by_both = np.empty_like(rows)
        sort_rows(entities.codes, rows, np.empty(len(entities.texts) + 1, dtype=np.int64), by_entity)
        sort_rows(agents.codes, by_entity, np.empty(len(agents.texts) + 1, dtype=np.int64), by_both)
        rows = by_both
    agent_of, entity_of, start = (np.empty(len(rows) + 1, dtype=np.int64) for _ in range(3))
    n_pairs = find_pairs(agents.codes, entities.codes, rows, agent_of, entity_of, start)
    # copies: nobody must keep a number for each row in memory
    return RowOrder(rows, agent_of[:n_pairs].copy(), entity_of[:n_pairs].copy(), start[: n_pairs + 1].copy())


def gathered(table: FloatArray, rows: NDArray[np.int64], n_threads: int = 1) -> FloatArray:
    """table[rows] for a table (rows, columns), in blocks on threads."""
    out = np.empty((len(rows), table.shape[1]))
    blocks = Blocks.even(len(rows))

    def take(block: int) -> None:
        first, last = blocks.range(block)
        take_rows(table, rows[first:last], out[first:last])

    run_blocks(take, len(blocks), n_threads)
    return out
