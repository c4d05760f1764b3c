"""Workers build the driver's events from the table's files: the same rows, in the same order, with the same digits."""

from __future__ import annotations

import pickle
import shutil
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest

from fedhlcr.analysis.fit_comparison import take_sample
from fedhlcr.data import table_pieces
from fedhlcr.data.hierarchy import build_hierarchy
from fedhlcr.data.hold_out import hold_out_events
from fedhlcr.data.recipe_plan import plan_recipe
from fedhlcr.data.table_files import open_table
from fedhlcr.data.table_pieces import ParquetPart
from fedhlcr.engines.ray.parts import TablePart, share_out
from fedhlcr.estimators.files import HeldOutShare, open_work, read_table
from fedhlcr.estimators.sharing import SharedTable
from fedhlcr.exceptions import FileError
from fedhlcr.storage import scratch


@pytest.fixture(scope="module")
def frame():
    rng, n = np.random.default_rng(0), 900
    frame = pd.DataFrame(
        {
            "shop": rng.choice([f"shop {i}" for i in range(30)], n),
            "item": rng.integers(0, 4, n),
            "price": rng.normal(size=n).round(3),
            "colour": rng.choice(["red", "blue", "green"], n),
            "days": rng.uniform(1, 9, n),
            "bought": rng.choice(["yes", "no"], n),
            "sold": rng.poisson(3.0, n).astype(float),
        }
    )
    frame.loc[rng.random(n) < 0.1, "price"] = np.nan
    frame.loc[rng.random(n) < 0.1, "colour"] = None
    frame.loc[rng.random(n) < 0.05, "sold"] = np.nan
    return frame


def written(frame, folder, kind):
    if kind == "csv":
        frame.to_csv(folder / "table.csv", index=False)
        return folder / "table.csv"
    path = folder / "table"
    path.mkdir()
    # the last file has the last shops only
    order = frame.sort_values("shop", kind="stable") if kind == "sorted" else frame
    for number in range(3):
        order.iloc[300 * number : 300 * (number + 1)].to_parquet(path / f"{number}.parquet", index=False)
    return path


def planned(file, **plan):
    return plan_recipe(
        file,
        agent="shop",
        entity="item",
        features=["price", "colour"],
        categorical=["colour"],
        **{"target": "sold", "missing": "drop", **plan},
    )


def in_memory(path, share, **plan):
    """The events that are fitted, as the driver would read them at once."""
    recipe = planned(file := open_table(path), **plan)
    recipe, prepared = recipe.learn(recipe.read(file, target=True))
    if share:
        ids = prepared.table.ids
        prepared = prepared.take(hold_out_events(ids["shop"], ids["item"], fraction=share, random_state=3)[0])
    ids, target = prepared.table.ids, prepared.target
    y = (target == "yes").astype(float) if recipe.classes else target.astype(float)
    offset = None if prepared.exposure is None else np.log(prepared.exposure)
    return build_hierarchy(prepared.table.matrix, y, np.ones(len(y)), ids["shop"], ids["item"], offset)


@contextmanager
def shared(path, folder, share=0.0, **plan):
    """The table after the driver's first pass."""
    recipe, hold_out = planned(file := open_table(path), **plan), HeldOutShare(share, 3)
    with open_work(folder / "work", file, recipe, {}, hold_out) as work:
        events = read_table(file, recipe, work, hold_out, shows_progress=False).events
        events.read_target = lambda target: target
        yield SharedTable(events), events


@pytest.mark.parametrize("kind", ["csv", "scattered", "sorted"])
@pytest.mark.parametrize(
    "plan",
    [{}, {"missing": "impute"}, {"target": "bought", "has_classes": True}, {"exposure": "days", "share": 0.3}],
    ids=["real", "imputed", "classes", "held out"],
)
def test_workers_read_the_drivers_events(frame, tmp_path, kind, plan, monkeypatch):
    monkeypatch.setattr(table_pieces, "PIECE_ROWS", 70)
    monkeypatch.setattr(scratch, "LARGE", 0)
    path = written(frame, tmp_path, kind)
    hierarchy = in_memory(path, **{"share": 0.0, **plan})
    ranges = share_out(hierarchy.index.agent_start, 4)
    with shared(path, tmp_path, **plan) as (table, events):
        parts = table.parts(ranges)
        np.testing.assert_array_equal(table.sample.y, take_sample(hierarchy).y)
        np.testing.assert_array_equal(table.sample.X, take_sample(hierarchy).X)
        assert bool(events.sorter.held_out.sizes.sum()) == ("share" in plan)
    for agents, part in zip(ranges, parts, strict=True):
        read, expected = pickle.loads(pickle.dumps(part)).load(), TablePart.of(hierarchy, agents).load()
        for name in ("X", "y", "weight", "event_start", "offset"):
            np.testing.assert_array_equal(getattr(read, name), getattr(expected, name))
        assert list(read.index.agents.texts) == list(expected.index.agents.texts)
        np.testing.assert_array_equal(read.index.entity_keys, expected.index.entity_keys)


def test_only_files_with_own_agents_are_read(frame, tmp_path, monkeypatch):
    path = written(frame, tmp_path, "sorted")
    with shared(path, tmp_path) as (table, events):
        part = table.parts(share_out(events.index.agent_start, 4))[0]
    read, opened = ParquetPart.read, []
    monkeypatch.setattr(ParquetPart, "read", lambda self, *args: opened.append(self.path.name) or read(self, *args))
    part.load()
    assert set(opened) == {"0.parquet"}


def test_a_table_that_a_node_lacks_is_named(frame, tmp_path):
    path = written(frame, tmp_path, "scattered")
    with shared(path, tmp_path) as (table, events):
        part = table.parts([range(events.index.n_agents)])[0]
    shutil.move(path, tmp_path / "elsewhere")
    with pytest.raises(FileError, match=r"a worker on node '.+': 'table' does not exist.* shared file system"):
        part.load()


@pytest.mark.parametrize("change", ["value", "rows", "more", "gap", "level", "entity"])
def test_files_that_have_changed_are_refused(frame, tmp_path, change):
    path = written(frame, tmp_path, "scattered")
    with shared(path, tmp_path) as (table, events):
        part = table.parts(share_out(events.index.agent_start, 2))[0]
    other = pd.read_parquet(path / "1.parquet")
    if change == "value":
        other["price"] += 1.0
    elif change == "gap":
        other["price"] = np.nan
    elif change == "level":
        other["colour"] = "pink"
    elif change == "entity":
        other["item"] = other["item"].to_numpy()[::-1]
    else:
        other = pd.concat([other, other]) if change == "more" else other.iloc[:10]
    other.to_parquet(path / "1.parquet", index=False)
    with pytest.raises(FileError, match="has read other events from 'table' than the driver"):
        part.load()
