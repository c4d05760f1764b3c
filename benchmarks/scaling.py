"""Fit time of ten times the agents over that of one times, at a fixed number of sweeps."""

from __future__ import annotations

from itertools import pairwise

from benchmarks.report import Options, Row, at_most, say
from benchmarks.timing import Side, alternate
from fedhlcr import HLCRRegressor
from fedhlcr.datasets import make_hlcr

BOUND = 12
N_AGENTS = (300, 3000, 30000)
N_CLUSTERS, N_SWEEPS = 8, 30
BATCH_SECONDS = 1.0


def run(options: Options) -> list[Row]:
    sizes = N_AGENTS[:2] if options.quick else N_AGENTS
    sides = [fit_of(n_agents, options) for n_agents in sizes]
    seconds = alternate(*sides, rounds=3 if options.quick else 5, batch_seconds=BATCH_SECONDS)
    say("scaling", ", ".join(f"{n} agents {own:.3f} s" for n, own in zip(sizes, seconds, strict=True)))
    return [
        at_most(f"fit of {n_many} agents, time over that of {n_few}", many / few, BOUND)
        for (n_few, few), (n_many, many) in pairwise(zip(sizes, seconds, strict=True))
    ]


def fit_of(n_agents: int, options: Options) -> Side:
    """The fit of a table of so many agents."""
    table, _ = make_hlcr(n_agents, 8, 5, 7, N_CLUSTERS, 0.5, random_state=options.seed)
    model = HLCRRegressor(n_clusters=N_CLUSTERS, n_sweeps=N_SWEEPS, n_threads=options.threads)
    return Side(lambda: model.fit(table.X, table.y, agent=table.agent, entity=table.entity))
