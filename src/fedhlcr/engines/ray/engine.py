"""The engine: it carries broadcasts to workers on a Ray cluster, and their replies to the server."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.data.events import EventStore
from fedhlcr.engines.ray.actors import Actors
from fedhlcr.engines.ray.parts import Part
from fedhlcr.engines.ray.worker import WorkerRequest
from fedhlcr.engines.ray.worker_handle import WorkerHandle
from fedhlcr.exceptions import ArgumentError
from fedhlcr.federation.account import Account, AccountFactory
from fedhlcr.federation.block_ledger import BlockLedger
from fedhlcr.federation.block_sums import BlockState, Moves
from fedhlcr.federation.checks import ReplyLimits
from fedhlcr.federation.messages import SURVEY_ROUND
from fedhlcr.federation.mods import Mod
from fedhlcr.federation.open_round import Invitation, Reply
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.federation.sums import PAGE_SIZE
from fedhlcr.model.gram import GramLayout, Standardization
from fedhlcr.model.likelihood import AnyLikelihood
from fedhlcr.model.schema import SumSchema
from fedhlcr.model.sums import ClusterSums
from fedhlcr.storage import codec, scratch
from fedhlcr.storage.reader import checkpoint_reader
from fedhlcr.storage.records import under

# Matrices are fetched in pieces of about this size, so that Ray's object store need not hold all of them.
PIECE_BYTES = 32 * 2**20


class RayEngine:
    """Agents on the workers of a cluster; the server is in this process.

    A server whose account comes from `account_for` gets one sum of each block of agents. Any other server gets the
    contribution of each agent.

    Parameters
    ----------
    actors : starts workers
    names, agent_start : of all agents, in the table's order
    parts : for each worker the positions of its agents, and what it builds them from
    seed, n_threads, mods : as for `InProcessEngine`; the threads are those of each worker
    on_close : called when the engine is closed
    """

    def __init__(
        self,
        actors: Actors,
        names: list[str],
        agent_start: IndexArray,
        parts: Sequence[tuple[range, Part]],
        *,
        seed: int,
        n_threads: int = 1,
        mods: Sequence[Mod] = (),
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self._actors = actors
        self._names = names
        self._agent_start = agent_start
        self._on_close = on_close
        self._position = {name: position for position, name in enumerate(names)}
        self._ranges = [agents for agents, _ in parts]
        self._account: BlockLedger | None = None
        self._limits: ReplyLimits | None = None
        self._grams: FloatArray | None = None
        self._workers: list[WorkerHandle] = []
        try:
            for number, (agents, part) in enumerate(parts, 1):
                holds = bool(_whole_blocks(agents, len(names)))
                built_from = (actors.put(part), agents.start, holds, seed, n_threads, tuple(mods))
                self._workers.append(WorkerHandle(actors, f"worker {number} of {len(parts)}", built_from))
            actors.warn_if_slow([worker.pending for worker in self._workers])
            self._results()
        except BaseException:
            self.close()
            raise

    @property
    def n_workers(self) -> int:
        return len(self._workers)

    def _results(self) -> list[Any]:
        """What all workers answer, in their order."""
        return [worker.result() for worker in self._workers]

    def agents(self) -> list[str]:
        return self._names

    def n_copies(self, call: Invitation) -> int:
        """One for each agent asked, as in one process: the history says what a federation of devices would send."""
        return len(call.agents)

    def account_for(self, settings: FederationSettings) -> AccountFactory | None:
        """Makes an account of the blocks that workers hold as a whole; None where the server needs single agents."""
        held = [block for agents in self._ranges for block in _whole_blocks(agents, len(self._names))]
        if settings.rule != "delta" or settings.fixed_point or settings.is_secure or not held:
            return None

        def make(n_clusters: int, schema: SumSchema) -> Account:
            self._account = BlockLedger(n_clusters, schema, settings.max_weight, self, held)
            self._limits = settings.limits
            return self._account

        return make

    def deliver(self, call: Invitation) -> Iterator[Reply]:
        """Ask all workers at once, and yield the replies of each when it is ready."""
        positions = np.array([self._position[name] for name in call.agents], dtype=np.int64)
        order = np.argsort(positions, kind="stable")
        positions = positions[order]
        acknowledged = call.acknowledged[order]
        data = call.broadcast.to_bytes()
        of_sums = self._question_of_sums(call, data)
        to_all = self._actors.put(WorkerRequest(data) if of_sums is None else of_sums)
        asked = []
        for worker, agents in zip(self._workers, self._ranges, strict=True):
            own = slice(*np.searchsorted(positions, [agents.start, agents.stop]).tolist())
            # sums may have moved although none of their agents is asked
            if of_sums is not None or own.start < own.stop:
                worker.ask("answer", to_all, positions[own] - agents.start, acknowledged[own])
                asked.append(worker)
        while asked:
            yield from asked.pop(self._actors.next_ready([worker.pending for worker in asked])).result().replies

    def _question_of_sums(self, call: Invitation, data: bytes) -> WorkerRequest | None:
        """What is asked of workers that add up their agents' contributions; None if the server wants these."""
        if self._account is None or call.expected is None or call.broadcast.round == SURVEY_ROUND:
            return None
        units = call.expected.units
        usual = call.expected.usual_events
        return WorkerRequest(data, units, usual, self._limits, self._account.take_moves())

    def moved(self, moves: Moves) -> list[BlockState]:
        """All blocks that are held, after these moves."""
        for worker in self._workers:
            worker.ask("moved", moves)
        return [state for states in self._results() for state in states]

    def weighted(self, weights: Mapping[int, FloatArray]) -> dict[int, ClusterSums]:
        """The sums of blocks whose agents have these weights."""
        for worker in self._workers:
            worker.ask("weighted", dict(weights))
        return {block: total for totals in self._results() for block, total in totals.items()}

    def entity_grams(self, run: int, layout: GramLayout, units: Standardization) -> FloatArray:
        """(entities, packed) the matrices of all agents, in the units of the run and in the table's order."""
        if self._grams is None:
            grams = scratch.empty((int(self._agent_start[-1]), layout.packed_size))
            step = max(1, PIECE_BYTES // (8 * layout.packed_size))
            for worker, agents in zip(self._workers, self._ranges, strict=True):
                start, stop = self._agent_start[[agents.start, agents.stop]].tolist()
                for first in range(start, stop, step):
                    last = min(first + step, stop)
                    worker.ask("grams", (first - start, last - start), run, layout, units)
                    grams[first:last] = worker.result()
                    scratch.release(grams)
            self._grams = grams
        return self._grams

    def entity_events(self, event_start: IndexArray, likelihood: AnyLikelihood, units: Standardization) -> EventStore:
        """The events of all agents, in the units of the run; `event_start` says where those of each entity start.

        Only for a likelihood that needs events: otherwise the agents have not kept theirs.
        """
        n_events = int(event_start[-1])
        layout = likelihood.layout
        X, y, weight, offset = (scratch.empty((n_events, *more)) for more in ((layout.n_features,), (), (), ()))
        has_offset = False
        for worker, shard, start, stop in self._event_pieces(event_start, PIECE_BYTES // (8 * (layout.n_features + 3))):
            first = int(self._agent_start[self._ranges[worker].start + shard * PAGE_SIZE])
            self._workers[worker].ask("events", shard, (start - first, stop - first), likelihood.name, layout, units)
            piece: EventStore = self._workers[worker].result()
            rows = slice(int(event_start[start]), int(event_start[stop]))
            X[rows] = piece.X
            y[rows] = piece.y
            weight[rows] = piece.weight
            if piece.offset is not None:
                has_offset = True
                offset[rows] = piece.offset
            scratch.release(X, y, weight, offset)
        return EventStore(X, y, weight, event_start, offset if has_offset else None)

    def _event_pieces(self, event_start: IndexArray, most: int) -> Iterator[tuple[int, int, int, int]]:
        """Ranges of entities with about `most` events, each with its worker and with the shard there."""
        for worker, agents in enumerate(self._ranges):
            for shard, first in enumerate(range(agents.start, agents.stop, PAGE_SIZE)):
                start, end = self._agent_start[[first, min(first + PAGE_SIZE, agents.stop)]].tolist()
                while start < end:
                    stop = int(np.searchsorted(event_start, event_start[start] + most, "right")) - 1
                    stop = min(max(stop, start + 1), end)
                    yield worker, shard, start, stop
                    start = stop

    def to_record(self, forgotten: Collection[str] = ()) -> codec.Record:
        """The state of every worker's agents, without that of `forgotten` agents."""
        for worker in self._workers:
            worker.ask("state", frozenset(forgotten))
        record: codec.Record = {"first_agents": np.array([agents.start for agents in self._ranges], dtype=np.int64)}
        for number, state in enumerate(self._results()):
            record |= under(f"{number}.", state)
        return record

    def restore(self, record: codec.Record) -> None:
        """Continue from a checkpoint, with the same agents and as many workers."""
        first = checkpoint_reader(record).array("first_agents", "i8", (None,))
        if first.tolist() != [agents.start for agents in self._ranges]:
            raise ArgumentError(
                f"the checkpoint was made by {len(first)} workers that held other agents than the {self.n_workers} of "
                "this cluster; resume with the same table and as many workers (`n_workers`)."
            )
        for number, worker in enumerate(self._workers):
            own = {name: value for name, value in record.items() if name.startswith(f"{number}.")}
            worker.restore({name.removeprefix(f"{number}."): value for name, value in own.items()})
        self._results()

    def close(self) -> None:
        """Stop the workers, and whatever was started for them."""
        for worker in self._workers:
            worker.leave()
        self._workers = []
        self._on_close()


def _whole_blocks(agents: range, n_agents: int) -> range:
    """The blocks all of whose agents are among these: all blocks of the range, or none if it shares one."""
    is_whole = agents.start % PAGE_SIZE == 0 and (agents.stop % PAGE_SIZE == 0 or agents.stop == n_agents)
    return range(agents.start // PAGE_SIZE, -(-agents.stop // PAGE_SIZE)) if is_whole else range(0)
