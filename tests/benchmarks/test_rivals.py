"""Rivals that are not installed are skipped with a reason, and those that are predict better than a constant."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import numpy as np
import pytest

from benchmarks import rivals, rivals_python, rivals_r
from benchmarks.problems import Split
from benchmarks.report import Contender, Options
from benchmarks.rival_methods import Outcome
from fedhlcr import hold_out_events
from fedhlcr.datasets import make_hlcr


@pytest.fixture(scope="module")
def split() -> Split:
    table, truth = make_hlcr(12, 4, 8, 2, 2, balanced=True, random_state=3)
    train, test = hold_out_events(table.agent, table.entity, fraction=0.2, random_state=0)
    return Split(table[train], table[test], truth)


@pytest.mark.parametrize("name", ["lightgbm", "statsmodels", "nuts"])
def test_a_missing_python_rival_is_skipped(name, split, monkeypatch):
    for library in ("lightgbm", "statsmodels.regression.mixed_linear_model", "numpyro"):
        monkeypatch.setitem(sys.modules, library, None)  # importing it now fails
    contender = rivals.met("S", name, getattr(rivals_python, name), split, 0)
    assert contender.seconds is None
    assert contender.note.startswith("skipped: ")
    assert "is not installed" in contender.note


@pytest.mark.parametrize("name", ["flexmix", "lme4"])
def test_rivals_in_r_are_skipped_without_r(name, split, monkeypatch):
    monkeypatch.setattr(rivals_r.shutil, "which", lambda command: None)
    contender = rivals.met("S", name, getattr(rivals_r, name), split, 0)
    assert contender.note == f"skipped: R is not installed (Debian: r-base-core, r-cran-{name})"


@pytest.mark.parametrize("name", ["lightgbm", "statsmodels"])
def test_python_rivals_learn_something(name, split):
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    outcome = getattr(rivals_python, name)(split, 0)
    assert outcome.mse < np.var(split.test.y)
    assert outcome.seconds > 0


@pytest.mark.slow
def test_a_contest_has_all_contenders_and_its_verdicts(split):
    methods = {"flexmix": lambda one, seed: Outcome(100.0, 9.0, "slow"), "other": lambda one, seed: Outcome(1.0, 8.0)}
    contenders = list(rivals.contest("M", split, methods, Options(1, 0, quick=True)))
    assert [one.name for one in contenders] == ["flexmix", "other", rivals.OURS, rivals.PAPERS]
    assert [row.verdict for row in rivals.rows_of(contenders)] == ["ok", "ok"]


def test_without_flexmix_its_rows_are_skipped():
    contenders = [Contender("M", "flexmix", None, None, "skipped: no R"), Contender("M", rivals.OURS, 1.0, 0.3, "")]
    (row,) = rivals.rows_of(contenders)
    assert row.verdict == "skipped: no R"


def test_a_rival_that_takes_too_long_is_skipped(split):
    def endless(one, seed):
        with rivals_python.at_most_seconds(0.05):
            while True:
                pass

    assert rivals.met("S", "endless", endless, split, 0).note.startswith("skipped: did not finish in")
