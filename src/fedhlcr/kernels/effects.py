"""Draws of effects of entities and agents, and of the entities' noise.

With the notation of `kernels.effective`, an effect given its cluster's and its agent's coefficients β is

    b = Λ L⁻ᵀ(L⁻¹Λᵀ(g − Gβ) + ε)

Several entities are computed at once, one in each lane of a vector. `reference` has slow versions.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray, KeyArray
from fedhlcr.kernels.compiling import kernel, vector_kernel
from fedhlcr.kernels.effective import effect_columns, load_lanes, move_target, multiply_rows, place
from fedhlcr.kernels.evidence import (
    HAS_EFFECT,
    LOG_VARIANCES,
    LOG_VOLUMES,
    N_SCALARS,
    NOISY_ENTITIES,
    PRECISIONS,
    SQUARED_EVENTS,
    SQUARES,
)
from fedhlcr.kernels.keyed import keyed_gamma, keyed_normal_lanes, keyed_normals
from fedhlcr.kernels.lanes import SIDE_BY_SIDE, cholesky_lanes, empty_lanes, larger, load, prefetch, spread, store

# Least noise variance of an entity, as a share of the typical one: an entity without residuals must not get infinite
# precision, whose rounding errors would outweigh everything else.
LEAST_VARIANCE = 1e-3
# Purposes of keyed random numbers; labels use the purposes below these, and one draw may use a thousand.
EFFECT, NOISE, AGENT_EFFECT = np.uint64(1 << 10), np.uint64(2 << 10), np.uint64(3 << 10)


class EffectState(NamedTuple):
    """The private state of agents; `draw_effects` changes it in place."""

    variance: FloatArray  # (entities,) noise variances σ²
    agent_effects: FloatArray  # (agents, n_coef)
    coef: FloatArray  # (entities, n_coef) coefficients w + a + b; without rows if they are not needed


class EffectSums(NamedTuple):
    """Sums by row, to which `draw_effects` adds."""

    data: FloatArray  # (rows, packed) Gram matrices around the effects, or effective ones, by precision
    effects: FloatArray  # (rows, packed effects) Σ (1, b)(1, b)ᵀ
    scalars: FloatArray  # (agents asked, N_SCALARS + n_coef)


class LaneSpace(NamedTuple):
    """Scratch space for the entities that are computed at once; the last axis is that of lanes."""

    grams: FloatArray  # (packed, lanes) Gram matrices around effects, as far as these are known
    precision: FloatArray  # (1, lanes) 1/σ²
    cluster_coef: FloatArray  # (n_coef, lanes)
    agent_effect: FloatArray  # (n_coef, lanes)
    effect: FloatArray  # (n_coef, lanes)
    fitted: FloatArray  # (width − 1, lanes) products of the Gram matrices with `cluster_coef`
    products: FloatArray  # (width − 1, lanes)
    pairs: FloatArray  # (width, 2, lanes) two columns of GΛ
    normals: FloatArray  # (effects, or one more, lanes)
    factor: FloatArray  # (effects, effects + 1, lanes) L, and behind it what is solved by it
    moments: FloatArray  # (packed effects, lanes)
    squares: FloatArray  # (1, lanes) residual sums of squares
    streams: KeyArray  # (lanes,)
    keys: KeyArray  # (lanes,)


@kernel
def draw_agent_effect(scoring, law, labels, stream, first_entity, last_entity, effect):
    """Replace an agent's effect a by a draw given labels and clusters, with the entities' effects integrated out.

    `scoring` holds the effective matrices around the old effect. a = τα, with α of precision I + τ(ΣQ)τ.
    """
    n_coef, first = effect.shape[0], law.first
    used = np.flatnonzero(law.agent_scale > 0.0)
    n_used = used.shape[0]
    precision, linear = np.eye(n_used), np.zeros(n_used)
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
    effect[:] = 0.0
    for i in range(n_used):
        effect[used[i]] = law.agent_scale[used[i]] * normals[i]


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


@kernel
def empty_space(law, packed, packed_effects):
    """Scratch space for `draw_effects`; effects are 0."""
    n_coef, n_effects = law.coef.shape[1], law.columns.shape[0]
    width = n_coef + law.first + 1
    effect = empty_lanes(n_coef)
    effect[:] = 0.0
    return LaneSpace(
        empty_lanes(packed),
        empty_lanes(1),
        empty_lanes(n_coef),
        empty_lanes(n_coef),
        effect,
        empty_lanes(width - 1),
        empty_lanes(width - 1),
        empty_lanes(2 * width).reshape(width, 2, SIDE_BY_SIDE),
        empty_lanes(n_effects + n_effects % 2),
        empty_lanes(n_effects * (n_effects + 1)).reshape(n_effects, n_effects + 1, SIDE_BY_SIDE),
        empty_lanes(packed_effects),
        empty_lanes(1),
        np.empty(SIDE_BY_SIDE, dtype=np.uint64),
        np.empty(SIDE_BY_SIDE, dtype=np.uint64),
    )


@kernel
def factor_lanes(of, space):
    """Write L to space.factor, with the inverses of L's diagonal on the diagonal.

    Columns of B = I + ΛᵀGΛ are computed two by two: of GΛ only the part below the diagonal is needed.
    """
    root, ends, columns, h, b = of.root, of.ends, of.columns, space.pairs, space.factor
    n, precision = columns.shape[0], load(space.precision, 0)
    for s in range(0, n, 2):
        multiply_rows(space.grams, of, columns, s, s, h)
        # two rows at once; Λ is 0 above its diagonal
        for r in range(s, n, 2):
            q = min(r + 1, n - 1)
            rs, qs, rt, qt = spread(0.0), spread(0.0), spread(0.0), spread(0.0)
            for c in range(r, max(ends[r], ends[q])):
                x, y = load(h, (columns[c], 0)), load(h, (columns[c], 1))
                rs, qs = rs + root[c, r] * x, qs + root[c, q] * x
                rt, qt = rt + root[c, r] * y, qt + root[c, q] * y
            store(b, (r, s), precision * rs)
            store(b, (q, s), precision * qs)
            store(b, (r, s + 1), precision * rt)
            store(b, (q, s + 1), precision * qt)
    for s in range(n):
        store(b, (s, s), 1.0 + load(b, (s, s)))
    cholesky_lanes(b)


@kernel
def solve_lanes(of, space):
    """Replace standard normals ε by L⁻ᵀ(L⁻¹Λᵀ(g − Gw) + ε)."""
    m, b, normals, fitted = space.grams, space.factor, space.normals, space.fitted
    root, ends, columns, last_row = of.root, of.ends, of.columns, of.table[of.table.shape[0] - 1]
    n_effects, precision = columns.shape[0], load(space.precision, 0)
    for r in range(n_effects):
        total = spread(0.0)
        for c in range(r, ends[r]):
            total = total + root[c, r] * (load(m, last_row[columns[c]]) - load(fitted, columns[c]))
        total = precision * total
        for s in range(r):
            total = total - load(b, (r, s)) * load(b, (s, n_effects))
        store(b, (r, n_effects), load(b, (r, r)) * total)
    for r in range(n_effects - 1, -1, -1):
        total = load(normals, r) + load(b, (r, n_effects))
        for s in range(r + 1, n_effects):
            total = total - load(b, (s, r)) * load(normals, s)
        store(normals, r, load(b, (r, r)) * total)


@kernel
def write_effects(of, space):
    """Write the effects b = Λ·(what is solved), and (1, b)(1, b)ᵀ."""
    normals, effect, moments, root, columns = space.normals, space.effect, space.moments, of.root, of.columns
    for c in range(columns.shape[0]):
        total = spread(0.0)
        for r in range(c + 1):
            total = total + root[c, r] * load(normals, r)
        store(effect, columns[c] - of.first, total)
    store(moments, 0, spread(1.0))
    p, i = 1, 0
    while p < moments.shape[0]:
        own = load(effect, i)
        store(moments, p, own)
        for j in range(i + 1):
            store(moments, p + 1 + j, own * load(effect, j))
        i += 1
        p += i + 1


@kernel
def write_products(m, of, vector, out):
    """The first rows of `out` become the products of M's regressors with `vector` (n_coef, lanes)."""
    n, table, first = of.table.shape[0] - 1, of.table, of.first
    # two rows at once, because a sum must wait for its last summand
    for i in range(0, n, 2):
        total, other, k = spread(0.0), spread(0.0), min(i + 1, n - 1)
        for j in range(vector.shape[0]):
            factor = load(vector, j)
            total = total + factor * load(m, table[i, first + j])
            other = other + factor * load(m, table[k, first + j])
        store(out, i, total)
        store(out, k, other)


@kernel
def squares_around(m, of, vector, products):
    """(−v, 1)ᵀ M (−v, 1) in each lane, never below 0; `products` are those of M with v."""
    last_row, first = of.table[of.table.shape[0] - 1], of.first
    total = load(m, last_row[last_row.shape[0] - 1])
    for j in range(vector.shape[0]):
        linear = load(m, last_row[first + j])
        total = total + load(vector, j) * (load(products, first + j) - linear - linear)
    return larger(total, spread(0.0))


@kernel
def move_lanes(m, of, step, products):
    """`move_target` in each lane, by `step` (n_coef, lanes). `products` (width − 1, lanes) is scratch space."""
    last_row, last = of.table[of.table.shape[0] - 1], of.table.shape[0] - 1
    write_products(m, of, step, products)
    store(m, last_row[last], squares_around(m, of, step, products))
    for i in range(last):
        store(m, last_row[i], load(m, last_row[i]) - load(products, i))


@vector_kernel
def add_data(gram, precision, step, first, out):
    """out += precision · Gram matrix of (x, y − xᵀstep)."""
    moved = gram.copy()
    move_target(moved, step, first, np.empty(step.shape[0] + first + 1))
    for p in range(gram.shape[0]):
        out[p] += precision * moved[p]


@kernel
def entities_of(agents, agent_start, first_agent, last_agent):
    """The entities of agents[first_agent:last_agent], and the position of each one's agent in `agents`."""
    n = 0
    for position in range(first_agent, last_agent):
        n += agent_start[agents[position] + 1] - agent_start[agents[position]]
    entities, positions = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    n = 0
    for position in range(first_agent, last_agent):
        for e in range(agent_start[agents[position]], agent_start[agents[position] + 1]):
            entities[n], positions[n] = e, position
            n += 1
    return entities, positions


@kernel
def draw_agent_effects(entities, scoring, labels, law, agents, first_agent, last_agent, state, scalars):
    """Draw the effects of agents[first_agent:last_agent] given their entities' labels, in place."""
    _, agent_start, _, streams = entities
    if not np.any(law.agent_scale > 0.0):
        return
    for position in range(first_agent, last_agent):
        agent = agents[position]
        start, end = agent_start[agent], agent_start[agent + 1]
        if end > start:
            draw_agent_effect(scoring, law, labels, streams[agent], start, end, state.agent_effects[agent])
            scalars[position, HAS_EFFECT] = 1.0
            for f in range(law.coef.shape[1]):
                scalars[position, N_SCALARS + f] = state.agent_effects[agent, f] ** 2


@kernel
def draw_effects(entities, scoring, labels, law, agents, first_agent, last_agent, state, rows, sums):
    """Draw effects and noise of agents[first_agent:last_agent] given their new labels, and add to the sums.

    First the agents' own effects, with the entities' effects integrated out; then each entity's effect; then each
    entity's noise. `scoring` holds the effective matrices around the agents' old effects, and rows[e] the row of the
    sums to which entity e adds.
    """
    grams, agent_start, _, _ = entities
    of, space = effect_columns(law), empty_space(law, grams.shape[1], sums.effects.shape[1])
    own_agents = agents[first_agent:last_agent]
    old = state.agent_effects[own_agents]
    draw_agent_effects(entities, scoring, labels, law, agents, first_agent, last_agent, state, sums.scalars)
    moved = state.agent_effects[own_agents] - old
    has_agent_effects = np.any(state.agent_effects[own_agents])
    own_entities, positions = entities_of(agents, agent_start, first_agent, last_agent)
    for at in range(0, own_entities.shape[0], SIDE_BY_SIDE):
        n_lanes = min(SIDE_BY_SIDE, own_entities.shape[0] - at)
        lanes = own_entities[at : at + n_lanes], positions[at : at + n_lanes]
        load_lanes(grams, state.variance, own_entities, at, n_lanes, space.grams, space.precision)
        load_state(entities, law.coef, labels, agents, state.agent_effects, lanes, space)
        for e in own_entities[at + n_lanes : at + n_lanes + SIDE_BY_SIDE]:
            prefetch(grams, e)
        if has_agent_effects:
            move_lanes(space.grams, of, space.agent_effect, space.products)
        draw_lanes(of, law.round, space)
        finish_lanes(grams, law, lanes, rows, space, state, sums)
        if not law.given_effects:
            for lane in range(n_lanes):
                e, step = own_entities[at + lane], moved[positions[at + lane] - first_agent]
                add_data(scoring[e], law.noise_unit**2, step, law.first, sums.data[rows[e]])


@kernel
def load_state(entities, coef, labels, agents, agent_effects, lanes, space):
    """Write coefficients of the clusters, effects of the agents and keys of the entities in all lanes."""
    # unpacked once, because each access to a tuple counts references
    _, _, keys, streams = entities
    own_entities, positions = lanes
    cluster_coef, agent_effect = space.cluster_coef, space.agent_effect
    lane_streams, lane_keys = space.streams, space.keys
    for lane in range(SIDE_BY_SIDE):
        shown = min(lane, own_entities.shape[0] - 1)
        e, agent = own_entities[shown], agents[positions[shown]]
        lane_streams[lane], lane_keys[lane] = streams[agent], keys[e]
        for j in range(coef.shape[1]):
            cluster_coef[j, lane] = coef[labels[e], j]
            agent_effect[j, lane] = agent_effects[agent, j]


@kernel
def draw_lanes(of, round_number, space):
    """Draw the effects of the entities in all lanes, and write their residual sums of squares."""
    write_products(space.grams, of, space.cluster_coef, space.fitted)
    if of.columns.shape[0]:
        keyed_normal_lanes(space.streams, space.keys, round_number, EFFECT, space.normals)
        factor_lanes(of, space)
        solve_lanes(of, space)
        write_effects(of, space)
        move_lanes(space.grams, of, space.effect, space.products)
    store(space.squares, 0, squares_around(space.grams, of, space.cluster_coef, space.fitted))


@kernel
def finish_lanes(grams, law, lanes, rows, space, state, sums):
    """Draw the noise of the entities in lanes, keep what is kept of them, and add to the sums.

    `lanes` are their positions among the entities, and those of their agents in the scalars.
    """
    # unpacked once, because each access to a tuple counts references
    own_entities, positions = lanes
    m, moments, squares, streams, keys = space.grams, space.moments, space.squares, space.streams, space.keys
    variance, coef, data, effects, scalars = state.variance, state.coef, sums.data, sums.effects, sums.scalars
    noise, unit = (law.noise_shape, law.noise_scale, law.noise_unit, law.round), law.noise_unit**2
    packed, n_coef, has_effects = grams.shape[1], law.coef.shape[1], law.columns.shape[0] > 0
    last_row, given_effects = place(n_coef + law.first, 0), law.given_effects
    for lane in range(own_entities.shape[0]):
        e, position = own_entities[lane], positions[lane]
        row = rows[e]
        if has_effects:
            for p in range(moments.shape[0]):
                effects[row, p] += moments[p, lane]
        if coef.shape[0] > 0:
            for j in range(n_coef):
                coef[e, j] = space.cluster_coef[j, lane] + space.agent_effect[j, lane] + space.effect[j, lane]
        own = squares[0, lane]
        variance[e] = draw_noise(own, grams[e, 0], streams[lane], keys[lane], noise, scalars[position])
        if given_effects:
            # effects change only the last row
            factor = unit / variance[e]
            for p in range(last_row):
                data[row, p] += factor * grams[e, p]
            for p in range(last_row, packed):
                data[row, p] += factor * m[p, lane]


@kernel
def draw_noise(squares, n_events, stream, key, law_of_noise, scalars):
    """Draw an entity's noise variance, IG((ν + n)/2, (νs² + squares)/2); an infinite ν means s² for every entity.

    `law_of_noise` are ν, s, the unit and the round. The scalars count variances in units of noise_unit².
    """
    noise_shape, noise_scale, noise_unit, round_number = law_of_noise
    scalars[SQUARED_EVENTS] += n_events
    if math.isinf(noise_shape):
        scalars[SQUARES] += squares
        return noise_scale**2
    shape = 0.5 * (noise_shape + n_events)
    rate = 0.5 * (noise_shape * noise_scale**2 + squares)
    drawn = rate / keyed_gamma(stream, key, round_number, NOISE, shape)
    drawn = max(drawn, LEAST_VARIANCE * noise_scale**2)
    variance = drawn / noise_unit**2
    log_variance = math.log(variance)
    scalars[SQUARES] += squares / variance
    scalars[LOG_VARIANCES] += log_variance
    scalars[LOG_VOLUMES] += n_events * log_variance
    scalars[PRECISIONS] += 1.0 / variance
    scalars[NOISY_ENTITIES] += 1.0
    return drawn
