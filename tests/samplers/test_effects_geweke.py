"""Geweke's joint test with effects and noise of entities: all globals, labels, effects and noise move.

Scales of effects have heavy tails, which one long chain crosses too slowly. So many short chains start at independent
draws of everything, targets included, from the prior. A few sweeps later, each state must still be such a draw. The
unit in which agents keep noise variances starts anywhere: no law depends on it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedhlcr._support.streams import Stream
from fedhlcr.model import covariance
from fedhlcr.model.covariance import LARGEST_SHAPE, N_SHAPES, TIGHTNESSES, EffectScales
from fedhlcr.model.mixed import Mixed
from fedhlcr.model.mixed_globals import EFFECTS, MixedGlobals
from fedhlcr.model.mixed_server import ENOUGH_FREE_EVENTS, LEAST_SHAPE, LEAST_SHAPE_OF_FEW, effect_moments, rescaled
from fedhlcr.model.priors import Gamma, Hyperpriors, InverseGamma, ModelSpec
from fedhlcr.samplers import blocked, label_prior
from fedhlcr.samplers.state import ChainState
from tests.effects_problems import LIKELIHOODS, Events, globals_with, mean_in_errors, random_events
from tests.mutants import mutated

K = 2
PRIORS = Hyperpriors(
    InverseGamma(6.0, 5.0),
    InverseGamma(6.0, 5.0),
    0.7,
    Gamma(3.0, 2.0),
    Gamma(3.0, 2.0),
    EffectScales(1.0, 0.6),
    EffectScales(0.5, 0.4),
)
MANY = random_events(np.random.default_rng(5), (4, 3, 5, 2, 4), 6, 2)
# here the noise of entities hardly moves unless it is rescaled as a whole
FEW = random_events(np.random.default_rng(5), (2, 1, 1), 1, 2)
QUANTITIES = (
    *("log s", "log ν", "log D intercept", "log D slopes", "D correlation", "D is full", "log τ", "log slope scale"),
    *("log agents' slope scale", "log δ", *(f"log w{f}²" for f in range(3)), "log α", "log β", "Σ N²"),
    *("Σ within-agent N²", *(f"log Σb{f}²" for f in range(3)), "log a²", "log σ²", "log spread of log σ²"),
    *("log bᵀD⁻¹b", *(f"w{f}·Σb{f}" for f in range(3)), "correlation of b"),
)


def half_t(rng, scale):
    """A variance whose root is half-t₂(scale): IG(1, 2h) with h ~ Gamma(½, 1/scale²). Returns it and h."""
    auxiliary = rng.gamma(0.5, size=np.shape(scale)) * np.square(scale)
    return 2.0 * auxiliary / rng.gamma(1.0, size=np.shape(scale)), auxiliary


def prior_scales(rng, of: EffectScales):
    slopes = covariance.draw_scale(rng, np.empty(0), of)
    return slopes, np.array([of.intercept, slopes, slopes])


def draw_prior(rng, likelihood: Mixed, effects: str, events: Events):
    """Globals, labels, private state and effects from the prior."""
    alpha, beta = (rng.gamma(p.shape) / p.rate for p in (PRIORS.global_concentration, PRIORS.agent_concentration))
    coef_scale = np.sqrt(PRIORS.coef_variance.rate / rng.gamma(PRIORS.coef_variance.shape, size=3))
    coef_mean = np.sqrt(PRIORS.coef_mean_ratio) * coef_scale * rng.standard_normal(3)
    slope_scale, scales = prior_scales(rng, PRIORS.entity_effects)
    variances, auxiliary = half_t(rng, scales)
    own = np.diag(variances)
    if rng.random() < 0.5:
        tightness = rng.choice(TIGHTNESSES)
        own = covariance._inverse_wishart(rng, 2.0 * tightness * np.diag(auxiliary), tightness + 2.0)
    agent_slope_scale, agent_scales = prior_scales(rng, PRIORS.agent_effects)
    agent_variances, _ = half_t(rng, agent_scales)
    is_common = not likelihood.noise_of_entities
    shapes = np.geomspace(least_shape(events, effects), LARGEST_SHAPE, N_SHAPES)
    noise_variance = PRIORS.noise_variance.rate / rng.gamma(PRIORS.noise_variance.shape)
    noise_scale = np.sqrt(noise_variance if is_common else 2.0 * rng.gamma(0.5))
    current = globals_with(
        likelihood,
        K,
        coef=coef_mean + coef_scale * rng.standard_normal((K, 3)),
        coef_mean=coef_mean,
        coef_scale=coef_scale,
        log_weights=label_prior.draw_log_weights(rng, np.zeros(K), alpha),
        global_concentration=alpha,
        agent_concentration=beta,
        noise_scale=noise_scale,
        noise_unit=noise_scale if is_common else np.exp(rng.standard_normal()),
        noise_shape=np.inf if is_common else rng.choice(shapes),
        effect_covariance=own * (effects != "none"),
        slope_scale=slope_scale,
        agent_effect_scale=np.sqrt(agent_variances) * (effects == "entity+agent"),
        agent_slope_scale=agent_slope_scale,
    )
    return current, draw_labels(rng, current, events), *draw_private(rng, current, events)


def least_shape(events: Events, effects: str) -> float:
    """The least ν, where all three coefficients have effects or none."""
    n_entities, n_events, _ = events.X.shape
    free = n_entities * (n_events - 3 * (effects != "none"))
    return LEAST_SHAPE if free >= ENOUGH_FREE_EVENTS else LEAST_SHAPE_OF_FEW


def draw_labels(rng, current: MixedGlobals, events: Events):
    labels = []
    for size in events.sizes:
        counts = current.agent_concentration * np.exp(current.log_weights)
        for _ in range(size):
            labels.append(rng.choice(K, p=counts / counts.sum()))
            counts[labels[-1]] += 1
    return np.array(labels, dtype=np.int32)


def draw_private(rng, current: MixedGlobals, events: Events):
    """Noise and effects of agents, which these keep, and effects of entities, which they do not keep."""
    n, half = sum(events.sizes), 0.5 * current.noise_shape
    variance = np.full(n, current.noise_scale**2)
    if np.isfinite(half):
        variance = half * current.noise_scale**2 / rng.gamma(half, size=n)
    effects = np.zeros((n, 3))
    used = current.effect_columns
    effects[:, used] = rng.standard_normal((n, len(used))) @ current.effect_root.T
    agent_effects = current.agent_effect_scale * rng.standard_normal((len(events.sizes), 3))
    return {"variance": variance / current.noise_unit**2, "agent_effects": agent_effects}, effects


def draw_target(rng, design, owner, current, labels, agent_state, effects):
    coef = current.coef[labels] + agent_state["agent_effects"][owner] + effects
    noise = current.noise_unit * np.sqrt(agent_state["variance"])[:, None] * rng.standard_normal(design.shape[:2])
    return np.einsum("enf,ef->en", design, coef) + noise


def effects_of(likelihood: Mixed, state: ChainState):
    """(K, 1 + n_coef, 1 + n_coef) Σ (1, b)(1, b)ᵀ of the clusters."""
    return effect_moments(likelihood.layout, state.sums.blocks[EFFECTS])


def quantities(owner, current, labels, agent_state, moments):
    counts = np.zeros((owner[-1] + 1, K))
    np.add.at(counts, (owner, labels), 1)
    own, has = current.effect_covariance, len(current.effect_columns) > 0
    agents, variance = current.agent_effect_scale > 0, agent_state["variance"] * current.noise_unit**2
    squares = moments[:, 1:, 1:].sum(axis=0)
    together = (current.coef * moments[:, 0, 1:]).sum(axis=0)
    mahalanobis = (covariance.inverse(own) * squares).sum() if has else 0.0
    log = lambda values: np.log(values + 1e-12)  # noqa: E731
    return (
        *(np.log(current.noise_scale), np.log(current.noise_shape) if np.isfinite(current.noise_shape) else 0.0),
        *(log(own[0, 0]), log(own.diagonal()[1:]).mean(), own[1, 2] / np.sqrt(own[1, 1] * own[2, 2]) if has else 0.0),
        float(own[1, 2] != 0.0),
        np.log(current.agent_effect_scale[agents]).mean() if agents.any() else 0.0,
        *(np.log(current.slope_scale), np.log(current.agent_slope_scale)),
        *(np.log(current.coef_scale).mean(), *log((current.coef[labels] ** 2).mean(axis=0))),
        *(np.log(current.global_concentration), np.log(current.agent_concentration)),
        *((counts.sum(axis=0) ** 2).sum(), (counts**2).sum()),
        *(*log(squares.diagonal()), log((agent_state["agent_effects"] ** 2).sum())),
        *(np.log(variance).mean(), log(np.log(variance).var()), np.log1p(mahalanobis)),
        *(np.sign(together) * np.log1p(np.abs(together))),
        np.tanh(squares[1, 2] / np.sqrt(squares[1, 1] * squares[2, 2] + 1e-12)),
    )


def z_scores(noise, effects, n_starts, seed=3, n_sweeps=4, events=MANY):
    """Mean change of each quantity, and of its square, from the prior's draws to those of the chains, in errors."""
    rng, spec = np.random.default_rng(seed), ModelSpec(coef_prior="common_mean", hyperpriors=PRIORS, effects=effects)
    entities, owner, changes = events.entities(LIKELIHOODS[noise], np.zeros(events.X.shape[:2])), events.owner, []
    likelihood, design = entities.likelihood, events.design(entities.layout)
    for start in range(n_starts):
        current, labels, agent_state, own = draw_prior(rng, likelihood, effects, events)
        y = draw_target(rng, design, owner, current, labels, agent_state, own)
        chain = replace(entities, grams=events.grams(entities.layout, y))
        state = swept(chain, spec, Stream(seed, start), n_sweeps, current, labels, agent_state)
        rows = np.column_stack([np.ones(len(own)), own]) * (effects != "none")
        moments = np.array([rows[labels == k].T @ rows[labels == k] for k in range(K)])
        before = np.array(quantities(owner, current, labels, agent_state, moments))
        after = np.array(
            quantities(owner, state.globals, state.labels, state.agent_state, effects_of(likelihood, state))
        )
        changes.append([*(after - before), *(after**2 - before**2)])
    return mean_in_errors(np.array(changes))


def swept(entities, spec, stream, n_sweeps, current, labels, agent_state):
    """The state of a chain that starts at the given one, with its agents' half of a sweep."""
    agents, sums = blocked.relabel(entities, current, blocked.AgentStates(labels, agent_state), 0, stream)
    state = ChainState.of(entities.likelihood, 0, agents.labels, sums, current, agents.agent_state)
    for _ in range(n_sweeps):
        state = blocked.step(entities, spec, state, stream)
    return state


OPTIONS = [(noise, effects) for noise in LIKELIHOODS for effects in ("none", "entity", "entity+agent")]
MUTATIONS = {
    "one event more is counted": ("0.5 * (n_events - 1.0)", "0.5 * n_events"),
    "every rescaling is accepted": ("np.log(rng.random()) >= rate * (old - new)", "False"),
    "the unit of the squares is forgotten": ("squares * old / drawn.noise_unit**2", "squares * old"),
}


def assert_small(scores):
    assert np.abs(scores).max() < 4, dict(zip(QUANTITIES * 2, scores.round(1), strict=True))


@pytest.mark.slow
@pytest.mark.ci
def test_geweke_with_effects():
    assert_small(z_scores("entity", "entity+agent", 600))


@pytest.mark.slow
def test_geweke_with_few_events():
    assert_small(z_scores("entity", "none", 500, events=FEW))


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_geweke_catches_a_wrong_rescaling(name):
    with mutated(rescaled, *MUTATIONS[name]):
        assert np.abs(z_scores("entity", "none", 500, events=FEW)).max() > 5


@pytest.mark.slow
@pytest.mark.parametrize("events", [MANY, FEW], ids=["many events", "few events"])
@pytest.mark.parametrize(("noise", "effects"), OPTIONS)
def test_geweke_with_effects_long_run(noise, effects, events):
    assert_small(z_scores(noise, effects, 8_000, seed=8, events=events))
