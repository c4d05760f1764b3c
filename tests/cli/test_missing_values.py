"""The option --missing: refuse, drop or impute."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import fedhlcr
from fedhlcr.cli.shell import BAD_DATA
from tests.commands import (
    FIT,
    call,
    shop_table,
)


@pytest.fixture
def gappy(tmp_path):
    frame = shop_table()
    frame.loc[3:7, "price"] = np.nan
    frame.loc[10:11, "season"] = None
    frame.loc[20, "sales"] = np.nan
    frame.to_csv(tmp_path / "gappy.csv", index=False)
    return tmp_path / "gappy.csv"


def test_missing_values_are_refused_with_counts(gappy, tmp_path, capsys):
    assert call("fit", gappy, *FIT, "--out", tmp_path / "m") == BAD_DATA
    said = capsys.readouterr().err
    assert "'price' 5" in said
    assert "'season' 2" in said
    assert "'sales' 1" in said
    assert "--missing drop or --missing impute" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "m").exists()


def test_missing_targets_cannot_be_imputed(tmp_path, capsys):
    frame = shop_table()
    frame.loc[20, "sales"] = np.nan
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert call("fit", tmp_path / "t.csv", *FIT, "--out", tmp_path / "m") == BAD_DATA
    said = capsys.readouterr().err
    assert "1 of 864 rows has missing values: 'sales' 1" in said
    assert said.endswith("Use --missing drop.\n")


@pytest.mark.parametrize(("policy", "n_events"), [("drop", 864 - 8), ("impute", 864 - 1)])
def test_missing_values_are_dropped_or_imputed(policy, n_events, gappy, tmp_path, capsys):
    assert call("fit", gappy, *FIT, "--missing", policy, "--out", tmp_path / "m", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["n_events"] == n_events
    assert facts["notes"]


def test_imputed_values_come_from_the_training_table(gappy, tmp_path):
    assert call("fit", gappy, *FIT, "--missing", "impute", "--out", tmp_path / "m", "-q") == 0
    other = shop_table(seed=3, n_stores=2).assign(price=lambda frame: frame["price"] + 100)
    other.loc[0, "price"] = np.nan
    other.to_csv(tmp_path / "other.csv", index=False)
    assert call("predict", tmp_path / "m", tmp_path / "other.csv", "--out", tmp_path / "p.csv", "-q") == 0
    first = pd.read_csv(tmp_path / "p.csv").loc[0, "prediction"]
    model = fedhlcr.load(tmp_path / "m")
    median = pd.read_csv(gappy)["price"].median()
    filled = other.head(1).assign(price=model.recipe_.fill["price"])
    assert model.recipe_.fill["price"] == pytest.approx(median, abs=0.02)
    assert first == pytest.approx(model.predict(filled)[0])


def test_row_numbers_are_those_of_the_file_after_dropping(shop, tmp_path):
    test = pd.read_csv(shop / "test.csv", dtype={"product": str})
    test.loc[[0, 4], "price"] = np.nan
    test.to_csv(tmp_path / "t.csv", index=False)
    arguments = ("predict", shop / "shop.fedhlcr", tmp_path / "t.csv", "--out", tmp_path / "p.csv", "-q")
    assert call(*arguments) == BAD_DATA
    assert not (tmp_path / "p.csv").exists()
    assert call(*arguments, "--missing", "drop") == 0
    rows = pd.read_csv(tmp_path / "p.csv")["row"].tolist()
    assert rows == [number for number in range(1, len(test) + 1) if number not in (1, 5)]
