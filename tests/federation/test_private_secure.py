"""Under secure aggregation agents add the noise of a private total themselves, and it is never less than planned."""

from __future__ import annotations

import numpy as np
import pytest

from fedhlcr import DifferentialPrivacy, FedHLCRRegressor
from fedhlcr.data.hierarchy import build_hierarchy
from fedhlcr.datasets import make_hlcr
from fedhlcr.exceptions import DataWarning
from fedhlcr.federation.private.agents import PrivateAgents
from fedhlcr.federation.private.queries import Query
from fedhlcr.federation.private.run import SecureTotals, plain_total, run_private
from fedhlcr.federation.private.server import PrivateServer
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.federation.shard import AgentShard
from fedhlcr.model.gram import GramLayout
from fedhlcr.privacy.release import Block

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


def test_a_void_sum_is_asked_for_again_and_labels_follow_merged_clusters_once():
    """Every other sum is void, also after clusters were merged: labels must stay within the clusters."""
    table, _ = make_hlcr(60, 8, 6, n_features=2, n_clusters=2, random_state=2)
    hierarchy = build_hierarchy(table.X, table.y, np.ones(len(table)), table.agent, table.entity)
    settings = FederationSettings(GramLayout(2), privacy=DifferentialPrivacy(epsilon=100.0))
    runs = []
    for fails in (False, True):
        agents = PrivateAgents(AgentShard.from_hierarchy(hierarchy), secret=1)
        server = PrivateServer(settings, settings.privacy.plan(60), agents.names)
        calls = iter(range(1_000))

        def total(query, pages, fails=fails, calls=calls):
            found = plain_total(query, pages, no_noise)
            return None if fails and next(calls) % 2 == 0 else found

        run_private(server, agents, aggregate=total)
        assert agents._labels.max() < server._clusters.n_clusters
        assert server.history.records[-1].n_clusters < server.history.records[1].n_clusters
        runs.append(agents._labels)
    # whoever is labelled twice in a round draws the same numbers from other labels: few of them change
    assert (runs[0] != runs[1]).mean() < 0.2
