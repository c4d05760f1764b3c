"""The exact posterior of tiny tables of yes-or-no targets and counts, without weights: labelings times quadrature.

Effects are those of the intercept. Given the labels and the sizes, an entity's events depend on its cluster's w, its
agent's a and its own b, and an agent's entities on each other through a and r. So with grids of all of these the
posterior is a sum over labelings of a product, over agents, of matrices (points of w₀, points of w₁).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy.special import betaln, expit
from scipy.stats import norm

from fedhlcr._support.streams import Stream
from fedhlcr.data.hierarchy import Hierarchy
from fedhlcr.model.binary import Logistic
from fedhlcr.model.counts import ADDED_COUNT, LOG_SIZE, POISSON_LIMIT, NegativeBinomial
from fedhlcr.model.likelihood import register
from fedhlcr.model.logits import Logits
from fedhlcr.model.mixed_globals import EFFECTS, EVENT_WEIGHTS
from fedhlcr.model.mixed_server import effect_moments
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.schema import Stage
from fedhlcr.samplers import blocked
from tests.enumeration import log_label_prior
from tests.logits_problems import entities_of, hierarchy_with

K, SIZES, N_EVENTS = 2, (2, 2, 1), 3
COEF_SCALE, ALPHA, BETA = 1.0, 1.0, 0.7
EFFECT_SCALE, AGENT_SCALE, CENTRE, SPREAD = 0.8, 0.6, 0.3, 0.7
FIXED = {"coef_scale": COEF_SCALE, "global_concentration": ALPHA, "agent_concentration": BETA}


class FixedLaws(Logits):
    """The laws of effects are fixed, D and τ, unless there are none; all else is drawn, in the last stage."""

    def start(self, spec, n_clusters):
        some = spec.effects != "none"
        return replace(
            super().start(spec, n_clusters),
            effect_covariance=np.diag([EFFECT_SCALE**2, 0.0]) * some,
            agent_effect_scale=np.array([AGENT_SCALE, 0.0]) * some,
            stage=float(Stage.EXACT),
        )

    def enter(self, stage, current, sums, spec):
        return current

    def _with_effect_covariance(self, drawn, sums, spec, rng):
        return drawn

    def _with_agent_scales(self, drawn, sums, spec, rng):
        return drawn


@register
class FixedLogistic(FixedLaws, Logistic):
    name = "logistic, fixed laws"


@register
class FixedCounts(FixedLaws, NegativeBinomial):
    """The law of the sizes is fixed, ρ and s; the sizes are drawn."""

    name = "negative binomial, fixed laws"

    def _first_quantities(self, spec):
        return {**super()._first_quantities(spec), "log_size_centre": CENTRE, "log_size_spread": SPREAD}

    def draw(self, *current):
        return replace(super().draw(*current), log_size_centre=CENTRE, log_size_spread=SPREAD)


LIKELIHOODS: dict[str, type[Logits]] = {"binary": FixedLogistic, "count": FixedCounts}


def tiny(target: str, seed: int = 4) -> Hierarchy:
    """Events of five entities, with offsets and frequencies; features have mean 0, as in a federation."""
    rng, n = np.random.default_rng(seed), sum(SIZES) * N_EVENTS
    weight, offset = rng.choice([1.0, 2.0], size=n, p=[0.7, 0.3]), 0.5 * rng.standard_normal(n)
    x = rng.standard_normal(n)
    x -= np.average(x, weights=weight)
    intercept, slope = np.array([[0.9, 0.8], [-0.8, -0.7]])[rng.integers(K, size=sum(SIZES))].T.repeat(N_EVENTS, axis=1)
    own = EFFECT_SCALE * rng.standard_normal(sum(SIZES)).repeat(N_EVENTS)
    eta = intercept + slope * x + own + offset
    y = rng.random(n) < expit(eta) if target == "binary" else rng.poisson(np.exp(eta) * rng.gamma(2.0, 0.5, size=n))
    return hierarchy_with(x[:, None], y, SIZES, N_EVENTS, weight=weight, offset=offset)


class Exact(NamedTuple):
    """Posterior probabilities of the labelings, and exact means of the quantities of `observed`."""

    probabilities: np.ndarray
    means: np.ndarray


class Grid(NamedTuple):
    """Evenly spaced points of a normal quantity, and their weights."""

    points: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(cls, mean: float, scale: float, step: float) -> Grid:
        """To four standard deviations; a single point without any spread."""
        if scale == 0.0:
            return cls(np.array([mean]), np.ones(1))
        points = mean + step * scale * np.arange(-round(4 / step), round(4 / step) + 1)
        weights = norm.pdf(points, mean, scale)
        return cls(points, weights / weights.sum())


class Grids(NamedTuple):
    coef: Grid
    agent: Grid
    log_size: Grid
    own: Grid

    @classmethod
    def of(cls, target: str, effects: str, step: float) -> Grids:
        some, counts = effects != "none", target == "count"
        return cls(
            Grid.of(0.0, COEF_SCALE, 0.7 * step),
            Grid.of(0.0, AGENT_SCALE * some, step),
            Grid.of(CENTRE, SPREAD * counts, step),
            Grid.of(0.0, EFFECT_SCALE * some, step),
        )


def likelihood_and_weights(hierarchy: Hierarchy, target: str, entity: int, eta, log_size):
    """p(events of an entity), and the mean of the sum of its events' weights, at points of η − offset and log r.

    `eta` are (events, ...) linear parts without offsets.
    """
    own = slice(*hierarchy.event_start[entity : entity + 2])
    axes = (slice(None), *[None] * (eta.ndim - 1))
    y, frequency, offset = (of[own][axes] for of in (hierarchy.y, hierarchy.weight, hierarchy.offset))
    eta = eta + offset
    if target == "binary":
        log_density, shape, psi = y * eta - np.logaddexp(0.0, eta), frequency, eta
    else:
        rate = ((frequency * y).sum() + ADDED_COUNT) / (frequency * np.exp(offset)).sum()
        size = 1.0 / (np.exp(-log_size) + 1.0 / (POISSON_LIMIT * rate * np.exp(offset)))
        shape, psi = frequency * (y + size), eta - np.log(size)
        log_density = -betaln(size, y + 1.0) - np.log(size + y) + y * psi - (size + y) * np.logaddexp(0.0, psi)
    psi = np.where(np.abs(psi) < 1e-6, 1e-6, psi)
    mean_weights = shape * np.tanh(0.5 * psi) / (2.0 * psi)
    return np.exp((frequency * log_density).sum(axis=0)), mean_weights.sum(axis=0)


def entity_factors(hierarchy: Hierarchy, target: str, grids: Grids, entity: int) -> np.ndarray:
    """(4, points of w, points of (a, r)) p(events | w, a, r), and its products with b, b² and the sum of weights."""
    x = hierarchy.X[slice(*hierarchy.event_start[entity : entity + 2]), 0]
    w, b = grids.coef.points, grids.own.points
    first, second, a, log_size, own = np.meshgrid(
        w, w, grids.agent.points, grids.log_size.points, b, indexing="ij", sparse=True
    )
    eta = first + a + own + second * x[:, None, None, None, None, None]
    density, weights = likelihood_and_weights(hierarchy, target, entity, eta, log_size)
    parts = density, density * own, density * own**2, density * weights
    return np.array([(part @ grids.own.weights).reshape(len(w) ** 2, -1) for part in parts])


def exact(hierarchy: Hierarchy, target: str, effects: str, step: float = 0.6) -> Exact:
    grids, owner = Grids.of(target, effects, step), hierarchy.index.agent_of
    factors = np.array([entity_factors(hierarchy, target, grids, e) for e in range(len(owner))])
    # swapping the clusters changes neither probabilities nor means
    labelings = np.array(list(product(range(K), repeat=len(owner))))[: K ** len(owner) // 2]
    parts = [_conditional(factors, owner, labels, grids) for labels in labelings]
    prior = np.exp([log_label_prior(labels, owner, K, ALPHA, BETA) for labels in labelings])
    weights = prior * [evidence for evidence, _ in parts]
    weights /= weights.sum()
    halves = 0.5 * np.concatenate([weights, weights[::-1]])
    return Exact(halves, weights @ np.array([means for _, means in parts]))


def _conditional(factors, owner, labels, grids: Grids) -> tuple[float, np.ndarray]:
    """p(events | labels), and the means of `observed` given the labels."""
    nodes = np.multiply.outer(grids.agent.weights, grids.log_size.weights).ravel()
    a, log_size = (of.ravel() for of in np.meshgrid(grids.agent.points, grids.log_size.points, indexing="ij"))
    prior = np.multiply.outer(grids.coef.weights, grids.coef.weights).ravel()
    first, second = (of.ravel() for of in np.meshgrid(*2 * [grids.coef.points], indexing="ij"))

    def agent_matrix(agent, at_nodes=1.0, entity=None, part=0):
        """(points of cluster 0, points of cluster 1) p(the agent's events), or a moment of it."""
        sides = [np.ones((len(prior), len(nodes))) for _ in range(K)]
        for e in np.flatnonzero(owner == agent):
            sides[labels[e]] = sides[labels[e]] * factors[e, part if e == entity else 0]
        return (sides[0] * (nodes * at_nodes)) @ sides[1].T

    agents = range(owner[-1] + 1)
    matrices = [agent_matrix(agent) for agent in agents]
    joint = np.outer(prior, prior)
    for matrix in matrices:
        joint = joint * matrix
    evidence = joint.sum()
    marginals = [joint.sum(axis=1 - k) / evidence for k in range(K)]

    def mean(agent, *moment, at_coef=None):
        """The mean of something that one agent's matrix has been multiplied with."""
        ratio = joint * agent_matrix(agent, *moment) / matrices[agent]
        return (ratio if at_coef is None else ratio * at_coef).sum() / evidence

    coef = [(marginals[k] @ first, marginals[k] @ second) for k in labels]
    squares = np.sum([(marginals[k] @ first**2, marginals[k] @ second**2) for k in labels], axis=0)
    own = np.zeros(2)
    weights = []
    for e, agent in enumerate(owner):
        of_cluster = first[:, None] if labels[e] == 0 else first[None, :]
        own += mean(agent, 1.0, e, 1, at_coef=of_cluster), mean(agent, 1.0, e, 2)
        weights.append(mean(agent, 1.0, e, 3))
    of_agents = [mean(agent, at) for at in (a, log_size) for agent in agents]
    return evidence, np.array([*np.ravel(coef), *squares, *own, *weights, *of_agents])


def observed(likelihood: Logits, hierarchy: Hierarchy, coef, blocks, labels, agent_state: dict[str, Any]) -> np.ndarray:
    """w of each entity's cluster; Σ w², Σ w₀b and Σ b²; weights of each entity; a and log r of each agent."""
    moments, own = effect_moments(likelihood.layout, blocks[EFFECTS]), coef[labels]
    effects = (coef[:, 0] * moments[:, 0, 1]).sum(), moments[:, 1, 1].sum()
    weights = np.add.reduceat(agent_state[EVENT_WEIGHTS], hierarchy.event_start[:-1])
    agents = agent_state["agent_effects"][:, 0]
    log_size = agent_state.get(LOG_SIZE, np.full(len(agents), CENTRE))
    return np.concatenate([own.ravel(), (own**2).sum(axis=0), effects, weights, agents, log_size])


def centralised_visits(hierarchy: Hierarchy, target: str, effects: str, n_sweeps: int, seed: int = 1):
    """Labels and observed quantities of a chain, sweep by sweep."""
    entities, stream, spec = (
        entities_of(LIKELIHOODS[target], hierarchy),
        Stream(seed),
        ModelSpec(**FIXED, effects=effects),
    )
    state = blocked.initial_state(entities, spec, K, stream)
    labels, values = [], []
    for _ in range(n_sweeps):
        state = blocked.step(entities, spec, state, stream)
        labels.append(state.labels)
        drawn = state.globals.coef, state.sums.blocks, state.labels, state.agent_state
        values.append(observed(entities.likelihood, hierarchy, *drawn))
    return np.array(labels), np.array(values)
