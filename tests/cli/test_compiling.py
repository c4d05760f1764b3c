"""Each command compiles at most once: all that it needs, counted together."""

from __future__ import annotations

import subprocess
import sys

import numba
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedhlcr.datasets import make_hlcr
from tests.commands import call

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")

COLUMNS = ("--target", "target", "--agent", "agent", "--entity", "entity")
# Runs a command as if nothing were compiled; compilation is noted and left out.
CODE = """
import sys
from pathlib import Path
from fedhlcr.cli import main
from fedhlcr.kernels import ahead
folder = Path(sys.argv.pop(1))
ahead._folder = lambda: folder
def compile_all(groups):
    print(f"compiling for {ahead._in_words(groups)}", file=sys.stderr)
    return ahead.Outcome("compiled", "", 1)
ahead._compile_all = compile_all
main()
"""
TARGETS = {"real": "real targets", "binary": "classes", "count": "counts"}
COMMANDS = {
    "fit --stream": ("fit", "{family}.parquet", *COLUMNS, "--out", "new.fedhlcr", "--sweeps", "9", "--stream"),
    "predict": ("predict", "{family}.fedhlcr", "{family}.parquet", "--out", "predictions.csv"),
    "evaluate": ("evaluate", "{family}.fedhlcr", "{family}.parquet"),
    "adapt": ("adapt", "{family}.fedhlcr", "{family}.parquet", "--out", "new.fedhlcr"),
    "report": ("report", "{family}.fedhlcr", "{family}.parquet", "--out", "report.html"),
}
# The others take minutes together.
QUICK = {("report", "binary"), ("predict", "real")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a table and a model of each family."""
    folder = tmp_path_factory.mktemp("families")
    for family in TARGETS:
        table, _ = make_hlcr(8, 3, 8, 2, 2, 0.3, target=family, random_state=1)
        frame = table.to_arrow()
        if family == "binary":
            frame = frame.set_column(4, "target", pa.array(np.where(table.y > 0, "yes", "no")))
        pq.write_table(frame, folder / f"{family}.parquet")
        out = folder / f"{family}.fedhlcr"
        told = ("--family", family, "--sweeps", "40")
        assert call("fit", folder / f"{family}.parquet", *COLUMNS, *told, "--out", out, "-q") == 0
    return folder


def compiled(folder, kept, *arguments):
    """What a command compiles for."""
    command = [sys.executable, "-c", CODE, str(kept), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stderr.splitlines() if line.startswith("compiling")]


@pytest.mark.parametrize(
    ("command", "family"),
    [
        pytest.param(command, family, marks=() if (command, family) in QUICK else (pytest.mark.slow, pytest.mark.ci))
        for command in COMMANDS
        for family in TARGETS
        if family != "binary" or command == "report"
    ],
)
def test_command_compiles_once(command, family, folder, tmp_path):
    arguments = [argument.format(family=family) for argument in COMMANDS[command]]
    if command == "fit --stream":
        arguments += ["--family", family]
    assert compiled(folder, tmp_path, *arguments) == [f"compiling for {TARGETS[family]}"]


@pytest.mark.slow
@pytest.mark.ci
def test_audit_compiles_once(folder, tmp_path):
    arguments = ["audit", "real.parquet", *COLUMNS, "--rounds", "4", "--runs", "0"]
    assert compiled(folder, tmp_path, *arguments) == ["compiling for federations"]
