"""The commands of `fedhlcr flower`."""

import subprocess
import sys

import pytest

pytest.importorskip("flwr", reason="the flower extra is not installed")


import fedhlcr
from fedhlcr.cli import run
from fedhlcr.cli.shell import NO_OUTPUT, WRONG_USAGE
from fedhlcr.engines.flower.app_folder import write_app


def test_commands_write_an_app_and_keys(tmp_path, capsys):
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


def test_version_is_printed_without_importing_flower():
    script = "import sys; from fedhlcr.cli import run; run(['--version']); print('flwr' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["fedhlcr", fedhlcr.__version__, "False"]
