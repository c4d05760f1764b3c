"""Nodes that cannot take part: each is refused with a reason and advice, and the others continue."""

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the flower extra is not installed")


import fedhlcr
from fedhlcr.engines.flower import client_app, engine
from fedhlcr.engines.flower.node import Node
from tests.flower_grid import LocalNode, assert_same_model, history_of, run_app

pytestmark = pytest.mark.usefixtures("clock")

SECRET = "867.5309"


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
def test_bad_node_is_refused_while_the_others_continue(kind, nodes, table, tmp_path, logged, monkeypatch):
    expected = run_app(nodes, tmp_path)
    logged.clear()
    nodes[103], word = make_bad(kind, nodes[100].config, table, tmp_path, monkeypatch)
    replies = []
    honest = LocalNode.handle

    def handle(self, node_id, message):
        replies.append(honest(self, node_id, message))
        return replies[-1]

    monkeypatch.setattr(LocalNode, "handle", handle)
    model = run_app(nodes, tmp_path, experiment="second")
    assert_same_model(model, expected, tolerance=0)
    assert f"node 103 does not take part now: {word}: " in logged.text
    assert SECRET not in logged.text
    assert not any(SECRET.encode() in part for reply in replies for part in _bytes_of(reply))


def _bytes_of(message):
    for record in message.content.config_records.values():
        for value in record.values():
            yield value if isinstance(value, bytes) else repr(value).encode()


def test_node_with_another_release_is_refused(nodes, tmp_path, logged, monkeypatch):
    honest = LocalNode.handle

    def handle(self, node_id, message):
        with monkeypatch.context() as patch:
            if node_id == 102:
                patch.setattr(client_app, "__version__", "0.0.9")
            return honest(self, node_id, message)

    monkeypatch.setattr(LocalNode, "handle", handle)
    run_app(nodes, tmp_path)
    told = f"VersionError: the node has fedhlcr 0.0.9, the server {fedhlcr.__version__}; install the same release"
    assert f"node 102 does not take part now: {told}" in logged.text
    history = history_of(tmp_path)
    assert all(record["n_accepted"] == 8 for record in history)


def test_corrected_node_takes_part(nodes, table, tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "ASK_AGAIN", 0.0)
    good = nodes[102].config["features"]
    nodes[102].config["features"] = "nonsense"

    def mends(message):
        if message.metadata.group_id == "4":
            nodes[102].config["features"] = good
        return False

    nodes[100].dies_at = mends
    run_app(nodes, tmp_path)
    history = history_of(tmp_path)
    assert [record["n_accepted"] for record in history][-1] == 12
