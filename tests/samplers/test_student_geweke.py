"""Geweke's joint test with Student-t noise: weights, degrees of freedom, effects, labels and coefficients move.

Many short chains start at independent draws of everything, targets included, from the prior. A few sweeps later, each
state must still be such a draw. Effects are those of the intercept.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedhlcr._support.streams import Stream
from fedhlcr.model.covariance import LARGEST_SHAPE, N_SHAPES
from fedhlcr.model.gram import GramLayout, event_grams
from fedhlcr.model.mixed_server import rescaled
from fedhlcr.model.priors import Hyperpriors, InverseGamma, ModelSpec
from fedhlcr.model.student import EVENT_WEIGHTS, LEAST_EVENT_SHAPE
from fedhlcr.samplers import blocked, label_prior
from fedhlcr.samplers.state import ChainState
from tests.effects_problems import mean_in_errors
from tests.mutants import mutated
from tests.students import given_globals, student_entities

K, SIZES, N_EVENTS = 2, (3, 2, 4), 4
OWNER = np.repeat(np.arange(len(SIZES)), SIZES)
SPEC = ModelSpec(
    coef_scale=1.0,
    global_concentration=1.0,
    agent_concentration=0.7,
    hyperpriors=Hyperpriors(noise_variance=InverseGamma(6.0, 5.0)),
)
QUANTITIES = ("log s", "log ν", "log D", "log τ", "log w0²", "log w1²", "Σ N²", "Σ log λ", "Σ λ", "log Σ λr²", "log a²")


def half_t(rng, scale):
    """A variance whose root is half-t₂(scale)."""
    return 2.0 * rng.gamma(0.5) * scale**2 / rng.gamma(1.0)


def draw_prior(rng, entities, effects):
    """Globals, labels and private state from the prior, and targets given these."""
    priors = SPEC.hyperpriors
    log_weights = label_prior.draw_log_weights(rng, np.zeros(K), 1.0)
    current = given_globals(
        entities.likelihood,
        K,
        coef=rng.standard_normal((K, 2)),
        coef_scale=np.ones(2),
        log_weights=log_weights,
        noise_scale=np.sqrt(priors.noise_variance.rate / rng.gamma(priors.noise_variance.shape)),
        noise_shape=rng.choice(np.geomspace(LEAST_EVENT_SHAPE, LARGEST_SHAPE, N_SHAPES)),
        effect_covariance=np.diag([half_t(rng, priors.entity_effects.intercept), 0.0]) * (effects != "none"),
        agent_effect_scale=np.sqrt([half_t(rng, priors.agent_effects.intercept), 0.0]) * (effects == "entity+agent"),
    )
    labels = []
    for size in SIZES:
        counts = 0.7 * np.exp(log_weights)
        for _ in range(size):
            labels.append(rng.choice(K, p=counts / counts.sum()))
            counts[labels[-1]] += 1
    labels, half = np.array(labels, dtype=np.int32), 0.5 * current.noise_shape
    agent_state = {
        "variance": np.ones(len(labels)),
        "agent_effects": current.agent_effect_scale * rng.standard_normal((len(SIZES), 2)),
        EVENT_WEIGHTS: rng.gamma(half, size=entities.n_events) / half,
    }
    means = event_means(entities, current, labels, agent_state)
    means += np.repeat(np.sqrt(current.effect_covariance[0, 0]) * rng.standard_normal(len(labels)), N_EVENTS)
    noise = current.noise_scale * rng.standard_normal(len(means)) / np.sqrt(agent_state[EVENT_WEIGHTS])
    return current, labels, agent_state, means + noise


def event_means(entities, current, labels, agent_state):
    """(events,) without the effects of entities."""
    coef = np.repeat(current.coef[labels] + agent_state["agent_effects"][OWNER], N_EVENTS, axis=0)
    return coef[:, 0] + coef[:, 1] * entities.events.X[:, 0]


def quantities(entities, current, labels, agent_state):
    counts, weight = np.bincount(labels, minlength=K), agent_state[EVENT_WEIGHTS]
    residuals = entities.events.y - event_means(entities, current, labels, agent_state)
    values = np.array(
        [
            *(current.noise_scale**2, current.noise_shape**2, current.effect_covariance[0, 0]),
            current.agent_effect_scale[0] ** 2,
            *(current.coef[labels] ** 2).mean(axis=0),
        ]
    )
    return np.array(
        [
            *np.log(values + 1e-12),
            (counts**2).sum(),
            np.log(weight).mean(),
            weight.mean(),
            np.log((weight * residuals**2).sum()),
            np.log((agent_state["agent_effects"] ** 2).sum() + 1e-12),
        ]
    )


def z_scores(effects, n_starts, seed=3, n_sweeps=4):
    """Mean change of each quantity, and of its square, from the prior's draws to those of the chains, in errors."""
    rng, spec = np.random.default_rng(seed), replace(SPEC, effects=effects)
    empty, changes = student_entities(rng, SIZES, N_EVENTS), []
    for start in range(n_starts):
        current, labels, agent_state, y = draw_prior(rng, empty, effects)
        events = replace(empty.events, y=y)
        grams = event_grams(events, GramLayout(1), np.zeros(2), OWNER)
        entities, stream = replace(empty, grams=grams, events=events), Stream(seed, start)
        agents, sums = blocked.relabel(entities, current, blocked.AgentStates(labels, agent_state), 0, stream)
        state = ChainState.of(entities.likelihood, 0, agents.labels, sums, current, agents.agent_state)
        for _ in range(n_sweeps):
            state = blocked.step(entities, spec, state, stream)
        before = quantities(entities, current, labels, agent_state)
        after = quantities(entities, state.globals, state.labels, state.agent_state)
        changes.append([*(after - before), *(after**2 - before**2)])
    return mean_in_errors(np.array(changes))


def assert_small(scores):
    assert np.abs(scores).max() < 4, dict(zip(QUANTITIES * 2, scores.round(1), strict=True))


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("effects", ["none", "entity+agent"])
def test_geweke(effects):
    assert_small(z_scores(effects, 250))


@pytest.mark.slow
@pytest.mark.parametrize("effects", ["none", "entity", "entity+agent"])
def test_geweke_long_run(effects):
    assert_small(z_scores(effects, 6_000, seed=8))


@pytest.mark.slow
def test_geweke_catches_events_counted_by_their_weights():
    # weights have mean 1, so the plain sum is too close to the number of events
    counted = "0.8 * layout.n_events(sums.grams).sum()"
    with mutated(rescaled, 'n_events = sums.scalars["events"]', f"n_events = {counted}"):
        assert np.abs(z_scores("none", 250)).max() > 5
