"""A private run on Flower, at the server: queries go to all nodes, and noisy totals come back.

Who adds the noise:

    aggregation="plain"    the server. A node sends the sum of its agents' clipped vectors.
    aggregation="secure"   each node a share, to that sum, before it goes through a secure sum. A share is so large that
                           the noise suffices if only the fewest nodes remain whose sum can be revealed; every node
                           sees to that number itself, so that no server can make it add too little.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fedhlcr._support.wording import NODE
from fedhlcr.engines.flower.engine import FlowerEngine
from fedhlcr.engines.flower.tally import REFUSED
from fedhlcr.exceptions import CodecError, FederationError
from fedhlcr.federation.history import RoundRecord
from fedhlcr.federation.private.inquiry import Inquiry, read_sum
from fedhlcr.federation.private.queries import Query
from fedhlcr.federation.private.run import QueryOutcome, fewest_remaining, run_private
from fedhlcr.federation.private.server import PrivateServer
from fedhlcr.federation.run import carry
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.privacy.noise import NoiseSource, discrete_gaussian
from fedhlcr.privacy.release import server_noise
from fedhlcr.privacy.terms import Terms

logger = logging.getLogger(__name__)


def private_server(settings: FederationSettings, engine: FlowerEngine) -> PrivateServer:
    """The server of a private run with the agents that are ready. What the run will cost is logged."""
    assert settings.privacy is not None
    agents = [name for names in engine.present.values() for name in names]
    plan = settings.privacy.plan(len(agents))
    logger.info("%s", plan)
    if plan.warning:
        logger.warning("%s", plan.warning)
    return PrivateServer(settings, plan, agents)


def run_on_nodes(
    server: PrivateServer, engine: FlowerEngine, progress: Callable[[RoundRecord], None] | None = None
) -> None:
    """Ask the nodes until the plan is done. If the run ends early, the log says what it has spent."""
    try:
        run_private(server, NodesAsked(server, engine), progress=progress)
    except BaseException:
        logger.error("the private run ends early: %s.", server.spent)
        raise
    logger.info("%s.", server.spent)
    if server.warning:
        logger.warning("%s", server.warning)


class NodesAsked:
    """Asks all nodes that take part.

    Parameters
    ----------
    source : of the noise that a trusted server adds; only tests pass another one
    """

    def __init__(self, server: PrivateServer, engine: FlowerEngine, source: NoiseSource = discrete_gaussian) -> None:
        self._engine = engine
        self._plan = server.plan
        self._source = source
        self._session = time.time_ns()
        self._n_sums = 0
        self._is_secure = server.settings.is_secure
        self._fewest = fewest_remaining(len(engine.present), server.settings.min_cohort) if self._is_secure else 1
        then = "start another run; its budget adds to what this one has spent"
        engine.waiting = replace(engine.waiting, in_rounds=self._fewest, then=then)
        if self._is_secure:
            logger.info(
                "each node adds a share of the noise; at least %d of %s must remain in a sum.",
                self._fewest,
                NODE.count(len(engine.present)),
            )

    def prepare(self) -> None:
        self._engine.agents()

    def ask(self, query: Query) -> QueryOutcome:
        inquiry = Inquiry(self._session, self._plan, query)
        return self._secure(inquiry) if self._is_secure else self._plain(inquiry)

    def _plain(self, inquiry: Inquiry) -> QueryOutcome:
        query = inquiry.query
        engine = self._engine
        data = inquiry.to_bytes()
        agents_of = engine.begin_query(data)
        answered = list[str]()
        vectors = []
        replies = engine.ask_all(query.place, query.n_values)
        for party, reply in replies.items():
            try:
                vectors.append(read_sum(reply, inquiry, len(agents_of[party])))
            except CodecError as error:
                logger.warning("the answer of node %s is refused: %s", party, error)
            else:
                answered += agents_of[party]
        moved = len(data) * len(agents_of), sum(map(len, replies.values()))
        if vectors:
            total = np.sum(vectors, axis=0) + server_noise(query.blocks, self._source)
            return QueryOutcome(total, answered, bytes_moved=moved)
        if query.number == 0:
            raise FederationError(
                "no node has answered the query of the " + query.stage + ". " + "; ".join(engine.nodes.reasons())
            )
        # nodes may have answered in vain
        return QueryOutcome(is_spent=True, bytes_moved=moved)

    def _secure(self, inquiry: Inquiry) -> QueryOutcome:
        # here, because it needs the extra `privacy`
        from fedhlcr.privacy.secure_sum import SecureSum

        query = inquiry.query
        data = inquiry.to_bytes()
        self._n_sums += 1
        agents_of = self._engine.begin_query(data)
        terms = Terms(query.run, self._session, query.place, self._n_sums, query.n_values, self._fewest)
        exchange = SecureSum(terms, sorted(agents_of), self._engine.verify)
        moved = np.array([len(data) * len(agents_of), 0])
        carry(exchange, self._engine, lambda down, up: np.add(moved, (down, up), out=moved))
        down, up = moved.tolist()
        if exchange.result is None:
            logger.warning("there is no sum: %s", exchange.void_reason)
            reasons = self._engine.nodes.reasons()
            if not exchange.has_asked_for_values and (refusals := [text for text in reasons if REFUSED in text]):
                # they would refuse again
                raise FederationError("nodes refuse the privacy plan of the run. " + "; ".join(refusals))
            return QueryOutcome(is_spent=exchange.has_asked_for_values, bytes_moved=(down, up), reasons=reasons)
        agents = [agent for party in exchange.result.parties for agent in agents_of[party]]
        return QueryOutcome(exchange.result.values.view(np.int64), agents, bytes_moved=(down, up))
