"""`fedhlcr select`: how many clusters."""

from __future__ import annotations

import json

import pytest

from fedhlcr.cli.shell import NO_OUTPUT
from tests.commands import FIT, FOR_ALL, FOR_TARGETS, PAPER, assert_refused, bad_table, call


def test_select_compares_and_plots_numbers_of_clusters(shop, tmp_path, capsys):
    arguments = ("select", shop / "train.csv", *FIT, *PAPER, "--clusters", "1,2,4", "--splits", "1")
    assert call(*arguments, "--plot", tmp_path / "counts.svg", "--json") == 0
    comparison = json.loads(capsys.readouterr().out)
    assert comparison["suggested"] == comparison["most_evident"] == 2
    assert [row["n_clusters"] for row in comparison["rows"]] == [1, 2, 4]
    assert "</svg>" in (tmp_path / "counts.svg").read_text()
    assert call(*arguments) == 0
    said = capsys.readouterr().out
    assert "Suggested: 2" in said
    assert "By evidence: 2, the smallest within 3 nats of the highest." in said


def test_select_shows_no_evidence_of_the_default_model(shop, tmp_path, capsys):
    arguments = ("select", shop / "train.csv", *FIT, "--clusters", "1,2", "--splits", "1")
    assert call(*arguments, "--plot", tmp_path / "counts.svg") == 0
    said = capsys.readouterr().out
    assert "Best number of clusters: 2. Suggested: 2" in said
    assert "vidence" not in said
    assert "</svg>" in (tmp_path / "counts.svg").read_text()


@pytest.mark.parametrize("kind", [*FOR_ALL, *FOR_TARGETS])
def test_select_refuses_bad_tables(kind, tmp_path, capsys):
    out = tmp_path / "counts.png"
    assert_refused(call("select", bad_table(kind, tmp_path), *FIT, "--plot", out), capsys, out)


def test_unknown_picture_format_is_refused_before_the_work(shop, tmp_path, capsys):
    assert call("select", shop / "train.csv", *FIT, "--plot", tmp_path / "counts.gif") == NO_OUTPUT
    assert ".png" in capsys.readouterr().err
