"""Draws of the effects of agents, with those of their entities integrated out. `reference` has slow versions."""

from __future__ import annotations

import math

import numpy as np

from fedhlcr.kernels.compiling import kernel
from fedhlcr.kernels.effective import place
from fedhlcr.kernels.evidence import HAS_EFFECT, N_SCALARS
from fedhlcr.kernels.keyed import keyed_normals

# Purpose of keyed random numbers; see `kernels.effects`.
AGENT_EFFECT = np.uint64(3 << 10)


@kernel
def draw_agent_effects(entities, scoring, labels, law, agents, first_agent, last_agent, state, scalars):
    """Draw the effects of agents[first_agent:last_agent] given their entities' labels, in place."""
    _, agent_start, _, streams = entities
    if n_positive(law.agent_scale) == 0:
        return
    for position in range(first_agent, last_agent):
        agent = agents[position]
        start = agent_start[agent]
        end = agent_start[agent + 1]
        if end > start:
            draw_agent_effect(scoring, law, labels, streams[agent], start, end, state.agent_effects[agent])
            scalars[position, HAS_EFFECT] = 1.0
            for f in range(law.coef.shape[1]):
                scalars[position, N_SCALARS + f] = state.agent_effects[agent, f] ** 2


@kernel
def draw_agent_effect(scoring, law, labels, stream, first_entity, last_entity, effect):
    """Replace an agent's effect a by a draw given labels and clusters, with the entities' effects integrated out.

    `scoring` holds the effective matrices around the old effect. a = τα, with α of precision I + τ(ΣQ)τ.
    """
    n_coef = effect.shape[0]
    first = law.first
    n_used = n_positive(law.agent_scale)
    used = np.empty(n_used, dtype=np.int64)
    precision = np.empty((n_used, n_used))
    linear = np.empty(n_used)
    i = 0
    for f in range(n_coef):
        if law.agent_scale[f] > 0.0:
            used[i] = f
            linear[i] = 0.0
            for j in range(n_used):
                precision[i, j] = 1.0 if i == j else 0.0
            i += 1
    last_row = (n_coef + first) * (n_coef + first + 1) // 2
    for e in range(first_entity, last_entity):
        for i in range(n_used):
            row = first + used[i]
            residual = scoring[e, last_row + row]
            for j in range(n_coef):
                residual -= scoring[e, place(row, first + j)] * (law.coef[labels[e], j] - effect[j])
            linear[i] += law.agent_scale[used[i]] * residual
            for j in range(i + 1):
                scales = law.agent_scale[used[i]] * law.agent_scale[used[j]]
                precision[i, j] += scales * scoring[e, place(row, first + used[j])]
    normals = np.empty(n_used)
    keyed_normals(stream, np.uint64(0), law.round, AGENT_EFFECT, normals)
    solve_draw(precision, linear, normals)
    for f in range(n_coef):
        effect[f] = 0.0
    for i in range(n_used):
        effect[used[i]] = law.agent_scale[used[i]] * normals[i]


@kernel
def n_positive(scales):
    """The number of scales that are not 0."""
    n = 0
    for f in range(scales.shape[0]):
        n += scales[f] > 0.0
    return n


@kernel
def solve_draw(precision, linear, normals):
    """Replace independent standard normals by a draw from N(P⁻¹ linear, P⁻¹); only P's lower triangle is used."""
    n = linear.shape[0]
    for j in range(n):
        for t in range(j):
            precision[j, j] -= precision[j, t] ** 2
        precision[j, j] = math.sqrt(max(precision[j, j], 1.0))
        for i in range(j + 1, n):
            for t in range(j):
                precision[i, j] -= precision[i, t] * precision[j, t]
            precision[i, j] /= precision[j, j]
    for i in range(n):
        for j in range(i):
            linear[i] -= precision[i, j] * linear[j]
        linear[i] /= precision[i, i]
    for i in range(n - 1, -1, -1):
        normals[i] += linear[i]
        for j in range(i + 1, n):
            normals[i] -= precision[j, i] * normals[j]
        normals[i] /= precision[i, i]
