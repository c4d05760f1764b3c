"""`fedhlcr predict`, `evaluate`, `adapt`, `inspect` and `report`: what one does with a model."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import fedhlcr
from tests.commands import FIT, FOR_ALL, FOR_TARGETS, assert_refused, bad_table, call, shop_table


def test_predictions_equal_those_of_python(shop, tmp_path):
    out = tmp_path / "p.csv"
    assert call("predict", shop / "shop.fedhlcr", shop / "test.csv", "--interval", ".8", "--out", out, "-q") == 0
    predicted = pd.read_csv(out, dtype={"product": str})
    assert list(predicted) == ["row", "store", "product", "prediction", "std", "lower", "upper"]
    test = pd.read_csv(shop / "test.csv", dtype={"product": str})
    model = fedhlcr.load(shop / "shop.fedhlcr")
    np.testing.assert_allclose(predicted["prediction"], model.predict(test), rtol=1e-9)
    lower, upper = model.predict_interval(test, level=0.8)
    np.testing.assert_allclose(predicted[["lower", "upper"]], np.column_stack([lower, upper]), rtol=1e-9)
    assert (predicted[["store", "product"]] == test[["store", "product"]]).all(axis=None)


@pytest.mark.parametrize("name", ["p.csv", "p.csv.gz", "p.parquet", "p.feather", "p.arrow"])
def test_predictions_in_every_format(name, shop, tmp_path):
    assert call("predict", shop / "shop.fedhlcr", shop / "test.csv", "--out", tmp_path / name, "-q") == 0
    from fedhlcr.data.table_files import open_table

    table = open_table(tmp_path / name)
    assert table.columns == ("row", "store", "product", "prediction", "std")
    assert len(table.read(["prediction"])) == len(pd.read_csv(shop / "test.csv"))


@pytest.mark.parametrize("out", [(), ("--out", "-")])
def test_json_of_predictions_is_one_object(out, shop, capsys):
    assert call("predict", shop / "shop.fedhlcr", shop / "test.csv", "--json", *out) == 0
    predictions = json.loads(capsys.readouterr().out)
    assert len(predictions["prediction"]) == len(pd.read_csv(shop / "test.csv"))


def test_prediction_columns_do_not_clash_with_id_columns(tmp_path):
    table = shop_table().rename(columns={"store": "row", "product": "prediction"})
    table.to_csv(tmp_path / "t.csv", index=False)
    roles = ("--target", "sales", "--agent", "row", "--entity", "prediction", "--features", "price")
    assert call("fit", tmp_path / "t.csv", *roles, "--sweeps", 10, "--out", tmp_path / "m", "-q") == 0
    assert call("predict", tmp_path / "m", tmp_path / "t.csv", "--out", tmp_path / "p.csv", "-q") == 0
    predictions = pd.read_csv(tmp_path / "p.csv", dtype={"prediction": str})
    assert list(predictions) == ["row_", "row", "prediction", "prediction_", "std"]
    assert list(predictions["row_"]) == list(range(1, len(table) + 1))
    assert list(predictions["row"]) == list(table["row"])


@pytest.mark.parametrize("kind", [*FOR_ALL, "unseen category", "unseen agent"])
def test_predict_refuses_bad_tables(kind, shop, tmp_path, capsys):
    out = tmp_path / "predictions.csv"
    assert_refused(call("predict", shop / "shop.fedhlcr", bad_table(kind, tmp_path), "--out", out), capsys, out)


def test_evaluate(shop, capsys, tmp_path):
    arguments = ("evaluate", shop / "shop.fedhlcr", shop / "test.csv", "--by-agent", "--out", tmp_path / "a.csv")
    assert call(*arguments, "--json") == 0
    scores = json.loads(capsys.readouterr().out)
    test = pd.read_csv(shop / "test.csv", dtype={"product": str})
    error = test["sales"] - fedhlcr.load(shop / "shop.fedhlcr").predict(test)
    assert scores["mse"] == pytest.approx((error**2).mean())
    assert scores["mae"] == pytest.approx(error.abs().mean())
    assert scores["r2"] > 0.95
    assert 0.8 < scores["coverage"] < 1
    by_agent = pd.read_csv(tmp_path / "a.csv").set_index("agent")
    assert by_agent["n_events"].sum() == len(test)
    of_one = error[test["store"] == "store 3"]
    assert by_agent.loc["store 3", "mse"] == pytest.approx((of_one**2).mean())
    assert call(*arguments) == 0
    assert "store 3" in capsys.readouterr().out


def test_note_on_scores_of_training_events(shop, capsys):
    assert call("evaluate", shop / "shop.fedhlcr", shop / "train.csv") == 0
    assert "fitted to these very events" in capsys.readouterr().err
    assert call("evaluate", shop / "shop.fedhlcr", shop / "test.csv") == 0
    assert capsys.readouterr().err == ""


def test_note_on_another_target_than_that_of_the_fit(shop, capsys):
    assert call("evaluate", shop / "shop.fedhlcr", shop / "test.csv", "--target", "price") == 0
    assert "fitted to 'sales', but is now compared with 'price'" in capsys.readouterr().err


def test_table_without_agents_and_single_events(shop, tmp_path, capsys):
    columns = ("--target", "sales", "--entity", "product", "--features", "price", "--sweeps", "10")
    assert call("fit", shop / "train.csv", *columns, "--out", tmp_path / "m", "--json") == 0
    n_events = json.loads(capsys.readouterr().out)["n_events"]
    assert isinstance(n_events, int)
    assert n_events == len(pd.read_csv(shop / "train.csv"))
    assert call("evaluate", tmp_path / "m", shop / "test.csv", "--by-agent") == 0
    assert "all events" in capsys.readouterr().out
    pd.read_csv(shop / "test.csv", dtype=str).head(1).to_csv(tmp_path / "one.csv", index=False)
    assert call("evaluate", tmp_path / "m", tmp_path / "one.csv") == 0
    assert capsys.readouterr().out.startswith("1 event ")


@pytest.mark.parametrize("kind", [*FOR_ALL, *FOR_TARGETS, "unseen category", "unseen agent"])
def test_evaluate_refuses_bad_tables(kind, shop, tmp_path, capsys):
    assert_refused(call("evaluate", shop / "shop.fedhlcr", bad_table(kind, tmp_path)), capsys, None)


def test_adapt_adds_a_new_agent(shop, tmp_path, capsys):
    new = shop_table(seed=5, n_stores=1).assign(store="newcomer")
    new[::2].to_csv(tmp_path / "seen.csv", index=False)
    new[1::2].to_csv(tmp_path / "later.csv", index=False)
    assert call("evaluate", shop / "shop.fedhlcr", tmp_path / "later.csv", "--new-agents", "--json") == 0
    before = json.loads(capsys.readouterr().out)
    adapt = ("adapt", shop / "shop.fedhlcr", tmp_path / "seen.csv", "--out", tmp_path / "adapted")
    assert call(*adapt, "--json") == 0
    assert json.loads(capsys.readouterr().out)["new_entities"] == 6
    assert call("evaluate", tmp_path / "adapted", tmp_path / "later.csv", "--json") == 0
    after = json.loads(capsys.readouterr().out)
    assert after["mse"] < 0.2 < before["mse"]


def test_evaluate_compares_with_simpler_models(shop, capsys):
    assert call("evaluate", shop / "shop.fedhlcr", shop / "test.csv", "--json") == 0
    compared = {row["model"]: row for row in json.loads(capsys.readouterr().out)["compared"]}
    assert list(compared) == ["HLCR", "one ridge", "ridge per entity", "mixed model"]
    # two clusters with different slopes: whoever knows the entities is better
    for score in ("r2", "log_density"):
        assert compared["HLCR"][score] > compared["mixed model"][score] > compared["one ridge"][score] + 0.1
    assert compared["HLCR"]["rmse"] < compared["ridge per entity"]["rmse"]
    assert call("evaluate", shop / "shop.fedhlcr", shop / "test.csv") == 0
    assert "compared with simpler models" in capsys.readouterr().out


def test_public_model_predicts_new_agents_and_known_ones_after_adapt(shop, tmp_path, capsys):
    public = tmp_path / "public"
    assert call("fit", shop / "train.csv", *FIT, "--public", "--out", public, "-q") == 0
    assert b"store 3" not in public.read_bytes()
    assert b"train.csv" not in public.read_bytes()
    assert call("inspect", public) == 0
    assert "public" in capsys.readouterr().out
    assert call("evaluate", public, shop / "test.csv", "--json") == 0
    as_new = json.loads(capsys.readouterr().out)
    assert as_new["notes"]
    pd.read_csv(shop / "test.csv").drop(columns=["store", "product"]).to_csv(tmp_path / "no-ids.csv", index=False)
    assert call("evaluate", public, tmp_path / "no-ids.csv", "--json") == 0
    assert json.loads(capsys.readouterr().out)["mse"] == pytest.approx(as_new["mse"])
    assert call("adapt", public, shop / "train.csv", "--out", tmp_path / "known", "-q") == 0
    assert call("evaluate", tmp_path / "known", shop / "test.csv", "--json") == 0
    known = json.loads(capsys.readouterr().out)
    assert known["mse"] < 0.2 < as_new["mse"]


@pytest.mark.parametrize("kind", [*FOR_ALL, *FOR_TARGETS, "unseen category"])
def test_adapt_refuses_bad_tables(kind, shop, tmp_path, capsys):
    out = tmp_path / "adapted"
    assert_refused(call("adapt", shop / "shop.fedhlcr", bad_table(kind, tmp_path), "--out", out), capsys, out)


def test_inspect(shop, capsys):
    assert call("inspect", shop / "shop.fedhlcr", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["target"], facts["agent"], facts["entity"]) == ("sales", "store", "product")
    assert call("inspect", shop / "shop.fedhlcr") == 0
    said = capsys.readouterr().out
    assert "fedhlcr fit" not in said or "train.csv" in said
    assert facts["provenance"]["created"] in said


def test_json_of_reports(shop, tmp_path, capsys):
    assert call("report", shop / "shop.fedhlcr", "--out", tmp_path / "r.html", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"report": str(tmp_path / "r.html")}


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_reports_have_a_map_of_places(ending, shop, tmp_path, capsys):
    stores = fedhlcr.load(shop / "shop.fedhlcr").agent_ids_.tolist()
    frame = pd.DataFrame({"store": stores, "LAT": 48.0, "lon": np.arange(len(stores)) / 10.0, "place": "Ulm"})
    places = tmp_path / f"places.{ending}"
    frame.to_csv(places, index=False) if ending == "csv" else frame.to_parquet(places)
    report = tmp_path / "r.html"
    assert call("report", shop / "shop.fedhlcr", shop / "test.csv", "--places", places, "--out", report, "-q") == 0
    page = report.read_text(encoding="utf-8")
    assert 'id="map"' in page
    assert "<bdi>Ulm</bdi>" in page
    assert "data-explorer" in page


def test_wrong_tables_of_places_are_refused(shop, tmp_path, capsys):
    places, report = tmp_path / "places.csv", tmp_path / "r.html"
    for text, words in (
        ("shop,lat,lon\nstore 0,1,2\n", "no column 'product' or 'store'"),
        ("store,lat\nstore 0,1\n", "no column longitude"),
        ("store,lat,lon\nnobody,1,2\n", "no place for any entity"),
        ("store,lat,lon\nstore 0,191,2\n", "latitude beyond"),
    ):
        places.write_text(text)
        assert call("report", shop / "shop.fedhlcr", "--places", places, "--out", report) != 0
        said = capsys.readouterr().err
        assert words in said
        assert said.count("\n") == 1
        assert "191" not in said
    assert not report.exists()


def test_ids_that_pandas_wrote_as_floats(tmp_path, capsys):
    frame = shop_table().assign(product=lambda frame: frame["product"].astype(int))
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.loc[5, "product"] = np.nan
    frame.to_csv(tmp_path / "gap.csv", index=False)
    assert "\nstore 0,1.0," in (tmp_path / "gap.csv").read_text()
    assert call("fit", tmp_path / "t.csv", *FIT, "--out", tmp_path / "m", "-q") == 0
    assert call("evaluate", tmp_path / "m", tmp_path / "gap.csv", "--missing", "drop", "--json") == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["r2"] > 0.95
    assert not any("does not know" in note for note in scores["notes"])


def test_tables_in_other_formats(shop, tmp_path):
    frame = pd.read_csv(shop / "test.csv", dtype={"product": str})
    frame.to_parquet(tmp_path / "table", partition_cols=["season"])
    frame.to_feather(tmp_path / "table.feather")
    pq.write_table(pq.read_table(tmp_path / "table").replace_schema_metadata(), tmp_path / "table.pq")
    expected = {}
    for name in ("table", "table.feather", "table.pq"):
        assert call("predict", shop / "shop.fedhlcr", tmp_path / name, "--out", tmp_path / "p.csv", "-q") == 0
        expected[name] = np.sort(pd.read_csv(tmp_path / "p.csv")["prediction"])
    for name in ("table", "table.pq"):
        np.testing.assert_allclose(expected[name], expected["table.feather"])
