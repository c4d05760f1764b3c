"""The state of a chain between two sweeps, and what its two halves exchange.

The server's half draws `Globals` from `ClusterSums`. The agents' half draws labels given `Globals` and returns
`ClusterSums`. Nothing else passes between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, LabelArray
from fedhlcr._support.streams import Stream
from fedhlcr._support.threads import Blocks
from fedhlcr.data.hierarchy import EntityIndex
from fedhlcr.kernels.arguments import EntityArrays, LabelLaw
from fedhlcr.kernels.labels import LANES
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.likelihood import AnyLikelihood
from fedhlcr.model.regression import CoefPosterior
from fedhlcr.model.schema import Globals
from fedhlcr.model.sums import ClusterSums


@dataclass(frozen=True)
class Entities:
    """The data of the agents: each entity's Gram matrix in standardised units, and the likelihood of its events."""

    likelihood: AnyLikelihood
    index: EntityIndex
    grams: FloatArray  # (entities, packed)
    n_threads: int = 1

    @property
    def layout(self) -> GramLayout:
        return self.likelihood.layout

    def arrays(self, stream: Stream) -> EntityArrays:
        return EntityArrays(
            self.grams, self.index.agent_start, self.index.entity_keys, stream.agent_streams(self.index.agent_keys)
        )

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
    """A kept draw of a chain: no sums, and labels in the smallest integer type that can hold them."""

    labels: NDArray[np.integer]

    @classmethod
    def of(cls, state: ChainState) -> Draw:
        labels = state.labels.astype(np.min_scalar_type(state.globals.n_clusters))
        return cls(state.round, state.sums.entity_counts, state.globals, state.log_joint, labels)


@dataclass(frozen=True)
class ServerState:
    """The server's state between two sweeps: the globals, and the sums under the labels drawn given them."""

    round: int
    sums: ClusterSums
    globals: Globals
    regressions: CoefPosterior  # of all clusters, given the sums and the hyperparameters

    @classmethod
    def given(cls, likelihood: AnyLikelihood, round_number: int, sums: ClusterSums, drawn: Globals) -> ServerState:
        return ServerState(round_number, sums, drawn, likelihood.regressions(sums.blocks, drawn))

    @property
    def log_joint(self) -> float:
        """log p(y, labels | globals) with coefficients and agent weights integrated out."""
        # empty clusters do not matter: their log evidence is 0
        return float(self.regressions.log_evidence.sum() + self.sums.scalars["log_label_prior"])


@dataclass(frozen=True)
class ChainState(ServerState):
    """The state of a whole chain between two sweeps: the server's, and the agents' labels."""

    labels: LabelArray

    @classmethod
    def of(
        cls, likelihood: AnyLikelihood, round_number: int, labels: LabelArray, sums: ClusterSums, drawn: Globals
    ) -> ChainState:
        return cls.labelled(ServerState.given(likelihood, round_number, sums, drawn), labels)

    @classmethod
    def labelled(cls, server: ServerState, labels: LabelArray) -> ChainState:
        return cls(server.round, server.sums, server.globals, server.regressions, labels)
