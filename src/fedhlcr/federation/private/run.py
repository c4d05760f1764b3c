"""The loop of a private run: ask, add up, add noise, take in; and how agents in this process are asked.

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
from dataclasses import dataclass
from functools import partial
from typing import Protocol

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


@dataclass(frozen=True)
class QueryOutcome:
    """What came of a query.

    Attributes
    ----------
    total : noisy, in lattice units; None if there is none
    agents : whose vectors it holds
    is_spent : without a total, whether agents have sent their vectors, so that they must not answer the query again
    bytes_moved : sent down and up; None if nothing was sent
    reasons : without a total, why some did not take part
    """

    total: NDArray[np.int64] | None = None
    agents: Sequence[str] = ()
    is_spent: bool = False
    bytes_moved: tuple[int, int] | None = None
    reasons: Sequence[str] = ()


class Asking(Protocol):
    """Asks all agents that can be reached, and adds up their answers and the noise."""

    def prepare(self) -> None:
        """Wait until enough of them can be reached. Nothing is asked yet."""

    def ask(self, query: Query) -> QueryOutcome: ...


def fewest_remaining(n_parties: int, min_cohort: int) -> int:
    """How many of the parties that share the noise must remain in a secure sum."""
    return max(min_cohort, math.ceil(SURVIVING * n_parties))


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
        self._agents = agents
        self._source = source
        self._fewest = fewest_remaining(len(agents), min_cohort)
        if self._fewest > len(agents):
            raise FederationError(
                f"a secure sum needs at least {self._fewest} agents, but there are {len(agents)}; add agents, or "
                "lower `min_cohort`."
            )
        self._session = time.time_ns()
        self._n_sums = 0

    def __call__(self, query: Query, pages: Pages) -> NDArray[np.int64] | None:
        # here, because they need the extra `privacy`
        from fedhlcr.privacy.party import Party
        from fedhlcr.privacy.secure_sum import SecureSum
        from fedhlcr.privacy.terms import Terms

        terms = Terms(query.run, self._session, 0, self._n_sums, query.n_values, self._fewest)
        self._n_sums += 1
        values = dict(self._noisy(query, pages))
        if len(values) < self._fewest:
            return None
        exchange = SecureSum(terms, sorted(values))
        parties = {name: Party(name, terms) for name in values}
        messages = exchange.begin()
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


class AgentsHere:
    """Asks agents in this process. Each fails with probability `failure_rate`, and is missing in the sums of the query.

    Parameters
    ----------
    aggregate : adds up vectors and noise
    rng : draws who fails; needed only if somebody may
    """

    def __init__(
        self,
        agents: PrivateAgents,
        aggregate: Aggregate,
        failure_rate: float = 0.0,
        rng: np.random.Generator | None = None,
    ) -> None:
        self._agents = agents
        self._aggregate = aggregate
        self._failure_rate = failure_rate
        self._rng = rng or np.random.default_rng(0)

    @classmethod
    def of(cls, server: PrivateServer, agents: PrivateAgents, *, failure_rate: float = 0.0) -> AgentsHere:
        """As the settings of the server say."""
        return cls(agents, chosen_aggregate(server, agents.names), failure_rate, server.fault_generator())

    def prepare(self) -> None:
        """They are here."""

    def ask(self, query: Query) -> QueryOutcome:
        names = self._agents.names
        present = np.flatnonzero(self._rng.random(len(names)) >= self._failure_rate)
        total = self._aggregate(query, self._agents.answer(query, present))
        return QueryOutcome(total, [names[agent] for agent in present])


def run_private(
    server: PrivateServer, asking: Asking, *, progress: Callable[[RoundRecord], None] | None = None
) -> None:
    """Ask all agents until the plan is done.

    An agent that fails is missing in the sums of that query, and in nothing else; the guarantee holds all the same. A
    secure sum that is void before agents have sent their vectors tells nothing, so it is asked for again, at no cost.
    If they have sent them, they do not answer again: the round is spent, and the run goes on without it.
    """
    n_void = 0
    while not server.finished:
        query = server.query()
        asking.prepare()
        server.spend(query)
        outcome = asking.ask(query)
        if outcome.total is not None:
            server.accept(outcome.total, server.registry.register(outcome.agents), outcome.bytes_moved)
        elif outcome.is_spent:
            logger.warning("the sum of %s is lost, and its part of the budget is spent.", _name(query))
            server.skip(outcome.bytes_moved or (0, 0))
        else:
            n_void += 1
            server.take_back(query)
            _warn_of_void(server, n_void, outcome.reasons)
            continue
        n_void = 0
        if query.number == 0:
            logger.info("%s: %d agents answered.", _name(query), len(outcome.agents))
        elif progress is not None:
            progress(server.history.records[-1])


def _name(query: Query) -> str:
    return f"round {query.number}" if query.number else f"the {query.stage}"


def _warn_of_void(server: PrivateServer, n_void: int, reasons: Sequence[str]) -> None:
    """Say that a sum is void; raise an error if that has happened too often."""
    logger.warning("a sum is void, and nothing is lost: too few of %d agents remained.", server.plan.n_agents)
    if n_void >= MOST_TRIES:
        raise FederationError(
            f"a secure sum was void {n_void} times in a row, because fewer than {SURVIVING:.0%} of those who share the "
            f"noise remained. The run ends after {server.round} of {server.plan.rounds} rounds, and what these have "
            "released is spent. Run again when more of them can be reached. " + "; ".join(reasons)
        )


def chosen_aggregate(server: PrivateServer, agents: Sequence[str]) -> Aggregate:
    """How the settings let totals be made: by a trusted server, or under masks."""
    if server.settings.is_secure:
        return SecureTotals(agents, server.settings.min_cohort)
    return plain_total
