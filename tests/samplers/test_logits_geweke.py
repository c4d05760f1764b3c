"""Geweke's joint test of yes-or-no targets and counts: weights, sizes, effects, labels and coefficients move.

Many short chains start at independent draws of everything, targets included, from the prior. A few sweeps later, each
state must still be such a draw. Effects are those of the intercept, and of one slope where targets are yes or no.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from fedhlcr._support.streams import Stream
from fedhlcr.kernels.polyagamma import keyed_polya_gamma
from fedhlcr.model import counts
from fedhlcr.model.counts import LOG_SIZE
from fedhlcr.model.covariance import EffectScales
from fedhlcr.model.mixed_globals import EFFECTS, EVENT_WEIGHTS
from fedhlcr.model.mixed_server import effect_moments
from fedhlcr.model.priors import Hyperpriors, ModelSpec
from fedhlcr.samplers import blocked, label_prior
from fedhlcr.samplers.state import ChainState
from tests.effects_problems import mean_in_errors
from tests.logits_problems import LIKELIHOODS, draw_targets, entities_of, given_globals, hierarchy_with, linear_part

K, SIZES, N_EVENTS = 2, (3, 2, 4), 4
OWNER = np.repeat(np.arange(len(SIZES)), SIZES)
# scales of effects have heavy tails, which counts show by their exponentials
SPECS = {
    target: ModelSpec(
        coef_scale=scale,
        global_concentration=1.0,
        agent_concentration=0.7,
        hyperpriors=Hyperpriors(entity_effects=EffectScales(scale, 0.1), agent_effects=EffectScales(scale, 0.1)),
    )
    for target, scale in (("binary", 1.0), ("count", 0.4))
}
QUANTITIES = (
    *("log D", "log τ", "log w0²", "log w1²", "Σ N²", "log Σb²", "w·Σb", "log a²", "ρ", "log s", "mean log r"),
    *("spread of log r", "log ω/b", "log Σωψ²", "κψ", "κψ₀", "κψ₁"),
)
EMPTY = {
    target: entities_of(likelihood, hierarchy_with(X, np.zeros(len(X)), SIZES, N_EVENTS, offset=offset))
    for target, likelihood in LIKELIHOODS.items()
    for rng in [np.random.default_rng(5)]
    for X, offset in [(rng.normal(size=(len(OWNER) * N_EVENTS, 1)), 0.7 * rng.normal(size=len(OWNER) * N_EVENTS))]
}


@contextmanager
def sizes_without_bound():
    """The bound of an event's size depends on the counts of its entity, so no prior can draw such counts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counts, "POISSON_LIMIT", np.inf)
        yield


def half_t(rng, scale):
    """A variance whose root is half-t₂(scale)."""
    return 2.0 * rng.gamma(0.5) * scale**2 / rng.gamma(1.0)


def draw_size_law(rng):
    """ρ, and s² ~ IG(2, .2) with s at least its bound."""
    variance = 0.0
    while variance < counts.LEAST_SPREAD**2:
        variance = counts.SPREAD_RATE / rng.gamma(counts.SPREAD_SHAPE)
    return counts.CENTRE + counts.CENTRE_SCALE * rng.standard_normal(), np.sqrt(variance)


def draw_prior(rng, target, effects):
    """Globals, labels, private state and effects of entities from the prior; then targets, and their weights."""
    empty, spec = EMPTY[target], SPECS[target]
    priors, likelihood = spec.hyperpriors, empty.likelihood
    own = {}
    if target == "count":
        own = dict(zip(("log_size_centre", "log_size_spread"), draw_size_law(rng), strict=True))
    current = given_globals(
        likelihood,
        K,
        coef=spec.coef_scale * rng.standard_normal((K, 2)),
        coef_scale=np.full(2, spec.coef_scale),
        log_weights=label_prior.draw_log_weights(rng, np.zeros(K), 1.0),
        effect_covariance=np.diag([half_t(rng, priors.entity_effects.intercept), 0.0]) * (effects != "none"),
        agent_effect_scale=np.sqrt([half_t(rng, priors.agent_effects.intercept), 0.0]) * (effects == "entity+agent"),
        **own,
    )
    labels = draw_labels(rng, current)
    agent_state = {
        "variance": np.ones(len(labels)),
        "agent_effects": current.agent_effect_scale * rng.standard_normal((len(SIZES), 2)),
    }
    if target == "count":
        agent_state[LOG_SIZE] = own["log_size_centre"] + own["log_size_spread"] * rng.standard_normal(len(SIZES))
    effect = np.sqrt(current.effect_covariance.diagonal()) * rng.standard_normal((len(labels), 2))
    coef = current.coef[labels] + agent_state["agent_effects"][OWNER] + effect
    y = draw_targets(rng, empty, coef, agent_state)
    entities = replace(empty, events=replace(empty.events, y=y))
    terms = event_terms(entities, agent_state)
    psi = linear_part(entities, coef) - empty.events.offsets + terms.fixed
    stream, keys = np.uint64(rng.integers(2**62)), np.arange(len(psi), dtype=np.uint64)
    pairs = zip(keys, terms.shape, psi, strict=True)
    agent_state[EVENT_WEIGHTS] = np.array(
        [keyed_polya_gamma(stream, key, 0, np.uint64(0), b, c) for key, b, c in pairs]
    )
    return entities, current, labels, agent_state, effect


def draw_labels(rng, current):
    labels = []
    for size in SIZES:
        weights = 0.7 * np.exp(current.log_weights)
        for _ in range(size):
            labels.append(rng.choice(K, p=weights / weights.sum()))
            weights[labels[-1]] += 1
    return np.array(labels, dtype=np.int32)


def event_terms(entities, agent_state):
    by_entity = {name: values[OWNER] if name == LOG_SIZE else values for name, values in agent_state.items()}
    return entities.likelihood.event_terms(entities.events, by_entity)


def quantities(entities, current, labels, agent_state, moments):
    """`moments` are (K, 3, 3) sums of (1, b)(1, b)ᵀ."""
    terms, weight = event_terms(entities, agent_state), agent_state[EVENT_WEIGHTS]
    coef = current.coef[labels] + agent_state["agent_effects"][OWNER]
    # without the effects of entities, which they do not keep
    eta = linear_part(entities, coef) - entities.events.offsets
    psi, x = eta + terms.fixed, entities.events.X[:, 0]
    kappa = terms.kappa / terms.shape
    log = lambda values: np.log(values + 1e-12)  # noqa: E731
    sizes = agent_state.get(LOG_SIZE, np.zeros(2))
    together = (current.coef[:, 0] * moments[:, 0, 1]).sum()
    return np.array(
        [
            *(log(current.effect_covariance[0, 0]), log(current.agent_effect_scale[0] ** 2)),
            *log((current.coef[labels] ** 2).mean(axis=0)),
            *((np.bincount(labels) ** 2).sum(), log(moments[:, 1, 1].sum())),
            *(np.sign(together) * np.log1p(np.abs(together)), log((agent_state["agent_effects"] ** 2).sum())),
            *(getattr(current, "log_size_centre", 0.0), np.log(getattr(current, "log_size_spread", 1.0))),
            *(sizes.mean(), log(sizes.var())),
            *(np.log(weight / terms.shape).mean(), np.log((weight * psi**2).sum())),
            *((kappa * np.tanh(psi)).mean(), (kappa * np.tanh(eta)).mean(), (kappa * x * np.tanh(eta)).mean()),
        ]
    )


@sizes_without_bound()
def z_scores(target, effects, n_starts, seed=3, n_sweeps=4):
    """Mean change of each quantity, and of its square, from the prior's draws to those of the chains, in errors."""
    rng, spec, changes = np.random.default_rng(seed), replace(SPECS[target], effects=effects), []
    for start in range(n_starts):
        entities, current, labels, agent_state, effect = draw_prior(rng, target, effects)
        stream, likelihood = Stream(seed, start), entities.likelihood
        agents, sums = blocked.relabel(entities, current, blocked.AgentStates(labels, agent_state), 0, stream)
        state = ChainState.of(likelihood, 0, agents.labels, sums, current, agents.agent_state)
        for _ in range(n_sweeps):
            state = blocked.step(entities, spec, state, stream)
        rows = np.column_stack([np.ones(len(effect)), effect]) * (effects != "none")
        moments = np.array([rows[labels == k].T @ rows[labels == k] for k in range(K)])
        before = quantities(entities, current, labels, agent_state, moments)
        moments = effect_moments(likelihood.layout, state.sums.blocks[EFFECTS])
        after = quantities(entities, state.globals, state.labels, state.agent_state, moments)
        changes.append([*(after - before), *(after**2 - before**2)])
    return mean_in_errors(np.array(changes))


def assert_small(scores):
    assert np.abs(scores).max() < 4, dict(zip(QUANTITIES * 2, scores.round(1), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("effects", ["none", "entity+agent"])
@pytest.mark.parametrize("target", LIKELIHOODS)
def test_geweke(target, effects):
    assert_small(z_scores(target, effects, 250))


@pytest.mark.slow
@pytest.mark.parametrize("effects", ["none", "entity", "entity+agent"])
@pytest.mark.parametrize("target", LIKELIHOODS)
def test_geweke_long_run(target, effects):
    assert_small(z_scores(target, effects, 3_000, seed=8))
