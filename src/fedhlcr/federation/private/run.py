"""The loop of a private run in one process: ask, add up, add noise, take in."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import IndexArray
from fedhlcr.federation.history import RoundRecord
from fedhlcr.federation.private.agents import PrivateAgents
from fedhlcr.federation.private.queries import Query
from fedhlcr.federation.private.server import PrivateServer
from fedhlcr.privacy.noise import NoiseSource, discrete_gaussian
from fedhlcr.privacy.release import server_noise

# Adds up the agents' vectors, page by page, and the noise.
Aggregate = Callable[[Query, Iterable[tuple[IndexArray, NDArray[np.int64]]]], NDArray[np.int64]]


def plain_total(
    query: Query, pages: Iterable[tuple[IndexArray, NDArray[np.int64]]], source: NoiseSource = discrete_gaussian
) -> NDArray[np.int64]:
    """The total of a trusted server, which sees the agents' clipped vectors and adds the noise."""
    total = server_noise(query.blocks, source)
    for _, vectors in pages:
        total += vectors.sum(axis=0)
    return total


def run_private(
    server: PrivateServer,
    agents: PrivateAgents,
    *,
    failure_rate: float = 0.0,
    seed: int = 0,
    aggregate: Aggregate = plain_total,
    progress: Callable[[RoundRecord], None] | None = None,
) -> None:
    """Ask all agents until the plan is done. An agent that fails is missing in the sums of that query, nothing else."""
    rng = np.random.default_rng(seed)
    while not server.finished:
        query = server.query()
        present = np.flatnonzero(rng.random(len(agents.names)) >= failure_rate)
        server.accept(aggregate(query, agents.answer(query, present)), len(present))
        if progress is not None and query.number > 0:
            progress(server.history.records[-1])
