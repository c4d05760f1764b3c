"""Totals of a private run under secure aggregation: every agent adds its share of the noise, so nobody need be trusted.

The noise of the total is the sum of the shares of all agents that take part to the end. Each share is as large as if
only FEWEST of the agents did, and the parties of the secure sum refuse to unmask the total of fewer. So the total never
has less noise than the plan says, and usually a little more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import IndexArray
from fedhlcr.exceptions import FederationError
from fedhlcr.federation.private.queries import Query
from fedhlcr.privacy.noise import NoiseSource, discrete_gaussian
from fedhlcr.privacy.party import Party
from fedhlcr.privacy.release import agent_noise
from fedhlcr.privacy.secure_sum import SecureSum
from fedhlcr.privacy.terms import FEWEST_PARTIES, Terms

# The share of the agents that must take part in a total to the end.
FEWEST = 0.9


class SecureTotals:
    """Adds up the agents' vectors under masks, in one process in which all agents act honestly.

    Parameters
    ----------
    run : number of the run
    n_agents : number of all agents
    source : of the noise; only tests pass another one
    """

    def __init__(self, run: int, n_agents: int, source: NoiseSource = discrete_gaussian) -> None:
        self.n_shares = max(math.ceil(FEWEST * n_agents), FEWEST_PARTIES)
        self._run, self._source = run, source
        self._n_totals = 0

    def __call__(self, query: Query, pages: Iterable[tuple[IndexArray, NDArray[np.int64]]]) -> NDArray[np.int64]:
        """The noisy total of one query."""
        vectors = {str(agent): vector for agents, page in pages for agent, vector in zip(agents, page, strict=True)}
        size = sum(block.size for block in query.blocks)
        # every total has an epoch of its own, so that no two share keys
        self._n_totals += 1
        terms = Terms(self._run, 0, self._n_totals, query.number, size, self.n_shares)
        parties = {name: Party(name, terms) for name in vectors}
        exchange = SecureSum(terms, sorted(parties))
        messages = exchange.begin()
        while messages:
            replies = {
                name: parties[name].handle(message, partial(self._hidden, query, vectors[name]))
                for name, message in messages.items()
            }
            messages = exchange.proceed(replies)
        if exchange.result is None:
            raise FederationError(
                f"the total of a private round needs {self.n_shares} agents, {FEWEST:.0%} of all, to the end: "
                f"{exchange.void_reason} Run it when more agents are present."
            )
        return exchange.result.values.view(np.int64)

    def _hidden(self, query: Query, vector: NDArray[np.int64]) -> NDArray[np.uint64]:
        """An agent's vector with its share of the noise."""
        return (vector + agent_noise(query.blocks, self.n_shares, self._source)).view(np.uint64)
