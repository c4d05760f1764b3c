"""Every line that matters to the federation's labels, to merging and to the blend is held by a test.

Each check passes on the real code, and fails when one line of it is changed.
"""

from __future__ import annotations

import logging

import numpy as np
import pytest

from fedhlcr._support.streams import Stream
from fedhlcr.datasets import make_hlcr
from fedhlcr.federation.ledger import Ledger
from fedhlcr.federation.rules import BlendRule, DeltaRule
from fedhlcr.federation.shard import AgentShard
from fedhlcr.federation.sums import AgentSums
from fedhlcr.kernels.arguments import EntityArrays
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.sums import ClusterSums
from fedhlcr.reference import relabel_agents
from fedhlcr.samplers import blocked, merging
from fedhlcr.samplers.merging import merge_globals, merge_map, merge_state
from fedhlcr.samplers.state import EntityData, label_law
from tests.engines.contract import InProcess
from tests.federation.test_faults import play, random_fates
from tests.federations import (
    FIXED,
    OneByOneEngine,
    agents_of,
    assert_same_server,
    in_process,
    run_rounds,
    server_for,
    total_after,
)
from tests.kernels.test_kernels import check_blend
from tests.mutants import Mutation, mutant, mutated
from tests.problems import PAPER, entities_from
from tests.samplers.test_merging import SPEC

TABLE, _ = make_hlcr(20, 4, 5, 2, 3, 0.4, random_state=3)
NOISY, _ = make_hlcr(30, 4, 3, 2, 4, 1.0, random_state=3)


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL)


# The federation's labels.


def check_books() -> None:
    """After any faults the account is what the agents hold."""
    play(random_fates(1), ["nothing"] * 60, n_rounds=60)


def check_company() -> None:
    """Agents draw and send in company what they draw and send alone."""
    together, alone = (server_for(2, seed=4, max_clusters=8, patience=None) for _ in range(2))
    run_rounds(together, in_process(TABLE), 24)
    run_rounds(alone, OneByOneEngine(agents_of(TABLE)), 24)
    assert_same_server(together, alone)


def check_lost_reply(tmp_path=None) -> None:
    """An agent whose reply was lost continues as if it had never been asked."""
    states = []
    for fate in ("silent", "away"):
        carrier, server = InProcess(TABLE, tmp_path), server_for(2, seed=4, max_clusters=8, patience=None)
        states.append(total_after(fate, carrier, server))
    np.testing.assert_array_equal(states[0].grams, states[1].grams)
    np.testing.assert_array_equal(states[0].table_counts, states[1].table_counts)


def check_centralised() -> None:
    """With all agents the account's totals, merges included, are the sums of a centralised chain."""
    server, engine = server_for(2, seed=4, max_clusters=24, patience=None, **PAPER), in_process(NOISY)
    run_rounds(server, engine, 2)
    index = entities_from(NOISY.X, NOISY.y, NOISY.agent, NOISY.entity).index
    entities = EntityData(server.likelihood, index, engine.everyone.grams)
    stream, merger = Stream(4), merging.Merger(merging.MergeSchedule.until(100), None)
    spec = ModelSpec(target_spread=server.units.target_spread)
    state, n_mergers = blocked.initial_state(entities, spec, 24, stream), 0
    for _ in range(40):
        sums = server.rule.account.total().regroup(server.rule.cluster_of)
        np.testing.assert_array_equal(sums.entity_counts, state.sums.entity_counts)
        np.testing.assert_array_equal(sums.table_counts, state.sums.table_counts)
        np.testing.assert_allclose(sums.grams, state.sums.grams, rtol=1e-8, atol=1e-8)
        run_rounds(server, engine, 1)
        state = blocked.step(entities, spec, state, stream)
        target = merger.look(entities.likelihood, state)
        if target is not None:
            n_mergers, state = n_mergers + 1, merge_state(entities.likelihood, state, target)
    assert n_mergers > 1, "a map of merged clusters was composed with one before"


def check_agents_draw() -> None:
    """Agents of a federation draw the labels and tables of the readable twin of their kernel."""
    server, engine = server_for(2, seed=4, max_clusters=4, patience=None), in_process(TABLE)
    run_rounds(server, engine, 1)
    everyone, labels = engine.everyone, None
    for number in range(1, 6):
        call = server.open_round(engine.agents())
        for reply in engine.deliver(call):
            server.accept(reply)
        streams = Stream(4).agent_streams(everyone.agent_keys)
        arrays = EntityArrays(everyone.grams, everyone.agent_start, everyone.entity_keys, streams)
        law = label_law(server.likelihood, call.broadcast.law, number - 1)
        labels = np.full(len(everyone.grams), -1, dtype=np.int32) if labels is None else labels
        labels, sums = relabel_agents(arrays, law, labels)
        server.close_round()
        np.testing.assert_array_equal(everyone.pending, labels)
        np.testing.assert_array_equal(server.rule.account.total().table_counts, sums.table_counts)


# Merging.


def scattered():
    """Entities strewn over nine clusters, so that merges depend on those before; a tenth cluster is empty."""
    entities = entities_from(TABLE.X, TABLE.y, TABLE.agent, TABLE.entity)
    labels = np.random.default_rng(1).integers(9, size=len(entities))
    return entities.likelihood, blocked.state_from_labels(entities, SPEC, labels, 10, Stream(0))


def greedy(likelihood, state, n_wanted):
    """The partition of the clusters by merging greedily, written literally: all gains anew after every merger."""
    groups = [frozenset([int(k)]) for k in np.flatnonzero(state.sums.occupied)]

    def evidence(group):
        grams = state.sums.grams[sorted(group)].sum(axis=0)[None]
        return float(likelihood.evidence({"grams": grams}, state.globals)[0])

    while len(groups) > (n_wanted or 1):
        pairs = [(a, b) for i, a in enumerate(groups) for b in groups[i + 1 :]]
        gains = [evidence(a | b) - evidence(a) - evidence(b) for a, b in pairs]
        best = int(np.argmax(gains))
        if n_wanted is None and gains[best] <= 0.0:
            break
        a, b = pairs[best]
        groups = [group for group in groups if group not in (a, b)] + [a | b]
    return set(groups)


def check_merging() -> None:
    """Clusters are merged in the order of the gains, and a merged state is that of the merged labels."""
    likelihood, state = scattered()
    for n_wanted in (None, 8, 7, 6, 5, 4, 3, 2, 1):
        target = merge_map(likelihood, state.sums, state.globals, n_wanted)
        found = {frozenset(np.flatnonzero(target == new).tolist()) for new in range(target.max() + 1)}
        assert found == greedy(likelihood, state, n_wanted)
    merged = merge_state(likelihood, state, target)
    for before, after in ((state.sums.grams, merged.sums.grams), (state.sums.table_counts, merged.sums.table_counts)):
        np.testing.assert_allclose(after[0], before.sum(axis=0), rtol=1e-10)
    occupied = state.sums.occupied
    assert np.exp(merged.globals.log_weights[0]) == pytest.approx(np.exp(state.globals.log_weights[occupied]).sum())
    largest = int(np.argmax(state.sums.entity_counts))
    np.testing.assert_array_equal(merged.globals.coef[0], state.globals.coef[largest])


# The blend.


def check_blend_kernel() -> None:
    check_blend(3)


def check_blend_scaling() -> None:
    """S ← (1 − γ) S + γ · (all agents / participants) · Σ, of matrices and of counts."""
    server = server_for(2, seed=2, rule="blend", n_clusters=2, participation=0.3, learning_rate=0.4, **FIXED)
    engine = in_process(TABLE)
    while server.rule is None:
        run_rounds(server, engine, 1)
    blended = np.zeros(2)
    for _ in range(4):
        call = server.open_round(engine.agents())
        replies = list(engine.deliver(call))
        for reply in replies:
            server.accept(reply)
        server.close_round()
        came = np.array(
            [sum(r.sums.entity_counts.sum() for r in replies), sum(r.sums.grams[:, 0].sum() for r in replies)]
        )
        blended = 0.6 * blended + 0.4 * (20 / len(call.agents)) * came
        record = server.rule.to_record()
        assert [record["entity_counts"].sum(), record["grams"][:, 0].sum()] == pytest.approx(blended)


MUTATIONS = {
    "labels of a lost reply are kept": Mutation(
        AgentShard.labels_at, "np.where(arrived, self.pending, self.accepted)", "self.pending", check_books
    ),
    "labels are drawn given those of a lost reply": Mutation(
        AgentShard._sample, "[self.accepted].astype", "[self.pending].astype", check_lost_reply
    ),
    "contributions go under another agent's name": Mutation(
        AgentShard._contributions, "for i in agents]", "for i in np.roll(agents, 1)]", check_company
    ),
    "an agent mixes up the labels of its entities": Mutation(
        AgentShard._sample, "self.pending[drawn] =", "self.pending[drawn[::-1]] =", check_books
    ),
    "absent agents are dropped from the total": Mutation(
        Ledger.replace,
        "self._page(page).replace(",
        "AgentSums.empty(self._schema, len(self._pages[page])).replace(",
        check_books,
    ),
    "entities are counted as tables": Mutation(
        AgentSums.total, "(self.entity_counts, self.table_counts)", "(self.entity_counts, self.entity_counts)",
        check_centralised,
    ),
    "merges are not composed": Mutation(
        DeltaRule._merged, "np.append(target, -1)[self.cluster_of]", "np.resize(target, self.cluster_of.shape)",
        check_centralised,
    ),
    "the gain has the wrong sign": Mutation(
        merging._GainTable._add, "value - self._single[k] - self._single[other]",
        "self._single[k] + self._single[other] - value", check_merging,
    ),
    "the gain forgets one of the two clusters": Mutation(
        merging._GainTable._add, "value - self._single[k] - self._single[other]", "value - self._single[k]",
        check_merging,
    ),
    "pairs are scored without the second cluster": Mutation(
        merging._GainTable._together, "block + self._rows[other][name]", "block", check_merging
    ),
    "a merged cluster keeps its old matrix": Mutation(
        merging._GainTable.merge, "self._rows[keep] = self._together(keep, drop)", "pass", check_merging
    ),
    "a merged cluster keeps its old evidence": Mutation(
        merging._GainTable.merge, "self._single[keep] = float(self._evidence([self._rows[keep]])[0])", "pass",
        check_merging,
    ),
    "merged sums are not added": Mutation(
        ClusterSums.regroup, "np.add.at(gathered, target[target >= 0], values[target >= 0])",
        "gathered[target[target >= 0]] = values[target >= 0]", check_merging,
    ),
    "merged weights are not added": Mutation(
        merge_globals, "np.logaddexp(weights[target[k]], drawn.log_weights[k])", "drawn.log_weights[k]", check_merging
    ),
    "a merged cluster keeps the coefficients of its smaller part": Mutation(
        merge_globals, "np.argsort(entity_counts,", "np.argsort(-entity_counts,", check_merging
    ),
    "the blend is not scaled to all agents": Mutation(
        BlendRule.close, "gamma * (n_known / n_accepted if self._scaling else 1.0)", "gamma", check_blend_scaling
    ),
    "γ is on the wrong side": Mutation(
        BlendRule.close, "(1.0 - gamma) * old.grams + factor * new.grams",
        "gamma * old.grams + (1.0 - gamma) * new.grams", check_blend_kernel,
    ),
    "counts are not blended": Mutation(
        BlendRule.close, "(1.0 - gamma) * old.entity_counts + factor * new.entity_counts", "new.entity_counts",
        check_blend_scaling,
    ),
}  # fmt: skip


CHECKS = (
    check_books,
    check_company,
    check_lost_reply,
    check_centralised,
    check_agents_draw,
    check_merging,
    check_blend_kernel,
    check_blend_scaling,
)


@pytest.mark.parametrize("check", CHECKS)
def test_the_real_code_passes(check):
    check()


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_changed_line_is_caught(name):
    function, old, new, check = MUTATIONS[name]
    with mutated(function, old, new), pytest.raises(AssertionError):
        check()


KERNEL_CHECKS = {
    "own label not removed": check_agents_draw,
    "counts of the wrong agent": check_agents_draw,
    "only the first opens a table": check_agents_draw,
    "own label kept in the blend": check_blend_kernel,
    "own label kept in the blend's totals": check_blend_kernel,
    "own data not added in the blend": check_blend_kernel,
}


@pytest.mark.parametrize("check", sorted(set(KERNEL_CHECKS.values()), key=lambda check: check.__name__))
def test_the_agents_kernels_pass_as_plain_python(check, tmp_path):
    with mutant(None, tmp_path, compiled=False):
        check()


@pytest.mark.parametrize("name", KERNEL_CHECKS)
def test_a_changed_line_of_the_agents_kernels_is_caught(name, tmp_path):
    with mutant(name, tmp_path, compiled=False), pytest.raises(AssertionError):
        KERNEL_CHECKS[name]()
