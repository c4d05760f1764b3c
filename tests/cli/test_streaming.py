"""Tables that are read in batches give what they give at once: predictions, scores, splits, notes and errors."""

from __future__ import annotations

import errno
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedhlcr.cli import batches, events, splitting
from fedhlcr.data import csv_files, table_pieces
from fedhlcr.data.table_files import open_table
from tests.commands import FIT, bad_table, call, shop_table

FEW_SWEEPS = ("--sweeps", "20")


@pytest.fixture(autouse=True)
def tiny_batches(monkeypatch):
    monkeypatch.setattr(batches, "BATCH_ROWS", 100)
    monkeypatch.setattr(table_pieces, "PIECE_ROWS", 37)
    monkeypatch.setattr(csv_files, "BLOCK_SIZE", 2000)


def both(command, model, table, *options, capsys):
    """The output of a command that reads a table at once, and of one that reads it in batches."""
    found = []
    for how in ("--in-memory", "--stream"):
        code = call(command, model, table, *options, how)
        shown = capsys.readouterr()
        found.append((code, shown.out, shown.err))
    return found


def split_both(source, folder, name, *options):
    """Split a table at once and in batches; yield the training events of both, then the test events."""
    for how in ("in-memory", "stream"):
        files = [folder / f"{how}-{part}-{name}" for part in ("train", "test")]
        assert call("split", source, *options, "--train", files[0], "--test", files[1], f"--{how}") == 0
    for part in ("train", "test"):
        yield [read(folder / f"{how}-{part}-{name}") for how in ("in-memory", "stream")]


def read(path):
    file = open_table(path)
    return file.read_as_is(list(file.columns))


@pytest.mark.parametrize("name", ["p.csv", "p.csv.gz", "p.parquet", "p.feather", "p.arrow"])
def test_predictions_in_batches_are_those_at_once(name, shop, tmp_path, capsys):
    for how in ("in-memory", "stream"):
        out = tmp_path / f"{how}-{name}"
        assert call("predict", shop / "shop.fedhlcr", shop / "test.csv", "--interval", ".8", "-o", out, f"--{how}") == 0
    assert read(tmp_path / f"in-memory-{name}").equals(read(tmp_path / f"stream-{name}"))
    if name == "p.csv":
        assert (tmp_path / "in-memory-p.csv").read_bytes() == (tmp_path / "stream-p.csv").read_bytes()


def test_predictions_on_standard_output(shop, capsys):
    at_once, streamed = both("predict", shop / "shop.fedhlcr", shop / "test.csv", capsys=capsys)
    assert at_once == streamed
    assert len(at_once[1].splitlines()) > 100
    at_once, streamed = both("predict", shop / "shop.fedhlcr", shop / "test.csv", "--json", capsys=capsys)
    assert at_once == streamed


def test_texts_that_need_quotes_stay_the_same(tmp_path):
    table = shop_table()
    table.loc[400:, "product"] = table["product"][400:] + ', the "new" one'
    table.to_csv(tmp_path / "t.csv", index=False)
    assert call("fit", tmp_path / "t.csv", *FIT, *FEW_SWEEPS, "--out", tmp_path / "m", "-q") == 0
    for how in ("in-memory", "stream"):
        assert call("predict", tmp_path / "m", tmp_path / "t.csv", "--out", tmp_path / f"{how}.csv", f"--{how}") == 0
    assert read(tmp_path / "in-memory.csv").equals(read(tmp_path / "stream.csv"))


@pytest.mark.parametrize("missing", ["refuse", "drop", "impute"])
def test_missing_values_are_told_of_the_whole_table(missing, shop, tmp_path, capsys):
    table = shop_table()
    table.loc[[3, 250, 251], "price"] = np.nan
    table.loc[range(100, 200), "season"] = None
    table.loc[[17, 600], "product"] = None
    table.to_csv(tmp_path / "gaps.csv", index=False)
    options = ("--missing", missing)
    at_once, streamed = both("predict", shop / "shop.fedhlcr", tmp_path / "gaps.csv", *options, capsys=capsys)
    assert at_once == streamed
    assert (at_once[0] == 0) == (missing != "refuse")
    at_once, streamed = both("evaluate", shop / "shop.fedhlcr", tmp_path / "gaps.csv", *options, capsys=capsys)
    assert at_once[0] == streamed[0]
    assert at_once[2].splitlines()[:1] == streamed[2].splitlines()[:1]


def test_unknown_agents_are_counted_in_the_whole_table(shop, tmp_path, capsys):
    table = shop_table()
    table.loc[[5, 300, 301], "store"] = ["new", "newer", "new"]
    table.loc[[7, 500], "product"] = "another"
    table.to_csv(tmp_path / "new.csv", index=False)
    at_once, streamed = both("predict", shop / "shop.fedhlcr", tmp_path / "new.csv", capsys=capsys)
    assert at_once == streamed
    assert "2 agents (3 rows)" in streamed[2]
    assert streamed[1] == ""
    at_once, streamed = both("predict", shop / "shop.fedhlcr", tmp_path / "new.csv", "--new-agents", capsys=capsys)
    assert at_once == streamed
    assert "2 rows of entities that the model does not know" in streamed[2]
    by_agent = ("--new-agents", "--by-agent", "--json")
    at_once, streamed = both("evaluate", shop / "shop.fedhlcr", tmp_path / "new.csv", *by_agent, capsys=capsys)
    assert_same_scores(at_once[1], streamed[1])


def assert_same_scores(at_once, streamed):
    expected, found = json.loads(at_once), json.loads(streamed)
    assert "compared" not in found
    expected.pop("compared", None)
    notes = expected.pop("notes", [])
    assert found.pop("notes") == [
        *notes,
        "simpler models are compared only if the table is read at once; add --in-memory for that",
    ]
    assert_close(expected, found)


def assert_close(expected, found):
    assert type(expected) is type(found)
    if isinstance(expected, dict):
        assert list(expected) == list(found)
        expected, found = list(expected.values()), list(found.values())
    if isinstance(expected, list):
        for one, other in zip(expected, found, strict=True):
            assert_close(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)
    else:
        assert found == expected


def targets_table(family, folder):
    table, rng = shop_table(), np.random.default_rng(3)
    table["days"] = rng.integers(1, 5, len(table))
    if family == "binary":
        table["sales"] = np.where(table["sales"] + rng.normal(0, 3, len(table)) > 12, "high", "low")
    elif family == "count":
        table["sales"] = rng.poisson(table["sales"].clip(0) / 3 * table["days"])
    table.to_parquet(folder / "t.parquet")
    exposure = ("--exposure", "days") if family == "count" else ()
    roles = (*FIT, *FEW_SWEEPS, "--features", "price,promotion,season", *exposure)
    fit = ("fit", folder / "t.parquet", *roles, "--family", family, "--out", folder / "m", "-q")
    assert call(*fit) == 0
    return folder / "m", folder / "t.parquet"


@pytest.mark.parametrize("family", ["real", "binary", "count"])
def test_scores_and_predictions_of_every_target(family, tmp_path, capsys):
    model, table = targets_table(family, tmp_path)
    capsys.readouterr()
    at_once, streamed = both("predict", model, table, "--interval", ".9", capsys=capsys)
    assert at_once == streamed
    at_once, streamed = both("evaluate", model, table, "--json", "--by-agent", capsys=capsys)
    assert_same_scores(at_once[1], streamed[1])
    assert "optimistic" in streamed[1]
    at_once, streamed = both("evaluate", model, table, capsys=capsys)
    shared = streamed[1].rstrip()
    assert at_once[1].startswith(shared)


def test_other_events_are_not_taken_for_the_fitted_ones(shop, capsys):
    _, streamed = both("evaluate", shop / "shop.fedhlcr", shop / "test.csv", capsys=capsys)
    assert "optimistic" not in streamed[2]
    _, streamed = both("evaluate", shop / "shop.fedhlcr", shop / "train.csv", capsys=capsys)
    assert "optimistic" in streamed[2]


def folder_of(table, folder):
    """A folder with partitions and different types of the same columns."""
    for number, (season, part) in enumerate(table.groupby("season", sort=False)):
        own = folder / "table" / f"season={season}"
        own.mkdir(parents=True)
        arrow = pa.Table.from_pandas(part.drop(columns="season"), preserve_index=False)
        if number == 1:
            place = arrow.column_names.index("price")
            arrow = arrow.set_column(place, "price", arrow["price"].cast(pa.float32()))
            arrow = arrow.set_column(1, "product", arrow["product"].dictionary_encode())
        pq.write_table(arrow, own / "part.parquet")
    return folder / "table"


def test_folders_with_partitions_and_different_types(shop, tmp_path, capsys):
    folder = folder_of(shop_table(), tmp_path)
    at_once, streamed = both("predict", shop / "shop.fedhlcr", folder, capsys=capsys)
    assert at_once[0] == 0
    assert at_once == streamed


@pytest.mark.parametrize("odd", [False, True])
def test_ids_of_csv_with_decimal_points(odd, tmp_path, capsys):
    table = shop_table()
    table["product"] = table["product"].astype(int)
    table.to_csv(tmp_path / "t.csv", index=False)
    assert call("fit", tmp_path / "t.csv", *FIT, *FEW_SWEEPS, "--out", tmp_path / "m", "-q") == 0
    table["product"] = table["product"].astype(float).astype(str)
    if odd:
        table.loc[len(table) - 1, "product"] = "7"
    table.to_csv(tmp_path / "t.csv", index=False)
    at_once, streamed = both("predict", tmp_path / "m", tmp_path / "t.csv", capsys=capsys)
    assert at_once == streamed
    assert ("rows of entities that the model does not know" in streamed[2]) == odd


@pytest.mark.parametrize("kind", ["wrong column", "text in a number column", "ragged", "header only", "missing id"])
def test_bad_tables_are_refused_as_at_once(kind, shop, tmp_path, capsys):
    out = tmp_path / "p.csv"
    at_once, streamed = both("predict", shop / "shop.fedhlcr", bad_table(kind, tmp_path), "--out", out, capsys=capsys)
    assert at_once == streamed
    assert streamed[0] != 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.csv"]


def test_unknown_levels_are_refused_with_their_rows(shop, tmp_path, capsys):
    table = bad_table("unseen category", tmp_path)
    assert call("predict", shop / "shop.fedhlcr", table, "--stream") != 0
    error = capsys.readouterr().err
    assert "of 'bad.csv', column 'season' holds 1 level that the model does not know, in 1 of" in error
    assert "in rows 1 to 1" in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("name", ["p.csv", "p.csv.gz", "p.parquet", "p.feather"])
def test_full_disk_leaves_no_partial_output(name, shop, tmp_path, capsys, monkeypatch):
    from fedhlcr.cli import output

    honest = output.TableWriter.write
    calls = []

    def full(self, table):
        calls.append(len(table))
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        honest(self, table)

    monkeypatch.setattr(output.TableWriter, "write", full)
    out = tmp_path / name
    assert call("predict", shop / "shop.fedhlcr", shop / "test.csv", "--stream", "--out", out) == 5
    assert capsys.readouterr().err.splitlines() == [f"fedhlcr: cannot write '{out}': No space left on device."]
    assert list(tmp_path.iterdir()) == []


def test_large_tables_are_read_in_batches(shop, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(events, "LARGE_TABLE", 1000)
    assert call("evaluate", shop / "shop.fedhlcr", shop / "test.csv") == 0
    assert "--in-memory" in capsys.readouterr().err
    assert call("adapt", shop / "shop.fedhlcr", shop / "test.csv", "--out", tmp_path / "m") == 0
    assert "is read at once and takes about" in capsys.readouterr().err


def test_progress_counts_rows_and_bytes(shop, tmp_path, capsys):
    size = (shop / "test.csv").stat().st_size
    assert (
        call("predict", shop / "shop.fedhlcr", shop / "test.csv", "-o", tmp_path / "p.csv", "--stream", "--progress")
        == 0
    )
    assert f"{size:,} of {size:,} bytes" in capsys.readouterr().err


def test_full_device_is_told_in_one_line(shop, capsys):
    assert call("predict", shop / "shop.fedhlcr", shop / "test.csv", "--stream", "--out", "/dev/full") == 5
    assert capsys.readouterr().err == "fedhlcr: cannot write '/dev/full': No space left on device.\n"


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet", "t.feather"])
@pytest.mark.parametrize("with_agent", [False, True])
def test_split_in_batches_chooses_the_same_rows(name, with_agent, tmp_path, capsys):
    rng = np.random.default_rng(2)
    table = shop_table().sample(frac=1.0, random_state=2)
    table["note"] = rng.choice(["a,b", "007", "", "x"], len(table))
    source = tmp_path / ("all.parquet" if "parquet" in name else "all.csv")
    table.to_parquet(source) if source.suffix == ".parquet" else table.to_csv(source, index=False)
    roles = ("--entity", "product", *(("--agent", "store") if with_agent else ()), "--seed", "5", "--fraction", ".3")
    assert all(one.equals(other) for one, other in split_both(source, tmp_path, name, *roles))
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == shown[1]


@pytest.mark.parametrize("name", ["t.arrow", "t.parquet", "t.csv"])
def test_split_in_batches_of_columns_with_dictionaries(name, tmp_path):
    """Row groups have dictionaries of their own, and an Arrow file may have one only."""
    table = shop_table().astype({"store": "category", "product": "category"})
    table.to_parquet(tmp_path / "all.parquet", row_group_size=50)
    for one, other in split_both(
        tmp_path / "all.parquet", tmp_path, name, "--entity", "product", "--agent", "store", "-q"
    ):
        assert one.to_pylist() == other.to_pylist()


def test_split_of_a_folder_with_whole_numbers(tmp_path):
    table = shop_table()
    table["product"] = table["product"].astype(int) * 5
    folder = folder_of(table.astype({"product": "int64"}), tmp_path)
    roles = ("--entity", "product", "--agent", "store", "-q")
    assert all(one.equals(other) for one, other in split_both(folder, tmp_path, "t.parquet", *roles))


def test_split_refuses_missing_ids_of_the_whole_table(tmp_path, capsys):
    table = shop_table()
    table.loc[[3, 400, 401], "store"] = None
    table.to_csv(tmp_path / "t.csv", index=False)
    errors = []
    for how in ("--in-memory", "--stream"):
        files = ("--train", tmp_path / "a.csv", "--test", tmp_path / "b.csv")
        assert call("split", tmp_path / "t.csv", "--entity", "product", "--agent", "store", *files, how) == 3
        errors.append(capsys.readouterr().err)
    assert errors[0] == errors[1]
    assert "'store' 3" in errors[0]
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_split_of_a_table_without_rows(tmp_path, capsys):
    shop_table().iloc[:0].to_parquet(tmp_path / "t.parquet", index=False)
    files = ("--train", tmp_path / "a.csv", "--test", tmp_path / "b.csv")
    errors = []
    for how in ("--in-memory", "--stream"):
        assert call("split", tmp_path / "t.parquet", "--entity", "product", *files, how) == 3
        errors.append(capsys.readouterr().err)
    assert errors[0] == errors[1]
    assert "hold out a larger share" in errors[0]


def test_table_that_grows_while_it_is_split_is_refused(tmp_path, capsys, monkeypatch):
    shop_table().to_parquet(tmp_path / "t.parquet", index=False)
    choose = splitting.Split._choose

    def shorter(*given):
        return choose(*given)[:-1]

    monkeypatch.setattr(splitting.Split, "_choose", shorter)
    files = ("--train", tmp_path / "a.csv", "--test", tmp_path / "b.csv")
    assert call("split", tmp_path / "t.parquet", "--entity", "product", *files, "--stream") != 0
    assert "has changed while it was split" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]
