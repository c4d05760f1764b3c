"""`fedhlcr select`: how many clusters."""

from __future__ import annotations

import json

import pytest

from fedhlcr.cli.shell import NO_OUTPUT, WRONG_USAGE
from tests.commands import FIT, FOR_ALL, FOR_TARGETS, PAPER, assert_refused, bad_table, call, shop_table


@pytest.mark.slow
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
    assert "By evidence: 2 clusters, the smallest number within 3 nats of the highest." in said


def test_select_shows_no_evidence_of_the_default_model(shop, tmp_path, capsys):
    arguments = ("select", shop / "train.csv", *FIT, "--clusters", "1,2", "--splits", "1")
    assert call(*arguments, "--plot", tmp_path / "counts.svg") == 0
    said = capsys.readouterr().out
    assert "Suggested: 2 clusters, the smallest number within one standard error of the best." in said
    assert "vidence" not in said
    assert "</svg>" in (tmp_path / "counts.svg").read_text()


@pytest.mark.slow
def test_select_takes_curves_by_word_and_by_name(tmp_path, capsys):
    table = shop_table(n_stores=6)
    table["sales"] += 6 * (table["price"] - 2) ** 2
    table.to_csv(tmp_path / "bent.csv", index=False)
    arguments = ("select", tmp_path / "bent.csv", *FIT, *PAPER, "--clusters", "2", "--splits", "1", "--json")
    densities = {}
    for given in (None, "none", "auto", "price"):
        assert call(*arguments, *(() if given is None else ("--curves", given))) == 0
        (row,) = json.loads(capsys.readouterr().out)["rows"]
        densities[given] = row["log_density"]
    assert densities["auto"] == densities["price"] > densities["none"] + 0.5
    assert densities[None] == densities["none"]


def test_select_refuses_unknown_curves_as_fit_does(shop, tmp_path, capsys):
    for given, words in (("prize", "'prize'"), ("promotion=yes", "too few distinct values"), (",", "names no column")):
        codes, errors = [], []
        for command, more in (("fit", ("--out", tmp_path / "m")), ("select", ("--splits", "1", "--clusters", "1"))):
            codes.append(call(command, shop / "train.csv", *FIT, "--curves", given, *more))
            errors.append(capsys.readouterr().err.replace(f"fedhlcr {command} --help", ""))
        assert codes == [WRONG_USAGE, WRONG_USAGE]
        assert errors[0] == errors[1]
        assert words in errors[0]


@pytest.mark.parametrize("kind", [*FOR_ALL, *FOR_TARGETS])
def test_select_refuses_bad_tables(kind, tmp_path, capsys):
    out = tmp_path / "counts.png"
    assert_refused(call("select", bad_table(kind, tmp_path), *FIT, "--plot", out), capsys, out)


def test_unknown_picture_format_is_refused_before_the_work(shop, tmp_path, capsys):
    assert call("select", shop / "train.csv", *FIT, "--plot", tmp_path / "counts.gif") == NO_OUTPUT
    assert ".png" in capsys.readouterr().err
