"""The league: tables and figures of others in a made-up folder, true cells, and a report of made-up records."""

import csv

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from experiments.data import FOLDER_VARIABLE
from experiments.league import STUDIES, response_report, responses, tables
from experiments.markdown import Gallery
from experiments.study import Record
from fedhlcr import hold_out_events
from fedhlcr.datasets import make_hlcr

(LEAGUE,) = STUDIES
KINDS = {"gapminder": "real", "toenail": "binary", "owls": "count"}
GLMER = {"r2": 0.5, "auc": 0.8, "logloss": 0.5, "pois_dev": 2.0}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A league of three tables with one split each, which others have played, too."""
    (tmp_path / "league").mkdir()
    for name, kind in KINDS.items():
        table, _ = make_hlcr(20, 3, 12, 3, 2, 0.5, target=kind, random_state=5)
        train, _ = hold_out_events(table.agent, table.entity, fraction=0.25, random_state=0)
        part = np.full(len(table.y), tables.TEST)
        part[train] = tables.TRAIN
        columns = {"agent": table.agent, "entity": table.entity, "target": table.y, "full0": part}
        columns |= {f"x{f}": table.X[:, f] for f in range(3)}
        pq.write_table(pa.table(columns), tmp_path / "league" / f"{name}.parquet")
    with (tmp_path / "league" / "by_split.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["table", "kind", "regime", "split", "method", *GLMER])
        writer.writeheader()
        for name, kind in KINDS.items():
            for method in ("lme4", "glmer", "logit_dummies"):
                writer.writerow({"table": name, "kind": kind, "regime": "full", "split": 0, "method": method} | GLMER)
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    tables.known_figures.cache_clear()
    yield tmp_path
    tables.known_figures.cache_clear()


def test_settings_have_the_models_of_each_kind_of_target(folder):
    cells = LEAGUE.settings(True)
    found = {name: [cell["model"] for cell in cells if cell["table"] == name] for name in KINDS}
    assert found["toenail"] == found["owls"] == list(responses.MODELS)
    assert "student" in found["gapminder"]
    assert {cell["table"] for cell in LEAGUE.settings(False)} == set(KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["default", "one"])
def test_cells_of_classes_and_counts_measure_what_they_say(folder, model):
    binary = LEAGUE.measure(table="toenail", regime="full", split=0, model=model)
    _, test = tables.load("toenail", "full", 0)
    assert 0.55 < binary["auc"] < 1.0
    share = test.y.mean()
    assert binary["log_loss"] < -(share * np.log(share) + (1 - share) * np.log(1 - share))
    assert sum(binary["observed_ones"]) == test.y.sum()
    # probabilities are about right on average
    assert sum(binary["predicted_ones"]) == pytest.approx(test.y.sum(), rel=0.25)
    counts = LEAGUE.measure(table="owls", regime="full", split=0, model=model)
    assert 0.0 < counts["deviance"] < 2.0
    assert 0.8 < counts["coverage"] < 1.0


def class_figures(log_loss, auc, split):
    """Half of the events in the first bin, where one more is seen than predicted."""
    ones = {"predicted_ones": [2.0, *[0.0] * 8, 9.0], "observed_ones": [3.0, *[0.0] * 8, 9.0]}
    return {"log_loss": log_loss, "auc": auc, **ones, "n_events": 20, "n_clusters": 1 + split, "seconds": 1.0}


def test_report_compares_with_glmer(folder, tmp_path):
    at = {"regime": "full", "split": 0}
    records = [
        Record({"table": "toenail", **at, "model": "default"}, class_figures(0.48, 0.81, 0)),
        Record({"table": "toenail", **at, "model": "one"}, class_figures(0.52, 0.79, 0)),
        Record(
            {"table": "owls", **at, "model": "default"},
            {"deviance": 1.9, "coverage": 0.91, "n_events": 50, "n_clusters": 2, "seconds": 1.0},
        ),
    ]
    first, *parts = response_report.sections(records)
    assert first == "### Yes or no"
    text = "\n".join(parts)
    assert "| toenail | all events | 0.5000 | 0.5000 | -0.0200 | – | +0.0200 | 1 |" in text
    assert "| toenail | all events | 0.8000 | 0.8000 | +0.0100 | – | -0.0100 | 1 |" in text
    assert "toenail 0.050 (all events)." in text
    assert "| owls | all events | 2.0000 | 2.0000 | -5.0 % | – | 2 |" in text
    assert "owls 91.0 % (all events)." in text
    real = {"r2": 0.6, "coverage": 0.9, "coverage_noisiest": 0.9, "n_events": 9, "n_noisy": 2, "n_clusters": 1}
    whole = LEAGUE.report(
        [Record({"table": "gapminder", **at, "model": "default"}, real), *records],
        Gallery(tmp_path, tmp_path / "RESULTS.md"),
    )
    assert "ahead of lme4 on 1 of 1 tables" in whole.text
    assert "### Counts" in whole.text
