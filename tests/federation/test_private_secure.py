"""Under secure aggregation agents add the noise of a private total themselves, and it is never less than planned."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedhlcr import DifferentialPrivacy, FedHLCRRegressor
from fedhlcr.data.hierarchy import build_hierarchy
from fedhlcr.datasets import make_hlcr
from fedhlcr.exceptions import DataWarning, FederationError
from fedhlcr.federation.private import agents as private_agents
from fedhlcr.federation.private.agents import PrivateAgents
from fedhlcr.federation.private.queries import ROUND, Query, planned_blocks
from fedhlcr.federation.private.run import AgentsHere, QueryOutcome, SecureTotals, plain_total, run_private
from fedhlcr.federation.private.server import PrivateServer
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.federation.shard import AgentShard
from fedhlcr.model.gram import GramLayout
from fedhlcr.privacy.release import ClippedBlock
from fedhlcr.samplers.blocked import relabel_agents

pytest.importorskip("cryptography", reason="the privacy extra is not installed")

BLOCKS = (ClippedBlock("scores", 40, 0.5), ClippedBlock("counts", 10, 2.0))
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

    run_private(server, AgentsHere(agents, every_other))
    assert server.round == server.plan.rounds
    assert n_calls == 2 * (server.plan.rounds + 4)


def without_first_cluster(query, plan):
    """The query as if cluster 0 had been merged with cluster 1."""
    question = replace(query.round, coef=query.round.coef[1:], second_moments=query.round.second_moments[1:])
    return replace(
        query,
        law=query.law.of_clusters(slice(1, None)),
        cluster_of=np.maximum(np.arange(len(query.cluster_of)) - 1, 0),
        round=question,
        blocks=planned_blocks(ROUND, query.layout, plan, question),
    )


def test_labels_follow_merged_clusters(monkeypatch):
    """They are kept by the clusters of the first round: whoever missed a round, or is asked again, loses nothing."""
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
    query = without_first_cluster(server.query(), server.plan)
    before = agents.labels
    list(agents.answer(query, everyone))
    between = agents.labels
    assert not (between == 1).any(), "the first of the merged clusters stands for both"
    list(agents.answer(query, everyone))
    np.testing.assert_array_equal(starts[0], np.maximum(before - 1, 0))
    np.testing.assert_array_equal(starts[1], np.maximum(between - 1, 0))


def test_labels_of_clusters_that_a_query_does_not_have_are_drawn_anew():
    server, agents = private_run()
    everyone = np.arange(20)
    while server.round < 1:
        query = server.query()
        server.accept(plain_total(query, agents.answer(query, everyone), no_noise), everyone)
    agents.labels[:] = 1000
    list(agents.answer(server.query(), everyone))
    assert (agents.labels < len(query.cluster_of)).all()


def test_a_sum_that_was_lost_is_not_asked_for_again():
    """Agents have sent their vectors and the total never came: the round is spent, and the next one follows."""
    server, agents = private_run()
    honest, asked = AgentsHere(agents, plain_total), []

    class Losing:
        def prepare(self):
            pass

        def ask(self, query):
            asked.append(query.number)
            return QueryOutcome(is_spent=True) if query.number in (3, 10, 20) else honest.ask(query)

    run_private(server, Losing())
    assert asked == [0, 0, 0, 0, *range(1, 21)]
    assert server.finished
    assert "24 of 24 queries" in server.spent
    assert [record.n_accepted for record in server.history.records].count(0) == 3


def test_a_run_ends_if_the_units_are_lost():
    server, agents = private_run()
    server.accept(plain_total(server.query(), agents.answer(server.query(), np.arange(20)), no_noise), np.arange(20))
    with pytest.raises(FederationError, match="the sum of the locations was lost"):
        server.skip()
    assert server.spent.startswith("2 of 24 queries of the privacy plan were asked; they cost epsilon = ")
