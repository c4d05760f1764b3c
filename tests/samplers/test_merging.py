"""Merging: clusters that belong together are merged, and the wanted number is reached."""

from __future__ import annotations

import numpy as np
import pytest

from fedhlcr._support.streams import Stream
from fedhlcr.datasets import make_hlcr
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.regression import log_evidence
from fedhlcr.samplers import blocked
from fedhlcr.samplers.chain import ChainPlan, run_chain
from fedhlcr.samplers.merging import MergeSchedule, merge_map, merge_state
from tests.problems import entities_from

SPEC = ModelSpec(noise_scale=0.3, coef_scale=1.0, global_concentration=1.0, agent_concentration=1.0)


@pytest.fixture(scope="module")
def split_clusters():
    """Entities of three true clusters, each torn into two, and one cluster that is empty."""
    table, truth = make_hlcr(30, 4, 6, 3, 3, 0.3, agent_concentration=5.0, random_state=2)
    entities = entities_from(table.X, table.y, table.agent, table.entity)
    torn = 2 * truth.labels + np.arange(len(truth.labels)) % 2
    return entities, truth, blocked.state_from_labels(entities, SPEC, torn, 7, Stream(0))


def test_split_clusters_are_merged_and_empty_ones_dropped(split_clusters):
    entities, _, state = split_clusters
    target = merge_map(entities.likelihood, state.sums, state.globals, None)
    assert target[6] == -1
    assert target.max() + 1 == 3
    assert (target[0:6:2] == target[1:6:2]).all()
    assert len(set(target[:6].tolist())) == 3


@pytest.mark.parametrize("wanted", [7, 6, 4, 2, 1])
def test_merging_reaches_the_wanted_number_exactly(split_clusters, wanted):
    entities, _, state = split_clusters
    target = merge_map(entities.likelihood, state.sums, state.globals, wanted)
    assert target.max() + 1 == wanted
    if wanted == 7:
        assert (np.sort(target) == np.arange(7)).all()


def test_merging_stops_at_the_best_evidence(split_clusters):
    """No pair of what is left would gain by a merger."""
    entities, _, state = split_clusters
    layout, current = entities.layout, state.globals
    merged = merge_state(entities.likelihood, state, merge_map(entities.likelihood, state.sums, current, None))
    single = log_evidence(layout.normal_equations(merged.sums.grams), current.noise_scale, current.coef_prior)
    for k in range(3):
        for other in range(k):
            pair = layout.normal_equations(merged.sums.grams[k] + merged.sums.grams[other])
            assert log_evidence(pair, current.noise_scale, current.coef_prior) < single[k] + single[other]


def test_a_merged_state_is_consistent(split_clusters):
    entities, _, state = split_clusters
    merged = merge_state(entities.likelihood, state, merge_map(entities.likelihood, state.sums, state.globals, None))
    sums = np.zeros_like(merged.sums.grams)
    np.add.at(sums, merged.labels, entities.grams)
    np.testing.assert_allclose(merged.sums.grams, sums, rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(merged.sums.entity_counts, np.bincount(merged.labels, minlength=3))
    assert merged.sums.table_counts.sum() == state.sums.table_counts.sum()
    assert np.exp(merged.globals.log_weights).sum() <= 1 + 1e-12


def test_merge_schedule():
    schedule = MergeSchedule(last=21)
    assert [r for r in range(40) if schedule.due(r)] == [15, 17, 19, 21]


@pytest.mark.parametrize("sampler", ["blocked", "collapsed"])
def test_a_chain_finds_the_number_of_clusters(sampler):
    table, truth = make_hlcr(40, 5, 6, 3, 4, 0.3, agent_concentration=3.0, random_state=6)
    entities = entities_from(table.X, table.y, table.agent, table.entity)
    result = run_chain(entities, ModelSpec(), ChainPlan(n_sweeps=80, max_clusters=16, sampler=sampler), Stream(3))
    found = {int((draw.entity_counts > 0).sum()) for draw in result.kept}
    assert found == {len(set(truth.labels.tolist()))}
    assert [state.round for state in result.kept] == list(range(41, 81))


def test_chain_keeps_the_requested_number_of_draws():
    table, _ = make_hlcr(5, 3, 3, 1, 2, 0.5, random_state=6)
    entities = entities_from(table.X, table.y, table.agent, table.entity)
    result = run_chain(entities, ModelSpec(), ChainPlan(n_sweeps=100, n_draws=10), Stream(3))
    assert [state.round for state in result.kept] == list(range(55, 101, 5))
    assert [record.sweep for record in result.trace if record.kept] == [state.round for state in result.kept]


@pytest.mark.parametrize("n_sweeps", [1, 2, 20, 29, 31])
def test_short_runs_end_with_the_wanted_number(n_sweeps):
    table, _ = make_hlcr(20, 4, 4, 2, 3, 0.5, random_state=6)
    entities = entities_from(table.X, table.y, table.agent, table.entity)
    result = run_chain(entities, ModelSpec(), ChainPlan(n_sweeps=n_sweeps, n_clusters=3), Stream(3))
    assert {draw.globals.n_clusters for draw in [*result.kept, result.last]} == {3}
    assert result.kept
