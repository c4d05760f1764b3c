"""`fedhlcr demo`: what it says, and that it runs where Windows would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import fedhlcr
from fedhlcr import demo
from fedhlcr.datasets import load_flights
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
    """Errors on known and on new routes, and R², by the name of the model."""
    found = re.findall(r"^ *(\S[^\n]*?)((?:  +\d\.\d{3}){3})  +\S", text, re.MULTILINE)
    return {name: tuple(map(float, figures.split())) for name, figures in found}


def held_shares(text):
    """Shares of flights inside intervals, in per cent, by the name of the model."""
    found = re.findall(r"^ *(\S[^\n]*?)((?:  +[\d.]+ %){2})  +\d+\.\d$", text, re.MULTILINE)
    return {name: [float(share) for share in re.findall(r"([\d.]+) %", shares)] for name, shares in found}


def code_of(html):
    """What the report prints under "How to reproduce it"."""
    return unescape(re.search(r"<pre[^>]*><code>(.*?)</code></pre>", html, re.DOTALL)[1])


@pytest.mark.slow
@pytest.mark.ci
def test_demo_tells_one_story_and_its_report_runs_as_printed(tmp_path, capsys):
    demo.main(tmp_path / "report.html", rounds=12)
    said = capsys.readouterr().out
    flat = " ".join(said.split())
    rows = table_rows(said)
    own, alone, ridges, mixed = (rows[name] for name in list(rows)[:4])
    assert list(rows)[:2] == ["federated HLCR", "alone: HLCR"]
    assert list(rows)[2:] == ["alone: ridge per route", "mixed model, as lme4", "one ridge", "centralised HLCR"]
    # sentences say what the table says, up to its rounding
    words = re.search(
        r"Alone, a station with the same model has an error that is (.*?); with a ridge per route, (.*?)\. The error "
        r"of a mixed model, which needs every flight in one place, is (.*?)\. ",
        flat,
    )
    for clause, figures in zip(words.groups(), (alone, ridges, mixed), strict=True):
        shares = re.findall(r"(?:under )?(\d+) % (larger|smaller) on (?:known routes|new ones)", clause)
        assert len(shares) == 2
        for (share, direction), theirs, ours in zip(shares, figures, own, strict=False):
            assert abs(int(share) - 100 * abs(theirs / ours - 1)) < 1.2
            assert int(share) < 2 or direction == ("larger" if theirs > ours else "smaller")
    assert f"the best is: {max(rows, key=lambda name: rows[name][2])}." in flat
    held = held_shares(said)
    assert list(held) == list(rows)[:4]
    assert all(60 < share <= 100 for shares in held.values() for share in shares)
    assert re.search(r"What it cost: 12 rounds, with \S+ [kM]B up and \S+ [kM]B down for each station", flat)
    assert flat.index("What it found") < flat.index("The fit took")
    assert "a curious server can infer much" in flat
    assert "onverged" not in said
    html = (tmp_path / "report.html").read_text()
    page, n_clusters = Page(html), int(re.search(r"What it found: (\d+) clusters?", said)[1])
    clusters = page.columns("clusters")
    assert len(clusters["cluster"]) == n_clusters
    described = {int(k): int(n) for k, n in re.findall(r"Cluster (\d+)(?:, of the mixed group)?: (\d+) routes?", flat)}
    assert all(clusters["routes"][k] == n for k, n in described.items())
    rest = re.search(r"more clusters? (?:has|have) (\d+) routes?\.", flat)
    assert sum(described.values()) + (int(rest[1]) if rest else 0) == sum(clusters["routes"])
    sure = re.search(r"(\d+) % of routes are surely in their cluster", flat)[1]
    assert f"{sure} % of routes are surely in their cluster" in page.text.replace("\N{NO-BREAK SPACE}", " ")
    assert f"R² on held-out events {own[2]:.3f}" in page.text
    empty = tmp_path / "empty"
    empty.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(Path(fedhlcr.__file__).parents[1])}
    command = [sys.executable, "-c", code_of(html)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=empty, env=environment, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{n_clusters} clusters, {own[2]:.3f} (R² of ")


def test_tables_are_real_flights_chosen_by_the_rule():
    flights = load_flights().to_arrow()
    train, test = demo.load_tables()
    assert train.column_names == test.column_names == ["station", "route", *flights.column_names[2:-1], demo.TARGET]
    known, n_known = np.unique(train["route"].to_numpy(), return_counts=True)
    assert set(n_known) == {6}
    rows = [
        set(zip(*(column.to_pylist() for column in table.columns), strict=True)) for table in (flights, train, test)
    ]
    assert rows[1] <= rows[0]
    assert rows[2] <= rows[0]
    assert set(train["station"].to_pylist()) == set(flights["agent"].to_pylist())
    every = np.unique(flights["entity"].to_numpy())
    new = set(every) - set(known)
    assert new <= set(every[4::5])
    assert set(test["route"].to_pylist()) == set(every)
    # only a station's only route is known though it is a fifth one
    kept = [route for route in every[4::5] if route not in new]
    assert all(sum(other[:6] == route[:6] for other in every) == 1 for route in kept)
    # spread over the year: of a route that flies all year, no quarter lacks a known flight
    sines, cosines = (train[name].to_numpy().reshape(len(known), 6) for name in ("sin_y", "cos_y"))
    quarters = (np.arctan2(sines, cosines) // (np.pi / 2)).astype(int)
    assert np.mean([len(set(of_route)) for of_route in quarters]) > 3


def test_no_known_flight_is_predicted():
    flights = load_flights()
    flights.X[:, 0] = np.arange(len(flights))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "load_flights", lambda: flights)
        train, test = demo.load_tables()
    known, predicted = (set(table["dep_delay"].to_pylist()) for table in (train, test))
    assert not known & predicted
    assert len(predicted) == len(test)


@pytest.mark.slow
@pytest.mark.ci
def test_demo_runs_without_posix_on_a_console_of_few_characters(tmp_path):
    source = str(Path(fedhlcr.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source, "PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}
    command = [sys.executable, "-c", AS_ON_WINDOWS, "demo", "--rounds", "3"]
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, env=environment, check=False, timeout=600)
    assert done.returncode == 0, done.stderr.decode("cp1252")
    quiet = subprocess.run(
        [*command, "--quiet"], capture_output=True, cwd=tmp_path, env=environment, check=False, timeout=600
    )
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, b"", b"")
    said = done.stdout.decode("cp1252")
    assert "R²" in said
    assert "-----" in said, "rules of tables"
    assert re.findall(r"\S*\?", said) == ["same?"], "no character is lost"
    assert [path.name for path in tmp_path.iterdir()] == ["demo-report.html"]


@pytest.mark.parametrize(
    ("in_use", "n_clusters", "told"),
    [
        ([9, 9, 4, 4], 4, "It began with up to 9 and merged those alike."),
        ([8, 8, 8, 8], 8, ""),
        ([9, 9, 1, 1], 1, ""),
        (
            [9, 1, 1, 6],
            6,
            "It began with up to 9 and merged those alike. In 2 rounds it tried one cluster for all routes, which was "
            "worse.",
        ),
    ],
)
def test_search_for_clusters_is_told(in_use, n_clusters, told):
    history = {"round": np.arange(5), "n_clusters": np.array([0, *in_use])}
    assert demo._describe_search(SimpleNamespace(history_=history, n_clusters_=n_clusters)) == told


def test_map_shows_the_cluster_of_most_routes_at_each_place():
    west, east, beyond = (47.0, -122.0), (26.0, -80.0), (21.3, -157.9)
    drawn = demo._draw_map([west, east, east, east, beyond], np.array([0, 3, 12, 12, 1])).split("\n")
    assert sorted("".join(drawn).split()) == ["*", "0", "C"]
    lines = {mark: number for number, line in enumerate(drawn) for mark in line.strip()}
    assert lines["0"] < lines["*"] < lines["C"]
    columns = {mark: line.index(mark) for line in drawn for mark in line.strip()}
    assert columns["0"] < columns["C"] < columns["*"]
