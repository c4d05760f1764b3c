"""The exact posterior of tiny tables with effects: all labelings, with w, a, b integrated out, and σ by quadrature."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp
from scipy.stats import gamma, qmc

from fedhlcr._support.streams import Stream
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.likelihood import register
from fedhlcr.model.mixed import MixedEntityNoise
from fedhlcr.model.mixed_globals import EFFECTS
from fedhlcr.model.mixed_server import effect_moments
from fedhlcr.model.schema import Stage
from fedhlcr.posterior.diagnostics import effective_size
from fedhlcr.samplers import blocked
from tests.effects_problems import Events, target_covariance
from tests.enumeration import log_label_prior

K = 2
NOISE_SCALE, NOISE_SHAPE, NOISE_UNIT, COEF_SCALE, ALPHA, BETA = 0.7, 6.0, 1.3, 1.0, 1.0, 0.7
EFFECT_COVARIANCE = np.array([[0.4, 0.1], [0.1, 0.2]])
AGENT_EFFECT_SCALE = np.array([0.6, 0.3])
FIXED = {
    "noise_scale": NOISE_SCALE,
    "coef_scale": COEF_SCALE,
    "global_concentration": ALPHA,
    "agent_concentration": BETA,
}


@register
class FixedLaws(MixedEntityNoise):
    """The laws of effects and noise are fixed, D, τ, s and ν; effects, noise, coefficients and labels are drawn."""

    name = "mixed, entity noise, fixed laws"

    def start(self, spec, n_clusters):
        return replace(
            super().start(spec, n_clusters),
            noise_shape=NOISE_SHAPE,
            noise_unit=NOISE_UNIT,
            effect_covariance=EFFECT_COVARIANCE,
            agent_effect_scale=AGENT_EFFECT_SCALE,
            stage=float(Stage.EXACT),
        )

    def enter(self, stage, current, sums, spec):
        return current

    def _with_noise(self, drawn, sums, spec, rng):
        return drawn

    def _with_effect_covariance(self, drawn, sums, spec, rng):
        return drawn

    def _with_agent_scales(self, drawn, sums, spec, rng):
        return drawn


def tiny(seed=4, sizes=(2, 2, 1), n_events=3, contrast=1.0) -> tuple[Events, np.ndarray]:
    """Events of few entities, and their targets, both with mean 0, as in a federation.

    Entities are by turns quiet and noisy, by a factor of `contrast`.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((sum(sizes), n_events, 1))
    events = Events(X - X.mean(), sizes)
    labels, coef = rng.integers(K, size=sum(sizes)), np.array([[0.8, 0.7], [-0.6, -0.5]])
    own = coef[labels] + (AGENT_EFFECT_SCALE * rng.standard_normal((len(sizes), 2)))[events.owner]
    own += rng.multivariate_normal(np.zeros(2), EFFECT_COVARIANCE, size=len(labels))
    noise = NOISE_SCALE * rng.standard_normal((len(labels), n_events))
    noise *= contrast ** np.where(np.arange(len(labels)) % 2, 0.5, -0.5)[:, None]
    y = np.einsum("enf,ef->en", events.design(GramLayout(1)), own) + noise
    return events, y - y.mean()


class Exact(NamedTuple):
    """Posterior probabilities of the labelings, and exact means of the quantities of `observed`."""

    probabilities: np.ndarray
    means: np.ndarray


def exact(events: Events, y, log2_points: int = 10) -> Exact:
    """Sum over labelings and over points of the entities' noise; all else is normal, and integrated out densely."""
    levels = qmc.Sobol(len(y), seed=0).random_base2(log2_points)
    variances = 0.5 * NOISE_SHAPE * NOISE_SCALE**2 / gamma(0.5 * NOISE_SHAPE).ppf(levels)
    labelings = np.array(list(product(range(K), repeat=len(y))))
    parts = [conditional(events, y, labels, variances) for labels in labelings]
    prior = np.array([log_label_prior(labels, events.owner, K, ALPHA, BETA) for labels in labelings])
    log_weights = np.array([log_density for log_density, _ in parts]) + prior[:, None]
    weights = np.exp(log_weights - logsumexp(log_weights))
    means = np.einsum("zp,zpq->q", weights, np.array([values for _, values in parts]))
    return Exact(weights.sum(axis=1), means)


def conditional(events: Events, y, labels, variances):
    """log p(y | labels, σ) up to a constant, and conditional means of `observed`, for each row of σ²."""
    (n_entities, n_events), design = y.shape, events.design(GramLayout(1))
    n_coef, n = design.shape[2], y.size
    laws = EFFECT_COVARIANCE, AGENT_EFFECT_SCALE, np.full(n_coef, COEF_SCALE)
    covariance = target_covariance(design, labels, events.owner, np.zeros(n_entities), *laws)
    inverse = np.linalg.inv(covariance + np.repeat(variances, n_events, axis=1)[:, :, None] * np.eye(n))
    solved = inverse @ y.ravel()
    log_density = 0.5 * (np.linalg.slogdet(inverse)[1] - solved @ y.ravel())
    cross, prior = joint_covariance(design, labels)
    mean = np.einsum("eij,pj->pei", cross, solved)
    second = prior + mean[..., :, None] * mean[..., None, :]
    second -= cross @ inverse[:, None] @ np.swapaxes(cross, 1, 2)
    w, b = slice(n_coef), slice(n_coef, None)
    squares = [np.einsum("peii->pi", second[..., of, other]) for of, other in ((w, w), (b, b), (w, b))]
    return log_density, np.concatenate([mean[..., w].reshape(len(mean), -1), *squares, 1.0 / variances], axis=1)


def joint_covariance(design, labels):
    """Covariances of each entity's (w_z, b): with all targets, and their own."""
    n_entities, n_events, n_coef = design.shape
    rows, entity = design.reshape(-1, n_coef), np.repeat(np.arange(n_entities), n_events)
    cross = np.empty((n_entities, 2 * n_coef, len(rows)))
    for e in range(n_entities):
        cross[e, :n_coef] = COEF_SCALE**2 * rows.T * (labels[entity] == labels[e])
        cross[e, n_coef:] = EFFECT_COVARIANCE @ rows.T * (entity == e)
    prior = np.zeros((2 * n_coef, 2 * n_coef))
    prior[:n_coef, :n_coef], prior[n_coef:, n_coef:] = COEF_SCALE**2 * np.eye(n_coef), EFFECT_COVARIANCE
    return cross, prior


def observed(likelihood, coef, blocks, labels, variance) -> np.ndarray:
    """w of each entity's cluster; Σ w_z², Σ b² and Σ w_z b over entities; 1/σ² of each entity.

    `variance` is what agents keep, in units of NOISE_UNIT².
    """
    moments, own = effect_moments(likelihood.layout, blocks[EFFECTS]), coef[labels]
    squares = (own**2).sum(axis=0), moments[:, 1:, 1:].sum(axis=0).diagonal(), (coef * moments[:, 0, 1:]).sum(axis=0)
    return np.concatenate([own.ravel(), *squares, 1.0 / (variance * NOISE_UNIT**2)])


def centralised_visits(events: Events, y, spec, n_sweeps: int, seed: int = 1):
    """Labels and observed quantities of a chain, sweep by sweep."""
    entities, stream = events.entities(FixedLaws, y), Stream(seed)
    state = blocked.initial_state(entities, spec, K, stream)
    labels, values = [], []
    for _ in range(n_sweeps):
        state = blocked.step(entities, spec, state, stream)
        labels.append(state.labels)
        current = state.globals.coef, state.sums.blocks, state.labels, state.agent_state["variance"]
        values.append(observed(entities.likelihood, *current))
    return np.array(labels), np.array(values)


def deviations(values, means) -> np.ndarray:
    """Means of a chain's quantities less the exact ones, in standard errors."""
    sizes = np.array([effective_size(column[None]) for column in values.T])
    return (values.mean(axis=0) - means) / (values.std(axis=0) / np.sqrt(sizes))
