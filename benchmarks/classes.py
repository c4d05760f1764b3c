"""The default fit of a classifier against that of a regressor, on tables of the same shape and the same clusters."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.problems import N_CLUSTERS
from benchmarks.report import Options, Row, at_most, say
from fedhlcr import HLCRClassifier, HLCRRegressor
from fedhlcr.datasets import HierarchicalData, make_hlcr
from fedhlcr.datasets.synthetic import TargetKind

BOUND = 12
N_FEATURES = 16


def run(options: Options) -> list[Row]:
    n_agents = 1_000 if options.quick else 10_000
    seconds: dict[TargetKind, float] = {}
    sides: tuple[tuple[TargetKind, Any], ...] = (("real", HLCRRegressor), ("binary", HLCRClassifier))
    for target, estimator in sides:
        table, _ = make_hlcr(
            n_agents, 16, 10, N_FEATURES, N_CLUSTERS, balanced=True, target=target, random_state=options.seed
        )
        # compiles the kernels
        _fit(estimator(n_sweeps=60, n_threads=options.threads), table[table.agent < 20])
        start = time.perf_counter()
        model = _fit(estimator(n_threads=options.threads), table)
        seconds[target] = time.perf_counter() - start
        say(
            "classes",
            f"{target}: {16 * n_agents} entities of 10 events, {model.n_clusters_} clusters found, "
            f"{seconds[target]:.1f} s",
        )
    what = "fit of a classifier, time over that of a regressor's fit, 16 features"
    return [at_most(what, seconds["binary"] / seconds["real"], BOUND)]


def _fit(model: Any, table: HierarchicalData) -> Any:
    return model.fit(table.X, table.y, agent=table.agent, entity=table.entity)
