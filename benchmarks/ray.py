"""A round on a Ray cluster of this machine against the same round in one process."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

from benchmarks.problems import hierarchy_of
from benchmarks.report import Options, Row, at_most_unit, say, skipped
from benchmarks.timing import Side, alternate
from fedhlcr.datasets import make_hlcr
from fedhlcr.engines.in_process import InProcessEngine
from fedhlcr.engines.ray import RayCluster
from fedhlcr.federation import Engine, FederationSettings, GramLayout
from fedhlcr.federation.run import run_round, server_for

N_AGENTS, N_FEATURES, N_CLUSTERS = 1_000, 8, 8
N_WORKERS = 2
MOST_MILLISECONDS = 50
SETTLING_ROUNDS = 10


def run(options: Options) -> list[Row]:
    what = f"round of {N_AGENTS:,} agents on {N_WORKERS} Ray workers less that in one process"
    if find_spec("ray") is None:
        return [skipped(what)]
    table, _ = make_hlcr(N_AGENTS, 8, 5, N_FEATURES, N_CLUSTERS, 0.5, random_state=options.seed)
    hierarchy = hierarchy_of(table)
    settings = FederationSettings(GramLayout(N_FEATURES), n_clusters=N_CLUSTERS, rounds=10**6, patience=None)
    on_ray = RayCluster(n_workers=N_WORKERS)(hierarchy, failure_rate=0.0, seed=options.seed, n_threads=1)
    here = InProcessEngine.from_hierarchy(hierarchy, failure_rate=0.0, seed=options.seed, n_threads=1)
    try:
        sides = [Side(_round(settings, engine)) for engine in (on_ray, here)]
        seconds = alternate(*sides, rounds=4 if options.quick else 10, batch_seconds=0.5)
    finally:
        on_ray.close()
    on_two, alone = (1e3 * each for each in seconds)
    say("ray", f"{len(table):,} events: round on Ray {on_two:.1f} ms, in one process {alone:.1f} ms")
    return [at_most_unit(what, on_two - alone, MOST_MILLISECONDS, "ms")]


def _round(settings: FederationSettings, engine: Engine) -> Callable[[], object]:
    """The next round of a run that has settled."""
    server = server_for(settings, engine)
    while server.round < SETTLING_ROUNDS:
        run_round(server, engine)
    return lambda: run_round(server, engine)
