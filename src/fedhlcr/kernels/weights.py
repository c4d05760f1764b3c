"""Kernels for weights of single events: weighted Gram matrices, and draws of the weights.

With β the coefficients of an event's entity, r = y − xᵀβ its residual, s the noise scale and λ its weight:

    y | λ ~ N(xᵀβ, s²/λ),   λ ~ Gamma(ν/2, ν/2),   λ | y ~ Gamma((ν + 1)/2, (ν + r²/s²)/2)

Here Gamma(shape, rate). Without λ, y has a Student-t distribution with ν degrees of freedom.
"""

from __future__ import annotations

import math

import numpy as np

from fedhlcr.kernels.compiling import kernel, vector_kernel
from fedhlcr.kernels.evidence import SQUARED_EVENTS, SQUARES
from fedhlcr.kernels.keyed import keyed_gamma
from fedhlcr.kernels.vectors import clear

# Purposes of keyed random numbers, above those of effects: the weights of an entity's first, second, … event.
FIRST_EVENT = np.uint64(4 << 10)
PER_EVENT = np.uint64(1 << 6)
# What `draw_weights` adds up for each agent, in this order.
WEIGHT_SCALARS = ("log_event_weights", "event_weights", "weighted_events")


@vector_kernel
def add_event(x, y, weight, row, full):
    """Add weight · x̃x̃ᵀ with x̃ = (1, x, y) to a full matrix (width, padded), whose rows processors add up quickly.

    `row` (padded,) is scratch space: zeros past the width.
    """
    n_features = x.shape[0]
    padded = row.shape[0]
    row[0] = 1.0
    for f in range(n_features):
        row[f + 1] = x[f]
    row[n_features + 1] = y
    for i in range(n_features + 2):
        weighted = weight * row[i]
        own = full[i]
        for j in range(padded):
            own[j] += weighted * row[j]


@kernel
def empty_row(n_features):
    """Scratch space for `add_event`: as long as eight numbers at once need it."""
    return np.zeros((n_features + 2 + 7) // 8 * 8)


@vector_kernel
def pack_full(full, out):
    """Write the lower triangle of a full matrix to a packed one."""
    p = 0
    for i in range(full.shape[0]):
        for j in range(i + 1):
            out[p] = full[i, j]
            p += 1


@kernel
def weighted_grams(X, y, event_start, weights, entities, first, last, out):
    """Write Σ λx̃x̃ᵀ of entities[first:last] to their rows of `out`; `weights` is (events,)."""
    row = empty_row(X.shape[1])
    full = np.empty((X.shape[1] + 2, row.shape[0]))
    for position in range(first, last):
        e = entities[position]
        for i in range(full.shape[0]):
            clear(full[i])
        for n in range(event_start[e], event_start[e + 1]):
            add_event(X[n], y[n], weights[n], row, full)
        pack_full(full, out[e])


@kernel
def weighted_sums(X, y, event_start, weights, entities, first, last, rows, out):
    """Add Σ λx̃x̃ᵀ of entities[first:last] to rows of `out`: that of entity e to rows[e]."""
    row = empty_row(X.shape[1])
    full = np.zeros((out.shape[0], X.shape[1] + 2, row.shape[0]))
    packed = np.empty(out.shape[1])
    for position in range(first, last):
        e = entities[position]
        own = full[rows[e]]
        for n in range(event_start[e], event_start[e + 1]):
            add_event(X[n], y[n], weights[n], row, own)
    for r in range(out.shape[0]):
        pack_full(full[r], packed)
        for p in range(packed.shape[0]):
            out[r, p] += packed[p]


@kernel
def weighted_grams_by_draw(X, targets, event_start, weights, out):
    """Write Σ λx̃x̃ᵀ of each entity in each draw to `out` (entities, draws, packed).

    `targets` and `weights` are (events, draws).
    """
    row = empty_row(X.shape[1])
    full = np.empty((X.shape[1] + 2, row.shape[0]))
    for e in range(out.shape[0]):
        for draw in range(out.shape[1]):
            for i in range(full.shape[0]):
                clear(full[i])
            for n in range(event_start[e], event_start[e + 1]):
                add_event(X[n], targets[n, draw], weights[n, draw], row, full)
            pack_full(full, out[e, draw])


@kernel
def residual(x, y, coef, first):
    """y − xᵀβ. `first` is 0 if the first coefficient is an intercept, else 1."""
    left = y - coef[0] if first == 0 else y
    for f in range(x.shape[0]):
        left -= x[f] * coef[f + 1 - first]
    return left


@kernel
def draw_weights(events, entities, coef, law, shape, agents, first_agent, last_agent, weights, scalars, totals):
    """Draw the weight of each event of agents[first_agent:last_agent], given its entity's coefficients.

    Parameters
    ----------
    events : X, y, event_start
    coef : (entities, n_coef) w + a + b
    law : `kernels.effective.EffectsLaw`
    shape : ν
    weights : (events,), changed in place
    scalars : (agents asked, …) get Σ λr² and the number of events, where `kernels.effects` counts them
    totals : (agents asked, 3) get WEIGHT_SCALARS
    """
    X, y, event_start = events
    _, agent_start, keys, streams = entities
    for position in range(first_agent, last_agent):
        agent = agents[position]
        squares = logs = total = 0.0
        for e in range(agent_start[agent], agent_start[agent + 1]):
            for n in range(event_start[e], event_start[e + 1]):
                square = residual(X[n], y[n], coef[e], law.first) ** 2
                purpose = FIRST_EVENT + PER_EVENT * np.uint64(n - event_start[e])
                gamma = keyed_gamma(streams[agent], keys[e], law.round, purpose, 0.5 * (shape + 1.0))
                weight = gamma / (0.5 * (shape + square / law.noise_scale**2))
                weights[n] = weight
                squares += weight * square
                logs += math.log(weight)
                total += weight
        n_events = event_start[agent_start[agent + 1]] - event_start[agent_start[agent]]
        scalars[position, SQUARES] = squares
        scalars[position, SQUARED_EVENTS] = n_events
        totals[position, 0] = logs
        totals[position, 1] = total
        totals[position, 2] = n_events
