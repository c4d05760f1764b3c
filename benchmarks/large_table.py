"""Write a large table as a folder of Parquet files whose rows are in random order: XL of the benchmarks.

    python -m benchmarks.large_table FOLDER N_AGENTS SEED

Every agent has 16 entities of 10 events on average; 8 features, 8 clusters. In a process of its own, because it needs
more memory than what is measured. Prints the sizes of the table.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.problems import NOISE_SCALE
from fedhlcr.datasets import make_hlcr

ENTITIES_PER_AGENT, EVENTS_PER_ENTITY, N_FEATURES, N_CLUSTERS = 16, 10, 8, 8
N_FILES = 20


def main() -> None:
    folder, n_agents, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    folder.mkdir(parents=True)
    table, truth = make_hlcr(
        n_agents, ENTITIES_PER_AGENT, EVENTS_PER_ENTITY, N_FEATURES, N_CLUSTERS, NOISE_SCALE, random_state=seed
    )
    order = np.random.default_rng(seed).permutation(len(table))
    for number, rows in enumerate(np.array_split(order, N_FILES)):
        pq.write_table(table[rows].to_arrow(), folder / f"part-{number:03d}.parquet")
    print(json.dumps({"n_agents": n_agents, "n_entities": len(truth.labels), "n_events": len(table)}))


if __name__ == "__main__":
    main()
