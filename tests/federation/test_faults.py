"""Whatever happens to agents and replies: the sums are those of the ledger, and the ledger is what agents hold."""

from __future__ import annotations

import cProfile
import logging
import pstats

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedhlcr.datasets import make_hlcr
from fedhlcr.federation.agent import Agent
from fedhlcr.federation.messages import Broadcast, Contribution
from fedhlcr.federation.open_round import OpenRound
from fedhlcr.federation.run import run_round
from fedhlcr.federation.server import Server
from fedhlcr.federation.shard import AgentShard
from fedhlcr.model.schema import Stage
from tests.federations import OneByOneEngine, agents_of, in_process, run_rounds, server_for
from tests.problems import PAPER

TABLE, _ = make_hlcr(8, 3, 4, 2, 2, 0.5, random_state=7)
FATES = ("fine", "absent", "lost", "late", "twice", "garbled")


class FaultyEngine(OneByOneEngine):
    """Plays a script: a fate for each agent that is asked. Late replies come with the next round."""

    def __init__(self, agents, fates):
        super().__init__(agents)
        self.fates = fates
        self.late = []

    def deliver(self, call):
        late, self.late = self.late, []
        yield from late
        for name, acknowledged in zip(call.agents, call.acknowledged, strict=True):
            fate = next(self.fates)
            if fate == "absent":
                continue
            letter = Broadcast.from_bytes(call.broadcast.acknowledging(int(acknowledged)).to_bytes())
            reply = self.by_name[name].round(letter).to_bytes()
            if fate == "late":
                self.late.append(reply)
            elif fate == "garbled":
                yield reply[:-7] + b"garbled"
            elif fate != "lost":
                yield from [reply] * (2 if fate == "twice" else 1)


def held_by(agent: Agent, acknowledged: int, n_clusters: int):
    """Counts and matrices by original cluster of the labels an agent would go on from."""
    shard = agent.shard
    labels = shard.labels_at(np.array([acknowledged]))
    grams = np.zeros((n_clusters, shard.grams.shape[1]))
    if (labels >= 0).all():
        np.add.at(grams, labels, shard.grams)
    return np.bincount(labels[labels >= 0], minlength=n_clusters), grams


def check_books(server: Server, agents: dict[str, Agent]) -> None:
    """The total is the sum of the entries, and each entry is what its agent holds."""
    n_clusters = len(server.rule.cluster_of)
    ledger = server.rule.account
    total, entries = ledger.total(), [page.take(np.array([i])) for page in ledger.pages for i in range(len(page))]
    np.testing.assert_array_equal(total.entity_counts, sum(e.total(n_clusters).entity_counts for e in entries))
    np.testing.assert_array_equal(total.table_counts, sum(e.total(n_clusters).table_counts for e in entries))
    for name, block in total.blocks.items():
        together = sum(e.total(n_clusters).blocks[name] for e in entries)
        np.testing.assert_allclose(block, together, rtol=1e-12, atol=1e-9)
    for position, name in enumerate(server.registry.names):
        counts, grams = held_by(agents[name], int(server.registry.accepted_round[position]), n_clusters)
        entry = entries[position].total(n_clusters)
        np.testing.assert_array_equal(entry.entity_counts, counts)
        if "events" in entry.scalars:
            # with effects, the matrices of an entry depend on effects that nobody keeps
            assert entry.scalars["events"] == pytest.approx(grams[:, 0].sum())
        else:
            np.testing.assert_allclose(entry.grams, grams, rtol=1e-9, atol=1e-9)


def play(fates, incidents, n_rounds=25, participation=0.6, seed=0, model=PAPER):
    """A federation under a script of faults; `incidents` between rounds: leave, restart, join."""
    agents = agents_of(TABLE)
    present, to_come = agents[:5], agents[5:]
    everyone = {agent.name: agent for agent in agents}
    params = {"seed": seed, "max_clusters": 6, "participation": participation, "rounds": n_rounds, "patience": None}
    server = server_for(2, **params, **model)
    engine = FaultyEngine(present, fates)
    while server.rule is None:
        run_round(server, engine)
    for incident in incidents:
        if server.finished:
            break
        if incident == "join" and to_come:
            newcomer = to_come.pop()
            engine.by_name[newcomer.name] = newcomer
        elif incident == "leave" and len(engine.by_name) > 2:
            name, _ = engine.by_name.popitem()
            server.forget(name)
        elif incident == "restart":
            server = Server.from_bytes(server.settings, server.to_bytes())
        run_round(server, engine)
        check_books(server, everyone)
    return server


SCRIPT = st.lists(st.sampled_from(FATES), min_size=1, max_size=40)
INCIDENTS = st.lists(st.sampled_from(["nothing", "nothing", "nothing", "join", "leave", "restart"]), max_size=25)


def endless(script):
    """The script again and again, and now and then all is well, so that a survey succeeds at last."""
    while True:
        yield from script
        yield "fine"


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SCRIPT, INCIDENTS, st.integers(0, 5))
def test_the_books_balance_after_any_faults(script, incidents, seed):
    logging.disable(logging.WARNING)
    try:
        play(endless(script), incidents, seed=seed)
    finally:
        logging.disable(logging.NOTSET)


def random_fates(seed):
    rng = np.random.default_rng(seed)
    while True:
        yield FATES[rng.integers(len(FATES))]


@pytest.mark.slow
@pytest.mark.ci
def test_sums_equal_the_accepted_labels_after_thousands_of_faults(caplog):
    caplog.set_level(logging.CRITICAL)
    server = play(random_fates(1), ["nothing"] * 1000, n_rounds=1000)
    refused = sum(record.n_refused for record in server.history.records)
    accepted = sum(record.n_accepted for record in server.history.records)
    asked = sum(record.n_asked for record in server.history.records)
    assert asked > 2500
    assert asked - accepted > 1500
    assert refused > 800


def test_the_books_balance_with_effects(caplog):
    caplog.set_level(logging.CRITICAL)
    incidents = ["nothing", "nothing", "join", "restart", "leave", "nothing", "nothing"] * 10
    server = play(random_fates(2), incidents, n_rounds=60, model={"effects": "entity+agent"})
    assert server.rule.settled
    assert server.kept_draws[-1].globals.stage == Stage.EXACT


def go_on_from_lost_labels(monkeypatch):
    settle = AgentShard._settle

    def mutant(self, agents, acknowledged):
        settle(self, agents, np.where(acknowledged >= 0, self.pending_round[agents], acknowledged))

    monkeypatch.setattr(AgentShard, "_settle", mutant)


def believe_late_replies(monkeypatch):
    monkeypatch.setattr(OpenRound, "_find_wrong_round", lambda self, reply: None)


@pytest.mark.parametrize("mutate", [go_on_from_lost_labels, believe_late_replies])
def test_mutants_are_caught(mutate, monkeypatch, caplog):
    caplog.set_level(logging.CRITICAL)
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        play(random_fates(1), ["nothing"] * 200, n_rounds=200)


def test_a_late_reply_is_discarded_and_the_agent_goes_on_from_its_accepted_labels():
    agents = agents_of(TABLE)
    server, engine = server_for(2, seed=3, max_clusters=6), OneByOneEngine(agents)
    run_rounds(server, engine, 5)
    agent, name = agents[0], agents[0].name
    before = agent.shard.labels_at(np.array([server.round]))
    call = server.open_round(engine.agents())
    stale = agent.round(call.broadcast.acknowledging(server.round))
    server.close_round()
    call = server.open_round(engine.agents())
    assert server.accept(stale) == 0
    acknowledged = int(call.acknowledged[call.agents.index(name)])
    assert acknowledged == call.broadcast.round - 2
    agent.round(call.broadcast.acknowledging(acknowledged))
    np.testing.assert_array_equal(agent.shard.accepted, before)


def test_forgetting_an_agent_leaves_the_sums_of_the_others():
    agents = agents_of(TABLE)
    everyone = {agent.name: agent for agent in agents}
    server, engine = server_for(2, seed=3, max_clusters=6, patience=None), OneByOneEngine(agents)
    run_rounds(server, engine, 12)
    events_before = server.rule.account.total().grams[:, 0].sum()
    leaver = agents[2]
    n_events = (TABLE.agent == int(leaver.name)).sum()
    call = server.open_round(engine.agents())
    reply = leaver.round(call.broadcast.acknowledging(server.round))
    server.forget(int(leaver.name))
    assert server.rule.account.total().grams[:, 0].sum() == pytest.approx(events_before - n_events)
    assert not server.has_draws
    check_books(server, everyone)
    assert server.accept(reply) == 0, "what it sends after it has left is refused"
    server.close_round()
    call = server.open_round(engine.agents())
    assert leaver.name not in call.agents
    server.close_round()
    run_rounds(server, engine, 5)
    check_books(server, everyone)
    with pytest.raises(KeyError, match="no agent of that name"):
        server.forget("nobody")


def test_forgetting_in_the_survey():
    agents = agents_of(TABLE)
    server, engine = server_for(2), OneByOneEngine(agents)
    call = server.open_round(engine.agents())
    for reply in engine.deliver(call):
        server.accept(reply)
    server.forget(agents[0].name)
    server.close_round()
    rest = TABLE[TABLE.agent != int(agents[0].name)]
    np.testing.assert_allclose(server.units.standardization.shift[:-1], rest.X.mean(axis=0))


@pytest.mark.parametrize("n_rounds", [4, 40])
def test_forgetting_all_agents_starts_again(n_rounds):
    """Before and after clusters were merged."""
    agents = agents_of(TABLE)[:2]
    server = server_for(2, max_clusters=4, patience=None)
    run_rounds(server, OneByOneEngine(agents[:1]), n_rounds)
    server.forget(agents[0].name)
    run_rounds(server, OneByOneEngine(agents[1:]), 4)
    own = len(np.unique(TABLE.entity[TABLE.agent == int(agents[1].name)]))
    assert server.rule.account.total().entity_counts.sum() == own


def test_a_run_that_has_ended_goes_on_when_an_agent_withdraws():
    agents = agents_of(TABLE)
    server, engine = server_for(2, max_clusters=6, rounds=20), OneByOneEngine(agents)
    run_rounds(server, engine, 21)
    assert server.finished
    server.forget(agents[0].name)
    assert not server.finished
    with pytest.raises(RuntimeError, match="an agent has withdrawn, and the draws were dropped with it"):
        server.model()
    while not server.finished:
        run_round(server, engine)
    assert server.round >= 30
    assert len(server.model().draws) >= 10


def test_an_agent_that_withdraws_in_an_open_round_took_no_part():
    agents = agents_of(TABLE)
    server, engine = server_for(2, max_clusters=6), OneByOneEngine(agents)
    run_rounds(server, engine, 3)
    call = server.open_round(engine.agents())
    for reply in engine.deliver(call):
        server.accept(reply)
    server.forget(agents[0].name)
    assert server.close_round().n_accepted == len(agents) - 1


def test_stopping_a_round_keeps_the_replies_received():
    agents = agents_of(TABLE)
    everyone = {agent.name: agent for agent in agents}
    server, engine = server_for(2, max_clusters=6), OneByOneEngine(agents)
    run_rounds(server, engine, 3)
    replies = engine.deliver(server.open_round(engine.agents()))
    server.accept(next(replies))
    server.stop("enough")
    check_books(server, everyone)
    assert server.history.records[-1].n_accepted == 1
    assert server.to_bytes() == Server.from_bytes(server.settings, server.to_bytes()).to_bytes()


def test_a_round_without_reachable_agents_is_empty():
    agents = agents_of(TABLE)
    server, engine = server_for(2, max_clusters=6), OneByOneEngine(agents)
    run_rounds(server, engine, 3)
    assert server.open_round([]).agents == []
    assert server.close_round().n_asked == 0
    run_rounds(server, engine, 3)


def test_forgetting_twice_or_a_bystander_changes_nothing():
    agents = agents_of(TABLE)
    server, engine = server_for(2, max_clusters=6, rounds=20), OneByOneEngine(agents)
    run_rounds(server, engine, 21)
    server.forget(agents[0].name)
    while not server.finished:
        run_round(server, engine)
    kept = len(server.kept_draws)
    server.forget(agents[0].name)
    assert server.finished
    assert len(server.kept_draws) == kept


def test_what_was_forgotten_does_not_come_back_when_the_run_is_stopped():
    agents = agents_of(TABLE)
    server = server_for(2, n_clusters=2)
    run_rounds(server, OneByOneEngine(agents), 5)
    server.forget(agents[0].name)
    server.stop("enough")
    assert not server.has_draws


def test_stopping_a_run_that_has_ended_changes_nothing():
    server = server_for(2, max_clusters=6, rounds=3)
    run_rounds(server, OneByOneEngine(agents_of(TABLE)), 4)
    server.stop("too late")
    assert server.stop_reason == "reached the maximum of 3 rounds"


def test_an_outage_does_not_count_as_convergence():
    agents = agents_of(TABLE)
    server, engine = server_for(2, n_clusters=2, rounds=200), OneByOneEngine(agents)
    run_rounds(server, engine, 20)
    kept = len(server.kept_draws)
    for _ in range(40):
        server.open_round(engine.agents())
        server.close_round()
    assert not server.finished
    assert len(server.kept_draws) <= kept


@pytest.mark.parametrize("participation", [0.001, 1.0])
def test_a_survey_does_not_wait_for_unreachable_agents(participation):
    """Who does not answer is asked once more, and then no more."""
    agents = agents_of(TABLE)

    class Engine(OneByOneEngine):
        def deliver(self, call):
            return (r for r in super().deliver(call) if Contribution.from_bytes(r).agent != agents[0].name)

    server, engine = server_for(2, participation=participation), Engine(agents)
    n_surveys = 0
    while server.rule is None:
        run_round(server, engine)
        n_surveys += 1
    assert n_surveys <= (len(agents) + 1 if participation < 1 else 2)
    assert server.history.records[0].n_accepted == len(agents) - 1


def test_rounds_make_few_calls(caplog):
    """Most of a round's calls are numpy's and do not depend on the agents; declarations are not gone through again."""
    # Flower, where another test has imported it, prints every refusal
    caplog.set_level(logging.CRITICAL, logger="fedhlcr")
    counts = {}
    for n_agents in (33, 330):
        table, _ = make_hlcr(n_agents, 4, 5, 7, 4, 0.5, random_state=0)
        server, engine = server_for(7, participation=0.3, patience=None), in_process(table, failure_rate=0.2)
        run_rounds(server, engine, 30)
        profile = cProfile.Profile()
        profile.runcall(run_rounds, server, engine, 10)
        counts[n_agents] = pstats.Stats(profile).total_calls / 10
    assert counts[33] < 7_500
    # 89 more agents are asked
    assert counts[330] - counts[33] < 89 * 15


def test_agents_can_join_late():
    agents = agents_of(TABLE)
    server, engine = server_for(2, max_clusters=6, patience=None), OneByOneEngine(agents[:3])
    run_rounds(server, engine, 6)
    engine.by_name |= {agent.name: agent for agent in agents[3:]}
    run_rounds(server, engine, 1)
    assert server.rule.account.total().grams[:, 0].sum() == pytest.approx(len(TABLE))
    check_books(server, engine.by_name)


def test_agents_continue_when_the_server_returns_to_an_older_checkpoint(caplog):
    """Restored from an old checkpoint, it acknowledges rounds agents do not hold any more."""
    agents = agents_of(TABLE)
    server, engine = server_for(2, max_clusters=6, patience=None), OneByOneEngine(agents)
    run_rounds(server, engine, 5)
    old = server.to_bytes()
    run_rounds(server, engine, 4)
    server = Server.from_bytes(server.settings, old)
    with caplog.at_level(logging.WARNING):
        run_rounds(server, engine, 1)
    assert "restored from an older checkpoint" in caplog.text
    check_books(server, engine.by_name)


def test_wrong_calls_are_errors():
    server = server_for(2)
    assert server.accept(b"") == 0, "what comes between rounds is late"
    with pytest.raises(RuntimeError, match="no round is open"):
        server.close_round()
    assert server.open_round([]).agents == [], "nobody is within reach"
    server.close_round()
    server.open_round(["a"])
    with pytest.raises(RuntimeError, match="round 0 is open; close it first"):
        server.open_round(["a"])
    with pytest.raises(RuntimeError, match="a round is open"):
        server.to_bytes()
    with pytest.raises(TypeError, match="expected bytes, Contribution or Contributions"):
        server.accept("text")
    server.stop("enough")
    with pytest.raises(RuntimeError, match="the run has ended"):
        server.open_round(["a"])
