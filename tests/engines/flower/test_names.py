"""Agent names belong to node keys: a node cannot take another node's agents, whoever is online."""

import json
import os

import pytest

pytest.importorskip("flwr", reason="the flower extra is not installed")

from flwr.proto.node_pb2 import NodeInfo
from typer.testing import CliRunner

from fedhlcr.cli import app as command_line
from fedhlcr.engines.flower import server_app
from fedhlcr.engines.flower.certificates import Certificates
from fedhlcr.engines.flower.names import AgentNames, NodeName, fingerprint, read_owners, read_pins, release
from fedhlcr.engines.flower.options import RunOptions
from fedhlcr.exceptions import ArgumentError, NotEnoughNodesError, StorageError
from tests.flower_grid import LocalGrid, LocalNode, run_app
from tests.flower_link import FakeSuperLink

NORTH, SOUTH = NodeName("SHA256:north", "north"), NodeName("SHA256:south", "south")


@pytest.fixture
def pins(tmp_path):
    return AgentNames(tmp_path / "out" / "agents.json")


def test_name_belongs_to_the_key_that_had_it_first(pins):
    assert pins.claim(NORTH, ["a", "b"]) is None
    assert pins.claim(SOUTH, ["c"]) is None
    assert pins.claim(NORTH, ["b"]) is None
    refusal = pins.claim(SOUTH, ["c", "a"])
    assert refusal.kind == "NameTaken"
    assert "1 agent of its 2" in str(refusal)
    assert "north (SHA256:north)" in str(refusal)
    assert "fedhlcr flower release" in str(refusal)


def test_name_stays_bound_after_a_restart(pins):
    pins.claim(NORTH, ["a"])
    again = AgentNames(pins.pins)
    assert again.claim(SOUTH, ["a"]).kind == "NameTaken"
    assert again.claim(NORTH, ["a"]) is None
    assert pins.pins.stat().st_mode & 0o077 == 0


def test_file_holds_no_names(pins):
    pins.claim(NORTH, ["north-clinic", "south-clinic"])
    table = json.loads(pins.pins.read_text())
    assert len(table["owners"]) == 2
    assert "clinic" not in pins.pins.read_text()
    other = AgentNames(pins.pins.with_name("other") / "agents.json")
    other.claim(NORTH, ["north-clinic", "south-clinic"])
    assert not table["owners"].keys() & json.loads(other.pins.read_text())["owners"].keys()


def test_names_in_a_file_of_an_earlier_version_stay_bound(pins):
    pins.pins.parent.mkdir()
    owner = {"key": "SHA256:north", "node": "north"}
    pins.pins.write_text(json.dumps(dict.fromkeys(["clinic", "secret", "owners"], owner)))
    assert pins.claim(SOUTH, ["clinic"]).kind == "NameTaken"
    assert pins.claim(NORTH, ["clinic", "secret", "owners"]) is None
    assert "clinic" not in pins.pins.read_text()


def test_same_name_of_another_node_is_no_proof(pins):
    """Only the key counts."""
    pins.claim(NORTH, ["a"])
    assert pins.claim(NodeName("SHA256:thief", "north"), ["a"]).kind == "NameTaken"


def test_released_names_belong_to_the_next_key(pins):
    pins.claim(NORTH, ["a", "b"])
    assert release(pins.pins.parent, [], ["b", "c"]) == 1
    assert release(pins.pins.parent, ["north"], []) == 1
    assert pins.claim(NodeName("SHA256:new", "north"), ["a", "b"]) is None


def test_node_cannot_collect_names_bit_by_bit():
    names = AgentNames(max_agents=3)
    assert names.claim(NORTH, list("abcd")).kind == "TooManyAgents"
    assert names.claim(NORTH, list("abc")) is None


def test_pins_of_a_key_count_towards_its_limit(tmp_path):
    names = AgentNames(tmp_path / "agents.json", max_agents=3)
    assert names.claim(NORTH, ["a", "b"]) is None
    refusal = names.claim(NORTH, ["c", "d"])
    assert refusal.kind == "TooManyAgents"
    assert "max-agents-per-node" in str(refusal)
    assert names.claim(NORTH, ["c"]) is None


def test_nodes_without_keys_are_not_bound(pins):
    assert pins.claim(NodeName(), ["a"]) is None
    assert pins.claim(NORTH, ["a"]) is None


def test_operators_list_decides(tmp_path):
    path = tmp_path / "agents.toml"
    path.write_text('[agents]\nnorth = ["a", "ward-*"]\n"SHA256:south" = ["b"]\n')
    names = AgentNames(tmp_path / "agents.json", read_owners(path))
    assert names.claim(NORTH, ["a", "ward-7"]) is None
    assert names.claim(SOUTH, ["b"]) is None
    refusal = names.claim(SOUTH, ["b", "a"])
    assert refusal.kind == "NotListed"
    assert "south (SHA256:south)" in str(refusal)
    assert names.claim(NORTH, ["new"]).kind == "NotListed"


@pytest.mark.parametrize("text", ["", "[agents]", "agents = 5", "[agents]\nnorth = 5", "[agents]\nnorth = [1]", "[[["])
def test_bad_list_is_refused(tmp_path, text):
    path = tmp_path / "agents.toml"
    path.write_text(text)
    with pytest.raises(ArgumentError, match="`agents-file`"):
        read_owners(path)


@pytest.mark.parametrize("text", ["[", "[1]", '{"a": 5}', '{"a": {}}', '{"secret": "x"}', '{"secret": ""}'])
def test_damaged_pins_are_not_ignored(tmp_path, text):
    path = tmp_path / "agents.json"
    path.write_text(text)
    with pytest.raises(StorageError, match="cannot be read; restore it, or remove it"):
        read_pins(path)


def test_fingerprint_is_that_of_the_key_file(tmp_path):
    """As `ssh-keygen -l` shows it for the file that the operator has registered."""
    import base64
    import hashlib

    from cryptography.hazmat.primitives.serialization import load_ssh_public_key
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    keys = Certificates(tmp_path / "keys")
    keys.make(nodes=["north"])
    text = keys.node_public_key("north").read_bytes()
    expected = base64.b64encode(hashlib.sha256(base64.b64decode(text.split()[1])).digest()).decode().rstrip("=")
    assert fingerprint(public_key_to_bytes(load_ssh_public_key(text))) == f"SHA256:{expected}"
    assert fingerprint(b"") == ""


def run_link(link, folder, **options):
    defaults = {"output-dir": str(folder / "out"), "wait-for-nodes": 5.0, "round-timeout": 5.0, "rounds": 2, "seed": 3}
    given = {name.replace("_", "-"): value for name, value in options.items()}
    return server_app.run(link.grid(), RunOptions.from_config({**defaults, **given}))


def test_thief_is_refused_while_the_owner_is_away_and_after_a_restart(nodes, tmp_path, logged):
    keys = {100: b"key 0", 101: b"key 1", 102: b"key 2", 103: b"key of a thief"}
    run_link(FakeSuperLink(dict(nodes), keys), tmp_path, experiment="first", min_nodes=3)
    assert len(json.loads((tmp_path / "out" / "agents.json").read_text())["owners"]) == 12
    # the owner is away; another node, with a key of its own, has a copy of its table
    owner = nodes.pop(100)
    nodes[103] = LocalNode({**owner.config, "state-dir": str(tmp_path / "thief")})
    run_link(FakeSuperLink(dict(nodes), keys), tmp_path, experiment="second")
    assert "node node-103 does not take part now: NameTaken: 4 agents of its 4 belong to the key of node" in logged.text
    assert "2 nodes with 8 agents take part" in logged.text
    done = CliRunner().invoke(command_line, ["flower", "release", str(tmp_path / "out"), "--node", "node-100"])
    assert done.exit_code == 0, done.output
    assert "4 agents" in done.output
    logged.clear()
    run_link(FakeSuperLink(dict(nodes), keys), tmp_path, experiment="third", min_nodes=3)
    assert "3 nodes with 12 agents take part" in logged.text


def test_node_with_a_new_number_and_its_old_key_is_let_in(nodes, tmp_path, logged):
    keys = {100: b"key 0", 101: b"key 1", 102: b"key 2", 777: b"key 1"}
    run_link(FakeSuperLink(dict(nodes), keys), tmp_path, experiment="first", min_nodes=3)
    nodes[777] = nodes.pop(101)
    run_link(FakeSuperLink(dict(nodes), keys), tmp_path, experiment="second", min_nodes=3)
    assert "NameTaken" not in logged.text


def test_node_with_too_many_agents_is_refused(nodes, tmp_path, logged):
    with pytest.raises(NotEnoughNodesError, match="TooManyAgents: it has 4 agents, but a node may have 3"):
        run_link(FakeSuperLink(nodes), tmp_path, max_agents_per_node=3, wait_for_nodes=1.0)


def test_names_can_be_left_unbound(nodes, tmp_path):
    run_link(FakeSuperLink(dict(nodes), {100: b"key 0"}), tmp_path, bind_agents=False)
    assert not (tmp_path / "out" / "agents.json").exists()


def test_random_keys_of_simulated_nodes_bind_nothing(nodes, tmp_path, monkeypatch):
    """A second simulation in the same folder must not be refused."""
    keyed = lambda self: [NodeInfo(node_id=n, public_key=os.urandom(32)) for n in self.get_node_ids()]  # noqa: E731
    monkeypatch.setattr(LocalGrid, "get_nodes", keyed)
    for experiment in ("first", "second"):
        run_app(nodes, tmp_path, experiment=experiment, rounds=2, min_nodes=3)
    assert not (tmp_path / "out" / "agents.json").exists()
