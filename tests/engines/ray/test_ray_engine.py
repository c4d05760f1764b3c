"""The engine with workers in this process: the model is that of one process, bit for bit, whatever happens to workers.

`test_on_ray` has the same on a Ray cluster.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from fedhlcr import FedHLCRClassifier, FedHLCRCountRegressor, FedHLCRRegressor
from fedhlcr.datasets import make_hlcr
from fedhlcr.engines.in_process import InProcessEngine
from fedhlcr.engines.ray import RayCluster, worker, worker_handle
from fedhlcr.engines.ray.engine import RayEngine
from fedhlcr.engines.ray.parts import TablePart, share_out
from fedhlcr.exceptions import ArgumentError, BroadcastError, FederationError
from fedhlcr.federation.block_ledger import BlockLedger
from fedhlcr.federation.checks import ReplyLimits
from fedhlcr.federation.run import Checkpoints, run_round, server_for
from fedhlcr.federation.server import Server
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.federation.sums import PAGE_SIZE
from fedhlcr.model.gram import GramLayout
from tests.engines.contract import RayWorkers
from tests.federations import hierarchy_of, in_process, run_rounds
from tests.local_actors import DiesOnce, LocalActors, assert_same_fit, local_engine

# three blocks; the last is small
TABLE, _ = make_hlcr(2 * PAGE_SIZE + 60, 2, 3, 2, 3, 0.4, random_state=5)
SETTINGS = {"seed": 4, "max_clusters": 6, "patience": None, "rounds": 100}
FIELDS = {"X": TABLE.X, "y": TABLE.y, "agent": TABLE.agent, "entity": TABLE.entity}


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL)


def settings(**params):
    return FederationSettings(GramLayout(2), **{**SETTINGS, **params})


def after(engine, n_rounds, **params):
    server = server_for(settings(**params), engine)
    run_rounds(server, engine, n_rounds)
    return server


@cache
def here(n_rounds, **params):
    """A server after rounds in one process."""
    return after(in_process(TABLE), n_rounds, **params)


def assert_same_run(server, expected):
    """All draws and figures of the history."""
    assert server.model().to_bytes() == expected.model().to_bytes()
    assert [repr(record) for record in server.history.records] == [repr(record) for record in expected.history.records]
    np.testing.assert_array_equal(server.registry.accepted_round, expected.registry.accepted_round)


def local_factory(n_workers, actors=None):
    """What an estimator takes as engine."""

    def make(hierarchy, *, failure_rate, seed, n_threads):
        start = hierarchy.index.agent_start
        parts = [(agents, TablePart.of(hierarchy, agents)) for agents in share_out(start, n_workers)]
        names = list(hierarchy.index.agents.texts)
        return RayEngine(actors or LocalActors(), names, start, parts, seed=seed)

    return make


@pytest.mark.parametrize("n_workers", [1, 2, 3, 4, 8])
def test_any_number_of_workers_gives_the_model_of_one_process(n_workers):
    engine = local_engine(TABLE, n_workers)
    server = after(engine, 16)
    assert isinstance(server.rule.account, BlockLedger) == (n_workers < 6), "six workers or more share all blocks"
    assert_same_run(server, here(16))


def test_workers_send_sums_and_no_contributions_of_agents():
    engine = local_engine(TABLE, 2)
    server = after(engine, 2)
    call = server.open_round(engine.agents())
    replies = list(engine.deliver(call))
    assert sorted(reply.state.block for reply in replies) == [0, 1, 2]
    assert all(len(page.clusters) == 0 for page in server.rule.account.pages), "the server holds no agent's sums"


@pytest.mark.parametrize(
    "params",
    [
        {"effects": "none", "noise": "common"},
        {"effects": "entity+agent"},
        {"noise": "student"},
        {"curves": (0,)},
        {"participation": 0.3},
        {"participation": 0.02},
        {"effects": "entity", "participation": 0.6},
        {"n_clusters": 2},
        {"limits": ReplyLimits(max_weight=1.0)},
        {"limits": ReplyLimits(max_weight=1.0), "participation": 0.5},
        {"limits": ReplyLimits(max_entities=1)},
        {"rule": "blend", "n_clusters": 3, "noise_scale": 0.5, "coef_scale": 1.0, "global_concentration": 1.0,
         "agent_concentration": 1.0},
        {"fixed_point": True},
    ],
    ids=str,
)  # fmt: skip
def test_all_settings_give_the_model_of_one_process(params):
    table = TABLE
    if "limits" in params:
        # some agents are far larger than others, and some have a single entity
        rng = np.random.default_rng(0)
        agent = np.where(rng.random(len(TABLE)) < 0.3, 7, TABLE.agent)
        entity = np.where(TABLE.agent % 3 == 0, 0, TABLE.entity)
        table = replace(TABLE, agent=agent, entity=entity)
    n_rounds = 12
    server = after(local_engine(table, 2), n_rounds, **params)
    if not server.has_draws:
        pytest.fail("the run has no draws to compare")
    expected = after(from_table(table), n_rounds, **params)
    assert_same_run(server, expected)


def from_table(table):
    return InProcessEngine.from_hierarchy(hierarchy_of(table), failure_rate=0.0, seed=0, n_threads=1)


@pytest.mark.parametrize("estimator", [FedHLCRRegressor, FedHLCRClassifier, FedHLCRCountRegressor])
def test_estimators_fit_on_workers(estimator):
    rng, fields = np.random.default_rng(0), dict(FIELDS)
    if estimator is FedHLCRClassifier:
        fields["y"] = np.where(TABLE.y > 0, "yes", "no")
    if estimator is FedHLCRCountRegressor:
        fields["y"] = rng.poisson(np.exp(np.clip(TABLE.y, -2, 2)))
        fields["exposure"] = rng.uniform(1, 2, size=len(TABLE))
    params = {"rounds": 6, "max_clusters": 4, "random_state": 3, "n_threads": 1}
    actors = LocalActors(DiesOnce("answer", 5, 9))
    assert_same_fit(
        estimator(engine=local_factory(2, actors), **params).fit(**fields), estimator(**params).fit(**fields)
    )
    assert len(actors.started) == 4


def test_nobody_is_scaled_down_on_workers():
    """One operator has all agents; a limit holds only on request."""
    weight = np.where(TABLE.agent == 7, 1000.0, 1.0)

    def weights(**params):
        model = FedHLCRRegressor(engine=local_factory(2), rounds=3, max_clusters=4, n_threads=1, **params)
        return model.fit(**FIELDS, sample_weight=weight).server_.rule.account.weights()

    assert (weights() == 1.0).all()
    assert weights(limits=ReplyLimits(max_weight=5.0)).min() < 1.0


@pytest.mark.parametrize("number", [1, 8, 17])
@pytest.mark.parametrize("bytes_per_round", [2**22, 64])
def test_a_worker_that_dies_in_an_answer_is_replaced(monkeypatch, number, bytes_per_round):
    """With few bytes per round, states are sent seldom, and several rounds are asked again."""
    monkeypatch.setattr(worker, "BYTES_PER_ROUND", bytes_per_round)
    actors = LocalActors(DiesOnce("answer", number))
    server = after(local_engine(TABLE, 2, actors), 12)
    assert len(actors.started) == 3
    assert_same_run(server, here(12))


@pytest.mark.parametrize("params", [{"participation": 0.4}, {"limits": ReplyLimits(max_weight=1.0)}], ids=str)
def test_what_absent_agents_have_contributed_survives_a_death(params):
    actors = LocalActors(DiesOnce("answer", 9, 14, 20))
    server = after(local_engine(TABLE, 2, actors), 12, **params)
    assert len(actors.started) == 5
    assert_same_run(server, here(12, **params))


@pytest.mark.parametrize("method", ["moved", "weighted", "build"])
def test_a_worker_may_die_in_anything(method):
    """Sums move when clusters are merged; agents of other weights need other sums."""
    actors = LocalActors(DiesOnce(method, 1))
    params = {"limits": ReplyLimits(max_weight=1.0)} if method == "weighted" else {}
    table = TABLE
    if method == "weighted":
        table = replace(TABLE, agent=np.where(np.arange(len(TABLE)) % 3 == 0, 7, TABLE.agent))
    server = after(local_engine(table, 2, actors), 25, **params)
    assert len(actors.started) == 3
    assert_same_run(server, after(in_process(table), 25, **params))


def test_matrices_survive_a_death():
    actors = LocalActors(DiesOnce("grams", 1))
    engine = local_engine(TABLE, 2, actors)
    model = after(engine, 4).model()
    grams = engine.entity_grams(0, model.layout, model.standardization)
    np.testing.assert_array_equal(grams, in_process(TABLE).entity_grams(0, model.layout, model.standardization))
    assert len(actors.started) == 3


def test_a_worker_that_always_dies_ends_the_run():
    actors = LocalActors(lambda number, method: method == "answer" and number > 6)
    with pytest.raises(FederationError, match=r"worker 2 of 2 has died 4 times in a row \(Death\).*memory"):
        after(local_engine(TABLE, 2, actors), 12)


def silenced(actors, n_rounds=8):
    """A run in which the replies of some agents are lost, and then a worker dies."""
    engine = local_engine(TABLE, 2, actors, kind=RayWorkers.Scripted)
    # a server with a ledger of its own: single replies can be lost
    server = Server(settings())
    for number in range(n_rounds):
        lost = engine.agents()[::3] if number in (3, 4, 5) else []
        engine.fates = dict.fromkeys(lost, "silent")
        run_round(server, engine)
    return server.model().to_bytes()


def test_a_replaced_worker_goes_on_from_acknowledged_labels():
    expected = silenced(LocalActors())
    for number in (9, 10, 11, 12, 13):
        actors = LocalActors(DiesOnce("answer", number))
        assert silenced(actors) == expected
        assert len(actors.started) == 3


def forgetful(state):
    return {**state, "accepted": np.full_like(state["accepted"], -1), "pending": np.full_like(state["pending"], -1)}


def hasty(state):
    return {**state, "accepted": state["pending"]}


@pytest.mark.parametrize("mutant", [forgetful, hasty])
def test_other_labels_would_be_noticed(monkeypatch, mutant):
    """Mutants: a replaced worker that starts again, or that goes on from labels the server has not acknowledged."""
    expected, restore = silenced(LocalActors()), worker.ShardWorker.restore
    monkeypatch.setattr(worker.ShardWorker, "restore", lambda self, state: restore(self, mutant(state)))
    found = [silenced(LocalActors(DiesOnce("answer", number))) for number in (11, 12, 13)]
    assert any(one != expected for one in found)


def test_nothing_asked_since_would_be_noticed(monkeypatch):
    """Mutant: a replaced worker that is not asked again what was asked since its state was sent."""
    monkeypatch.setattr(worker, "BYTES_PER_ROUND", 64)
    replaced = worker_handle.WorkerHandle._replace

    def without_log(self, death):
        self._log = self._log[-1:]
        replaced(self, death)

    monkeypatch.setattr(worker_handle.WorkerHandle, "_replace", without_log)
    server = after(local_engine(TABLE, 2, LocalActors(DiesOnce("answer", 17))), 12)
    assert server.model().to_bytes() != here(12).model().to_bytes()


def test_agents_withdraw_from_blocks():
    servers = []
    for engine in (local_engine(TABLE, 2), in_process(TABLE)):
        server = after(engine, 6)
        server.forget(engine.agents()[600])
        run_rounds(server, engine, 5)
        servers.append(server)
    assert_same_run(*servers)


@pytest.mark.parametrize("params", [{}, {"participation": 0.4}], ids=str)
def test_a_checkpoint_goes_on_bit_for_bit(tmp_path, params):
    checkpoints, engine = Checkpoints(tmp_path / "checkpoint"), local_engine(TABLE, 2)
    server = after(engine, 7, **params)
    checkpoints.save(server, engine)
    engine = local_engine(TABLE, 2)
    server = checkpoints.resume(server.settings, engine)
    run_rounds(server, engine, 6)
    assert_same_run(server, here(13, **params))


def test_a_checkpoint_of_other_workers_is_refused(tmp_path):
    checkpoints, engine = Checkpoints(tmp_path / "checkpoint"), local_engine(TABLE, 2)
    checkpoints.save(after(engine, 3), engine)
    with pytest.raises(ArgumentError, match="made by 2 workers"):
        checkpoints.resume(settings(), local_engine(TABLE, 3))


def test_errors_at_workers_are_raised_as_they_are():
    engine = local_engine(TABLE, 2)
    server = after(engine, 3)
    call = server.open_round(engine.agents())
    with pytest.raises(BroadcastError, match="another run"):
        list(engine.deliver(call._replace(broadcast=replace(call.broadcast, run=1))))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"failure_rate": 0.1}, "faults are simulated with engine='in_process' only"),
        ({"aggregation": "secure"}, "needs engine='in_process'"),
    ],
)
def test_what_a_cluster_cannot_do_is_refused(params, message):
    with pytest.raises(ArgumentError, match=message):
        FedHLCRRegressor(engine="ray", rounds=2, **params).fit(**FIELDS)


@pytest.mark.parametrize("params", [{"n_workers": 0}, {"threads_per_worker": 1.5}])
def test_wrong_numbers_are_refused(params):
    with pytest.raises(ArgumentError, match="at least 1"):
        RayCluster(**params)
