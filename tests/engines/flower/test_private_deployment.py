"""Differential privacy under secure aggregation, with a real SuperLink and real SuperNodes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the flower extra is not installed")
pytest.importorskip("opendp", reason="the privacy extra is not installed")

from fedhlcr.datasets import make_hlcr
from fedhlcr.engines.flower.app_folder import write_app
from fedhlcr.engines.flower.loopback import Loopback
from fedhlcr.engines.flower.tally import Tally
from fedhlcr.posterior import PublicModel
from tests.flower_grid import node_config, write_table

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("deployment")]

NODES = ("north", "south", "west")
N_AGENTS, ROUNDS = 30, 2
OPTIONS = {
    "epsilon": 50.0,
    "delta": 0.001,
    "privacy-rounds": ROUNDS,
    "aggregation": "secure",
    "min-cohort": 3,
    "min-nodes": 3,
    "wait-for-nodes": 600.0,
    "round-timeout": 240.0,
}


def start(loopback: Loopback, folder: Path) -> None:
    """Three nodes that take part in nothing but private runs under masks, of this budget."""
    table, _ = make_hlcr(N_AGENTS, 8, 10, n_features=3, n_clusters=3, random_state=5)
    node_of = np.unique(table.agent, return_inverse=True)[1] % len(NODES)
    loopback.start_superlink()
    keys, configs = loopback.certificates, {}
    for number, name in enumerate(NODES):
        loopback.register(name)
        path = write_table(folder / f"{name}.csv", table[node_of == number])
        more = {"key-path": str(keys.node_key(name)), "peers-path": str(keys.nodes), "test-path": str(path)}
        configs[name] = node_config(path, table, **more, aggregation="secure", **{"max-epsilon": "50"})
    for name, config in configs.items():
        loopback.start_supernode(name, config)


def test_nodes_add_the_noise_and_count_what_they_answer(tmp_path):
    write_app(tmp_path / "app", OPTIONS)
    with Loopback(tmp_path / "loopback") as loopback:
        start(loopback, tmp_path)
        loopback.follow(loopback.start_run(tmp_path / "app", {"experiment": "private"}), limit=1800)
        output = loopback.folder / "fedhlcr-output"
        history = json.loads((output / "private.history.json").read_text())
        assert [record["n_accepted"] for record in history] == [4 * N_AGENTS, N_AGENTS, N_AGENTS]
        assert json.loads((output / "private.scores.json").read_text()) == {}
        model = PublicModel.load(output / "private.model")
        assert model.privacy.epsilon == pytest.approx(50.0)
        for name in NODES:
            folder = tmp_path / f"{name}.csv.state"
            (run,) = Tally.of(folder, None)._read()
            assert run.plan == model.privacy
            assert run.spent == pytest.approx(model.privacy.mu**2)
            assert PublicModel.load(folder / "private.model").privacy == model.privacy
