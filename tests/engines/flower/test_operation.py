"""What operators see: checks of a node, reasons in plain words, the server's folder, and files for systemd."""

import http.server
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import threading
import time

import pytest

pytest.importorskip("flwr", reason="the flower extra is not installed")

from typer.testing import CliRunner

from fedhlcr.cli import app as command_line
from fedhlcr.engines.flower import node_checks, supervisor
from fedhlcr.engines.flower.certificates import Certificates
from fedhlcr.engines.flower.loopback import Loopback
from fedhlcr.engines.flower.names import AgentNames, NodeName
from fedhlcr.engines.flower.node_checks import check_disk, check_files, check_node, check_server, check_table
from fedhlcr.engines.flower.node_folder import NodeFolder
from fedhlcr.engines.flower.node_service import NodeService, own_fingerprint
from fedhlcr.engines.flower.options import RunOptions, option_text
from fedhlcr.engines.flower.server_folder import ServerFolder
from fedhlcr.engines.flower.supervisor import Program
from fedhlcr.exceptions import ArgumentError, LoopbackError
from tests.flower_grid import write_table

NOT_LET_IN = "Exit Code: 305\n[code: 2004] Failed to activate SuperNode."


class Forbidding(http.server.BaseHTTPRequestHandler):
    """Forbids everything, as the front of a server does; its answers have the time of its own clock."""

    ahead = 0.0

    def date_time_string(self, timestamp=None):
        return super().date_time_string(time.time() + self.ahead)

    def do_GET(self):
        self.send_error(403)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    keys = Certificates(tmp_path_factory.mktemp("server") / "keys")
    keys.make(["127.0.0.1"], ["north"])
    return keys


@pytest.fixture
def front(keys):
    """The port of a server with the federation's certificate."""
    listening = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Forbidding)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys.server, keys.server_key)
    listening.socket = context.wrap_socket(listening.socket, server_side=True)
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    yield listening.server_address[1]
    listening.shutdown()
    listening.server_close()


@pytest.fixture
def node(tmp_path, keys, front, table):
    folder = tmp_path / "north"
    folder.mkdir()
    shutil.copy(keys.ca, folder / "ca.crt")
    shutil.copy(keys.node_key("north"), folder / "node.key")
    write_table(folder / "visits.csv", table)
    (folder / "node.toml").write_text(
        f'server = "127.0.0.1:{front}"\nname = "north"\n[table]\ndata-path = "visits.csv"\ntarget = "target"\n'
        f'agent = "agent"\nentity = "entity"\nfeatures = "{",".join(table.feature_names)}"\n'
    )
    return NodeFolder.read(folder)


def test_sound_node_passes_all_checks(node):
    findings = list(check_node(node))
    assert not [str(finding) for finding in findings if finding.is_fault]
    assert "events of 12 agents can be used" in str(findings[2])
    done = CliRunner().invoke(command_line, ["flower", "node", str(node.folder), "--check"])
    assert done.exit_code == 0, done.output
    assert not list((node.folder / "state").iterdir()), "a check leaves no state behind"


@pytest.mark.parametrize(("seconds", "words"), [(3 * 3600, "ahead of"), (8, "ahead of"), (-400, "behind")])
def test_clock_skew_is_named(node, monkeypatch, seconds, words):
    monkeypatch.setattr(Forbidding, "ahead", -seconds)
    finding = check_server(node)
    assert finding.check == "clock"
    found = re.search(rf"clock is (\d+) seconds {words} the server's", str(finding))
    assert abs(int(found[1]) - abs(seconds)) <= 3
    assert "timedatectl set-ntp true" in str(finding)
    # Flower itself ends with exit code 0 and "terminated gracefully"
    assert str(finding).split(":")[0] in NodeService(node).explain("SuperNode terminated gracefully.", 0)


def test_clock_that_is_a_little_off_is_no_fault(node, monkeypatch):
    monkeypatch.setattr(Forbidding, "ahead", 100.0)
    assert not check_server(node).is_fault


def test_unreachable_and_foreign_servers_are_told_apart(node, tmp_path, front):
    other = Certificates(tmp_path / "other")
    other.make(["127.0.0.1"])
    shutil.copy(other.ca, node.ca)
    assert "another certificate" in str(check_server(node))
    shutil.copy(node.folder / "visits.csv", tmp_path)
    text = (node.folder / "node.toml").read_text().replace(f":{front}", ":1")
    (node.folder / "node.toml").write_text(text)
    assert "cannot be reached" in str(check_server(NodeFolder.read(node.folder)))


def test_full_disk_is_named(node, monkeypatch):
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(node_checks.shutil, "disk_usage", lambda _: usage._replace(free=12_000_000))
    assert "12 MB left" in str(check_disk(node))
    service = NodeService(node)
    assert "12 MB left" in service.look_after()
    assert "12 MB left" in service.explain("", 1)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folder_that_cannot_be_written_is_named(node):
    node.folder.chmod(0o500)
    try:
        assert "cannot write to" in str(check_disk(node))
    finally:
        node.folder.chmod(0o700)


def test_missing_and_open_files_are_named(node):
    node.key.chmod(0o644)
    assert "can be read by others" in str(check_files(node))
    node.key.unlink()
    assert "node.key is missing" in str(check_files(node))
    done = CliRunner().invoke(command_line, ["flower", "node", str(node.folder), "--check"])
    assert done.exit_code == 1


def test_wrong_column_is_named_without_values(node):
    text = (node.folder / "node.toml").read_text().replace('"target"', '"cost"')
    (node.folder / "node.toml").write_text(text)
    finding = check_table(NodeFolder.read(node.folder))
    assert finding.is_fault
    assert "'cost'" in str(finding)


@pytest.mark.parametrize("text", ["server = 5", 'server = "here"', 'server = "a:b"', "[[", 'server = "a:1"\ntable = 5'])
def test_bad_settings_are_refused(tmp_path, text):
    (tmp_path / "node.toml").write_text(text)
    with pytest.raises(ArgumentError, match=r"node\.toml"):
        NodeFolder.read(tmp_path)
    with pytest.raises(ArgumentError, match=r"has no node\.toml"):
        NodeFolder.read(tmp_path / "elsewhere")


def test_unregistered_and_restarted_too_soon_are_told_apart(node):
    """Flower prints the same for both."""
    service = NodeService(node)
    unknown = service.explain(NOT_LET_IN, 1)
    assert f"does not know this node's key {own_fingerprint(node.key)}" in unknown
    assert "fedhlcr flower server DIR --node north" in unknown
    service.program.is_ready.set()
    service.look_after()
    service.program.is_ready.clear()
    assert service.explain(NOT_LET_IN, 1).startswith("restarted too soon")
    long_ago = time.time() - 1000
    os.utime(service.seen, (long_ago, long_ago))
    assert "does not know" in service.explain(NOT_LET_IN, 1)


def test_program_is_started_again_and_the_reason_is_said(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(supervisor, "FIRST_PAUSE", 0.1)
    script = "import sys, pathlib; p = pathlib.Path('n'); n = len(p.read_text()) if p.exists() else 0; "
    script += "p.write_text('x' * (n + 1)); print('going on' if n > 1 else 'No luck'); "
    script += "__import__('time').sleep(60) if n > 1 else sys.exit(7)"
    program = Program(
        "it", [sys.executable, "-c", script], tmp_path, tmp_path, lambda said, code: f"{said!r}.", "going on"
    )
    threading.Thread(target=supervisor._keep, args=(program, lambda _: ""), daemon=True).start()
    assert program.is_ready.wait(30)
    said = capfd.readouterr().out
    assert said.count("fedhlcr: it has ended (exit code 7): 'No luck'. Starting it again in") == 2
    program.stop()


def test_server_folder_has_everything(tmp_path):
    done = CliRunner().invoke(
        command_line,
        ["flower", "server", str(tmp_path / "fed"), "--host", "server.example.org", "--node", "north", "--only-files"],
    )
    assert done.exit_code == 0, done.output
    node = NodeFolder.read(tmp_path / "fed" / "nodes" / "north")
    assert node.server == "server.example.org:9443"
    assert node.key.stat().st_mode & 0o077 == 0
    assert "node-config lacks `data-path`, `target`, `features`" in str(check_table(node))
    nginx = (tmp_path / "fed" / "nginx.conf").read_text()
    assert "client_max_body_size 64m" in nginx
    assert nginx.count("{") == nginx.count("}")
    # what the owner has set is kept
    settings = node.folder / "node.toml"
    settings.write_text(settings.read_text().replace('target = ""', 'target = "cost"'))
    ServerFolder(tmp_path / "fed").make([], ["north", "south"])
    assert 'target = "cost"' in settings.read_text()
    assert NodeFolder.read(tmp_path / "fed" / "nodes" / "south").server == "server.example.org:9443"


def test_new_keys_are_registered_in_place_of_old_ones(tmp_path, monkeypatch):
    server, known, calls = ServerFolder(tmp_path / "fed"), {}, []

    def flwr(self, command, action, *arguments):
        calls.append(action)
        if action == "register":
            known[arguments[-1]] = f"{len(calls)}"
        if action == "unregister":
            known.clear()
        return json.dumps({"nodes": [{"name": name, "node-id": number} for name, number in known.items()]})

    monkeypatch.setattr(ServerFolder, "flwr", flwr)
    server.make(["127.0.0.1"], ["north"])
    assert server.register() == ["north"]
    assert server.register() == []
    old = (server.node_folder("north") / "node.key").read_bytes()
    server.keys.make(nodes=["north"], renew=True)
    server.make([], ["north"])
    assert (server.node_folder("north") / "node.key").read_bytes() != old
    calls.clear()
    assert server.register() == ["north"]
    assert calls == ["list", "unregister", "register"]


def test_failed_federation_shows_the_cause_from_the_right_log(tmp_path):
    federation = Loopback(tmp_path)
    federation.log_path("superlink").write_text("\x1b[91mERROR\x1b[0m: disk I/O error\n\n[uvicorn.access] GET\n")
    federation.log_path("node-1").write_text("fine\n")
    shown = federation.causes("superlink")
    assert "superlink.log:\n  ERROR: disk I/O error" in shown
    assert "node-1" not in shown
    federation._start("node-2", sys.executable, "-c", "print('No space left on device')")
    federation.processes["node-2"].wait()
    assert "No space left on device" in federation.causes("superlink")


def test_log_that_breaks_off_is_followed_again(tmp_path, monkeypatch):
    """A busy SuperLink ends the stream of a log, not the run."""
    federation, statuses, shown = Loopback(tmp_path), iter(["running", "finished:completed"]), []
    lines = iter(["print('one')", "print('one'); print('two')"])

    def watch(self, run):
        self._start(f"run-{run}", sys.executable, "-c", next(lines))
        return f"run-{run}"

    monkeypatch.setattr(Loopback, "watch", watch)
    monkeypatch.setattr(Loopback, "status", lambda self, run: next(statuses))
    federation.follow(7, shown.append, limit=60)
    assert shown == ["one", "two"]


def test_nodes_that_end_are_started_again(tmp_path, monkeypatch):
    federation, started = Loopback(tmp_path), []
    monkeypatch.setattr(Loopback, "start_supernode", lambda self, name, config: started.append(name))
    federation._start("node-1", sys.executable, "-c", "")
    federation.processes["node-1"].wait()
    federation.revived = {"node-1": {}}
    federation._revive()
    federation._revive()
    assert started == ["node-1"], "not more often than every few seconds"
    federation._start("superlink", sys.executable, "-c", "print('out of memory')")
    federation.processes["superlink"].wait()
    with pytest.raises(LoopbackError, match=r"SuperLink has ended\.(.|\n)*out of memory"):
        federation._revive()


def test_first_start_needs_a_host(tmp_path):
    with pytest.raises(ArgumentError, match="pass --host"):
        ServerFolder(tmp_path / "fed").make([], ["north"])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
@pytest.mark.parametrize("what", ["server", "node"])
def test_systemd_accepts_the_unit(tmp_path, what):
    ServerFolder(tmp_path / "fed").make(["127.0.0.1"], ["north"])
    folder = tmp_path / "fed" if what == "server" else tmp_path / "fed" / "nodes" / "north"
    done = CliRunner().invoke(command_line, ["flower", what, str(folder), "--systemd"])
    assert done.exit_code == 0, done.output
    unit = tmp_path / f"fedhlcr-{what}.service"
    unit.write_text(done.output)
    checked = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert not [line for line in checked.stderr.splitlines() if unit.name in line], checked.stderr


def test_options_of_a_run_get_quotes_where_flower_needs_them():
    assert option_text("rounds=60") == "rounds=60"
    assert option_text("experiment=costs") == 'experiment="costs"'
    assert option_text("limits.max-events=5.0") == "limits.max-events=5.0"
    with pytest.raises(ArgumentError, match="did you mean `rounds`"):
        option_text("round=60")
    with pytest.raises(ArgumentError, match="such as rounds=60"):
        option_text("rounds")


def test_limit_of_agents_is_checked():
    with pytest.raises(ArgumentError, match="max-agents-per-node"):
        RunOptions.from_config({"max-agents-per-node": 0})


def test_release_of_unknown_names_says_which_there_are(tmp_path):
    AgentNames(tmp_path / "agents.json").claim(NodeName("SHA256:x", "north"), ["a"])
    done = CliRunner().invoke(command_line, ["flower", "release", str(tmp_path), "--node", "south"])
    assert done.exit_code != 0


def test_run_needs_the_folder_of_a_server(tmp_path):
    done = CliRunner().invoke(command_line, ["flower", "run", str(tmp_path), "rounds=2"])
    assert isinstance(done.exception, ArgumentError)
    assert "is not a server's folder" in str(done.exception)
