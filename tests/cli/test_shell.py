"""Pipes, terminals and signals."""

from __future__ import annotations

import io
import os
import pty
import shlex
import signal
import subprocess

import pandas as pd
import pytest

import fedhlcr
from fedhlcr.cli.shell import BAD_DATA, BAD_MODEL, INTERRUPTED, NO_OUTPUT
from tests.commands import (
    COMMAND,
    FIT,
    PAPER,
    assert_refused,
    call,
    in_shell,
    shop_table,
)


@pytest.mark.slow
def test_table_from_a_pipe(shop, tmp_path):
    data = (shop / "test.csv").read_bytes()
    done = in_shell("predict", shop / "shop.fedhlcr", "-", data=data)
    assert done.returncode == 0
    assert done.stderr == b""
    predicted = pd.read_csv(io.BytesIO(done.stdout))
    assert len(predicted) == len(pd.read_csv(shop / "test.csv"))
    fitted = in_shell("fit", "-", *FIT, *PAPER, "--out", tmp_path / "m", data=(shop / "train.csv").read_bytes())
    assert fitted.returncode == 0
    assert fitted.stderr.decode() == f"wrote {tmp_path / 'm'}\n"
    assert b"\x1b" not in fitted.stdout, "no colours in a pipe"


def test_reader_may_close_the_pipe_after_the_first_line(shop):
    command = shlex.join([*COMMAND, "predict", str(shop / "shop.fedhlcr"), str(shop / "test.csv")])
    script = f"{command} | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.splitlines() == ["row,store,product,prediction,std", "0"]
    assert done.stderr == ""


@pytest.mark.parametrize("command", ["inspect {model}", "evaluate {model} {test} --by-agent", "select --help"])
def test_reader_may_close_the_pipe_at_once(command, shop):
    words = command.format(model=shop / "shop.fedhlcr", test=shop / "test.csv").split()
    script = f"{shlex.join([*COMMAND, *words])} | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert (done.stdout, done.stderr) == ("0\n", "")


@pytest.mark.slow
def test_terminal_shows_progress_and_the_time_left(tmp_path):
    assert call("synth", tmp_path / "t.csv", "--agents", 100, "-q") == 0
    mine, theirs = pty.openpty()
    columns = ("--target", "target", "--agent", "agent", "--entity", "entity", "--sweeps", "400")
    command = [*COMMAND, "fit", str(tmp_path / "t.csv"), *columns, "--out", str(tmp_path / "m")]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        said = b""
        while True:
            try:
                part = os.read(mine, 65536)
            except OSError:
                break
            if not part:
                break
            said += part
    os.close(mine)
    assert process.returncode == 0
    text = said.decode()
    assert "of 400 sweeps" in text
    assert "left" in text


def test_names_cannot_control_the_terminal(tmp_path, capsys):
    frame = shop_table().rename(columns={"price": "pr\x1b[31mice"})
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert call("fit", tmp_path / "t.csv", *FIT, "--out", tmp_path / "m") == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
def test_closed_output_streams(closed, shop, tmp_path):
    inspect = [*COMMAND, "inspect", str(shop / "shop.fedhlcr")]
    fit = [*COMMAND, "fit", str(shop / "train.csv"), *FIT, "-q", "--out", str(tmp_path / "m")]
    read = [*COMMAND, "inspect", "absent"]
    codes = []
    for command in (inspect, fit, read):
        done = subprocess.run(["bash", "-c", f"{shlex.join(command)} {closed}"], capture_output=True, timeout=120)
        codes.append(done.returncode)
        assert b"unexpected error" not in done.stderr
        assert done.stderr.count(b"\n") == (done.returncode != 0 and closed == ">&-")
    assert codes == [NO_OUTPUT, 0, BAD_MODEL]


def test_closed_standard_input(shop):
    command = shlex.join([*COMMAND, "predict", str(shop / "shop.fedhlcr"), "-"])
    done = subprocess.run(["bash", "-c", f"{command} <&-"], capture_output=True, timeout=120)
    assert (done.returncode, done.stdout) == (BAD_DATA, b"")
    assert b"standard input is closed" in done.stderr


def test_ctrl_c(shop, tmp_path, capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedhlcr.data.recipe.Recipe.read", interrupted)
    assert_refused(call("fit", shop / "train.csv", *FIT, "--out", tmp_path / "m"), capsys, tmp_path / "m", INTERRUPTED)


def listen():
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.slow
@pytest.mark.ci
def test_ctrl_c_while_sampling_writes_an_interrupted_model(tmp_path):
    (tmp_path / "m").write_text("a whole model")
    assert call("synth", tmp_path / "t.csv", "--agents", 60, "-q") == 0
    columns = ("--target", "target", "--agent", "agent", "--entity", "entity", "--sweeps", "1000000")
    command = [*COMMAND, "fit", str(tmp_path / "t.csv"), *columns, "--out", str(tmp_path / "m"), "--progress"]
    # a shell that starts the tests in the background has them ignore Ctrl-C
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, preexec_fn=listen) as process:
        for line in process.stderr:
            if b"sweeps" in line:
                break
        process.send_signal(signal.SIGINT)
        said = process.stderr.read().decode()
    assert process.returncode == INTERRUPTED
    assert "interrupted after" in said
    assert (tmp_path / "m").read_text() == "a whole model"
    assert fedhlcr.load(tmp_path / "m.interrupted").n_clusters_ >= 1
