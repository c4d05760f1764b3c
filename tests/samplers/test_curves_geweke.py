"""Geweke's joint test with a curve: its scales and coefficients move, beside effects and noise of entities.

As in `test_effects_geweke`, many short chains start at independent draws from the prior. The scale s of the curve that
clusters share is integrated out by the sampler and not kept; the curve itself shows it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedhlcr._support.streams import Stream
from fedhlcr.model import conjugate
from fedhlcr.model.conjugate import LOG_WEIGHTS, SCALES
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.mixed import MixedEntityNoise as Likelihood
from fedhlcr.model.mixed_globals import MixedGlobals
from fedhlcr.model.priors import ModelSpec
from tests.effects_problems import mean_in_errors, random_events
from tests.mutants import mutated
from tests.samplers import test_effects_geweke as linear
from tests.samplers.test_effects_geweke import PRIORS, K

LAYOUT = GramLayout(4, curve_groups=(2,))
LINEAR, CURVE = slice(LAYOUT.n_linear), LAYOUT.curve_spans[0]
EVENTS = random_events(np.random.default_rng(5), (4, 3, 2), 5, 4)
# columns so large that events tell much about curves, most of which are small a priori
EVENTS.X[..., 2:] *= 5.0
SPEC = ModelSpec(coef_prior="common_mean", hyperpriors=PRIORS, effects="entity+agent")
QUANTITIES = (
    *(*linear.QUANTITIES, "log curve τ", "log curve μ²", "log curve w²", "log curve Σ(w − μ)²", "log differences of w"),
    *("curve μ·w", "curve (w − μ)/τ"),
)


def draw_prior(rng):
    """Globals, labels, private state and effects from the prior: those without curves, and a curve for each cluster."""
    straight = Likelihood(GramLayout(LAYOUT.n_inputs))
    current, labels, agent_state, effects = linear.draw_prior(rng, straight, SPEC.effects, EVENTS)
    shared, own = rng.choice(SCALES, size=2, p=np.exp(LOG_WEIGHTS))
    mean = shared * rng.standard_normal(2)
    current = replace(
        current,
        coef=np.hstack([current.coef, mean + own * rng.standard_normal((K, 2))]),
        coef_mean=np.append(current.coef_mean, mean),
        coef_scale=np.append(current.coef_scale, [own, own]),
        effect_covariance=np.pad(current.effect_covariance, (0, 2)),
        agent_effect_scale=np.pad(current.agent_effect_scale, (0, 2)),
    )
    agent_state = {**agent_state, "agent_effects": np.pad(agent_state["agent_effects"], ((0, 0), (0, 2)))}
    return current, labels, agent_state, np.pad(effects, ((0, 0), (0, 2)))


def quantities(owner, current: MixedGlobals, labels, agent_state, moments):
    straight = replace(
        current,
        coef=current.coef[:, LINEAR],
        coef_scale=current.coef_scale[LINEAR],
        effect_covariance=current.effect_covariance[LINEAR, LINEAR],
        agent_effect_scale=current.agent_effect_scale[LINEAR],
    )
    coef, mean, scale = current.coef[:, CURVE], current.coef_mean[CURVE], current.coef_scale[CURVE]
    assert scale[0] == scale[1]
    values = [scale[0] ** 2, *((of**2).sum() for of in (mean, coef, coef - mean, coef[0] - coef[1]))]
    together, standardised = (coef * mean).sum() / (mean**2).sum(), (((coef - mean) / scale) ** 2).sum()
    return (
        *linear.quantities(owner, straight, labels, agent_state, moments),
        *np.log(values),
        *(np.arcsinh(together), np.log(standardised)),
    )


def z_scores(n_starts, seed=3, n_sweeps=4):
    """Mean change of each quantity, and of its square, from the prior's draws to those of the chains, in errors."""
    rng, owner, changes = np.random.default_rng(seed), EVENTS.owner, []
    likelihood, design = Likelihood(LAYOUT), EVENTS.design(LAYOUT)
    entities = replace(EVENTS.entities(Likelihood, np.zeros(EVENTS.X.shape[:2])), likelihood=likelihood)
    for start in range(n_starts):
        current, labels, agent_state, own = draw_prior(rng)
        y = linear.draw_target(rng, design, owner, current, labels, agent_state, own)
        chain = replace(entities, grams=EVENTS.grams(LAYOUT, y))
        state = linear.swept(chain, SPEC, Stream(seed, start), n_sweeps, current, labels, agent_state)
        rows = np.column_stack([np.ones(len(own)), own[:, LINEAR]])
        moments = np.array([rows[labels == k].T @ rows[labels == k] for k in range(K)])
        before = np.array(quantities(owner, current, labels, agent_state, moments))
        drawn = linear.effects_of(likelihood, state)
        after = np.array(quantities(owner, state.globals, state.labels, state.agent_state, drawn))
        changes.append([*(after - before), *(after**2 - before**2)])
    return mean_in_errors(np.array(changes))


def assert_small(scores):
    assert np.abs(scores).max() < 4, dict(zip(QUANTITIES * 2, scores.round(1), strict=True))


@pytest.mark.slow
def test_geweke_with_a_curve():
    assert_small(z_scores(400))


@pytest.mark.slow
def test_geweke_with_a_curve_long_run():
    assert_small(z_scores(6_000, seed=8))


SCALES_DRAWN, CURVE_DRAWN = conjugate._log_curve_joint, conjugate.draw_curve_prior
MUTATIONS = {
    "τ counts one cluster too many": (SCALES_DRAWN, "max(n - 1, 0)", "n"),
    "the prior of τ is forgotten": (SCALES_DRAWN, "LOG_WEIGHTS[:, None] + LOG_WEIGHTS", "LOG_WEIGHTS[:, None]"),
    "μ is drawn too wide": (CURVE_DRAWN, "own / np.sqrt(total_variance)", "own / total_variance"),
}


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("name", MUTATIONS)
def test_geweke_catches_a_wrong_draw_of_a_curve(name):
    with mutated(*MUTATIONS[name]):
        assert np.abs(z_scores(200)).max() > 5


@pytest.mark.slow
def test_geweke_catches_one_coefficient_too_many():
    with mutated(SCALES_DRAWN, "n, size = coef.shape", "n, size = len(coef), coef.shape[1] + 1"):
        assert np.abs(z_scores(1_000)).max() > 5
