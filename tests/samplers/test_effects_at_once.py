"""A sweep with effects that draws everything for a few agents at a time equals one that does so step by step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedhlcr._support.streams import Stream
from fedhlcr.kernels.mixed_sweep import AT_ONCE
from fedhlcr.model.mixed import MixedCommonNoise, MixedEntityNoise
from fedhlcr.model.schema import Stage
from fedhlcr.samplers import blocked
from tests.effects_problems import globals_with, random_covariance, random_events

K = 3
# several runs of agents, one agent that fills more than a run, and agents without entities
SIZES = 20, 30, 1, AT_ONCE + 13, 0, 40, 9, 0


class StepByStep(MixedEntityNoise):
    name = "mixed, step by step"

    def sweeps_at_once(self, current):
        return False


class StepByStepCommonNoise(MixedCommonNoise):
    name = "mixed, common noise, step by step"

    def sweeps_at_once(self, current):
        return False


def relabelled(likelihood, stage, rank, agent_effects):
    rng = np.random.default_rng(3)
    events, n = random_events(rng, SIZES, 4, 5), sum(SIZES)
    entities = events.entities(likelihood, rng.normal(size=(n, 4)) * 2)
    n_coef, has_noise = entities.layout.n_coef, likelihood.noise_of_entities
    current = globals_with(
        entities.likelihood,
        K,
        coef=rng.normal(size=(K, n_coef)),
        effect_covariance=random_covariance(rng, n_coef, rank),
        agent_effect_scale=rng.uniform(0.2, 1, n_coef) * agent_effects,
        noise_scale=0.7,
        noise_shape=7.0 if has_noise else np.inf,
        stage=float(stage),
    )
    agent_state = {
        "variance": rng.uniform(0.2, 1.2, n) if has_noise else np.ones(n),
        "agent_effects": rng.normal(size=(len(SIZES), n_coef)) * agent_effects,
    }
    labels = rng.integers(-1, K, size=n).astype(np.int32)
    return blocked.relabel(
        replace(entities, n_threads=1), current, blocked.AgentStates(labels, agent_state), 4, Stream(3)
    )


@pytest.mark.parametrize(
    "pair", [(MixedEntityNoise, StepByStep), (MixedCommonNoise, StepByStepCommonNoise)], ids=["entity", "common"]
)
@pytest.mark.parametrize("stage", [Stage.MERGING, Stage.WEIGHING, Stage.EXACT])
@pytest.mark.parametrize(("rank", "agent_effects"), [(None, False), (None, True), (3, True), (0, True)])
def test_a_sweep_at_once_equals_one_step_by_step(pair, stage, rank, agent_effects):
    (one, sums), (other, other_sums) = (relabelled(likelihood, stage, rank, agent_effects) for likelihood in pair)
    np.testing.assert_array_equal(one.labels, other.labels)
    for name, values in one.agent_state.items():
        np.testing.assert_array_equal(values, other.agent_state[name])
    for name, block in sums.blocks.items():
        np.testing.assert_array_equal(block, other_sums.blocks[name])
    np.testing.assert_array_equal(sums.entity_counts, other_sums.entity_counts)
    np.testing.assert_array_equal(sums.table_counts, other_sums.table_counts)
    for name, value in sums.scalars.items():
        np.testing.assert_allclose(value, other_sums.scalars[name], rtol=1e-12)
