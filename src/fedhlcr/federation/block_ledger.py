"""The server's account if workers hold its pages: it has the sum of each block, and asks for sums that have changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.checks import finite, not_negative, within
from fedhlcr.federation.block_sums import BlockState, Moves
from fedhlcr.federation.ledger import Ledger
from fedhlcr.federation.sums import PAGE_SIZE, AgentSums
from fedhlcr.model.arguments import EffectShift
from fedhlcr.model.likelihood import AnyLikelihood
from fedhlcr.model.schema import SumSchema
from fedhlcr.model.sums import ClusterSums
from fedhlcr.storage import codec
from fedhlcr.storage.reader import RecordReader
from fedhlcr.storage.records import under

PREFIX = "blocks_"


class HoldsBlocks(Protocol):
    """Whoever asks the workers."""

    def moved(self, moves: Moves) -> list[BlockState]:
        """All blocks that are held, after these moves."""

    def weighted(self, weights: Mapping[int, FloatArray]) -> dict[int, ClusterSums]:
        """The sums of blocks whose agents have these weights."""


class BlockLedger(Ledger):
    """A ledger some or all of whose pages are held elsewhere; those of the others are here.

    Moves are sent with the next broadcast, or at once if the total is wanted before.

    Parameters
    ----------
    holder : asks the workers
    held : numbers of the pages that they hold
    """

    def __init__(
        self, n_clusters: int, schema: SumSchema, max_weight: float, holder: HoldsBlocks, held: Collection[int]
    ) -> None:
        super().__init__(n_clusters, schema, max_weight)
        self._holder = holder
        self._held = frozenset(held)
        self._blocks: dict[int, BlockState] = {}
        self._moves = Moves()
        self._weighted: dict[int, ClusterSums] = {}

    def take_moves(self) -> Moves:
        """The moves that the workers do not know yet; whoever takes them sends them."""
        moves = self._moves
        self._moves = Moves()
        return moves

    def set_block(self, state: BlockState) -> None:
        """Replace what is known of a block."""
        self._blocks[state.block] = state

    def _settle(self) -> None:
        """Let the workers follow all moves."""
        if self._moves and self._blocks:
            for state in self._holder.moved(self.take_moves()):
                self.set_block(state)

    @property
    def is_empty(self) -> bool:
        self._settle()
        return super().is_empty and not any(state.total.entity_counts.any() for state in self._blocks.values())

    def remove(self, agent: int) -> None:
        if agent // PAGE_SIZE in self._held:
            self._moves = Moves(self._moves.cleared, (*self._moves.removed, agent), self._moves.shifts)
        else:
            super().remove(agent)

    def replace(self, agents: IndexArray, sums: AgentSums) -> None:
        assert self._held.isdisjoint((agents // PAGE_SIZE).tolist()), "these agents' sums are held by a worker"
        super().replace(agents, sums)

    def clear(self) -> None:
        super().clear()
        self._blocks = {}
        self._moves = Moves(cleared=True)

    def shift(self, likelihood: AnyLikelihood, shift: EffectShift) -> None:
        super().shift(likelihood, shift)
        self._moves = Moves(self._moves.cleared, self._moves.removed, (*self._moves.shifts, shift))

    def page_sizes(self, number: int) -> FloatArray:
        state = self._blocks.get(number)
        return super().page_sizes(number) if state is None else state.sizes

    def page_total(self, number: int, weights: FloatArray | None = None) -> ClusterSums:
        state = self._blocks.get(number)
        if state is None:
            return super().page_total(number, weights)
        return state.total if weights is None else self._weighted[number]

    def total(self) -> ClusterSums:
        self._settle()
        light = {number: weights for number, weights in self._light_pages().items() if number in self._blocks}
        self._weighted = self._holder.weighted(light) if light else {}
        return super().total()

    def weights(self) -> FloatArray:
        self._settle()
        return super().weights()

    def to_record(self) -> codec.Record:
        self._settle()
        record = super().to_record()
        states = [self._blocks[number] for number in sorted(self._blocks)]
        if not states:
            return record
        totals = [state.total for state in states]
        own: codec.Record = {
            "numbers": np.array([state.block for state in states], dtype=np.int64),
            "sizes": np.concatenate([state.sizes for state in states]),
            "entity_counts": np.stack([total.entity_counts for total in totals]),
            "table_counts": np.stack([total.table_counts for total in totals]),
            "scalars": np.array([list(total.scalars.values()) for total in totals]),
            **{f"sum_{b.name}": np.stack([total.blocks[b.name] for total in totals]) for b in self._schema.blocks},
        }
        return record | under(PREFIX, own)

    def restore(self, reader: RecordReader, n_agents: int) -> None:
        super().restore(reader, n_agents)
        own = reader.part(PREFIX)
        if own.is_empty:
            return
        numbers = own.array("numbers", "i8", (None,), within(0, len(self._pages))).tolist()
        reader.require(set(numbers) == self._held, f"{PREFIX}numbers")
        lengths = [self.page_lengths[number] for number in numbers]
        shape = (len(numbers), self._n_clusters)
        sizes = own.array("sizes", "f8", (sum(lengths), None), not_negative)
        counts = [own.array(name, "f8", shape, not_negative) for name in ("entity_counts", "table_counts")]
        scalars = own.array("scalars", "f8", (len(numbers), len(self._schema.scalars)), finite)
        blocks = {b.name: own.array(f"sum_{b.name}", "f8", (*shape, b.size), finite) for b in self._schema.blocks}
        for place, (number, part) in enumerate(zip(numbers, np.split(sizes, np.cumsum(lengths)[:-1]), strict=True)):
            own_blocks = {name: values[place].copy() for name, values in blocks.items()}
            arrays = (own_blocks, *(count[place].copy() for count in counts), scalars[place])
            self.set_block(BlockState(number, ClusterSums.of(self._schema, *arrays), part))
