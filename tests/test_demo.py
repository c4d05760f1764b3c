"""`fedhlcr demo`: what it says, and that it runs where Windows would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fedhlcr
from fedhlcr import demo
from tests.reports import Page

# Takes away what Windows does not have, and then runs the command.
AS_ON_WINDOWS = """
import os, signal, sys
for name in ("fcntl", "resource", "pwd", "grp", "termios", "syslog"):
    sys.modules[name] = None
for name in ("fork", "sched_getaffinity", "fchmod", "fchown", "O_DIRECTORY", "O_NOFOLLOW", "getuid", "geteuid"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGHUP", "SIGKILL", "pthread_sigmask"):
    delattr(signal, name)
from fedhlcr.cli import main
main()
"""


def table_rows(text):
    """R² by the name of the model."""
    found = re.findall(r"^ *(\S[^\n]*?)  +(0\.\d{3})  +(0\.\d{3})  +[\d.]+  ", text, re.MULTILINE)
    return {name: (float(r2), float(small)) for name, r2, small in found}


@pytest.mark.slow
@pytest.mark.ci
def test_demo_compares_says_what_it_costs_and_writes_a_report(tmp_path, capsys):
    demo.main(tmp_path / "report.html", rounds=12)
    said = capsys.readouterr().out
    rows = table_rows(said)
    names = ["federated HLCR", "centralised HLCR", "mixed model, as lme4", "one ridge for all"]
    assert list(rows) == [*names, "one ridge per airline", "one ridge per route"]
    best = max(rows, key=lambda name: rows[name][0])
    gap = rows[best][0] - rows["federated HLCR"][0]
    assert f"Best on all flights: {best}, {gap:.3f} of R² ahead of the federation." in said
    against = rows["federated HLCR"][0] - rows["centralised HLCR"][0]
    assert f"{against:+.3f} of R² against the centralised fit".replace("-", "−") in said
    assert re.search(r"  12 rounds; \S+ [kM]B up and \S+ [kM]B down for each airline", said)
    assert re.search(r"Warming up.* done in \d+ s\. The times below are without it\.", said)
    assert said.index("Warming up") < said.index("seconds")
    assert "a curious server can infer much" in said
    assert "onverged" not in said
    assert "log_dist" not in said
    page = Page((tmp_path / "report.html").read_text())
    n_clusters = int(re.search(r"The federation found (\d+) clusters?", said)[1])
    assert len(page.columns("clusters")["cluster"]) == n_clusters
    assert "routes" in page.columns("clusters")
    for n, k in ((n, int(k)) for k, n in re.findall(r"Cluster (\d+): (\d+) routes?", said)):
        assert page.columns("clusters")["routes"][k] == int(n)
    assert f"R² on held-out events {rows['federated HLCR'][0]:.3f}" in page.text


@pytest.mark.slow
@pytest.mark.ci
def test_demo_runs_without_posix_on_a_console_of_few_characters(tmp_path):
    source = str(Path(fedhlcr.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source, "PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}
    command = [sys.executable, "-c", AS_ON_WINDOWS, "demo", "--rounds", "3"]
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, env=environment, check=False, timeout=600)
    assert done.returncode == 0, done.stderr.decode("cp1252")
    said = done.stdout.decode("cp1252")
    assert "R²" in said
    assert "-----" in said, "rules of tables"
    assert re.search(r"[: (]-\d\.\d\d", said), "minus signs are not lost"
    assert "?" not in said
    assert [path.name for path in tmp_path.iterdir()] == ["demo-report.html"]


def test_effects_are_told_in_months_and_hours():
    angle = 2 * np.pi * 1.5 / 12
    words = demo._describe_effects(np.array([0.01, 0.0, 2.0, np.sin(angle), np.cos(angle), -1.0]))
    assert "Slowest in February (+1.00) and at 00:00 (+2.00)." in words
    assert "Twice the distance: −0.69. A delay of one hour: +0.60." in words
