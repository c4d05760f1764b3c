"""`fedhlcr simulate --epsilon`: what budgets would cost."""

from __future__ import annotations

import json

import pytest

from fedhlcr import FedHLCRRegressor
from fedhlcr.cli.shell import WRONG_USAGE
from tests.commands import COLUMNS, call

FEW = ("--features", "price", "--rounds", "3")


def test_simulate_compares_budgets(shop, capsys):
    budgets = ("--epsilon", "100,5", "--delta", "0.01")
    assert call("simulate", shop / "all.csv", *COLUMNS, *FEW, *budgets, "--json") == 0
    found = json.loads(capsys.readouterr().out)["privacy"]
    assert [round(budget["epsilon"], 6) for budget in found["budgets"]] == [100.0, 5.0]
    assert {budget["delta"] for budget in found["budgets"]} == {0.01}
    assert found["without_noise"]["r2"] > 0


def test_budgets_are_told_in_words(shop, capsys):
    assert call("simulate", shop / "all.csv", *COLUMNS, *FEW, "--epsilon", "20") == 0
    told, notes = capsys.readouterr()
    assert told.count("Differential privacy: epsilon = 20,") == 1
    assert "Differential privacy: epsilon" not in notes
    assert "--rounds does not apply to private runs: all agents take part in all 20 rounds." in notes
    assert "times the error without noise" in told
    assert "saw all events in one place" in told


def test_budgets_may_take_levels_from_rows(shop, capsys):
    """No model of a budget is saved."""
    category = ("--features", "price,season", "--categories", "season")
    assert call("simulate", shop / "all.csv", *COLUMNS, *category, "--rounds", "3", "--epsilon", "20") == 0
    assert "times the error without noise" in capsys.readouterr().out


def test_quiet_says_nothing(shop, capsys):
    assert call("simulate", shop / "all.csv", *COLUMNS, *FEW, "--epsilon", "20", "--quiet") == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
def test_private_runs_have_the_aggregation_that_is_asked_for(shop, monkeypatch):
    seen = []

    class Recorded(FedHLCRRegressor):
        def fit(self, *arguments, **named):
            seen.append((self.privacy is not None, self.aggregation))
            return super().fit(*arguments, **named)

    monkeypatch.setattr("fedhlcr.FedHLCRRegressor", Recorded)
    few = ("--features", "price", "--rounds", "2", "--participation", "0.9")
    assert call("simulate", shop / "all.csv", *COLUMNS, *few, "--epsilon", "20", "--aggregation", "secure") == 0
    assert (True, "secure") in seen
    assert (True, "plain") not in seen


@pytest.mark.parametrize(
    ("wrong", "option"),
    [
        (("--epsilon", "three"), "--epsilon"),
        (("--epsilon", "0"), "--epsilon"),
        (("--epsilon", ","), "--epsilon"),
        (("--delta", "0.01"), "--delta"),
        (("--epsilon", "3", "--hold-out", "0"), "--epsilon"),
    ],
)
def test_wrong_budgets_are_refused(shop, capsys, wrong, option):
    assert call("simulate", shop / "all.csv", *COLUMNS, *FEW, *wrong) == WRONG_USAGE
    assert option in capsys.readouterr().err
