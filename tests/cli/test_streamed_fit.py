"""`fedhlcr fit --stream`: the same model as in memory, whatever the table; killed and started again; on a full disk."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

import fedhlcr
from fedhlcr.cli.shell import BAD_DATA, NO_OUTPUT
from fedhlcr.data import csv_files, table_pieces
from fedhlcr.data.streaming import event_sorter, order_statistics, spool, stream_reader, work_folder
from fedhlcr.estimators import central
from fedhlcr.storage import model_file, model_reader
from tests.commands import call

QUICK = ("--sweeps", 6, "--max-clusters", 4, "--threads", 1)
ROLES = ("--target", "y", "--agent", "shop", "--entity", "item")


@pytest.fixture(autouse=True)
def tiny_pieces(monkeypatch):
    monkeypatch.setattr(table_pieces, "PIECE_ROWS", 37)
    monkeypatch.setattr(csv_files, "BLOCK_SIZE", 2000)
    monkeypatch.setattr(event_sorter, "BUCKET_BYTES", 3000)
    monkeypatch.setattr(spool, "VALUES_AT_ONCE", 50)
    monkeypatch.setattr(order_statistics, "FEW", 10)
    monkeypatch.setattr(work_folder, "BETWEEN_CHECKPOINTS", -1.0)


def table(n_rows=500, seed=0):
    """Events of 6 shops, in no order; ids are texts and numbers."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"shop": rng.integers(0, 6, n_rows), "item": rng.integers(0, 9, n_rows)})
    frame["item"] = [f"{i:03}" if i % 2 else str(i) for i in frame["item"]]
    frame["x"], frame["z"] = rng.normal(size=n_rows), 1e6 + rng.integers(0, 50, n_rows)
    frame["kind"] = rng.choice(["a", "b", "c", "rare"], n_rows, p=[0.5, 0.3, 0.19, 0.01])
    frame["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 3, n_rows), unit="D")
    frame["y"] = np.where(frame["shop"] % 2, 1.0, -2.0) * frame["x"] + rng.normal(size=n_rows) + (frame["kind"] == "b")
    frame["won"] = np.where(rng.uniform(size=n_rows) < 1 / (1 + np.exp(-frame["y"])), "yes", "no")
    frame["visits"], frame["hours"] = rng.poisson(np.exp(0.3 * frame["x"])), rng.uniform(0.5, 2.0, n_rows)
    return frame


def with_gaps(frame, columns, seed=1):
    rng = np.random.default_rng(seed)
    return frame.assign(**{name: frame[name].mask(rng.uniform(size=len(frame)) < 0.05) for name in columns})


def to_folder(frame, folder, n_files=3):
    for number, rows in enumerate(np.array_split(np.arange(len(frame)), n_files)):
        path = folder / f"{number}.parquet"
        folder.mkdir(exist_ok=True)
        frame.iloc[rows].to_parquet(path, index=False, row_group_size=60)
    return folder


def record_of(path):
    """All fields of a model file but its origin."""
    record = model_file.to_record(model_reader.load_model(path))
    about = json.loads(record.pop("about"))
    about["provenance"] = about["provenance"]["data"]
    return record, about


def require_same_model(path, other_path):
    (fields, about), (other_fields, other_about) = record_of(path), record_of(other_path)
    assert about == other_about
    assert fields.keys() == other_fields.keys()
    for name, value in fields.items():
        one, other = np.asarray(value), np.asarray(other_fields[name])
        assert one.dtype == other.dtype, name
        assert one.shape == other.shape, name
        assert one.tobytes() == other.tobytes(), name


def fit_both(source, tmp_path, *options, capsys=None):
    said = []
    for how in ("--in-memory", "--stream"):
        code = call("fit", source, *QUICK, *options, how, "--json", "--out", tmp_path / f"m{how}")
        assert code == 0
        facts = json.loads(capsys.readouterr().out) if capsys else {}
        facts.pop("model", None)
        facts.pop("provenance", None)
        notes = [note for note in facts.pop("notes", []) if "temporary files" not in note]
        said.append((facts, notes))
    require_same_model(tmp_path / "m--in-memory", tmp_path / "m--stream")
    assert said[0] == said[1]
    assert not (tmp_path / "m--stream.build").exists()


FEATURES = ("--features", "x,z")
CASES = {
    "plain": (*ROLES, *FEATURES),
    "common_noise": (*ROLES, *FEATURES, "--noise", "common", "--effects", "none", "--chains", 2),
    "categories": (*ROLES, "--features", "x,kind,day", "--categories", "kind,day"),
    "student": (*ROLES, *FEATURES, "--noise", "student"),
    "binary": ("--target", "won", *ROLES[2:], *FEATURES),
    "counts": ("--target", "visits", *ROLES[2:], *FEATURES, "--exposure", "hours", "--family", "count"),
    "curves": (*ROLES, "--features", "x,z,kind", "--categories", "kind", "--curves", "auto"),
    "hold_out": (*ROLES, *FEATURES, "--hold-out", 0.3, "--seed", 4),
    "binary_hold_out": ("--target", "won", *ROLES[2:], *FEATURES, "--hold-out", 0.3),
    "curves_hold_out": (*ROLES, *FEATURES, "--curves", "x", "--hold-out", 0.3),
    "counts_hold_out": ("--target", "visits", *ROLES[2:], *FEATURES, "--exposure", "hours", "--hold-out", 0.3),
    "one_agent": ("--target", "y", "--entity", "item", *FEATURES),
    "dates_as_ids": ("--target", "y", "--agent", "day", "--entity", "shop", *FEATURES),
}


@pytest.mark.parametrize("case", CASES)
def test_streamed_model_is_that_in_memory(case, tmp_path, capsys):
    fit_both(to_folder(table(), tmp_path / "t"), tmp_path, *CASES[case], capsys=capsys)


GAPS = ("x", "z", "kind", "y", "item")


@pytest.mark.parametrize("policy", ["drop", "impute"])
def test_missing_values(policy, tmp_path, capsys):
    folder = to_folder(with_gaps(table(), GAPS), tmp_path / "t")
    options = (*ROLES, "--features", "x,z,kind", "--categories", "kind", "--missing", policy)
    fit_both(folder, tmp_path, *options, capsys=capsys)


def test_csv(tmp_path, capsys):
    # all shops have a decimal point: 7.0 is 7
    with_gaps(table(), ("x", "kind")).assign(shop=lambda t: t["shop"] * 1.0).to_csv(tmp_path / "t.csv", index=False)
    options = (*ROLES, "--features", "x,kind", "--categories", "kind", "--missing", "impute")
    fit_both(tmp_path / "t.csv", tmp_path, *options, capsys=capsys)


def test_ids_of_rows_that_are_dropped_say_whether_all_have_a_decimal_point(tmp_path, capsys):
    frame = table().assign(shop=lambda t: (t["shop"] * 1.0).astype(str))
    # in the last piece
    frame.loc[len(frame)] = frame.iloc[0].to_dict() | {"shop": "north", "x": None}
    frame.to_csv(tmp_path / "t.csv", index=False)
    fit_both(tmp_path / "t.csv", tmp_path, *ROLES, *FEATURES, "--missing", "drop", capsys=capsys)
    assert fedhlcr.load(tmp_path / "m--stream").pair_ids_[0][0] == "0.0"


def test_options_that_do_not_suit_the_family_are_refused_before_the_table_is_read(tmp_path, capsys):
    table().to_csv(tmp_path / "t.csv", index=False)
    binary = ("--target", "won", *ROLES[2:], *FEATURES, "--noise", "student", "--stream")
    assert call("fit", tmp_path / "t.csv", *binary, "--out", tmp_path / "m") == 2
    said = capsys.readouterr().err
    assert "--noise" in said
    assert "temporary files" not in said


def test_partition_folders(tmp_path, capsys):
    for shop, part in table().groupby("shop"):
        folder = tmp_path / "t" / f"shop={shop}"
        folder.mkdir(parents=True)
        part.drop(columns="shop").to_parquet(folder / "part.parquet", index=False)
    fit_both(tmp_path / "t", tmp_path, *ROLES, *FEATURES, capsys=capsys)


def test_pieces_of_one_row(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(table_pieces, "PIECE_ROWS", 1)
    fit_both(to_folder(table(90), tmp_path / "t"), tmp_path, *ROLES, *FEATURES, capsys=capsys)


BAD = {
    "gaps": (with_gaps(table(), GAPS), (*ROLES, *FEATURES)),
    "levels": (table(), (*ROLES, "--features", "x,z", "--categories", "z,x")),
    "exposure": (table().assign(hours=-1.0), CASES["counts"]),
    "empty_column": (table().assign(x=np.nan), (*ROLES, *FEATURES, "--missing", "impute")),
    "nothing_left": (table().assign(x=np.nan), (*ROLES, *FEATURES, "--missing", "drop")),
    "too_few": (table(30).assign(item=np.arange(30)), (*ROLES, *FEATURES, "--hold-out", 0.2)),
}


@pytest.mark.parametrize("case", BAD)
def test_errors_are_those_in_memory(case, tmp_path, capsys):
    frame, options = BAD[case]
    folder, said = to_folder(frame, tmp_path / "t"), []
    for how in ("--in-memory", "--stream"):
        assert call("fit", folder, *QUICK, *options, how, "--quiet", "--out", tmp_path / "m") == BAD_DATA
        said.append(capsys.readouterr().err)
    assert said[0] == said[1]
    assert not (tmp_path / "m.build").exists()


def test_fit_files_is_fit(tmp_path):
    frame = table()
    folder = to_folder(frame, tmp_path / "t")
    settings = {"n_sweeps": 6, "max_clusters": 4}
    model = fedhlcr.HLCRRegressor(**settings)
    model.fit_files(folder, target="y", agent="shop", entity="item", features=["x", "z"], folder=tmp_path / "work")
    again = fedhlcr.HLCRRegressor(**settings).fit(frame[["x", "z", "shop", "item"]], frame["y"], "shop", "item")
    assert np.array_equal(model.predict(frame), again.predict(frame[["x", "z", "shop", "item"]]))
    assert model.pair_ids_ == again.pair_ids_
    assert not (tmp_path / "work").exists()
    classifier = fedhlcr.HLCRClassifier(**settings).fit_files(folder, target="won", entity="item", features=["x"])
    assert classifier.classes_.tolist() == ["no", "yes"]
    with pytest.raises(ValueError, match="exposure"):
        model.fit_files(folder, target="y", entity="item", exposure="hours")


def test_fit_files_takes_categories_and_gaps_from_the_estimator(tmp_path):
    frame = table().assign(kind=np.resize(["a", "b", "c"], len(table())))
    frame.loc[3, "x"] = np.nan
    columns = ["x", "kind", "shop", "item", "y"]
    folder = to_folder(frame[columns], tmp_path / "t")
    settings = {"n_sweeps": 6, "max_clusters": 4, "categories": ["kind"], "missing": "impute"}
    model = fedhlcr.HLCRRegressor(**settings).fit_files(folder, target="y", agent="shop", entity="item")
    again = fedhlcr.HLCRRegressor(**settings).fit(frame[columns], "y", "shop", "item")
    assert list(model.feature_names_in_) == ["x", "kind=a", "kind=b", "kind=c"]
    np.testing.assert_allclose(model.coef_, again.coef_)
    np.testing.assert_allclose(model.predict(frame[columns]), again.predict(frame[columns]))


# A process that ends itself after so many checkpoints or deletions, as if it were killed there.
KILLED = """
import os, signal, sys
from fedhlcr.cli import run
from fedhlcr.data import table_pieces
from fedhlcr.data.streaming import event_sorter, work_folder
table_pieces.PIECE_ROWS, event_sorter.BUCKET_BYTES, work_folder.BETWEEN_CHECKPOINTS = 37, 3000, -1.0
left, os_replace, append = int(sys.argv[1]), os.replace, work_folder.WorkFolder.append

def ending(function):
    def counted(*arguments):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments)
    return counted

work_folder.os.replace, work_folder.WorkFolder.append = ending(os_replace), ending(append)
sys.exit(run(sys.argv[2:]))
"""


@pytest.mark.slow
@pytest.mark.ci
def test_killed_anywhere_and_started_again_gives_the_same_model(tmp_path):
    folder = to_folder(with_gaps(table(), ("x", "kind")), tmp_path / "t")
    options = (
        *ROLES,
        "--features",
        "x,kind",
        "--categories",
        "kind",
        "--missing",
        "impute",
        "--hold-out",
        0.2,
        *QUICK,
    )
    arguments = [str(argument) for argument in ("fit", folder, *options, *QUICK, "--stream")]
    assert call(*arguments, "--quiet", "--out", tmp_path / "whole") == 0
    rng, n_kills, killed_at = np.random.default_rng(5), 0, []
    while True:
        # every process comes a little further than the one before
        steps = int(rng.integers(15, 60))
        command = [sys.executable, "-c", KILLED, str(steps), *arguments, "--out", str(tmp_path / "parts"), "--quiet"]
        code = subprocess.run(command, check=False, env=os.environ).returncode
        if code == 0:
            break
        assert code == -signal.SIGKILL
        killed_at.append(steps)
        n_kills += 1
        assert n_kills < 40
    assert n_kills >= 3
    require_same_model(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.parametrize("steps", [3, 40, 77, 111, 140])
def test_interrupted_build_goes_on(steps, tmp_path, monkeypatch, capsys):
    folder = to_folder(table(), tmp_path / "t")
    arguments = ("fit", folder, *ROLES, *FEATURES, *QUICK, "--noise", "student", "--stream")
    assert call(*arguments, "--out", tmp_path / "whole", "--quiet") == 0
    append, left = work_folder.WorkFolder.append, [steps]

    def interrupted(*given):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return append(*given)

    monkeypatch.setattr(work_folder.WorkFolder, "append", interrupted)
    assert call(*arguments, "--out", tmp_path / "parts") == 130
    assert "the same command goes on" in capsys.readouterr().err
    monkeypatch.setattr(work_folder.WorkFolder, "append", append)
    assert call(*arguments, "--out", tmp_path / "parts") == 0
    assert "resuming" in capsys.readouterr().err
    require_same_model(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.parametrize("steps", [5, 60, 120])
def test_full_disk_ends_in_one_line(steps, tmp_path, monkeypatch, capsys):
    folder = to_folder(table(), tmp_path / "t")
    append, left = work_folder.WorkFolder.append, [steps]

    def full(*given):
        left[0] -= 1
        if left[0] == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return append(*given)

    monkeypatch.setattr(work_folder.WorkFolder, "append", full)
    arguments = ("fit", folder, *ROLES, *FEATURES, *QUICK, "--stream", "--quiet", "--out", tmp_path / "m")
    assert call(*arguments) == NO_OUTPUT
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "the disk is full" in said
    assert call(*arguments) == 0


def test_disk_without_enough_space_is_refused_first(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(work_folder.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000})())
    folder = to_folder(table(), tmp_path / "t")
    arguments = ("fit", folder, *ROLES, *FEATURES, *QUICK, "--stream", "--quiet", "--out", tmp_path / "m")
    assert call(*arguments) == NO_OUTPUT
    assert "GB are needed" in capsys.readouterr().err


def test_other_options_start_again_and_foreign_folders_stay(tmp_path, monkeypatch, capsys):
    folder = to_folder(table(), tmp_path / "t")
    start = ("fit", folder, *ROLES, *QUICK, "--stream", "--out", tmp_path / "m")
    with monkeypatch.context() as patch:
        patch.setattr(event_sorter.EventSorter, "sort", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert call(*start, "--features", "x") == 130
    assert call(*start, "--features", "x,z") == 0
    assert "starting again" in capsys.readouterr().err
    (tmp_path / "m.build").mkdir()
    (tmp_path / "m.build" / "letter.txt").write_text("mine")
    assert call(*start, "--features", "x") == NO_OUTPUT
    assert "holds something else" in capsys.readouterr().err
    assert (tmp_path / "m.build" / "letter.txt").exists()


def test_changed_file_starts_again(tmp_path, monkeypatch, capsys):
    folder = to_folder(table(), tmp_path / "t")
    arguments = ("fit", folder, *ROLES, *FEATURES, *QUICK, "--stream", "--out", tmp_path / "m")
    with monkeypatch.context() as patch:
        patch.setattr(event_sorter.EventSorter, "sort", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert call(*arguments) == 130
    time.sleep(0.01)
    to_folder(table(seed=9), tmp_path / "t")
    assert call(*arguments) == 0
    assert "starting again" in capsys.readouterr().err
    assert call("fit", folder, *ROLES, *FEATURES, *QUICK, "--in-memory", "--out", tmp_path / "memory") == 0
    require_same_model(tmp_path / "m", tmp_path / "memory")


def test_another_family_starts_again(tmp_path, monkeypatch, capsys):
    folder = to_folder(table(), tmp_path / "t")
    arguments = ("fit", folder, "--target", "visits", *ROLES[2:], *FEATURES, *QUICK)
    with monkeypatch.context() as patch:
        # all matrices are there when the first fit ends
        patch.setattr(central, "_run_chains", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert call(*arguments, "--family", "real", "--stream", "--out", tmp_path / "m") == 130
    assert call(*arguments, "--family", "count", "--stream", "--out", tmp_path / "m") == 0
    assert "starting again" in capsys.readouterr().err
    assert call(*arguments, "--family", "count", "--in-memory", "--out", tmp_path / "memory") == 0
    require_same_model(tmp_path / "m", tmp_path / "memory")


def test_file_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch, capsys):
    folder = to_folder(table(), tmp_path / "t")
    codes = stream_reader.PairCodes.codes

    def meanwhile(*given):
        time.sleep(0.01)
        next(folder.rglob("*.parquet")).touch()
        return codes(*given)

    monkeypatch.setattr(stream_reader.PairCodes, "codes", meanwhile)
    assert call("fit", folder, *ROLES, *FEATURES, *QUICK, "--stream", "--out", tmp_path / "m") != 0
    assert "has changed while it was read" in capsys.readouterr().err
    assert not (tmp_path / "m.build").exists()


def test_large_table_is_streamed_by_itself(tmp_path, monkeypatch, capsys):
    from fedhlcr.cli import events

    folder = to_folder(table(), tmp_path / "t")
    arguments = ("fit", folder, *ROLES, *FEATURES, *QUICK, "--out", tmp_path / "m")
    assert call(*arguments) == 0
    assert "temporary files" not in capsys.readouterr().err
    monkeypatch.setattr(events, "LARGE_TABLE", 1000)
    assert call(*arguments, "--progress") == 0
    said = capsys.readouterr().err
    assert "sorted in temporary files" in said
    for step in ("pass 1 of 2, reading", "pass 2 of 2, sorting", "pass 2 of 2, matrices", "sampling"):
        assert step in said
