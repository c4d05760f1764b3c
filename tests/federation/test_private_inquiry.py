"""Queries of private runs as bytes: whoever answers reads the same query, and refuses a wrong one."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

import numpy as np
import pytest

from fedhlcr import DifferentialPrivacy
from fedhlcr.datasets import make_hlcr
from fedhlcr.exceptions import CodecError
from fedhlcr.federation.private.agents import PrivateAgents
from fedhlcr.federation.private.inquiry import KIND, VERSION, Inquiry, read_sum, write_sum
from fedhlcr.federation.private.run import plain_total
from fedhlcr.federation.private.server import PrivateServer
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.federation.shard import AgentShard
from fedhlcr.model.gram import GramLayout
from fedhlcr.privacy.release import UNIT
from fedhlcr.storage import codec
from tests.federations import hierarchy_of

N_AGENTS, SESSION = 12, 5


def no_noise(_, size):
    return np.zeros(size, dtype=np.int64)


@pytest.fixture(scope="module")
def inquiries():
    """The four stages and four rounds of a run, with the sum of the agents' answers."""
    table, _ = make_hlcr(N_AGENTS, 8, 6, n_features=2, n_clusters=2, random_state=2)
    privacy = DifferentialPrivacy(50.0, rounds=4)
    agents = PrivateAgents(AgentShard.from_hierarchy(hierarchy_of(table)), secret=1)
    server = PrivateServer(FederationSettings(GramLayout(2), privacy=privacy), privacy.plan(N_AGENTS), agents.names)
    made = []
    while not server.finished:
        query = server.query()
        total = plain_total(query, agents.answer(query, np.arange(N_AGENTS)), no_noise)
        made.append((Inquiry(SESSION, server.plan, query), total))
        server.accept(total, np.arange(N_AGENTS))
    return made


def assert_equal(one, other, place=""):
    """All that agents use; what the law does not broadcast is NaN."""
    if is_dataclass(one):
        for field in fields(one):
            if field.name not in ("are_clear", "coef_mean", "coef_scale", "global_concentration"):
                assert_equal(getattr(one, field.name), getattr(other, field.name), f"{place}.{field.name}")
    else:
        np.testing.assert_array_equal(one, other, err_msg=place)


def test_queries_round_trip(inquiries):
    assert [one.query.place for one, _ in inquiries] == list(range(8))
    for one, _ in inquiries:
        assert_equal(one, Inquiry.from_bytes(one.to_bytes()))


def changed(inquiry, **values):
    record = codec.decode(inquiry.to_bytes(), KIND, VERSION)
    record |= values
    return codec.encode(KIND, VERSION, {name: value for name, value in record.items() if value is not None})


@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        (0, {"stage": "everything"}),
        (0, {"stage": "locations"}),
        (0, {"number": 1}),
        (0, {"n_features": -1}),
        (0, {"n_agents": 1}),
        (0, {"delta": 0.0}),
        (0, {"delta": 1.0}),
        (0, {"rounds": 0}),
        (0, {"rounds": 10**9}),
        (0, {"mu": np.full(7, 0.0)}),
        (0, {"mu": np.full(7, 1e-30)}),
        (0, {"mu": np.full(7, 1e9)}),
        (0, {"mu": np.full(7, np.nan)}),
        (0, {"mu": np.full(6, 1.0)}),
        (0, {"session": -1}),
        (0, {"blocks": 1.0}),
        (1, {"limits.low": np.full(3, np.inf)}),
        (1, {"limits.high": np.zeros(2)}),
        (1, {"limits.most_events": 0.0}),
        (1, {"limits.most_events": None}),
        (2, {"scale": np.array([1.0, 0.0, 1.0])}),
        (2, {"scale": np.array([1.0, np.inf, 1.0])}),
        (3, {"shift": np.full(3, np.nan)}),
        (4, {"number": 0}),
        (4, {"number": 5}),
        (4, {"law": "blend"}),
        (4, {"noise_scale": 0.0}),
        (4, {"typical_events": -1.0}),
        (4, {"most_events": np.inf}),
        (4, {"whitening": np.full((3, 3), np.nan)}),
        (4, {"second_moments": np.zeros((1, 3, 3))}),
        (4, {"cluster_of": np.array([0])}),
        (4, {"cluster_of": None}),
    ],
)
def test_a_wrong_query_is_refused(inquiries, place, wrong):
    with pytest.raises(CodecError):
        Inquiry.from_bytes(changed(inquiries[place][0], **wrong))


def test_dropped_clusters_are_refused(inquiries):
    one = inquiries[4][0]
    cluster_of = np.append(one.query.cluster_of, -1)
    with pytest.raises(CodecError, match="cluster_of"):
        Inquiry.from_bytes(changed(one, cluster_of=cluster_of))


def test_sums_round_trip_and_wrong_ones_are_refused(inquiries):
    for one, total in inquiries:
        np.testing.assert_array_equal(read_sum(write_sum(one, total), one, N_AGENTS), total)
        long = total.copy()
        long[-1] = int((N_AGENTS + 1) * UNIT)
        for wrong in (long, total[1:], total.astype(np.float64)):
            with pytest.raises(CodecError):
                read_sum(write_sum(one, wrong), one, N_AGENTS)


def test_a_sum_of_another_query_is_refused(inquiries):
    (first, _), (_, _), (_, _), (_, _), (one, total), (other, _), *_ = inquiries
    for asked in (first, other):
        with pytest.raises(CodecError):
            read_sum(write_sum(one, total), asked, N_AGENTS)
