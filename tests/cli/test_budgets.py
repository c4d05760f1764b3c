"""`fedhlcr simulate --epsilon`: what budgets would cost."""

from __future__ import annotations

import json

import pytest

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
    told = capsys.readouterr().out
    assert "Differential privacy: epsilon = 20," in told
    assert "times the error without noise" in told
    assert "saw all events in one place" in told


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
