"""What contributions pass through before they leave their agents."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from fedhlcr import FedHLCRRegressor
from fedhlcr.datasets import make_hlcr
from fedhlcr.engines.in_process import InProcessEngine
from fedhlcr.exceptions import DisclosureError
from fedhlcr.federation import Agent, AgentShard, ReplyLimits
from fedhlcr.federation.mods import with_mods
from fedhlcr.federation.run import run_round
from tests.federations import hierarchy_of, in_process, run_rounds, server_for

TABLE, _ = make_hlcr(12, 3, 5, 2, 2, 0.4, random_state=3)
# sums that a mod changes do not add up to those of the survey
ANY_CHANGE = ReplyLimits(max_change=np.inf)


class Witness:
    """Lets everything pass, and remembers which agents answered in which round."""

    def __init__(self):
        self.seen = {}

    def __call__(self, broadcast, answer):
        contributions = answer(broadcast)
        assert contributions.round == broadcast.round
        n_events = contributions.sums.by_agent(broadcast.layout.n_events(contributions.sums.grams))
        self.seen.setdefault(broadcast.round, {}).update(zip(contributions.agents, n_events.tolist(), strict=True))
        return contributions


def at_least(n_events):
    """A disclosure check: agents with fewer events stay silent."""

    def mod(broadcast, answer):
        contributions = answer(broadcast)
        held = contributions.sums.by_agent(broadcast.layout.n_events(contributions.sums.grams))
        return contributions.take(np.flatnonzero(held >= n_events))

    return mod


def silent_in(*rounds):
    """Nobody answers in these rounds; their labels were drawn all the same."""

    def mod(broadcast, answer):
        contributions = answer(broadcast)
        if broadcast.round in rounds:
            raise DisclosureError("not in this round")
        return contributions

    return mod


def doubled(broadcast, answer):
    """Sends every matrix twice over."""
    contributions = answer(broadcast)
    blocks = {name: 2.0 * block for name, block in contributions.sums.blocks.items()}
    return replace(contributions, sums=replace(contributions.sums, blocks=blocks))


def engine_of(table, *mods, **params):
    return InProcessEngine.from_hierarchy(
        hierarchy_of(table), **{"failure_rate": 0.0, "seed": 0, "n_threads": 1, **params}, mods=mods
    )


def events_by_agent(table):
    names, counts = np.unique(table.agent, return_counts=True)
    return dict(zip(names.astype(str), counts.tolist(), strict=True))


def test_the_first_mod_is_the_outermost():
    order = []

    def named(name):
        def mod(broadcast, answer):
            order.append(f"{name} asks")
            contributions = answer(broadcast)
            order.append(f"{name} sends")
            return contributions

        return mod

    answer = with_mods([named("first"), named("last")], lambda broadcast: order.append(broadcast))
    answer("draw labels")
    assert order == ["first asks", "last asks", "draw labels", "last sends", "first sends"]


def test_a_mod_sees_which_agents_answer_and_what():
    witness = Witness()
    server, engine = server_for(2, participation=0.5, seed=1), engine_of(TABLE, witness)
    run_rounds(server, engine, 8)
    held = events_by_agent(TABLE)
    for record, row in zip(server.history.records, range(len(server.history.records)), strict=True):
        names = {server.registry.names[i] for i in server.history.participants(row)}
        assert set(witness.seen[record.round]) == names
        assert witness.seen[record.round] == {name: held[name] for name in names}


def test_a_mod_changes_what_is_sent():
    server, plain = server_for(2, seed=1, limits=ANY_CHANGE), server_for(2, seed=1)
    run_rounds(server, engine_of(TABLE, doubled), 3)
    run_rounds(plain, engine_of(TABLE), 3)
    assert plain.rule.account.total().grams[:, 0].sum() == pytest.approx(len(TABLE))
    assert server.rule.account.total().grams[:, 0].sum() == pytest.approx(2 * len(TABLE))


def test_order_matters_to_what_leaves():
    """A check inside of the mod that doubles sees the true events; outside of it, twice as many."""
    fewest = min(events_by_agent(TABLE).values()) + 1
    heard = []
    for mods in ((doubled, at_least(fewest)), (at_least(fewest), doubled)):
        server = server_for(2, seed=1, limits=ANY_CHANGE)
        run_rounds(server, engine_of(TABLE, *mods), 3)
        heard.append(server.history.records[-1].n_accepted)
    assert heard[0] < heard[1] == 12


@pytest.mark.parametrize("failure_rate", [0.0, 0.4])
def test_agents_that_a_check_keeps_silent_are_not_in_the_model(failure_rate):
    """The run is that of a table without them; faults hit the same agents."""
    held, limit = events_by_agent(TABLE), int(np.median(list(events_by_agent(TABLE).values())))
    quiet = {name for name, n_events in held.items() if n_events < limit}
    assert 0 < len(quiet) < len(held)
    server, engine = server_for(2, seed=1), engine_of(TABLE, at_least(limit), failure_rate=failure_rate)
    run_rounds(server, engine, 30)
    rows = range(len(server.history.records))
    assert {server.registry.names[i] for row in rows for i in server.history.participants(row)} == held.keys() - quiet
    if failure_rate == 0.0:
        without, others = server_for(2, seed=1), in_process(TABLE[[str(name) not in quiet for name in TABLE.agent]])
        while without.round < server.round:
            run_round(without, others)
        np.testing.assert_array_equal(server.model().draws.coef, without.model().draws.coef)


def test_when_all_are_silent_the_round_is_empty_and_their_labels_are_given_up():
    server, engine = server_for(2, seed=1), engine_of(TABLE, silent_in(3))
    run_rounds(server, engine, 3)
    before = server.rule.account.total()
    accepted = engine.everyone.labels_at(server.registry.accepted_round)
    run_rounds(server, engine, 1)
    assert server.history.records[-1].n_accepted == 0
    np.testing.assert_array_equal(server.rule.account.total().grams, before.grams)
    np.testing.assert_array_equal(engine.everyone.labels_at(server.registry.accepted_round), accepted)
    run_rounds(server, engine, 1)
    assert server.history.records[-1].n_accepted == 12
    np.testing.assert_array_equal(engine.everyone.accepted, accepted)


def test_an_agent_of_its_own_has_mods_and_keeps_them_when_loaded(tmp_path):
    own = TABLE.agent == TABLE.agent[0]
    fields = TABLE.X[own], TABLE.y[own], TABLE.entity[own]
    server, witness = server_for(2), Witness()
    agent = Agent("a", *fields, mods=[witness], disclosure=None)
    broadcast = server.open_round(["a"]).broadcast
    agent.round(broadcast)
    assert witness.seen == {0: {"a": own.sum()}}
    agent.save(tmp_path / "agent")
    with pytest.raises(DisclosureError, match="withholds the agent's contribution"):
        Agent.load(tmp_path / "agent", disclosure=None, mods=[at_least(own.sum() + 1)]).round(broadcast)
    with pytest.raises(DisclosureError, match="not in this round"):
        Agent.load(tmp_path / "agent", disclosure=None, mods=[silent_in(0)]).round(broadcast)
    assert Agent.load(tmp_path / "agent", disclosure=None, mods=[at_least(own.sum())]).round(broadcast).agent == "a"


def test_a_shard_has_mods():
    witness = Witness()
    shard = AgentShard.from_hierarchy(hierarchy_of(TABLE))
    shard.mods = (witness,)
    broadcast = server_for(2).open_round(shard.agents).broadcast
    shard.answer(broadcast, np.array([1, 3]), np.array([-1, -1]))
    assert set(witness.seen[0]) == {shard.agents[1], shard.agents[3]}


def test_mods_that_let_all_pass_change_nothing():
    plain, watched = server_for(2, seed=1, rounds=20), server_for(2, seed=1, rounds=20)
    run_rounds(plain, in_process(TABLE), 20)
    run_rounds(watched, engine_of(TABLE, Witness(), at_least(0)), 20)
    assert watched.to_bytes() == plain.to_bytes()


def test_an_estimator_takes_an_engine_with_mods():
    witness = Witness()
    model = FedHLCRRegressor(rounds=4, engine=partial(InProcessEngine.from_hierarchy, mods=[witness]))
    model.fit(TABLE.X, TABLE.y, agent=TABLE.agent, entity=TABLE.entity)
    assert sorted(witness.seen) == [0, 1, 2, 3, 4]


def test_a_flower_node_has_mods(tmp_path, caplog, monkeypatch):
    pytest.importorskip("flwr", reason="the flower extra is not installed")
    from fedhlcr.engines.flower import client_app
    from tests.flower_grid import local_nodes, run_app

    monkeypatch.setattr(client_app, "log_through_flower", lambda: None)
    nodes, witness = local_nodes(tmp_path, TABLE), Witness()
    nodes[101].app = client_app.make_app([witness])
    nodes[102].app = client_app.make_app([silent_in(*range(3, 100))])
    run_app(nodes, tmp_path, rounds=5)
    names = {str(name) for name in np.unique(TABLE.agent)[1::3]}
    assert sorted(witness.seen) == [0, 1, 2, 3, 4, 5]
    assert all(set(seen) == names for seen in witness.seen.values())
    assert "a mod at the node withholds the answer" in caplog.text
