"""A worker: it holds consecutive agents, answers broadcasts for them, and adds up the sums of whole blocks.

It knows nothing of Ray: `cluster` makes an actor of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray, for_kernels
from fedhlcr._support.threads import single_threaded_blas
from fedhlcr.data.events import EventStore
from fedhlcr.engines.in_process import InProcessEngine
from fedhlcr.engines.ray.parts import Part
from fedhlcr.federation.block_sums import BlockReply, BlockState, HeldBlocks, Moves, answers_whole
from fedhlcr.federation.checks import ExpectedReply, ReplyLimits
from fedhlcr.federation.messages import SURVEY_ROUND, Broadcast, Contributions
from fedhlcr.federation.mods import Mod
from fedhlcr.federation.open_round import Invitation
from fedhlcr.federation.sums import PAGE_SIZE
from fedhlcr.model.gram import GramLayout, Standardization
from fedhlcr.model.likelihood import likelihood_named
from fedhlcr.model.sums import ClusterSums
from fedhlcr.storage import codec
from fedhlcr.storage.records import under

# A state of up to so many bytes is sent in every round; a larger one in every second, third, … round.
BYTES_PER_ROUND = 4 * 2**20
LONGEST = 16
HELD = "held."


class WorkerRequest(NamedTuple):
    """What all workers are asked in a round.

    Attributes
    ----------
    broadcast : its bytes
    units, usual_events, limits : what contributions are checked by; None if the server checks them itself and wants
        those of each agent
    moves : what happens to the sums that are held
    """

    broadcast: bytes
    units: FloatArray | None = None
    usual_events: float = np.inf
    limits: ReplyLimits | None = None
    moves: Moves = Moves()


class WorkerReply(NamedTuple):
    """The replies of a worker's agents, and now and then the state that the worker had before it answered."""

    replies: list[Contributions | BlockReply]
    before: codec.Record | None


class ShardWorker:
    """Agents in a process of their own.

    Draws are keyed by seed, round, agent and entity. So a worker that is built again, given an earlier state, and asked
    again what was asked since, answers with the same digits.
    """

    def __init__(self) -> None:
        self._held: HeldBlocks | None = None
        self._rounds_since = LONGEST
        self._grams: FloatArray | None = None

    def build(self, part: Part, first: int, holds: bool, seed: int, n_threads: int, mods: Sequence[Mod]) -> None:
        """Build the agents.

        `first` is the position of the first of them among all; `holds` says whether they are whole blocks, so that
        their sums are held here.
        """
        self._first = first
        self._holds = holds
        hierarchy = part.load()
        self._engine = InProcessEngine.from_hierarchy(
            hierarchy, failure_rate=0.0, seed=seed, n_threads=n_threads, mods=mods
        )

    @single_threaded_blas
    def answer(self, question: WorkerRequest, asked: IndexArray, acknowledged: IndexArray) -> WorkerReply:
        """Answer a broadcast for the agents at the given places."""
        broadcast = Broadcast.from_bytes(question.broadcast)
        names = self._engine.everyone.agents
        before = self._state_if_due()
        call = Invitation(broadcast, [names[place] for place in asked.tolist()], acknowledged)
        replies = self._engine.deliver(call)
        if question.limits is None or not self._holds or broadcast.round == SURVEY_ROUND:
            return WorkerReply([reply for reply in replies if isinstance(reply, Contributions)], before)
        held = self._hold(broadcast)
        held.move(question.moves)
        expected = _expected(question, broadcast)
        blocks: dict[int, BlockReply] = {}
        for reply in replies:
            assert isinstance(reply, Contributions)
            if len(reply):
                block = held.first_block + self._engine.place(reply.agents[0]) // PAGE_SIZE
                blocks[block] = held.absorb(block, self._names(block), reply, expected, question.limits)
        for block in held.blocks:
            if block not in blocks:
                blocks[block] = held.silent(block, self._names(block), broadcast)
        if before is not None and answers_whole(blocks.values()):
            # this round replaces all sums held before, so a worker that starts again from that state needs none of them
            before = {name: value for name, value in before.items() if not name.startswith(HELD)}
        return WorkerReply([blocks[block] for block in held.blocks], before)

    def _names(self, block: int) -> list[str]:
        first = block * PAGE_SIZE - self._first
        return self._engine.everyone.agents[first : first + PAGE_SIZE]

    def _hold(self, broadcast: Broadcast) -> HeldBlocks:
        assert broadcast.cluster_of is not None
        if self._held is None:
            n_agents = len(self._engine.everyone)
            n_clusters = len(broadcast.cluster_of)
            self._held = HeldBlocks(broadcast.likelihood, n_clusters, self._first // PAGE_SIZE, n_agents)
        return self._held

    @single_threaded_blas
    def moved(self, moves: Moves) -> list[BlockState]:
        """The blocks that are held here, after these moves."""
        if self._held is None:
            return []
        self._held.move(moves)
        return [self._held.state(block) for block in self._held.blocks]

    @single_threaded_blas
    def weighted(self, weights: Mapping[int, FloatArray]) -> dict[int, ClusterSums]:
        """The sums of those blocks that are held here, with the weights of their agents."""
        return {} if self._held is None else self._held.weighted(weights)

    def grams(self, entities: tuple[int, int], run: int, layout: GramLayout, units: Standardization) -> FloatArray:
        """The matrices of a range of this worker's entities, in the units of the run."""
        if self._grams is None:
            self._grams = self._engine.entity_grams(run, layout, units)
        return self._grams[slice(*entities)]

    def events(
        self, shard: int, entities: tuple[int, int], likelihood: str, layout: GramLayout, units: Standardization
    ) -> EventStore:
        """The events of a range of a shard's entities, in the units of the run, for a likelihood that needs them."""
        return likelihood_named(likelihood, layout).events_in(self._engine.events_of(shard, entities), units)

    def state(self, forgotten: frozenset[str] = frozenset()) -> codec.Record:
        """Labels, agent state and held sums, from which `restore` continues, without those of `forgotten` agents."""
        held = {} if self._held is None else self._held.to_record()
        return {**self._engine.to_record(forgotten), **under(HELD, held)}

    def _state_if_due(self) -> codec.Record | None:
        """The state, unless it is large and was sent not long ago."""
        self._rounds_since += 1
        if self._rounds_since * BYTES_PER_ROUND < self._engine.state_bytes() and self._rounds_since < LONGEST:
            return None
        self._rounds_since = 0
        return self.state()

    def restore(self, state: codec.Record) -> None:
        """Continue from a state of the same agents."""
        self._engine.restore({name: value for name, value in state.items() if not name.startswith(HELD)})
        held = {name.removeprefix(HELD): value for name, value in state.items() if name.startswith(HELD)}
        if held:
            self._held = HeldBlocks.read(held, self._first // PAGE_SIZE, len(self._engine.everyone))


def _expected(question: WorkerRequest, broadcast: Broadcast) -> ExpectedReply:
    assert broadcast.law is not None
    assert question.units is not None
    units = for_kernels(question.units)
    n_clusters = len(broadcast.representative)
    return ExpectedReply.under(
        broadcast.likelihood, broadcast.law, n_clusters, units, question.usual_events, tables=True
    )
