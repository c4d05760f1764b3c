"""A federation compares several clusters with one: with absent agents, lost replies, interruptions and withdrawals."""

from __future__ import annotations

import logging
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from fedhlcr import FedHLCRRegressor
from fedhlcr.datasets import make_hlcr
from fedhlcr.federation import Server
from fedhlcr.federation.messages import NEVER
from fedhlcr.federation.run import Checkpoints, run_round
from fedhlcr.federation.server import STATE_KIND
from fedhlcr.model.mixed_globals import EFFECTS
from fedhlcr.model.schema import Stage
from fedhlcr.samplers.cluster_comparison import Phase
from fedhlcr.storage import codec
from tests.federation.test_faults import FaultyEngine, check_books
from tests.federations import (
    agents_of,
    assert_same_server,
    four_clusters,
    in_process,
    one_cluster,
    put,
    run_rounds,
    server_for,
)

# 60 of the rounds go to the comparison at most
PARAMS = {"seed": 1, "max_clusters": 12, "rounds": 100, "patience": None}
FAULTS = {"failure_rate": 0.3, "seed": 9}
TABLES = {"one": one_cluster(0, 12), "back": four_clusters(0, 12)[0]}
PHASES = {
    "one": (Phase.WAITING, Phase.SETTLING, Phase.SEVERAL, Phase.PLAIN, Phase.EFFECTS, Phase.ONE, Phase.OVER),
    "back": tuple(Phase),
}


def comparison_of(server):
    return server.rule._merger.comparison


def surveyed(engine, **params) -> Server:
    """A server that has just made its survey."""
    server = server_for(2, **{**PARAMS, **params})
    while server.rule is None:
        run_round(server, engine)
    return server


def server_at(phase, engine, **params) -> Server:
    """A server in the middle of a phase."""
    server = surveyed(engine, **params)
    while comparison_of(server).phase != phase:
        run_round(server, engine)
    if comparison_of(server).ends > server.round + 1:
        run_round(server, engine)
    assert comparison_of(server).phase == phase
    return server


# Absent agents and lost replies.


@pytest.mark.slow
@pytest.mark.parametrize(("participation", "seed"), [(0.5, 0), pytest.param(0.25, 1, marks=pytest.mark.slow)])
def test_some_of_the_agents_and_lost_replies_end_with_one_cluster(participation, seed):
    whole = one_cluster(seed, n_events=14)
    is_train = np.arange(len(whole)) % 14 < 4
    train, test = whole[is_train], whole[~is_train]
    errors = []
    for n_clusters in ("auto", 1):
        model = FedHLCRRegressor(n_clusters, participation=participation, failure_rate=0.2, random_state=seed)
        model.fit(train.X, train.y, agent=train.agent, entity=train.entity)
        assert model.n_clusters_ == 1
        errors.append(np.mean((model.predict(test.X, agent=test.agent, entity=test.entity) - test.y) ** 2))
        np.testing.assert_allclose(model.effect_scales_[1:], [0.6, 0.5], rtol=0.4)
        if n_clusters == "auto":
            assert max(model.history_["n_clusters"][40:]) > 1, "there were several clusters before the comparison"
    assert errors[0] < 1.03 * errors[1]


SHARES = {
    "half": {"participation": 0.5},
    "a quarter": {"participation": 0.25},
    "half, in a short run": {"participation": 0.5, "rounds": 100, "patience": None},
}


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("share", SHARES)
def test_some_of_the_agents_and_lost_replies_find_clusters_again(share, seed):
    """Effects stay small: those of absent agents, around one cluster, are not taken for effects within the four."""
    table, truth = four_clusters(seed)
    model = FedHLCRRegressor(failure_rate=0.2, random_state=seed, **SHARES[share])
    model.fit(table.X, table.y, agent=table.agent, entity=table.entity)
    found = model.history_["n_clusters"]
    assert 1 in found
    assert found[-1] == model.n_clusters_ == 4
    assert adjusted_rand_score(truth, model.labels_) == 1.0
    np.testing.assert_allclose(model.effect_scales_[1:], 0.15, rtol=0.5)


# The account.


def random_fates(seed):
    rng = np.random.default_rng(seed)
    while True:
        yield rng.choice(["fine", "twice", "absent", "lost", "late", "garbled"], p=[0.6, 0.1, 0.1, 0.1, 0.05, 0.05])


@pytest.mark.slow
@pytest.mark.parametrize("end", TABLES)
def test_the_books_balance_through_all_phases(end, caplog):
    """Every agent's entry is what it holds, and every entity is in the effects of the cluster it is counted in."""
    caplog.set_level(logging.CRITICAL)
    engine = FaultyEngine(agents_of(TABLES[end]), random_fates(3))
    server, seen = surveyed(engine, participation=0.5), set()
    while not server.finished:
        run_round(server, engine)
        check_books(server, engine.by_name)
        seen.add(comparison_of(server).phase)
    assert seen == set(PHASES[end])
    assert server.kept_draws[-1].globals.stage == Stage.EXACT
    total = server.rule.account.total().regroup(server.rule.cluster_of)
    np.testing.assert_allclose(total.blocks[EFFECTS][:, 0], total.entity_counts)
    assert total.scalars["events"] == len(TABLES[end])


def test_the_account_agrees_with_the_noise_that_agents_continue_from():
    """After the run went back, with half of the agents and lost replies, sums from scratch equal the account."""
    engine = in_process(TABLES["back"], **FAULTS)
    server = server_at(Phase.OVER, engine, participation=0.5)
    started = server.round
    while server.registry.accepted_round.min() <= started:
        run_round(server, engine)
    everyone = np.arange(len(server.registry))
    for shard in engine._shards:
        shard._settle(everyone, server.registry.accepted_round)
    variance = np.concatenate([shard.agent_state.accepted["variance"] for shard in engine._shards])
    scalars = server.rule.account.total().scalars
    assert np.ptp(variance) > 0.0
    assert scalars["noisy_entities"] == len(variance)
    assert scalars["precisions"] == pytest.approx((1.0 / variance).sum())
    assert scalars["log_variances"] == pytest.approx(np.log(variance).sum())
    assert scalars["log_volumes"] == pytest.approx(12.0 * np.log(variance).sum())


def before_back(engine, **params) -> Server:
    """A server that goes back to several clusters in the next round."""
    server = surveyed(engine, **params)
    while comparison_of(server).phase != Phase.BACK:
        run_round(server, engine)
    assert (server.rule.cluster_of <= 0).all()
    return server


def test_going_back_clears_the_account_and_all_agents_start_again():
    """Agents that are not asked in the first rounds are not counted until they have drawn afresh."""
    engine = in_process(TABLES["back"], failure_rate=0.5, seed=9)
    server = before_back(engine, participation=0.5)
    rule, registry, several = server.rule, server.registry, comparison_of(server).several
    assert rule.account.total().entity_counts.sum() == 60
    call = server.open_round(engine.agents())
    assert rule.begins_afresh
    assert rule.account.is_empty
    assert not any(block.any() for block in rule.account.total().blocks.values())
    assert (registry.accepted_round == NEVER).all()
    assert (call.acknowledged == NEVER).all()
    np.testing.assert_array_equal(call.broadcast.law.coef, several.coef)
    assert call.broadcast.cluster_of.max() == several.n_clusters - 1 == 3
    for reply in engine.deliver(call):
        server.accept(reply)
    started, n_asked = server.close_round().round, len(call.agents)
    answered = registry.accepted_round != NEVER
    assert 0 < answered.sum() < n_asked < len(registry), "replies were lost, and agents were not asked"
    assert rule.account.total().entity_counts.sum() == 5 * answered.sum()
    # the account is cleared once, though going back takes some rounds
    assert comparison_of(server).phase == Phase.BACK
    run_round(server, engine)
    assert not rule.begins_afresh
    assert (registry.accepted_round[answered] >= started).all()
    while (registry.accepted_round == NEVER).any():
        run_round(server, engine)
    assert rule.account.total().entity_counts.sum() == 60


def test_agents_that_start_again_answer_like_new_ones():
    """Whatever they held before: labels, effects and noise do not matter when a run goes back."""
    old, new = in_process(TABLES["back"]), in_process(TABLES["back"])
    server = before_back(old)
    assert old._shards[0].agent_state.accepted["variance"].all()
    call = server.open_round(old.agents())
    answers = [[reply[i].to_bytes() for reply in engine.deliver(call) for i in range(12)] for engine in (old, new)]
    assert answers[0] == answers[1]


# Interruptions.


class Interrupted(NamedTuple):
    """A run without interruption, and checkpoints of it in the middle of each phase."""

    end: Server
    server: dict[Phase, bytes]
    engine: dict[Phase, bytes]


@cache
def interrupted(end: str) -> Interrupted:
    engine = in_process(TABLES[end], **FAULTS)
    server, servers, engines = surveyed(engine, participation=0.5), {}, {}
    while not server.finished:
        run_round(server, engine)
        comparison = comparison_of(server)
        if comparison.phase not in servers or comparison.ends > server.round:
            # the last of those with rounds of the same phase before and after them
            servers[comparison.phase] = server.to_bytes()
            engines[comparison.phase] = codec.encode("agents", 1, engine.to_record())
    return Interrupted(server, servers, engines)


@pytest.mark.parametrize(("end", "phase"), [(end, phase) for end, phases in PHASES.items() for phase in phases])
def test_a_run_resumed_in_any_phase_is_the_same(end, phase):
    expected = interrupted(end)
    engine = in_process(TABLES[end], **FAULTS)
    engine.restore(codec.decode(expected.engine[phase], "agents", 1))
    server = Server.from_bytes(expected.end.settings, expected.server[phase])
    assert comparison_of(server).phase == phase
    assert server.to_bytes() == expected.server[phase]
    while not server.finished:
        run_round(server, engine)
    assert_same_server(server, expected.end)


@pytest.mark.parametrize("effects", ["auto", "entity"])
def test_a_run_that_merges_all_clusters_resumes(effects):
    """Step by step, and without a comparison, because entities are equal."""
    table, _ = make_hlcr(12, 5, 6, 2, 1, 0.5, random_state=0)
    engine = in_process(table)
    server = surveyed(engine, effects=effects)
    while server.round < 40:
        run_round(server, engine)
        assert Server.from_bytes(server.settings, server.to_bytes()).to_bytes() == server.to_bytes()
    found = [record.n_clusters for record in server.history.records]
    assert found[16:].count(2) > 1
    assert found[-1] == 1


@pytest.mark.slow
@pytest.mark.parametrize("end", TABLES)
def test_a_run_resumed_after_every_round_is_the_same(end, tmp_path):
    checkpoints = Checkpoints(tmp_path / "run")
    server, engine = server_for(2, **PARAMS, participation=0.5), in_process(TABLES[end], **FAULTS)
    while not server.finished:
        run_round(server, engine)
        checkpoints.save(server, engine)
        engine = in_process(TABLES[end], **FAULTS)
        server = checkpoints.resume(server.settings, engine)
    assert_same_server(server, interrupted(end).end)


FORGED = {
    "a phase beyond the last": ("compared.phase", lambda phase: 8),
    "a phase before the first": ("compared.phase", lambda phase: -1),
    "a phase that is a text": ("compared.phase", str),
    "an end before the start": ("compared.ends", lambda end: -1),
    "an end that is no whole number": ("compared.ends", float),
    "fewer than no plain clusters": ("compared.n_plain", lambda n: -1),
    "a difference that is a number": ("compared.differ", int),
    "weights of a third number of clusters": ("compared.weights", lambda a: np.append(a, a[:1], axis=0)),
    "weights that are no number": ("compared.weights", put((0, 0), np.nan)),
    "weights of infinitely many rounds": ("compared.weights", put((1, 1), np.inf)),
    "weights of fewer than no rounds": ("compared.weights", put((0, 1), -3.0)),
    "several clusters of other features": ("compared.several.coef", lambda a: a[:, 1:].copy()),
    "several clusters without coefficients": ("compared.several.coef", lambda a: a[:0]),
    "several clusters that are no number": ("compared.several.coef", put((0, 0), np.nan)),
    "more weights than several clusters": ("compared.several.log_weights", lambda a: np.full(4_000, -np.log(4_000.0))),
    "noise of several clusters that is negative": ("compared.several.noise_scale", lambda value: -value),
    "effects with a negative variance": ("compared.several.effect_covariance", lambda a: a - np.eye(3)),
    "a stage of several clusters that does not exist": ("compared.several.stage", lambda stage: 9.0),
    "original clusters in several that are not there": ("several_of", put(0, 2**40)),
    "original clusters in fewer than none": ("several_of", put(0, -2)),
    "all original clusters in one of several": ("several_of", put(slice(None), 0)),
    "several clusters of fewer original ones": ("several_of", lambda a: a[1:]),
}  # fmt: skip


@pytest.mark.parametrize("case", FORGED)
def test_impossible_checkpoints_are_refused(case):
    field, change = FORGED[case]
    run = interrupted("back")
    record = codec.decode(run.server[Phase.BACK], STATE_KIND, 1)
    forged = record | {f"rule.{field}": change(record[f"rule.{field}"])}
    with pytest.raises(codec.CodecError, match="the checkpoint is not valid"):
        Server.from_bytes(run.end.settings, codec.encode(STATE_KIND, 1, forged))


@pytest.mark.parametrize("phase", [Phase.ONE, Phase.BACK])
def test_checkpoints_without_the_clusters_to_go_back_to_are_refused(phase):
    run = interrupted("back")
    record = codec.decode(run.server[phase], STATE_KIND, 1)
    forged = {name: value for name, value in record.items() if ".several." not in name}
    with pytest.raises(codec.CodecError, match="the checkpoint is not valid"):
        Server.from_bytes(run.end.settings, codec.encode(STATE_KIND, 1, forged))


# Withdrawals and newcomers.


RUNNING = [phase for phase in Phase if phase != Phase.WAITING]


@pytest.mark.parametrize("phase", RUNNING)
def test_an_agent_may_withdraw_and_another_join_in_any_phase(phase):
    engine = in_process(TABLES["back"])
    leaver, *_, newcomer = engine.agents()
    engine.send_away([newcomer])
    server = server_at(phase, engine)
    server.forget(leaver)
    engine.send_away([leaver])
    engine.bring_back([newcomer])
    while not server.finished:
        run_round(server, engine)
    total = server.rule.account.total()
    assert total.scalars["events"] == len(TABLES["back"]) - 5 * 12
    labels = engine.everyone.labels_at(server.registry.accepted_round)
    assert server.registry.names == engine.everyone.agents
    np.testing.assert_array_equal(total.entity_counts, np.bincount(labels[labels >= 0], minlength=12))
    assert server.history.records[-1].n_clusters == 4


@pytest.mark.parametrize("phase", RUNNING)
def test_a_run_goes_on_with_others_after_all_agents_have_withdrawn(phase):
    engine = in_process(TABLES["back"])
    first, others = engine.agents()[:6], engine.agents()[6:]
    engine.send_away(others)
    server = server_at(phase, engine)
    for name in first:
        server.forget(name)
    engine.send_away(first)
    engine.bring_back(others)
    run_rounds(server, engine, 10)
    assert server.rule.account.total().scalars["events"] == 5 * 12 * len(others)
