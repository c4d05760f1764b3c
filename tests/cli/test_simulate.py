"""`fedhlcr simulate`: a federation in one process."""

from __future__ import annotations

import json

import pandas as pd
import pytest

import fedhlcr
from fedhlcr.cli.shell import FAILED
from tests.commands import (
    COLUMNS,
    FOR_ALL,
    FOR_TARGETS,
    assert_refused,
    bad_table,
    call,
)


def test_simulate_runs_a_federation(shop, tmp_path, capsys):
    arguments = ("simulate", shop / "all.csv", *COLUMNS, "--categories", "promotion,season")
    federation = ("--participation", ".5", "--rounds", "30", "--failure-rate", ".1")
    files = ("--out", tmp_path / "fed", "--history", tmp_path / "rounds.csv")
    assert call(*arguments, *federation, *files, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["federation"]["rounds"] <= 30
    assert facts["federation"]["answers"] < facts["federation"]["asked"]
    assert facts["held_out"]["federated"]["r2"] == pytest.approx(facts["held_out"]["centralised"]["r2"], abs=0.02)
    rounds = pd.read_csv(tmp_path / "rounds.csv")
    assert rounds["bytes_up"].sum() == facts["federation"]["bytes_up"]
    assert call("evaluate", tmp_path / "fed", shop / "test.csv", "--json") == 0
    assert json.loads(capsys.readouterr().out)["r2"] > 0.95
    assert call(*arguments, *federation) == 0
    assert "Ended after" in capsys.readouterr().out


@pytest.mark.parametrize("kind", [*FOR_ALL, *FOR_TARGETS])
def test_simulate_refuses_bad_tables(kind, tmp_path, capsys):
    out = tmp_path / "model"
    categorical = ("--categories", "promotion,season")
    code = call("simulate", bad_table(kind, tmp_path), *COLUMNS, *categorical, "--out", out)
    assert_refused(code, capsys, out)


def test_federation_without_answers_fails(shop, capsys):
    hopeless = ("--participation", ".1", "--rounds", "2", "--failure-rate", ".99")
    code = call("simulate", shop / "all.csv", *COLUMNS, "--features", "price", *hopeless)
    assert_refused(code, capsys, None, FAILED)


def test_one_round_is_singular(shop, capsys):
    assert call("simulate", shop / "all.csv", *COLUMNS, "--features", "price", "--rounds", "1") == 0
    assert "Ended after 1 round: reached the maximum of 1 round." in capsys.readouterr().out


def test_simulate_with_curves(shop, tmp_path):
    out = ("--curves", "auto", "--rounds", "8", "--hold-out", "0", "--out", tmp_path / "m", "-q")
    assert call("simulate", shop / "train.csv", *COLUMNS, "--categories", "promotion,season", *out) == 0
    assert fedhlcr.load(tmp_path / "m").curves_.columns.tolist() == [0]
