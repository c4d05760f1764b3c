"""Files that commands write: checked before the work, written completely or not at all."""

from __future__ import annotations

import io
import os
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from fedhlcr.cli.shell import NO_OUTPUT, WRONG_USAGE
from tests.commands import (
    COLUMNS,
    COMMAND,
    FIT,
    PAPER,
    assert_refused,
    call,
    in_shell,
)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is full")
def test_full_disk(shop, capsys):
    fit = ("fit", shop / "train.csv", *FIT, *PAPER, "--quiet")
    assert_refused(call(*fit, "--out", "/dev/full"), capsys, None, NO_OUTPUT)
    predict = ("predict", shop / "shop.fedhlcr", shop / "test.csv")
    assert_refused(call(*predict, "--out", "/dev/full"), capsys, None, NO_OUTPUT)
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, *map(str, predict)], stdout=full, stderr=subprocess.PIPE, check=False, timeout=120
        )
    assert done.returncode == NO_OUTPUT
    assert done.stderr.count(b"\n") == 1


def test_failed_write_leaves_the_old_file_and_no_draft(shop, tmp_path, capsys, monkeypatch):
    out = tmp_path / "p.csv"
    out.write_text("as it was")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert call("predict", shop / "shop.fedhlcr", shop / "test.csv", "--out", out) == NO_OUTPUT
    assert out.read_text() == "as it was"
    assert [path.name for path in tmp_path.iterdir()] == ["p.csv"]
    assert "No space left" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("simulate", "{all}", *COLUMNS, "--out", "{tmp}/m.csv", "--history", "{tmp}/./m.csv"),
        ("synth", "{tmp}/m.csv", "--truth", "{tmp}/m.csv"),
        ("split", "{all}", "--entity", "product", "--train", "{tmp}/m.csv", "--test", "{tmp}/m.csv"),
    ],
)
def test_two_outputs_cannot_be_the_same_file(arguments, shop, tmp_path, capsys):
    code = call(*(argument.format(all=shop / "all.csv", tmp=tmp_path) for argument in arguments))
    assert_refused(code, capsys, tmp_path / "m.csv", WRONG_USAGE)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is full")
@pytest.mark.parametrize(
    "arguments",
    [
        ("split", "{all}", "--entity", "product", "--train", "{tmp}/m.csv", "--test", "/dev/full"),
        ("synth", "{tmp}/m.csv", "--truth", "/dev/full"),
    ],
)
def test_both_tables_are_written_or_none(arguments, shop, tmp_path, capsys):
    command = [argument.format(all=shop / "all.csv", tmp=tmp_path) for argument in arguments]
    assert_refused(call(*command), capsys, tmp_path / "m.csv", NO_OUTPUT)
    (tmp_path / "m.csv").write_text("of an earlier split")
    assert_refused(call(*command), capsys, None, NO_OUTPUT)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["of an earlier split"]


@pytest.mark.parametrize("out", ["nowhere/m", "."])
def test_bad_output_path_is_refused_before_the_work(out, shop, tmp_path, capsys):
    assert call("fit", shop / "absent.csv", *FIT, "--out", tmp_path / out) == NO_OUTPUT
    assert capsys.readouterr().err.count("\n") == 1


def test_input_is_not_overwritten(shop, tmp_path, capsys):
    table = tmp_path / "t.csv"
    table.write_bytes((shop / "train.csv").read_bytes())
    before = table.read_bytes()
    for arguments in (
        ("fit", table, *FIT, "--out", table),
        ("predict", shop / "shop.fedhlcr", table, "--out", table),
        ("report", shop / "shop.fedhlcr", table, "--out", table),
        ("split", table, "--entity", "product", "--train", table, "--test", tmp_path / "test.csv"),
    ):
        assert_refused(call(*arguments), capsys, None, NO_OUTPUT)
        assert table.read_bytes() == before


@pytest.mark.slow
def test_only_tables_go_to_standard_output(shop, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert_refused(call("fit", shop / "train.csv", *FIT, "--out", "-"), capsys, None, NO_OUTPUT)
    assert list(tmp_path.iterdir()) == []
    done = in_shell("synth", "-", "--agents", "3")
    assert done.stderr == b""
    assert list(pd.read_csv(io.BytesIO(done.stdout)))[-1] == "target"
