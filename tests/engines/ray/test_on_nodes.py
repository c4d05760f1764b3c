"""A Ray cluster of two nodes, both on this machine, that is reached by its address; one of the nodes may die."""

from __future__ import annotations

import os
import signal
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedhlcr import FedHLCRRegressor
from fedhlcr.datasets import make_hlcr
from fedhlcr.engines.ray import RayCluster
from fedhlcr.federation.sums import PAGE_SIZE
from tests.engines.ray.test_on_ray import IGNORED
from tests.local_actors import assert_same_fit

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray"), *map(pytest.mark.filterwarnings, IGNORED)]

TABLE, _ = make_hlcr(PAGE_SIZE + 40, 2, 3, 2, 3, 0.4, random_state=5)
FIELDS = {"X": TABLE.X, "y": TABLE.y, "agent": TABLE.agent, "entity": TABLE.entity}
PARAMS = {"rounds": 8, "max_clusters": 6, "random_state": 3, "n_threads": 1}
ROLES = {"target": "target", "agent": "agent", "entity": "entity"}
# Only this machine may connect. Nodes that do not answer are given up soon.
NODE = {"node_ip_address": "127.0.0.1", "num_cpus": 1, "object_store_memory": 2**27}
QUICK = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 4}


@pytest.fixture
def nodes(monkeypatch):
    """The address of a cluster, and the process of its second node."""
    pytest.importorskip("psutil")
    pytest.importorskip("ray", reason="the ray extra is not installed")
    from ray.cluster_utils import Cluster

    # Ray would look for 127.0.0.1 at the machine's other address
    monkeypatch.setattr("ray._private.services.get_node_ip_address", lambda address=None: "127.0.0.1")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cluster = Cluster(
            initialize_head=True, head_node_args={**NODE, "include_dashboard": False, "_system_config": QUICK}
        )
        second = cluster.add_node(**NODE)
    (raylet,) = second.all_processes["raylet"]
    yield cluster.address, raylet.process.pid
    # it ends the processes that it has started, by their ids
    cluster.shutdown()


@pytest.fixture
def folder(tmp_path):
    """The table in three Parquet files."""
    (tmp_path / "table").mkdir()
    for number, rows in enumerate(np.array_split(np.arange(len(TABLE)), 3)):
        pq.write_table(TABLE.to_arrow().take(pa.array(rows)), tmp_path / "table" / f"{number}.parquet")
    return tmp_path / "table"


def fitted(folder, address, mods=()):
    engine = RayCluster(address=address, n_workers=2, mods=mods)
    return FedHLCRRegressor(engine=engine, **PARAMS).fit_files(folder, **ROLES)


@pytest.mark.parametrize("dies", [False, True])
def test_a_cluster_of_two_nodes_gives_the_model_of_one_process(nodes, folder, tmp_path, dies):
    address, second = nodes
    seen = tmp_path / "seen"
    seen.mkdir()

    def note_or_die(broadcast, answer):
        contributions = answer(broadcast)
        # a worker is a child of its node
        (seen / f"{os.getppid()} {broadcast.round}").touch()
        if dies and broadcast.round == 4 and os.getppid() == second:
            os.kill(second, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        return contributions

    model = fitted(folder, address, [note_or_die])
    nodes_of = {number: {path.name.split()[0] for path in seen.glob(f"* {number}")} for number in range(9)}
    assert [len(nodes_of[number]) for number in range(4)] == [2] * 4
    assert [len(nodes_of[number]) for number in range(5, 9)] == [1 if dies else 2] * 4
    assert os.path.exists(f"/proc/{second}/exe") != dies
    assert_same_fit(model, FedHLCRRegressor(**PARAMS).fit(**FIELDS))
