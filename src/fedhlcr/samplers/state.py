"""What a chain carries from sweep to sweep, and what its two halves tell each other.

The server's half draws `Globals` from `ClusterSums`; the agents' half draws labels from `Globals` and
answers with `ClusterSums`. Nothing else passes between them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, LabelArray
from fedhlcr._support.streams import Stream
from fedhlcr._support.threads import Blocks
from fedhlcr.data.hierarchy import EntityIndex
from fedhlcr.kernels import arguments
from fedhlcr.kernels.arguments import AgentAnswers, EntityArrays, LabelLaw
from fedhlcr.kernels.labels import LANES
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.priors import Hyperparameters
from fedhlcr.model.regression import CoefPosterior, coef_posterior


@dataclass(frozen=True)
class Entities:
    """What the agents know: the Gram matrix of each entity, in standardised units."""

    layout: GramLayout
    index: EntityIndex
    grams: FloatArray  # (entities, packed)
    n_threads: int = 1

    def arrays(self, stream: Stream) -> EntityArrays:
        return EntityArrays(
            self.grams, self.index.agent_start, self.index.entity_keys, stream.agent_streams(self.index.agent_keys)
        )

    @cached_property
    def blocks(self) -> Blocks:
        """Consecutive agents with about as many entities in each block."""
        return Blocks.balanced(self.index.agent_start)

    def __len__(self) -> int:
        return len(self.grams)


@dataclass(frozen=True)
class ClusterSums:
    """What the server knows: sums over all agents by cluster, and four numbers.

    Attributes
    ----------
    grams : (clusters, packed) M_k, the Gram matrix of all events of cluster k
    entity_counts, table_counts : (clusters,) N^(k) and Σ_i m_ik
    log_beta_draws, bernoulli_draws : Σ log q_i and Σ s_i, the auxiliaries from which β is learned
    log_label_prior : log p(labels | ψ, β)
    labels_changed : in the last sweep
    """

    grams: FloatArray
    entity_counts: FloatArray
    table_counts: FloatArray
    log_beta_draws: float
    bernoulli_draws: float
    log_label_prior: float
    labels_changed: float

    @classmethod
    def of(cls, grams: FloatArray, answers: AgentAnswers) -> ClusterSums:
        """Clusters' matrices with the counts of all agents, summed in their order."""
        return cls.from_parts(grams, *(part.sum(axis=0, dtype=np.float64) for part in answers))

    @classmethod
    def from_parts(
        cls, grams: FloatArray, entity_counts: FloatArray, table_counts: FloatArray, scalars: FloatArray
    ) -> ClusterSums:
        # what rounding leaves of an emptied cluster is nothing
        grams[entity_counts == 0] = 0.0
        return cls(
            grams,
            entity_counts,
            table_counts,
            log_beta_draws=float(scalars[arguments.LOG_BETA_DRAWS]),
            bernoulli_draws=float(scalars[arguments.BERNOULLI_DRAWS]),
            log_label_prior=float(scalars[arguments.LOG_LABEL_PRIOR]),
            labels_changed=float(scalars[arguments.LABELS_CHANGED]),
        )

    @classmethod
    def zero(cls, n_clusters: int, packed_size: int) -> ClusterSums:
        return cls(np.zeros((n_clusters, packed_size)), np.zeros(n_clusters), np.zeros(n_clusters), 0.0, 0.0, 0.0, 0.0)

    def __add__(self, other: ClusterSums) -> ClusterSums:
        return ClusterSums(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @property
    def n_clusters(self) -> int:
        return len(self.entity_counts)

    @property
    def occupied(self) -> NDArray[np.bool_]:
        return self.entity_counts > 0

    def regroup(self, target: NDArray[np.int64]) -> ClusterSums:
        """Sums after cluster k has become target[k]; −1 drops an empty one."""
        n_clusters = int(target.max()) + 1

        def gather(values: FloatArray) -> FloatArray:
            gathered = np.zeros((n_clusters, *values.shape[1:]))
            np.add.at(gathered, target[target >= 0], values[target >= 0])
            return gathered

        return replace(
            self,
            grams=gather(self.grams),
            entity_counts=gather(self.entity_counts),
            table_counts=gather(self.table_counts),
        )


@dataclass(frozen=True)
class Globals:
    """What everyone may know: one draw of all that is shared by the agents."""

    coef: FloatArray  # (clusters, n_coef)
    log_weights: FloatArray  # (clusters,) log ψ
    hyper: Hyperparameters

    @property
    def n_clusters(self) -> int:
        return len(self.coef)

    @property
    def noise_scale(self) -> float:
        return float(self.hyper.noise_scale)

    @property
    def agent_concentration(self) -> float:
        return float(self.hyper.agent_concentration)


class LabelTerms(Protocol):
    """What of the globals decides about labels."""

    @property
    def coef(self) -> FloatArray: ...

    @property
    def log_weights(self) -> FloatArray: ...

    @property
    def noise_scale(self) -> float: ...

    @property
    def agent_concentration(self) -> float: ...


def prior_weights(given: LabelTerms) -> FloatArray:
    """βψ: the pseudo-counts an agent adds to its own."""
    return given.agent_concentration * np.exp(given.log_weights)


def label_law(layout: GramLayout, given: LabelTerms, round_number: int) -> LabelLaw:
    """What the label kernels want to know."""
    rows = score_rows(layout, given.coef, given.noise_scale)
    return LabelLaw(rows, prior_weights(given), given.agent_concentration, round_number)


def score_rows(layout: GramLayout, coef: FloatArray, noise_scale: float) -> FloatArray:
    """Rows r_k with M·r_k = −RSS(w_k)/(2σ²), padded with zeros to whole lanes."""
    rows = layout.rss_vectors(coef) / (-2.0 * noise_scale**2)
    padding = -len(rows) % LANES
    return np.concatenate([rows, np.zeros((padding, rows.shape[1]))])


@dataclass(frozen=True)
class GlobalDraw:
    """What is kept of a state that everyone may know."""

    round: int
    entity_counts: FloatArray
    globals: Globals
    log_joint: float

    @classmethod
    def of_server(cls, state: ServerState) -> GlobalDraw:
        return cls(state.round, state.sums.entity_counts, state.globals, state.log_joint)


@dataclass(frozen=True)
class Draw(GlobalDraw):
    """What is kept of a chain's state: no sums, and labels in as few bytes as they need."""

    labels: NDArray[np.integer]

    @classmethod
    def of(cls, state: ChainState) -> Draw:
        labels = state.labels.astype(np.min_scalar_type(state.globals.n_clusters))
        return cls(state.round, state.sums.entity_counts, state.globals, state.log_joint, labels)


@dataclass(frozen=True)
class ServerState:
    """The server's side between two sweeps: the sums of the labels, the globals they were drawn under."""

    round: int
    sums: ClusterSums
    globals: Globals
    regressions: CoefPosterior  # of all clusters, given the sums and the hyperparameters

    @classmethod
    def given(cls, layout: GramLayout, round_number: int, sums: ClusterSums, drawn: Globals) -> ServerState:
        data = layout.normal_equations(sums.grams)
        return ServerState(
            round_number, sums, drawn, coef_posterior(data, drawn.hyper.noise_scale, drawn.hyper.coef_prior)
        )

    @property
    def log_joint(self) -> float:
        """log p(y, labels | ψ, β, σ, μ, δ) with coefficients and agent weights integrated out."""
        # the evidence of an empty cluster is 0
        return float(self.regressions.log_evidence.sum() + self.sums.log_label_prior)


@dataclass(frozen=True)
class ChainState(ServerState):
    """A chain between two sweeps: both sides of it."""

    labels: LabelArray

    @classmethod
    def of(
        cls, layout: GramLayout, round_number: int, labels: LabelArray, sums: ClusterSums, drawn: Globals
    ) -> ChainState:
        return cls.labelled(ServerState.given(layout, round_number, sums, drawn), labels)

    @classmethod
    def labelled(cls, server: ServerState, labels: LabelArray) -> ChainState:
        return cls(server.round, server.sums, server.globals, server.regressions, labels)
