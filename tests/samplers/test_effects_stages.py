"""Switching effects and noise of entities on, and the end of merging, do not disturb what the chain has found."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from fedhlcr import HLCRRegressor
from fedhlcr._support.streams import Stream
from fedhlcr.datasets import make_hlcr
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.schema import Stage
from fedhlcr.samplers.chain import ChainPlan, run_chain
from tests.effects_problems import LIKELIHOODS, globals_with
from tests.problems import entities_from


def sweeps(noise):
    """The states of a chain on clusters of entities that differ in level, and in noise if `noise` is "entity".

    It is too short to compare several clusters with one.
    """
    table, _ = make_hlcr(40, 6, 10, 2, 3, 0.3, random_state=1)
    pairs = [f"{agent}/{entity}" for agent, entity in zip(table.agent, table.entity, strict=True)]
    rng, own = np.random.default_rng(0), np.unique(pairs, return_inverse=True)[1]
    y = table.y + 0.6 * rng.standard_normal(len(own))[own]
    if noise == "entity":
        y += rng.choice([0.1, 0.6], len(own))[own] * rng.standard_normal(len(y))
    y = (y - y.mean()) / y.std()
    entities = entities_from(table.X, y, table.agent, table.entity)
    entities = replace(entities, likelihood=LIKELIHOODS[noise](entities.layout))
    states = []
    run_chain(entities, ModelSpec(effects="entity"), ChainPlan(58, max_clusters=12), Stream(3), states.append)
    return states


@pytest.mark.parametrize("noise", LIKELIHOODS)
def test_the_noise_does_not_jump_when_a_stage_begins(noise):
    states = sweeps(noise)
    assert {state.globals.stage for state in states} == {Stage.PLAIN, Stage.MERGING, Stage.EXACT}
    for before, after in pairwise(states):
        # a state enters the next stage before it is shown
        if before.round > 20:
            assert 0.6 < after.globals.noise_scale / before.globals.noise_scale < 1.5


@pytest.mark.parametrize("noise", LIKELIHOODS)
def test_noise_that_has_not_been_drawn_is_the_typical_noise(noise):
    likelihood = LIKELIHOODS[noise](GramLayout(2))
    current = globals_with(likelihood, 1, noise_scale=0.7, noise_unit=1.3)
    found = likelihood.variance({"variance": np.array([0.0, 0.5, 2.0, 0.0])}, current)
    np.testing.assert_allclose(found, [0.49, 0.5 * 1.69, 2.0 * 1.69, 0.49], rtol=1e-15)


def test_noise_of_entities_starts_at_that_of_the_plain_clusters():
    states = sweeps("entity")
    plain = [state for state in states if (state.agent_state["variance"] == 0.0).all()]
    assert len({state.globals.noise_scale for state in plain}) > 1
    # entities have noise of their own from the sweep on that follows the plain clusters
    assert [state.round for state in plain] == [state.round for state in states[: len(plain)]]
    assert [state.globals.is_plain for state in plain] == [True] * (len(plain) - 1) + [False]
    for state in plain:
        assert state.globals.noise_unit == state.globals.noise_scale
        variance = LIKELIHOODS["entity"](GramLayout(2)).variance(state.agent_state, state.globals)
        np.testing.assert_array_equal(variance, state.globals.noise_scale**2)
    for state in states[len(plain) :]:
        assert (state.agent_state["variance"] > 0.0).all()


def test_common_noise_is_always_its_own_unit():
    states = sweeps("common")
    kept = np.array([state.agent_state["variance"] for state in states])
    n_plain = int((kept == 0.0).all(axis=1).sum())
    assert 1 < n_plain < len(states)
    # nothing is drawn in plain clusters
    np.testing.assert_array_equal(kept[:n_plain], 0.0)
    np.testing.assert_allclose(kept[n_plain:], 1.0, rtol=1e-15)
    for state in states:
        assert state.globals.noise_unit == state.globals.noise_scale


def test_noise_of_entities_leaves_its_unit():
    last = sweeps("entity")[-1]
    assert abs(np.log(last.globals.noise_unit / last.globals.noise_scale)) > 1e-3
    assert last.agent_state["variance"].std() > 0.1


def test_a_single_cluster_has_effects_of_every_feature_that_varies_within_entities():
    """However little evidence there is before entities have intercepts of their own, which hide it."""
    rng, entity = np.random.default_rng(2), np.repeat(np.arange(60), 8)
    X = rng.normal(size=(len(entity), 4))
    X[:, 3] = rng.normal(size=60)[entity]
    own = rng.normal(size=(60, 2)) * [5.0, 0.4]
    y = own[entity, 0] + (1.0 + own[entity, 1]) * X[:, 0] + 0.3 * rng.normal(size=len(entity))
    model = HLCRRegressor(n_clusters=1, n_sweeps=120).fit(X, y, agent=entity % 6, entity=entity)
    np.testing.assert_array_equal(model.effect_scales_ > 0.0, [True, True, True, True, False])
    assert model.effect_scales_[1] == pytest.approx(0.4, abs=0.1)
