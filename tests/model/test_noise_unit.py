"""Agents keep noise variances in units that the server may change: results do not depend on them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedhlcr._support.streams import Stream
from fedhlcr.model.mixed_server import rescaled
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.schema import Stage
from fedhlcr.posterior.diagnostics import effective_size
from fedhlcr.samplers import blocked
from fedhlcr.samplers.state import ChainState
from tests.effects_problems import LIKELIHOODS, globals_with, random_covariance, random_events

K = 3


def start_in(unit, stage=Stage.EXACT, *, sizes=(9, 1, 17, 3), n_events=4, has_effects=True):
    """Events, targets, entities, and a chain's state with the same noise in any unit."""
    rng = np.random.default_rng(0)
    events = random_events(rng, sizes, n_events, 2)
    n, y = sum(sizes), 2.0 * rng.normal(size=(sum(sizes), n_events))
    entities = events.entities(LIKELIHOODS["entity"], y)
    current = globals_with(
        entities.likelihood,
        K,
        coef=rng.normal(size=(K, 3)),
        effect_covariance=random_covariance(rng, 3) * has_effects,
        agent_effect_scale=rng.uniform(0.2, 1, 3) * has_effects,
        noise_scale=0.7,
        noise_shape=7.0,
        noise_unit=unit,
        stage=float(stage),
    )
    agents = blocked.AgentStates(
        rng.integers(K, size=n).astype(np.int32),
        {"variance": rng.uniform(0.3, 2, n) / unit**2, "agent_effects": rng.normal(size=(len(sizes), 3)) * has_effects},
    )
    agents, sums = blocked.relabel(entities, current, agents, 0, Stream(1))
    return events, y, entities, ChainState.of(entities.likelihood, 0, agents.labels, sums, current, agents.agent_state)


@pytest.mark.parametrize("stage", [Stage.MERGING, Stage.EXACT])
def test_sweeps_do_not_depend_on_the_unit(stage):
    (*_, entities, one), (*_, other) = (start_in(unit, stage) for unit in (1.0, 2.7))
    for _ in range(10):
        np.testing.assert_array_equal(one.labels, other.labels)
        for name in ("coef", "noise_scale", "noise_shape", "effect_covariance", "agent_effect_scale", "log_weights"):
            np.testing.assert_allclose(getattr(one.globals, name), getattr(other.globals, name), rtol=1e-8)
        assert other.globals.noise_unit == pytest.approx(2.7 * one.globals.noise_unit, rel=1e-8)
        np.testing.assert_allclose(other.agent_state["variance"] * 2.7**2, one.agent_state["variance"], rtol=1e-8)
        assert other.log_joint == pytest.approx(one.log_joint, rel=1e-8)
        one, other = (blocked.step(entities, ModelSpec(), state, Stream(1)) for state in (one, other))
    assert one.globals.noise_unit != 1.0


def test_rescaling_follows_the_density_of_the_scale_given_residuals():
    """p(s²) ∏ N(residuals; 0, ρ_e s²) with fixed ratios ρ_e, on a grid, and many draws."""
    events, y, entities, state = start_in(1.3, sizes=(2, 1, 1), n_events=2, has_effects=False)
    current, spread, rng = state.globals, 1.6, np.random.default_rng(2)
    residuals = y - np.einsum("enf,ef->en", events.design(entities.layout), current.coef[state.labels])
    ratios = state.agent_state["variance"] * (current.noise_unit / current.noise_scale) ** 2
    grid = np.geomspace(1e-3, 1e3, 20_001)
    log_density = stats.gamma(0.5, scale=2.0 * spread**2).logpdf(grid) + np.log(grid)
    for own, ratio in zip(residuals, ratios, strict=True):
        log_density += stats.norm.logpdf(own[:, None], 0.0, np.sqrt(ratio * grid)).sum(axis=0)
    cumulative = np.cumsum(np.exp(log_density - log_density.max()))
    spec = ModelSpec(target_spread=spread)
    drawn, draws = current, []
    for _ in range(20_000):
        drawn = rescaled(entities.layout, drawn, state.sums, spec, rng, has_entity_noise=True)
        assert drawn.noise_unit / drawn.noise_scale == pytest.approx(1.3 / 0.7)
        draws.append(drawn.noise_scale**2)
    draws, levels = np.array(draws), np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    below = draws[:, None] < np.interp(levels, cumulative / cumulative[-1], grid)
    sizes = np.array([effective_size(column[None].astype(float)) for column in below.T])
    assert sizes.min() > 500
    assert (np.abs(below.mean(axis=0) - levels) < 4 * np.sqrt(levels * (1 - levels) / sizes)).all()


def test_a_fixed_scale_is_not_rescaled():
    *_, entities, state = start_in(1.3)
    after = blocked.step(entities, ModelSpec(noise_scale=0.7), state, Stream(1)).globals
    assert (after.noise_scale, after.noise_unit) == (0.7, 1.3)
