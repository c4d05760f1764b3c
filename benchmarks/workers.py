"""Seconds of a round of a federation on one, two and four Ray workers of this machine: what a cluster shortens."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from benchmarks.cost import timing
from benchmarks.problems import NOISE_SCALE, hierarchy_of
from benchmarks.report import Findings, Options, say, skipped
from benchmarks.timing import Call, Side, samples
from fedhlcr._support.threads import available_threads
from fedhlcr.data.hierarchy import Hierarchy
from fedhlcr.datasets import make_hlcr
from fedhlcr.federation import Engine, FederationSettings, GramLayout
from fedhlcr.federation.run import run_round, server_for

WORKERS = (1, 2, 4)
N_AGENTS, N_FEATURES, N_CLUSTERS = 4_000, 8, 8
SETTLING_ROUNDS = 20
ENGINE = "fedhlcr.engines.ray"


def run(options: Options) -> Findings:
    if find_spec("ray") is None or find_spec(ENGINE) is None:
        return Findings(rows=[skipped("rounds by Ray workers", "Ray is not installed (pip install '.[ray]')")])
    n_agents = N_AGENTS // 8 if options.quick else N_AGENTS
    table, _ = make_hlcr(n_agents, 8, 10, N_FEATURES, N_CLUSTERS, NOISE_SCALE, random_state=options.seed)
    hierarchy = hierarchy_of(table)
    # more workers than cores would only show that they wait for each other
    counts = [count for count in WORKERS if count <= available_threads()]
    found = [_rounds(hierarchy, count, options) for count in counts]
    shape: dict[str, float] = {"events": len(table), "entities": hierarchy.index.n_entities, "agents": n_agents}
    shape |= {"features": N_FEATURES, "clusters": N_CLUSTERS}
    timings = [
        timing("round", "workers", shape | {"workers": count}, times)
        for count, times in zip(counts, found, strict=True)
    ]
    say(
        "workers", ", ".join(f"{count}: {1e3 * own.seconds:.1f} ms" for count, own in zip(counts, timings, strict=True))
    )
    return Findings(timings=timings)


def _rounds(hierarchy: Hierarchy, n_workers: int, options: Options) -> list[float]:
    """Seconds of single rounds on a cluster of its own, which is stopped afterwards."""
    cluster = import_module(ENGINE).RayCluster(n_workers=n_workers)
    engine = cluster(hierarchy, failure_rate=0.0, seed=options.seed, n_threads=1)
    try:
        (times,) = samples(Side(_round(engine)), rounds=3 if options.quick else 6, batch_seconds=0.5)
    finally:
        engine.close()
    return times


def _round(engine: Engine) -> Call:
    """The next round of a run that has settled."""
    settings = FederationSettings(GramLayout(N_FEATURES), n_clusters=N_CLUSTERS, rounds=10**6, patience=None)
    server = server_for(settings, engine)
    while server.round < SETTLING_ROUNDS:
        run_round(server, engine)
    return lambda: run_round(server, engine)
