"""The tables of the league, their splits, and the figures of lme4 (lmer, glmer) on these."""

from __future__ import annotations

import csv
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from experiments.data import find_data

if TYPE_CHECKING:
    from fedhlcr.datasets.hierarchical import HierarchicalData

FOLDER = "league"
TABLES = ("gapminder", "hsb82", "star", "nlswork", "cigar", "pbcseq", "blackmore", "birthdays", "storms")
BINARY, COUNTS = ("verbagg", "toenail"), ("owls", "randhie")
# All training events of an entity, or at most four; some tables have few events anyway.
REGIMES = ("full", "few")
TRAIN, TEST = 1, 2


def load(name: str, regime: str, split: int) -> tuple[HierarchicalData, HierarchicalData]:
    """Training and test events; texts become columns of zeros and ones."""
    import pyarrow.parquet as pq

    from fedhlcr.datasets.hierarchical import HierarchicalData

    table = pq.read_table(find_data(f"{FOLDER}/{name}.parquet"))
    splits = {f"{kind}{number}" for kind in REGIMES for number in range(5)}
    names = [column for column in table.column_names if column not in {"agent", "entity", "target", *splits}]
    columns = [part for column in names for part in _encoded(column, table[column].to_numpy(zero_copy_only=False))]
    X = np.column_stack([values for _, values in columns])
    agent, entity = (table[column].to_numpy(zero_copy_only=False) for column in ("agent", "entity"))
    whole = HierarchicalData(X, table["target"].to_numpy().astype(float), agent, entity, tuple(n for n, _ in columns))
    part = table[f"{regime}{split}"].to_numpy()
    return whole[np.flatnonzero(part == TRAIN)], whole[np.flatnonzero(part == TEST)]


def _encoded(name: str, values: NDArray[Any]) -> list[tuple[str, NDArray[np.float64]]]:
    """A column of numbers as it is, one of texts as a column for each text but the first."""
    if np.issubdtype(values.dtype, np.number) or values.dtype == bool:
        return [(name, values.astype(float))]
    texts = values.astype(str)
    return [(f"{name}={text}", (texts == text).astype(float)) for text in np.unique(texts)[1:]]


@cache
def known_figures(column: str = "r2") -> dict[tuple[str, str, int, str], float]:
    """A figure of lme4 and other methods by table, regime, split and method: r2, logloss, auc or pois_dev."""
    with find_data(f"{FOLDER}/by_split.csv").open() as file:
        return {
            (row["table"], row["regime"], int(row["split"]), row["method"]): float(row[column])
            for row in csv.DictReader(file)
            if row[column]
        }


def is_played(name: str, regime: str, split: int) -> bool:
    return (name, regime, split, "lme4") in known_figures()
