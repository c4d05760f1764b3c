"""The loop of a private run in one process: ask, add up, add noise, take in.

Who adds the noise:

    aggregation="plain"    the server. It sees every agent's clipped vectors, so agents must trust it to add the noise
                           and to forget the vectors. Others see only what is noisy.
    aggregation="secure"   each agent adds a share of the noise and hides its vector under masks, `privacy.secure_sum`.
                           The server sees the noisy total only, so agents need not trust it. Shares are made so
                           large that the noise suffices if SURVIVING of the agents remain; with fewer, the sum is void.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import IndexArray
from fedhlcr.exceptions import FederationError
from fedhlcr.federation.history import RoundRecord
from fedhlcr.federation.private.agents import PrivateAgents
from fedhlcr.federation.private.queries import Query
from fedhlcr.federation.private.server import PrivateServer
from fedhlcr.privacy.noise import NoiseSource, discrete_gaussian
from fedhlcr.privacy.release import agent_noise, server_noise

logger = logging.getLogger(__name__)

Pages = Iterable[tuple[IndexArray, NDArray[np.int64]]]
# Adds up the agents' vectors, page by page, and the noise; None if too few agents remained.
Aggregate = Callable[[Query, Pages], NDArray[np.int64] | None]
# The share of the agents that must remain in a secure sum.
SURVIVING = 0.8
# How often a sum is asked for if it is void each time.
MOST_TRIES = 5


def plain_total(query: Query, pages: Pages, source: NoiseSource = discrete_gaussian) -> NDArray[np.int64]:
    """The total of a trusted server, which sees the agents' clipped vectors and adds the noise."""
    total = server_noise(query.blocks, source)
    for _, vectors in pages:
        total += vectors.sum(axis=0)
    return total


class SecureTotals:
    """Totals of secure sums, all parties simulated honestly: every agent is a device of its own.

    Parameters
    ----------
    agents : names of all agents
    min_cohort : fewest agents whose sum may be learned
    source : of the agents' noise; only tests pass another one
    """

    def __init__(self, agents: Sequence[str], min_cohort: int, source: NoiseSource = discrete_gaussian) -> None:
        self._agents, self._source = agents, source
        self._fewest = max(min_cohort, math.ceil(SURVIVING * len(agents)))
        if self._fewest > len(agents):
            raise FederationError(
                f"a secure sum needs at least {self._fewest} agents, but there are {len(agents)}; add agents, or "
                "lower `min_cohort`."
            )
        self._session, self._n_sums = time.time_ns(), 0

    def __call__(self, query: Query, pages: Pages) -> NDArray[np.int64] | None:
        # here, because they need the extra `privacy`
        from fedhlcr.privacy.party import Party
        from fedhlcr.privacy.secure_sum import SecureSum
        from fedhlcr.privacy.terms import Terms

        size = sum(block.size for block in query.blocks)
        terms = Terms(query.run, self._session, 0, self._n_sums, size, self._fewest)
        self._n_sums += 1
        values = dict(self._noisy(query, pages))
        if len(values) < self._fewest:
            return None
        exchange = SecureSum(terms, sorted(values))
        parties, messages = {name: Party(name, terms) for name in values}, exchange.begin()
        while messages:
            own = {name: partial(values.__getitem__, name) for name in messages}
            messages = exchange.proceed(
                {name: parties[name].handle(text, own[name]) for name, text in messages.items()}
            )
        return None if exchange.result is None else exchange.result.values.view(np.int64)

    def _noisy(self, query: Query, pages: Pages) -> Iterator[tuple[str, NDArray[np.uint64]]]:
        """Each agent's vector with its share of the noise: what it hands to the secure sum."""
        for agents, vectors in pages:
            for agent, vector in zip(agents, vectors, strict=True):
                yield (
                    self._agents[agent],
                    (vector + agent_noise(query.blocks, self._fewest, self._source)).view(np.uint64),
                )


def run_private(
    server: PrivateServer,
    agents: PrivateAgents,
    *,
    failure_rate: float = 0.0,
    aggregate: Aggregate | None = None,
    progress: Callable[[RoundRecord], None] | None = None,
) -> None:
    """Ask all agents until the plan is done.

    An agent that fails is missing in the sums of that query, and in nothing else; the guarantee holds all the same. A
    void secure sum tells nothing, so it is asked for again, at no cost.
    """
    rng, n_void, positions = server.fault_generator(), 0, server.registry.find(agents.names)
    aggregate = aggregate or chosen_aggregate(server, agents.names)
    while not server.finished:
        query = server.query()
        present = np.flatnonzero(rng.random(len(agents.names)) >= failure_rate)
        total = aggregate(query, agents.answer(query, present))
        if total is None:
            n_void += 1
            logger.warning("a sum is void, and nothing is lost: too few of %d agents remained.", len(agents.names))
            if n_void >= MOST_TRIES:
                raise FederationError(
                    f"a secure sum was void {n_void} times in a row, because fewer than {SURVIVING:.0%} of the agents "
                    f"remained. The run ends after {server.round} of {server.plan.rounds} rounds, and what these have "
                    "released is spent. Run again when more agents can be reached, or use aggregation='plain'."
                )
            continue
        n_void = 0
        server.accept(total, positions[present])
        if progress is not None and query.number > 0:
            progress(server.history.records[-1])


def chosen_aggregate(server: PrivateServer, agents: Sequence[str]) -> Aggregate:
    """How the settings let totals be made: by a trusted server, or under masks."""
    if server.settings.is_secure:
        return SecureTotals(agents, server.settings.min_cohort)
    return plain_total
