"""Secure aggregation with a real SuperLink and real SuperNodes: a node is killed in each of the four stages.

A round consists of four exchanges, so it takes four times as long as a plain one. A dead node is missed after a minute.
"""

from __future__ import annotations

import json
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the flower extra is not installed")

from fedhlcr import FedHLCRRegressor, hold_out_events
from fedhlcr.datasets import make_hlcr
from fedhlcr.engines.flower.app_folder import write_app
from fedhlcr.engines.flower.loopback import Loopback
from fedhlcr.engines.flower.options import RunOptions
from fedhlcr.privacy.terms import SumStage
from tests.flower_grid import LocalNode, node_config, write_table
from tests.flower_keys import assert_nodes_hold_the_total, server_at

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("deployment")]

NODES = tuple(f"node-{number}" for number in range(5))
SEED, ROUNDS = 7, 12
OPTIONS = {"aggregation": "secure", "min-cohort": 3, "seed": SEED, "min-nodes": 5, "patience": 0}
WAITING = {"wait-for-nodes": 600.0, "round-timeout": 240.0}
# The node's code, which stops for ever where it was told to: after all is saved, and before the reply is sent.
STOPPING = """
import time
from fedhlcr.engines.flower import client_app
from fedhlcr.engines.flower.node import Node
from fedhlcr.storage import codec

honest = Node.add_up


def add_up(self, asked, opening):
    reply = honest(self, asked, opening)
    order = self.options.state_dir / "stop-at"
    if order.exists() and codec.kind_of(asked.message) == "secure-sum-ask-" + order.read_text():
        order.rename(order.with_name("stopped"))
        time.sleep(3600)
    return reply


Node.add_up = add_up
app = client_app.app
"""


@pytest.fixture(scope="module")
def table():
    """Clear clusters: after six rounds R² is within .002 of its limit, whoever missed some of them."""
    shape = {"n_agents": 30, "entities_per_agent": 8, "events_per_entity": 10, "n_features": 3, "n_clusters": 3}
    return make_hlcr(**shape, random_state=5)[0]


@pytest.fixture(scope="module")
def split(table):
    train, test = hold_out_events(table.agent, table.entity, random_state=0)
    return table[train], table[test]


class Deployment:
    """The federation, and what its nodes keep."""

    def __init__(self, folder: Path, split) -> None:
        self.folder, self.configs, self.is_over, self.supervisors = folder, {}, threading.Event(), []
        write_app(folder / "app", {**OPTIONS, **WAITING})
        project = folder / "app" / "pyproject.toml"
        project.write_text(project.read_text().replace("fedhlcr.engines.flower.client_app:app", "stopping:app"))
        (folder / "app" / "stopping.py").write_text(STOPPING)
        self.loopback = Loopback(folder / "loopback")
        keys = self.loopback.certificates
        for number, name in enumerate(NODES):
            paths = []
            for part, own in zip(("train", "test"), split, strict=True):
                node_of = np.unique(own.agent, return_inverse=True)[1] % len(NODES)
                paths.append(write_table(folder / f"{name}-{part}.csv", own[node_of == number]))
            more = {"test-path": str(paths[1]), "key-path": str(keys.node_key(name)), "peers-path": str(keys.nodes)}
            self.configs[name] = node_config(paths[0], split[0], **more, aggregation="secure")

    def start(self) -> None:
        self.loopback.start_superlink()
        for name in NODES:
            self.loopback.register(name)
        for name in NODES:
            self.loopback.start_supernode(name, self.configs[name])

    def state_dir(self, node: str) -> Path:
        return self.folder / f"{node}-train.csv.state"

    def kill_at(self, node: str, stage: SumStage) -> None:
        """Kill −9 a node that is about to send its reply of a stage."""
        (self.state_dir(node) / "stop-at").write_text(stage.value)
        wait_until(lambda: (self.state_dir(node) / "stopped").exists(), f"{node} reaches {stage.value}")
        self.loopback.kill(node)
        (self.state_dir(node) / "stopped").unlink()
        self.supervisors.append(threading.Thread(target=self.revive, args=(node,)))
        self.supervisors[-1].start()

    def revive(self, node: str) -> None:
        """Start a node again and again, as a supervisor does: the SuperLink lets none in that it takes for alive."""
        while not self.is_over.is_set():
            process = self.loopback.processes.get(node)
            if process is None or process.poll() is not None:
                self.loopback.start_supernode(node, self.configs[node])
            self.is_over.wait(10)

    def output(self, experiment: str, ending: str) -> Path:
        return self.loopback.folder / "fedhlcr-output" / f"{experiment}.{ending}"

    def check_total(self, experiment: str, rounds: int) -> None:
        """The server's total is the sum of what the nodes' files hold, bit for bit."""
        settings = RunOptions.from_config({**OPTIONS, "rounds": rounds}).settings(3)
        server = server_at(self.output(experiment, "checkpoint"), settings)
        nodes = {number: LocalNode(self.configs[name]) for number, name in enumerate(NODES)}
        assert_nodes_hold_the_total(nodes, server, experiment)


def wait_until(happens, what: str, limit: float = 900.0) -> None:
    deadline = time.monotonic() + limit
    while not happens():
        assert time.monotonic() < deadline, f"{what}: not in {limit:g} s"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory, split):
    made = Deployment(tmp_path_factory.mktemp("secure"), split)
    with made.loopback:
        try:
            made.start()
            yield made
        finally:
            made.is_over.set()
            for supervisor in made.supervisors:
                supervisor.join()


def test_a_short_run_gives_the_total_that_nodes_hold(deployment):
    loopback = deployment.loopback
    loopback.follow(loopback.start_run(deployment.folder / "app", {"rounds": 2, "experiment": "short"}), limit=1800)
    history = json.loads(deployment.output("short", "history.json").read_text())
    assert [record["n_accepted"] for record in history] == [60, 30, 30]
    deployment.check_total("short", 2)


def test_nodes_killed_in_every_stage_lose_nothing(deployment, split):
    loopback = deployment.loopback
    options = {"rounds": ROUNDS, "experiment": "rough"}
    run = loopback.start_run(deployment.folder / "app", options)
    log = loopback.log_path(loopback.watch(run))
    wait_until(lambda: "round 1 of" in log.read_text(errors="replace"), "the first round ends")
    said = partial(log.read_text, errors="replace")
    for node, stage in zip(NODES, [stage for stage in SumStage if stage is not SumStage.OVER], strict=False):
        deployment.kill_at(node, stage)
        seen = len(said())
        # one node fails per round: of five nodes, four must stay to the end
        wait_until(lambda seen=seen: "agents answered" in said()[seen:], "the round ends without the node")
        if stage in (SumStage.SHARES, SumStage.UNMASKING):
            # at most two nodes are away at the same time; three are the smallest cohort
            seen = len(said())
            wait_until(lambda seen=seen: "30 of 30 agents" in said()[seen:], "all are back")
    loopback.follow(run, limit=3600)
    assert "a new epoch begins" not in said(), "nobody has lost anything"
    assert "is void" not in said()
    assert "start again" not in "".join(loopback.log_path(node).read_text(errors="replace") for node in NODES)
    deployment.check_total("rough", ROUNDS)
    train, test = split
    plain = FedHLCRRegressor(rounds=ROUNDS, patience=None, random_state=SEED).fit(
        train.X, train.y, agent=train.agent, entity=train.entity
    )
    expected = plain.score(test.X, test.y, agent=test.agent, entity=test.entity)
    found = json.loads(deployment.output("rough", "scores.json").read_text())["all"]["r2"]
    assert found == pytest.approx(expected, abs=0.005)
