"""Under secure aggregation agents add the noise of a private total themselves, and it is never less than planned."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedhlcr import DifferentialPrivacy, FedHLCRRegressor
from fedhlcr.data.hierarchy import build_hierarchy
from fedhlcr.datasets import make_hlcr
from fedhlcr.exceptions import DataWarning
from fedhlcr.federation.private import agents as private_agents
from fedhlcr.federation.private.agents import PrivateAgents
from fedhlcr.federation.private.queries import Query
from fedhlcr.federation.private.run import SecureTotals, plain_total, run_private
from fedhlcr.federation.private.server import PrivateServer
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.federation.shard import AgentShard
from fedhlcr.model.gram import GramLayout
from fedhlcr.privacy.release import Block
from fedhlcr.samplers.blocked import relabel_agents

pytest.importorskip("cryptography", reason="the privacy extra is not installed")

BLOCKS = (Block("scores", 40, 0.5), Block("counts", 10, 2.0))
QUERY = Query(1, "round", 1, GramLayout(2), BLOCKS)


def no_noise(scale, size):
    del scale
    return np.zeros(size, dtype=np.int64)


def seeded(seed):
    rng = np.random.default_rng(seed)
    return lambda scale, size: np.rint(scale * rng.standard_normal(size)).astype(np.int64)


def secure_total(n_agents, source, vectors):
    return SecureTotals([f"agent {i}" for i in range(n_agents)], 3, source)(QUERY, vectors)


def pages(n_agents, seed=0):
    rng = np.random.default_rng(seed)
    return [(np.arange(n_agents), rng.integers(-(2**30), 2**30, size=(n_agents, 50)))]


def test_without_noise_both_totals_are_the_same():
    secure = secure_total(12, no_noise, pages(12))
    np.testing.assert_array_equal(secure, plain_total(QUERY, pages(12), no_noise))


def test_the_shares_of_the_noise_add_up_to_no_less_than_planned():
    n_agents, source = 10, seeded(3)
    zero = [(np.arange(n_agents), np.zeros((n_agents, 50), dtype=np.int64))]
    totals = [secure_total(n_agents, source, zero) for _ in range(40)]
    for block, part in zip(BLOCKS, np.split(np.array(totals), [40], axis=1), strict=True):
        variance = part.astype(float).var() / block.lattice_scale**2
        # ten shares, each as large as if there were eight
        assert variance == pytest.approx(10 / 8, abs=5 * np.sqrt(2 / part.size) * 10 / 8)


def test_too_few_agents_give_no_total():
    assert secure_total(20, no_noise, pages(15)) is None


def test_a_private_fit_needs_no_trusted_server():
    table, _ = make_hlcr(12, 10, 6, n_features=2, n_clusters=2, random_state=2)
    ids = {"agent": table.agent, "entity": table.entity}
    model = FedHLCRRegressor(privacy=DifferentialPrivacy(epsilon=50.0, rounds=4), aggregation="secure")
    model.fit(table.X, table.y, **ids)
    assert np.isfinite(model.predict(table.X, **ids)).all()
    assert model.privacy_.epsilon == pytest.approx(50.0)


def test_too_few_agents_for_a_budget_are_warned_of():
    table, _ = make_hlcr(8, 8, 6, n_features=2, n_clusters=2, random_state=2)
    model = FedHLCRRegressor(privacy=DifferentialPrivacy(epsilon=1.0, rounds=2))
    with pytest.warns(DataWarning) as told:
        model.fit(table.X, table.y, agent=table.agent, entity=table.entity)
    text = " ".join(str(warning.message) for warning in told)
    assert "δ is 0.1" in text
    assert "The noise hides where the columns of 8 agents lie" in text


def private_run(n_agents=20):
    table, _ = make_hlcr(n_agents, 8, 6, n_features=2, n_clusters=2, random_state=2)
    hierarchy = build_hierarchy(table.X, table.y, np.ones(len(table)), table.agent, table.entity)
    settings = FederationSettings(GramLayout(2), privacy=DifferentialPrivacy(epsilon=100.0))
    agents = PrivateAgents(AgentShard.from_hierarchy(hierarchy), secret=1)
    return PrivateServer(settings, settings.privacy.plan(n_agents), agents.names), agents


def test_a_void_sum_is_asked_for_again():
    """Every other sum is void, many more in all than in a row."""
    server, agents = private_run()
    n_calls = 0

    def every_other(query, pages):
        nonlocal n_calls
        n_calls += 1
        total = plain_total(query, pages, no_noise)
        return None if n_calls % 2 else total

    run_private(server, agents, aggregate=every_other)
    assert server.round == server.plan.rounds
    assert n_calls == 2 * (server.plan.rounds + 4)


def test_labels_follow_merged_clusters_once(monkeypatch):
    """A round whose sum was void is asked for again: labels are mapped to its clusters already."""
    server, agents = private_run()
    everyone = np.arange(20)
    while server.round < 2:
        query = server.query()
        server.accept(plain_total(query, agents.answer(query, everyone), no_noise), everyone)
    starts = []

    def spy(likelihood, part, law, labels):
        starts.append(labels.copy())
        return relabel_agents(likelihood, part, law, labels)

    monkeypatch.setattr(private_agents, "relabel_agents", spy)
    # cluster k becomes k − 1
    query = server.query()
    query = replace(query, cluster_of=np.maximum(np.arange(len(query.cluster_of)) - 1, 0))
    before = agents._labels
    list(agents.answer(query, everyone))
    between = agents._labels
    list(agents.answer(query, everyone))
    np.testing.assert_array_equal(starts[0], np.maximum(before - 1, 0))
    np.testing.assert_array_equal(starts[1], between)
