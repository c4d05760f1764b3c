"""What a user sets up before a federation over a network: options, the app's folder, certificates, the command."""

import ssl
import stat
import subprocess
import sys
import tomllib
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("flwr", reason="the flower extra is not installed")

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
from flwr.common.config import flatten_dict, validate_config

import fedhlcr
from fedhlcr.cli import run
from fedhlcr.cli.shell import NO_OUTPUT, WRONG_USAGE
from fedhlcr.engines.flower.app_folder import write_app
from fedhlcr.engines.flower.certificates import Certificates
from fedhlcr.engines.flower.options import NodeOptions, RunOptions, full_names
from fedhlcr.engines.flower.refusal import Refusal
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.model.gram import GramLayout

NODE = {"data-path": "events.csv", "target": "y", "agent": "a", "features": "x, z"}


# Options


def config_of(path):
    return flatten_dict(tomllib.loads(path.read_text())["tool"]["flwr"]["app"]["config"])


def test_an_app_declares_every_option_with_a_comment_and_flower_accepts_it(tmp_path):
    path = write_app(tmp_path / "my-app")
    config = config_of(path)
    assert config == {name: option.default for name, option in full_names().items()}
    valid, errors, warnings = validate_config(tomllib.loads(path.read_text()), project_dir=path.parent)
    assert valid, errors
    assert not warnings
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines):
        if " = " in line and not line.startswith("#") and number > lines.index("[tool.flwr.app.config]"):
            assert lines[number - 1].startswith("# "), line


def test_the_options_of_an_app_are_the_defaults_of_the_federation(tmp_path):
    """But for the rounds, which take seconds here."""
    settings = RunOptions.from_config(config_of(write_app(tmp_path / "my-app"))).settings(4)
    assert settings == FederationSettings(GramLayout(4), rounds=30)


def test_options_reach_the_settings():
    options = RunOptions.from_config(
        {"rounds": 0, "patience": 0, "clusters": 5, "noise-scale": 2, "draws": 7, "limits.max-events": 10.0, "seed": 3}
    )
    settings = options.settings(2)
    assert (settings.rounds, settings.patience, settings.n_clusters, settings.noise_scale) == (None, None, 5, 2.0)
    assert (settings.n_draws, settings.limits.max_events, settings.seed) == (7, 10.0, 3)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"round": 3}, "there is no option `round` in the run-config; did you mean `rounds`"),
        ({"zzz": 3}, "there is no option `zzz` in the run-config; known are"),
        ({"rounds": "many"}, "`rounds` must be a whole number, but is 'many'"),
        ({"rounds": 1.5}, "`rounds` must be a whole number"),
        ({"resume": "yes"}, "`resume` must be true or false"),
        ({"rule": "average"}, "`rule` must be one of delta, blend"),
        ({"participation": 1.5}, "`participation` must be"),
        ({"rule": "blend"}, "cannot learn"),
        ({"min-nodes": 0}, "`min-nodes` must be a finite number of at least 1"),
        ({"round-timeout": 0.0}, "`round-timeout` must be a finite number of at least"),
        ({"wait-for-nodes": float("inf")}, "`wait-for-nodes` must be a finite number"),
        ({"output-dir": " "}, "`output-dir` is empty"),
        ({"features": "a,b,a"}, "`features` names a column twice"),
        ({"experiment": "../x"}, "`experiment` must consist of"),
    ],
)
def test_a_wrong_option_is_told_before_anyone_is_waited_for(config, words):
    with pytest.raises(ValueError, match=words):
        RunOptions.from_config(config)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"data-path": ""}, "lacks `data-path`"),
        ({"features": ""}, "lacks `features`"),
        ({"agent": ""}, "set either `agent`"),
        ({"agent-name": "north"}, "set either `agent`"),
        ({"features": "x,y"}, "a column is named twice"),
        ({"entitty": "e"}, "did you mean `entity`"),
    ],
)
def test_a_node_that_is_told_nonsense_says_so(change, words):
    with pytest.raises(Refusal, match=words):
        NodeOptions.from_context(NODE | change, {})


def test_a_node_is_told_by_its_own_people_only(tmp_path):
    """A server cannot make a real node read another file, nor write elsewhere."""
    evil = {"simulation.data-path": "/etc/passwd", "simulation.target": "root", "output-dir": "/"}
    options = NodeOptions.from_context(NODE | {"partition-id": 0, "num-partitions": 1}, evil)
    assert options.data_path.name == "events.csv"
    assert options.state_dir.name == "events.csv.state"
    for told in ({}, {"partition-id": 0, "num-partitions": 1}):
        with pytest.raises(Refusal, match="the node-config lacks"):
            NodeOptions.from_context(told, evil)


def test_others_options_of_a_node_are_none_of_our_business():
    assert NodeOptions.from_context(NODE | {"favourite-colour": "blue"}, {}).features == ("x", "z")


# The app's folder


@pytest.mark.parametrize("name", ["my_app", "My-App", "-app", "a b"])
def test_a_folder_flower_cannot_build_is_refused(name, tmp_path):
    with pytest.raises(ValueError, match="small letters, digits and dashes"):
        write_app(tmp_path / name)


def test_an_app_is_not_overwritten_and_has_no_unknown_options(tmp_path):
    write_app(tmp_path / "app", {"rounds": 3})
    with pytest.raises(FileExistsError, match="exists"):
        write_app(tmp_path / "app")
    assert config_of(tmp_path / "app" / "pyproject.toml")["rounds"] == 3
    with pytest.raises(ValueError, match="'ruonds'"):
        write_app(tmp_path / "other", {"ruonds": 3})
    assert not (tmp_path / "other").exists()


# Certificates


def read(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_the_server_certificate_is_signed_names_its_hosts_and_expires(tmp_path):
    keys = Certificates(tmp_path / "keys")
    keys.make(["server.example.org", "192.0.2.7"], ["north"])
    authority, server = read(keys.ca), read(keys.server)
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["server.example.org", "localhost"]
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["192.0.2.7", "127.0.0.1"]
    assert server.not_valid_after_utc - datetime.now(UTC) < timedelta(days=398)
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    ssl.create_default_context(cafile=str(keys.ca))


def test_node_keys_are_what_flower_wants_and_nobody_else_can_read_them(tmp_path):
    keys = Certificates(tmp_path / "keys")
    keys.make(nodes=["north", "south"])
    private = load_ssh_private_key(keys.node_key("north").read_bytes(), password=None)
    public = load_ssh_public_key(keys.node_public_key("north").read_bytes())
    assert private.curve.name == "secp384r1"
    assert private.public_key() == public
    assert public != load_ssh_public_key(keys.node_public_key("south").read_bytes())
    for path in (keys.ca_key, keys.server_key, keys.node_key("north")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(keys.folder.stat().st_mode) == 0o700


def test_what_is_there_stays_but_for_what_is_renewed(tmp_path):
    keys = Certificates(tmp_path / "keys")
    keys.make(["one.example.org"], ["north", "south"])
    before = {path: path.read_bytes() for path in keys.folder.rglob("*") if path.is_file()}
    assert keys.make(["one.example.org"], ["north"]) == []
    with pytest.raises(ValueError, match=r"not for two.example.org; add --renew"):
        keys.make(["two.example.org"])
    with pytest.raises(ValueError, match="pass --host for the server, or --node"):
        keys.make(renew=True)
    assert keys.make(nodes=["east"]) == [keys.node_key("east"), keys.node_public_key("east")]
    assert keys.make(nodes=["north"], renew=True) == [keys.node_key("north"), keys.node_public_key("north")]
    assert keys.make(["two.example.org"], renew=True) == [keys.server, keys.server_key]
    changed = {path.name for path, data in before.items() if path.read_bytes() != data}
    assert changed == {"north.key", "north.pub", "server.crt", "server.key"}
    read(keys.server).verify_directly_issued_by(read(keys.ca))


def test_the_key_of_the_authority_may_be_away_but_is_never_replaced(tmp_path):
    keys = Certificates(tmp_path / "keys")
    keys.make(["one.example.org"], ["north"])
    held = keys.ca_key.read_bytes()
    keys.ca_key.unlink()
    assert len(keys.make(nodes=["north"], renew=True)) == 2
    assert len(keys.make(nodes=["east"])) == 2
    with pytest.raises(ValueError, match="is needed to sign"):
        keys.make(["one.example.org"], renew=True)
    keys.ca_key.write_bytes(held)
    keys.server_key.unlink()
    assert keys.make() == [keys.server, keys.server_key]
    keys.ca.unlink()
    with pytest.raises(ValueError, match=r"holds ca.key, server.crt, nodes but no ca.crt"):
        keys.make()
    assert keys.ca_key.read_bytes() == held
    keys.ca_key.unlink()
    with pytest.raises(ValueError, match=r"holds server.crt, nodes but no ca.crt"):
        keys.make(nodes=["west"])


def test_the_key_of_another_authority_signs_nothing(tmp_path):
    keys, others = Certificates(tmp_path / "keys"), Certificates(tmp_path / "others")
    keys.make(["one.example.org"])
    others.make()
    before = keys.server.read_bytes()
    keys.ca_key.write_bytes(others.ca_key.read_bytes())
    with pytest.raises(ValueError, match=r"is not the key of ca.crt"):
        keys.make(["one.example.org"], renew=True)
    assert keys.server.read_bytes() == before


@pytest.mark.parametrize("host", ["https://server", "server:9443", "a b", "", "sérver.org", "*" * 300, "-x", "x" * 64])
def test_a_host_that_is_none_is_refused(host, tmp_path):
    with pytest.raises(ValueError, match="`--host` must be a name such as"):
        Certificates(tmp_path / "keys").make([host])
    assert not (tmp_path / "keys").exists()


def test_an_address_of_either_kind_is_a_host(tmp_path):
    keys = Certificates(tmp_path / "keys")
    keys.make(["192.0.2.7", "2001:0DB8::1", "server"])
    assert keys.make(["2001:0DB8::1"]) == []
    assert keys.hosts() == {"192.0.2.7", "2001:db8::1", "server", "localhost", "127.0.0.1"}


# The command


def test_the_command_writes_an_app_and_keys(tmp_path, capsys):
    assert run(["flower", "init", str(tmp_path / "my-app")]) == 0
    assert (tmp_path / "my-app" / "pyproject.toml").exists()
    certs = ["flower", "certs", str(tmp_path / "keys"), "--node", "north"]
    assert run([*certs, "--host", "server.example.org"]) == 0
    assert (tmp_path / "keys" / "nodes" / "north.key").exists()
    assert run(certs) == 0
    assert "nothing to do" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("flower", "init", "{}/my_app"), WRONG_USAGE),
        (("flower", "init", "{}/there"), NO_OUTPUT),
        (("flower", "init", "{}/file/app"), NO_OUTPUT),
        (("flower", "certs", "{}/keys", "--node", "../../evil"), WRONG_USAGE),
        (("flower", "certs", "{}/file/keys"), NO_OUTPUT),
    ],
)
def test_errors_are_one_line_and_an_exit_code(arguments, code, tmp_path, capsys):
    write_app(tmp_path / "there")
    (tmp_path / "file").write_text("")
    assert run([argument.format(tmp_path) for argument in arguments]) == code
    said = capsys.readouterr().err
    assert said.startswith("fedhlcr: ")
    assert said.count("\n") == 1


def test_the_command_tells_its_version_without_flower():
    script = "import sys; from fedhlcr.cli import run; run(['--version']); print('flwr' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["fedhlcr", fedhlcr.__version__, "False"]
