"""Whatever keeps the sums of all agents can stand in for the ledger."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedhlcr.federation import Server
from fedhlcr.federation.run import run_round
from fedhlcr.model.sums import ClusterSums
from tests.federations import four_clusters, in_process, server_for


class RunningTotal:
    """Adds new − old to a total, and never sums from the start again."""

    def __init__(self, n_clusters, schema):
        self._n_clusters, self._schema = n_clusters, schema
        self._last: dict[int, ClusterSums] = {}
        self._total = ClusterSums.zero(schema, n_clusters)

    @property
    def is_empty(self):
        return not self._total.entity_counts.any()

    def grow(self, n_agents):
        """An agent that has contributed nothing takes no room."""

    def replace(self, agents, sums):
        for position, agent in enumerate(agents.tolist()):
            self.remove(agent)
            self._last[agent] = sums.take(np.array([position])).total(self._n_clusters)
            self._total = self._total + self._last[agent]

    def remove(self, agent):
        if agent in self._last:
            self._total = self._total + negative(self._last.pop(agent))

    def clear(self):
        self._last, self._total = {}, ClusterSums.zero(self._schema, self._n_clusters)

    def shift(self, likelihood, shift):
        """Shifting is linear, so the total changes as every agent's sums do."""
        moved = lambda sums: replace(sums, blocks=likelihood.shifted(sums.blocks, shift))  # noqa: E731
        self._last = {agent: moved(sums) for agent, sums in self._last.items()}
        self._total = moved(self._total)

    def total(self):
        total = self._total
        blocks = {name: block.copy() for name, block in total.blocks.items()}
        scalars = np.array(list(total.scalars.values()))
        return ClusterSums.of(self._schema, blocks, total.entity_counts, total.table_counts, scalars)


def negative(sums: ClusterSums) -> ClusterSums:
    return ClusterSums(
        {name: -block for name, block in sums.blocks.items()},
        -sums.entity_counts,
        -sums.table_counts,
        {name: -value for name, value in sums.scalars.items()},
    )


def run(table, leaver, n_rounds=50, settings=None, **params):
    """A federation with faults from which an agent withdraws; what every agent holds, and the server."""
    given = {"seed": 2, "max_clusters": 12, "participation": 0.7, "patience": None} | (settings or {})
    server = Server(server_for(table.X.shape[1], **given).settings, **params)
    engine = in_process(table, failure_rate=0.3, seed=4)
    while server.round < n_rounds:
        if server.round == 30 and leaver not in server.registry.withdrawn_names:
            server.forget(leaver)
        run_round(server, engine)
    return engine.everyone.labels_at(engine.everyone.accepted_round), server


def assert_running_total_is_the_ledger(table, *args):
    """The run of a running total is that of the ledger; returns its server."""
    leaver = str(table.agent[0])
    (labels, server), (expected_labels, expected) = (
        run(table, leaver, *args, **params) for params in ({"make_account": RunningTotal}, {})
    )
    np.testing.assert_array_equal(labels, expected_labels)
    np.testing.assert_array_equal(server.rule.cluster_of, expected.rule.cluster_of)
    total, ledger = server.rule.account.total(), expected.rule.account.total()
    np.testing.assert_array_equal(total.entity_counts, ledger.entity_counts)
    np.testing.assert_allclose(total.grams, ledger.grams, rtol=1e-9, atol=1e-9)
    # sums of large numbers that cancel leave rounding errors
    assert total.scalars == pytest.approx(ledger.scalars, abs=1e-6)
    np.testing.assert_allclose(server.model().draws.coef, expected.model().draws.coef, rtol=1e-7, atol=1e-9)
    return server


def test_a_running_total_gives_the_run_of_the_ledger(small):
    assert_running_total_is_the_ledger(small[0])


def test_a_running_total_gives_the_run_of_the_ledger_that_goes_back_to_several_clusters():
    """Clusters become one, and several again."""
    server = assert_running_total_is_the_ledger(four_clusters()[0], 75, {"rounds": 100})
    found = [record.n_clusters for record in server.history.records]
    assert 1 in found
    assert found[-1] == 4


def test_an_account_that_forgets_who_is_absent_is_caught(small):
    """Were the comparison blind to the account, this would pass too."""
    table, _ = small

    class Forgetful(RunningTotal):
        def replace(self, agents, sums):
            for agent in list(self._last)[:5]:
                self.remove(agent)
            super().replace(agents, sums)

    leaver = str(table.agent[0])
    _, expected = run(table, leaver)
    _, server = run(table, leaver, make_account=Forgetful)
    assert server.rule.account.total().entity_counts.sum() < expected.rule.account.total().entity_counts.sum()


def test_a_server_is_restored_with_its_account(small):
    table, _ = small

    class Named(RunningTotal):
        def to_record(self):
            total = self.total()
            return {**total.blocks, "counts": np.stack([total.entity_counts, total.table_counts])}

        def restore(self, reader, n_agents):
            counts = reader.array("counts", "f8", (2, self._n_clusters))
            blocks = {b.name: reader.array(b.name, "f8", (self._n_clusters, b.size)) for b in self._schema.blocks}
            self._total = replace(self._total, blocks=blocks, entity_counts=counts[0], table_counts=counts[1])

    server, engine = Server(server_for(3, max_clusters=6).settings, Named), in_process(table)
    for _ in range(4):
        run_round(server, engine)
    restored = Server.from_bytes(server.settings, server.to_bytes(), Named)
    assert isinstance(restored.rule.account, Named)
    np.testing.assert_array_equal(restored.rule.account.total().grams, server.rule.account.total().grams)
