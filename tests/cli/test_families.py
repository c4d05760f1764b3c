"""Two classes and counts on the command line: fit, predict, evaluate, adapt, inspect, simulate."""

from __future__ import annotations

import contextlib
import io
import json
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import log_loss, mean_poisson_deviance, roc_auc_score

import fedhlcr
from fedhlcr.cli.shell import BAD_DATA, WRONG_USAGE
from fedhlcr.datasets import make_hlcr
from fedhlcr.exceptions import DataError, MissingValuesWarning
from tests.commands import call

COLUMNS = ("--agent", "clinic", "--entity", "patient")
BINARY = ("--target", "reply", *COLUMNS, "--sweeps", "20")
COUNT = ("--target", "visits", *COLUMNS, "--exposure", "days", "--sweeps", "20")


def frame_of(target, column):
    table, _ = make_hlcr(n_agents=10, n_features=2, n_clusters=2, target=target, random_state=2)
    ids = {"clinic": table.agent, "patient": table.entity}
    return pd.DataFrame({"age": table.X[:, 0], "dose": table.X[:, 1], **ids, column: table.y.astype(int)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tables and fitted models of both families."""
    folder = tmp_path_factory.mktemp("families")
    replies = frame_of("binary", "reply")
    replies["reply"] = np.where(replies["reply"] == 1, "yes", "no")
    visits = frame_of("count", "visits").assign(days=lambda f: 1 + np.arange(len(f)) % 5)
    for name, frame, options in (("reply", replies, BINARY), ("visits", visits, COUNT)):
        frame.to_csv(folder / f"{name}.csv", index=False)
        assert call("fit", folder / f"{name}.csv", *options, "--out", folder / f"{name}.fedhlcr", "-q") == 0
    return folder


def said_by(capsys, *arguments):
    capsys.readouterr()
    assert call(*arguments) == 0
    return capsys.readouterr()


def test_auto_says_what_it_takes_the_target_for(folder, tmp_path, capsys):
    out = ("--out", tmp_path / "m")
    said = said_by(capsys, "fit", folder / "reply.csv", *BINARY, *out)
    assert "target 'reply' is taken as binary: it holds two values; a classifier is fitted" in said.err
    assert "probabilities are those of 'yes'" in said.err
    assert "odds ratio" in said.out
    assert "the probability of “yes” is" in said.out
    assert "noise" not in said.out
    said = said_by(capsys, "fit", folder / "visits.csv", *COUNT, *out)
    assert "target 'visits' is taken as count" in said.err
    assert "--family real" in said.err
    assert "dispersion" in said.out
    assert "rate ratio" in said.out


def test_family_can_be_chosen(folder, tmp_path, capsys):
    columns = ("--target", "visits", *COLUMNS, "--sweeps", "5", "--out", tmp_path / "m")
    said = said_by(capsys, "fit", folder / "visits.csv", *columns, "--family", "real")
    assert "taken as" not in said.err
    assert isinstance(fedhlcr.load(tmp_path / "m"), fedhlcr.HLCRRegressor)
    numbers = pd.read_csv(folder / "reply.csv").assign(reply=lambda f: (f["reply"] == "yes").astype(int))
    numbers.to_csv(tmp_path / "numbers.csv", index=False)
    said = said_by(capsys, "fit", tmp_path / "numbers.csv", *BINARY, "--out", tmp_path / "m")
    assert "--family real for a regression on 0 and 1" in said.err
    assert fedhlcr.load(tmp_path / "m").classes_.tolist() == [0, 1]


def test_options_of_other_families_are_refused(folder, tmp_path, capsys):
    out = ("--out", tmp_path / "m")
    for options, words in (
        ((*BINARY, "--exposure", "age"), "--exposure"),
        ((*BINARY, "--noise", "student"), "--noise"),
    ):
        assert call("fit", folder / "reply.csv", *options, *out) == WRONG_USAGE
        assert words in capsys.readouterr().err
    assert call("fit", folder / "visits.csv", *COUNT, "--family", "binary", *out) == WRONG_USAGE
    capsys.readouterr()
    columns = ("--target", "visits", *COLUMNS, "--family", "binary")
    assert call("fit", folder / "visits.csv", *columns, *out) == BAD_DATA
    assert "a binary target has two" in capsys.readouterr().err
    assert call("select", folder / "reply.csv", "--target", "reply", *COLUMNS) == WRONG_USAGE
    assert "--family" in capsys.readouterr().err


TARGETS = {
    "negative": -3.0,
    "not whole": 2.5,
    "above 1e+12": 1e13,
}


@pytest.fixture(params=TARGETS)
def no_counts(request, folder, tmp_path):
    """A table of counts in which one target is no count, and what is wrong with it."""
    table = pd.read_csv(folder / "visits.csv").astype({"visits": float})
    table.loc[7, "visits"] = TARGETS[request.param]
    table.to_csv(tmp_path / "wrong.csv", index=False)
    return tmp_path / "wrong.csv", request.param


@pytest.mark.parametrize("more", [(), ("--stream",), ("--in-memory",)])
def test_targets_that_are_no_counts_are_bad_data_of_a_column(no_counts, more, tmp_path, capsys):
    table, wrong = no_counts
    columns = ("--target", "visits", *COLUMNS, "--family", "count", "--out", tmp_path / "m")
    assert call("fit", table, *columns, *more) == BAD_DATA
    said = capsys.readouterr().err
    assert "'visits'" in said
    assert f"1 of {len(pd.read_csv(table)):,} values is {wrong}" in said
    assert "--family real" in said
    assert "HLCR" not in said
    assert "`y`" not in said
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("command", ["evaluate", "adapt", "report"])
def test_targets_that_are_no_counts_are_bad_data_for_a_model_of_counts(command, no_counts, folder, tmp_path, capsys):
    table, wrong = no_counts
    out = () if command == "evaluate" else ("--out", tmp_path / "out")
    assert call(command, folder / "visits.fedhlcr", table, *out) == BAD_DATA
    said = capsys.readouterr().err
    assert "'visits'" in said
    assert wrong in said
    # the family of a model that exists cannot be chosen
    assert "--family" not in said
    # predictions need no target
    assert call("predict", folder / "visits.fedhlcr", table, "--out", tmp_path / "p.csv", "-q") == 0


def test_python_names_the_column_of_a_file(no_counts):
    table, wrong = no_counts
    with pytest.raises(DataError, match=f"'visits'.*{re.escape(wrong)}.*HLCRRegressor"):
        fedhlcr.HLCRCountRegressor().fit_files(table, target="visits", agent="clinic", entity="patient")


@pytest.mark.parametrize("drops_rows", [False, True])
def test_python_names_the_column_of_a_dataframe(drops_rows):
    frame = frame_of("count", "visits").astype({"visits": float})
    frame.loc[7, "visits"] = -3.0
    if drops_rows:
        frame.loc[8, "visits"] = np.nan
    n = len(frame) - drops_rows
    model = fedhlcr.HLCRCountRegressor(missing="drop" if drops_rows else "refuse")
    warned = pytest.warns(MissingValuesWarning) if drops_rows else contextlib.nullcontext()
    expected = f"^column 'visits' must hold counts.* 1 of {n} values is negative"
    with warned, pytest.raises(DataError, match=expected):
        model.fit(frame, "visits", agent="clinic", entity="patient")
    given = frame.fillna(0.0)
    with pytest.raises(DataError, match=r"^`y` must hold counts"):
        model.fit(given[["age", "dose"]], given["visits"].to_numpy(), agent=given["clinic"], entity=given["patient"])


@pytest.mark.parametrize("more", [("--stream",), ("--in-memory",)])
@pytest.mark.parametrize("family", ["real", "count"])
def test_advice_on_a_target_of_texts_is_for_targets(family, more, folder, tmp_path, capsys):
    columns = ("--target", "reply", *COLUMNS, "--family", family, "--out", tmp_path / "m", *more)
    assert call("fit", folder / "reply.csv", *columns) == BAD_DATA
    said = capsys.readouterr().err
    assert "column 'reply' of 'reply.csv' must hold numbers" in said
    assert "it is the target" in said
    assert "Use --family binary." in said
    assert "category" not in said
    replies = pd.read_csv(folder / "reply.csv")
    replies.loc[:9, "reply"] = "perhaps"
    replies.to_csv(tmp_path / "three.csv", index=False)
    assert call("fit", tmp_path / "three.csv", *columns) == BAD_DATA
    said = capsys.readouterr().err
    assert "it is the target" in said
    assert "--family" not in said
    assert "category" not in said


def test_advice_on_more_than_two_classes_fits_the_values(folder, tmp_path, capsys):
    replies = pd.read_csv(folder / "reply.csv")
    for value, is_other_family_possible in (("perhaps", False), (2, True)):
        changed = replies.assign(reply=(replies["reply"] == "yes").astype(int)) if value == 2 else replies.copy()
        changed.loc[:9, "reply"] = value
        changed.to_csv(tmp_path / "three.csv", index=False)
        columns = ("--target", "reply", *COLUMNS, "--family", "binary", "--out", tmp_path / "m")
        assert call("fit", tmp_path / "three.csv", *columns) == BAD_DATA
        said = capsys.readouterr().err
        assert "3 distinct values, but a binary target has two" in said
        assert "More than two classes" in said
        assert ("--family real" in said) == is_other_family_possible


BAD_TARGETS = {
    "missing": lambda target: target.where(target.index != 7),
    "infinite": lambda target: target.where(target.index != 7, np.inf),
    "text": lambda target: target.astype(str).where(target.index != 7, "about 3"),
}


@pytest.mark.parametrize("kind", BAD_TARGETS)
@pytest.mark.parametrize("family", ["real", "binary", "count"])
def test_exit_codes_of_bad_targets_are_alike(kind, family, folder, tmp_path, capsys):
    table = pd.read_csv(folder / "visits.csv")
    table["visits"] = BAD_TARGETS[kind](table["visits"].clip(upper=1).astype(float))
    table.to_csv(tmp_path / "bad.csv", index=False)
    columns = ("--target", "visits", *COLUMNS, "--family", family, "--out", tmp_path / "m")
    assert call("fit", tmp_path / "bad.csv", *columns) == BAD_DATA
    assert "'visits'" in capsys.readouterr().err


@pytest.mark.parametrize("family", ["real", "binary", "count"])
@pytest.mark.parametrize("options", [("--target", "absent"), ("--sweeps", "0"), ("--features", "visits")])
def test_exit_codes_of_wrong_options_are_alike(family, options, folder, tmp_path, capsys):
    columns = ("--target", "visits", *COLUMNS, *options, "--family", family, "--out", tmp_path / "m")
    codes = {"--target": BAD_DATA, "--sweeps": WRONG_USAGE, "--features": BAD_DATA}
    assert call("fit", folder / "visits.csv", *columns) == codes[options[0]], capsys.readouterr().err


def test_predict_writes_probabilities_and_classes(folder, capsys):
    model, table = folder / "reply.fedhlcr", pd.read_csv(folder / "reply.csv")
    said = said_by(capsys, "predict", model, folder / "reply.csv", "--interval", "0.8")
    assert "probabilities are those of the class 'yes'" in said.err
    written, loaded = pd.read_csv(io.StringIO(said.out)), fedhlcr.load(model)
    expected = loaded.predict_proba(table, "clinic", "patient")[:, 1]
    np.testing.assert_allclose(written["probability"], expected)
    assert written["prediction"].tolist() == loaded.predict(table, "clinic", "patient").tolist()
    lower, upper = loaded.predict_interval(table, "clinic", "patient", 0.8)
    np.testing.assert_allclose(written[["lower", "upper"]], np.column_stack([lower, upper]))


def test_predict_writes_counts(folder, capsys):
    model, table = folder / "visits.fedhlcr", pd.read_csv(folder / "visits.csv")
    said = said_by(capsys, "predict", model, folder / "visits.csv", "--interval", "0.8")
    written, loaded = pd.read_csv(io.StringIO(said.out)), fedhlcr.load(model)
    days = table["days"].to_numpy()
    np.testing.assert_allclose(written["prediction"], loaded.predict(table, "clinic", "patient", exposure=days))
    lower, upper = loaded.predict_interval(table, "clinic", "patient", 0.8, exposure=days)
    np.testing.assert_array_equal(written[["lower", "upper"]], np.column_stack([lower, upper]))


def test_evaluate_scores_probabilities(folder, capsys):
    model, data = folder / "reply.fedhlcr", folder / "reply.csv"
    said = said_by(capsys, "evaluate", model, data, "--by-agent")
    for words in ("log loss", "AUC", "Brier", "accuracy", "calibration", "one logistic regression", "worst first"):
        assert words in said.out
    found = json.loads(said_by(capsys, "evaluate", model, data, "--json", "--by-agent").out)
    table = pd.read_csv(data)
    probability = fedhlcr.load(model).predict_proba(table, "clinic", "patient")[:, 1]
    assert found["log_loss"] == pytest.approx(log_loss(table["reply"], probability))
    assert found["auc"] == pytest.approx(roc_auc_score(table["reply"] == "yes", probability))
    assert sum(part["n_events"] for part in found["calibration"]) == len(table)
    assert len(found["agents"]) == 10
    names = [row["model"] for row in found["compared"]]
    assert names == [
        "HLCR",
        "one rate",
        "rate per entity",
        "one logistic regression",
        "logistic regression per entity",
        "mixed model",
    ]
    losses = {row["model"]: row["log_loss"] for row in found["compared"]}
    assert losses["one logistic regression"] < losses["one rate"]


def test_evaluate_scores_counts(folder, capsys):
    model, data = folder / "visits.fedhlcr", folder / "visits.csv"
    said = said_by(capsys, "evaluate", model, data, "--by-agent")
    for words in ("Poisson deviance", "D²", "inside 90 % intervals", "one Poisson regression", "worst first"):
        assert words in said.out
    found = json.loads(said_by(capsys, "evaluate", model, data, "--json").out)
    table = pd.read_csv(data)
    mean = fedhlcr.load(model).predict(table, "clinic", "patient", exposure=table["days"].to_numpy())
    assert found["deviance"] == pytest.approx(mean_poisson_deviance(table["visits"], mean))
    assert 0.8 < found["coverage"] <= 1.0
    one_rate = table["visits"].sum() / table["days"].sum() * table["days"]
    deviances = {row["model"]: row["deviance"] for row in found["compared"]}
    assert deviances["one rate"] == pytest.approx(mean_poisson_deviance(table["visits"], one_rate))
    assert deviances["one Poisson regression"] <= deviances["one rate"]
    assert list(deviances)[-2:] == ["Poisson regression per entity", "mixed model"]
    assert deviances["mixed model"] <= deviances["one Poisson regression"]


@pytest.mark.slow
def test_hold_out_and_simulate_show_the_scores_of_the_family(folder, tmp_path, capsys):
    out = ("--out", tmp_path / "m", "--hold-out", "0.3")
    assert "log loss" in said_by(capsys, "fit", folder / "reply.csv", *BINARY, *out).out
    for name, options, words in (("reply", BINARY, "log loss"), ("visits", COUNT, "deviance")):
        said = said_by(capsys, "simulate", folder / f"{name}.csv", *options[:-2], "--rounds", "6")
        assert words in said.out
        assert "centralised" in said.out


@pytest.mark.parametrize(("name", "column"), [("reply", "reply"), ("visits", "visits")])
def test_adapt_and_inspect(folder, tmp_path, capsys, name, column):
    table = pd.read_csv(folder / f"{name}.csv")
    new = table[table["clinic"] == 3].assign(clinic=99)
    new.to_csv(tmp_path / "new.csv", index=False)
    said = said_by(capsys, "adapt", folder / f"{name}.fedhlcr", tmp_path / "new.csv", "--out", tmp_path / "adapted")
    assert "1 new agent" in said.out
    said_by(capsys, "inspect", tmp_path / "adapted", "--entities", tmp_path / "entities.csv")
    entities = pd.read_csv(tmp_path / "entities.csv")
    assert "noise" not in entities
    assert {"age", "age_std", "intercept", "cluster"} <= set(entities)
    facts = json.loads(said_by(capsys, "inspect", tmp_path / "adapted", "--json").out)
    assert facts["target"] == column
    assert facts.get("classes", ["no", "yes"]) == ["no", "yes"]
    assert (facts.get("exposure"), "dispersion" in facts) == (("days", True) if name == "visits" else (None, False))


def test_unknown_classes_and_bad_exposures_are_refused_without_quoting_them(folder, tmp_path, capsys):
    replies = pd.read_csv(folder / "reply.csv")
    replies.loc[:2, "reply"] = "perhaps"
    replies.to_csv(tmp_path / "replies.csv", index=False)
    assert call("evaluate", folder / "reply.fedhlcr", tmp_path / "replies.csv") == BAD_DATA
    said = capsys.readouterr().err
    assert "1 class that the model does not know, in 3 of" in said
    assert "perhaps" not in said
    visits = pd.read_csv(folder / "visits.csv")
    for value, words in ((0, "must hold positive numbers"), (np.nan, "missing values: 'days' 3")):
        visits.loc[:2, "days"] = value
        visits.to_csv(tmp_path / "visits.csv", index=False)
        assert call("predict", folder / "visits.fedhlcr", tmp_path / "visits.csv") == BAD_DATA
        assert words in capsys.readouterr().err
        assert call("fit", tmp_path / "visits.csv", *COUNT, "--out", tmp_path / "m") == BAD_DATA
        assert words in capsys.readouterr().err
    visits.drop(columns="days").to_csv(tmp_path / "visits.csv", index=False)
    assert call("predict", folder / "visits.fedhlcr", tmp_path / "visits.csv") == BAD_DATA
    assert "'days'" in capsys.readouterr().err


def test_a_model_without_a_recipe_names_its_columns(folder, tmp_path, capsys):
    table = pd.read_csv(folder / "visits.csv")
    X, ids = table[["age", "dose"]], {"agent": table["clinic"], "entity": table["patient"]}
    model = fedhlcr.HLCRCountRegressor(2, n_sweeps=10).fit(X, table["visits"], **ids, exposure=table["days"])
    model.save(tmp_path / "m")
    named = ("--target", "visits", *COLUMNS, "--exposure", "days", "--json")
    found = json.loads(said_by(capsys, "evaluate", tmp_path / "m", folder / "visits.csv", *named).out)
    mean = model.predict(X, **ids, exposure=table["days"])
    assert found["deviance"] == pytest.approx(mean_poisson_deviance(table["visits"], mean))
    replies = pd.read_csv(folder / "reply.csv")
    flags = replies["reply"] == "yes"
    ids = {"agent": replies["clinic"], "entity": replies["patient"]}
    fedhlcr.HLCRClassifier(2, n_sweeps=10).fit(replies[["age", "dose"]], flags, **ids).save(tmp_path / "c")
    replies.assign(reply=flags).to_csv(tmp_path / "flags.csv", index=False)
    named = ("--target", "reply", *COLUMNS, "--json")
    found = json.loads(said_by(capsys, "evaluate", tmp_path / "c", tmp_path / "flags.csv", *named).out)
    assert found["share"] == pytest.approx(flags.mean())


def test_the_report_on_counts_uses_their_exposure(folder, tmp_path, capsys):
    evaluated = said_by(capsys, "evaluate", folder / "visits.fedhlcr", folder / "visits.csv", "--json")
    coverage = json.loads(evaluated.out)["coverage"]
    said_by(capsys, "report", folder / "visits.fedhlcr", folder / "visits.csv", "--out", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text().replace("\xa0", " ")
    assert f"{100 * coverage:.1f} % of these counts lie in their 90 % intervals" in page


def test_the_report_draws_other_events_on_request(folder, tmp_path, capsys):
    table, out = pd.read_csv(folder / "visits.csv"), tmp_path / "r.html"
    table[::2].to_csv(tmp_path / "half.csv", index=False)
    report = ("report", folder / "visits.fedhlcr", "--out", out)
    said_by(capsys, *report, folder / "visits.csv", "--draw", tmp_path / "half.csv")
    half = out.read_text()
    said_by(capsys, *report, folder / "visits.csv")
    drawn = [
        sum(int(n.replace(",", "")) for n in set(re.findall(r"([\d,]+) events behind the dots", page)))
        for page in (half, out.read_text())
    ]
    assert 0 < drawn[0] < drawn[1]
    # without events to judge by, roles may still be given for those to draw
    said_by(capsys, *report, "--draw", tmp_path / "half.csv", "--target", "visits")
