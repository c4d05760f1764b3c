"""Sums over fixed blocks of agents, for agents that are held by workers of one operator.

A block is a page of the server's ledger: PAGE_SIZE agents in the server's order. Whoever holds all agents of a block
holds the page too (`HeldBlocks`), and reports its sum instead of the contribution of each agent. The server adds up the
blocks in their order (`block_ledger.BlockLedger`). So the total has the digits of a ledger that stores every agent,
however many workers there are.

The server cannot check contributions that it does not see: the workers do, by the same rules, and are trusted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.checks import SIZE_LIMIT, within
from fedhlcr.federation.checks import ExpectedReply, ReplyLimits, find_faults
from fedhlcr.federation.ledger import Ledger
from fedhlcr.federation.messages import Broadcast, Contributions
from fedhlcr.federation.sums import PAGE_SIZE
from fedhlcr.model.arguments import EffectShift
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.likelihood import AnyLikelihood, read_likelihood
from fedhlcr.model.sums import ClusterSums
from fedhlcr.storage import codec
from fedhlcr.storage.reader import checkpoint_reader


@dataclass(frozen=True)
class BlockState:
    """What the server needs of a block: its sum, and how large each of its agents is.

    Attributes
    ----------
    block : number of the block; its agents have the positions from block · PAGE_SIZE on
    total : the sum of the last accepted contributions of all its agents, with weights of 1
    sizes : (agents of the block, sizes) as `weights.agent_sizes` has them
    """

    block: int
    total: ClusterSums
    sizes: FloatArray


@dataclass(frozen=True)
class BlockReply:
    """The answer of a block's agents to a broadcast.

    Attributes
    ----------
    run, session, round : of the broadcast
    first : name of the block's first agent
    agents : places in the block of the agents that have answered, and whose contributions are in the sum
    refused : the reasons why contributions were refused, by the agents' places
    labels_changed : number of labels that the agents that have answered have changed
    n_bytes : bytes of the agents' contributions, if each were sent
    state : the block after the answer
    """

    run: int
    session: int
    round: int
    first: str
    agents: IndexArray
    refused: dict[int, str]
    labels_changed: float
    n_bytes: int
    state: BlockState

    @property
    def positions(self) -> IndexArray:
        """Positions of the agents that have answered."""
        return self.state.block * PAGE_SIZE + self.agents


@dataclass(frozen=True)
class Moves:
    """What happens to the contributions that are held, besides new ones.

    Attributes
    ----------
    cleared : whether all were removed, before anything else
    removed : positions of agents that have withdrawn
    shifts : growths of effects, in their order
    """

    cleared: bool = False
    removed: tuple[int, ...] = ()
    shifts: tuple[EffectShift, ...] = ()

    def __bool__(self) -> bool:
        return self.cleared or bool(self.removed or self.shifts)


@dataclass
class HeldBlocks:
    """The pages of the server's ledger at a worker that holds all their agents.

    Parameters
    ----------
    likelihood : of the run
    n_clusters : number of original clusters
    first_block : number of the first block; the others follow
    n_agents : number of agents of all blocks
    """

    likelihood: AnyLikelihood
    n_clusters: int
    first_block: int
    n_agents: int
    ledger: Ledger = field(init=False)

    def __post_init__(self) -> None:
        # weights depend on all agents, so the server finds them
        self.ledger = Ledger(self.n_clusters, self.likelihood.sum_schema, max_weight=float("inf"))
        self.ledger.grow(self.n_agents)

    @property
    def blocks(self) -> range:
        return range(self.first_block, self.first_block + len(self.ledger.page_lengths))

    def move(self, moves: Moves) -> None:
        if moves.cleared:
            self.ledger.clear()
        for position in moves.removed:
            place = position - self.first_block * PAGE_SIZE
            if 0 <= place < self.n_agents:
                self.ledger.remove(place)
        for shift in moves.shifts:
            self.ledger.shift(self.likelihood, shift)

    def state(self, block: int) -> BlockState:
        number = block - self.first_block
        return BlockState(block, self.ledger.page_total(number), self.ledger.page_sizes(number))

    def weighted(self, weights: Mapping[int, FloatArray]) -> dict[int, ClusterSums]:
        """The sums of the blocks that are held here and have weights, with these."""
        own = [block for block in weights if block in self.blocks]
        return {block: self.ledger.page_total(block - self.first_block, weights[block]) for block in own}

    def absorb(
        self, block: int, names: list[str], contributions: Contributions, expected: ExpectedReply, limits: ReplyLimits
    ) -> BlockReply:
        """Check the contributions of a block's agents, and take those in that are sound; `names` are all its agents."""
        place_of = {name: place for place, name in enumerate(names)}
        places = np.array([place_of[name] for name in contributions.agents], dtype=np.int64)
        reasons = find_faults(contributions, expected, limits)
        sound = np.flatnonzero([reason is None for reason in reasons])
        answered = contributions if len(sound) == len(places) else contributions.take(sound)
        if len(sound):
            first = (block - self.first_block) * PAGE_SIZE
            self.ledger.replace(first + places[sound], answered.sums)
        return BlockReply(
            *(contributions.run, contributions.session, contributions.round),
            names[0],
            places[sound],
            {int(place): reason for place, reason in zip(places, reasons, strict=True) if reason is not None},
            float(answered.sums.scalar("labels_changed").sum()),
            contributions.encoded_size(),
            self.state(block),
        )

    def silent(self, block: int, names: list[str], broadcast: Broadcast) -> BlockReply:
        """The reply of a block none of whose agents was asked: its sum may have moved."""
        nobody = np.empty(0, dtype=np.int64)
        answered = (broadcast.run, broadcast.session, broadcast.round)
        return BlockReply(*answered, names[0], nobody, {}, 0.0, 0, self.state(block))

    def to_record(self) -> codec.Record:
        layout = self.likelihood.layout
        return {
            "likelihood": self.likelihood.name,
            "n_features": layout.n_features,
            "fit_intercept": layout.fit_intercept,
            "curve_groups": np.array(layout.curve_groups, dtype=np.int64),
            "n_clusters": self.n_clusters,
            **self.ledger.to_record(),
        }

    @classmethod
    def read(cls, record: codec.Record, first_block: int, n_agents: int) -> HeldBlocks:
        """Read the fields of `to_record`, and check every value."""
        reader = checkpoint_reader(record)
        groups = tuple(reader.array("curve_groups", "i8", (None,), within(1, SIZE_LIMIT)).tolist())
        n_features = reader.value("n_features", int, within(0, SIZE_LIMIT))
        layout = GramLayout(n_features, reader.value("fit_intercept", bool), groups)
        n_clusters = reader.value("n_clusters", int, within(1, SIZE_LIMIT))
        held = cls(read_likelihood(reader, layout), n_clusters, first_block, n_agents)
        held.ledger.restore(reader, n_agents)
        return held


def answers_whole(replies: Iterable[BlockReply]) -> bool:
    """Whether all agents of the blocks have answered, so that nothing of earlier rounds is left in the sums."""
    return all(len(reply.agents) == len(reply.state.sizes) for reply in replies)
