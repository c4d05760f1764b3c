"""Whether a private run adds the noise that its plan promises: large enough, and new in every round and every run.

`membership` audits the mechanism alone. This audits the run itself: small private federations with one and the same
seed are run to their end, and what each agent has sent is subtracted from every total that the server has received.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.data.hierarchy import build_hierarchy
from fedhlcr.datasets import make_hlcr
from fedhlcr.federation.private.agents import PrivateAgents
from fedhlcr.federation.private.queries import Query
from fedhlcr.federation.private.run import AgentsHere, Aggregate, chosen_aggregate, run_private
from fedhlcr.federation.private.server import PrivateServer
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.federation.shard import AgentShard
from fedhlcr.model.gram import GramLayout
from fedhlcr.privacy.differential_privacy import BLOCKS, DifferentialPrivacy
from fedhlcr.settings import AggregationName

N_AGENTS = 12
N_FEATURES = 2
N_RUNS = 4
# Standard errors by which a figure of sound noise may be off.
STANDARD_ERRORS = 4.0
# By block, the noise of a run: (rounds, numbers), in units of the planned standard deviation.
RunNoise = dict[str, FloatArray]


def _recorded(aggregate: Aggregate, noise: dict[str, list[FloatArray]]) -> Aggregate:
    """Add up as a run does, and keep the total less what agents have sent, by block, in `noise`."""

    def add_up(query: Query, pages: Iterable[tuple[IndexArray, NDArray[np.int64]]]) -> NDArray[np.int64] | None:
        pages = list(pages)
        total = aggregate(query, pages)
        if total is not None and query.number > 0:
            rest = (total - np.sum([vectors.sum(axis=0) for _, vectors in pages], axis=0)).astype(np.float64)
            ends = np.cumsum([block.size for block in query.blocks])[:-1]
            for block, part in zip(query.blocks, np.split(rest, ends), strict=True):
                noise[block.name].append(part / block.lattice_scale)
        return total

    return add_up


def record_noise(aggregation: AggregationName, n_runs: int = N_RUNS) -> list[RunNoise]:
    """The noise of a few runs that differ in nothing but their noise."""
    table, _ = make_hlcr(N_AGENTS, 8, 6, n_features=N_FEATURES, n_clusters=2, random_state=0)
    hierarchy = build_hierarchy(table.X, table.y, np.ones(len(table)), table.agent, table.entity)
    settings = FederationSettings(
        GramLayout(N_FEATURES), privacy=DifferentialPrivacy(3.0), aggregation=aggregation, n_clusters=4
    )
    assert settings.privacy is not None
    runs = []
    for _ in range(n_runs):
        agents = PrivateAgents(AgentShard.from_hierarchy(hierarchy), secret=1)
        server = PrivateServer(settings, settings.privacy.plan(N_AGENTS), agents.names)
        noise: dict[str, list[FloatArray]] = {name: [] for name in BLOCKS}
        run_private(server, AgentsHere(agents, _recorded(chosen_aggregate(server, agents.names), noise)))
        # clusters merge, so rounds differ in size: the last ones are the smallest
        size = {name: min(map(len, rounds)) for name, rounds in noise.items()}
        runs.append({name: np.array([part[: size[name]] for part in rounds]) for name, rounds in noise.items()})
    return runs


def find_faults(runs: list[RunNoise]) -> list[str]:
    """What is wrong with the noise of runs that have the same seed; nothing if the list is empty."""
    faults = []
    for name in BLOCKS:
        width = min(run[name].shape[1] for run in runs)
        noise = np.array([run[name][:, :width] for run in runs])
        if (noise**2).mean() < 1.0 - STANDARD_ERRORS * np.sqrt(2.0 / noise.size):
            faults.append(f"{name}: less noise than planned")
        if _agree(noise[:, 1:], noise[:, :-1]):
            faults.append(f"{name}: the same noise in several rounds")
        if _agree(noise[1:], noise[:-1]):
            faults.append(f"{name}: the same noise in runs with the same seed")
    return faults


def _agree(one: FloatArray, other: FloatArray) -> bool:
    """Whether two arrays are more alike than independent noise would be."""
    spread = np.sqrt((one**2).sum() * (other**2).sum())
    return bool(spread > 0.0 and abs((one * other).sum()) / spread > STANDARD_ERRORS / np.sqrt(one.size))


def audit_runs() -> list[str]:
    """All faults of the noise of private runs, with a trusted server and under secure aggregation."""
    plain = [f"trusted server, {fault}" for fault in find_faults(record_noise("plain"))]
    secure = [f"secure aggregation, {fault}" for fault in find_faults(record_noise("secure", n_runs=2))]
    return plain + secure
