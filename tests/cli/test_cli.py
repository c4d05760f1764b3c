"""The command as a user meets it: from a table to a report, in pipes, on terminals, and with all kinds of bad input."""

from __future__ import annotations

import io
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import fedhlcr
from fedhlcr.cli import run
from fedhlcr.cli.shell import BAD_DATA, BAD_MODEL, FAILED, INTERRUPTED, NO_OUTPUT, WRONG_USAGE
from fedhlcr.posterior import PublicModel

COLUMNS = ("--target", "sales", "--agent", "store", "--entity", "product")
FIT = (*COLUMNS, "--categorical", "promotion,season", "--sweeps", "40")
COMMAND = [sys.executable, "-c", "from fedhlcr.cli import main; main()"]


def shop_table(seed=0, n_stores=12, n_products=6, n_weeks=12) -> pd.DataFrame:
    """Two kinds of products: those that sell by price, and those that sell by promotion and season."""
    rng = np.random.default_rng(seed)
    n = n_stores * n_products * n_weeks
    frame = pd.DataFrame(
        {
            "store": np.repeat([f"store {s}" for s in range(n_stores)], n_products * n_weeks),
            "product": np.tile(np.repeat([f"{p:03d}" for p in range(n_products)], n_weeks), n_stores),
            "price": rng.uniform(1, 3, n).round(2),
            "promotion": rng.choice(["yes", "no"], n),
            "season": rng.choice(["winter", "spring", "summer"], n),
        }
    )
    by_price = frame["product"].astype(int) % 2 == 0
    cheap = 20 - 4 * frame["price"]
    pushed = 8 + 5 * (frame["promotion"] == "yes") + 3 * (frame["season"] == "summer")
    frame["sales"] = (np.where(by_price, cheap, pushed) + rng.normal(0, 0.3, n)).round(3)
    return frame


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A folder with a table, a part to judge by, and a model that was fitted to the rest."""
    folder = tmp_path_factory.mktemp("shop")
    shop_table().to_csv(folder / "all.csv", index=False)
    split = ["split", folder / "all.csv", "--agent", "store", "--entity", "product", "-q"]
    assert call(*split, "--train", folder / "train.csv", "--test", folder / "test.csv") == 0
    assert call("fit", folder / "train.csv", *FIT, "--out", folder / "shop.fedhlcr", "-q") == 0
    return folder


def call(*arguments) -> int:
    return run([str(argument) for argument in arguments])


def in_shell(*arguments, data=None, **more) -> subprocess.CompletedProcess:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, input=data, capture_output=True, check=False, timeout=120, **more)


# From a table to a report


def test_the_split_holds_out_some_events_of_each_entity(shop):
    train, test = (pd.read_csv(shop / f"{part}.csv", dtype=str) for part in ("train", "test"))
    whole = pd.read_csv(shop / "all.csv", dtype=str)
    both = pd.concat([train, test]).sort_values(list(whole.columns)).reset_index(drop=True)
    pd.testing.assert_frame_equal(both, whole.sort_values(list(whole.columns)).reset_index(drop=True))
    shares = test.groupby(["store", "product"]).size() / whole.groupby(["store", "product"]).size()
    assert shares.between(0.1, 0.3).all()


def test_fit_finds_what_the_table_was_made_of(shop, tmp_path, capsys):
    assert call("fit", shop / "train.csv", *FIT, "--out", tmp_path / "m", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["n_clusters"] == 2
    assert facts["features"] == ["price", "promotion=yes", "season=spring", "season=summer", "season=winter"]
    assert facts["levels"] == {"promotion": ["no", "yes"], "season": ["spring", "summer", "winter"]}
    slopes = sorted(cluster["coef"]["price"] for cluster in facts["clusters"])
    assert slopes == pytest.approx([-4, 0], abs=0.15)
    assert facts["noise_scale"] == pytest.approx(0.3, rel=0.1)
    assert facts["provenance"]["data"] == "train.csv"


def test_fit_tells_it_in_words(shop, tmp_path, capsys):
    assert call("fit", shop / "train.csv", *FIT, "--hold-out", ".2", "--out", tmp_path / "m") == 0
    said = capsys.readouterr()
    for words in ("12 agents, 72 entities", "2 (found)", "50 % of entities", "sales", "promotion", "held-out events"):
        assert words in said.out
    assert said.err == f"wrote {tmp_path / 'm'}\n"


def test_predict_is_what_python_says(shop, tmp_path):
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


def test_figures_that_flatter_are_told(shop, capsys):
    assert call("evaluate", shop / "shop.fedhlcr", shop / "train.csv") == 0
    assert "fitted to these very events" in capsys.readouterr().err
    assert call("evaluate", shop / "shop.fedhlcr", shop / "test.csv") == 0
    assert capsys.readouterr().err == ""


def test_adapt_makes_a_new_agent_known(shop, tmp_path, capsys):
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


def test_a_public_model_predicts_new_agents_and_known_ones_after_adapt(shop, tmp_path, capsys):
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


def test_inspect(shop, capsys):
    assert call("inspect", shop / "shop.fedhlcr", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["target"], facts["agent"], facts["entity"]) == ("sales", "store", "product")
    assert call("inspect", shop / "shop.fedhlcr") == 0
    said = capsys.readouterr().out
    assert "fedhlcr fit" not in said or "train.csv" in said
    assert facts["provenance"]["created"] in said


def test_simulate_runs_a_federation(shop, tmp_path, capsys):
    arguments = ("simulate", shop / "all.csv", *COLUMNS, "--categorical", "promotion,season")
    federation = ("--participation", ".5", "--rounds", "30", "--failure-rate", ".1")
    files = ("--out", tmp_path / "fed", "--history", tmp_path / "rounds.csv")
    assert call(*arguments, *federation, *files, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["federation"]["rounds"] <= 30
    assert facts["federation"]["answers"] < facts["federation"]["asked"]
    assert facts["held_out"]["federated"]["r2"] == pytest.approx(facts["held_out"]["centralised"]["r2"], abs=0.02)
    rounds = pd.read_csv(tmp_path / "rounds.csv")
    assert rounds["bytes_up"].sum() == facts["federation"]["bytes_up"]
    assert call("evaluate", tmp_path / "fed", shop / "test.csv", "--json") == 0
    assert json.loads(capsys.readouterr().out)["r2"] > 0.95
    assert call(*arguments, *federation) == 0
    assert "Ended after" in capsys.readouterr().out


def test_synth_writes_what_fit_reads(tmp_path, capsys):
    table, truth = tmp_path / "t.parquet", tmp_path / "truth.csv"
    assert call("synth", table, "--agents", 40, "--clusters", 3, "--seed", 1, "--truth", truth, "-q") == 0
    columns = ("--target", "target", "--agent", "agent", "--entity", "entity")
    assert call("fit", table, *columns, "--out", tmp_path / "m", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["n_clusters"] == 3
    assert facts["n_entities"] == len(pd.read_csv(truth))


def test_the_same_seed_gives_the_same_model(shop, tmp_path):
    for name in ("a", "b"):
        assert call("fit", shop / "train.csv", *FIT, "--seed", 3, "--out", tmp_path / name, "-q") == 0
    a, b = (fedhlcr.load(tmp_path / name) for name in ("a", "b"))
    np.testing.assert_array_equal(a.posterior_.draws.coef, b.posterior_.draws.coef)


def test_a_column_of_ones_is_a_model_of_levels_alone(shop, tmp_path, capsys):
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


def test_columns_without_a_name_are_told(shop, tmp_path, capsys):
    pd.read_csv(shop / "train.csv", dtype=str).assign(**{"": 1}).to_csv(tmp_path / "t.csv", index=False)
    assert call("fit", tmp_path / "t.csv", *FIT, "--out", tmp_path / "m") == 0
    assert "note: left out 1 column without a name" in capsys.readouterr().err


def test_features_can_be_chosen(shop, tmp_path, capsys):
    chosen = ("--features", "price", "--features", "season", "--categorical", "season")
    assert call("fit", shop / "train.csv", *COLUMNS, *chosen, "--sweeps", 10, "--out", tmp_path / "m", "--json") == 0
    features = json.loads(capsys.readouterr().out)["features"]
    assert features == ["price", "season=spring", "season=summer", "season=winter"]


# Missing values


@pytest.fixture
def gappy(tmp_path):
    frame = shop_table()
    frame.loc[3:7, "price"] = np.nan
    frame.loc[10:11, "season"] = None
    frame.loc[20, "sales"] = np.nan
    frame.to_csv(tmp_path / "gappy.csv", index=False)
    return tmp_path / "gappy.csv"


def test_missing_values_are_refused_with_counts(gappy, tmp_path, capsys):
    assert call("fit", gappy, *FIT, "--out", tmp_path / "m") == BAD_DATA
    said = capsys.readouterr().err
    assert "'price' 5" in said
    assert "'season' 2" in said
    assert "'sales' 1" in said
    assert "--missing drop or --missing impute" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "m").exists()


def test_missing_targets_are_not_to_be_imputed(tmp_path, capsys):
    frame = shop_table()
    frame.loc[20, "sales"] = np.nan
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert call("fit", tmp_path / "t.csv", *FIT, "--out", tmp_path / "m") == BAD_DATA
    said = capsys.readouterr().err
    assert "1 of 864 rows has missing values: 'sales' 1" in said
    assert said.endswith("Use --missing drop.\n")


@pytest.mark.parametrize(("policy", "n_events"), [("drop", 864 - 8), ("impute", 864 - 1)])
def test_missing_values_are_dropped_or_filled_in(policy, n_events, gappy, tmp_path, capsys):
    assert call("fit", gappy, *FIT, "--missing", policy, "--out", tmp_path / "m", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["n_events"] == n_events
    assert facts["notes"]


def test_what_fills_gaps_is_learnt_at_fit_time(gappy, tmp_path):
    assert call("fit", gappy, *FIT, "--missing", "impute", "--out", tmp_path / "m", "-q") == 0
    other = shop_table(seed=3, n_stores=2).assign(price=lambda frame: frame["price"] + 100)
    other.loc[0, "price"] = np.nan
    other.to_csv(tmp_path / "other.csv", index=False)
    assert call("predict", tmp_path / "m", tmp_path / "other.csv", "--out", tmp_path / "p.csv", "-q") == 0
    first = pd.read_csv(tmp_path / "p.csv").loc[0, "prediction"]
    model = fedhlcr.load(tmp_path / "m")
    median = pd.read_csv(gappy)["price"].median()
    filled = other.head(1).assign(price=model.recipe_.fill["price"])
    assert model.recipe_.fill["price"] == pytest.approx(median, abs=0.02)
    assert first == pytest.approx(model.predict(filled)[0])


def test_rows_that_are_dropped_keep_their_numbers(shop, tmp_path):
    test = pd.read_csv(shop / "test.csv", dtype={"product": str})
    test.loc[[0, 4], "price"] = np.nan
    test.to_csv(tmp_path / "t.csv", index=False)
    arguments = ("predict", shop / "shop.fedhlcr", tmp_path / "t.csv", "--out", tmp_path / "p.csv", "-q")
    assert call(*arguments) == BAD_DATA
    assert not (tmp_path / "p.csv").exists()
    assert call(*arguments, "--missing", "drop") == 0
    rows = pd.read_csv(tmp_path / "p.csv")["row"].tolist()
    assert rows == [number for number in range(1, len(test) + 1) if number not in (1, 5)]


# Pipes and terminals


def test_a_table_from_a_pipe(shop, tmp_path):
    data = (shop / "test.csv").read_bytes()
    done = in_shell("predict", shop / "shop.fedhlcr", "-", data=data)
    assert done.returncode == 0
    assert done.stderr == b""
    predicted = pd.read_csv(io.BytesIO(done.stdout))
    assert len(predicted) == len(pd.read_csv(shop / "test.csv"))
    fitted = in_shell("fit", "-", *FIT, "--out", tmp_path / "m", data=(shop / "train.csv").read_bytes())
    assert fitted.returncode == 0
    assert fitted.stderr.decode() == f"wrote {tmp_path / 'm'}\n"
    assert b"\x1b" not in fitted.stdout, "no colours in a pipe"


def test_a_reader_that_has_seen_enough_is_no_error(shop):
    command = shlex.join([*COMMAND, "predict", str(shop / "shop.fedhlcr"), str(shop / "test.csv")])
    script = f"{command} | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.splitlines() == ["row,store,product,prediction,std", "0"]
    assert done.stderr == ""


def test_a_terminal_sees_progress_and_the_time_left(tmp_path):
    assert call("synth", tmp_path / "t.csv", "--agents", 100, "-q") == 0
    mine, theirs = pty.openpty()
    columns = ("--target", "target", "--agent", "agent", "--entity", "entity", "--sweeps", "400")
    command = [*COMMAND, "fit", str(tmp_path / "t.csv"), *columns, "--out", str(tmp_path / "m")]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        said = b""
        while True:
            try:
                part = os.read(mine, 65536)
            except OSError:
                break
            if not part:
                break
            said += part
    os.close(mine)
    assert process.returncode == 0
    text = said.decode()
    assert "of 400 sweeps" in text
    assert "left" in text


def test_names_cannot_steer_a_terminal(tmp_path, capsys):
    frame = shop_table().rename(columns={"price": "pr\x1b[31mice"})
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert call("fit", tmp_path / "t.csv", *FIT, "--out", tmp_path / "m") == 0
    assert "\x1b" not in capsys.readouterr().out


# Bad input: one line, a code, and nothing written

SECRET = "867.5309"


def bad_table(kind: str, folder: Path) -> Path:
    frame = shop_table()
    path = folder / "bad.csv"
    match kind:
        case "no such file":
            return folder / "absent.csv"
        case "empty file":
            path.write_text("")
            return path
        case "header only":
            frame = frame.head(0)
        case "wrong column":
            frame = frame.rename(columns={"store": "shop"})
        case "no target":
            frame = frame.drop(columns="sales")
        case "text in a number column":
            frame["price"] = frame["price"].astype(str)
            frame.loc[17, "price"] = f"about {SECRET}"
        case "text in the target":
            frame["sales"] = frame["sales"].astype(str)
            frame.loc[17, "sales"] = f"about {SECRET}"
        case "duplicate column":
            frame.insert(0, "price", 1.0, allow_duplicates=True)
        case "unseen category":
            frame.loc[5, "season"] = SECRET
        case "unseen agent":
            frame.loc[5, "store"] = SECRET
        case "missing id":
            frame.loc[5, "product"] = None
        case "infinite":
            frame.loc[5, "price"] = np.inf
        case "huge":
            frame.loc[5, "price"] = 1e200
        case "half a parquet":
            path = folder / "bad.parquet"
            frame.to_parquet(path)
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
            return path
        case "ragged":
            path.write_text(frame.to_csv(index=False) + f"{SECRET},1\n")
            return path
        case "a folder without tables":
            (folder / "nothing").mkdir()
            return folder / "nothing"
        case "not a table":
            path.write_bytes(bytes(range(256)) * 20)
            return path
    frame.to_csv(path, index=False)
    return path


FOR_ALL = (
    *("no such file", "empty file", "header only", "wrong column", "text in a number column", "duplicate column"),
    *("missing id", "infinite", "huge", "half a parquet", "ragged", "a folder without tables", "not a table"),
)
FOR_TARGETS = ("no target", "text in the target")


def assert_refused(code, capsys, out: Path | None, expected=BAD_DATA):
    said = capsys.readouterr()
    assert code == expected, said.err
    assert said.err.startswith("fedhlcr: ")
    assert said.err.count("\n") == 1, "one line"
    assert SECRET not in said.err, "no value of the table"
    assert said.out == ""
    assert out is None or list(out.parent.glob(f"*{out.name}*")) == [], "nothing is written, not even half"


@pytest.mark.parametrize("kind", [*FOR_ALL, *FOR_TARGETS])
def test_fit_refuses(kind, tmp_path, capsys):
    out = tmp_path / "model"
    assert_refused(call("fit", bad_table(kind, tmp_path), *FIT, "--out", out), capsys, out)


@pytest.mark.parametrize("kind", [*FOR_ALL, "unseen category", "unseen agent"])
def test_predict_refuses(kind, shop, tmp_path, capsys):
    out = tmp_path / "predictions.csv"
    assert_refused(call("predict", shop / "shop.fedhlcr", bad_table(kind, tmp_path), "--out", out), capsys, out)


@pytest.mark.parametrize("kind", [*FOR_ALL, *FOR_TARGETS, "unseen category", "unseen agent"])
def test_evaluate_refuses(kind, shop, tmp_path, capsys):
    assert_refused(call("evaluate", shop / "shop.fedhlcr", bad_table(kind, tmp_path)), capsys, None)


@pytest.mark.parametrize("kind", [*FOR_ALL, *FOR_TARGETS, "unseen category"])
def test_adapt_refuses(kind, shop, tmp_path, capsys):
    out = tmp_path / "adapted"
    assert_refused(call("adapt", shop / "shop.fedhlcr", bad_table(kind, tmp_path), "--out", out), capsys, out)


@pytest.mark.parametrize("kind", [*FOR_ALL, *FOR_TARGETS])
def test_simulate_refuses(kind, tmp_path, capsys):
    out = tmp_path / "model"
    categorical = ("--categorical", "promotion,season")
    code = call("simulate", bad_table(kind, tmp_path), *COLUMNS, *categorical, "--out", out)
    assert_refused(code, capsys, out)


@pytest.mark.parametrize(
    "kind", ["no such file", "empty file", "wrong column", "duplicate column", "half a parquet", "missing id"]
)
def test_split_refuses(kind, tmp_path, capsys):
    out = tmp_path / "train.csv"
    arguments = ("--agent", "store", "--entity", "product", "--train", out, "--test", tmp_path / "test.csv")
    assert_refused(call("split", bad_table(kind, tmp_path), *arguments), capsys, out)


def test_a_table_without_events_to_hold_out_is_refused(tmp_path, capsys):
    table = shop_table(n_stores=3, n_weeks=1)
    table.to_csv(tmp_path / "t.csv", index=False)
    fit = ("fit", tmp_path / "t.csv", *FIT, "--hold-out", ".2", "--out", tmp_path / "m")
    simulate = ("simulate", tmp_path / "t.csv", *COLUMNS, "--features", "price")
    split = ("split", tmp_path / "t.csv", "--agent", "store", "--entity", "product")
    files = ("--train", tmp_path / "train.csv", "--test", tmp_path / "test.csv")
    for arguments in (fit, simulate, (*split, *files)):
        assert call(*arguments) == BAD_DATA
        assert "no entity has enough events" in capsys.readouterr().err


def test_nobody_is_told_to_leave_the_target_out(tmp_path, capsys):
    assert call("fit", bad_table("text in the target", tmp_path), *FIT, "--out", tmp_path / "m") == BAD_DATA
    assert "correct them, or, if it is a feature, leave it out" in capsys.readouterr().err


def test_a_column_that_is_nearly_right_is_suggested(shop, tmp_path, capsys):
    arguments = ("--target", "slaes", "--agent", "store", "--entity", "product")
    assert call("fit", shop / "train.csv", *arguments, "--out", tmp_path / "m") == BAD_DATA
    assert "did you mean 'sales'?" in capsys.readouterr().err


@pytest.mark.parametrize("where", [0, 9, 100, -1])
def test_a_model_file_with_flipped_bytes(where, shop, tmp_path, capsys):
    data = bytearray((shop / "shop.fedhlcr").read_bytes())
    data[where] ^= 0x55
    (tmp_path / "broken").write_bytes(bytes(data))
    out = tmp_path / "out.csv"
    code = call("predict", tmp_path / "broken", shop / "test.csv", "--out", out)
    assert_refused(code, capsys, out, BAD_MODEL)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"fedhlcr\0", b"{}", b"\x80\x04K\x01."])
def test_what_is_no_model_file(content, tmp_path, capsys):
    (tmp_path / "no-model").write_bytes(content)
    assert_refused(call("inspect", tmp_path / "no-model"), capsys, None, BAD_MODEL)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is full")
def test_a_disk_that_is_full(shop, capsys):
    assert_refused(call("fit", shop / "train.csv", *FIT, "--out", "/dev/full"), capsys, None, NO_OUTPUT)
    predict = ("predict", shop / "shop.fedhlcr", shop / "test.csv")
    assert_refused(call(*predict, "--out", "/dev/full"), capsys, None, NO_OUTPUT)
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, *map(str, predict)], stdout=full, stderr=subprocess.PIPE, check=False, timeout=120
        )
    assert done.returncode == NO_OUTPUT
    assert done.stderr.count(b"\n") == 1


def test_a_write_that_fails_leaves_the_old_file_and_no_draft(shop, tmp_path, capsys, monkeypatch):
    out = tmp_path / "p.csv"
    out.write_text("as it was")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert call("predict", shop / "shop.fedhlcr", shop / "test.csv", "--out", out) == NO_OUTPUT
    assert out.read_text() == "as it was"
    assert [path.name for path in tmp_path.iterdir()] == ["p.csv"]
    assert "No space left" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("fit",),
        ("fit", "{all}", *COLUMNS, "--out", "{tmp}/m", "--clusters", "many"),
        ("fit", "{all}", *COLUMNS, "--out", "{tmp}/m", "--clusters", "0"),
        ("fit", "{all}", *COLUMNS, "--out", "{tmp}/m", "--sweeps", "0"),
        ("fit", "{all}", *COLUMNS, "--out", "{tmp}/m", "--missing", "maybe"),
        ("predict", "{model}", "{all}", "--interval", "90"),
        ("simulate", "{all}", *COLUMNS, "--participation", "15"),
        ("simulate", "{all}", *COLUMNS, "--failure-rate", "1"),
        ("simulate", "{all}", *COLUMNS, "--public"),
        ("fit", "{all}", *COLUMNS, "--out", "{tmp}/m", "--clusters", "9" * 5000),
        ("fit", "{all}", *COLUMNS, "--out", "{tmp}/m", "--seed", str(2**32)),
        ("synth", "{tmp}/m.csv", "--features", "0"),
        ("synth", "{tmp}/m.csv", "--agents", "100000", "--events", "100000"),
        ("report", "{model}", "--out", "{tmp}/m", "--target", "nope"),
        ("report", "{model}", "--out", "{tmp}/m", "--new-agents"),
        ("select", "{all}", *FIT, "--clusters", "2,100000"),
    ],
)
def test_wrong_usage(arguments, shop, tmp_path, capsys):
    places = {"all": shop / "all.csv", "tmp": tmp_path, "model": shop / "shop.fedhlcr"}
    code = call(*(argument.format(**places) for argument in arguments))
    assert_refused(code, capsys, tmp_path / "m", WRONG_USAGE)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e300", "-1"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("predict", "{model}", "{all}", "--out", "{tmp}/m.csv", "--interval"),
        ("evaluate", "{model}", "{all}", "--out", "{tmp}/m.csv", "--level"),
        ("fit", "{all}", *COLUMNS, "--out", "{tmp}/m", "--hold-out"),
        ("select", "{all}", *COLUMNS, "--plot", "{tmp}/m.png", "--hold-out"),
        ("simulate", "{all}", *COLUMNS, "--out", "{tmp}/m", "--participation"),
        ("simulate", "{all}", *COLUMNS, "--out", "{tmp}/m", "--failure-rate"),
        ("split", "{all}", "--entity", "product", "--train", "{tmp}/m.csv", "--test", "{tmp}/t.csv", "--fraction"),
        ("synth", "{tmp}/m.csv", "--noise"),
        ("synth", "{tmp}/m.csv", "--events"),
        ("synth", "{tmp}/m.csv", "--entities"),
    ],
)
def test_numbers_out_of_range_are_wrong_usage(arguments, value, shop, tmp_path, capsys):
    places = {"all": shop / "all.csv", "tmp": tmp_path, "model": shop / "shop.fedhlcr"}
    assert call(*(argument.format(**places) for argument in arguments), value) == WRONG_USAGE
    said = capsys.readouterr()
    assert f"'{arguments[-1]}'" in said.err
    assert (said.out, said.err.count("\n"), list(tmp_path.iterdir())) == ("", 1, [])


def test_every_option_of_a_fraction_has_a_range_and_knows_nan():
    import typer.main

    from fedhlcr.cli import app

    for command in typer.main.get_command(app).commands.values():  # type: ignore[attr-defined]
        for option in command.params:
            if option.type.name.startswith("float"):
                assert option.type.max is not None, (command.name, option.name)
                with pytest.raises(typer.BadParameter, match="must be a number"):
                    option.callback(typer.Context(command), option, float("nan"))


@pytest.mark.parametrize(
    "arguments",
    [
        ("simulate", "{all}", *COLUMNS, "--out", "{tmp}/m.csv", "--history", "{tmp}/./m.csv"),
        ("synth", "{tmp}/m.csv", "--truth", "{tmp}/m.csv"),
        ("split", "{all}", "--entity", "product", "--train", "{tmp}/m.csv", "--test", "{tmp}/m.csv"),
    ],
)
def test_two_outputs_are_two_files(arguments, shop, tmp_path, capsys):
    code = call(*(argument.format(all=shop / "all.csv", tmp=tmp_path) for argument in arguments))
    assert_refused(code, capsys, tmp_path / "m.csv", WRONG_USAGE)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is full")
@pytest.mark.parametrize(
    "arguments",
    [
        ("split", "{all}", "--entity", "product", "--train", "{tmp}/m.csv", "--test", "/dev/full"),
        ("synth", "{tmp}/m.csv", "--truth", "/dev/full"),
    ],
)
def test_of_two_tables_both_are_written_or_none(arguments, shop, tmp_path, capsys):
    command = [argument.format(all=shop / "all.csv", tmp=tmp_path) for argument in arguments]
    assert_refused(call(*command), capsys, tmp_path / "m.csv", NO_OUTPUT)
    (tmp_path / "m.csv").write_text("of an earlier split")
    assert_refused(call(*command), capsys, None, NO_OUTPUT)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["of an earlier split"]


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
def test_streams_the_shell_closed(closed, shop, tmp_path):
    inspect = [*COMMAND, "inspect", str(shop / "shop.fedhlcr")]
    fit = [*COMMAND, "fit", str(shop / "train.csv"), *FIT, "-q", "--out", str(tmp_path / "m")]
    read = [*COMMAND, "inspect", "absent"]
    codes = []
    for command in (inspect, fit, read):
        done = subprocess.run(["bash", "-c", f"{shlex.join(command)} {closed}"], capture_output=True, timeout=120)
        codes.append(done.returncode)
        assert b"unexpected error" not in done.stderr
        assert done.stderr.count(b"\n") == (done.returncode != 0 and closed == ">&-")
    assert codes == [NO_OUTPUT, 0, BAD_MODEL]


def test_standard_input_that_is_closed(shop):
    command = shlex.join([*COMMAND, "predict", str(shop / "shop.fedhlcr"), "-"])
    done = subprocess.run(["bash", "-c", f"{command} <&-"], capture_output=True, timeout=120)
    assert (done.returncode, done.stdout) == (BAD_DATA, b"")
    assert b"standard input is closed" in done.stderr


def test_another_target_than_that_of_the_fit_is_told(shop, capsys):
    assert call("evaluate", shop / "shop.fedhlcr", shop / "test.csv", "--target", "price") == 0
    assert "fitted to 'sales'; here 'price'" in capsys.readouterr().err


def test_one_agent_has_a_name_and_counts_are_whole(shop, tmp_path, capsys):
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


def test_a_folder_is_no_model(shop, capsys):
    assert call("predict", ".", shop / "test.csv") == BAD_MODEL
    assert "'.': it is a folder" in capsys.readouterr().err


@pytest.mark.parametrize("out", ["nowhere/m", "."])
def test_where_nothing_can_be_written_is_told_before_the_work(out, shop, tmp_path, capsys):
    assert call("fit", shop / "absent.csv", *FIT, "--out", tmp_path / out) == NO_OUTPUT
    assert capsys.readouterr().err.count("\n") == 1


def test_a_column_cannot_be_two_things(shop, tmp_path, capsys):
    for more in (
        ("--features", "sales"),
        ("--categorical", "store"),
        ("--features", "price", "--categorical", "season"),
    ):
        assert_refused(
            call("fit", shop / "train.csv", *COLUMNS, *more, "--out", tmp_path / "m"), capsys, tmp_path / "m"
        )


def test_ctrl_c(shop, tmp_path, capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedhlcr.data.recipe.Recipe.read", interrupted)
    assert_refused(call("fit", shop / "train.csv", *FIT, "--out", tmp_path / "m"), capsys, tmp_path / "m", INTERRUPTED)


def test_ctrl_c_while_sampling_writes_what_there_is_beside_and_says_so(tmp_path):
    (tmp_path / "m").write_text("a whole model")
    assert call("synth", tmp_path / "t.csv", "--agents", 60, "-q") == 0
    columns = ("--target", "target", "--agent", "agent", "--entity", "entity", "--sweeps", "1000000")
    command = [*COMMAND, "fit", str(tmp_path / "t.csv"), *columns, "--out", str(tmp_path / "m"), "--progress"]
    # a shell that starts the tests in the background has them ignore Ctrl-C
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, preexec_fn=listen) as process:
        for line in process.stderr:
            if b"sweeps" in line:
                break
        process.send_signal(signal.SIGINT)
        said = process.stderr.read().decode()
    assert process.returncode == INTERRUPTED
    assert "interrupted after" in said
    assert (tmp_path / "m").read_text() == "a whole model"
    assert fedhlcr.load(tmp_path / "m.interrupted").n_clusters_ >= 1


def listen():
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_what_nobody_thought_of_is_one_line_too(shop, capsys, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError

    monkeypatch.setattr("fedhlcr.estimators.loading.from_bytes", broken)
    assert_refused(call("inspect", shop / "shop.fedhlcr"), capsys, None, FAILED)


def test_every_command_teaches(capsys):
    import typer.main

    from fedhlcr.cli import app

    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    wanted = {
        "synth",
        "split",
        "fit",
        "predict",
        "evaluate",
        "adapt",
        "inspect",
        "select",
        "simulate",
        "report",
        "demo",
    }
    assert set(commands) == wanted | {"flower"}
    for name in wanted:
        assert call(name, "--help") == 0
        assert len(capsys.readouterr().out.splitlines()) > 5
    assert call() == WRONG_USAGE


def test_help_and_errors_of_usage_load_nothing_heavy():
    script = (
        "import sys; from fedhlcr.cli import run; run(['fit', '--help']); "
        "heavy = {'numba', 'sklearn', 'pyarrow', 'scipy', 'pandas'} & set(sys.modules); print(sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_parquet_folders_and_other_kinds_of_tables(shop, tmp_path):
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


# How many clusters


def test_select_compares_counts_and_draws_them(shop, tmp_path, capsys):
    arguments = ("select", shop / "train.csv", *FIT, "--clusters", "1,2,4", "--splits", "1")
    assert call(*arguments, "--plot", tmp_path / "counts.svg", "--json") == 0
    comparison = json.loads(capsys.readouterr().out)
    assert comparison["suggested"] == comparison["most_evident"] == 2
    assert [row["n_clusters"] for row in comparison["rows"]] == [1, 2, 4]
    assert "</svg>" in (tmp_path / "counts.svg").read_text()
    assert call(*arguments) == 0
    said = capsys.readouterr().out
    assert "Suggested: 2" in said
    assert "By evidence: 2, the smallest within 3 nats of the highest." in said


@pytest.mark.parametrize("kind", [*FOR_ALL, *FOR_TARGETS])
def test_select_refuses(kind, tmp_path, capsys):
    out = tmp_path / "counts.png"
    assert_refused(call("select", bad_table(kind, tmp_path), *FIT, "--plot", out), capsys, out)


def test_a_picture_of_an_unknown_kind_is_refused_before_the_work(shop, tmp_path, capsys):
    assert call("select", shop / "train.csv", *FIT, "--plot", tmp_path / "counts.gif") == NO_OUTPUT
    assert ".png" in capsys.readouterr().err


# Models from elsewhere


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
def test_models_from_elsewhere(kind, shop, tmp_path, capsys):
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


# What else a user may do


@pytest.mark.parametrize("command", ["inspect {model}", "evaluate {model} {test} --by-agent", "select --help"])
def test_whoever_reads_may_stop(command, shop):
    words = command.format(model=shop / "shop.fedhlcr", test=shop / "test.csv").split()
    script = f"{shlex.join([*COMMAND, *words])} | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_what_is_read_is_not_overwritten(shop, tmp_path, capsys):
    table = tmp_path / "t.csv"
    table.write_bytes((shop / "train.csv").read_bytes())
    before = table.read_bytes()
    for arguments in (
        ("fit", table, *FIT, "--out", table),
        ("predict", shop / "shop.fedhlcr", table, "--out", table),
        ("report", shop / "shop.fedhlcr", table, "--out", table),
        ("split", table, "--entity", "product", "--train", table, "--test", tmp_path / "test.csv"),
    ):
        assert_refused(call(*arguments), capsys, None, NO_OUTPUT)
        assert table.read_bytes() == before


def test_only_tables_go_to_standard_output(shop, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert_refused(call("fit", shop / "train.csv", *FIT, "--out", "-"), capsys, None, NO_OUTPUT)
    assert list(tmp_path.iterdir()) == []
    done = in_shell("synth", "-", "--agents", "3")
    assert done.stderr == b""
    assert list(pd.read_csv(io.BytesIO(done.stdout)))[-1] == "target"


@pytest.mark.parametrize("out", [(), ("--out", "-")])
def test_json_of_predictions_is_one_object(out, shop, capsys):
    assert call("predict", shop / "shop.fedhlcr", shop / "test.csv", "--json", *out) == 0
    predictions = json.loads(capsys.readouterr().out)
    assert len(predictions["prediction"]) == len(pd.read_csv(shop / "test.csv"))


def test_json_of_a_made_table_is_one_object(capsys):
    assert call("synth", "-", "--agents", "3", "--features", "1", "--json") == 0
    assert list(json.loads(capsys.readouterr().out)) == ["agent", "entity", "x0", "target"]


def test_columns_of_predictions_make_way_for_ids(tmp_path):
    table = shop_table().rename(columns={"store": "row", "product": "prediction"})
    table.to_csv(tmp_path / "t.csv", index=False)
    roles = ("--target", "sales", "--agent", "row", "--entity", "prediction", "--features", "price")
    assert call("fit", tmp_path / "t.csv", *roles, "--sweeps", 10, "--out", tmp_path / "m", "-q") == 0
    assert call("predict", tmp_path / "m", tmp_path / "t.csv", "--out", tmp_path / "p.csv", "-q") == 0
    predictions = pd.read_csv(tmp_path / "p.csv", dtype={"prediction": str})
    assert list(predictions) == ["row_", "row", "prediction", "prediction_", "std"]
    assert list(predictions["row_"]) == list(range(1, len(table) + 1))
    assert list(predictions["row"]) == list(table["row"])


def test_json_of_reports(shop, tmp_path, capsys):
    assert call("report", shop / "shop.fedhlcr", "--out", tmp_path / "r.html", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"report": str(tmp_path / "r.html")}


def test_decimal_commas(tmp_path, capsys):
    shop_table().to_csv(tmp_path / "t.csv", index=False, sep=";", decimal=",")
    assert call("fit", tmp_path / "t.csv", *FIT, "--out", tmp_path / "m", "--json") == 0
    slopes = sorted(cluster["coef"]["price"] for cluster in json.loads(capsys.readouterr().out)["clusters"])
    assert slopes == pytest.approx([-4, 0], abs=0.15)


def test_more_clusters_than_entities_are_refused(shop, tmp_path, capsys):
    code = call("fit", shop / "train.csv", *FIT, "--clusters", "9999", "--out", tmp_path / "m")
    assert_refused(code, capsys, tmp_path / "m", WRONG_USAGE)


def test_a_federation_in_which_nobody_answers(shop, capsys):
    hopeless = ("--participation", ".1", "--rounds", "2", "--failure-rate", ".99")
    code = call("simulate", shop / "all.csv", *COLUMNS, "--features", "price", *hopeless)
    assert_refused(code, capsys, None, FAILED)


def test_a_chain_that_has_not_settled_is_told(tmp_path, capsys):
    assert call("synth", tmp_path / "t.csv", "--agents", 200, "-q") == 0
    columns = ("--target", "target", "--agent", "agent", "--entity", "entity", "--sweeps", "24")
    assert call("fit", tmp_path / "t.csv", *columns, "--out", tmp_path / "m") == 0
    said = capsys.readouterr().err
    assert "--sweeps 48" in said
    assert "n_sweeps" not in said


def test_words_of_libraries_are_not_told(shop, capsys, monkeypatch):
    monkeypatch.setattr("fedhlcr.estimators.loading.from_bytes", lambda data: pd.to_numeric(SECRET + "!"))
    assert_refused(call("inspect", shop / "shop.fedhlcr"), capsys, None, FAILED)


def test_one_round_is_singular(shop, capsys):
    assert call("simulate", shop / "all.csv", *COLUMNS, "--features", "price", "--rounds", "1") == 0
    assert "Ended after 1 round: reached 1 round." in capsys.readouterr().out
