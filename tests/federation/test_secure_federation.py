"""Under secure aggregation the server learns sums over cohorts, and the run is that of a fixed-point ledger."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from fedhlcr import FedHLCRRegressor, hold_out_events
from fedhlcr.engines.in_process import InProcessEngine
from fedhlcr.exceptions import ArgumentError, FederationError, FixedPointError
from fedhlcr.federation import Server
from fedhlcr.federation.fixed_accounts import FixedLedger, RunningTotal
from fedhlcr.federation.messages import NEVER, Broadcast
from fedhlcr.federation.run import Checkpoints, run_federation, run_round
from tests.federations import assert_same_server, four_clusters, hierarchy_of, in_process, run_rounds, server_for

pytest.importorskip("cryptography", reason="the privacy extra is not installed")

FIXED_POINT, SECURE = {"fixed_point": True}, {"aggregation": "secure", "min_cohort": 3}
MODELS = {"plain clusters": {"effects": "none"}, "effects": {"effects": "entity+agent", "rounds": 60}}


def engine_of(table, **params) -> InProcessEngine:
    return InProcessEngine.from_hierarchy(
        hierarchy_of(table), **{"failure_rate": 0.0, "seed": 4, "n_threads": 1, **params}
    )


def few(table, n_agents=8):
    """The first agents of a table."""
    return table[np.isin(table.agent, np.unique(table.agent)[:n_agents])]


def server_of(table, **params) -> Server:
    return server_for(table.X.shape[1], **{"seed": 2, "max_clusters": 10, "patience": None, **params})


def held_by_agents(server: Server, engine: InProcessEngine) -> np.ndarray:
    """What the agents believe that the server has of them, summed, if it acknowledges what it has accepted."""
    account, total = server.rule.account, np.zeros(server.rule.account.vectors.n_values, dtype=np.uint64)
    for shard in engine._shards:
        acknowledged = server.registry.accepted_round[server.registry.find(shard.agents)]
        for agent, number in enumerate(acknowledged.tolist()):
            if number != NEVER:
                sums = shard.kept.pending if number == shard.pending_round[agent] else shard.kept.accepted
                total = total + account.vectors.total(sums.take(np.array([agent])))
    return total


class Unmasked(InProcessEngine):
    """A cohort without cryptography: some agents' differences are added up, and the others' are lost."""

    lost = 0.4

    def run(self, server: Server, rng: np.random.Generator) -> None:
        call = server.open_round(self.agents())
        parties = self.open_parties(call)
        vectors = parties.vectors
        survivors = [name for name in vectors if rng.random() > self.lost]
        if len(survivors) >= server.settings.min_cohort and rng.random() > 0.1:
            values = np.sum([vectors[name] for name in survivors], axis=0, dtype=np.uint64)
            server.accept_sum(survivors, values)
        server.close_round()
        if parties.out_of_step:
            server.begin_epoch("an agent has lost its state")


@pytest.mark.parametrize("model", MODELS)
def test_a_secure_run_is_a_run_of_the_ledger_in_fixed_point(small, model):
    """Bit for bit: totals, labels and draws, through the survey, merging, and all stages of effects."""
    table = few(small[0] if model == "plain clusters" else four_clusters()[0], 10)
    n_rounds = 25 if model == "plain clusters" else 45
    servers, engines = [], []
    for mode in (FIXED_POINT, SECURE):
        servers.append(server_of(table, **MODELS[model], **mode))
        engines.append(engine_of(table))
        run_rounds(servers[-1], engines[-1], n_rounds + len(servers) - 1)  # the secure survey takes two rounds
    plain, secure = servers
    assert isinstance(plain.rule.account, FixedLedger)
    assert isinstance(secure.rule.account, RunningTotal)
    assert plain.round == secure.round
    np.testing.assert_array_equal(plain.rule.account.integers(), secure.rule.account.integers())
    np.testing.assert_array_equal(engines[0].everyone.pending, engines[1].everyone.pending)
    np.testing.assert_array_equal(plain.model().draws.coef, secure.model().draws.coef)
    shared = ("labels_changed", "log_joint", "n_clusters", "shared")
    for name in shared:
        assert getattr(plain.history.records[-1], name) == getattr(secure.history.records[-1], name)
    if model == "effects":
        assert np.abs(secure.rule.account.shifted.targets).max() > 0


@pytest.mark.parametrize("model", MODELS)
def test_the_total_is_what_agents_hold_after_drop_outs_in_every_stage(small, model):
    table = few(small[0])
    server, engine = server_of(table, **MODELS[model], **SECURE, participation=0.9), engine_of(table, failure_rate=0.35)
    run_rounds(server, engine, 40)
    records = server.history.records
    assert any(record.n_accepted == 0 for record in records)
    assert any(0 < record.n_accepted < record.n_asked for record in records)
    np.testing.assert_array_equal(server.rule.account.integers(), held_by_agents(server, engine))
    assert server.rule.account.total().entity_counts.sum() > 0


def faulty_run(table, seed, n_rounds, **params):
    """A run without cryptography whose agents fail, whose server loses rounds and goes back to older checkpoints."""
    rng = np.random.default_rng(seed)
    engine = Unmasked.from_hierarchy(hierarchy_of(table), failure_rate=0.3, seed=seed, n_threads=1)
    server = server_of(table, **{"rounds": 1000, **SECURE, **params})
    saved = None
    while len(server.history.records) == 0 or server.round < n_rounds:
        engine.run(server, rng)
        if server.rule is not None and rng.random() < 0.2:
            saved = server.to_bytes()
        if saved is not None and rng.random() < 0.08:
            was, server = server, Server.from_bytes(server.settings, saved)
            server.session = was.session + 1
    return server, engine


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("seed", range(3))
def test_faults_of_all_kinds_leave_the_total_right(small, model, seed):
    """Lost cohorts, lost commits, servers that go back: some 400 faults a run."""
    server, engine = faulty_run(few(small[0], 12), seed, 80, **MODELS[model] | {"rounds": 1000})
    np.testing.assert_array_equal(server.rule.account.integers(), held_by_agents(server, engine))
    assert server.rule.account.epoch > 0


@pytest.mark.slow
def test_ten_thousand_faults_leave_the_total_right(small):
    for seed in range(100, 115):
        server, engine = faulty_run(few(small[0], 12), seed, 140, effects="none")
        np.testing.assert_array_equal(server.rule.account.integers(), held_by_agents(server, engine))


def test_an_agent_that_keeps_differences_after_a_new_epoch_is_caught(small, monkeypatch):
    """Were the comparison blind to epochs, this mutant would pass."""
    monkeypatch.setattr("fedhlcr.federation.kept_sums._without", lambda sums, agents: sums)
    totals = [(s.rule.account.integers(), held_by_agents(s, e)) for s, e in [faulty_run(few(small[0], 12), 1, 60)]]
    assert not np.array_equal(*totals[0])


def test_a_resumed_run_is_the_uninterrupted_one(small, tmp_path):
    table = few(small[0], 6)
    params = {"rounds": 8, **SECURE, "effects": "entity"}
    faults = {"failure_rate": 0.1}
    expected = server_of(table, **params)
    run_federation(expected, engine_of(table, **faults))
    checkpoints = Checkpoints(tmp_path / "run")
    server, engine = server_of(table, **params), engine_of(table, **faults)
    checkpoints.save(server, engine)
    while not server.finished:
        engine = engine_of(table, **faults)
        server = checkpoints.resume(server.settings, engine)
        run_round(server, engine)
        checkpoints.save(server, engine)
    assert_same_server(server, expected)


def test_a_server_that_goes_back_begins_a_new_epoch(small, caplog):
    table = few(small[0], 6)
    server, engine = server_of(table, **SECURE, effects="none"), engine_of(table)
    run_rounds(server, engine, 5)
    old = server.to_bytes()
    run_rounds(server, engine, 3)
    back = Server.from_bytes(server.settings, old)
    back.session = server.session + 1
    with caplog.at_level(logging.WARNING):
        run_rounds(back, engine, 1)
    assert "a new epoch begins" in caplog.text
    assert back.rule.account.is_empty
    run_rounds(back, engine, 1)
    assert back.history.records[-1].n_accepted == 6
    np.testing.assert_array_equal(back.rule.account.integers(), held_by_agents(back, engine))


@pytest.mark.parametrize("is_present", [True, False])
def test_an_agent_that_is_forgotten_leaves_the_total(small, is_present):
    """A present agent removes its own sums; one that has vanished costs a new epoch."""
    table = few(small[0], 6)
    server, engine = server_of(table, **SECURE, effects="entity"), engine_of(table)
    run_rounds(server, engine, 8)
    clusters, before = server.rule.cluster_of, server.rule.account.total().entity_counts.sum()
    leaver = engine.everyone.agents[0]
    server.forget(leaver)
    assert not server.has_draws
    if not is_present:
        engine.send_away([leaver])
    run_rounds(server, engine, 2)
    assert (server.rule.account.epoch > 0) != is_present
    assert server.rule.account.total().entity_counts.sum() == before - int(engine.everyone.agent_start[1])
    np.testing.assert_array_equal(server.rule.cluster_of, clusters)
    np.testing.assert_array_equal(server.rule.account.integers(), held_by_agents(server, engine))
    assert leaver not in server.open_round(engine.agents()).agents


def test_an_agent_that_fails_while_it_leaves_costs_a_new_epoch(small):
    table = few(small[0], 6)
    server, engine = server_of(table, **SECURE, effects="none"), engine_of(table)
    run_rounds(server, engine, 4)
    server.forget(engine.everyone.agents[0])
    server.open_round(engine.agents())
    server.close_round()
    assert server.rule.account.is_empty
    run_rounds(server, engine, 1)
    assert server.history.records[-1].n_accepted == 5


@pytest.mark.filterwarnings("ignore::fedhlcr.exceptions.DeprecationNotice")
def test_predictions_are_as_good_as_in_plain_mode(small):
    table, _ = small
    train, test = hold_out_events(table.agent, table.entity)
    ids = {"agent": table.agent, "entity": table.entity}
    scores = []
    for mode in ({"fixed_point": True}, {}):
        model = FedHLCRRegressor(rounds=80, **mode)
        model.fit(table.X[train], table.y[train], **{name: values[train] for name, values in ids.items()})
        scores.append(model.score(table.X[test], table.y[test], **{name: values[test] for name, values in ids.items()}))
    assert scores[0] == pytest.approx(scores[1], abs=0.005)


def test_columns_of_any_size_are_summed(small):
    """The survey adds up raw columns: fixed point would overflow or lose them."""
    table = few(small[0], 6)
    units = []
    for mode in (SECURE, {}):
        scaled = table.X * [1e12, 1e-12, 1.0] + [1e14, 0.0, -5.0]
        server = server_of(table, **mode, effects="none")
        run_rounds(server, engine_of(type(table)(scaled, table.y, table.agent, table.entity, table.feature_names)), 3)
        units.append(server.units.standardization)
    np.testing.assert_allclose(units[0].scale, units[1].scale, rtol=1e-6)
    np.testing.assert_allclose(units[0].shift, units[1].shift, rtol=1e-9, atol=1e-9)


def test_a_cohort_that_is_too_small_is_never_summed(small, caplog):
    table = few(small[0], 4)
    server, engine = server_of(table, aggregation="secure", min_cohort=5), engine_of(table)
    with caplog.at_level(logging.WARNING):
        run_rounds(server, engine, 2)
    assert "void" in caplog.text
    assert server.rule is None
    with pytest.raises(FederationError, match="min_cohort"):
        run_rounds(server, engine, 100)


def test_replies_of_single_agents_are_refused(small, caplog):
    table = few(small[0], 6)
    server, engine = server_of(table, **SECURE), in_process(table)
    call = server.open_round(engine.agents())
    reply = engine._shards[0].answer(call.broadcast, np.arange(6), call.acknowledged)
    with caplog.at_level(logging.WARNING):
        assert server.accept(reply) == 0
    assert "aggregation is secure" in caplog.text


def accept_spoilt(server, engine, occupied, place, amount):
    """How many agents are accepted if a number of an occupied or empty cluster is changed on the way."""
    call = server.open_round(engine.agents())
    values = np.sum(list(engine.open_parties(call).vectors.values()), axis=0, dtype=np.uint64)
    account, rows = server.rule.account, call.broadcast.terms.rows
    counts = account.vectors.cluster_sums(account.after(rows, values), account.likelihood, None).entity_counts[rows]
    row = int(np.flatnonzero((counts > 0) == occupied)[0])
    values[row * account.vectors.row_size + place] += np.array(amount, dtype=np.int64).astype(np.uint64)
    return server.accept_sum(call.agents, values)


@pytest.mark.parametrize(
    ("occupied", "place", "amount", "reason"),
    [
        (True, 0, -(10**6), "entity counts"),
        (True, 0, -(2**63), "entity counts"),
        (True, 1, 10**6, "more tables"),
        (True, 10, 2**50, "positive semi-definite"),
        (False, 10, 2**50, "without entities"),
    ],
)
def test_an_impossible_sum_is_refused_as_a_whole(small, caplog, occupied, place, amount, reason):
    table = few(small[0], 6)
    server, engine = server_of(table, **SECURE, effects="none"), engine_of(table)
    run_rounds(server, engine, 4)
    before, accepted = server.rule.account.integers().copy(), server.registry.accepted_round.copy()

    with caplog.at_level(logging.WARNING):
        assert accept_spoilt(server, engine, occupied, place, amount) == 0
    assert reason in caplog.text
    np.testing.assert_array_equal(server.rule.account.integers(), before)
    np.testing.assert_array_equal(server.registry.accepted_round, accepted)
    server.close_round()
    run_rounds(server, engine, 2)
    np.testing.assert_array_equal(server.rule.account.integers(), held_by_agents(server, engine))


def test_messages_shrink_as_clusters_are_merged(small):
    table = few(small[0], 6)
    server, engine = server_of(table, **SECURE, effects="none"), engine_of(table)
    run_rounds(server, engine, 25)
    up = [record.bytes_up for record in server.history.records if record.n_accepted]
    assert server.history.records[-1].n_clusters < 6
    assert up[-1] < 0.7 * up[1]


def test_labels_cannot_be_guessed_from_the_seed(small):
    """Agents mix a secret into their draws: whoever has the data, the seed and the broadcast draws other labels."""
    table = few(small[0], 6)
    drawn = []
    for secret in (True, True, False):
        server, engine = server_of(table, fixed_point=True, effects="none"), engine_of(table)
        for shard in engine._shards if not secret else ():
            shard.secrets = None
        run_rounds(server, engine, 2)
        drawn.append(engine.everyone.pending.copy())
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert (drawn[0] != drawn[2]).mean() > 0.2


def test_terms_survive_the_wire(small):
    table = few(small[0], 6)
    server, engine = server_of(table, **SECURE, effects="entity"), engine_of(table)
    while server.round < 3:
        call = server.open_round(engine.agents())
        again = Broadcast.from_bytes(call.broadcast.to_bytes())
        assert again.to_bytes() == call.broadcast.to_bytes()
        np.testing.assert_array_equal(again.terms.rows, call.broadcast.terms.rows)
        np.testing.assert_array_equal(again.terms.centre, call.broadcast.terms.centre)
        server.close_round()
        run_round(server, engine)


def test_sums_beyond_the_bound_are_not_sent(small):
    table = few(small[0], 6)
    server, engine = server_of(table, fixed_point=True, effects="none"), engine_of(table)
    run_rounds(server, engine, 2)
    engine.everyone.grams *= 1e15
    with pytest.raises(FixedPointError, match="nothing is sent"):
        run_rounds(server, engine, 1)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"aggregation": "secret"}, "`aggregation`"),
        ({"aggregation": "secure", "curves": (0,)}, "curves"),
        ({"fixed_point": True, "curves": (0,)}, "curves"),
        ({"min_cohort": 2}, "at least 3"),
    ],
)
def test_settings_that_cannot_be_secure_are_refused(params, message):
    with pytest.raises(ArgumentError, match=message):
        server_for(3, **params)


@pytest.mark.parametrize("params", [{}, {"participation": 0.3, "min_cohort": 3}])
def test_a_cohort_that_can_never_be_large_enough_is_refused_at_once(small, params):
    table = few(small[0], 4 if not params else 8)
    model = FedHLCRRegressor(aggregation="secure", **params)
    with pytest.raises(ArgumentError, match=r"`min_cohort` is ., but . of . agents are asked"):
        model.fit(table.X, table.y, agent=table.agent, entity=table.entity)
