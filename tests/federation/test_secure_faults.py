"""Whatever fails, the running total under masks equals the ledger of what was accepted, to the last bit."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedhlcr.engines.in_process import InProcessEngine
from fedhlcr.engines.simulated_parties import N_STAGES
from fedhlcr.federation import Server
from fedhlcr.federation.fixed_accounts import FixedLedger
from fedhlcr.federation.messages import NEVER
from fedhlcr.federation.run import run_round
from tests.federations import four_clusters, hierarchy_of, server_for

pytest.importorskip("cryptography", reason="the privacy extra is not installed")

N_AGENTS = 5
TABLE = four_clusters(n_agents=N_AGENTS)[0]
# In one round: before which of the four messages each agent fails (4 for none), and what befalls the server after it.
ROUNDS = st.tuples(
    st.lists(st.sampled_from([0, 1, 2, 3, 4, 4, 4, 4]), min_size=N_AGENTS, max_size=N_AGENTS),
    st.sampled_from(["goes on", "goes on", "goes on", "saves", "crashes", "goes back"]),
)


class Scripted(InProcessEngine):
    """Agents fail before the messages that a test chooses."""

    stages: tuple[int, ...] = (N_STAGES,) * N_AGENTS

    def open_parties(self, call):
        parties = super().open_parties(call)
        parties.last_stages = dict(zip(self.everyone.agents, self.stages, strict=True))
        return parties


class Followed:
    """A secure run, and beside it a ledger of what the server has accepted of each agent."""

    def __init__(self, effects):
        self.engine = Scripted.from_hierarchy(hierarchy_of(TABLE), failure_rate=0.0, seed=1, n_threads=1)
        params = {"seed": 3, "max_clusters": 6, "patience": None, "rounds": 1000, "effects": effects}
        self.server = server_for(2, aggregation="secure", min_cohort=3, **params)
        while self.server.round < 1:
            run_round(self.server, self.engine)
        self.ledger = FixedLedger(6, self.server.likelihood)
        self.ledger.grow(N_AGENTS)
        self.epoch, self.n_faults, self.n_commits = 0, 0, 0
        self._note()
        self._save()

    def _note(self):
        """Enter the contributions of the last round into the ledger."""
        server, shard = self.server, self.engine._shards[0]
        if server.rule.account.epoch != self.epoch:
            self.ledger.clear()
            self.epoch = server.rule.account.epoch
        rounds = server.registry.accepted_round[server.registry.find(shard.agents)]
        new = np.flatnonzero((rounds == server.round) & (rounds != NEVER))
        if len(new):
            self.ledger.replace(new, shard.kept.pending.take(new))
            self.n_commits += 1

    def _save(self):
        self.saved = self.server.to_bytes(), copy.deepcopy(self.ledger), self.epoch

    def round(self, stages, fate):
        self.engine.stages = tuple(stages)
        before = self.server.to_bytes()
        run_round(self.server, self.engine)
        self.n_faults += sum(stage < N_STAGES for stage in stages) + (fate != "goes on")
        if fate == "crashes":
            # the commit is lost: agents settle for what the server says next
            self._restore(before)
        elif fate == "goes back":
            self._note()
            self._restore(self.saved[0])
            self.ledger, self.epoch = copy.deepcopy(self.saved[1]), self.saved[2]
        else:
            self._note()
            if fate == "saves":
                self._save()

    def _restore(self, data):
        was = self.server
        self.server = Server.from_bytes(was.settings, data)
        self.server.session = was.session + 1

    def finish(self):
        """Rounds without faults, until every agent has answered in the last epoch."""
        self.engine.stages = (N_STAGES,) * N_AGENTS
        for _ in range(3):
            run_round(self.server, self.engine)
            self._note()

    def is_right(self):
        return np.array_equal(self.server.rule.account.integers(), self.ledger.integers())


def follow(effects, plan):
    run = Followed(effects)
    for stages, fate in plan:
        run.round(stages, fate)
        assert run.is_right()
    run.finish()
    return run


EXAMPLES = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=6, derandomize=True, **EXAMPLES)
@given(effects=st.sampled_from(["none", "entity"]), plan=st.lists(ROUNDS, min_size=4, max_size=8))
def test_the_total_is_the_ledger_whatever_fails(effects, plan):
    run = follow(effects, plan)
    assert run.is_right()
    assert run.server.rule.account.total().entity_counts.sum() == 5 * N_AGENTS


@pytest.mark.slow
def test_the_total_is_the_ledger_after_ten_thousand_faults():
    counted = []

    @settings(max_examples=220, derandomize=True, **EXAMPLES)
    @given(effects=st.sampled_from(["none", "entity"]), plan=st.lists(ROUNDS, min_size=16, max_size=22))
    def check(effects, plan):
        run = follow(effects, plan)
        assert run.is_right()
        counted.append((run.n_faults, run.n_commits))

    check()
    n_faults, n_commits = np.sum(counted, axis=0)
    assert n_faults >= 10_000
    assert n_commits >= 1_000


def test_a_ledger_that_misses_a_contribution_is_noticed():
    """Were the comparison blind, this would pass too."""
    run = Followed("none")
    run.round([N_STAGES] * N_AGENTS, "goes on")
    run.ledger.remove(0)
    assert not run.is_right()
