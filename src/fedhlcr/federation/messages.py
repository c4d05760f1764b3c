"""What travels: a `Broadcast` from the server to an agent, a `Contribution` back.

A contribution is sums by cluster, *absolute*: what the agent's entities sum to now, not what has changed. Its size does
not depend on how many events and entities there are. It is no secret what is in it: where an agent has one entity in a
cluster, the sum is that entity's.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from fedhlcr._support.arrays import CountArray, FloatArray, IndexArray
from fedhlcr.federation.sums import AgentSums
from fedhlcr.model.gram import GramLayout, Standardization
from fedhlcr.storage import codec
from fedhlcr.storage.reader import (
    MOST,
    RecordReader,
    log_weights,
    not_negative,
    positive,
    square_finite,
    square_positive,
    within,
)

VERSION = 1
# Rounds of an agent that has never had a contribution accepted.
NEVER = -1
SURVEY_ROUND = 0
# Random numbers are keyed by 32 bits of the round.
MOST_ROUNDS = 2**32
# The survey has one cluster, without labels.
SURVEY_CLUSTERS = np.zeros(1, dtype=np.int64)


class _ReadOnly:
    """A message: nobody who holds it can change its arrays."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                view = value.view()
                view.flags.writeable = False
                object.__setattr__(self, name, view)


@dataclass(frozen=True)
class GibbsLaw(_ReadOnly):
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

    @classmethod
    def read(cls, reader: RecordReader, layout: GramLayout) -> GibbsLaw:
        """From the fields of a broadcast, checked."""
        coef = reader.array("coef", "f8", (None, layout.n_coef), square_finite)
        return cls(
            coef,
            reader.array("log_weights", "f8", (len(coef),), log_weights),
            reader.value("noise_scale", float, square_positive),
            reader.value("agent_concentration", float, positive),
        )

    @property
    def n_clusters(self) -> int:
        return len(self.coef)


@dataclass(frozen=True)
class BlendLaw(_ReadOnly):
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

    @classmethod
    def read(cls, reader: RecordReader, layout: GramLayout) -> BlendLaw:
        """From the fields of a broadcast, checked."""
        n_coef = layout.n_coef
        precision = reader.array("precision", "f8", (None, n_coef * (n_coef + 1) // 2), np.isfinite)
        diagonal = precision[:, np.cumsum(np.arange(1, n_coef + 1)) - 1]
        reader.require((diagonal > 0).all(), "precision")
        return cls(
            precision,
            reader.array("linear", "f8", (len(precision), n_coef), np.isfinite),
            reader.array("entity_counts", "f8", (len(precision),), not_negative),
            reader.value("noise_scale", float, square_positive),
            reader.value("global_concentration", float, positive),
            reader.value("agent_concentration", float, positive),
        )

    @property
    def n_clusters(self) -> int:
        return len(self.precision)


Law = GibbsLaw | BlendLaw
_LAWS: dict[str, type[Law]] = {law.kind: law for law in (GibbsLaw, BlendLaw)}


@dataclass(frozen=True)
class Broadcast(_ReadOnly):
    """What the server tells an agent in a round.

    Attributes
    ----------
    run : which federation this is
    session : which life of its server: later ones have higher numbers
    round : 0 is the survey: answer with one unlabelled matrix; there is no law yet
    acknowledged : the round of the agent's last accepted contribution, or NEVER
    seed : of the run; an agent's draws are keyed by it
    cluster_of : (original clusters,) the present cluster of each original one; −1 for one that is no more
    """

    run: int
    session: int
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
        if self.cluster_of is None:
            return SURVEY_CLUSTERS
        clusters, first = np.unique(self.cluster_of, return_index=True)
        return first[clusters >= 0].astype(np.int64)

    def told(self, acknowledged: int) -> Broadcast:
        """The same for an agent whose last accepted contribution is of that round."""
        return replace(self, acknowledged=int(acknowledged))

    def to_bytes(self) -> bytes:
        record: codec.Record = {
            "run": self.run,
            "session": self.session,
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
        """From bytes of `to_bytes`, checked; CodecError where agents could not answer: not every server is sound."""
        record = codec.decode(data, "broadcast", VERSION)
        reader = RecordReader(record, "the broadcast", "use the same release of fedhlcr at the server and its agents")
        law = _LAWS.get(reader.value("law", str)) if "law" in reader else None
        if set(record) != _field_names(law):
            raise codec.CodecError("the broadcast lacks a field, or has one too many.")
        number = reader.value("round", int, within(SURVEY_ROUND, MOST_ROUNDS))
        reader.require((number == SURVEY_ROUND) == (law is None), "round")
        common = cls(
            reader.value("run", int),
            reader.value("session", int, not_negative),
            number,
            reader.value("acknowledged", int, within(NEVER, MOST_ROUNDS)),
            reader.value("seed", int),
            GramLayout(reader.value("n_features", int, within(0, MOST)), reader.value("fit_intercept", bool)),
        )
        if law is None:
            return common
        layout, units = reader.units(fit_intercept=common.layout.fit_intercept)
        reader.require(layout == common.layout, "n_features")
        # agents could not leave units without end for others
        reader.require(np.isfinite(units.scale).all(), "scale")
        told = law.read(reader, layout)
        cluster_of = reader.clusters("cluster_of", (None,), told.n_clusters)
        return replace(common, standardization=units, cluster_of=cluster_of, law=told)


def _field_names(law: type[Law] | None) -> set[str]:
    common = {"run", "session", "round", "acknowledged", "seed", "n_features", "fit_intercept"}
    return common if law is None else common | {"shift", "scale", "cluster_of", "law", *(f.name for f in fields(law))}


@dataclass(frozen=True)
class Contribution(_ReadOnly):
    """What an agent's entities sum to, by cluster, under the labels it drew in this round.

    It holds all clusters of the broadcast, the agent's own or not: its size tells nothing of the agent.

    Attributes
    ----------
    run, session, round : of the broadcast it answers
    agent : canonical text of its id
    entity_counts, table_counts : (clusters,) N_ik and m_ik
    grams : (clusters, packed) M_ik, in the units of the broadcast; in the survey one, around `shift`
    scalars : (4,) log q_i, s_i, log p(labels), labels changed; see `kernels.arguments`
    shift : (n_features + 1,) in the survey, else empty
    """

    run: int
    session: int
    round: int
    agent: str
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
        except TypeError:
            raise codec.CodecError("the contribution lacks a field, or has one too many.") from None


@dataclass(frozen=True)
class Contributions:
    """Contributions of many agents to one round, stacked, without the clusters an agent has nothing in.

    Attributes
    ----------
    representative : (clusters,) original ids of the broadcast's clusters
    sums : rows by original cluster
    shifts : (agents, n_features + 1) in the survey, else (agents, 0)
    """

    run: int
    session: int
    round: int
    agents: list[str]
    representative: IndexArray
    sums: AgentSums
    shifts: FloatArray

    @classmethod
    def of(cls, contribution: Contribution, representative: IndexArray) -> Contributions:
        """A single one; its arrays must have the right shapes."""
        used = (contribution.entity_counts != 0) | (contribution.table_counts != 0)
        rows = np.flatnonzero(used | (contribution.grams != 0).any(axis=1))
        sums = AgentSums(
            np.array([0, len(rows)]),
            representative[rows].astype(np.int32),
            contribution.entity_counts[rows],
            contribution.table_counts[rows],
            contribution.grams[rows],
            contribution.scalars[None],
        )
        life = contribution.run, contribution.session, contribution.round
        return cls(*life, [contribution.agent], representative, sums, contribution.shift[None])

    def __len__(self) -> int:
        return len(self.agents)

    def __getitem__(self, position: int) -> Contribution:
        own = self.sums.take(np.array([position]))
        n_clusters = len(self.representative)
        place = np.empty(self.representative.max() + 1, dtype=np.int64)
        place[self.representative] = np.arange(n_clusters)
        entity_counts, table_counts = (np.zeros(n_clusters, dtype=np.int32) for _ in range(2))
        grams = np.zeros((n_clusters, own.grams.shape[1]))
        for whole, rows in ((entity_counts, own.entity_counts), (table_counts, own.table_counts), (grams, own.grams)):
            whole[place[own.clusters]] = rows
        return Contribution(
            *(self.run, self.session, self.round),
            self.agents[position],
            entity_counts,
            table_counts,
            grams,
            own.scalars[0],
            self.shifts[position],
        )

    def take(self, positions: IndexArray) -> Contributions:
        agents = [self.agents[position] for position in positions]
        return replace(self, agents=agents, sums=self.sums.take(positions), shifts=self.shifts[positions])

    def encoded_size(self) -> int:
        """Bytes of all contributions together, as `Contribution.to_bytes` makes them."""
        none = np.empty(0, dtype=np.int32)
        empty = Contribution(0, 0, 0, "", none, none, np.empty((0, 0)), np.empty(0), np.empty(0))
        row = 2 * none.itemsize + 8 * self.sums.grams.shape[1]
        numbers = self.sums.scalars.shape[1] + self.shifts.shape[1]
        each = len(empty.to_bytes()) + len(self.representative) * row + 8 * numbers
        return len(self) * each + len("".join(self.agents).encode(errors="surrogatepass"))
