"""How agents are shared out: everybody once, in order, in whole blocks if there are enough of them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhlcr.datasets import make_hlcr
from fedhlcr.engines.ray.cluster import largest_share, places
from fedhlcr.engines.ray.parts import MOST_SINGLE, TablePart, balanced, share_out
from fedhlcr.federation.shard import AgentShard
from fedhlcr.federation.sums import PAGE_SIZE
from tests.federations import hierarchy_of


def starts(sizes):
    return np.concatenate([[0], np.cumsum(sizes)])


@pytest.mark.parametrize("n_agents", [1, 2, 5, PAGE_SIZE, PAGE_SIZE + 1, 3 * PAGE_SIZE + 5, MOST_SINGLE + PAGE_SIZE])
@pytest.mark.parametrize("n_workers", [1, 2, 3, 4, 7, 40])
def test_every_agent_has_one_worker(n_agents, n_workers):
    ranges = share_out(starts(np.random.default_rng(1).integers(0, 9, size=n_agents)), n_workers)
    assert [agent for own in ranges for agent in own] == list(range(n_agents))
    assert len(ranges) <= n_workers
    assert all(len(own) for own in ranges)
    blocks_of_agents = -(-n_agents // PAGE_SIZE)
    if blocks_of_agents >= n_workers or n_agents > MOST_SINGLE:
        assert all(own.start % PAGE_SIZE == 0 for own in ranges), "no block is shared"
    else:
        assert len(ranges) == min(n_workers, n_agents) or blocks_of_agents > 1


@given(st.lists(st.integers(0, 9).map(float), min_size=1, max_size=5), st.integers(1, 20), st.integers(1, 4))
def test_all_workers_find_a_place_on_one_node_each(cpus, n_workers, threads):
    share = largest_share(cpus, n_workers, threads)
    assert share <= threads
    assert share < 1.0 or share == int(share), "Ray reserves whole CPUs, or parts of one"
    assert share == 0.0 if not any(cpus) else places(cpus, share) >= n_workers


@pytest.mark.parametrize(
    ("cpus", "n_workers", "threads", "share"),
    [
        ([4.0], 4, 1, 1.0),
        ([4.0, 4.0, 4.0], 3, 3, 3.0),
        ([4.0, 4.0, 4.0], 4, 3, 2.0),  # not 3: each node has a place for one such worker only
        ([4.0, 4.0], 9, 1, 0.8),
        ([2.0], 8, 1, 0.25),
    ],
)
def test_workers_reserve_what_all_can_have(cpus, n_workers, threads, share):
    assert largest_share(cpus, n_workers, threads) == pytest.approx(share)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.integers(1, 12))
def test_groups_are_not_empty_and_about_equal(sizes, n_groups):
    bounds = balanced(np.array(sizes, dtype=float), n_groups)
    assert bounds[0] == 0
    assert bounds[-1] == len(sizes)
    groups = [sizes[first:last] for first, last in pairwise(bounds)]
    assert all(groups)
    assert len(groups) == min(n_groups, len(sizes))


def test_equal_agents_are_shared_equally():
    assert balanced(np.ones(12), 4) == [0, 3, 6, 9, 12]
    assert [len(own) for own in share_out(np.arange(0, 8 * PAGE_SIZE + 1), 4)] == [2 * PAGE_SIZE] * 4


def test_a_part_has_the_matrices_of_the_whole():
    table, _ = make_hlcr(20, 3, 4, 2, 2, 0.5, random_state=2)
    hierarchy = hierarchy_of(table)
    whole = AgentShard.from_hierarchy(hierarchy)
    for agents in share_out(hierarchy.index.agent_start, 3):
        part = AgentShard.from_hierarchy(TablePart.of(hierarchy, agents).load())
        entities = slice(*whole.agent_start[[agents.start, agents.stop]])
        assert part.agents == whole.agents[agents.start : agents.stop]
        for name in ("grams", "entity_keys"):
            np.testing.assert_array_equal(getattr(part, name), getattr(whole, name)[entities])
        np.testing.assert_array_equal(part.shifts, whole.shifts[agents.start : agents.stop])
