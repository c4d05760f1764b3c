"""The ledger: its total is always the sum, from scratch, of every agent's last contribution."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhlcr.federation.ledger import Ledger
from fedhlcr.federation.sums import PAGE_SIZE, AgentSums
from fedhlcr.storage.reader import checkpoint_reader
from tests.agent_sums import SCHEMA, agent_sums, assert_same_sums, assert_same_total

N_CLUSTERS = 4


def entry(sums: AgentSums, agent: int) -> AgentSums:
    return sums.take(np.array([agent]))


# an action: the agents that contribute, or one agent that withdraws
ACTIONS = st.lists(st.one_of(st.lists(st.integers(0, 6), unique=True, min_size=1), st.integers(0, 6)), max_size=8)


@given(ACTIONS, st.integers(0, 2**32 - 1))
def test_total_is_the_sum_of_last_contributions(actions, seed):
    ledger, last = Ledger(N_CLUSTERS, SCHEMA), {agent: AgentSums.empty(SCHEMA, 1) for agent in range(7)}
    ledger.grow(7)
    for number, action in enumerate(actions):
        if isinstance(action, int):
            ledger.remove(action)
            last[action] = AgentSums.empty(SCHEMA, 1)
        else:
            sums = agent_sums(len(action), N_CLUSTERS, seed + number)
            ledger.replace(np.array(action), sums)
            last |= {agent: entry(sums, position) for position, agent in enumerate(action)}
        assert_same_total(ledger.total(), AgentSums.stack(list(last.values())).total(N_CLUSTERS))
    assert ledger.is_empty == all(len(sums.clusters) == 0 for sums in last.values())


@pytest.mark.parametrize("n_agents", [1, PAGE_SIZE, PAGE_SIZE + 1, 2 * PAGE_SIZE + 7])
def test_agents_on_several_pages(n_agents):
    ledger, sums = Ledger(N_CLUSTERS, SCHEMA), agent_sums(n_agents, N_CLUSTERS, seed=1)
    ledger.grow(n_agents)
    assert len(ledger) == n_agents
    order = np.random.default_rng(0).permutation(n_agents)
    ledger.replace(order, sums.take(order))
    assert [len(page) for page in ledger.pages[:-1]] == [PAGE_SIZE] * (len(ledger.pages) - 1)
    assert_same_sums(AgentSums.stack(ledger.pages), sums)
    assert_same_total(ledger.total(), sums.total(N_CLUSTERS))
    ledger.remove(n_agents - 1)
    assert_same_total(ledger.total(), sums.take(np.arange(n_agents - 1)).total(N_CLUSTERS))


def test_growing_keeps_the_contributions():
    ledger, sums = Ledger(N_CLUSTERS, SCHEMA), agent_sums(3, N_CLUSTERS, seed=2)
    ledger.grow(3)
    ledger.replace(np.arange(3), sums)
    ledger.grow(PAGE_SIZE + 3)
    assert len(ledger) == PAGE_SIZE + 3
    assert_same_total(ledger.total(), sums.total(N_CLUSTERS))


@pytest.mark.parametrize("n_agents", [0, 5, PAGE_SIZE + 2])
def test_a_cleared_ledger_is_as_new(n_agents):
    ledger, new = Ledger(N_CLUSTERS, SCHEMA), Ledger(N_CLUSTERS, SCHEMA)
    for one in (ledger, new):
        one.grow(n_agents)
    ledger.replace(np.arange(n_agents), agent_sums(n_agents, N_CLUSTERS, seed=5))
    # the totals of its pages are kept from here on
    ledger.total()
    ledger.clear()
    assert ledger.is_empty
    assert len(ledger) == n_agents
    assert_same_total(ledger.total(), new.total())
    sums = agent_sums(n_agents, N_CLUSTERS, seed=6)
    ledger.replace(np.arange(n_agents), sums)
    assert_same_total(ledger.total(), sums.total(N_CLUSTERS))


@pytest.mark.parametrize("n_agents", [0, 5, PAGE_SIZE + 2])
def test_records_round_trip(n_agents):
    ledger, again = Ledger(N_CLUSTERS, SCHEMA), Ledger(N_CLUSTERS, SCHEMA)
    ledger.grow(n_agents)
    ledger.replace(np.arange(n_agents), agent_sums(n_agents, N_CLUSTERS, seed=4))
    again.restore(checkpoint_reader(ledger.to_record()), n_agents)
    assert len(again) == n_agents
    assert_same_total(again.total(), ledger.total())
