"""Model files that commands read: from elsewhere, damaged, or no models."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

import fedhlcr
from fedhlcr.cli.shell import BAD_MODEL
from fedhlcr.posterior import PublicModel
from tests.commands import (
    assert_refused,
    call,
)


def elsewhere(kind: str, folder: Path) -> Path:
    """A model of the same columns that was not fitted by the command."""
    train = pd.read_csv(folder / "train.csv", dtype={"product": str}).assign(winter=lambda f: f["season"] == "winter")
    ids, features, y = train[["store", "product"]], train[["price", "winter"]].astype(float), train["sales"]
    estimator = fedhlcr.HLCRRegressor(2, n_sweeps=20)
    if kind == "Python, a frame with ids":
        model = estimator.fit(pd.concat([ids, features], axis=1), y, agent="store", entity="product")
    else:
        model = estimator.fit(features, y, agent=ids["store"], entity=ids["product"])
    path = folder / f"{kind}.fedhlcr"
    if kind == "Flower":
        posterior = model.posterior_
        parts = (posterior.likelihood, posterior.standardization, posterior.draws)
        PublicModel(*parts, seed=0, features=("price", "winter")).save(path)
    else:
        model.save(path)
    return path


@pytest.mark.parametrize("kind", ["Python, a frame with ids", "Python, ids apart", "Flower"])
def test_commands_take_models_made_in_python_or_by_flower(kind, shop, tmp_path, capsys):
    model = elsewhere(kind, shop)
    test = pd.read_csv(shop / "test.csv", dtype={"product": str})
    test.assign(winter=(test["season"] == "winter").astype(int)).to_csv(tmp_path / "t.csv", index=False)
    known = () if kind == "Python, a frame with ids" else ("--agent", "store", "--entity", "product")
    data, target = tmp_path / "t.csv", ("--target", "sales")
    assert call("inspect", model, "-q") == 0
    assert call("predict", model, data, *known, "--out", tmp_path / "p.csv", "-q") == 0
    assert call("adapt", model, data, *known, *target, "--out", tmp_path / "adapted", "-q") == 0
    for fitted in (model, tmp_path / "adapted"):
        assert call("evaluate", fitted, data, *known, *target, "--json") == 0
        assert json.loads(capsys.readouterr().out)["r2"] > (-1.0 if kind == "Flower" else 0.2)
        assert call("report", fitted, data, *known, *target, "--out", tmp_path / "r.html", "-q") == 0
        assert call("report", fitted, "--out", tmp_path / "r.html", "-q") == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("where", [0, 9, 100, -1])
def test_damaged_model_file_is_refused(where, shop, tmp_path, capsys):
    data = bytearray((shop / "shop.fedhlcr").read_bytes())
    data[where] ^= 0x55
    (tmp_path / "broken").write_bytes(bytes(data))
    out = tmp_path / "out.csv"
    code = call("predict", tmp_path / "broken", shop / "test.csv", "--out", out)
    assert_refused(code, capsys, out, BAD_MODEL)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"fedhlcr\0", b"{}", b"\x80\x04K\x01."])
def test_other_files_are_refused_as_models(content, tmp_path, capsys):
    (tmp_path / "no-model").write_bytes(content)
    assert_refused(call("inspect", tmp_path / "no-model"), capsys, None, BAD_MODEL)


def test_folder_is_refused_as_a_model(shop, capsys):
    assert call("predict", ".", shop / "test.csv") == BAD_MODEL
    assert "'.': it is a folder" in capsys.readouterr().err
