"""A real SuperLink and real SuperNodes on loopback, with TLS and node keys: training, kill -9, resume, a wrong key.

Slow for Flower's polling, not for our work: a round takes some six seconds, and a dead node is missed after a minute.
"""

import json
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the flower extra is not installed")

from fedhlcr import FedHLCRRegressor, hold_out_events
from fedhlcr.datasets import make_hlcr
from fedhlcr.engines.flower.app_folder import write_app
from fedhlcr.engines.flower.loopback import CONNECTION, Loopback, LoopbackError
from fedhlcr.posterior import PublicModel
from tests.flower_grid import assert_same_model, node_config, write_table

# one federation for all of them, in this order, in one process
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("deployment")]

NODES = ("node-0", "node-1", "node-2")
SEED = 7


class Watch:
    """Waits for words in the server's log while a run goes on."""

    def __init__(self, federation: Loopback, run: int) -> None:
        self._federation, self._run = federation, run
        federation.watch(run)

    def wait_for(self, words: str, limit: float = 600.0, *, after: str = "") -> None:
        """`after` words that were said before, where these could have been said earlier."""
        deadline = time.monotonic() + limit
        while words not in (self.said.rpartition(after)[2] if after else self.said):
            assert time.monotonic() < deadline, f"{words!r} was not said in {limit:g} s:\n{self.said}"
            time.sleep(0.3)

    @property
    def said(self) -> str:
        return self._federation.log_path(f"run-{self._run}").read_text(errors="replace")


@pytest.fixture(scope="module")
def table():
    return make_hlcr(n_agents=30, random_state=5)[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, table):
    folder = tmp_path_factory.mktemp("federation")
    train, test = hold_out_events(table.agent, table.entity, random_state=0)
    node_of = np.unique(table.agent, return_inverse=True)[1] % len(NODES)
    for number, name in enumerate(NODES):
        for part, rows in (("train", train), ("test", test)):
            write_table(folder / f"{name}-{part}.csv", table[rows[node_of[rows] == number]])
    write_app(folder / "app", {"seed": SEED, "min-nodes": 3, "wait-for-nodes": 120.0, "round-timeout": 90.0})
    return folder


@pytest.fixture(scope="module")
def federation(folder, table):
    with Loopback(folder / "loopback") as running:
        running.start_superlink()
        for name in NODES:
            running.start_supernode(name, config_of(folder, name, table))
        yield running


def config_of(folder: Path, name: str, table) -> dict[str, str]:
    return node_config(folder / f"{name}-train.csv", table, **{"test-path": str(folder / f"{name}-test.csv")})


def outputs(federation: Loopback, experiment: str, ending: str) -> Path:
    return federation.folder / "fedhlcr-output" / f"{experiment}.{ending}"


def in_process(table, rounds: int) -> FedHLCRRegressor:
    train, _ = hold_out_events(table.agent, table.entity, random_state=0)
    own = table[train]
    return FedHLCRRegressor(rounds=rounds, random_state=SEED).fit(own.X, own.y, agent=own.agent, entity=own.entity)


def test_it_is_the_model_of_one_process(federation, folder, table):
    federation.follow(federation.start_run(folder / "app", {"rounds": 3, "experiment": "plain"}), limit=900)
    model = PublicModel.load(outputs(federation, "plain", "model"))
    assert_same_model(model, in_process(table, 3).posterior_, tolerance=1e-9)


def test_a_node_with_a_wrong_key_is_not_let_in(federation, folder, table):
    federation.start_supernode("stranger", config_of(folder, "node-0", table), register=False)
    process = federation.processes["stranger"]
    assert process.wait(60) != 0
    nodes = federation.flwr("supernode", "list", CONNECTION, "--format", "json")
    assert len(json.loads(nodes)["nodes"]) == len(NODES)


def test_kill_a_node_bring_it_back_kill_the_server_and_resume(federation, folder, table):
    options = {"rounds": 14, "experiment": "rough"}
    run = federation.start_run(folder / "app", options)
    watch = Watch(federation, run)
    watch.wait_for("round 2 of")
    # the server waits for round 3 now, and the node has its request or is about to have it
    time.sleep(3)
    federation.kill("node-1")
    watch.wait_for("round 4 of")
    assert "node node-1 does not take part now" in watch.said
    restart(federation, "node-1", config_of(folder, "node-1", table))
    watch.wait_for("node node-1 is ready", 120)
    # a round that was under way already is without it
    watch.wait_for("30 of 30 agents answered", after="node node-1 is ready")
    assert "start again" not in federation.log_path("node-1").read_text(), "it has gone on with its labels"

    federation.kill("superlink")
    federation.start_superlink()
    unasked = federation.start_run(folder / "app", options)
    with pytest.raises(LoopbackError, match="ended as finished:failed"):
        federation.follow(unasked, limit=120)
    resumed = federation.start_run(folder / "app", options | {"resume": True})
    federation.follow(resumed, limit=1800)
    said = federation.log_path(f"run-{resumed}").read_text(errors="replace")
    assert "resumed after round" in said
    assert "ended after 14 rounds" in said
    rough = json.loads(outputs(federation, "rough", "scores.json").read_text())["all"]["r2"]
    _, test = hold_out_events(table.agent, table.entity, random_state=0)
    held_out = table[test]
    smooth = in_process(table, 14).score(held_out.X, held_out.y, agent=held_out.agent, entity=held_out.entity)
    # how many rounds the node misses is the machine's affair, and 14 rounds are not yet the end
    assert rough == pytest.approx(smooth, abs=0.03)


def restart(federation: Loopback, node: str, config: dict[str, str], limit: float = 120.0) -> None:
    """Until the SuperLink has noticed that the node was gone it does not let it in again."""
    deadline = time.monotonic() + limit
    while True:
        federation.start_supernode(node, config)
        time.sleep(8)
        if federation.processes[node].poll() is None:
            return
        assert time.monotonic() < deadline, f"{node} was not let in again"


def test_nothing_is_left_running(federation):
    """The last test of the file: it stops the federation."""
    family = [process for name in federation.processes for process in federation.family(name)]
    assert len(family) >= 2 * (1 + len(NODES)), "each has started others"
    federation.stop()
    assert not [process for process in family if process.is_running()]
