"""Differential privacy on a grid without sockets: the same model as in process, and nothing but noisy sums."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the flower extra is not installed")
pytest.importorskip("opendp", reason="the privacy extra is not installed")

import fedhlcr
from fedhlcr.cli import run
from fedhlcr.engines.flower import private_node
from fedhlcr.engines.flower.options import RunOptions
from fedhlcr.exceptions import FederationError, NotEnoughNodesError
from fedhlcr.federation.private.inquiry import ANSWER_KIND
from fedhlcr.privacy.terms import SumStage
from fedhlcr.storage import codec
from tests.flower_grid import LocalGrid, history_of, local_nodes, run_app, scores_of
from tests.flower_keys import keyed_nodes
from tests.flower_link import FakeSuperLink
from tests.flower_private import OPTIONS, ROUNDS, assert_same_draws, server_in_process, without_noise

SECURE = {**OPTIONS, "aggregation": "secure", "min_cohort": 3}


@pytest.fixture
def keyed(tmp_path, table):
    """Five nodes, and the keys of all."""
    return keyed_nodes(tmp_path, table, 5)


def test_plain_run_gives_the_model_of_a_run_in_process(nodes, table, tmp_path, monkeypatch):
    without_noise(monkeypatch)
    model = run_app(nodes, tmp_path, **OPTIONS)
    server = server_in_process(table)
    assert_same_draws(model, server.model())
    assert model.privacy == server.plan
    assert [record["n_accepted"] for record in history_of(tmp_path)] == [4 * 12, *[12] * ROUNDS]


@pytest.mark.slow
@pytest.mark.ci
def test_secure_run_gives_the_model_of_a_run_in_process(keyed, table, tmp_path, monkeypatch):
    without_noise(monkeypatch)
    model = run_app(keyed, tmp_path, **SECURE)
    assert_same_draws(model, server_in_process(table, aggregation="secure", min_cohort=3).model())


def test_nodes_keep_a_model_that_says_what_was_guaranteed(nodes, tmp_path, capsys):
    model = run_app(nodes, tmp_path, **OPTIONS)
    kept = tmp_path / "0.csv.state" / "experiment.model"
    assert kept.read_bytes() == model.to_bytes()
    assert fedhlcr.load(kept).privacy_ == model.privacy
    assert run(["inspect", str(kept)]) == 0
    assert "epsilon 100, delta 0.001 for each of 12 agents" in capsys.readouterr().out


def test_the_files_of_a_run_hold_nothing_of_a_row(table, tmp_path, monkeypatch):
    """The model names features, which are columns, and no agent, entity or number of an event; nor do other files."""
    ids = {name: np.array([f"{name}-{i}-street" for i in getattr(table, name)]) for name in ("agent", "entity")}
    nodes = local_nodes(tmp_path, replace(table, **ids))
    keys = {number: b"key %d" % number for number in nodes}
    # nodes with keys of their own: the server remembers whose agents are whose
    monkeypatch.setattr("tests.flower_grid.LocalGrid", lambda nodes: FakeSuperLink(nodes, keys).grid())
    run_app(nodes, tmp_path, **OPTIONS)
    written = [*(tmp_path / "out").iterdir(), tmp_path / "0.csv.state/experiment.model"]
    names = {"agents.json", *(f"experiment.{ending}" for ending in ("model", "history.json", "scores.json"))}
    assert {path.name for path in written} == names
    assert len(json.loads((tmp_path / "out/agents.json").read_text())["owners"]) == 12
    numbers = [np.float64(value) for value in np.unique(np.column_stack([table.X, table.y])[:200])]
    for path in written:
        data = path.read_bytes()
        assert not [value for value in numbers if value.tobytes() in data or str(value)[:10].encode() in data]
        assert not [name for own in ids.values() for name in own if name.encode() in data]


def test_the_plan_is_logged_before_anything_is_asked(nodes, tmp_path, logged):
    run_app(nodes, tmp_path, **OPTIONS)
    lines = [record.getMessage() for record in logged.records]
    plan = next(i for i, line in enumerate(lines) if line.startswith("Differential privacy: epsilon = 100"))
    asked = next(i for i, line in enumerate(lines) if line.startswith("all private runs of this node together"))
    assert plan < asked
    assert f"{4 + ROUNDS} of {4 + ROUNDS} queries of the privacy plan were asked" in logged.text
    assert "δ is" not in logged.text


def test_a_large_delta_is_warned_of(nodes, tmp_path, logged):
    run_app(nodes, tmp_path, **OPTIONS | {"delta": 0.0})
    assert "δ is 0.065: the guarantee may fail for one agent in 15" in logged.text


def test_no_scores_are_sent(nodes, tmp_path, logged):
    for node in nodes.values():
        node.config["test-path"] = node.config["data-path"]
    run_app(nodes, tmp_path, **OPTIONS)
    assert scores_of(tmp_path) == {}
    assert logged.text.count("no score is sent: runs of this name are private") == 3


class Watched(LocalGrid):
    """Keeps all that nodes send."""

    def __init__(self, nodes):
        super().__init__(nodes)
        self.replies = []

    def pull_messages(self, message_ids):
        pulled = super().pull_messages(message_ids)
        self.replies += pulled
        return pulled


def watch(monkeypatch):
    """All replies of nodes, and what their agents added before noise."""
    grids, sums = [], []

    def grid(nodes):
        grids.append(Watched(nodes))
        return grids[-1]

    honest = private_node._add_up

    def spy(*args):
        sums.append(honest(*args)[0])
        return sums[-1], []

    monkeypatch.setattr("tests.flower_grid.LocalGrid", grid)
    monkeypatch.setattr(private_node, "_add_up", spy)
    return grids, sums


def replies_of(grid, kind):
    found = [reply.content.config_records for reply in grid.replies]
    return [record[kind] for record in found if kind in record]


def test_nothing_but_blocks_leaves_a_node(nodes, tmp_path, monkeypatch):
    """With a trusted server: names, and for each query one record of a fixed size with the sum of clipped vectors."""
    grids, sums = watch(monkeypatch)
    run_app(nodes, tmp_path, **OPTIONS)
    (grid,) = grids
    kinds = {kind for reply in grid.replies for kind in reply.content.config_records}
    assert kinds == {"Presence", "SumReply", "Score"}
    assert all(
        score == {"n_events": 0, "mean": 0.0, "spread": 0.0, "squared_error": 0.0}
        for score in replies_of(grid, "Score")
    )
    sent = [record["message"] for record in replies_of(grid, "SumReply")]
    assert len(sent) == len(sums) == 3 * (4 + ROUNDS)
    for data, own in zip(sent, sums, strict=True):
        record = codec.decode(data, ANSWER_KIND, 1)
        assert sorted(record) == ["place", "run", "session", "values"]
        np.testing.assert_array_equal(record["values"], own)
    by_query = np.array([len(data) for data in sent]).reshape(-1, 3)
    assert (by_query == by_query[:, :1]).all(), "sizes say nothing about a node"


@pytest.mark.slow
def test_masked_messages_hold_no_number_of_a_node(keyed, tmp_path, monkeypatch):
    """Under secure aggregation neither the agents' sum nor the noisy one is in any message."""
    grids, sums = watch(monkeypatch)
    noisy = []
    honest = private_node.PrivateNode.with_noise

    def spy(self, *args):
        noisy.append(honest(self, *args))
        return noisy[-1]

    monkeypatch.setattr(private_node.PrivateNode, "with_noise", spy)
    run_app(keyed, tmp_path, **SECURE)
    (grid,) = grids
    secrets = np.concatenate([*(own.view(np.uint64) for own in sums), *noisy])
    secrets = {number.tobytes() for number in secrets if 2**20 < number < 2**64 - 2**20}
    assert len(secrets) > 1000
    messages = [record["message"] for record in replies_of(grid, "SumReply")]
    assert len(messages) == 4 * 5 * (4 + ROUNDS)
    values = {
        number.tobytes()
        for data in messages
        for array in codec.decode(data, codec.kind_of(data), 1).values()
        if isinstance(array, np.ndarray) and array.dtype == np.uint64
        for number in array
    }
    assert not values & secrets


def test_a_plain_sum_goes_on_without_a_killed_node(nodes, tmp_path):
    nodes[101].dies_at = lambda message: message.metadata.group_id == "5"
    run_app(nodes, tmp_path, **OPTIONS)
    assert [record["n_accepted"] for record in history_of(tmp_path)] == [48, 12, 8, 8, 8, 8]


def test_a_node_that_was_away_goes_on_with_its_labels(nodes, tmp_path, monkeypatch):
    """It misses rounds in which clusters may have merged."""
    without_noise(monkeypatch)

    def leaves(message):
        nodes[101].online = message.metadata.group_id not in ("5", "6")
        return not nodes[101].online

    nodes[101].dies_at = leaves
    for number in (100, 102):
        nodes[number].dies_at = lambda message: setattr(nodes[101], "online", message.metadata.group_id != "5") or False
    run_app(nodes, tmp_path, **OPTIONS)
    counts = [record["n_accepted"] for record in history_of(tmp_path)]
    assert counts[0] == 48
    assert counts.count(8) >= 1
    assert counts[-1] == 12


def stage_of(message):
    record = message.content.config_records.get("SumMessage")
    return "" if record is None else codec.kind_of(record["message"]).removeprefix("secure-sum-ask-")


@pytest.mark.slow
@pytest.mark.parametrize("stage", [stage for stage in SumStage if stage is not SumStage.OVER])
def test_a_secure_run_survives_a_node_that_dies_in_any_stage(keyed, tmp_path, stage):
    keyed[103].dies_at = lambda message: (message.metadata.group_id, stage_of(message)) == ("6", stage.value)
    run_app(keyed, tmp_path, **SECURE)
    counts = [record["n_accepted"] for record in history_of(tmp_path)]
    assert counts[:2] == [48, 12]
    # who dies after its masked sum was sent is in that sum
    first_missing = 3 if stage is SumStage.UNMASKING else 2
    assert counts[first_missing:] == [10] * len(counts[first_missing:])


def dies_once(keyed, numbers, group, stage):
    """Nodes that are away for one message only."""

    def make(number):
        def dies(message):
            if (message.metadata.group_id, stage_of(message)) != (group, stage.value):
                return False
            keyed[number].dies_at = lambda message: False
            return True

        return dies

    for number in numbers:
        keyed[number].dies_at = make(number)


class Returning(LocalGrid):
    """Nodes that died are back at the next look."""

    def get_node_ids(self):
        for node in self.nodes.values():
            node.online = True
        return super().get_node_ids()


@pytest.mark.slow
def test_a_void_sum_is_asked_for_again_if_nothing_was_sent(keyed, tmp_path, monkeypatch, logged):
    """Two of five nodes are missing before masked values are asked for."""
    monkeypatch.setattr("tests.flower_grid.LocalGrid", Returning)
    dies_once(keyed, (101, 102), "6", SumStage.SHARES)
    run_app(keyed, tmp_path, **SECURE)
    assert "a sum is void, and nothing is lost" in logged.text
    assert [record["n_accepted"] for record in history_of(tmp_path)] == [48, *[12] * ROUNDS]


@pytest.mark.slow
def test_a_sum_that_may_have_been_revealed_is_not_asked_for_again(keyed, tmp_path, monkeypatch, logged):
    monkeypatch.setattr("tests.flower_grid.LocalGrid", Returning)
    dies_once(keyed, (101, 102), "6", SumStage.MASKED)
    run_app(keyed, tmp_path, **SECURE)
    assert "the sum of round 2 is lost, and its part of the budget is spent" in logged.text
    assert [record["n_accepted"] for record in history_of(tmp_path)] == [48, 12, 0, 12, 12, 12]
    assert "AlreadyAnswered" not in logged.text


def test_a_run_that_ends_early_says_what_it_has_spent(keyed, tmp_path, logged):
    for number in (101, 102):
        keyed[number].dies_at = lambda message: message.metadata.group_id == "3"
    with pytest.raises(NotEnoughNodesError, match=r"fewer than 4 nodes were ready .*start another run; its budget"):
        run_app(keyed, tmp_path, wait_for_nodes=1.0, **SECURE)
    assert re.search(r"the private run ends early: 2 of 9 queries .* cost epsilon = \d+.*of 100", logged.text)


def test_nodes_that_refuse_the_plan_are_named(nodes, tmp_path):
    for node in nodes.values():
        node.config["max-epsilon"] = "50"
    with pytest.raises(FederationError, match=r"no node has answered the query of the votes\. .*but it allows 50"):
        run_app(nodes, tmp_path, **OPTIONS)


def test_a_secure_run_that_nodes_refuse_ends_at_once(keyed, tmp_path, logged):
    for node in keyed.values():
        node.config["max-epsilon"] = "50"
    with pytest.raises(FederationError, match=r"nodes refuse the privacy plan of the run\. .*but it allows 50"):
        run_app(keyed, tmp_path, **SECURE)
    assert logged.text.count("there is no sum") == 1


def test_an_answer_beyond_the_clips_is_refused(nodes, tmp_path, monkeypatch, logged):
    """One node of three sends too much: the others' sum does not suffer."""
    honest = private_node._add_up

    def huge(agents, inquiry, group):
        values, names = honest(agents, inquiry, group)
        return (values + 2**40 if "0" in agents.names else values), names

    monkeypatch.setattr(private_node, "_add_up", huge)
    run_app(nodes, tmp_path, **OPTIONS)
    assert {record["n_accepted"] for record in history_of(tmp_path)[1:]} == {8}
    assert "the answer of node" in logged.text


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"resume": True}, "`resume` is not supported with `epsilon`"),
        ({"participation": 0.5}, "`participation` is 0.5"),
        ({"noise-scale": 1.0}, "`noise-scale` cannot be fixed"),
        ({"rule": "blend"}, "`rule` is 'blend'"),
        ({"family": "binary"}, "the plain model only"),
        ({"epsilon": -1.0}, "`epsilon` must be"),
        ({"privacy-rounds": 1}, "`rounds` must be"),
        ({"epsilon": 0.0, "delta": 0.1}, "`delta` is set, but `epsilon` is not"),
    ],
)
def test_a_private_run_refuses(config, words):
    with pytest.raises(ValueError, match=words):
        RunOptions.from_config({"epsilon": 3.0} | config)
