"""The state of a chain between two sweeps, and what its two halves exchange.

The server's half draws `Globals` from `ClusterSums`. The agents' half draws labels given `Globals` and returns
`ClusterSums`. Nothing else passes between them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, LabelArray
from fedhlcr._support.streams import Stream
from fedhlcr._support.threads import Blocks
from fedhlcr.data.events import EventStore
from fedhlcr.data.hierarchy import EntityIndex
from fedhlcr.kernels.arguments import EntityArrays, LabelLaw
from fedhlcr.kernels.grams import add_rows
from fedhlcr.kernels.scores import LANES
from fedhlcr.model.arguments import AgentFigures, AgentsPart, agent_figures
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.likelihood import AnyLikelihood
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.regression import CoefPosterior
from fedhlcr.model.schema import Globals, Stage, State
from fedhlcr.model.sums import ClusterSums
from fedhlcr.storage.scratch import put_aside, row_blocks


@dataclass(frozen=True)
class EntityData:
    """The data of the agents: each entity's Gram matrix in standardised units, and the likelihood of its events."""

    likelihood: AnyLikelihood
    index: EntityIndex
    grams: FloatArray  # (entities, packed)
    n_threads: int = 1
    events: EventStore | None = None  # in standardised units, for a likelihood that needs them
    single: bool = False  # whether entities are scored in single precision first; labels are the same

    @property
    def layout(self) -> GramLayout:
        return self.likelihood.layout

    def arrays(self, stream: Stream) -> EntityArrays:
        return EntityArrays(
            self.grams, self.index.agent_start, self.index.entity_keys, stream.agent_streams(self.index.agent_keys)
        )

    def part(self, agent_state: State, round_number: int, stream: Stream) -> AgentsPart:
        """All agents, as they take part in a sweep."""
        everyone = np.arange(self.index.n_agents)
        arrays = self.arrays(stream)
        figures = self.figures if self.likelihood.has_stages else None
        own = arrays, everyone, agent_state, round_number, self.blocks, self.n_threads, self.events
        return AgentsPart(*own, figures, self.single)

    @property
    def n_events(self) -> int:
        """Number of events, if they are kept."""
        return 0 if self.events is None else self.events.n_events

    def start_state(self) -> State:
        """The state of agents that have not answered yet."""
        return self.likelihood.start_state(self.index.n_agents, len(self), self.n_events)

    @cached_property
    def figures(self) -> AgentFigures:
        """What agents add up in many sweeps and what never changes."""
        return agent_figures(self.grams, self.index.agent_start, self.layout.n_features, self.n_threads)

    @cached_property
    def pooled_gram(self) -> FloatArray:
        """(packed,) the sum of all matrices, in their order."""
        total = np.zeros(self.layout.packed_size)
        for block in row_blocks(self.grams):
            add_rows(block, np.zeros(len(block), dtype=np.int64), total[None])
        return total

    @cached_property
    def blocks(self) -> Blocks:
        """Ranges of consecutive agents with about equally many entities, for threads."""
        return Blocks.balanced(self.index.agent_start)

    def __len__(self) -> int:
        return len(self.grams)


def label_law(likelihood: AnyLikelihood, current: Globals, round_number: int, *, single: bool = False) -> LabelLaw:
    """The argument of the blocked label kernel; score rows are padded with zeros to a multiple of LANES.

    With `single`, scores are made in single precision first, if the likelihood allows it.
    """
    rows = likelihood.score_rows(current)
    # in order of rows, whatever the order in which the likelihood made them
    padded = np.zeros((-(-len(rows) // LANES) * LANES, rows.shape[1]))
    padded[: len(rows)] = rows
    rounded = padded[: len(padded) if single and likelihood.scores_squares(current) else 0].astype(np.float32)
    return LabelLaw(padded, current.prior_weights(), float(current.agent_concentration), round_number, rounded)


@dataclass(frozen=True)
class GlobalDraw:
    """The public part of a kept draw: it holds nothing of any single agent."""

    round: int
    entity_counts: FloatArray
    globals: Globals
    log_joint: float

    @classmethod
    def of_server(cls, state: ServerState) -> GlobalDraw:
        return cls(state.round, state.sums.entity_counts, state.globals, state.log_joint)


@dataclass(frozen=True)
class Draw(GlobalDraw):
    """A kept draw of a chain: no sums, labels in the smallest possible integer type, and the agent state.

    Large arrays are in files. Predictions use the agent state in single precision, so no more of it is kept.
    """

    labels: NDArray[np.integer]
    agent_state: dict[str, NDArray[np.float32]] = field(default_factory=dict)

    @classmethod
    def of(cls, state: ChainState) -> Draw:
        labels = put_aside(state.labels.astype(np.min_scalar_type(state.globals.n_clusters)))
        agent_state = {name: put_aside(values.astype(np.float32)) for name, values in state.agent_state.items()}
        return cls(state.round, state.sums.entity_counts, state.globals, state.log_joint, labels, agent_state)


@dataclass(frozen=True)
class ServerState:
    """The server's state between two sweeps: the globals, and the sums under the labels drawn given them."""

    round: int
    sums: ClusterSums
    globals: Globals
    regressions: CoefPosterior  # of all clusters, given the sums and the hyperparameters
    log_joint: float  # log p(y, labels | globals), as the likelihood defines it

    @classmethod
    def of_sums(cls, likelihood: AnyLikelihood, round_number: int, sums: ClusterSums, drawn: Globals) -> ServerState:
        regressions = likelihood.regressions(sums.blocks, drawn)
        return ServerState(round_number, sums, drawn, regressions, likelihood.log_joint(sums, regressions, drawn))


@dataclass(frozen=True)
class ChainState(ServerState):
    """The state of a whole chain between two sweeps: the server's, and the agents' labels and agent state."""

    labels: LabelArray
    agent_state: State

    @classmethod
    def of(
        cls,
        likelihood: AnyLikelihood,
        round_number: int,
        labels: LabelArray,
        sums: ClusterSums,
        drawn: Globals,
        agent_state: State | None = None,
    ) -> ChainState:
        server = ServerState.of_sums(likelihood, round_number, sums, drawn)
        return cls(**vars(server), labels=labels, agent_state={} if agent_state is None else agent_state)

    def at(self, stage: Stage, likelihood: AnyLikelihood, spec: ModelSpec) -> ChainState:
        """The state at the beginning of a stage; the same state if the chain is in this stage already."""
        current = likelihood.enter(stage, self.globals, self.sums, spec)
        if current is self.globals:
            return self
        return self.of(likelihood, self.round, self.labels, self.sums, current, self.agent_state)
