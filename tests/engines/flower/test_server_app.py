"""A whole run of the Flower app on a grid without Ray and without sockets: the model, its files, and resuming."""

import errno
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

pytest.importorskip("flwr", reason="the flower extra is not installed")


from fedhlcr import FedHLCRRegressor
from fedhlcr.engines.flower.engine import NotEnoughNodesError
from fedhlcr.engines.flower.node import Node
from fedhlcr.engines.flower.node_options import NodeOptions
from fedhlcr.engines.flower.records import RequestType
from fedhlcr.exceptions import StorageError
from fedhlcr.posterior import PublicModel
from fedhlcr.storage import atomic
from tests.flower_grid import (
    LocalNode,
    assert_same_model,
    fit_in_process,
    history_of,
    local_nodes,
    node_config,
    run_app,
    scores_of,
    write_table,
)

pytestmark = pytest.mark.usefixtures("clock")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"participation": 0.5},
        {"clusters": 4, "rounds": 5},
        {"curves": "auto", "participation": 0.5},
        {"noise": "student", "clusters": 4, "rounds": 40},
    ],
)
def test_model_equals_in_process_fit(nodes, table, tmp_path, settings):
    model = run_app(nodes, tmp_path, **settings)
    renamed = {{"clusters": "n_clusters"}.get(name, name): value for name, value in settings.items()}
    assert_same_model(model, fit_in_process(table, **renamed).posterior_, tolerance=0)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_model_without_entities_equals_in_process_fit(ending, table, tmp_path):
    nodes = {}
    for number in range(3):
        path = write_table(tmp_path / f"{number}.{ending}", table[table.agent % 3 == number])
        nodes[100 + number] = LocalNode({**node_config(path, table), "entity": ""})
    alone = FedHLCRRegressor(rounds=8, random_state=3).fit(table.X, table.y, agent=table.agent)
    assert_same_model(run_app(nodes, tmp_path), alone.posterior_, tolerance=0)


def test_files_of_one_named_agent_equal_in_process_fit(table, tmp_path):
    """Files without a column of agents."""
    nodes = {}
    for number in range(3):
        own = table[table.agent == number].to_arrow().drop_columns(["agent"])
        pa.parquet.write_table(own, tmp_path / f"{number}.parquet")
        config = {**node_config(tmp_path / f"{number}.parquet", table), "agent-name": f"hospital {number}"}
        nodes[100 + number] = LocalNode({name: value for name, value in config.items() if name != "agent"})
    some = table[table.agent < 3]
    names = np.array([f"hospital {number}" for number in some.agent])
    alone = FedHLCRRegressor(rounds=8, random_state=3).fit(some.X, some.y, agent=names, entity=some.entity)
    assert_same_model(run_app(nodes, tmp_path), alone.posterior_, tolerance=0)


def test_participants_follow_the_seed_and_no_global_generator(nodes, table, tmp_path):
    expected = fit_in_process(table, participation=0.5).history_
    before = random.getstate(), np.random.mtrand._rand.get_state()[1].tolist()
    run_app(nodes, tmp_path, participation=0.5)
    assert (random.getstate(), np.random.mtrand._rand.get_state()[1].tolist()) == before
    asked = {number: set() for number in expected["round"]}
    for node in nodes.values():
        for message in node.requests:
            if message.metadata.message_type == RequestType.ROUND:
                asked[int(message.metadata.group_id)] |= set(message.content.config_records["Letter"]["agents"])
    for record in expected[1:]:
        assert asked[record["round"]] == {str(agent) for agent in record["participants"]}


def test_model_does_not_depend_on_how_agents_are_spread(table, tmp_path):
    models = []
    for n_nodes in (1, 2, 5):
        folder = tmp_path / str(n_nodes)
        folder.mkdir()
        models.append(run_app(local_nodes(folder, table, n_nodes), folder, min_nodes=1))
    for model in models[1:]:
        assert_same_model(model, models[0], tolerance=0)


def test_simulated_nodes_share_a_file_or_a_folder(nodes, table, tmp_path):
    whole = write_table(tmp_path / "whole.parquet", table)
    expected = run_app(nodes, tmp_path)
    folder = tmp_path / "files"
    folder.mkdir()
    for number in range(3):
        write_table(folder / f"{number}.csv", table[table.agent % 3 == number])
    for path in (whole, folder):
        told = {f"simulation.{key}": value for key, value in node_config(path, table).items()}
        config = told | {"output-dir": str(tmp_path / path.name / "out" if path is folder else tmp_path / "sim")}
        simulated = {200 + i: LocalNode({"partition-id": i, "num-partitions": 3}, run_config=config) for i in range(3)}
        assert_same_model(run_app(simulated, tmp_path, **config), expected, tolerance=0)


def test_model_is_written_at_server_and_nodes(nodes, table, tmp_path):
    model = run_app(nodes, tmp_path)
    copies = [tmp_path / "out" / "experiment.model"]
    copies += [Node(NodeOptions.from_context(node.config, {}), "experiment").model_path for node in nodes.values()]
    for path in copies:
        copy = PublicModel.load(path)
        assert_same_model(copy, model, tolerance=0)
        assert copy.features == table.feature_names
    history = history_of(tmp_path)
    assert [record["round"] for record in history] == list(range(9))
    assert history[1]["validation_mse"] is None


def test_nodes_score_the_model_on_their_test_events(nodes, table, tmp_path):
    model_in_process = fit_in_process(table)
    held_out = table[::3]
    number = np.unique(held_out.agent, return_inverse=True)[1] % 3
    for i in (0, 1):
        nodes[100 + i].config["test-path"] = str(write_table(tmp_path / f"test-{i}.csv", held_out[number == i]))
    # what predicts is compiled here, if nowhere before
    run_app(nodes, tmp_path, round_timeout=60.0)
    scores = scores_of(tmp_path)
    assert set(scores) == {"node 100", "node 101", "all"}, "the third node has no test events"
    scored = held_out[number < 2]
    r2 = model_in_process.score(scored.X, scored.y, agent=scored.agent, entity=scored.entity)
    assert scores["all"]["n_events"] == len(scored)
    assert scores["all"]["r2"] == pytest.approx(r2, abs=1e-9)


def test_simulated_nodes_score_the_model_on_their_own_agents(table, tmp_path):
    whole, some = write_table(tmp_path / "whole.csv", table), table[table.agent != 0]
    told = node_config(whole, table, **{"test-path": str(write_table(tmp_path / "test.csv", some))})
    config = {f"simulation.{name}": value for name, value in told.items()} | {"output-dir": str(tmp_path / "out")}
    nodes = {200 + i: LocalNode({"partition-id": i, "num-partitions": 3}, run_config=config) for i in range(3)}
    run_app(nodes, tmp_path, round_timeout=60.0, **config)
    r2 = fit_in_process(table).score(some.X, some.y, agent=some.agent, entity=some.entity)
    assert scores_of(tmp_path)["all"]["r2"] == pytest.approx(r2)


def test_scores_of_few_test_events_are_not_reported(nodes, table, tmp_path):
    nodes[101].config["test-path"] = str(write_table(tmp_path / "few.csv", table[table.agent % 3 == 1][:9]))
    run_app(nodes, tmp_path)
    assert scores_of(tmp_path) == {}


@pytest.mark.slow
def test_experiments_are_independent(nodes, table, tmp_path):
    expected = run_app(nodes, tmp_path, experiment="first")
    run_app(nodes, tmp_path, experiment="second", seed=4)
    assert_same_model(run_app(nodes, tmp_path, experiment="first"), expected, tolerance=0)
    run_app(nodes, tmp_path, experiment="first", seed=5, rounds=2)
    assert_same_model(run_app(nodes, tmp_path, experiment="first"), expected, tolerance=0)


def test_interrupted_run_resumes_to_the_same_model(nodes, tmp_path, logged):
    expected = run_app(nodes, tmp_path, experiment="whole", participation=0.7)

    def power_cut(message):
        if message.metadata.group_id == "5" and message.metadata.dst_node_id == 101:
            raise SystemExit
        return False

    nodes[101].dies_at = power_cut
    with pytest.raises(SystemExit):
        run_app(nodes, tmp_path, participation=0.7)
    nodes[101].dies_at = lambda message: False
    with pytest.raises(ValueError, match=r"has a checkpoint of a run that has not ended.*: run with resume=true"):
        run_app(nodes, tmp_path, participation=0.7)
    with pytest.raises(ValueError, match="other settings"):
        run_app(nodes, tmp_path, participation=0.7, seed=9, resume=True)
    # the order that was agreed on stays, whoever is there, and nobody starts again
    nodes[100].config["features"] = ",".join(reversed(nodes[100].config["features"].split(",")))
    model = run_app(nodes, tmp_path, participation=0.7, resume=True)
    assert "resumed after round 4" in logged.text
    assert "start again" not in logged.text
    assert_same_model(model, expected, tolerance=0)
    assert_same_model(run_app(nodes, tmp_path, participation=0.7, resume=True), expected, tolerance=0)


def test_run_stops_when_no_node_can_answer_and_resumes(nodes, tmp_path, monkeypatch):
    """Rounds are not burnt on nodes that say they are there and fail at every request."""

    def full(path, *arguments, **parameters):
        if str(path).endswith(".state"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return honest(path, *arguments, **parameters)

    honest = atomic.write_atomically

    def fills(message):
        if message.metadata.group_id == "3":
            monkeypatch.setattr(atomic, "write_atomically", full)
        return False

    nodes[100].dies_at = fills
    with pytest.raises(NotEnoughNodesError, match=r"no node was ready for 1 seconds .*node 101: StateError"):
        run_app(nodes, tmp_path, wait_for_nodes=1.0)
    monkeypatch.undo()
    nodes[100].dies_at = lambda message: False
    run_app(nodes, tmp_path, resume=True)
    history = history_of(tmp_path)
    assert [record["n_accepted"] for record in history].count(0) == 1


def test_run_stops_when_all_nodes_leave_and_resumes(nodes, table, tmp_path):
    expected = run_app(nodes, tmp_path, experiment="whole")

    def all_go(message):
        if message.metadata.group_id == "4":
            for node in nodes.values():
                node.online = False
            return True
        return False

    nodes[100].dies_at = all_go
    for number in (101, 102):
        nodes[number].dies_at = lambda message: message.metadata.group_id == "4"
    with pytest.raises(NotEnoughNodesError, match=r"no node was ready for 1 seconds .*resume=true"):
        run_app(nodes, tmp_path, wait_for_nodes=1.0)
    for node in nodes.values():
        node.online, node.dies_at = True, lambda message: False
    model = run_app(nodes, tmp_path, resume=True)
    assert len(model.draws) == len(expected.draws)


def test_impossible_resume_fails_before_waiting_for_nodes(tmp_path, clock):
    begin = clock.monotonic()
    with pytest.raises(StorageError, match="does not exist"):
        run_app({}, tmp_path, resume=True, wait_for_nodes=60.0)
    (tmp_path / "out" / "experiment.checkpoint").write_bytes(b"damaged")
    with pytest.raises(ValueError, match="or that cannot be read"):
        run_app({}, tmp_path, wait_for_nodes=60.0)
    assert clock.monotonic() == begin


def test_model_is_returned_when_no_node_is_left_to_keep_it(nodes, tmp_path, monkeypatch):
    honest = PublicModel.save

    def save(self, path):
        for node in nodes.values():
            node.online = False
        honest(self, path)

    monkeypatch.setattr(PublicModel, "save", save)
    assert run_app(nodes, tmp_path).draws.n_clusters
    assert scores_of(tmp_path) == {}
