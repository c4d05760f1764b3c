"""The algebra of agents' sums: stack, take, replace, total, and their records."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhlcr.exceptions import CodecError
from fedhlcr.federation.sums import AgentSums
from fedhlcr.storage.reader import checkpoint_reader
from tests.agent_sums import SCHEMA, agent_sums, assert_same_sums, assert_same_total

N_CLUSTERS = 4
SEEDS = st.integers(0, 2**32 - 1)
SIZES = st.integers(0, 6)


@given(SIZES, SIZES, SEEDS)
def test_taking_the_parts_of_a_stack_gives_them_back(n_first, n_second, seed):
    first, second = agent_sums(n_first, N_CLUSTERS, seed), agent_sums(n_second, N_CLUSTERS, seed + 1)
    both = AgentSums.stack([first, second])
    assert len(both) == n_first + n_second
    assert_same_sums(both.take(np.arange(n_first)), first)
    assert_same_sums(both.take(n_first + np.arange(n_second)), second)


@given(SIZES, SIZES, SIZES, SEEDS)
def test_stacking_is_associative(n_first, n_second, n_third, seed):
    parts = [agent_sums(n, N_CLUSTERS, seed + i) for i, n in enumerate((n_first, n_second, n_third))]
    left = AgentSums.stack([AgentSums.stack(parts[:2]), parts[2]])
    right = AgentSums.stack([parts[0], AgentSums.stack(parts[1:])])
    assert_same_sums(left, right)


@given(st.data(), SEEDS)
def test_replace_changes_the_given_agents_only(data, seed):
    n_agents = data.draw(st.integers(1, 6))
    changed = data.draw(st.lists(st.integers(0, n_agents - 1), unique=True).map(sorted))
    old, new = agent_sums(n_agents, N_CLUSTERS, seed), agent_sums(len(changed), N_CLUSTERS, seed + 1)
    agents = np.array(changed, dtype=np.int64)
    replaced = old.replace(agents, new)
    others = np.setdiff1d(np.arange(n_agents), agents)
    assert_same_sums(replaced.take(agents), new)
    assert_same_sums(replaced.take(others), old.take(others))


@given(st.integers(1, 6), SEEDS)
def test_total_does_not_depend_on_the_order_of_agents(n_agents, seed):
    sums = agent_sums(n_agents, N_CLUSTERS, seed)
    order = np.random.default_rng(seed).permutation(n_agents)
    assert_same_total(sums.total(N_CLUSTERS), sums.take(order).total(N_CLUSTERS))


@given(SIZES, SIZES, SEEDS)
def test_total_of_a_stack_is_the_sum_of_totals(n_first, n_second, seed):
    first, second = agent_sums(n_first, N_CLUSTERS, seed), agent_sums(n_second, N_CLUSTERS, seed + 1)
    both = AgentSums.stack([first, second]).total(N_CLUSTERS)
    assert_same_total(both, first.total(N_CLUSTERS) + second.total(N_CLUSTERS))


@given(SIZES, SEEDS)
def test_records_round_trip(n_agents, seed):
    sums = agent_sums(n_agents, N_CLUSTERS, seed)
    assert_same_sums(AgentSums.read(checkpoint_reader(sums.to_record()), SCHEMA, N_CLUSTERS), sums)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("sums_row_start", lambda a: a[::-1].copy()),
        ("sums_row_start", lambda a: a + 1),
        ("sums_clusters", lambda a: a + np.int32(N_CLUSTERS)),
        ("sums_clusters", lambda a: a - np.int32(N_CLUSTERS)),
        ("sums_entity_counts", lambda a: -a),
        ("sums_table_counts", lambda a: a[1:]),
        ("sums_grams", lambda a: a[:, 1:].copy()),
        ("sums_extra", lambda a: a * np.nan),
        ("sums_scalars", lambda a: a.astype(np.float32)),
    ],
)
def test_inconsistent_records_are_refused(field, change):
    record = agent_sums(5, N_CLUSTERS, seed=3).to_record()
    with pytest.raises(CodecError, match=rf"`{field}` is missing or has a wrong value"):
        AgentSums.read(checkpoint_reader({**record, field: change(record[field])}), SCHEMA, N_CLUSTERS)
