"""Held-out R² on real tables: `python -m benchmarks.real FOLDER`.

Every Parquet file of the folder with columns `agent`, `entity`, `target` and numeric features is fitted
with every setting at its default, a fifth of each entity's events held out. The flights are bundled.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from fedhlcr import HLCRRegressor, hold_out_events
from fedhlcr.baselines import GroupedRidge
from fedhlcr.datasets import load_flights
from fedhlcr.datasets.hierarchical import HierarchicalData
from fedhlcr.summary import text_table

# numeric columns that are context, not features
CONTEXT = {"agent", "entity", "target", "doy", "week", "brand"}


def read_table(path: Path) -> HierarchicalData:
    table = pq.read_table(path)
    return HierarchicalData.from_arrow(table, tuple(name for name in table.column_names if name not in CONTEXT))


def mean_scores(table: HierarchicalData, n_splits: int) -> tuple[list[float], list[int]]:
    """R² of one ridge, ridge per agent, ridge per entity and HLCR, and the clusters HLCR found."""
    scores, clusters = [], []
    for seed in range(n_splits):
        train_rows, test_rows = hold_out_events(table.agent, table.entity, random_state=seed)
        train, test = table[train_rows], table[test_rows]
        models = [*(GroupedRidge(level) for level in ("all", "agent", "entity")), HLCRRegressor(random_state=seed)]
        for model in models:
            model.fit(train.X, train.y, agent=train.agent, entity=train.entity)
        scores.append([m.score(test.X, test.y, agent=test.agent, entity=test.entity) for m in models])
        clusters.append(models[-1].n_clusters_)
    return np.mean(scores, axis=0).tolist(), clusters


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="folder of Parquet tables; without it, the flights only")
    parser.add_argument("--splits", type=int, default=3)
    arguments = parser.parse_args()
    tables = (
        {path.stem: read_table(path) for path in sorted(arguments.folder.glob("*.parquet"))} if arguments.folder else {}
    )
    rows = []
    for name, table in (tables or {"flights": load_flights()}).items():
        print(f"fitting {name} ...", flush=True)
        scores, clusters = mean_scores(table, arguments.splits)
        rows.append((name, *(f"{score:.3f}" for score in scores), ", ".join(map(str, clusters))))
    header = ("table", "one ridge", "ridge per agent", "ridge per entity", "HLCR", "clusters found")
    print("\n" + text_table(header, tuple(rows)))


if __name__ == "__main__":
    main()
