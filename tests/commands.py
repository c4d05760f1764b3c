"""What the tests of the commands share: a table of sales, ways to run commands, and bad tables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from fedhlcr.cli import run
from fedhlcr.cli.shell import BAD_DATA

COLUMNS = ("--target", "sales", "--agent", "store", "--entity", "product")


FIT = (*COLUMNS, "--categories", "promotion,season", "--sweeps", "40")


# the paper's model
PAPER = ("--effects", "none", "--noise", "common")


COMMAND = [sys.executable, "-c", "from fedhlcr.cli import main; main()"]


SECRET = "867.5309"


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


def call(*arguments) -> int:
    return run([str(argument) for argument in arguments])


def in_shell(*arguments, data=None, **more) -> subprocess.CompletedProcess:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, input=data, capture_output=True, check=False, timeout=120, **more)


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
