"""How a query of a private run travels: with the plan it belongs to, so that whoever answers can check the noise.

The number of values of an answer and their noise are not sent: both follow from the plan and the stage, and nodes
compute them for themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.checks import SIZE_LIMIT, not_negative, within
from fedhlcr.exceptions import CodecError
from fedhlcr.federation.laws import GIBBS, law_fields, law_to_record
from fedhlcr.federation.private.queries import ROUND, Query, planned_blocks
from fedhlcr.federation.private.scores import RoundQuery
from fedhlcr.federation.private.units import Limits
from fedhlcr.model.gaussian import Gaussian, GaussianGlobals
from fedhlcr.model.gram import GramLayout, Standardization, read_units
from fedhlcr.privacy.accounting import LARGEST_MU, LEAST_RELEASE_MU
from fedhlcr.privacy.differential_privacy import BLOCKS, LOCATIONS, MOST_ROUNDS, STAGES, VOTES, PrivacyPlan, Release
from fedhlcr.privacy.release import UNIT, ClippedBlock
from fedhlcr.storage import codec
from fedhlcr.storage.reader import RecordReader
from fedhlcr.storage.records import field_names, from_record, to_record, under

KIND = "private query"
ANSWER_KIND = "private sum"
VERSION = 1
_CURE = "use the same release of fedhlcr at the server and its agents"
_COMMON = {"run", "session", "stage", "number", "n_features", "fit_intercept", "n_agents", "delta", "rounds", "mu"}
_LIMITS = set(under("limits.", dict.fromkeys(field_names(Limits))))
_UNITS = {"shift", "scale"}
_ROUND = {"cluster_of", *field_names(RoundQuery)}
# A sum of clipped vectors is at most this much longer than the number of its agents, because of rounding.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Inquiry:
    """A query, the plan of its run, and the session: the number of the server's process."""

    session: int
    plan: PrivacyPlan
    query: Query

    def to_bytes(self) -> bytes:
        query = self.query
        plan = self.plan
        record: codec.Record = {
            "run": query.run,
            "session": self.session,
            "stage": query.stage,
            "number": query.number,
            "n_features": query.layout.n_features,
            "fit_intercept": query.layout.fit_intercept,
            "n_agents": plan.n_agents,
            "delta": plan.delta,
            "rounds": plan.rounds,
            "mu": np.array([plan.mu_of(name) for name in (*STAGES, *BLOCKS)]),
        }
        if query.limits is not None:
            record |= under("limits.", to_record(query.limits))
        if query.units is not None:
            record |= query.units.to_record()
        if query.round is not None and query.law is not None and query.cluster_of is not None:
            # the regressions and σ are those of the law
            record |= {"cluster_of": query.cluster_of, **law_to_record(query.law, query.likelihood)}
            record |= to_record(query.round)
        return codec.encode(KIND, VERSION, record)

    @classmethod
    def from_bytes(cls, data: bytes) -> Inquiry:
        """Read the bytes of `to_bytes` and check every field: whoever answers must not rely on the server."""
        record = codec.decode(data, KIND, VERSION)
        reader = RecordReader(record, "the query", _CURE)
        plan = _read_plan(reader)
        stage = reader.value("stage", str)
        reader.require(stage in (*STAGES, ROUND), "stage")
        first, limit = (1, plan.rounds + 1) if stage == ROUND else (0, 1)
        number = reader.value("number", int, within(first, limit))
        layout = GramLayout(reader.value("n_features", int, within(0, SIZE_LIMIT)), reader.value("fit_intercept", bool))
        if set(record) != _fields(stage, layout):
            raise CodecError("the query lacks a field or has an unknown one.")
        query = Query(reader.value("run", int), stage, number, layout, ())
        if stage == ROUND:
            query = _read_round(reader, query)
        elif stage != VOTES:
            known = None if stage == LOCATIONS else _read_units(reader, layout)
            limits = from_record(Limits, reader.part("limits."), {"columns": layout.n_features + 1})
            query = replace(query, limits=limits, units=known)
        query = replace(query, blocks=planned_blocks(stage, layout, plan, query.round))
        return cls(reader.value("session", int, not_negative), plan, query)


def _fields(stage: str, layout: GramLayout) -> set[str]:
    """Names of the fields that a query of this stage has."""
    if stage == ROUND:
        return _COMMON | _UNITS | _ROUND | law_fields(GIBBS, Gaussian(layout))
    return _COMMON | (_LIMITS if stage != VOTES else set()) | (_UNITS if stage not in (VOTES, LOCATIONS) else set())


def _read_plan(reader: RecordReader) -> PrivacyPlan:
    rounds = reader.value("rounds", int, within(1, MOST_ROUNDS + 1))
    size = (len(STAGES) + len(BLOCKS),)
    # a tiny μ would ask for noise that does not fit into 64 bits
    mus = reader.array("mu", "f8", size, lambda mu: (mu >= LEAST_RELEASE_MU) & (mu < LARGEST_MU)).tolist()
    times = [1] * len(STAGES) + [rounds] * len(BLOCKS)
    releases = tuple(Release(*of) for of in zip((*STAGES, *BLOCKS), times, mus, strict=True))
    n_agents = reader.value("n_agents", int, lambda number: number > 1)
    return PrivacyPlan(n_agents, reader.value("delta", float, lambda delta: (delta > 0) & (delta < 1)), releases)


def _read_units(reader: RecordReader, layout: GramLayout) -> Standardization:
    found, known = read_units(reader, fit_intercept=layout.fit_intercept)
    reader.require(found == layout and np.isfinite(known.scale).all(), "scale")
    return known


def _read_round(reader: RecordReader, query: Query) -> Query:
    n_coef = query.layout.n_coef
    reader.require(reader.value("law", str) == GIBBS, "law")
    law = GaussianGlobals.read(reader, n_coef, GaussianGlobals.broadcast_quantities())
    sizes = {"coef": n_coef, "clusters": len(law.coef)}
    question = from_record(RoundQuery, reader, sizes, coef=law.coef, noise_scale=law.noise_scale)
    cluster_of = reader.clusters("cluster_of", (None,), len(law.coef))
    # clusters merge, and none is dropped
    reader.require((cluster_of >= 0).all(), "cluster_of")
    return replace(query, units=_read_units(reader, query.layout), law=law, cluster_of=cluster_of, round=question)


def write_sum(inquiry: Inquiry, values: NDArray[np.int64]) -> bytes:
    """What a node answers to a trusted server: the sum of its agents' clipped vectors, before noise."""
    query = inquiry.query
    record: codec.Record = {"run": query.run, "session": inquiry.session, "place": query.place, "values": values}
    return codec.encode(ANSWER_KIND, VERSION, record)


def read_sum(data: bytes, inquiry: Inquiry, n_agents: int) -> NDArray[np.int64]:
    """The sum in the answer of a node with so many agents; CodecError if honest agents could not have sent it."""
    query = inquiry.query
    reader = RecordReader(codec.decode(data, ANSWER_KIND, VERSION), "the answer", _CURE)
    for name, expected in (("run", query.run), ("session", inquiry.session), ("place", query.place)):
        reader.require(reader.value(name, int) == expected, name)
    values: NDArray[np.int64] = reader.array("values", "i8", (query.n_values,))
    reader.require(_within_clips(values, query.blocks, n_agents), "values")
    return values


def _within_clips(values: NDArray[np.int64], blocks: tuple[ClippedBlock, ...], n_agents: int) -> Any:
    parts = np.split(values.astype(np.float64), np.cumsum([block.size for block in blocks])[:-1])
    return all(np.linalg.norm(part) <= n_agents * UNIT * (1.0 + _ROUNDING) for part in parts)
