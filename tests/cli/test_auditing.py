"""`fedhlcr audit`: what it prints, how it ends, and which arguments it refuses."""

from __future__ import annotations

import json

import pytest

from fedhlcr.cli.auditing import can_tell
from fedhlcr.cli.shell import BAD_DATA, FAILED, WRONG_USAGE
from tests.commands import COLUMNS, call, shop_table

CATEGORIES = ("--categories", "promotion,season")
QUICK = (*CATEGORIES, "--rounds", 8, "--secure-rounds", 1, "--runs", 200)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("audit") / "shop.csv"
    shop_table(n_stores=5, n_products=4, n_weeks=3).to_csv(path, index=False)
    return path


@pytest.mark.slow
def test_audit_of_a_table_names_both_modes(table, capsys):
    assert call("audit", table, *COLUMNS, *QUICK) == 0
    out = capsys.readouterr().out
    assert "20 entities of 5 agents" in out
    assert "plain mode: every agent's sums" in out
    assert "secure mode: what single agents send" in out
    assert "0 of 20" in out
    assert "all messages of the survey and of 1 round with masks" in out
    assert "Verdict: secure aggregation keeps its promise here; of differential privacy, " in out
    assert "tests had too few runs to tell" in out


def test_two_agents_cannot_aggregate_securely(tmp_path, capsys):
    path = tmp_path / "two.csv"
    shop_table(n_stores=2, n_products=4, n_weeks=3).to_csv(path, index=False)
    assert call("audit", path, *COLUMNS, *CATEGORIES, "--rounds", 4, "--runs", 0) == 0
    verdict = "Verdict: secure aggregation did not take place; differential privacy was not audited."
    assert verdict in capsys.readouterr().out


@pytest.mark.slow
def test_enough_runs_can_tell(table, capsys):
    runs = ("--rounds", 4, "--secure-rounds", 1, "--runs", 1500, "--epsilon", 6)
    assert call("audit", table, *COLUMNS, *CATEGORIES, *runs) == 0
    out = capsys.readouterr().out
    assert "here; the mechanism of differential privacy keeps its promise." in out
    assert "too few runs" not in out


@pytest.mark.parametrize(
    ("mu", "runs", "expected"),
    [(0.9, 200, False), (0.9, 1_000, True), (0.11, 5_000, False), (0.11, 20_000, True), (12.0, 20_000, False)],
)
def test_power_grows_with_runs_and_ends_where_nobody_errs(mu, runs, expected):
    assert can_tell(mu, runs) == expected


@pytest.mark.slow
def test_json_holds_all_figures(table, capsys):
    assert call("audit", table, *COLUMNS, *QUICK, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    (own,) = found["tables"].values()
    assert own["wire"]["messages"]["n_claims"] == own["wire"]["leaked"] == own["wire"]["surveyed"] == 0
    assert own["wire"]["n_rounds"] == 1
    assert own["total"]["n_wrong"] <= own["total"]["n_claims"]
    assert own["plain"]["entities"] > 0
    assert found["membership"]["delta"] == pytest.approx(5**-1.1)
    assert {case["block"] for case in found["membership"]["cases"]} >= {"scores", "sizes", "residuals"}
    assert found["holds"] is True


def test_broken_promise_ends_with_one(table, capsys, monkeypatch):
    monkeypatch.setattr("fedhlcr.privacy.audit.tables.known_numbers", lambda *_: 3)
    monkeypatch.setattr("fedhlcr.privacy.audit.tables.read_surveys", lambda *_: {"Bern", "Bonn"})
    assert call("audit", table, *COLUMNS, *CATEGORIES, "--rounds", 4, "--secure-rounds", 1, "--runs", 0) == FAILED
    out = capsys.readouterr().out
    assert "the column means of 2 single agents" in out
    assert "3 numbers of single agents could be read" in out
    assert "a promise is broken" in out


@pytest.mark.slow
@pytest.mark.ci
def test_broken_noise_ends_with_one(table, capsys, monkeypatch):
    from fedhlcr.privacy import release

    monkeypatch.setattr(release.ClippedBlock, "lattice_scale", property(lambda self: release.UNIT / self.mu / 10.0))
    assert call("audit", table, *COLUMNS, *CATEGORIES, "--rounds", 4, "--secure-rounds", 1, "--runs", 1000) == FAILED
    assert "BROKEN" in capsys.readouterr().out


@pytest.mark.parametrize("missing", ["--target", "--agent", "--entity"])
def test_table_needs_its_columns(table, missing, capsys):
    place = COLUMNS.index(missing)
    assert call("audit", table, *COLUMNS[:place], *COLUMNS[place + 2 :]) == WRONG_USAGE
    assert missing in capsys.readouterr().err


def test_columns_need_a_table(capsys):
    assert call("audit", "--target", "sales") == WRONG_USAGE
    assert "needs a table" in capsys.readouterr().err


def test_too_few_runs_are_refused(capsys):
    assert call("audit", "--runs", 2) == WRONG_USAGE
    assert "must be 0 or at least 10" in capsys.readouterr().err


def test_missing_table_is_refused(tmp_path):
    assert call("audit", tmp_path / "none.csv", *COLUMNS) == BAD_DATA
