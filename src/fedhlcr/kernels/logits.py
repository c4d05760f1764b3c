"""Kernels for events whose log odds are linear: yes or no, and counts with a negative binomial law.

With η = xᵀβ and an event's own constants b, κ, d and c (`EventTerms`), the log density of its target is

    κψ − b log(2 cosh(ψ/2)) + c,     ψ = η + d,

and given a weight ω ~ PG(b, ψ) it is that of a normal target κ/ω − d with variance 1/ω, as far as it depends on η
(Polson, Scott and Windle 2013). `reference_logits` has slow versions.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr.kernels.agent_effects import solve_draw
from fedhlcr.kernels.compiling import finite_kernel, kernel
from fedhlcr.kernels.polyagamma import keyed_polya_gamma
from fedhlcr.kernels.scores import small_exponential
from fedhlcr.kernels.vectors import clear
from fedhlcr.kernels.weights import FIRST_EVENT, PER_EVENT

# A product of so many factors of at most 2 does not overflow.
MOST_FACTORS = 512
# Most steps of Newton's method for the mode of an entity's effects, and most halvings of a step. The search ends where
# a step gains less than this.
MOST_STEPS = 20
MOST_HALVINGS = 10
LEAST_GAIN = 1e-8
# The normal law around the mode is wider by this, over the number of effects.
WIDER = 0.5
TINY = 1e-300


class EventTerms(NamedTuple):
    """The constants of events, (events,) each, or (events, draws) if they differ between draws."""

    shape: FloatArray  # b
    kappa: FloatArray
    fixed: FloatArray  # d, the part of ψ that is given
    constant: FloatArray  # c


@kernel
def log_odds(x, coef, first):
    """xᵀβ. `first` is 0 if the first coefficient is an intercept, else 1."""
    total = coef[0] if first == 0 else 0.0
    for f in range(x.shape[0]):
        total += x[f] * coef[f + 1 - first]
    return total


@kernel
def log_twice_cosh(psi):
    """log(2 cosh(ψ/2)), without overflow."""
    size = abs(psi)
    return 0.5 * size + math.log1p(math.exp(-size))


@kernel
def draw_weights(
    X, terms, event_start, entities, coef, first, round_number, agents, first_agent, last_agent, weights, densities
):
    """Draw ω of each event of agents[first_agent:last_agent], given its entity's coefficients (entities, n_coef).

    `densities` (agents asked,) get the log densities of the agents' events without the weights.
    """
    _, agent_start, keys, streams = entities
    shape, kappa, fixed, constant = terms
    for position in range(first_agent, last_agent):
        agent = agents[position]
        total = 0.0
        for e in range(agent_start[agent], agent_start[agent + 1]):
            for n in range(event_start[e], event_start[e + 1]):
                purpose = FIRST_EVENT + PER_EVENT * np.uint64(n - event_start[e])
                psi = log_odds(X[n], coef[e], first) + fixed[n]
                weights[n] = keyed_polya_gamma(streams[agent], keys[e], round_number, purpose, shape[n], psi)
                total += constant[n] + kappa[n] * psi - shape[n] * log_twice_cosh(psi)
        densities[position] = total


@kernel
def move_targets(X, event_start, entities, steps, first, targets):
    """Subtract xᵀstep from the targets of the given entities' events, with a step for each entity."""
    for e in entities:
        for n in range(event_start[e], event_start[e + 1]):
            targets[n] -= log_odds(X[n], steps[e], first)


@finite_kernel
def write_log_likelihoods(X, terms, event_start, entities, first_entity, last_entity, coef, first, out):
    """Write log p(events | cluster) of entities[first_entity:last_entity] to their rows of `out` (entities, clusters).

    `coef` is (clusters, n_coef). Exponentials are as in `kernels.scores.exponentiate`. Of events with b = 1, which is
    nearly all of them if targets are yes or no, only products of 1 + e^−|ψ| are kept, whose logarithm is taken once.
    """
    shape, kappa, fixed, constant = terms
    n_clusters, n_coef = coef.shape
    odds = np.empty(n_clusters)
    products = np.empty(n_clusters)
    row = np.empty(n_coef)
    row[0] = 1.0
    transposed = np.empty((n_coef, n_clusters))
    for j in range(n_coef):
        for k in range(n_clusters):
            transposed[j, k] = coef[k, j]
    for position in range(first_entity, last_entity):
        e = entities[position]
        own = out[e]
        for k in range(n_clusters):
            own[k] = 0.0
            products[k] = 1.0
        for n in range(event_start[e], event_start[e + 1]):
            for f in range(X.shape[1]):
                row[f + 1 - first] = X[n, f]
            for k in range(n_clusters):
                odds[k] = fixed[n]
            for j in range(n_coef):
                for k in range(n_clusters):
                    odds[k] += row[j] * transposed[j, k]
            for k in range(n_clusters):
                own[k] += constant[n] + kappa[n] * odds[k] - 0.5 * shape[n] * abs(odds[k])
                odds[k] = 1.0 + small_exponential(-abs(odds[k]))
            if shape[n] == 1.0:
                for k in range(n_clusters):
                    products[k] *= odds[k]
            else:
                for k in range(n_clusters):
                    own[k] -= shape[n] * math.log(odds[k])
            if (n - event_start[e]) % MOST_FACTORS == MOST_FACTORS - 1:
                take_logarithms(products, own)
        take_logarithms(products, own)


@kernel
def take_logarithms(products, own):
    """Subtract the logarithms of products from log likelihoods; the products become 1."""
    for k in range(products.shape[0]):
        own[k] -= math.log(products[k])
        products[k] = 1.0


@kernel
def event_log_likelihoods(X, terms, event_start, entities, coef, first, out):
    """Write the log density of each event of the given entities, given their coefficients (entities, n_coef)."""
    shape, kappa, fixed, constant = terms
    for e in entities:
        for n in range(event_start[e], event_start[e + 1]):
            psi = log_odds(X[n], coef[e], first) + fixed[n]
            out[n] = constant[n] + kappa[n] * psi - shape[n] * log_twice_cosh(psi)


@kernel
def integrated_densities(X, terms, event_start, entities, first_entity, last_entity, law, steps, step_of, points, out):
    """Write the log density of entities[first_entity:last_entity] under each cluster, without their effects.

    Effects b = Λc are integrated out by importance sampling around the mode of c, with the normal law of Laplace's
    approximation, a little wider. `points` (points, effects) are standard normal numbers. `law` is an `EffectsLaw`;
    `steps` are the effects of agents, (agents, n_coef), and `step_of` is the agent of each entity.
    """
    n_clusters = law.coef.shape[0]
    n_effects = law.columns.shape[0]
    most = 0
    for position in range(first_entity, last_entity):
        most = max(most, event_start[entities[position] + 1] - event_start[entities[position]])
    design = np.empty((most, n_effects))
    offsets = np.empty(most)
    mode = np.empty(n_effects)
    for position in range(first_entity, last_entity):
        e = entities[position]
        start = event_start[e]
        n_events = event_start[e + 1] - event_start[e]
        write_effect_design(X[start : start + n_events], law, design)
        own = design[:n_events]
        for k in range(n_clusters):
            for n in range(n_events):
                of_cluster = law.coef[k]
                of_agent = steps[step_of[e]]
                offsets[n] = terms.fixed[start + n] + log_odds(X[start + n], of_cluster, law.first)
                offsets[n] += log_odds(X[start + n], of_agent, law.first)
            clear(mode)
            out[e, k] = integrated_density(own, offsets[:n_events], terms, start, mode, points)


@kernel
def write_effect_design(X, law, out):
    """Write xᵀΛ of each event, with x the columns that have effects."""
    n_effects = law.columns.shape[0]
    for n in range(X.shape[0]):
        for r in range(n_effects):
            total = 0.0
            for c in range(r, n_effects):
                value = 1.0 if law.columns[c] == 0 else X[n, law.columns[c] - 1]
                total += value * law.root[c, r]
            out[n, r] = total


@kernel
def log_joint(design, offsets, terms, start, effects):
    """Log density of events [start, …) and of effects c, up to the constant of the effects' normal law."""
    total = 0.0
    for r in range(effects.shape[0]):
        total -= 0.5 * effects[r] ** 2
    for n in range(design.shape[0]):
        psi = offsets[n]
        for r in range(effects.shape[0]):
            psi += design[n, r] * effects[r]
        total += terms.constant[start + n] + terms.kappa[start + n] * psi - terms.shape[start + n] * log_twice_cosh(psi)
    return total


@kernel
def integrated_density(design, offsets, terms, start, mode, points):
    """Log of the mean density over effects; `mode` holds where to start, and becomes the mode of `log_joint`."""
    n_effects = design.shape[1]
    precision = np.empty((n_effects, n_effects))
    step = np.empty(n_effects)
    tried = np.empty(n_effects)
    best = log_joint(design, offsets, terms, start, mode)
    log_det = 0.0
    for _ in range(MOST_STEPS):
        log_det = newton_step(design, offsets, terms, start, mode, precision, step)
        gain = 0.0
        for _ in range(MOST_HALVINGS):
            for r in range(n_effects):
                tried[r] = mode[r] + step[r]
            found = log_joint(design, offsets, terms, start, tried)
            if found >= best:
                gain = found - best
                best = found
                for r in range(n_effects):
                    mode[r] = tried[r]
                break
            for r in range(n_effects):
                step[r] *= 0.5
        if gain < LEAST_GAIN:
            break
    if n_effects == 0:
        return best
    return best - 0.5 * log_det + log_correction(design, offsets, terms, start, mode, best, precision, points)


@kernel
def log_correction(design, offsets, terms, start, mode, best, factor, points):
    """What Laplace's approximation lacks: the log of a mean over points around the mode. `factor` is L, curvature LLᵀ.

    Without it, large effects of entities with few events would seem less likely than they are.
    """
    n_points, n_effects = points.shape
    wider = 1.0 + WIDER / n_effects
    total = 0.0
    apart = np.empty(n_effects)
    tried = np.empty(n_effects)
    for s in range(n_points):
        square = 0.0
        for r in range(n_effects - 1, -1, -1):
            square += points[s, r] ** 2
            apart[r] = wider * points[s, r]
            for c in range(r + 1, n_effects):
                apart[r] -= factor[c, r] * apart[c]
            apart[r] /= factor[r, r]
            tried[r] = mode[r] + apart[r]
        total += math.exp(log_joint(design, offsets, terms, start, tried) - best + 0.5 * square)
    return math.log(max(total, TINY) / n_points) + n_effects * math.log(wider)


@kernel
def newton_step(design, offsets, terms, start, mode, precision, step):
    """Write the step to the maximum of a parabola through `log_joint` at `mode`; return log |its curvature|."""
    n_events, n_effects = design.shape
    gradient = np.empty(n_effects)
    for r in range(n_effects):
        gradient[r] = -mode[r]
        clear(precision[r])
        precision[r, r] = 1.0
    for n in range(n_events):
        psi = offsets[n]
        for r in range(n_effects):
            psi += design[n, r] * mode[r]
        half = 0.5 * math.tanh(0.5 * psi)
        score = terms.kappa[start + n] - terms.shape[start + n] * half
        curvature = terms.shape[start + n] * (0.25 - half**2)
        for r in range(n_effects):
            gradient[r] += score * design[n, r]
            weighted = curvature * design[n, r]
            for s in range(r + 1):
                precision[r, s] += weighted * design[n, s]
    # without random numbers the draw is the mean
    clear(step)
    solve_draw(precision, gradient, step)
    log_det = 0.0
    for r in range(n_effects):
        log_det += 2.0 * math.log(precision[r, r])
    return log_det
