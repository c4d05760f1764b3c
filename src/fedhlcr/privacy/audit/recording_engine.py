"""Record what the server sees of a simulated federation, without any change to the federation."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr.engines.in_process import InProcessEngine
from fedhlcr.engines.simulated_parties import SimulatedParties
from fedhlcr.exceptions import FederationError
from fedhlcr.federation.block_sums import BlockReply
from fedhlcr.federation.fixed_accounts import FixedAccount
from fedhlcr.federation.fixed_sums import Integers
from fedhlcr.federation.messages import NEVER, SURVEY_ROUND, Broadcast, Contribution, Contributions
from fedhlcr.federation.open_round import Invitation, Reply
from fedhlcr.federation.rules import DeltaRule
from fedhlcr.federation.run import run_round
from fedhlcr.federation.server import Server
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.federation.shard import AgentShard
from fedhlcr.model.gram import GramLayout, Standardization
from fedhlcr.privacy.audit.vectors import HALF_UNIT, read_vector
from fedhlcr.privacy.audit.view import EVERYONE, NO_STATEMENT, ServerView, Statement
from fedhlcr.privacy.audit.wire import WireRound
from fedhlcr.privacy.terms import Terms
from fedhlcr.storage import codec


class KnownAgents(InProcessEngine):
    """Agents whose vectors of secure sums are kept, so that an auditor can look for them in messages.

    Attributes
    ----------
    hidden : by round, by agent, what it adds to the secure sum
    """

    def __init__(self, agents: AgentShard, *, failure_rate: float = 0.0, seed: int = 0, n_threads: int = 1) -> None:
        super().__init__(agents, failure_rate=failure_rate, seed=seed, n_threads=n_threads)
        self.hidden: list[Mapping[str, Integers]] = []

    def open_parties(self, call: Invitation) -> SimulatedParties:
        parties = super().open_parties(call)
        self.hidden.append(parties.vectors)
        return parties

    def secrets(self) -> Integers:
        """All numbers that single agents have hidden in secure sums."""
        return np.concatenate([vector for vectors in self.hidden for vector in vectors.values()])


@dataclass
class RecordingEngine:
    """An engine that keeps all that passes through it, and what the server has after each round.

    Attributes
    ----------
    inner : the engine that carries the messages, of agents in this process
    calls : invitations, one for each round
    replies : in plain mode, by the number of the call during which they arrived
    wire : in secure mode, the messages of each secure sum, those of the survey first
    totals : with sums in fixed point, the server's total after each round, as statements of EVERYONE
    """

    inner: InProcessEngine
    calls: list[Invitation] = field(default_factory=list)
    replies: list[tuple[int, Reply]] = field(default_factory=list)
    wire: list[WireRound] = field(default_factory=list)
    totals: list[Statement] = field(default_factory=list)

    def agents(self) -> Sequence[str]:
        return self.inner.agents()

    def deliver(self, call: Invitation) -> Iterator[Reply]:
        number = len(self.calls)
        self.calls.append(call)
        for reply in self.inner.deliver(call):
            self.replies.append((number, reply))
            yield reply

    def parties(self, call: Invitation) -> dict[str, list[str]]:
        self.calls.append(call)
        return self.inner.parties(call)

    def exchange(self, terms: Terms, messages: Mapping[str, bytes]) -> dict[str, bytes]:
        if not self.wire or self.wire[-1].terms != terms:
            self.wire.append(WireRound(terms, self.calls[-1].broadcast))
        replies = self.inner.exchange(terms, messages)
        self.wire[-1].requests.append(messages)
        self.wire[-1].replies.append({party: reply for party, reply in replies.items() if reply})
        return replies

    def n_copies(self, call: Invitation) -> int:
        return self.inner.n_copies(call)

    def to_record(self, forgotten: Collection[str] = ()) -> codec.Record:
        return self.inner.to_record(forgotten)

    def restore(self, record: codec.Record) -> None:
        self.inner.restore(record)

    def entity_grams(self, run: int, layout: GramLayout, units: Standardization) -> FloatArray:
        return self.inner.entity_grams(run, layout, units)

    def keep_total(self, server: Server) -> None:
        """Keep the total that the server has after a round, in the absolute coordinates in which agents report."""
        rule = server.rule
        broadcast = self.calls[-1].broadcast
        if not isinstance(rule, DeltaRule) or not isinstance(rule.account, FixedAccount):
            return
        if broadcast.cluster_of is None:
            return
        answered = server.registry.accepted_round[server.registry.accepted_round != NEVER]
        exact = {call.broadcast.round for call in self.calls if sums_events(call.broadcast)}
        since = NO_STATEMENT if rule.begins_afresh or not self.totals else self.totals[-1].round
        self.totals.append(
            read_vector(
                rule.account.integers(),
                rule.account.vectors,
                Statement.empty(broadcast.round, since, broadcast.cluster_of, is_exact=exact >= set(answered.tolist())),
            )
        )

    def view(self) -> ServerView:
        """What single agents have stated to the server in the rounds after the survey."""
        statements: dict[str, list[Statement]] = {}
        for number, reply in self.replies:
            for statement, agent in _statements(self.calls[number], reply):
                statements.setdefault(agent, []).append(statement)
        return ServerView(*self._units(), statements)

    def total_view(self) -> ServerView:
        """What the server knows of all agents together, as under secure aggregation."""
        return ServerView(*self._units(), {EVERYONE: self.totals}, HALF_UNIT)

    def _units(self) -> tuple[GramLayout, Standardization]:
        for call in reversed(self.calls):
            if call.broadcast.standardization is not None:
                return call.broadcast.layout, call.broadcast.standardization
        raise FederationError("no round after the survey was recorded; run more rounds.")


def _statements(call: Invitation, reply: Reply) -> Iterator[tuple[Statement, str]]:
    """The statements of a reply to this call, with the agents that made them. Late replies to others are left out."""
    broadcast = call.broadcast
    if broadcast.round == SURVEY_ROUND or broadcast.cluster_of is None:
        return
    since = dict(zip(call.agents, call.acknowledged.tolist(), strict=True))
    schema = broadcast.likelihood.sum_schema
    if isinstance(reply, bytes | bytearray | memoryview):
        reply = Contribution.from_bytes(bytes(reply))
    if reply.round != broadcast.round:
        return
    # nobody records a cluster, whose replies are sums
    assert not isinstance(reply, BlockReply)
    if isinstance(reply, Contribution):
        reply = Contributions.from_one(reply, broadcast.representative, schema)
    sums = reply.sums
    changed = sums.scalar("labels_changed")
    is_exact = sums_events(broadcast)
    for position, agent in enumerate(reply.agents):
        rows = slice(*sums.row_start[position : position + 2])
        yield (
            Statement(
                broadcast.round,
                since.get(agent, NO_STATEMENT),
                sums.clusters[rows],
                sums.entity_counts[rows].astype(np.float64),
                sums.grams[rows],
                float(changed[position]),
                broadcast.cluster_of,
                is_exact,
            ),
            agent,
        )


def sums_events(broadcast: Broadcast) -> bool:
    """Whether agents answer with sums of their events as they are.

    With effects or noise of entities they do so until these are switched on. Where events have weights they never do.
    """
    if broadcast.likelihood.needs_events:
        return False
    return bool(getattr(broadcast.law, "is_plain", True))


def record_run(
    settings: FederationSettings, engine: InProcessEngine, n_rounds: int | None = None
) -> tuple[Server, RecordingEngine]:
    """Run a federation to its end, or its first rounds only, and keep all that its server sees."""
    recording = RecordingEngine(engine)
    server = Server(settings)
    while not server.finished and (n_rounds is None or server.round < n_rounds):
        run_round(server, recording)
        recording.keep_total(server)
    return server, recording
