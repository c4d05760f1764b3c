"""What travels: a `Broadcast` from the server to an agent, a `Contribution` back.

Neither holds anything of a single event or entity, and the size of neither depends on how many there are. A
contribution is *absolute*: what the agent's entities sum to now, not what has changed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from fedhlcr import codec
from fedhlcr.arrays import CountArray, FloatArray, IndexArray
from fedhlcr.federation.sums import AgentSums
from fedhlcr.gram import GramLayout, Standardization

VERSION = 1
# Rounds of an agent that has never had a contribution accepted.
NEVER = -1
SURVEY_ROUND = 0
# The cluster of a survey's one matrix.
UNLABELLED = -1


@dataclass(frozen=True)
class GibbsLaw:
    """The delta rule: a draw of the globals, under which agents draw their labels exactly.

    Attributes
    ----------
    coef : (clusters, n_coef) w_k
    log_weights : (clusters,) log ψ
    noise_scale, agent_concentration : σ, β
    """

    kind: ClassVar[str] = "gibbs"

    coef: FloatArray
    log_weights: FloatArray
    noise_scale: float
    agent_concentration: float


@dataclass(frozen=True)
class BlendLaw:
    """The blend rule: blended regressions, with coefficients integrated out. Paper: Algorithm 3.

    Attributes
    ----------
    precision : (clusters, n_coef (n_coef + 1) / 2) A_k = H_k⁻¹, packed
    linear : (clusters, n_coef) c_k, so that the mean of w_k is H_k c_k
    entity_counts : (clusters,) N^(k); the paper's prior needs them, its message lacks them
    noise_scale, global_concentration, agent_concentration : σ, α, β
    """

    kind: ClassVar[str] = "blend"

    precision: FloatArray
    linear: FloatArray
    entity_counts: FloatArray
    noise_scale: float
    global_concentration: float
    agent_concentration: float


Law = GibbsLaw | BlendLaw
_LAWS: dict[str, type[Law]] = {law.kind: law for law in (GibbsLaw, BlendLaw)}


@dataclass(frozen=True)
class Broadcast:
    """What the server tells an agent in a round.

    Attributes
    ----------
    run : which federation this is
    round : 0 is the survey: answer with one unlabelled matrix; there is no law yet
    acknowledged : the round of the agent's last accepted contribution, or NEVER
    seed : of the run; an agent's draws are keyed by it
    cluster_of : (original clusters,) the present cluster of each original one; −1 for one that is no more
    """

    run: int
    round: int
    acknowledged: int
    seed: int
    layout: GramLayout
    standardization: Standardization | None = None
    cluster_of: IndexArray | None = None
    law: Law | None = None

    @property
    def sweep(self) -> int:
        """The sweep of a centralised chain that draws the same numbers: its start, sweep 0, is round 1."""
        return self.round - 1

    @cached_property
    def representative(self) -> IndexArray:
        """(clusters,) the first original cluster of each present one; labels are kept under its name."""
        assert self.cluster_of is not None
        clusters, first = np.unique(self.cluster_of, return_index=True)
        return first[clusters >= 0].astype(np.int64)

    def told(self, acknowledged: int) -> Broadcast:
        """The same for an agent whose last accepted contribution is of that round."""
        return replace(self, acknowledged=acknowledged)

    def to_bytes(self) -> bytes:
        record: codec.Record = {
            "run": self.run,
            "round": self.round,
            "acknowledged": self.acknowledged,
            "seed": self.seed,
            "n_features": self.layout.n_features,
            "fit_intercept": self.layout.fit_intercept,
        }
        if self.law is not None and self.standardization is not None and self.cluster_of is not None:
            record |= {
                "shift": self.standardization.shift,
                "scale": self.standardization.scale,
                "cluster_of": self.cluster_of,
                "law": self.law.kind,
                **vars(self.law),
            }
        return codec.encode("broadcast", VERSION, record)

    @classmethod
    def from_bytes(cls, data: bytes) -> Broadcast:
        record = codec.decode(data, "broadcast", VERSION)
        try:
            common = {name: record.pop(name) for name in ("run", "round", "acknowledged", "seed")}
            layout = GramLayout(record.pop("n_features"), record.pop("fit_intercept"))
            if not record:
                return cls(**common, layout=layout)
            units = Standardization(record.pop("shift"), record.pop("scale"))
            cluster_of, law = record.pop("cluster_of"), _LAWS[record.pop("law")]
            return cls(**common, layout=layout, standardization=units, cluster_of=cluster_of, law=law(**record))
        except (KeyError, TypeError) as error:
            raise codec.CodecError(f"the broadcast lacks a field, or has one too many: {error}.") from None


@dataclass(frozen=True)
class Contribution:
    """What an agent's entities sum to, by cluster, under the labels it drew in this round.

    Attributes
    ----------
    agent : canonical text of its id
    clusters : (rows,) original ids of the clusters it has entities in
    entity_counts, table_counts : (rows,) N_ik and m_ik
    grams : (rows, packed) M_ik, in the units of the broadcast; in the survey one, around `shift`
    scalars : (4,) log q_i, s_i, log p(labels), labels changed; see `kernels.arguments`
    shift : (n_features + 1,) in the survey, else empty
    """

    run: int
    round: int
    agent: str
    clusters: CountArray
    entity_counts: CountArray
    table_counts: CountArray
    grams: FloatArray
    scalars: FloatArray
    shift: FloatArray

    def to_bytes(self) -> bytes:
        return codec.encode("contribution", VERSION, vars(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> Contribution:
        record = codec.decode(data, "contribution", VERSION)
        try:
            return cls(**record)
        except TypeError as error:
            raise codec.CodecError(f"the contribution lacks a field, or has one too many: {error}.") from None


@dataclass(frozen=True)
class Contributions:
    """Contributions of many agents to one round, stacked."""

    run: int
    round: int
    agents: list[str]
    sums: AgentSums
    shifts: FloatArray  # (agents, n_features + 1) in the survey, else (agents, 0)

    @classmethod
    def of(cls, contribution: Contribution) -> Contributions:
        rows = np.array([0, len(contribution.clusters)])
        sums = AgentSums(
            rows,
            contribution.clusters,
            contribution.entity_counts,
            contribution.table_counts,
            contribution.grams,
            contribution.scalars[None],
        )
        return cls(contribution.run, contribution.round, [contribution.agent], sums, contribution.shift[None])

    def __len__(self) -> int:
        return len(self.agents)

    def __getitem__(self, position: int) -> Contribution:
        sums = self.sums.take(np.array([position]))
        return Contribution(
            self.run,
            self.round,
            self.agents[position],
            sums.clusters,
            sums.entity_counts,
            sums.table_counts,
            sums.grams,
            sums.scalars[0],
            self.shifts[position],
        )

    def take(self, positions: IndexArray) -> Contributions:
        agents = [self.agents[position] for position in positions]
        return Contributions(self.run, self.round, agents, self.sums.take(positions), self.shifts[positions])

    def encoded_sizes(self) -> IndexArray:
        """(agents,) bytes of each contribution, as `Contribution.to_bytes` makes them."""
        none = np.empty(0, dtype=np.int32)
        empty = Contribution(0, 0, "", none, none, none, np.empty((0, 0)), np.empty(0), np.empty(0))
        fixed = len(empty.to_bytes()) + 8 * (self.sums.scalars.shape[1] + self.shifts.shape[1])
        names = np.array([len(agent.encode(errors="surrogatepass")) for agent in self.agents], dtype=np.int64)
        return fixed + names + np.diff(self.sums.row_start) * (3 * 4 + 8 * self.sums.grams.shape[1])
