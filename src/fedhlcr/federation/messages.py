"""The messages of a federation: the server sends a `Broadcast`, and each agent it asked answers with a `Contribution`.

**What leaves an agent.** A contribution is all that an agent sends, and it holds exactly this:

    in every message            the agent's name; run, session and round of the broadcast it answers
    in the survey, round 0      `shift`: the mean of each feature and of the target, over the agent's events
                                `grams`: one augmented Gram matrix of all its events around these means
                                `quantiles`: 33 quantiles of each column that may get a curve, if there are such. Of
                                an agent with fewer events these are all values that the column has
    in every later round, for   `entity_counts`: how many of its entities are in the cluster
    each cluster                `table_counts`: a draw that the labels' prior needs, between 1 and the entity count
                                `grams`: the augmented Gram matrix of the events of these entities
    and once                    `scalars`: four numbers of the labels' prior, `model.schema.LABEL_SCALARS`; one of them
                                is how many labels changed

An augmented Gram matrix holds the number of events and the sums of all products of features and target
(`model.gram`). A likelihood may declare further blocks and scalars in its `SumSchema`; `federation.mods` can change or
withhold a contribution before it leaves. Events, labels and entity ids are never sent.

These sums are not secret, and not anonymous: if an agent has a single entity in a cluster, the cluster's sums are that
entity's. They are absolute, what the agent's entities sum to now, and not what has changed since the last round. The
size of a contribution does not depend on how many events and entities the agent has.

A Flower node also sends the names of its agents and columns, scores of its test events, and reasons why it does not
take part: `engines.flower.records`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from fedhlcr._support.arrays import CountArray, FloatArray, IndexArray
from fedhlcr._support.checks import SIZE_LIMIT, not_negative, within
from fedhlcr.exceptions import CodecError
from fedhlcr.federation.fixed_sums import SumTerms
from fedhlcr.federation.laws import Law, law_fields, law_to_record, likelihood_of_law, read_law
from fedhlcr.federation.read_only import ReadOnly
from fedhlcr.federation.sums import AgentSums
from fedhlcr.model.curves import N_QUANTILES
from fedhlcr.model.gram import GramLayout, Standardization, read_units
from fedhlcr.model.likelihood import AnyLikelihood
from fedhlcr.model.schema import SumSchema
from fedhlcr.storage import codec
from fedhlcr.storage.reader import RecordReader
from fedhlcr.storage.records import field_names, from_record, to_record

VERSION = 1
# Stands for the last accepted round of an agent whose contributions were never accepted.
NEVER = -1
SURVEY_ROUND = 0
# The keys of random numbers have 32 bits for the round.
MOST_ROUNDS = 2**32
# The survey sums all entities as if they were in one cluster.
SURVEY_CLUSTERS = np.zeros(1, dtype=np.int64)
COMMON_FIELDS = {"run", "session", "round", "acknowledged", "seed", "n_features", "fit_intercept"}


@dataclass(frozen=True)
class Broadcast(ReadOnly):
    """What the server sends to an agent in a round.

    Attributes
    ----------
    run : number of the federation; it follows from the settings
    session : number of the server process; a server that was restarted has a higher one
    round : round 0 is the survey, which has no law yet; an agent answers it with one matrix of all its events
    acknowledged : round of the agent's last accepted contribution, or NEVER
    seed : seed of the run; it keys the agents' random numbers
    likelihood : likelihood of the run, with the layout on which all agents must agree
    standardization : units of the run; None in the survey
    cluster_of : (original clusters,) the present cluster of each original one, −1 for a cluster that was dropped; None
        in the survey
    law : what the agents draw their labels under, `federation.laws`; None in the survey
    curve_columns : in the survey, positions of the columns whose quantiles agents report
    terms : how agents report sums in fixed point; None if they report them in floating point
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
    curve_columns: tuple[int, ...] = ()
    terms: SumTerms | None = None

    @property
    def layout(self) -> GramLayout:
        return self.likelihood.layout

    @property
    def sweep(self) -> int:
        """The sweep of a centralised chain that draws the same numbers. Round 1 corresponds to its start, sweep 0."""
        return self.round - 1

    @cached_property
    def representative(self) -> IndexArray:
        """(clusters,) the first original cluster of each present one; agents store labels by its number."""
        if self.cluster_of is None:
            return SURVEY_CLUSTERS
        clusters, first = np.unique(self.cluster_of, return_index=True)
        return first[clusters >= 0].astype(np.int64)

    def acknowledging(self, acknowledged: int) -> Broadcast:
        """The same broadcast for an agent whose last accepted contribution was of the given round."""
        return replace(self, acknowledged=int(acknowledged))

    def to_bytes(self) -> bytes:
        return codec.encode("broadcast", VERSION, self._to_record())

    @cached_property
    def n_bytes(self) -> int:
        """The size of `to_bytes`."""
        return codec.encoded_size("broadcast", VERSION, self._to_record())

    def _to_record(self) -> codec.Record:
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
                **self.standardization.to_record(),
                "cluster_of": self.cluster_of,
                **law_to_record(self.law, self.likelihood),
            }
        elif self.curve_columns:
            record["curve_columns"] = np.array(self.curve_columns, dtype=np.int64)
        if self.terms is not None:
            record |= to_record(self.terms)
        return record

    @classmethod
    def from_bytes(cls, data: bytes) -> Broadcast:
        """Read the bytes of `to_bytes` and check every field: an agent must not rely on the server being correct."""
        record = codec.decode(data, "broadcast", VERSION)
        reader = RecordReader(record, "the broadcast", "use the same release of fedhlcr at the server and its agents")
        layout = GramLayout(reader.value("n_features", int, within(0, SIZE_LIMIT)), reader.value("fit_intercept", bool))
        number = reader.value("round", int, within(SURVEY_ROUND, MOST_ROUNDS))
        law_name = reader.value("law", str) if "law" in reader else ""
        reader.require((number == SURVEY_ROUND) == (not law_name), "round")
        units = None
        if law_name:
            found, units = read_units(reader, fit_intercept=layout.fit_intercept)
            reader.require(found.n_features == layout.n_features, "n_features")
            # an agent could not convert its matrices back from infinite units
            reader.require(np.isfinite(units.scale).all(), "scale")
            layout = found
        likelihood = likelihood_of_law(reader, law_name, layout)
        if units is None:
            own_fields = {"curve_columns"} & set(record)
        else:
            own_fields = {"cluster_of", *units.to_record()} | law_fields(law_name, likelihood)
        own_fields |= field_names(SumTerms) if "epoch" in record else set()
        if set(record) != COMMON_FIELDS | own_fields:
            raise CodecError("the broadcast lacks a field or has an unknown one.")
        common = cls(
            reader.value("run", int),
            reader.value("session", int, not_negative),
            number,
            reader.value("acknowledged", int, within(NEVER, MOST_ROUNDS)),
            reader.value("seed", int),
            likelihood,
        )
        if units is None:
            terms = _read_terms(reader, 0, layout)
            return replace(common, curve_columns=_read_columns(reader, layout), terms=terms)
        law = read_law(reader, law_name, likelihood)
        cluster_of = reader.clusters("cluster_of", (None,), law.n_clusters)
        terms = _read_terms(reader, len(cluster_of), layout)
        return replace(common, standardization=units, cluster_of=cluster_of, law=law, terms=terms)


def _read_terms(reader: RecordReader, n_clusters: int, layout: GramLayout) -> SumTerms | None:
    sizes = {"clusters": n_clusters, "coef": layout.n_coef, "columns": layout.width - 1}
    return from_record(SumTerms, reader, sizes) if "epoch" in reader else None


def _read_columns(reader: RecordReader, layout: GramLayout) -> tuple[int, ...]:
    """The columns whose quantiles are asked for, ascending."""
    if "curve_columns" not in reader:
        return ()
    columns = reader.array("curve_columns", "i8", (None,), within(0, layout.n_features))
    reader.require(len(columns) and (np.diff(columns) > 0).all(), "curve_columns")
    return tuple(columns.tolist())


NO_QUANTILES = np.empty((0, N_QUANTILES))


@dataclass(frozen=True)
class Contribution(ReadOnly):
    """The sums of one agent's entities by cluster, under the labels that the agent drew in this round.

    It has a row for every cluster of the broadcast, so that its size says nothing about the agent. Why sums have other
    forms inside a process: `federation.sums`.

    Attributes
    ----------
    run, session, round : of the broadcast it answers
    agent : canonical text of the agent's id
    entity_counts, table_counts : (clusters,) N_ik and m_ik
    blocks : by name, (clusters, size), as the likelihood's `SumSchema` declares them; in the survey one Gram matrix
        around `shift`
    scalars : (scalars,) numbers of the agent, named in the same schema
    shift : (n_features + 1,) the agent's column means in the survey; empty in later rounds
    quantiles : (columns, N_QUANTILES) in the survey, of the columns that the broadcast asks for; else empty
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
    quantiles: FloatArray = field(default_factory=lambda: NO_QUANTILES)

    def to_bytes(self) -> bytes:
        record: codec.Record = {}
        for name, value in vars(self).items():
            record |= self.blocks if name == "blocks" else {name: value}
        if not len(self.quantiles):
            del record["quantiles"]
        return codec.encode("contribution", VERSION, record)

    @classmethod
    def from_bytes(cls, data: bytes) -> Contribution:
        """Read the bytes of `to_bytes` without a check of the values: that is the task of `federation.checks`."""
        record = codec.decode(data, "contribution", VERSION)
        fixed = [f.name for f in fields(cls) if f.name != "blocks"]
        record.setdefault("quantiles", NO_QUANTILES)
        if missing := [name for name in fixed if name not in record]:
            raise CodecError(f"the contribution lacks the field `{missing[0]}`.")
        blocks = {name: value for name, value in record.items() if name not in fixed}
        return cls(**{name: record[name] for name in fixed}, blocks=blocks)


@dataclass(frozen=True)
class Contributions:
    """Contributions of many agents to one round, stacked, without the clusters in which an agent has no entity.

    Attributes
    ----------
    run, session, round : of the broadcast they answer
    agents : canonical texts of the agents' ids
    representative : (clusters,) the original cluster that stands for each cluster of the broadcast
    sums : the agents' sums, with rows by original cluster
    shifts : (agents, n_features + 1) column means in the survey; (agents, 0) in later rounds
    quantiles : (agents, columns, N_QUANTILES) of the columns that the survey asks for; None if it asks for none
    """

    run: int
    session: int
    round: int
    agents: list[str]
    representative: IndexArray
    sums: AgentSums
    shifts: FloatArray
    quantiles: FloatArray | None = None

    @classmethod
    def from_one(cls, contribution: Contribution, representative: IndexArray, schema: SumSchema) -> Contributions:
        """Stack a single contribution, whose arrays must have the right shapes."""
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
        answered = contribution.run, contribution.session, contribution.round
        quantiles = contribution.quantiles[None] if len(contribution.quantiles) else None
        return cls(*answered, [contribution.agent], representative, sums, contribution.shift[None], quantiles)

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
            NO_QUANTILES if self.quantiles is None else self.quantiles[position],
        )

    def take(self, positions: IndexArray) -> Contributions:
        agents = [self.agents[position] for position in positions]
        quantiles = None if self.quantiles is None else self.quantiles[positions]
        sums = self.sums.take(positions)
        shifts = self.shifts[positions]
        return replace(self, agents=agents, sums=sums, shifts=shifts, quantiles=quantiles)

    def encoded_size(self) -> int:
        """Bytes of all contributions together, if each were written by `Contribution.to_bytes`."""
        row = 2 * self.sums.entity_counts.itemsize + 8 * sum(block.size for block in self.sums.schema.blocks)
        numbers = self.sums.scalars.shape[1] + self.shifts.shape[1]
        if self.quantiles is not None:
            numbers += self.quantiles[0].size if len(self) else 0
        blocks = tuple(block.name for block in self.sums.schema.blocks)
        each = _empty_size(blocks, has_quantiles=self.quantiles is not None)
        each += len(self.representative) * row + 8 * numbers
        return len(self) * each + len("".join(self.agents).encode(errors="surrogatepass"))


@cache
def _empty_size(blocks: tuple[str, ...], *, has_quantiles: bool) -> int:
    """Bytes of a contribution without numbers and without a name."""
    no_counts = np.empty(0, dtype=np.int32)
    no_blocks = {name: np.empty((0, 0)) for name in blocks}
    # a row without numbers stands for the quantiles, so that their field is written
    quantiles = np.empty((1, 0)) if has_quantiles else NO_QUANTILES
    empty = Contribution(0, 0, 0, "", no_counts, no_counts, no_blocks, np.empty(0), np.empty(0), quantiles)
    return len(empty.to_bytes())
