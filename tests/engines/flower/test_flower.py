"""The Flower app on a grid without Ray and without sockets: the same model, and what real life does to nodes."""

import errno
import json
import logging
import random
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pytest

pytest.importorskip("flwr", reason="the flower extra is not installed")

from flwr.app import Message

import fedhlcr
from fedhlcr import FedHLCRRegressor
from fedhlcr.datasets import make_hlcr
from fedhlcr.engines.flower import client_app, engine
from fedhlcr.engines.flower import node as node_module
from fedhlcr.engines.flower.engine import FlowerEngine, NotEnoughNodesError, Waiting
from fedhlcr.engines.flower.node import Node
from fedhlcr.engines.flower.options import NodeOptions
from fedhlcr.engines.flower.records import Answers, Errand, Letter, RecordError, Score
from fedhlcr.engines.flower.refusal import Refusal
from fedhlcr.exceptions import StorageError
from fedhlcr.federation.group import AgentGroup
from fedhlcr.federation.messages import Contribution
from fedhlcr.federation.run import run_round
from fedhlcr.posterior import PublicModel
from fedhlcr.storage import atomic, codec
from tests.federations import server_for
from tests.flower_grid import (
    LocalGrid,
    LocalNode,
    assert_same_model,
    local_nodes,
    node_config,
    run_app,
    through_bytes,
    write_table,
)

SECRET = "867.5309"
NOTHING = np.empty(0, dtype=np.int32)
NOBODYS = Contribution(0, 0, 0, "", NOTHING, NOTHING, {"grams": np.empty((0, 0))}, np.empty(0), np.empty(0))


@pytest.fixture
def table():
    data, _ = make_hlcr(n_agents=12, random_state=1)
    return data


@pytest.fixture
def nodes(tmp_path, table):
    return local_nodes(tmp_path, table)


@pytest.fixture
def said(caplog):
    """What the server and the nodes log, together."""
    caplog.set_level(logging.INFO, logger="fedhlcr")
    return caplog


@pytest.fixture(autouse=True)
def keep_logging_to_pytest(monkeypatch):
    """The app hands its log lines to Flower's handlers; here they are to be seen."""
    monkeypatch.setattr(client_app, "log_through_flower", lambda: None)


def in_process(table, **params):
    params = {"rounds": 8, "random_state": 3, **params}
    return FedHLCRRegressor(**params).fit(table.X, table.y, agent=table.agent, entity=table.entity)


def state_of(node: LocalNode, experiment="experiment") -> AgentGroup:
    """A node's agents as its file has them."""
    return Node(NodeOptions.from_context(node.config, {}), experiment)._held().group


# The same model


@pytest.mark.parametrize("settings", [{}, {"participation": 0.5}, {"clusters": 4, "rounds": 5}])
def test_it_is_the_model_of_one_process(nodes, table, tmp_path, settings):
    model = run_app(nodes, tmp_path, **settings)
    renamed = {{"clusters": "n_clusters"}.get(name, name): value for name, value in settings.items()}
    assert_same_model(model, in_process(table, **renamed).posterior_, tolerance=0)


def test_participants_are_those_of_the_seed_and_no_global_generator_is_touched(nodes, table, tmp_path):
    expected = in_process(table, participation=0.5).history_
    before = random.getstate(), np.random.mtrand._rand.get_state()[1].tolist()
    run_app(nodes, tmp_path, participation=0.5)
    assert (random.getstate(), np.random.mtrand._rand.get_state()[1].tolist()) == before
    asked = {number: set() for number in expected["round"]}
    for node in nodes.values():
        for message in node.letters:
            if message.metadata.message_type == Errand.LETTER:
                asked[int(message.metadata.group_id)] |= set(message.content.config_records["Letter"]["agents"])
    for record in expected[1:]:
        assert asked[record["round"]] == {str(agent) for agent in record["participants"]}


def test_how_agents_are_dealt_out_does_not_matter(table, tmp_path):
    models = []
    for n_nodes in (1, 2, 5):
        folder = tmp_path / str(n_nodes)
        folder.mkdir()
        models.append(run_app(local_nodes(folder, table, n_nodes), folder, min_nodes=1))
    for model in models[1:]:
        assert_same_model(model, models[0], tolerance=0)


def test_simulated_nodes_take_their_share_of_a_file_or_of_a_folder(nodes, table, tmp_path):
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


def test_the_model_is_on_disk_at_the_server_and_at_every_node(nodes, table, tmp_path):
    model = run_app(nodes, tmp_path)
    copies = [tmp_path / "out" / "experiment.model"]
    copies += [Node(NodeOptions.from_context(node.config, {}), "experiment").model_path for node in nodes.values()]
    for path in copies:
        copy = PublicModel.load(path)
        assert_same_model(copy, model, tolerance=0)
        assert copy.features == table.feature_names
    history = json.loads((tmp_path / "out" / "experiment.history.json").read_text())
    assert [record["round"] for record in history] == list(range(9))
    assert history[1]["validation_mse"] is None


def test_nodes_score_the_model_on_their_own_test_events(nodes, table, tmp_path):
    model_in_process = in_process(table)
    held_out = table[::3]
    number = np.unique(held_out.agent, return_inverse=True)[1] % 3
    for i in (0, 1):
        nodes[100 + i].config["test-path"] = str(write_table(tmp_path / f"test-{i}.csv", held_out[number == i]))
    # what predicts is compiled here, if nowhere before
    run_app(nodes, tmp_path, round_timeout=60.0)
    scores = json.loads((tmp_path / "out" / "experiment.scores.json").read_text())
    assert set(scores) == {"node 100", "node 101", "all"}, "the third node has no test events"
    scored = held_out[number < 2]
    r2 = model_in_process.score(scored.X, scored.y, agent=scored.agent, entity=scored.entity)
    assert scores["all"]["n_events"] == len(scored)
    assert scores["all"]["r2"] == pytest.approx(r2, abs=1e-9)


def test_scores_add_up():
    y, predicted = np.random.default_rng(0).normal(size=(2, 50)) + 1e6
    parts = [slice(0, 1), slice(1, 20), slice(20, 50)]

    def score(rows):
        mean = y[rows].mean()
        return Score(len(y[rows]), mean, ((y[rows] - mean) ** 2).sum(), ((y[rows] - predicted[rows]) ** 2).sum())

    total = score(parts[0]) + score(parts[1]) + score(parts[2])
    np.testing.assert_allclose(list(vars(total).values()), list(vars(score(slice(0, 50))).values()), rtol=1e-9)


# Nodes that fail


def test_a_node_killed_in_mid_round_goes_on_with_its_labels(nodes, table, tmp_path, said):
    victim = nodes[101]
    held = {}

    def dies(message):
        if message.metadata.group_id == "4" and not held:
            held["labels"], held["round"] = state_of(victim).shard.pending.copy(), 3
            return True
        return False

    def comes_back(message):
        if message.metadata.group_id == "6":
            victim.online = True
        return False

    victim.dies_at, nodes[100].dies_at = dies, comes_back
    run_app(nodes, tmp_path, rounds=10)
    assert "node 101 does not take part now: NodeUnavailable" in said.text
    history = json.loads((tmp_path / "out" / "experiment.history.json").read_text())
    assert [record["n_accepted"] for record in history[1:]] == [12, 12, 12, 8, 8, 8, 12, 12, 12, 12]
    first_back = next(m for m in victim.letters if m.metadata.group_id == "7")
    assert set(first_back.content.config_records["Letter"]["acknowledged"]) == {held["round"]}
    shard = state_of(victim).shard
    assert set(shard.accepted_round) == {9}
    assert "start again" not in said.text


def test_killed_after_saving_and_before_replying_labels_of_the_unheard_round_are_given_up(nodes, tmp_path):
    """The server never heard of them, so nobody may go on from them."""
    victim = nodes[101]
    before = {}

    def handle(node_id, message, handle=victim.handle):
        victim.silent = message.metadata.group_id == "4"
        if victim.silent:
            before["accepted"] = state_of(victim).shard.pending.copy()
        reply = handle(node_id, message)
        if message.metadata.group_id == "5":
            before["told"] = message.content.config_records["Letter"]["acknowledged"]
            before["went on from"] = state_of(victim).shard.accepted.copy()
        return reply

    victim.handle = handle
    run_app(nodes, tmp_path)
    assert set(before["told"]) == {3}
    np.testing.assert_array_equal(before["went on from"], before["accepted"])


def test_a_node_whose_reply_never_comes_goes_on_from_what_was_accepted(nodes, tmp_path, said):
    late = nodes[102]

    def slow(message):
        late.late_by = 1000 if message.metadata.group_id == "3" else 0
        return False

    late.dies_at = slow
    run_app(nodes, tmp_path, rounds=12)
    assert "node 102 does not take part now: Silence" in said.text
    history = json.loads((tmp_path / "out" / "experiment.history.json").read_text())
    assert history[3]["n_accepted"] == 8
    assert history[-1]["n_accepted"] == 12, "it is asked again once it has answered a roll call"
    told = [
        message.content.config_records["Letter"]["acknowledged"]
        for message in late.letters
        if message.metadata.message_type == Errand.LETTER and int(message.metadata.group_id) > 3
    ]
    assert set(told[0]) == {2}, "round 3 was never accepted"


def test_a_reply_that_comes_with_the_next_round_is_handed_over_and_refused_as_late(nodes, table, tmp_path):
    carrier = FlowerEngine(LocalGrid(nodes), "experiment", Waiting(3, 5.0, 0.3))
    carrier.gather()
    server = server_for(table.X.shape[1], seed=3, rounds=6)
    records = []
    for number in range(4):
        nodes[102].late_by = 5 if number == 1 else 0
        records.append(run_round(server, carrier))
    assert [record.n_accepted for record in records] == [12, 8, 12, 12]
    assert [record.n_refused for record in records] == [0, 0, 4, 0]


def test_a_late_reply_of_some_of_its_agents_brings_all_of_a_node_back(nodes, table, tmp_path):
    carrier = FlowerEngine(LocalGrid(nodes), "experiment", Waiting(3, 5.0, 0.3))
    carrier.gather()

    def deaf_to_roll_calls(message):
        nodes[102].silent = message.metadata.message_type == Errand.ROLL_CALL
        return False

    nodes[102].dies_at = deaf_to_roll_calls
    server = server_for(table.X.shape[1], seed=3, rounds=6, participation=0.5)
    for number in range(5):
        # the survey asks half of the agents, and then the others
        nodes[102].late_by = 5 if number == 2 else 0
        run_round(server, carrier)
    assert carrier.present[102] == {"2", "5", "8", "11"}


def test_a_node_that_comes_late_or_under_a_new_number_takes_part(nodes, tmp_path, said):
    late = nodes.pop(102)

    def joins(message):
        if message.metadata.group_id == "3":
            nodes[102] = late
        if message.metadata.group_id == "5":
            nodes[101].online = False
            nodes[777] = LocalNode(nodes[101].config)
        return False

    nodes[100].dies_at = joins
    run_app(nodes, tmp_path, rounds=9)
    history = json.loads((tmp_path / "out" / "experiment.history.json").read_text())
    assert history[2]["n_asked"] == 8
    assert history[-1]["n_accepted"] == 12
    assert "node 777 is ready: 4 agents" in said.text
    assert set(state_of(nodes[777]).shard.accepted_round) == {8}


def test_two_nodes_cannot_hold_one_agent(nodes, tmp_path, said):
    nodes[103] = LocalNode({**nodes[100].config, "state-dir": str(tmp_path / "another")})
    run_app(nodes, tmp_path)
    assert "node 103 does not take part now: DoubleAgent: 4 of its agents are at another node already" in said.text


def test_a_node_speaks_for_its_own_agents_only(nodes, tmp_path, monkeypatch):
    """A contribution in the name of another node's agent is not handed over."""
    honest = client_app.Node.answer

    def forge(self, letter):
        answers = honest(self, letter)
        one = Contribution.from_bytes(answers[0])
        stolen = "0" if one.agent != "0" else "1"
        return [*answers, replace(one, agent=stolen).to_bytes()]

    monkeypatch.setattr(client_app.Node, "answer", forge)
    carrier = FlowerEngine(LocalGrid(nodes), "experiment", Waiting(3, 5.0, 1.0))
    carrier.gather()
    server = server_for(7, seed=3)
    handed = [reply.agent for reply in carrier.deliver(server.open_round(carrier.agents()))]
    assert sorted(handed, key=int) == [str(i) for i in range(12)]


def test_broken_and_nonsensical_replies_do_not_stop_the_others(nodes, tmp_path, monkeypatch, said):
    honest = client_app.Node.answer

    def answer(self, letter):
        answers = honest(self, letter)
        return [b"nonsense", answers[0][:-3]] if self.options.data_path.stem == "0" else answers

    monkeypatch.setattr(client_app.Node, "answer", answer)
    run_app(nodes, tmp_path)
    history = json.loads((tmp_path / "out" / "experiment.history.json").read_text())
    assert all(record["n_accepted"] == 8 for record in history)


# Nodes that refuse


def make_bad(kind, config, table, tmp_path, monkeypatch):
    """A fourth node with something wrong; what the server is to be told, in a word."""
    own = table[table.agent == 0]
    own = type(own)(own.X, own.y, own.agent + 100, own.entity, own.feature_names)
    X, y = own.X.copy(), own.y.copy()
    X[0, 0], y[1] = float(SECRET), float(SECRET)
    frame = type(own)(X, y, own.agent, own.entity, own.feature_names).to_pandas()
    path = tmp_path / "bad.csv"
    name = own.feature_names[1]
    expected = "DataError"
    if kind == "text in a column":
        frame[name] = frame[name].astype(object)
        frame.loc[2, name] = f"{SECRET} miles"
        expected = "FileError"
    elif kind == "missing value":
        frame.loc[2, name] = np.nan
    elif kind == "infinite target":
        frame.loc[2, "target"] = np.inf
    elif kind == "missing entity":
        frame["entity"] = frame["entity"].astype(object)
        frame.loc[2, "entity"] = ""
    elif kind == "no such column":
        frame, expected = frame.rename(columns={name: "renamed"}), "FileError"
    elif kind == "no rows":
        frame, expected = frame.iloc[:0], "FileError"
    frame.to_csv(path, index=False)
    config = {**config, "data-path": str(path), "state-dir": str(tmp_path / "bad-state")}
    if kind == "no such file":
        path.unlink()
        expected = "FileError"
    elif kind == "half a parquet":
        path = tmp_path / "bad.parquet"
        frame.to_parquet(path)
        path.write_bytes(path.read_bytes()[:-40])
        config["data-path"], expected = str(path), "FileError"
    elif kind == "ragged rows":
        path.write_text(path.read_text() + f"{SECRET},1\n")
        expected = "FileError"
    elif kind == "other columns":
        config["features"], expected = ",".join(own.feature_names[1:]), "ColumnsError"
    elif kind == "not told":
        del config["target"]
        expected = "NodeConfigError"
    elif kind == "misspelt":
        config["entitty"] = config.pop("entity")
        expected = "NodeConfigError"
    elif kind == "no place for its state":
        (tmp_path / "a-file").write_text("")
        config["state-dir"], expected = str(tmp_path / "a-file" / "state"), "StateError"
    elif kind == "an error nobody thought of":

        def fail(self):
            if "bad" in self.options.data_path.name:
                raise ZeroDivisionError(f"what is {SECRET} / 0")
            return names(self)

        names = Node.names
        monkeypatch.setattr(Node, "names", fail)
        expected = "ZeroDivisionError"
    return LocalNode(config), expected


BAD = [
    *("text in a column", "missing value", "infinite target", "missing entity", "no such column", "no rows"),
    *("no such file", "half a parquet", "ragged rows", "other columns", "not told", "misspelt"),
    *("no place for its state", "an error nobody thought of"),
]


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_node_is_refused_with_a_cure_while_the_others_go_on(kind, nodes, table, tmp_path, said, monkeypatch):
    expected = run_app(nodes, tmp_path)
    said.clear()
    nodes[103], word = make_bad(kind, nodes[100].config, table, tmp_path, monkeypatch)
    replies = []
    honest = LocalNode.handle

    def handle(self, node_id, message):
        replies.append(honest(self, node_id, message))
        return replies[-1]

    monkeypatch.setattr(LocalNode, "handle", handle)
    model = run_app(nodes, tmp_path, experiment="second")
    assert_same_model(model, expected, tolerance=0)
    assert f"node 103 does not take part now: {word}: " in said.text
    assert SECRET not in said.text
    assert not any(SECRET.encode() in part for reply in replies for part in _bytes_of(reply))


def _bytes_of(message):
    for record in message.content.config_records.values():
        for value in record.values():
            yield value if isinstance(value, bytes) else repr(value).encode()


def test_a_node_with_another_release_is_refused(nodes, tmp_path, said, monkeypatch):
    honest = LocalNode.handle

    def handle(self, node_id, message):
        with monkeypatch.context() as patch:
            if node_id == 102:
                patch.setattr(client_app, "__version__", "0.0.9")
            return honest(self, node_id, message)

    monkeypatch.setattr(LocalNode, "handle", handle)
    run_app(nodes, tmp_path)
    told = f"VersionError: the node has fedhlcr 0.0.9, the server {fedhlcr.__version__}; install the same release"
    assert f"node 102 does not take part now: {told}" in said.text
    history = json.loads((tmp_path / "out" / "experiment.history.json").read_text())
    assert all(record["n_accepted"] == 8 for record in history)


def test_the_columns_of_most_nodes_are_taken_and_their_order_does_not_matter(nodes, table, tmp_path, said):
    expected = run_app(nodes, tmp_path)
    names = table.feature_names
    nodes[101].config["features"] = ",".join(reversed(names))
    assert_same_model(run_app(nodes, tmp_path, experiment="turned"), expected, tolerance=0)
    nodes[101].config["features"] = ",".join(names[1:])
    run_app(nodes, tmp_path, experiment="fewer")
    assert f"ColumnsError: the federation uses the columns {', '.join(names)}" in said.text


def test_a_node_that_was_mended_takes_part(nodes, table, tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "ASK_AGAIN", 0.0)
    good = nodes[102].config["features"]
    nodes[102].config["features"] = "nonsense"

    def mends(message):
        if message.metadata.group_id == "4":
            nodes[102].config["features"] = good
        return False

    nodes[100].dies_at = mends
    run_app(nodes, tmp_path)
    history = json.loads((tmp_path / "out" / "experiment.history.json").read_text())
    assert [record["n_accepted"] for record in history][-1] == 12


def test_an_agent_that_vanishes_from_a_table_is_noticed(nodes, table, tmp_path, said):
    victim = nodes[101]
    kept = table[np.isin(table.agent, [1, 4, 7])]

    def changes(message):
        if message.metadata.group_id == "4":
            write_table(tmp_path / "1.parquet", kept)
        return False

    victim.dies_at = changes
    run_app(nodes, tmp_path)
    assert "UnknownAgent" in said.text
    history = json.loads((tmp_path / "out" / "experiment.history.json").read_text())
    assert history[-1]["n_accepted"] == 11


class Forged(LocalNode):
    """Answers as it should, but for one record."""

    def __init__(self, honest, record, forgery):
        super().__init__(honest.config)
        self._record, self._forgery = record, forgery

    def handle(self, node_id, message):
        reply = super().handle(node_id, message)
        if self._record in reply.content.config_records:
            reply.content.config_records[self._record].update(self._forgery)
        return reply


@pytest.mark.parametrize(
    ("record", "forgery"),
    [
        ("Presence", {"agents": 5}),
        ("Presence", {"agents": [1, 2]}),
        ("Presence", {"features": 5}),
        ("Presence", {"version": 1.0}),
        ("Presence", {"surplus": 1}),
        ("Answers", {"contributions": 5}),
        ("Answers", {"contributions": ["text"]}),
        ("Answers", {"contributions": [replace(NOBODYS, agent=["a"]).to_bytes()]}),
        ("Score", {"n_events": -5}),
        ("Score", {"mean": float("nan")}),
        ("Score", {"spread": "wide"}),
        ("Score", {"mean": 1e200}),
        ("Presence", {"features": []}),
        ("Presence", {"features": ["x0", "x1", "x2", "x3", "x4", "x5", "x6", "x6"]}),
        ("Presence", {"features": ["x0\n\x1b[31m"]}),
    ],
)
def test_a_record_that_is_none_costs_its_node_and_nobody_else(record, forgery, nodes, table, tmp_path, said):
    nodes[102] = Forged(nodes[102], record, forgery)
    model = run_app(nodes, tmp_path)
    assert model.draws.n_clusters
    # contributions in nobody's name are left out, and that is all
    harmless = isinstance(forgery.get("contributions"), list) and isinstance(forgery["contributions"][0], bytes)
    assert harmless or "node 102 does not take part now: RecordError" in said.text


def test_the_columns_of_most_win_whoever_answers_first(nodes, table, tmp_path, said):
    nodes[101].config["features"] = ",".join(table.feature_names[1:])
    nodes[102].late_by = 3
    run_app(nodes, tmp_path)
    assert "2 nodes with 8 agents take part; columns: x0," in said.text
    assert "node 101 does not take part now: ColumnsError" in said.text


def test_nodes_that_agree_on_nothing_are_told_so(nodes, table, tmp_path):
    nodes[101].config["features"] = ",".join(table.feature_names[1:])
    with pytest.raises(NotEnoughNodesError, match="3 nodes would be ready, but they use different columns"):
        run_app(nodes, tmp_path, min_nodes=3, wait_for_nodes=1.0)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_without_entities_it_is_the_model_of_one_process_too(ending, table, tmp_path):
    nodes = {}
    for number in range(3):
        path = write_table(tmp_path / f"{number}.{ending}", table[table.agent % 3 == number])
        nodes[100 + number] = LocalNode({**node_config(path, table), "entity": ""})
    alone = FedHLCRRegressor(rounds=8, random_state=3).fit(table.X, table.y, agent=table.agent)
    assert_same_model(run_app(nodes, tmp_path), alone.posterior_, tolerance=0)


def test_one_agent_by_its_name(table, tmp_path):
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


def test_ids_of_a_dictionary_are_ids_and_missing_ones_are_missing(nodes, table, tmp_path, said):
    expected = run_app(nodes, tmp_path)
    arrow = pa.parquet.read_table(tmp_path / "1.parquet")
    ids = arrow["agent"].cast(pa.string())
    for experiment, agent in (("whole", ids), ("holes", pc.if_else(pc.equal(ids, "4"), None, ids))):
        encoded = arrow.set_column(0, "agent", agent.dictionary_encode())
        pa.parquet.write_table(encoded, tmp_path / "1.parquet")
        if experiment == "whole":
            assert_same_model(run_app(nodes, tmp_path, experiment=experiment), expected, tolerance=0)
        else:
            run_app(nodes, tmp_path, experiment=experiment)
    assert "node 101 does not take part now: DataError" in said.text
    assert "'1.parquet', column 'agent': `agent` has" in said.text


def test_a_simulated_node_tries_the_model_on_its_own_agents(table, tmp_path):
    whole, some = write_table(tmp_path / "whole.csv", table), table[table.agent != 0]
    told = node_config(whole, table, **{"test-path": str(write_table(tmp_path / "test.csv", some))})
    config = {f"simulation.{name}": value for name, value in told.items()} | {"output-dir": str(tmp_path / "out")}
    nodes = {200 + i: LocalNode({"partition-id": i, "num-partitions": 3}, run_config=config) for i in range(3)}
    run_app(nodes, tmp_path, round_timeout=60.0, **config)
    r2 = in_process(table).score(some.X, some.y, agent=some.agent, entity=some.entity)
    assert json.loads((tmp_path / "out" / "experiment.scores.json").read_text())["all"]["r2"] == pytest.approx(r2)


def test_a_bad_test_file_is_known_before_the_first_round(nodes, tmp_path, said):
    nodes[101].config["test-path"] = str(tmp_path / "absent.csv")
    run_app(nodes, tmp_path)
    assert "node 101 does not take part now: FileError" in said.text
    assert "'absent.csv' does not exist" in said.text


def test_few_test_events_are_not_told(nodes, table, tmp_path):
    nodes[101].config["test-path"] = str(write_table(tmp_path / "few.csv", table[table.agent % 3 == 1][:9]))
    run_app(nodes, tmp_path)
    assert json.loads((tmp_path / "out" / "experiment.scores.json").read_text()) == {}


# State files


def test_a_table_that_changes_while_it_is_answered_for_is_noticed(nodes, table, tmp_path, said, monkeypatch):
    honest = Node._save

    def save(self, held):
        if "1.parquet" in held.source.path and held.group.shard.newest_round == 4:
            write_table(tmp_path / "1.parquet", table[table.agent % 3 == 1][2:])
        honest(self, held)

    monkeypatch.setattr(Node, "_save", save)
    run_app(nodes, tmp_path)
    assert "1.parquet has changed: its agents start again" in said.text


def test_two_processes_of_a_node_do_not_write_over_each_other(nodes, table, tmp_path):
    """A slow answer to an old letter comes to an end after a newer one was answered."""
    carrier = FlowerEngine(LocalGrid(nodes), "experiment", Waiting(3, 5.0, 1.0))
    carrier.gather()
    server = server_for(table.X.shape[1], seed=3, rounds=6)
    for _ in range(3):
        run_round(server, carrier)
    old, new = (m for m in nodes[100].letters if m.metadata.group_id in ("1", "2"))
    node = Node(NodeOptions.from_context(nodes[100].config, {}), "experiment", carrier.features)
    before = node.state_path.read_bytes()
    with pytest.raises(Refusal, match="OutdatedLetter"):
        node.answer(Letter.from_content(old.content))
    assert node.state_path.read_bytes() == before
    with ThreadPoolExecutor() as others:
        with node._alone():
            waiting = others.submit(node.answer, Letter.from_content(new.content))
            with pytest.raises(TimeoutError):
                waiting.result(0.3)
        assert len(waiting.result(5)) == 4


def test_nodes_do_not_share_a_state_folder(nodes, tmp_path, said):
    for node in nodes.values():
        node.config["state-dir"] = str(tmp_path / "shared")
    run_app(nodes, tmp_path, min_nodes=1)
    assert (
        said.text.count("does not take part now: StateError: its `state-dir` holds the state of another table or node")
        == 2
    )


def test_state_and_checkpoint_are_for_their_owner_only(nodes, tmp_path):
    run_app(nodes, tmp_path)
    files = [tmp_path / "out" / "experiment.checkpoint", *tmp_path.glob("*.state/*.state")]
    assert len(files) == 4
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_a_simulation_of_another_table_begins_anew(table, tmp_path, said):
    for number in (0, 1):
        path = write_table(tmp_path / f"{number}.csv", table[: len(table) - number])
        config = {f"simulation.{name}": value for name, value in node_config(path, table).items()}
        config["output-dir"] = str(tmp_path / "out")
        nodes = {200 + i: LocalNode({"partition-id": i, "num-partitions": 3}, run_config=config) for i in range(3)}
        run_app(nodes, tmp_path, **config)
    assert "StateError" not in said.text


def test_a_node_that_is_busy_for_too_long_says_so(nodes, tmp_path, said, monkeypatch):
    monkeypatch.setattr(node_module, "LONGEST_LOCK", 0.1)
    options = NodeOptions.from_context(nodes[101].config, {})
    with Node(options, "experiment")._alone():
        run_app(nodes, tmp_path)
    assert "node 101 does not take part now: Busy: the node is still at another message" in said.text


def test_when_no_node_can_answer_the_run_waits_and_can_be_resumed(nodes, tmp_path, monkeypatch):
    """Rounds are not burnt on nodes that say they are there and fail at every letter."""

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
    history = json.loads((tmp_path / "out" / "experiment.history.json").read_text())
    assert [record["n_accepted"] for record in history].count(0) == 1


def test_nodes_that_are_all_slow_are_asked_again_at_once(nodes, table, tmp_path):
    carrier = FlowerEngine(LocalGrid(nodes), "experiment", Waiting(3, 2.0, 0.2))
    carrier.gather()
    server = server_for(table.X.shape[1], seed=3, rounds=60)
    run_round(server, carrier)
    for node in nodes.values():
        node.dies_at = lambda message, node=node: setattr(
            node, "late_by", 6 if message.metadata.message_type == Errand.LETTER else 0
        )
    for _ in range(3):
        assert run_round(server, carrier).n_accepted == 0
    for node in nodes.values():
        node.late_by, node.dies_at = 0, lambda message: False
    for _ in range(2):
        last = run_round(server, carrier)
    assert last.n_accepted == 12


def test_a_full_disk_is_told_with_its_cure(nodes, tmp_path, said, monkeypatch):
    def full(path, *arguments, **parameters):
        if "1.parquet" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        return honest(path, *arguments, **parameters)

    honest = atomic.write_atomically
    monkeypatch.setattr(atomic, "write_atomically", full)
    run_app(nodes, tmp_path)
    assert "node 101 does not take part now: StateError: the node cannot write to its `state-dir`" in said.text
    assert "No space left on device" in said.text


def test_a_lost_or_damaged_state_file_costs_labels_and_nothing_else(nodes, tmp_path, said):
    options = NodeOptions.from_context(nodes[101].config, {})

    def damages(message):
        if message.metadata.group_id == "4":
            for file in options.state_dir.glob("*"):
                file.write_bytes(file.read_bytes()[:100])
        return False

    nodes[101].dies_at = damages
    run_app(nodes, tmp_path)
    assert "the labels are lost, and the agents start again" in said.text
    history = json.loads((tmp_path / "out" / "experiment.history.json").read_text())
    assert all(record["n_accepted"] == 12 for record in history[1:])


def test_a_forged_state_file_costs_labels_and_nothing_else(nodes, tmp_path, said):
    """Its checksum is right, but it labels entities by clusters no kernel has room for."""
    options = NodeOptions.from_context(nodes[101].config, {})

    def forges(message):
        if message.metadata.group_id == "4":
            file = options.state_dir / "experiment.state"
            record = codec.decode(file.read_bytes(), node_module.STATE_KIND, node_module.STATE_VERSION)
            record["accepted"] = np.full_like(record["accepted"], 2**30)
            file.write_bytes(codec.encode(node_module.STATE_KIND, node_module.STATE_VERSION, record))
        return False

    nodes[101].dies_at = forges
    run_app(nodes, tmp_path)
    assert "`accepted` is missing or has a wrong value" in said.text
    assert "the labels are lost, and the agents start again" in said.text
    history = json.loads((tmp_path / "out" / "experiment.history.json").read_text())
    assert all(record["n_accepted"] == 12 for record in history[1:])


def test_a_file_that_was_copied_anew_is_the_same_file(nodes, tmp_path, said):
    run_app(nodes, tmp_path, rounds=3)
    for node in nodes.values():
        path = NodeOptions.from_context(node.config, {}).data_path
        path.write_bytes(path.read_bytes())
        before = state_of(node).shard.accepted_round
        assert set(before) == {2}
    assert "start again" not in said.text


def test_experiments_do_not_disturb_each_other_at_a_node(nodes, table, tmp_path):
    expected = run_app(nodes, tmp_path, experiment="first")
    run_app(nodes, tmp_path, experiment="second", seed=4)
    assert_same_model(run_app(nodes, tmp_path, experiment="first"), expected, tolerance=0)
    run_app(nodes, tmp_path, experiment="first", seed=5, rounds=2)
    assert_same_model(run_app(nodes, tmp_path, experiment="first"), expected, tolerance=0)


@pytest.mark.parametrize("name", ["../evil", "", ".hidden", "a/b", "x" * 65])
def test_a_node_takes_no_path_from_the_server(name, nodes, tmp_path):
    carrier = FlowerEngine(LocalGrid(nodes), name, Waiting(1, 0.3, 1.0))
    with pytest.raises(NotEnoughNodesError, match="ValueError"):
        carrier.gather()
    assert not list(tmp_path.rglob("*.state/*"))


# The server


def test_a_run_that_was_cut_off_resumes_and_ends_as_if_it_had_not_been(nodes, tmp_path, said):
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
    assert "resumed after round 4" in said.text
    assert "start again" not in said.text
    assert_same_model(model, expected, tolerance=0)
    assert_same_model(run_app(nodes, tmp_path, participation=0.7, resume=True), expected, tolerance=0)


def test_too_few_nodes_are_waited_for_no_longer_than_was_said(nodes, tmp_path):
    nodes[102].config["features"] = "nonsense"
    with pytest.raises(NotEnoughNodesError, match=r"2 nodes are ready after 1 seconds, but at least 3 .*node 102"):
        run_app(nodes, tmp_path, min_nodes=3, wait_for_nodes=1.0)
    with pytest.raises(NotEnoughNodesError, match="0 nodes are ready"):
        run_app({}, tmp_path, wait_for_nodes=0.2)


def test_when_all_nodes_have_gone_the_run_ends_and_can_be_resumed(nodes, table, tmp_path):
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


def test_a_node_that_never_answers_delays_one_round_only(nodes, tmp_path, said):
    def falls_silent(message):
        nodes[102].silent |= message.metadata.group_id == "2"
        return False

    nodes[102].dies_at = falls_silent
    run_app(nodes, tmp_path)
    history = json.loads((tmp_path / "out" / "experiment.history.json").read_text())
    assert [record["n_asked"] for record in history] == [12, 12, 12, *[8] * 6]
    assert said.text.count("Silence") == 1


@pytest.mark.parametrize("late_by", [4, 8, 1000])
def test_one_that_keeps_rounds_waiting_is_asked_more_and_more_seldom(late_by, nodes, table, tmp_path):
    carrier = FlowerEngine(LocalGrid(nodes), "experiment", Waiting(3, 5.0, 0.2))
    carrier.gather()
    server = server_for(table.X.shape[1], seed=3, rounds=60)

    def slow(message):
        nodes[102].late_by = late_by if message.metadata.message_type == Errand.LETTER else 0
        return False

    run_round(server, carrier)
    nodes[102].dies_at = slow
    begin = time.monotonic()
    asked = [run_round(server, carrier).n_asked for _ in range(40)]
    assert asked.count(12) <= 5
    assert time.monotonic() - begin < 40 * 0.2


def test_a_resume_that_cannot_be_is_told_before_anyone_is_waited_for(tmp_path):
    begin = time.monotonic()
    with pytest.raises(StorageError, match="does not exist"):
        run_app({}, tmp_path, resume=True, wait_for_nodes=60.0)
    (tmp_path / "out" / "experiment.checkpoint").write_bytes(b"damaged")
    with pytest.raises(ValueError, match="or that cannot be read"):
        run_app({}, tmp_path, wait_for_nodes=60.0)
    assert time.monotonic() - begin < 10


def test_a_model_nobody_is_there_to_keep_is_a_model_all_the_same(nodes, tmp_path, monkeypatch):
    honest = PublicModel.save

    def save(self, path):
        for node in nodes.values():
            node.online = False
        honest(self, path)

    monkeypatch.setattr(PublicModel, "save", save)
    assert run_app(nodes, tmp_path).draws.n_clusters
    assert json.loads((tmp_path / "out" / "experiment.scores.json").read_text()) == {}


def test_answers_survive_flowers_own_bytes():
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
    for contributions in ([], [b""], [b"a\0b", b"c"]):
        message = Message(Answers(contributions).to_content(), 7, str(Errand.LETTER))
        assert Answers.from_content(through_bytes(message).content).contributions == contributions


@pytest.mark.parametrize(("agents", "acknowledged"), [(["a", "a"], [1, 1]), (["a", "b"], [1]), (["a"], [1, 2])])
def test_a_letter_tells_each_agent_one_round(agents, acknowledged):
    with pytest.raises(RecordError, match="names an agent twice, or does not have one acknowledged round"):
        Letter.from_content(Letter(b"", agents, acknowledged).to_content())
