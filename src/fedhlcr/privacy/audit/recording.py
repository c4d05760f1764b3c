"""Record what the server sees of a simulated federation, without any change to the federation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr.exceptions import FederationError
from fedhlcr.federation.history import RoundRecord
from fedhlcr.federation.messages import SURVEY_ROUND, Broadcast, Contribution, Contributions
from fedhlcr.federation.run import SimulationEngine, run_federation
from fedhlcr.federation.server import Invitation, Reply, Server
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.model.gram import GramLayout, Standardization
from fedhlcr.privacy.audit.view import NO_STATEMENT, ServerView, Statement
from fedhlcr.storage import codec


@dataclass
class RecordingEngine:
    """An engine that keeps every invitation and every reply that passes through it.

    Attributes
    ----------
    inner : the engine that carries the messages
    calls : invitations, one for each round
    replies : by the number of the call during which they arrived
    """

    inner: SimulationEngine
    calls: list[Invitation] = field(default_factory=list)
    replies: list[tuple[int, Reply]] = field(default_factory=list)

    def agents(self) -> Sequence[str]:
        return self.inner.agents()

    def deliver(self, call: Invitation) -> Iterator[Reply]:
        number = len(self.calls)
        self.calls.append(call)
        for reply in self.inner.deliver(call):
            self.replies.append((number, reply))
            yield reply

    def n_copies(self, call: Invitation) -> int:
        return self.inner.n_copies(call)

    def to_record(self, forgotten: Collection[str] = ()) -> codec.Record:
        return self.inner.to_record(forgotten)

    def restore(self, record: codec.Record) -> None:
        self.inner.restore(record)

    def entity_grams(self, run: int, layout: GramLayout, units: Standardization) -> FloatArray:
        return self.inner.entity_grams(run, layout, units)

    def view(self) -> ServerView:
        """What the agents have stated in the rounds after the survey."""
        known = [call.broadcast for call in self.calls if call.broadcast.standardization is not None]
        if not known:
            raise FederationError("no round after the survey was recorded; run more rounds.")
        statements: dict[str, list[Statement]] = {}
        for number, reply in self.replies:
            for statement, agent in _statements(self.calls[number], reply):
                statements.setdefault(agent, []).append(statement)
        assert known[-1].standardization is not None
        return ServerView(known[-1].layout, known[-1].standardization, statements)


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
    if isinstance(reply, Contribution):
        reply = Contributions.from_one(reply, broadcast.representative, schema)
    sums = reply.sums
    changed, is_exact = sums.scalar("labels_changed"), sums_events(broadcast)
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
    settings: FederationSettings,
    engine: SimulationEngine,
    progress: Callable[[RoundRecord], None] | None = None,
) -> tuple[Server, RecordingEngine]:
    """Run a federation to its end, and keep all that its server sees."""
    recording, server = RecordingEngine(engine), Server(settings)
    run_federation(server, recording, progress=progress)
    return server, recording
