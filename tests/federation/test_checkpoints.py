"""A run that is interrupted and resumed is, bit for bit, the run that never was."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from fedhlcr import NEW, FedHLCRRegressor
from fedhlcr.datasets import make_hlcr
from fedhlcr.estimators.progress import RoundProgress
from fedhlcr.exceptions import StorageError
from fedhlcr.federation.run import Checkpoints, run_federation, run_round
from fedhlcr.storage import atomic, codec
from tests.federations import FIXED, assert_same_server, grams_of, in_process, server_for

RULES = {
    "delta": {"max_clusters": 12},
    "blend": {"rule": "blend", "n_clusters": 3, **FIXED},
}
FAULTS = {"failure_rate": 0.4, "seed": 9}


def uninterrupted(table, params):
    server, engine = server_for(3, **params), in_process(table, **FAULTS)
    run_federation(server, engine)
    return server


@pytest.mark.parametrize("rule", RULES)
def test_a_run_resumed_after_every_round_is_the_same(small, rule, tmp_path):
    """Through the survey, merging, and faults on the way."""
    table, _ = small
    params = {"seed": 3, "participation": 0.4, "rounds": 50, "patience": None, **RULES[rule]}
    expected = uninterrupted(table, params)
    checkpoints = Checkpoints(tmp_path / "run")
    server, engine = server_for(3, **params), in_process(table, **FAULTS)
    checkpoints.save(server, engine)
    while not server.finished:
        engine = in_process(table, **FAULTS)
        server = checkpoints.resume(server.settings, engine)
        run_round(server, engine)
        checkpoints.save(server, engine)
    assert_same_server(server, expected)


def test_a_truncated_or_altered_checkpoint_gives_way_to_the_one_before(small, tmp_path, caplog):
    table, _ = small
    params = {"seed": 3, "rounds": 12, "patience": None}
    expected = uninterrupted(table, params)
    path = tmp_path / "run"
    checkpoints = Checkpoints(path, every=2)
    run_federation(server_for(3, **params), in_process(table, **FAULTS), checkpoints=checkpoints)
    for damage in (lambda data: data[:-100], lambda data: data[:300] + bytes([data[300] ^ 255]) + data[301:]):
        path.write_bytes(damage(path.read_bytes()))
        engine = in_process(table, **FAULTS)
        with caplog.at_level(logging.WARNING):
            server = checkpoints.resume(expected.settings, engine)
        assert "truncated or altered" in caplog.text
        assert "using the previous file" in caplog.text
        assert server.round == 10
        run_federation(server, engine, checkpoints=checkpoints)
        assert_same_server(server, expected)


def test_a_resumed_server_is_a_later_session_whatever_the_clock_says(small, tmp_path, monkeypatch):
    table, _ = small
    checkpoints = Checkpoints(tmp_path / "run")
    server, engine = server_for(3, seed=1), in_process(table)
    run_round(server, engine)
    checkpoints.save(server, engine)
    monkeypatch.setattr(time, "time_ns", lambda: 5)
    resumed = checkpoints.resume(server.settings, engine)
    assert resumed.session > server.session
    run_round(resumed, engine)


def test_surveys_resume_too(small, tmp_path):
    """One agent at a time, with replies that come late."""
    table, _ = small
    params = {"seed": 3, "participation": 0.03, "rounds": 5, "max_clusters": 6}
    expected = uninterrupted(table, params)
    checkpoints = Checkpoints(tmp_path / "run")
    server, engine = server_for(3, **params), in_process(table, **FAULTS)
    while not server.finished:
        run_round(server, engine)
        checkpoints.save(server, engine)
        engine = in_process(table, **FAULTS)
        server = checkpoints.resume(server.settings, engine)
    assert server.history.records[0].n_asked > 30
    assert_same_server(server, expected)


def test_a_run_resumed_after_a_withdrawal_is_the_same(small, tmp_path):
    table, _ = small
    servers = []
    for resume in (False, True):
        server, engine = server_for(3, seed=1, max_clusters=6, rounds=60, n_draws=10, patience=None), in_process(table)
        checkpoints = Checkpoints(tmp_path / "run")
        for _ in range(55):
            run_round(server, engine)
        server.forget(table.agent[0])
        if resume:
            checkpoints.save(server, engine)
            engine = in_process(table)
            server = checkpoints.resume(server.settings, engine)
        while not server.finished:
            run_round(server, engine)
        servers.append(server)
    assert_same_server(*servers)


def test_resuming_with_other_settings_or_data_is_refused(small, tmp_path):
    table, _ = small
    checkpoints = Checkpoints(tmp_path / "run")
    server, engine = server_for(3, seed=1), in_process(table)
    with pytest.raises(StorageError, match="no intact file"):
        checkpoints.resume(server.settings, engine)
    run_round(server, engine)
    checkpoints.save(server, engine)
    with pytest.raises(ValueError, match="other settings"):
        checkpoints.resume(server_for(3, seed=2).settings, in_process(table))
    with pytest.raises(ValueError, match="other data"):
        checkpoints.resume(server.settings, in_process(table[table.agent != 0]))
    with pytest.raises(ValueError, match="another failure rate"):
        checkpoints.resume(server.settings, in_process(table, failure_rate=0.5))
    with pytest.raises(ValueError, match="a folder; pass the path of a file"):
        Checkpoints(tmp_path)
    with pytest.raises(ValueError, match="does not exist; create it first"):
        Checkpoints(tmp_path / "nowhere" / "run")
    (tmp_path / "run").write_bytes(codec.encode("agent", 1, {}))
    with pytest.raises(StorageError, match="of kind 'agent'"):
        checkpoints.resume(server.settings, in_process(table))


def test_withdrawn_agents_can_be_removed_from_files(small, tmp_path):
    table, _ = small
    checkpoints = Checkpoints(tmp_path / "run")
    server, engine = server_for(3, seed=1), in_process(table)
    for _ in range(5):
        run_round(server, engine)
        checkpoints.save(server, engine)
    (tmp_path / "run.damaged").write_bytes(b"what a crash left")
    call = server.open_round(engine.agents())
    late = next(iter(engine.deliver(call)))[0]
    server.close_round()
    engine._late.append(late.to_bytes())
    server.forget(late.agent)
    run_round(server, engine)
    engine._late.append(late.to_bytes())
    checkpoints.save(server, engine, keep_previous=False)
    assert grams_of(late)[late.entity_counts > 0].tobytes() not in (tmp_path / "run").read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    resumed = checkpoints.resume(server.settings, in_process(table))
    others = table.agent.astype(str) != late.agent
    assert resumed.rule.account.total().grams[:, 0].sum() == pytest.approx(others.sum())
    assert late.agent not in resumed.open_round(engine.agents()).agents


RUNNER = """
import sys
import numpy as np
from fedhlcr import FedHLCRRegressor
from fedhlcr.datasets import make_hlcr

path, resume = sys.argv[1], sys.argv[2] == "resume"
table, _ = make_hlcr(20, 4, 6, 3, 3, 0.3, random_state=11)
model = FedHLCRRegressor(
    checkpoint=path, participation=0.5, failure_rate=0.2, rounds=80, patience=None, random_state=4, n_threads=2
)
model.fit(table.X, table.y, agent=table.agent, entity=table.entity, resume=resume)
model.posterior_.draws.coef.tofile(path + ".coef")
"""


@pytest.mark.slow
@pytest.mark.ci
def test_a_killed_fit_resumes_to_the_same_result(tmp_path):
    """kill -9, again and again, some rounds and a bit after it began; then to the end."""

    def start(folder, mode):
        return subprocess.Popen([sys.executable, "-c", RUNNER, str(folder / "run"), mode])

    def version(path):
        try:
            return path.stat().st_mtime_ns
        except FileNotFoundError:
            # it is not there yet, or just now on its way to be the previous one
            return 0

    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    assert start(tmp_path / "whole", "anew").wait() == 0
    rng = np.random.default_rng(6)
    checkpoint = tmp_path / "killed" / "run"
    n_killed = 0
    for _ in range(3):
        begun = version(checkpoint) or version(atomic.previous_of(checkpoint))
        process = start(tmp_path / "killed", "resume" if begun else "anew")
        for _ in range(rng.integers(1, 12)):
            seen = version(checkpoint)
            while version(checkpoint) == seen and process.poll() is None:
                time.sleep(0.0005)
        time.sleep(rng.uniform(0, 0.01))
        process.kill()
        n_killed += process.wait() == -signal.SIGKILL
    assert n_killed > 1
    assert start(tmp_path / "killed", "resume").wait() == 0
    whole, killed = ((tmp_path / name / "run.coef").read_bytes() for name in ("whole", "killed"))
    assert whole == killed


def test_the_estimator_resumes(small, tmp_path, monkeypatch):
    table, _ = small
    fit = {"X": table.X, "y": table.y, "agent": table.agent, "entity": table.entity}
    fit["validation"] = tuple(column[:50] for column in fit.values())
    params = {"rounds": 30, "patience": None, "participation": 0.5, "failure_rate": 0.3}
    whole = FedHLCRRegressor(**params).fit(**fit)
    path = tmp_path / "run"

    class TiredError(Exception):
        pass

    def stop_at(record):
        if record.round == 13:
            raise TiredError

    saved = FedHLCRRegressor(**params, checkpoint=path, checkpoint_every=5)
    with monkeypatch.context() as patch:
        patch.setattr(RoundProgress, "__call__", lambda self, record: stop_at(record))
        with pytest.raises(TiredError):
            saved.fit(**fit)
    resumed = FedHLCRRegressor(**params, checkpoint=path, checkpoint_every=5).fit(**fit, resume=True)
    np.testing.assert_array_equal(whole.posterior_.draws.coef, resumed.posterior_.draws.coef)
    np.testing.assert_array_equal(whole.history_["log_joint"], resumed.history_["log_joint"])
    np.testing.assert_array_equal(whole.history_["n_refused"], resumed.history_["n_refused"])
    np.testing.assert_array_equal(whole.history_["validation_mse"], resumed.history_["validation_mse"])
    assert np.isfinite(whole.history_["validation_mse"][1:]).all()
    X_new = make_hlcr(3, 2, 3, 3, random_state=1)[0].X
    np.testing.assert_array_equal(whole.predict(X_new, NEW), resumed.predict(X_new, NEW))
    with pytest.raises(ValueError, match="pass its path as `checkpoint`"):
        FedHLCRRegressor().fit(**fit, resume=True)
    # a run that has ended stays as it is
    again = FedHLCRRegressor(**params, checkpoint=path, checkpoint_every=5).fit(**fit, resume=True)
    np.testing.assert_array_equal(whole.posterior_.draws.coef, again.posterior_.draws.coef)


def test_an_old_checkpoint_stays_until_there_is_a_new_one(small, tmp_path):
    table, _ = small
    path = tmp_path / "run"
    fit = {"X": table.X, "y": table.y, "agent": table.agent, "entity": table.entity}
    FedHLCRRegressor(rounds=3, checkpoint=path).fit(**fit)
    old = path.read_bytes()
    with pytest.raises(ValueError, match="`validation` must be a tuple"):
        FedHLCRRegressor(rounds=3, checkpoint=path).fit(**fit, validation=7)
    assert path.read_bytes() == old


@pytest.mark.slow
def test_the_draws_held_are_bounded(small):
    """However long a run is, and spread over its later half."""
    table, _ = small
    server, engine = server_for(3, max_clusters=4, rounds=2000, patience=None, n_draws=20), in_process(table)
    sizes = []
    while server.round < 700:
        run_round(server, engine)
        sizes.append(len(server.kept_draws))
    assert max(sizes) <= 20
    assert min(sizes[-300:]) >= 8
    rounds = [draw.round for draw in server.kept_draws]
    assert min(rounds) < 450
    assert max(rounds) > 650
