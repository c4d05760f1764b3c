"""A table is checked, encoded and factorised once on its way from a file to a model."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest

from fedhlcr import cli
from fedhlcr.data import ids, inputs
from fedhlcr.data.recipe import Recipe

ROLES = ["--target", "y", "--agent", "store", "--entity", "product"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a table of events and a model that was fitted to it."""
    path = tmp_path_factory.mktemp("events")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"store": np.repeat(["a", "b", "c"], 40), "product": np.tile(range(8), 15)})
    frame = frame.assign(x=rng.normal(size=120), color=rng.choice(["red", "green", "blue"], 120))
    frame.assign(y=frame["x"] + rng.normal(size=120)).to_csv(path / "events.csv", index=False)
    run(path, "fit", "events.csv", *ROLES, "--categories", "color", "--sweeps", "10", "--out", "model.fedhlcr")
    return path


def run(folder, command, *arguments):
    """Run a command on files in the folder."""
    inside = [str(folder / name) if "." in name and not name[0].isdigit() else name for name in arguments]
    assert cli.run([command, *inside, "--quiet"]) == 0


COMMANDS = {
    "predict": ["predict", "model.fedhlcr", "events.csv", "--out", "out.csv"],
    "evaluate": ["evaluate", "model.fedhlcr", "events.csv", "--by-agent"],
    "adapt": ["adapt", "model.fedhlcr", "events.csv", "--out", "adapted.fedhlcr"],
    "report": ["report", "model.fedhlcr", "events.csv", "--out", "report.html"],
    "fit": [
        "fit",
        "events.csv",
        *ROLES,
        "--clusters",
        "2",
        "--hold-out",
        "0.2",
        "--sweeps",
        "5",
        "--out",
        "two.fedhlcr",
    ],
    "select": ["select", "events.csv", *ROLES, "--clusters", "1,2", "--splits", "2", "--sweeps", "5"],
    "simulate": ["simulate", "events.csv", *ROLES, "--clusters", "2", "--rounds", "3"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_tables_are_read_once(command, folder, monkeypatch):
    calls = Counter()

    def count(owner, name):
        original = getattr(owner, name)

        def counted(*arguments, **more):
            calls[name] += 1
            return original(*arguments, **more)

        monkeypatch.setattr(owner, name, counted)

    count(ids, "_factorize")
    count(Recipe, "_encoded")
    count(Recipe, "encode_features")
    count(inputs, "_stacked")
    arguments = COMMANDS[command]
    if command in ("fit", "select", "simulate"):
        arguments = [*arguments, "--categories", "color"]
    run(folder, *arguments)
    assert calls == {"_factorize": 2, "_encoded": 1}, "one column of agents, one of entities, one set of features"
