"""The real tables, and how they are split."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from experiments.data import find_data
from experiments.study import MissingDataError

if TYPE_CHECKING:
    from fedhlcr.datasets.hierarchical import HierarchicalData

ALL, FEW = "all", 8
# columns that are context, not features
CONTEXT = {"agent", "entity", "target", "doy", "week", "brand"}


@dataclass(frozen=True)
class Table:
    """What a table is called, what it is about, and its file; none if it is bundled."""

    title: str
    about: str
    file: str | None = None

    def is_here(self) -> bool:
        try:
            return self.file is None or find_data(self.file).exists()
        except MissingDataError:
            return False


TABLES = {
    "flights": Table("flights", "airline at an airport → route → flight"),
    "oj": Table("orange juice", "store → brand → week", "oj_store_brand_week.parquet"),
    "cheese": Table("cheese", "city → retailer → week", "cheese_city_retailer_week.parquet"),
    "chem97": Table("chemistry", "education authority → school → pupil", "chem97_lea_school_pupil.parquet"),
    "egsingle": Table("maths", "school → child → visit", "egsingle_school_child_visit.parquet"),
}
# those that are fitted in no time
SMALL = ("flights", "cheese", "egsingle")


def load(name: str) -> HierarchicalData:
    from fedhlcr.datasets import load_flights

    file = TABLES[name].file
    return load_flights() if file is None else read_parquet(find_data(file))


def read_parquet(path: Path) -> HierarchicalData:
    import pyarrow.parquet as pq

    from fedhlcr.datasets.hierarchical import HierarchicalData

    table = pq.read_table(path)
    return HierarchicalData.from_arrow(table, tuple(name for name in table.column_names if name not in CONTEXT))


def split_events(table: HierarchicalData, events: str | int, seed: int) -> tuple[HierarchicalData, HierarchicalData]:
    """Training and test events: a fifth of each entity's events is the test, whatever the number to train with.

    Parameters
    ----------
    events : "all", or how many training events of each entity are kept at most, drawn at random
    """
    from fedhlcr import hold_out_events

    train, test = hold_out_events(table.agent, table.entity, random_state=seed)
    if events != ALL:
        train = keep_few(table, train, int(events), seed)
    return table[train], table[test]


def keep_few(table: HierarchicalData, rows: NDArray[np.intp], most: int, seed: int) -> NDArray[np.intp]:
    """At most so many of the rows of each entity, ascending."""
    shuffled = np.random.default_rng(seed).permutation(rows)
    agent, entity = (np.unique(column, return_inverse=True)[1] for column in (table.agent, table.entity))
    pair = (agent * (entity.max() + 1) + entity)[shuffled]
    order = np.argsort(pair, kind="stable")
    first = np.searchsorted(pair[order], pair[order])
    return np.sort(shuffled[order[np.arange(len(order)) - first < most]])
