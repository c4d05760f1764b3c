"""`fedhlcr fit`: from a table to a model."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import fedhlcr
from fedhlcr.cli.shell import BAD_DATA, WRONG_USAGE
from fedhlcr.posterior.diagnostics import R_HAT_LIMIT
from tests.commands import COLUMNS, FIT, FOR_ALL, FOR_TARGETS, PAPER, assert_refused, bad_table, call, shop_table


def test_fit_finds_the_true_clusters(shop, tmp_path, capsys):
    assert call("fit", shop / "train.csv", *FIT, "--out", tmp_path / "m", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["n_clusters"] == 2
    assert facts["features"] == ["price", "promotion=yes", "season=spring", "season=summer", "season=winter"]
    assert facts["levels"] == {"promotion": ["no", "yes"], "season": ["spring", "summer", "winter"]}
    slopes = sorted(cluster["coef"]["price"] for cluster in facts["clusters"])
    assert slopes == pytest.approx([-4, 0], abs=0.15)
    assert facts["noise_scale"] == pytest.approx(0.3, rel=0.1)
    assert facts["provenance"]["data"] == "train.csv"


def test_fit_prints_a_summary(shop, tmp_path, capsys):
    assert call("fit", shop / "train.csv", *FIT, *PAPER, "--hold-out", ".2", "--out", tmp_path / "m") == 0
    said = capsys.readouterr()
    for words in ("12 agents, 72 entities", "2 (found)", "50 % of entities", "sales", "promotion", "held-out events"):
        assert words in said.out
    *notes, wrote = said.err.splitlines()
    assert wrote == f"wrote {tmp_path / 'm'}"
    unsettled = [d for d in fedhlcr.load(tmp_path / "m").diagnostics_ if d.r_hat > R_HAT_LIMIT]
    assert [note.startswith("fedhlcr: note: the chain had not settled") for note in notes] == [True] * bool(unsettled)


def test_note_on_one_event_per_entity(shop, tmp_path, capsys):
    table = shop_table().assign(receipt=range(len(shop_table())))
    table.to_csv(tmp_path / "t.csv", index=False)
    columns = ("--target", "sales", "--agent", "store", "--features", "price", "--sweeps", 4, "--out", tmp_path / "m")
    assert call("fit", tmp_path / "t.csv", *columns, "--entity", "receipt") == 0
    assert "note: Every entity has only one event" in (said := capsys.readouterr().err)
    assert "Check that --entity is the right column." in said
    assert call("fit", tmp_path / "t.csv", *columns, "--entity", "product") == 0
    assert "only one event" not in capsys.readouterr().err


def test_same_seed_gives_the_same_model(shop, tmp_path):
    for name in ("a", "b"):
        assert call("fit", shop / "train.csv", *FIT, "--seed", 3, "--out", tmp_path / name, "-q") == 0
    a, b = (fedhlcr.load(tmp_path / name) for name in ("a", "b"))
    np.testing.assert_array_equal(a.posterior_.draws.coef, b.posterior_.draws.coef)


def test_column_of_ones_fits_means_only(shop, tmp_path, capsys):
    levels = shop_table()[["store", "product"]].assign(one=1)
    noise = np.random.default_rng(0).normal(0, 0.1, len(levels))
    levels["sales"] = np.where(levels["product"].astype(int) % 2, 5.0, 9.0) + noise
    table, model = tmp_path / "t.csv", tmp_path / "m"
    levels.drop(columns="one").to_csv(table, index=False)
    assert call("fit", table, *COLUMNS, "--out", model) == BAD_DATA
    assert "column of ones" in capsys.readouterr().err
    levels.to_csv(table, index=False)
    assert call("fit", table, *COLUMNS, "--sweeps", 40, "--out", model, "-q") == 0
    assert call("report", model, "--out", tmp_path / "r.html", "-q") == 0
    assert call("predict", model, table, "--out", tmp_path / "p.csv", "-q") == 0
    predicted = pd.read_csv(tmp_path / "p.csv")["prediction"]
    np.testing.assert_allclose(predicted, levels["sales"].round(), atol=0.1)


def test_note_on_columns_without_a_name(shop, tmp_path, capsys):
    pd.read_csv(shop / "train.csv", dtype=str).assign(**{"": 1}).to_csv(tmp_path / "t.csv", index=False)
    assert call("fit", tmp_path / "t.csv", *FIT, "--out", tmp_path / "m") == 0
    assert "note: left out 1 column without a name" in capsys.readouterr().err


def test_features_can_be_chosen(shop, tmp_path, capsys):
    chosen = ("--features", "price", "--features", "season", "--categories", "season")
    assert call("fit", shop / "train.csv", *COLUMNS, *chosen, "--sweeps", 10, "--out", tmp_path / "m", "--json") == 0
    features = json.loads(capsys.readouterr().out)["features"]
    assert features == ["price", "season=spring", "season=summer", "season=winter"]


def test_decimal_commas(tmp_path, capsys):
    shop_table().to_csv(tmp_path / "t.csv", index=False, sep=";", decimal=",")
    assert call("fit", tmp_path / "t.csv", *FIT, "--out", tmp_path / "m", "--json") == 0
    slopes = sorted(cluster["coef"]["price"] for cluster in json.loads(capsys.readouterr().out)["clusters"])
    assert slopes == pytest.approx([-4, 0], abs=0.15)


@pytest.mark.parametrize("kind", [*FOR_ALL, *FOR_TARGETS])
def test_fit_refuses_bad_tables(kind, tmp_path, capsys):
    out = tmp_path / "model"
    assert_refused(call("fit", bad_table(kind, tmp_path), *FIT, "--out", out), capsys, out)


def test_advice_to_leave_a_column_out_is_for_features_only(tmp_path, capsys):
    table = bad_table("text in the target", tmp_path)
    assert call("fit", table, *FIT, "--out", tmp_path / "m") == BAD_DATA
    told = " ".join(capsys.readouterr().err.split())
    assert "it is the target, so correct them, or name another column" in told
    assert "leave it out" not in told
    columns = ("--target", "price", "--features", "sales", *COLUMNS[2:])
    assert call("fit", table, *columns, "--out", tmp_path / "m") == BAD_DATA
    told = " ".join(capsys.readouterr().err.split())
    assert "correct them, or, if it is a feature, name it as a category" in told
    assert "or leave it out" in told


def odd_category(kind, folder):
    """A sound file whose category has a type that few tables have."""
    table = pa.Table.from_pandas(shop_table(), preserve_index=False).drop_columns(["promotion"])
    n = len(table)
    columns = {
        "half": pa.array(np.arange(n) % 3, pa.float16()),
        "late": pa.array(np.full(n, 2**63 - 1), pa.timestamp("us")),
    }
    with pa.ipc.new_file(folder / "odd.arrow", (table := table.append_column("odd", columns[kind])).schema) as file:
        file.write_table(table)
    return folder / "odd.arrow"


@pytest.mark.parametrize("how", ["--in-memory", "--stream"])
def test_half_precision_numbers_may_be_a_category(how, tmp_path, capsys):
    data = odd_category("half", tmp_path)
    options = (*COLUMNS, "--categories", "odd,season", "--sweeps", 4, how, "--out", tmp_path / "m", "-q")
    assert call("fit", data, *options) == 0
    assert fedhlcr.load(tmp_path / "m").recipe_.categorical["odd"] == ["0", "1", "2"]
    if how == "--in-memory":
        assert call("evaluate", tmp_path / "m", data, "-q") == 0
        assert call("report", tmp_path / "m", data, "--out", tmp_path / "r.html", "-q") == 0


@pytest.mark.parametrize("how", ["--in-memory", "--stream"])
def test_times_that_have_no_text_are_bad_data(how, tmp_path, capsys):
    data = odd_category("late", tmp_path)
    options = (*COLUMNS, "--categories", "odd,season", "--sweeps", 4, how, "--out", tmp_path / "m")
    assert call("fit", data, *options) == BAD_DATA
    assert "column 'odd' holds values of the type timestamp[us]" in capsys.readouterr().err
    assert (
        call("fit", data, "--target", "odd", *COLUMNS[2:], "--features", "price", "--out", tmp_path / "m") == BAD_DATA
    )
    assert "column 'odd'" in capsys.readouterr().err


def test_similar_column_is_suggested(shop, tmp_path, capsys):
    arguments = ("--target", "slaes", "--agent", "store", "--entity", "product")
    assert call("fit", shop / "train.csv", *arguments, "--out", tmp_path / "m") == BAD_DATA
    assert "did you mean 'sales'?" in capsys.readouterr().err


def test_column_cannot_have_two_roles(shop, tmp_path, capsys):
    for more in (
        ("--features", "sales"),
        ("--categories", "store"),
        ("--features", "price", "--categories", "season"),
    ):
        assert_refused(
            call("fit", shop / "train.csv", *COLUMNS, *more, "--out", tmp_path / "m"), capsys, tmp_path / "m"
        )


def test_more_clusters_than_entities_are_refused(shop, tmp_path, capsys):
    code = call("fit", shop / "train.csv", *FIT, "--clusters", "9999", "--out", tmp_path / "m")
    assert_refused(code, capsys, tmp_path / "m", WRONG_USAGE)


def test_note_on_a_chain_that_had_not_settled(tmp_path, capsys):
    assert call("synth", tmp_path / "t.csv", "--agents", 200, "-q") == 0
    columns = ("--target", "target", "--agent", "agent", "--entity", "entity", "--sweeps", "24")
    assert call("fit", tmp_path / "t.csv", *columns, *PAPER, "--out", tmp_path / "m") == 0
    said = capsys.readouterr().err
    assert "the chain had not settled (R-hat is above 1.1 for: " in said
    assert "--sweeps 48" in said
    assert "n_sweeps" not in said


def test_curves_by_word_and_by_name(shop, tmp_path):
    for given, columns in (("none", None), ("auto", [0]), ("price", [0])):
        assert call("fit", shop / "train.csv", *FIT, "--curves", given, "--out", tmp_path / given, "-q") == 0
        curves = fedhlcr.load(tmp_path / given).curves_
        assert (curves is None) if columns is None else (curves.columns.tolist() == columns)
    frame = pd.read_csv(shop / "train.csv", dtype={"product": str})
    predicted = fedhlcr.load(tmp_path / "auto").predict(frame)
    assert np.corrcoef(predicted, frame["sales"])[0, 1] > 0.9


def test_unknown_curves_are_refused(shop, tmp_path, capsys):
    refused = {
        "prize": "'prize'",
        "promotion=yes": "for a curve; at least 5 must be common. Leave it out, or use --curves auto.",
        "promotion": "'promotion', which is a category; the effect of a category cannot bend",
        "": "Invalid value for --curves: names no column",
    }
    for given, words in refused.items():
        assert call("fit", shop / "train.csv", *FIT, "--curves", given, "--out", tmp_path / "m") != 0
        assert words in capsys.readouterr().err


def test_old_names_of_options_still_work_with_a_note(shop, tmp_path, capsys):
    old = (*COLUMNS, "--categorical", "promotion", "--categorical", "season", "--engine", "here", "--sweeps", "4")
    assert call("fit", shop / "train.csv", *old, "--precision", "single", "--out", tmp_path / "old") == 0
    said = " ".join(capsys.readouterr().err.split())
    for note in ("--categorical is now called --categories", "--engine in_process", "--precision does nothing"):
        assert f"note: {note}" in said or note in said
    new = (*COLUMNS, "--categories", "promotion,season", "--engine", "in_process", "--sweeps", "4")
    assert call("fit", shop / "train.csv", *new, "--out", tmp_path / "new") == 0
    assert "is now" not in capsys.readouterr().err
    np.testing.assert_array_equal(*(fedhlcr.load(tmp_path / name).labels_ for name in ("old", "new")))


def test_effects_and_noise_are_those_of_the_options(shop, tmp_path, capsys):
    for command, given in (("fit", ("entity", "common")), ("simulate", ("entity+agent", "student"))):
        effects, noise = given
        sizes = FIT if command == "fit" else (*FIT[:-2], "--rounds", "8", "--hold-out", "0")
        model = ("--effects", effects, "--noise", noise, "--out", tmp_path / command, "-q")
        assert call(command, shop / "train.csv", *sizes, *model) == 0
        loaded = fedhlcr.load(tmp_path / command)
        assert (loaded.effects, loaded.noise) == given
    assert call("inspect", tmp_path / "fit") == 0
    assert "entities differ" in capsys.readouterr().out
    assert call("inspect", tmp_path / "fit", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["settings"]["effects"] == "entity"
    assert list(facts["effect_scales"]["slopes"]) == facts["features"]
    assert facts["noise_range"] is None
    assert call("fit", shop / "train.csv", *FIT, *PAPER, "--out", tmp_path / "paper") == 0
    assert "the paper's: entities of one cluster are equal" in capsys.readouterr().out
    assert call("inspect", tmp_path / "paper", "--json") == 0
    assert json.loads(capsys.readouterr().out)["effect_scales"] is None


def test_unknown_effects_are_refused(shop, tmp_path, capsys):
    assert call("fit", shop / "train.csv", *FIT, "--effects", "slopes", "--out", tmp_path / "m") != 0
    assert "--effects" in capsys.readouterr().err


FORMULA = "sales ~ log(price) + C(promotion)*C(season) | store/product"


def test_formula_names_all_columns(shop, tmp_path, capsys):
    out = tmp_path / "m"
    assert call("fit", shop / "train.csv", "--formula", FORMULA, "--sweeps", 12, "--out", out, "-q") == 0
    frame = pd.read_csv(shop / "train.csv", dtype={"product": str})
    model, own = fedhlcr.load(out), fedhlcr.HLCRRegressor.from_formula(FORMULA, n_sweeps=12).fit(frame)
    assert model.formula == FORMULA
    np.testing.assert_array_equal(model.coef_, own.coef_)
    capsys.readouterr()
    assert call("predict", out, shop / "train.csv", "--out", tmp_path / "p.csv") == 0
    np.testing.assert_allclose(pd.read_csv(tmp_path / "p.csv")["prediction"], own.predict(frame), rtol=1e-12)


def test_formula_without_intercept(shop, tmp_path):
    for name, stream in (("a", "--in-memory"), ("b", "--stream")):
        formula = "sales ~ 0 + price | store/product"
        columns = ("--formula", formula, "--sweeps", 12, "--out", tmp_path / name, "-q", stream)
        assert call("fit", shop / "train.csv", *columns) == 0
        model = fedhlcr.load(tmp_path / name)
        assert not model.intercept_.any()
        assert not model.fit_intercept


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--formula", FORMULA, "--target", "sales"), "leave it out"),
        (("--formula", FORMULA, "--features", "price"), "leave it out"),
        (("--formula", FORMULA, "--stream"), "--in-memory"),
        (("--formula", FORMULA.replace("price", "prize")), "did you mean 'price'?"),
        (("--formula", "sales ~ price"), "no groups"),
        (("--entity", "product"), "Missing option '--target'"),
        (("--target", "sales"), "Missing option '--entity'"),
    ],
)
def test_wrong_formulas_and_missing_columns_are_refused(shop, tmp_path, capsys, arguments, words):
    assert call("fit", shop / "train.csv", *arguments, "--out", tmp_path / "m") == WRONG_USAGE
    assert words in " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert not list(tmp_path.iterdir())
