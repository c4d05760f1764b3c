"""What agents add up to show whether effects are needed, and how well clusters describe their entities."""

from __future__ import annotations

import math

import numpy as np

from fedhlcr.kernels.compiling import kernel, vector_kernel
from fedhlcr.kernels.effective import place

# Positions of the scalars that `draw_effects` adds up for each agent, before the squares of the agent's effects.
LOG_VARIANCES, PRECISIONS, NOISY_ENTITIES, LOG_VOLUMES, SQUARES, SQUARED_EVENTS, EVENTS, AGENTS, HAS_EFFECT = range(9)
NOISE_EXCESS = 9
NOISE_SQUARES = 10
LOG_DENSITY = 11
WEIGHED_EVENTS = 12
N_SCALARS = 13


@kernel
def write_figures(grams, agent_start, first_agent, last_agent, events, within):
    """For agents [first_agent, last_agent), sum events (agents,) and features' squares within entities (agents, F)."""
    for agent in range(first_agent, last_agent):
        events[agent] = 0.0
        for f in range(within.shape[1]):
            within[agent, f] = 0.0
        for e in range(agent_start[agent], agent_start[agent + 1]):
            events[agent] += grams[e, 0]
            for f in range(within.shape[1]):
                total = grams[e, place(f + 1, 0)]
                within[agent, f] += max(grams[e, place(f + 1, f + 1)] - total**2 / grams[e, 0], 0.0)


@vector_kernel
def effect_scores(gram, coef, first, out):
    """Write the scores g − Gw of an entity's effects at 0 to `out` (n_coef,), and return RSS(w), never below 0."""
    n_coef = coef.shape[0]
    last_row = (n_coef + first) * (n_coef + first + 1) // 2 + first
    for f in range(n_coef):
        out[f] = gram[last_row + f]
    for i in range(n_coef):
        row = (first + i) * (first + i + 1) // 2 + first
        own = coef[i]
        total = 0.0
        # the row is that of a symmetric matrix, and a column too
        for j in range(i):
            total += gram[row + j] * coef[j]
            out[j] -= gram[row + j] * own
        out[i] -= total + gram[row + i] * own
    squares = gram[last_row + n_coef]
    for f in range(n_coef):
        squares -= coef[f] * (gram[last_row + f] + out[f])
    return max(squares, 0.0)


@kernel
def add_evidence(grams, agent_start, agents, first_agent, last_agent, labels, law, noise, scalars):
    """Add up what tells whether effects are needed, in the plain stage, for agents[first_agent:last_agent].

    With s the score of an entity's effect at 0 and I its information, `scalars` (agents asked, 4, n_coef) get
    Σ(s² − I) and ΣI² over entities, and T = (Σs)² − Σs² and 2((Σs²)² − Σs⁴) of the agent. Without effects of entities
    Σ(s² − I) has mean 0 and variance 2ΣI². Without effects of agents T has mean 0, and the other is its variance,
    whether or not entities have effects. `noise` gets the same for the entities' noise: with q their sums of squares
    over s², Σ((q − n)² − 2n) has mean 0 and variance Σ(8n² + 48n) if all are equal.
    """
    n_coef = law.coef.shape[1]
    first = law.first
    variance = law.noise_scale**2
    coef = law.coef
    scores = np.empty(n_coef)
    totals = np.empty(n_coef)
    squares = np.empty(n_coef)
    fourth = np.empty(n_coef)
    for position in range(first_agent, last_agent):
        own = scalars[position]
        for f in range(n_coef):
            totals[f] = squares[f] = fourth[f] = 0.0
        for e in range(agent_start[agents[position]], agent_start[agents[position] + 1]):
            n = grams[e, 0]
            apart = effect_scores(grams[e], coef[labels[e]], first, scores) / variance - n
            noise[position, NOISE_EXCESS] += apart**2 - 2.0 * n
            noise[position, NOISE_SQUARES] += 8.0 * n**2 + 48.0 * n
            for f in range(n_coef):
                score = scores[f] / variance
                information = grams[e, place(first + f, first + f)] / variance
                own[0, f] += score**2 - information
                own[1, f] += information**2
                totals[f] += score
                squares[f] += score**2
                fourth[f] += score**4
        for f in range(n_coef):
            own[2, f] = totals[f] ** 2 - squares[f]
            own[3, f] = 2.0 * max(squares[f] ** 2 - fourth[f], 0.0)


@kernel
def add_scale_scores(grams, agent_start, agents, coef, effects, first, scalars):
    """For each agent asked and each coefficient, add up how the log density grows if all effects b become (1 + s)b.

    `scalars` (agents asked, 2, n_coef) get the score Σ b (g − Gβ) and the information Σ b²G at s = 0, for each
    coefficient alone, with β = coef (entities, n_coef) and b = effects (entities, n_coef).
    """
    n_coef = coef.shape[1]
    last_row = (n_coef + first) * (n_coef + first + 1) // 2
    for position in range(agents.shape[0]):
        for e in range(agent_start[agents[position]], agent_start[agents[position] + 1]):
            for f in range(n_coef):
                if effects[e, f] != 0.0:
                    residual = grams[e, last_row + first + f]
                    for j in range(n_coef):
                        residual -= grams[e, place(first + f, first + j)] * coef[e, j]
                    scalars[position, 0, f] += effects[e, f] * residual
                    scalars[position, 1, f] += effects[e, f] ** 2 * grams[e, place(first + f, first + f)]


@vector_kernel
def add_log_densities(scoring, score_rows, prior_weights, labels, agent_start, agents, first_agent, last_agent, out):
    """Add log Σ_k p(z = k | the agent's other labels) exp(S · r_k) to `out`, for each entity of some agents.

    S are the rows of `scoring`, r_k those of `score_rows`; βψ are the prior weights.
    """
    n_clusters = prior_weights.shape[0]
    scores = np.empty(n_clusters)
    prior_total = 0.0
    for k in range(n_clusters):
        prior_total += prior_weights[k]
    for position in range(first_agent, last_agent):
        start = agent_start[agents[position]]
        end = agent_start[agents[position] + 1]
        counts = prior_weights.copy()
        total = prior_total + (end - start) - 1.0
        for e in range(start, end):
            counts[labels[e]] += 1.0
        for e in range(start, end):
            largest = -np.inf
            for k in range(n_clusters):
                others = counts[k] - 1.0 if labels[e] == k else counts[k]
                scores[k] = math.log(max(others, 1e-300) / total)
                for p in range(scoring.shape[1]):
                    scores[k] += scoring[e, p] * score_rows[k, p]
                largest = max(largest, scores[k])
            density = 0.0
            for k in range(n_clusters):
                density += math.exp(scores[k] - largest)
            out[e] += largest + math.log(density)
