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
from fedhlcr.kernels.labels import LANES
from fedhlcr.model.arguments import AgentsPart
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.likelihood import AnyLikelihood
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.regression import CoefPosterior
from fedhlcr.model.schema import Globals, Stage, State
from fedhlcr.model.sums import ClusterSums


@dataclass(frozen=True)
class Entities:
    """The data of the agents: each entity's Gram matrix in standardised units, and the likelihood of its events."""

    likelihood: AnyLikelihood
    index: EntityIndex
    grams: FloatArray  # (entities, packed)
    n_threads: int = 1
    events: EventStore | None = None  # in standardised units, for a likelihood that needs them

    @property
    def layout(self) -> GramLayout:
        return self.likelihood.layout

    def arrays(self, stream: Stream) -> EntityArrays:
        return EntityArrays(
            self.grams, self.index.agent_start, self.index.entity_keys, stream.agent_streams(self.index.agent_keys)
        )

    def part(self, private: State, round_number: int, stream: Stream) -> AgentsPart:
        """All agents, as they take part in a sweep."""
        everyone = np.arange(self.index.n_agents)
        arrays = self.arrays(stream)
        return AgentsPart(arrays, everyone, private, round_number, self.blocks, self.n_threads, self.events)

    @property
    def n_events(self) -> int:
        """Number of events, if they are kept."""
        return 0 if self.events is None else self.events.n_events

    def start_state(self) -> State:
        """The private state of agents that have not answered yet."""
        return self.likelihood.start_state(self.index.n_agents, len(self), self.n_events)

    @cached_property
    def blocks(self) -> Blocks:
        """Ranges of consecutive agents with about equally many entities, for threads."""
        return Blocks.balanced(self.index.agent_start)

    def __len__(self) -> int:
        return len(self.grams)


def label_law(likelihood: AnyLikelihood, given: Globals, round_number: int) -> LabelLaw:
    """The argument of the blocked label kernel; score rows are padded with zeros to a multiple of LANES."""
    rows = likelihood.score_rows(given)
    padding = -len(rows) % LANES
    padded = np.concatenate([rows, np.zeros((padding, rows.shape[1]))])
    return LabelLaw(padded, given.prior_weights(), float(given.agent_concentration), round_number)


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
    """A kept draw of a chain: no sums, labels in the smallest possible integer type, and the private state."""

    labels: NDArray[np.integer]
    private: State = field(default_factory=dict)

    @classmethod
    def of(cls, state: ChainState) -> Draw:
        labels = state.labels.astype(np.min_scalar_type(state.globals.n_clusters))
        return cls(state.round, state.sums.entity_counts, state.globals, state.log_joint, labels, state.private)


@dataclass(frozen=True)
class ServerState:
    """The server's state between two sweeps: the globals, and the sums under the labels drawn given them."""

    round: int
    sums: ClusterSums
    globals: Globals
    regressions: CoefPosterior  # of all clusters, given the sums and the hyperparameters
    log_joint: float  # log p(y, labels | globals), as the likelihood defines it

    @classmethod
    def given(cls, likelihood: AnyLikelihood, round_number: int, sums: ClusterSums, drawn: Globals) -> ServerState:
        regressions = likelihood.regressions(sums.blocks, drawn)
        return ServerState(round_number, sums, drawn, regressions, likelihood.log_joint(sums, regressions, drawn))


@dataclass(frozen=True)
class ChainState(ServerState):
    """The state of a whole chain between two sweeps: the server's, and the agents' labels and private state."""

    labels: LabelArray
    private: State

    @classmethod
    def of(
        cls,
        likelihood: AnyLikelihood,
        round_number: int,
        labels: LabelArray,
        sums: ClusterSums,
        drawn: Globals,
        private: State | None = None,
    ) -> ChainState:
        server = ServerState.given(likelihood, round_number, sums, drawn)
        return cls(**vars(server), labels=labels, private={} if private is None else private)

    def at(self, stage: Stage, likelihood: AnyLikelihood, spec: ModelSpec) -> ChainState:
        """The state at the beginning of a stage; the same state if the chain is in this stage already."""
        given = likelihood.enter(stage, self.globals, self.sums, spec)
        if given is self.globals:
            return self
        return self.of(likelihood, self.round, self.labels, self.sums, given, self.private)
