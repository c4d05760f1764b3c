"""The hierarchy of a table: agents, their entities, and the events of each."""

from __future__ import annotations

import numpy as np
import pytest

from fedhlcr.data.hierarchy import build_hierarchy
from fedhlcr.data.ids import read_ids


def test_entities_are_pairs_of_ids():
    X, y = np.arange(6.0)[:, None], np.arange(6.0)
    hierarchy = build_hierarchy(X, y, np.ones(6), ["u", "v", "u", "v", "u", "u"], [2, 2, 10, 2, 2, 10])
    assert hierarchy.index.n_entities == 3
    # agents and entities in natural order, events of an entity in the order they came
    assert list(zip(hierarchy.index.agent_of, hierarchy.index.entity_ids, strict=True)) == [(0, 2), (0, 10), (1, 2)]
    assert hierarchy.X[:, 0].tolist() == [0, 4, 2, 5, 1, 3]
    assert hierarchy.event_start.tolist() == [0, 2, 4, 6]


def test_rows_of_weight_zero_are_left_out():
    X, y = np.arange(4.0)[:, None], np.arange(4.0)
    hierarchy = build_hierarchy(X, y, np.array([1.0, 0.0, 2.0, 1.0]), None, ["a", "b", "a", "c"])
    assert hierarchy.index.n_entities == 2
    assert hierarchy.weight.tolist() == [1.0, 2.0, 1.0]


@pytest.mark.parametrize("order", ["sorted", "shuffled"])
@pytest.mark.parametrize("layout", ["C", "F"])
def test_sort_equals_a_plain_sort_for_any_number_of_threads(order, layout):
    rng = np.random.default_rng(3)
    n = 3000
    agent, entity = rng.integers(-20, 20, size=n), rng.integers(0, 9, size=n)
    if order == "sorted":
        rows = np.lexsort((entity, agent))
        agent, entity = agent[rows], entity[rows]
    X, y = np.array(rng.normal(size=(n, 3)), order=layout), rng.normal(size=n)
    weight, offset = rng.integers(0, 3, size=n).astype(float), rng.normal(size=n)
    kept = np.flatnonzero(weight > 0)
    rows = kept[np.lexsort((entity[kept], agent[kept]))]
    pairs, start = np.unique(np.column_stack([agent, entity])[rows], axis=0, return_index=True)
    for n_threads in (1, 2, 3):
        built = build_hierarchy(X, y, weight, agent, entity, offset, n_threads)
        for own, given in ((built.X, X), (built.y, y), (built.weight, weight), (built.offset, offset)):
            assert np.array_equal(own, given[rows])
        assert built.event_start.tolist() == [*start, len(rows)]
        assert built.index.agent_ids[built.index.agent_of].tolist() == pairs[:, 0].tolist()
        assert built.index.entity_ids.tolist() == pairs[:, 1].tolist()


def test_sorted_table_is_not_copied():
    X, y = np.arange(4.0)[:, None], np.arange(4.0)
    hierarchy = build_hierarchy(X, y, np.ones(4), [1, 1, 2, 2], [1, 1, 0, 5])
    assert hierarchy.X is X
    assert hierarchy.y is y


def test_find_returns_pairs_or_unknown():
    X, y = np.zeros((3, 1)), np.zeros(3)
    index = build_hierarchy(X, y, np.ones(3), ["u", "u", "v"], [1, 2, 2]).index
    agents = index.find_agents(read_ids(["v", "u", "w", "v"], "agent", 4))
    assert agents.tolist() == [1, 0, -1, 1]
    assert index.find_entities(agents, read_ids([2, 2, 2, 1], "entity", 4)).tolist() == [2, 1, -1, -1]


def test_union_has_the_pairs_of_both():
    X, y = np.zeros((3, 1)), np.zeros(3)
    a = build_hierarchy(X, y, np.ones(3), ["u", "u", "w"], [1, 3, 1]).index
    b = build_hierarchy(X, y, np.ones(3), ["u", "v", "w"], [2, 1, 1]).index
    both, of_a, of_b = a.union(b)
    names = list(zip(both.agent_ids[both.agent_of], both.entity_ids, strict=True))
    assert names == [("u", 1), ("u", 2), ("u", 3), ("v", 1), ("w", 1)]
    assert (of_a.tolist(), of_b.tolist()) == ([0, 2, 4], [1, 3, 4])
