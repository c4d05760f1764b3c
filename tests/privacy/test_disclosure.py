"""Agents with few events or entities do not take part."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from fedhlcr import FedHLCRRegressor
from fedhlcr.engines.in_process import InProcessEngine
from fedhlcr.exceptions import DataWarning, DisclosureError
from fedhlcr.federation import Agent
from fedhlcr.federation.group import AgentGroup
from fedhlcr.privacy.disclosure import DisclosureRule
from tests.federations import hierarchy_of, server_for
from tests.problems import PAPER

N_FEATURES = 3


def agent_with(n_events, n_entities, **params):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_events, N_FEATURES))
    return Agent("a", X, X.sum(axis=1), np.arange(n_events) % n_entities, **params)


def test_default_is_three_times_features_plus_two_and_five_entities():
    rule = DisclosureRule()
    assert rule.least_events(N_FEATURES) == 15
    joins = rule.joins(np.array([15, 14, 100, 0]), np.array([5, 5, 4, 0]), N_FEATURES)
    assert joins.tolist() == [True, False, False, True]


@pytest.mark.parametrize(
    ("n_events", "n_entities", "reason"),
    [
        (14, 5, "14 events, fewer than 15:"),
        (40, 4, "4 entities, fewer than 5:"),
        (1, 1, "1 event, fewer than 15 and 1 entity, fewer than 5:"),
    ],
)
def test_a_small_agent_refuses_to_answer(n_events, n_entities, reason):
    broadcast = server_for(N_FEATURES).open_round(["a"]).broadcast
    with pytest.raises(DisclosureError, match=reason):
        agent_with(n_events, n_entities).round(broadcast)
    assert agent_with(n_events, n_entities, disclosure=None).round(broadcast).agent == "a"
    own = DisclosureRule(min_events=n_events, min_entities=n_entities)
    assert agent_with(n_events, n_entities, disclosure=own).round(broadcast).agent == "a"


def test_an_agent_that_has_enough_answers():
    broadcast = server_for(N_FEATURES).open_round(["a"]).broadcast
    assert agent_with(15, 5).round(broadcast).agent == "a"


def test_a_loaded_agent_keeps_to_the_rule(tmp_path):
    broadcast = server_for(N_FEATURES).open_round(["a"]).broadcast
    agent_with(10, 2).save(tmp_path / "agent")
    with pytest.raises(DisclosureError, match="10 events"):
        Agent.load(tmp_path / "agent").round(broadcast)
    assert Agent.load(tmp_path / "agent", disclosure=None).round(broadcast).agent == "a"


def test_of_a_device_only_agents_that_join_answer(small):
    table, _ = small
    group = AgentGroup(hierarchy_of(table), disclosure=DisclosureRule())
    n_entities = np.array([len(np.unique(table.entity[table.agent == agent])) for agent in range(40)])
    assert 0 < (n_entities >= 5).sum() < 40
    np.testing.assert_array_equal(group.joins, (n_entities >= 5) & (np.bincount(table.agent) >= 15))
    call = server_for(N_FEATURES).open_round(group.names)
    answers = group.answer(call.broadcast, np.arange(40), np.full(40, -1))
    assert answers.agents == [name for name, joins in zip(group.names, group.joins, strict=True) if joins]


def test_a_simulation_leaves_agents_out_if_asked_to(small):
    table, _ = small
    ids = {"agent": table.agent, "entity": table.entity}
    engine = partial(InProcessEngine.from_hierarchy, disclosure=DisclosureRule())
    with pytest.warns(DataWarning, match="of 40 agents did not take part: an agent needs at least 15 events and 5"):
        model = FedHLCRRegressor(rounds=3, engine=engine, **PAPER).fit(table.X, table.y, **ids)
    assert 0 < model.history_["n_accepted"][-1] < 40
    assert np.isfinite(model.predict(table.X, **ids)).all(), "those left out get predictions"
    everyone = FedHLCRRegressor(rounds=3, **PAPER).fit(table.X, table.y, **ids)
    assert everyone.history_["n_accepted"][-1] == 40
    nobody = partial(InProcessEngine.from_hierarchy, disclosure=DisclosureRule(min_events=10**6))
    with pytest.raises(DisclosureError, match="no agent takes part: each needs 1,000,000 events"):
        FedHLCRRegressor(rounds=3, engine=nobody, **PAPER).fit(table.X, table.y, **ids)


@pytest.mark.parametrize("wrong", [{"min_events": -1}, {"min_entities": 2.5}, {"min_entities": None}])
def test_the_rule_wants_whole_numbers(wrong):
    with pytest.raises(ValueError, match="must be a whole number of at least 0"):
        DisclosureRule(**wrong)
