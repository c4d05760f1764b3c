"""`fedhlcr inspect --entities`: the coefficients of each entity as a table."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import fedhlcr
from fedhlcr.cli.shell import BAD_MODEL, NO_OUTPUT, WRONG_USAGE
from fedhlcr.data.table_files import open_table
from tests.commands import FIT, assert_refused, call, shop_table


def written(path, **ids) -> pd.DataFrame:
    return pd.read_csv(path, dtype=ids)


def saved(folder, frame, **ids) -> fedhlcr.HLCRRegressor:
    """A model made in Python, as it is read from its file."""
    features = frame.drop(columns="sales")
    fedhlcr.HLCRRegressor(2, n_sweeps=10).fit(features, frame["sales"], **ids).save(folder / "m")
    return fedhlcr.load(folder / "m")


def test_table_has_the_attributes_of_python(shop, tmp_path, capsys):
    out = tmp_path / "e.csv"
    assert call("inspect", shop / "shop.fedhlcr", "--entities", out) == 0
    said = capsys.readouterr()
    assert said.err == f"wrote {out}\n"
    assert call("inspect", shop / "shop.fedhlcr") == 0
    assert capsys.readouterr().out == said.out
    table, model = written(out, product=str), fedhlcr.load(shop / "shop.fedhlcr")
    features = list(model.feature_names_in_)
    stds, lower, upper = ([f"{name}_{end}" for name in ("intercept", *features)] for end in ("std", "lower", "upper"))
    label = ["cluster", "probability", "second_cluster", "second_probability", "n_events"]
    assert list(table) == ["store", "product", *label, "intercept", *features, *stds, *lower, *upper, "noise"]
    pd.testing.assert_frame_equal(table, model.entity_table(library="pandas"), rtol=1e-12, check_dtype=False)
    assert list(zip(table["store"], table["product"], strict=True)) == model.pair_ids_
    assert len(table) == 12 * 6
    for columns, values in (
        ("cluster", model.labels_),
        ("intercept", model.entity_intercept_),
        (features, model.entity_coef_),
        ("intercept_std", model.entity_intercept_std_),
        (stds[1:], model.entity_coef_std_),
        ("noise", model.entity_noise_),
    ):
        np.testing.assert_allclose(table[columns], values, rtol=1e-12)
    # even products sell by price
    by_price = table["product"].astype(int) % 2 == 0
    np.testing.assert_allclose(table.loc[by_price, "price"], -4, atol=0.5)
    np.testing.assert_allclose(table.loc[~by_price, "price"], 0, atol=0.5)


@pytest.mark.parametrize("name", ["e.csv.gz", "e.parquet", "e.feather", "e.arrow"])
def test_table_in_every_format(name, shop, tmp_path):
    for path in (tmp_path / "e.csv", tmp_path / name):
        assert call("inspect", shop / "shop.fedhlcr", "--entities", path, "-q") == 0
    files = [open_table(path) for path in (tmp_path / "e.csv", tmp_path / name)]
    assert files[0].columns == files[1].columns
    expected, table = (file.read(["price", "price_std", "noise"]) for file in files)
    assert table.to_pydict() == expected.to_pydict()


def test_dash_is_standard_output(shop, tmp_path, capfdbinary):
    arguments = ("inspect", shop / "shop.fedhlcr", "--entities")
    assert call(*arguments, tmp_path / "e.csv", "-q") == 0
    assert call(*arguments, "-") == 0
    said = capfdbinary.readouterr()
    assert said.out == (tmp_path / "e.csv").read_bytes()
    assert said.err == b""
    assert call(*arguments, "-", "--json") == WRONG_USAGE
    assert b"--entities: must be a file with --json" in capfdbinary.readouterr().err


def test_json_stays_the_same(shop, tmp_path, capsys):
    facts = []
    for more in ((), ("--entities", tmp_path / "e.csv")):
        assert call("inspect", shop / "shop.fedhlcr", "--json", *more) == 0
        said = capsys.readouterr()
        facts.append(json.loads(said.out))
        assert said.err == ""
    assert facts[0] == facts[1]
    assert len(written(tmp_path / "e.csv")) == facts[0]["n_entities"]


def test_names_that_are_taken_get_underscores(tmp_path):
    names = {"store": "cluster", "product": "noise", "price": "intercept"}
    frame = shop_table(n_stores=4).drop(columns=["promotion", "season"]).rename(columns=names)
    frame["intercept_std"] = np.sin(np.arange(len(frame)))
    model = saved(tmp_path, frame, agent="cluster", entity="noise")
    assert call("inspect", tmp_path / "m", "--entities", tmp_path / "e.csv", "-q") == 0
    table = written(tmp_path / "e.csv", noise=str)
    assert list(table) == [
        *("cluster", "noise", "cluster_", "probability", "second_cluster", "second_probability", "n_events"),
        *("intercept_", "intercept", "intercept_std", "intercept__std", "intercept_std_", "intercept_std_std"),
        *("intercept__lower", "intercept_lower", "intercept_std_lower"),
        *("intercept__upper", "intercept_upper", "intercept_std_upper", "noise_"),
    ]
    assert list(zip(table["cluster"], table["noise"], strict=True)) == model.pair_ids_
    np.testing.assert_allclose(table[["intercept", "intercept_std"]], model.entity_coef_, rtol=1e-12)
    np.testing.assert_allclose(table["intercept_"], model.entity_intercept_, rtol=1e-12)
    np.testing.assert_allclose(table["intercept__std"], model.entity_intercept_std_, rtol=1e-12)
    np.testing.assert_allclose(table[["intercept_std_", "intercept_std_std"]], model.entity_coef_std_, rtol=1e-12)
    assert list(table["cluster_"]) == list(model.labels_)
    np.testing.assert_allclose(table["noise_"], model.entity_noise_, rtol=1e-12)


def test_ids_without_column_names(tmp_path):
    frame = shop_table(n_stores=4).drop(columns=["promotion", "season"])
    store, product = frame.pop("store").str.removeprefix("store ").astype(int), frame.pop("product")
    model = saved(tmp_path, frame.rename(columns={"price": "agent"}), agent=store, entity=product)
    assert call("inspect", tmp_path / "m", "--entities", tmp_path / "e.parquet", "-q") == 0
    table = pd.read_parquet(tmp_path / "e.parquet")
    assert list(table)[:3] == ["agent_", "entity", "cluster"]
    assert list(table)[7:9] == ["intercept", "agent"]
    # numbers stay numbers
    assert list(zip(table["agent_"], table["entity"], strict=True)) == model.pair_ids_


def test_agent_without_a_name_has_no_column(tmp_path):
    frame = shop_table(n_stores=1).drop(columns=["store", "promotion", "season"])
    saved(tmp_path, frame, entity="product")
    assert call("inspect", tmp_path / "m", "--entities", tmp_path / "e.csv", "-q") == 0
    table = written(tmp_path / "e.csv", product=str)
    assert list(table)[:2] == ["product", "cluster"]
    assert list(table["product"]) == [f"{p:03d}" for p in range(6)]


def test_public_model_has_no_entities(shop, tmp_path, capsys):
    public, out = tmp_path / "public", tmp_path / "e.csv"
    fedhlcr.load(shop / "shop.fedhlcr").save(public, public=True)
    assert call("inspect", public, "--entities", out) == BAD_MODEL
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("fedhlcr: 'public' is public, so it has no entities; ")
    assert not out.exists()
    assert call("adapt", public, shop / "test.csv", "--out", tmp_path / "adapted", "-q") == 0
    assert call("inspect", tmp_path / "adapted", "--entities", out, "-q") == 0
    assert len(written(out)) == 12 * 6


@pytest.mark.parametrize("name", ["e.xlsx", "nowhere/e.csv", "."])
def test_bad_output_is_refused_as_by_predict(name, shop, tmp_path, capsys):
    errors = []
    for arguments in (("inspect", "--entities"), ("predict", shop / "test.csv", "--out")):
        command, *data, option = arguments
        assert call(command, shop / "shop.fedhlcr", *data, option, tmp_path / name) == NO_OUTPUT
        said = capsys.readouterr()
        assert said.out == ""
        errors.append(said.err)
    assert errors[0] == errors[1]


def test_model_is_not_overwritten(shop, tmp_path, capsys):
    model = tmp_path / "m.csv"
    model.write_bytes((shop / "shop.fedhlcr").read_bytes())
    assert_refused(call("inspect", model, "--entities", model), capsys, None, NO_OUTPUT)
    assert model.read_bytes() == (shop / "shop.fedhlcr").read_bytes()


def test_earlier_table_is_replaced(shop, tmp_path):
    out = tmp_path / "e.csv"
    out.write_text("as it was")
    assert call("inspect", shop / "shop.fedhlcr", "--entities", out, "-q") == 0
    assert len(written(out)) == 12 * 6
    assert [path.name for path in tmp_path.iterdir()] == ["e.csv"]


@pytest.mark.parametrize(
    "more", [("--curves", "auto"), ("--effects", "none", "--noise", "common")], ids=["curves", "paper"]
)
def test_table_of_other_models(more, shop, tmp_path):
    assert call("fit", shop / "test.csv", *FIT, *more, "--out", tmp_path / "m", "-q") == 0
    assert call("inspect", tmp_path / "m", "--entities", tmp_path / "e.csv", "-q") == 0
    table, model = written(tmp_path / "e.csv"), fedhlcr.load(tmp_path / "m")
    np.testing.assert_allclose(table[list(model.feature_names_in_)], model.entity_coef_, rtol=1e-12)
    np.testing.assert_allclose(table["noise"], model.entity_noise_, rtol=1e-12)
