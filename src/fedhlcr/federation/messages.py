"""What travels: a `Broadcast` from the server to an agent, a `Contribution` back.

A contribution is sums by cluster, *absolute*: what the agent's entities sum to now, not what has changed. Its size does
not depend on how many events and entities there are. It is no secret what is in it: where an agent has one entity in a
cluster, the sum is that entity's.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from fedhlcr._support.arrays import CountArray, FloatArray, IndexArray
from fedhlcr.federation.sums import AgentSums
from fedhlcr.model.gram import GramLayout, Standardization, read_units
from fedhlcr.model.likelihood import GAUSSIAN, AnyLikelihood, is_registered, likelihood_named
from fedhlcr.model.schema import Globals, SumSchema
from fedhlcr.storage import codec
from fedhlcr.storage.reader import MOST, RecordReader, not_negative, positive, square_positive, within

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
            object.__setattr__(self, name, _frozen(value))


def _frozen(value: Any) -> Any:
    """The value with arrays that cannot be written to."""
    match value:
        case np.ndarray():
            view = value.view()
            view.flags.writeable = False
            return view
        case dict():
            return {name: _frozen(part) for name, part in value.items()}
        case Globals():
            return replace(value, **{name: _frozen(part) for name, part in vars(value).items()})
        case _:
            return value


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

    KIND: ClassVar[str] = "blend"

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


# What agents draw their labels under: a draw of the globals (delta rule), or blended regressions (blend rule).
Law = Globals | BlendLaw
# The delta rule's law on the wire; that of any other likelihood than the Gaussian adds its name.
GIBBS = "gibbs"


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
    likelihood : of the run; it knows the layout, on which all agents must agree
    cluster_of : (original clusters,) the present cluster of each original one; −1 for one that is no more
    """

    run: int
    session: int
    round: int
    acknowledged: int
    seed: int
    likelihood: AnyLikelihood
    standardization: Standardization | None = None
    cluster_of: IndexArray | None = None
    law: Law | None = None

    @property
    def layout(self) -> GramLayout:
        return self.likelihood.layout

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
                **_law_to_record(self.law, self.likelihood),
            }
        return codec.encode("broadcast", VERSION, record)

    @classmethod
    def from_bytes(cls, data: bytes) -> Broadcast:
        """From bytes of `to_bytes`, checked; CodecError if agents could not answer: not every server is sound."""
        record = codec.decode(data, "broadcast", VERSION)
        reader = RecordReader(record, "the broadcast", "use the same release of fedhlcr at the server and its agents")
        layout = GramLayout(reader.value("n_features", int, within(0, MOST)), reader.value("fit_intercept", bool))
        number = reader.value("round", int, within(SURVEY_ROUND, MOST_ROUNDS))
        law_name = reader.value("law", str) if "law" in reader else ""
        reader.require((number == SURVEY_ROUND) == (not law_name), "round")
        likelihood = _read_likelihood(reader, law_name, layout)
        if set(record) != _field_names(law_name, likelihood):
            raise codec.CodecError("the broadcast lacks a field, or has one too many.")
        common = cls(
            reader.value("run", int),
            reader.value("session", int, not_negative),
            number,
            reader.value("acknowledged", int, within(NEVER, MOST_ROUNDS)),
            reader.value("seed", int),
            likelihood,
        )
        if not law_name:
            return common
        found, units = read_units(reader, fit_intercept=layout.fit_intercept)
        reader.require(found == layout, "n_features")
        # agents could not leave units without end for others
        reader.require(np.isfinite(units.scale).all(), "scale")
        law = _read_law(reader, law_name, likelihood)
        cluster_of = reader.clusters("cluster_of", (None,), law.n_clusters)
        return replace(common, standardization=units, cluster_of=cluster_of, law=law)


def _law_to_record(law: Law, likelihood: AnyLikelihood) -> codec.Record:
    if isinstance(law, BlendLaw):
        return {"law": BlendLaw.KIND, **vars(law)}
    name = GIBBS if likelihood.name == GAUSSIAN else f"{GIBBS}:{likelihood.name}"
    return {"law": name, **law.to_record(law.broadcast_quantities())}


def _read_likelihood(reader: RecordReader, law_name: str, layout: GramLayout) -> AnyLikelihood:
    """The likelihood that a law is of; the survey and the blend rule know the Gaussian alone."""
    kind, _, name = law_name.partition(":")
    reader.require(kind in ("", GIBBS, BlendLaw.KIND) and (not name or (kind == GIBBS and is_registered(name))), "law")
    return likelihood_named(name or GAUSSIAN, layout)


def _read_law(reader: RecordReader, law_name: str, likelihood: AnyLikelihood) -> Law:
    if law_name == BlendLaw.KIND:
        return BlendLaw.read(reader, likelihood.layout)
    kind = likelihood.globals_type
    law: Globals = kind.read(reader, likelihood.layout.n_coef, kind.broadcast_quantities())
    return law


def _field_names(law_name: str, likelihood: AnyLikelihood) -> set[str]:
    common = {"run", "session", "round", "acknowledged", "seed", "n_features", "fit_intercept"}
    if not law_name:
        return common
    own = {f.name for f in fields(BlendLaw)}
    if law_name != BlendLaw.KIND:
        own = {q.name for q in likelihood.globals_type.broadcast_quantities()}
    return common | {"shift", "scale", "cluster_of", "law"} | own


@dataclass(frozen=True)
class Contribution(_ReadOnly):
    """What one agent's entities sum to, by cluster, under the labels it drew in this round: what travels.

    It holds all clusters of the broadcast, the agent's own or not: its size says nothing about the agent. Inside the
    server and between simulated agents the same sums are kept without the empty clusters, many agents together
    (`Contributions`): a dense copy of each would take most of the memory.

    Attributes
    ----------
    run, session, round : of the broadcast it answers
    agent : canonical text of its id
    entity_counts, table_counts : (clusters,) N_ik and m_ik
    blocks : by name, (clusters, size), as the likelihood's `SumSchema` declares them; in the survey one matrix, around
        `shift`
    scalars : numbers of the agent, named in the same schema
    shift : (n_features + 1,) in the survey, else empty
    """

    run: int
    session: int
    round: int
    agent: str
    entity_counts: CountArray
    table_counts: CountArray
    blocks: dict[str, FloatArray]
    scalars: FloatArray
    shift: FloatArray

    def to_bytes(self) -> bytes:
        named = vars(self)
        return codec.encode("contribution", VERSION, _flat(named, self.blocks))

    @classmethod
    def from_bytes(cls, data: bytes) -> Contribution:
        """Read, not believed: `federation.checks` says what is wrong with the values."""
        record = codec.decode(data, "contribution", VERSION)
        fixed = [f.name for f in fields(cls) if f.name != "blocks"]
        if missing := [name for name in fixed if name not in record]:
            raise codec.CodecError(f"the contribution lacks the field `{missing[0]}`.")
        blocks = {name: value for name, value in record.items() if name not in fixed}
        return cls(**{name: record[name] for name in fixed}, blocks=blocks)


def _flat(values: dict[str, Any], blocks: dict[str, FloatArray]) -> dict[str, Any]:
    """Values with the blocks in the place of the field that holds them."""
    return {
        name: value
        for field, whole in values.items()
        for name, value in (blocks.items() if field == "blocks" else [(field, whole)])
    }


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
    def of(cls, contribution: Contribution, representative: IndexArray, schema: SumSchema) -> Contributions:
        """A single one; its arrays must have the right shapes."""
        used = (contribution.entity_counts != 0) | (contribution.table_counts != 0)
        for block in contribution.blocks.values():
            used |= (block != 0).any(axis=1)
        rows = np.flatnonzero(used)
        sums = AgentSums(
            schema,
            np.array([0, len(rows)]),
            representative[rows].astype(np.int32),
            contribution.entity_counts[rows],
            contribution.table_counts[rows],
            {block.name: contribution.blocks[block.name][rows] for block in schema.blocks},
            contribution.scalars[None],
        )
        life = contribution.run, contribution.session, contribution.round
        return cls(*life, [contribution.agent], representative, sums, contribution.shift[None])

    def __len__(self) -> int:
        return len(self.agents)

    def __getitem__(self, position: int) -> Contribution:
        own = self.sums.take(np.array([position]))
        place = np.empty(self.representative.max() + 1, dtype=np.int64)
        place[self.representative] = np.arange(len(self.representative))

        def dense(rows: Any) -> Any:
            whole = np.zeros((len(self.representative), *rows.shape[1:]), dtype=rows.dtype)
            whole[place[own.clusters]] = rows
            return whole

        return Contribution(
            *(self.run, self.session, self.round),
            self.agents[position],
            dense(own.entity_counts),
            dense(own.table_counts),
            {name: dense(rows) for name, rows in own.blocks.items()},
            own.scalars[0],
            self.shifts[position],
        )

    def take(self, positions: IndexArray) -> Contributions:
        agents = [self.agents[position] for position in positions]
        return replace(self, agents=agents, sums=self.sums.take(positions), shifts=self.shifts[positions])

    def encoded_size(self) -> int:
        """Bytes of all contributions together, as `Contribution.to_bytes` makes them."""
        none = np.empty(0, dtype=np.int32)
        no_blocks = {block.name: np.empty((0, 0)) for block in self.sums.schema.blocks}
        empty = Contribution(0, 0, 0, "", none, none, no_blocks, np.empty(0), np.empty(0))
        row = 2 * none.itemsize + 8 * sum(block.size for block in self.sums.schema.blocks)
        numbers = self.sums.scalars.shape[1] + self.shifts.shape[1]
        each = len(empty.to_bytes()) + len(self.representative) * row + 8 * numbers
        return len(self) * each + len("".join(self.agents).encode(errors="surrogatepass"))
