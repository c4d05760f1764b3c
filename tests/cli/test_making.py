"""`fedhlcr split` and `fedhlcr synth`: tables to fit and to try things on."""

from __future__ import annotations

import json
import sys

import pandas as pd
import pytest

from fedhlcr import demo
from fedhlcr.cli.shell import BAD_DATA
from fedhlcr.exceptions import DataError
from tests.commands import (
    COLUMNS,
    FIT,
    assert_refused,
    bad_table,
    call,
    shop_table,
)


def test_split_holds_out_some_events_of_each_entity(shop):
    train, test = (pd.read_csv(shop / f"{part}.csv", dtype=str) for part in ("train", "test"))
    whole = pd.read_csv(shop / "all.csv", dtype=str)
    both = pd.concat([train, test]).sort_values(list(whole.columns)).reset_index(drop=True)
    pd.testing.assert_frame_equal(both, whole.sort_values(list(whole.columns)).reset_index(drop=True))
    shares = test.groupby(["store", "product"]).size() / whole.groupby(["store", "product"]).size()
    assert shares.between(0.1, 0.3).all()


@pytest.mark.parametrize(
    "kind", ["no such file", "empty file", "wrong column", "duplicate column", "half a parquet", "missing id"]
)
def test_split_refuses_bad_tables(kind, tmp_path, capsys):
    out = tmp_path / "train.csv"
    arguments = ("--agent", "store", "--entity", "product", "--train", out, "--test", tmp_path / "test.csv")
    assert_refused(call("split", bad_table(kind, tmp_path), *arguments), capsys, out)


def test_table_without_events_to_hold_out_is_refused(tmp_path, capsys):
    table = shop_table(n_stores=3, n_weeks=1)
    table.to_csv(tmp_path / "t.csv", index=False)
    fit = ("fit", tmp_path / "t.csv", *FIT, "--hold-out", ".2", "--out", tmp_path / "m")
    simulate = ("simulate", tmp_path / "t.csv", *COLUMNS, "--features", "price")
    split = ("split", tmp_path / "t.csv", "--agent", "store", "--entity", "product")
    files = ("--train", tmp_path / "train.csv", "--test", tmp_path / "test.csv")
    for arguments in (fit, simulate, (*split, *files)):
        assert call(*arguments) == BAD_DATA
        assert "no entity has enough events" in capsys.readouterr().err


def test_fit_reads_what_synth_writes(tmp_path, capsys):
    table, truth = tmp_path / "t.parquet", tmp_path / "truth.csv"
    assert call("synth", table, "--agents", 40, "--clusters", 3, "--seed", 1, "--truth", truth, "-q") == 0
    columns = ("--target", "target", "--agent", "agent", "--entity", "entity")
    assert call("fit", table, *columns, "--out", tmp_path / "m", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["n_clusters"] == 3
    assert facts["n_entities"] == len(pd.read_csv(truth))


def test_json_of_a_synthetic_table_is_one_object(capsys):
    assert call("synth", "-", "--agents", "3", "--features", "1", "--json") == 0
    assert list(json.loads(capsys.readouterr().out)) == ["agent", "entity", "x0", "target"]


def test_quiet_demo_prints_nothing(tmp_path, monkeypatch, capsys):
    def main(page, *, rounds, verbose):
        print("clusters")
        if verbose:
            print("rounds", file=sys.stderr)
        if rounds:
            raise DataError("there are no flights.")

    monkeypatch.setattr(demo, "main", main)
    assert call("demo", "--quiet", "--out", tmp_path / "page.html") == 0
    assert capsys.readouterr() == ("", "")
    assert call("demo", "--quiet", "--rounds", "1", "--out", tmp_path / "page.html") == BAD_DATA
    assert capsys.readouterr() == ("", "fedhlcr: there are no flights.\n")
    assert call("demo", "--out", tmp_path / "page.html") == 0
    assert capsys.readouterr() == ("clusters\n", "rounds\n")
    assert call("demo", "--no-progress", "--out", tmp_path / "page.html") == 0
    assert capsys.readouterr() == ("clusters\n", "")
