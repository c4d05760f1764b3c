"""Terminal, JSON, summary, sentences, report and Python say the same about one model, for each family of targets."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedhlcr
from fedhlcr._support.wording import CLUSTER, fine_percent, number, percent, three_decimals
from fedhlcr.analysis.effects import entity_shares, typical_levels
from fedhlcr.cli import run
from fedhlcr.datasets import make_hlcr
from fedhlcr.posterior.diagnostics import R_HAT_LIMIT
from tests.reports import Page

FAMILIES = ("real", "binary", "count", "federated")
COLUMNS = ("--target", "sales", "--agent", "store", "--entity", "product")
# Fields of the scores that each family tells of the model and of simpler ones.
MAIN = {
    "real": ("r2", "mse", "mae", "log_density"),
    "binary": ("log_loss", "auc", "brier"),
    "count": ("deviance", "d2", "mae"),
}


@dataclass
class Story:
    """One model as every output shows it."""

    family: str
    model: Any
    test: pd.DataFrame
    facts: dict[str, Any]
    inspected: str
    scores: dict[str, Any]
    evaluated: str
    page: Page
    said: str

    @property
    def kind(self):
        return self.model.family.name

    @property
    def ids(self):
        return {"agent": self.test["store"], "entity": self.test["product"]}

    def predicted(self):
        """Predicted means, or probabilities of the second class."""
        X = self.test.drop(columns="sales")
        return self.model.predict_proba(X)[:, 1] if self.kind == "binary" else self.model.predict(X)


def write_tables(family, folder: Path) -> pd.DataFrame:
    target = "real" if family == "federated" else family
    table, _ = make_hlcr(20, 6, 14, 3, 3, 0.4, target=target, random_state=2)
    frame = pd.DataFrame(table.X, columns=["price", "size", "age"])
    # texts, so that features of categories are compared too
    frame["shelf"] = np.where(np.arange(len(frame)) % 3 == 0, "top", "low")
    frame = frame.assign(store=table.agent, product=table.entity, sales=table.y)
    train, test = fedhlcr.hold_out_events(table.agent, table.entity, random_state=0)
    frame.iloc[train].to_csv(folder / "train.csv", index=False)
    frame.iloc[test].to_csv(folder / "test.csv", index=False)
    return pd.read_csv(folder / "test.csv")


@pytest.fixture(scope="module", params=FAMILIES)
def story(request, tmp_path_factory):
    family, folder = request.param, tmp_path_factory.mktemp(request.param)
    test, capture = write_tables(family, folder), request.getfixturevalue("told")
    model, train = folder / "model.fedhlcr", folder / "train.csv"
    options = (*COLUMNS, "--categories", "shelf", "--out", model)
    if family == "federated":
        said = capture("simulate", train, *options, "--hold-out", "0", "--failure-rate", ".1")
    else:
        said = capture("fit", train, *options, "--family", family, "--sweeps", "80")
    capture("report", model, folder / "test.csv", "--out", folder / "report.html")
    return Story(
        family,
        fedhlcr.load(model),
        test,
        json.loads(capture("inspect", model, "--json")),
        capture("inspect", model),
        json.loads(capture("evaluate", model, folder / "test.csv", "--json")),
        capture("evaluate", model, folder / "test.csv"),
        Page((folder / "report.html").read_text()),
        said,
    )


@pytest.fixture(scope="module")
def told():
    """Runs a command and returns what it printed."""
    import contextlib
    import io

    def tell(*arguments) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            assert run([str(argument) for argument in arguments]) == 0
        return out.getvalue()

    return tell


def rows_of(text: str, first: str) -> list[list[str]]:
    """Cells of the table of a terminal whose header begins with `first`."""
    lines = text.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith(first))
    rows = [re.split(r"\s{2,}", lines[begin].strip())]
    for line in lines[begin + 2 :]:
        cells = re.split(r"\s{2,}", line.strip())
        if len(cells) != len(rows[0]):
            break
        rows.append(cells)
    return rows


def level_text(model, level: float) -> str:
    return model.family.in_words(level)


def test_clusters_have_the_same_number_count_share_weight_and_level(story):
    model = story.model
    counts, shares = np.bincount(model.labels_, minlength=model.n_clusters_), entity_shares(model)
    levels = model.family.to_response(typical_levels(model))
    # JSON
    assert story.facts["n_clusters"] == model.n_clusters_ == len(story.facts["clusters"])
    for k, cluster in enumerate(story.facts["clusters"]):
        assert (cluster["cluster"], cluster["entities"]) == (k, counts[k])
        assert cluster["share"] == pytest.approx(shares[k], rel=1e-12)
        assert cluster["weight"] == pytest.approx(model.cluster_weights_[k], rel=1e-12)
        assert cluster["level"] == pytest.approx(levels[k], rel=1e-12)
    # terminal and summary
    expected = [
        [str(k), str(counts[k]), percent(shares[k]), percent(model.cluster_weights_[k]), level_text(model, levels[k])]
        for k in range(model.n_clusters_)
    ]
    assert [row[:5] for row in rows_of(story.inspected, "cluster ")[1:]] == expected
    assert [list(row[:5]) for row in model.summary().rows] == expected
    # sentences
    sentences = fedhlcr.describe_clusters(model)
    for k, sentence in enumerate(sentences):
        assert sentence.startswith(f"Cluster {k}, {percent(shares[k])} of entities: ")
        assert level_text(model, levels[k]) in sentence
        assert sentence in story.inspected
    # report
    shown = story.page.columns("clusters")
    assert shown["cluster"] == list(range(model.n_clusters_))
    assert shown["products"] == counts.tolist()
    for name, values in (("share", shares), ("weight", model.cluster_weights_)):
        np.testing.assert_allclose(shown[name], values, atol=6e-4, err_msg=name)
    np.testing.assert_allclose(shown["level"], levels, rtol=6e-3)
    for k in range(model.n_clusters_):
        assert f"Cluster {k}, {percent(shares[k])} of products" in story.page.text


def test_effects_in_the_summary_are_those_of_the_report(story):
    shown, summary = story.page.columns("clusters"), story.model.summary()
    features = story.facts["features"]
    assert set(features) <= set(summary.header) | {"shelf=low", "shelf=top"}
    for name in features:
        assert [row[summary.header.index(name)] for row in summary.rows] == [number(value) for value in shown[name]]


def own_scores(story) -> dict[str, float]:
    """The model's scores, computed with scikit-learn."""
    from sklearn import metrics

    y, mean = story.test["sales"].to_numpy(), story.predicted()
    if story.kind == "binary":
        return {
            "log_loss": metrics.log_loss(y, mean),
            "auc": metrics.roc_auc_score(y, mean),
            "brier": metrics.brier_score_loss(y, mean),
        }
    mae = metrics.mean_absolute_error(y, mean)
    if story.kind == "count":
        deviance = metrics.mean_poisson_deviance(y, mean)
        return {"deviance": deviance, "d2": metrics.d2_tweedie_score(y, mean, power=1), "mae": mae}
    density = story.model.log_density(story.test.drop(columns="sales"), y).mean()
    return {
        "r2": metrics.r2_score(y, mean),
        "mse": metrics.mean_squared_error(y, mean),
        "mae": mae,
        "log_density": density,
    }


def score_text(field: str, value: float) -> str:
    return number(value) if field in ("mse", "mae") else three_decimals(value)


def test_scores_of_the_model_agree(story):
    own, (first, *_) = own_scores(story), story.scores["compared"]
    assert tuple(own) == MAIN[story.kind]
    assert first["model"] == "HLCR"
    for field, value in own.items():
        assert first[field] == pytest.approx(value, rel=1e-6), field
        assert score_text(field, value) in story.evaluated, field
        assert score_text(field, value) in story.page.text, field
    if story.kind == "real":
        X, y = story.test.drop(columns="sales"), story.test["sales"]
        assert story.model.score(X, y) == pytest.approx(own["r2"])
        assert f"explains {fine_percent(own['r2'])} of the variance of sales" in story.page.text


def test_simpler_models_have_the_same_names_and_scores(story):
    table = {row[0]: row[1:] for row in rows_of(story.evaluated, "compared with simpler models")[1:]}
    assert list(table) == [figures["model"] for figures in story.scores["compared"]]
    for figures in story.scores["compared"]:
        texts = [score_text(field, figures[field]) for field in MAIN[story.kind]]
        assert table[figures["model"]] == texts
        if story.kind == "real":
            # the report calls entities as the user does
            assert " ".join([figures["model"].replace("entity", "product"), *texts]) in story.page.text


def test_coverage_agrees(story):
    if story.kind == "binary":
        pytest.skip("probabilities of classes have no coverage")
    lower, upper = story.model.predict_interval(story.test.drop(columns="sales"))
    inside = np.mean((lower <= story.test["sales"]) & (story.test["sales"] <= upper))
    assert story.scores["coverage"] == pytest.approx(inside)
    assert re.search(rf"inside 90 % intervals\s+{fine_percent(inside)}", story.evaluated)
    assert f"{fine_percent(inside)} of these" in story.page.text


def test_r_hat_agrees_and_decides_about_converged(story):
    model = story.model
    assert [figures["r_hat"] for figures in story.facts["diagnostics"]] == [d.r_hat for d in model.diagnostics_]
    line = dict(model.summary().facts)["R-hat (effective size)"]
    for figures in model.diagnostics_:
        text = f"{figures.quantity} {figures.text} ({figures.effective_size:.0f})"
        assert text in str(line)
        assert text in story.inspected
        above = f"above {R_HAT_LIMIT} for: "
        told_apart = above in story.page.text and f"{figures.quantity} {figures.text}" in story.page.text
        assert told_apart == (figures.r_hat > R_HAT_LIMIT)
    if story.family == "federated":
        agree = all(d.r_hat <= R_HAT_LIMIT for d in model.diagnostics_)
        assert model.stop_reason_.startswith("converged: " if agree else "stopped: ")
        assert ("onverged" in story.said) == ("onverged" in story.page.text) == agree
        assert story.facts["federation"]["stop_reason"] == model.stop_reason_
        assert model.stop_reason_ in story.page.text
        assert model.stop_reason_.partition(": ")[2] in story.said


def test_counts_of_the_data_agree(story):
    facts, model = story.facts, story.model
    data = dict(model.summary().facts)["data"]
    n_events = facts["n_events"]
    assert data.startswith(f"{facts['n_agents']} agents, {facts['n_entities']} entities, {n_events:,} events, ")
    assert (facts["n_agents"], facts["n_entities"]) == (len(model.agent_ids_), len(model.pair_ids_))
    assert f"stores {facts['n_agents']} products {facts['n_entities']} events fitted {n_events:,}" in story.page.text
    clusters = CLUSTER.count(model.n_clusters_).split()
    assert f"{clusters[1]} {clusters[0]}" in story.page.text
