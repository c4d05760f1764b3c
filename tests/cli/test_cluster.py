"""`fedhlcr fit --engine ray`: which options go together. Fits on a cluster: `tests/engines/ray/test_on_ray.py`."""

from __future__ import annotations

import pytest

from fedhlcr import FedHLCRCountRegressor, FedHLCRRegressor, HLCRRegressor
from fedhlcr.cli.fitting import Cluster
from fedhlcr.cli.shell import WRONG_USAGE
from fedhlcr.data import table_pieces
from fedhlcr.data.families import COUNT, REAL
from fedhlcr.engines.ray import engine
from fedhlcr.exceptions import ArgumentError
from fedhlcr.storage import scratch
from tests.cli.test_streamed_fit import require_same_model, table, to_folder
from tests.commands import COLUMNS, call, shop_table
from tests.local_actors import DiesOnce, LocalActors, assert_same_fit, use_local_actors


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--workers", 2), "add --engine ray"),
        (("--address", "head:6379"), "add --engine ray"),
        (("--engine", "ray", "--chains", 2), "single chain"),
        (("--engine", "ray", "--workers", 0), "--workers"),
    ],
)
def test_options_that_do_not_go_together_are_refused(tmp_path, capsys, options, words):
    shop_table().to_csv(tmp_path / "t.csv", index=False)
    assert call("fit", tmp_path / "t.csv", *COLUMNS, *options, "--out", tmp_path / "m") == WRONG_USAGE
    assert words in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "m").exists()


SETTINGS = {"n_chains": 1, "n_sweeps": 7, "random_state": 1}


def test_engine_makes_the_estimator():
    model = Cluster("ray", 3, "head:6379").estimator(COUNT, **SETTINGS)
    assert isinstance(model, FedHLCRCountRegressor)
    assert (model.rounds, model.engine.n_workers, model.engine.address) == (7, 3, "head:6379")
    assert isinstance(Cluster("ray").estimator(REAL, **SETTINGS), FedHLCRRegressor)
    here = Cluster("in_process").estimator(REAL, **SETTINGS)
    assert isinstance(here, HLCRRegressor)
    assert here.n_sweeps == 7


QUICK = ("--sweeps", 4, "--max-clusters", 3, "--threads", 1)
CASES = {
    "plain": ("--target", "y"),
    "held_out": ("--target", "y", "--hold-out", 0.3, "--seed", 4),
    "curves": ("--target", "y", "--curves", "x"),
    "counts": ("--target", "visits", "--exposure", "hours", "--hold-out", 0.2),
    "student": ("--target", "y", "--noise", "student"),
}


@pytest.mark.parametrize("case", CASES)
def test_workers_that_read_files_give_the_model_of_the_table_in_memory(case, tmp_path, monkeypatch):
    monkeypatch.setattr(table_pieces, "PIECE_ROWS", 37)
    monkeypatch.setattr(engine, "PIECE_BYTES", 2000)
    monkeypatch.setattr(scratch, "LARGE", 1000)
    folder = to_folder(table(300), tmp_path / "t")
    options = ("--agent", "shop", "--entity", "item", "--features", "x,z", *CASES[case], *QUICK, "--engine", "ray")
    for how, n_workers in (("--in-memory", 1), ("--stream", 3)):
        # a worker dies after it has read its files, and another when it is asked for its matrices
        deaths = [DiesOnce("build", 2), DiesOnce("grams", 1)] if how == "--stream" else []
        actors = LocalActors(lambda *call, deaths=deaths: any(tuple(dies(*call) for dies in deaths)))
        use_local_actors(monkeypatch, actors)
        assert call("fit", folder, *options, how, "--workers", n_workers, "-q", "--out", tmp_path / how) == 0
        assert len(actors.started) == n_workers + len(deaths)
    require_same_model(tmp_path / "--in-memory", tmp_path / "--stream")
    assert not (tmp_path / "--stream.build").exists()


def test_ids_of_csv_with_decimal_points_are_found(tmp_path, monkeypatch):
    use_local_actors(monkeypatch)
    frame = table(200)
    frame["shop"] = frame["shop"].astype(float)
    frame.to_csv(tmp_path / "t.csv", index=False)
    options = ("--target", "y", "--agent", "shop", "--entity", "item", "--features", "x", *QUICK, "--engine", "ray")
    for how in ("--in-memory", "--stream"):
        assert call("fit", tmp_path / "t.csv", *options, how, "-q", "--out", tmp_path / how) == 0
    require_same_model(tmp_path / "--in-memory", tmp_path / "--stream")


def test_files_are_fitted_in_python(tmp_path, monkeypatch):
    use_local_actors(monkeypatch)
    frame, roles = table(200), {"agent": "shop", "entity": "item"}
    folder, params = to_folder(frame, tmp_path / "t"), {"rounds": 4, "max_clusters": 3, "n_threads": 1}
    model = FedHLCRRegressor(engine="ray", **params).fit_files(folder, target="y", features=["x", "z"], **roles)
    expected = FedHLCRRegressor(**params).fit(frame[["x", "z", "shop", "item"]], frame["y"], **roles)
    assert_same_fit(model, expected)
    with pytest.raises(ArgumentError, match="needs engine='ray'"):
        expected.fit_files(folder, target="y", **roles)
    with pytest.raises(ArgumentError, match="need engine='in_process'"):
        FedHLCRRegressor(engine="ray", failure_rate=0.1).fit_files(folder, target="y", **roles)
