"""Made-up sums of agents, for tests of what stores and adds them."""

from __future__ import annotations

import numpy as np

from fedhlcr.federation.sums import AgentSums
from fedhlcr.model.schema import GRAMS, Block, SumSchema, gram_sums

PACKED = 3
# a second block, so that no test passes for Gram matrices alone
SCHEMA = SumSchema((*gram_sums(PACKED).blocks, Block("extra", 2)), gram_sums(PACKED).scalars)


def agent_sums(n_agents: int, n_clusters: int, seed: int) -> AgentSums:
    """Sums of agents that each occupy some of the clusters, or none.

    All numbers are small and whole, so that adding them in any order gives the same digits.
    """
    rng = np.random.default_rng(seed)
    clusters = [np.flatnonzero(rng.random(n_clusters) < 0.5) for _ in range(n_agents)]
    row_start = np.concatenate([[0], np.cumsum([len(own) for own in clusters])]).astype(np.int64)
    n_rows = int(row_start[-1])
    entity_counts = rng.integers(1, 9, n_rows).astype(np.int32)
    return AgentSums(
        SCHEMA,
        row_start,
        np.concatenate([np.empty(0, dtype=np.int32), *clusters]).astype(np.int32),
        entity_counts,
        rng.integers(1, entity_counts + 1).astype(np.int32),
        {GRAMS: whole(rng, (n_rows, PACKED)), "extra": whole(rng, (n_rows, 2))},
        whole(rng, (n_agents, len(SCHEMA.scalars))),
    )


def whole(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.integers(-50, 50, shape).astype(np.float64)


def assert_same_sums(one: AgentSums, other: AgentSums) -> None:
    ours, theirs = one.to_record(), other.to_record()
    assert list(ours) == list(theirs)
    for name, value in ours.items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)


def assert_same_total(one, other) -> None:
    """Of two `ClusterSums`."""
    assert one.scalars == other.scalars
    np.testing.assert_array_equal(one.entity_counts, other.entity_counts)
    np.testing.assert_array_equal(one.table_counts, other.table_counts)
    assert list(one.blocks) == list(other.blocks)
    for name, block in one.blocks.items():
        np.testing.assert_array_equal(block, other.blocks[name], err_msg=name)
