"""Draws of effects of entities and agents, and of the entities' noise.

With the notation of `kernels.effective`, an effect given its cluster's and its agent's coefficients β is

    b = Λx,  x = L⁻ᵀ(L⁻¹Λᵀ(g − Gβ) + ε)

With rows u_r of U = L⁻¹Λᵀ[G g] and columns λ_r of Λ, L_sr = u_r·λ_s for s > r (columns of G that Λ multiplies). So x
is solved from its last element on without L: given the effect b so far, x_r = (ε_r + u_r·(−β − b, 1)) / L_rr, and then
b grows by λ_r x_r.

Several entities are computed at once, one in each lane of a vector. `reference` has slow versions.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray, KeyArray
from fedhlcr.kernels.agent_effects import draw_agent_effects
from fedhlcr.kernels.compiling import kernel, vector_kernel
from fedhlcr.kernels.effective import (
    effect_columns,
    empty_roots,
    integrate_effects,
    load_lanes,
    move_target,
    place,
)
from fedhlcr.kernels.evidence import (
    LOG_VARIANCES,
    LOG_VOLUMES,
    NOISY_ENTITIES,
    PRECISIONS,
    SQUARED_EVENTS,
    SQUARES,
)
from fedhlcr.kernels.keyed import keyed_gamma, keyed_normal_lanes
from fedhlcr.kernels.lanes import SIDE_BY_SIDE, empty_lanes, larger, load, spread, store

# Least noise variance of an entity, as a share of the typical one: an entity without residuals must not get infinite
# precision, whose rounding errors would outweigh everything else.
LEAST_VARIANCE = 1e-3
# Purposes of keyed random numbers; labels use the purposes below these, and one draw may use a thousand. Effects of
# agents have the next one.
EFFECT = np.uint64(1 << 10)
NOISE = np.uint64(2 << 10)


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

    grams: FloatArray  # (packed, lanes) Gram matrices; around effects in the end
    effective: FloatArray  # (packed, lanes) the same with effects integrated out, where U is computed again
    precision: FloatArray  # (1, lanes) 1/σ²
    cluster_coef: FloatArray  # (n_coef, lanes)
    shift: FloatArray  # (n_coef, lanes) the agent's effect, and in the end that of the entity too
    effect: FloatArray  # (n_coef, lanes)
    residual: FloatArray  # (width, lanes) what U is multiplied by: (−β − b, 1)
    fitted: FloatArray  # (width, lanes) products of the Gram matrices with `cluster_coef`
    shifted: FloatArray  # (width, lanes) those with `shift`
    normals: FloatArray  # (effects, or one more, lanes)
    moments: FloatArray  # (packed effects, lanes)
    squares: FloatArray  # (1, lanes) residual sums of squares
    streams: KeyArray  # (lanes,)
    keys: KeyArray  # (lanes,)


@kernel
def empty_space(law, packed, packed_effects):
    """Scratch space for `draw_effects`."""
    n_coef = law.coef.shape[1]
    n_effects = law.columns.shape[0]
    width = n_coef + law.first + 1
    return LaneSpace(
        empty_lanes(packed),
        empty_lanes(packed),
        empty_lanes(1),
        empty_lanes(n_coef),
        empty_lanes(n_coef),
        empty_lanes(n_coef),
        empty_lanes(width),
        empty_lanes(width),
        empty_lanes(width),
        empty_lanes(n_effects + n_effects % 2),
        empty_lanes(packed_effects),
        empty_lanes(1),
        np.empty(SIDE_BY_SIDE, dtype=np.uint64),
        np.empty(SIDE_BY_SIDE, dtype=np.uint64),
    )


@kernel
def solve_effects(of, u, group, space):
    """Draw the effects b from standard normals, given U in a group of `u`."""
    normals = space.normals
    effect = space.effect
    residual = space.residual
    first = of.first
    width = of.table.shape[0]
    root = of.root
    ends = of.ends
    columns = of.columns
    for j in range(effect.shape[0]):
        store(effect, j, spread(0.0))
        store(residual, first + j, spread(0.0) - load(space.cluster_coef, j) - load(space.shift, j))
    store(residual, width - 1, spread(1.0))
    for r in range(columns.shape[0] - 1, -1, -1):
        # three sums, because a sum must wait for its last summand
        x = load(normals, r)
        y = spread(0.0)
        z = load(u, (group, r, width - 1))
        for i in range(first, width - 2, 2):
            x = x + load(u, (group, r, i)) * load(residual, i)
            y = y + load(u, (group, r, i + 1)) * load(residual, i + 1)
        if (width - first) % 2 == 0:
            z = z + load(u, (group, r, width - 2)) * load(residual, width - 2)
        x = load(u, (group, r, width)) * (x + y + z)
        for c in range(r, ends[r]):
            i = columns[c]
            step = root[c, r] * x
            store(residual, i, load(residual, i) - step)
            store(effect, i - first, load(effect, i - first) + step)


@kernel
def write_moments(effect, moments):
    """Write (1, b)(1, b)ᵀ."""
    store(moments, 0, spread(1.0))
    p = 1
    i = 0
    while p < moments.shape[0]:
        own = load(effect, i)
        store(moments, p, own)
        for j in range(i + 1):
            store(moments, p + 1 + j, own * load(effect, j))
        i += 1
        p += i + 1


@kernel
def write_products(m, of, vectors, out, others):
    """The first rows of `out` and of `others` become the products of M's regressors with two vectors (n_coef, lanes).

    Both at once: what is loaded of M is used twice.
    """
    n, table, first, (vector, other) = of.table.shape[0] - 1, of.table, of.first, vectors
    # two rows at once, because a sum must wait for its last summand
    for i in range(0, n, 2):
        k = min(i + 1, n - 1)
        a = spread(0.0)
        b = spread(0.0)
        c = spread(0.0)
        d = spread(0.0)
        for j in range(vector.shape[0]):
            x = load(m, table[i, first + j])
            y = load(m, table[k, first + j])
            v = load(vector, j)
            w = load(other, j)
            a = a + v * x
            b = b + v * y
            c = c + w * x
            d = d + w * y
        store(out, i, a)
        store(out, k, b)
        store(others, i, c)
        store(others, k, d)


@kernel
def squares_around(m, of, vector, products):
    """(−v, 1)ᵀ M (−v, 1) in each lane, never below 0; `products` are those of M with v."""
    last_row = of.table[of.table.shape[0] - 1]
    first = of.first
    total = load(m, last_row[last_row.shape[0] - 1])
    for j in range(vector.shape[0]):
        linear = load(m, last_row[first + j])
        total = total + load(vector, j) * (load(products, first + j) - linear - linear)
    return larger(total, spread(0.0))


@kernel
def move_lanes(m, of, step, products):
    """`move_target` in each lane, by `step` (n_coef, lanes); `products` are those of M with it."""
    last_row = of.table[of.table.shape[0] - 1]
    last = of.table.shape[0] - 1
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
    entities = np.empty(n, dtype=np.int64)
    positions = np.empty(n, dtype=np.int64)
    n = 0
    for position in range(first_agent, last_agent):
        for e in range(agent_start[agents[position]], agent_start[agents[position] + 1]):
            entities[n] = e
            positions[n] = position
            n += 1
    return entities, positions


@kernel
def draw_effects(entities, scoring, labels, law, agents, first_agent, last_agent, state, rows, sums):
    """Draw effects and noise of agents[first_agent:last_agent] given their new labels, and add to the sums.

    First the agents' own effects, with the entities' effects integrated out; then each entity's effect; then each
    entity's noise. `scoring` holds the effective matrices around the agents' old effects, and rows[e] the row of the
    sums to which entity e adds.
    """
    of = effect_columns(law)
    packed = entities.grams.shape[1]
    space = empty_space(law, packed, sums.effects.shape[1])
    # U is computed again
    work = of, space, empty_roots(0, of.columns.shape[0], of.table.shape[0])
    draw_rooted(entities, scoring, labels, law, agents, first_agent, last_agent, state, rows, sums, work)


@kernel
def draw_rooted(entities, scoring, labels, law, agents, first_agent, last_agent, state, rows, sums, work):
    """`draw_effects` given U of these entities. `work` are Λ, scratch space, and U, which may have no groups."""
    (grams, agent_start, _, _), (of, space, roots) = entities, work
    n_coef = law.coef.shape[1]
    moved = np.empty((last_agent - first_agent, n_coef))
    for i in range(last_agent - first_agent):
        for f in range(n_coef):
            moved[i, f] = state.agent_effects[agents[first_agent + i], f]
    draw_agent_effects(entities, scoring, labels, law, agents, first_agent, last_agent, state, sums.scalars)
    for i in range(last_agent - first_agent):
        for f in range(n_coef):
            moved[i, f] = state.agent_effects[agents[first_agent + i], f] - moved[i, f]
    own_entities, positions = entities_of(agents, agent_start, first_agent, last_agent)
    is_kept = roots.shape[0] > 0
    u = roots if is_kept else empty_roots(1, of.columns.shape[0], of.table.shape[0])
    for at in range(0, own_entities.shape[0], SIDE_BY_SIDE):
        n_lanes = min(SIDE_BY_SIDE, own_entities.shape[0] - at)
        lanes = own_entities[at : at + n_lanes], positions[at : at + n_lanes]
        load_lanes(grams, state.variance, own_entities, at, n_lanes, space.grams, space.precision)
        load_state(entities, law.coef, labels, agents, state.agent_effects, lanes, space)
        if not is_kept:
            for p in range(space.grams.shape[0]):
                store(space.effective, p, load(space.grams, p))
            integrate_effects(space.effective, space.precision, of, u, 0)
        draw_lanes(of, law.round, u, at // SIDE_BY_SIDE if is_kept else 0, space)
        finish_lanes(grams, law, lanes, rows, space, state, sums)
        if not law.given_effects:
            for lane in range(n_lanes):
                e = own_entities[at + lane]
                step = moved[positions[at + lane] - first_agent]
                add_data(scoring[e], law.noise_unit**2, step, law.first, sums.data[rows[e]])


@kernel
def load_state(entities, coef, labels, agents, agent_effects, lanes, space):
    """Write coefficients of the clusters, effects of the agents and keys of the entities in all lanes."""
    # unpacked once, because each access to a tuple counts references
    _, _, keys, streams = entities
    own_entities, positions = lanes
    cluster_coef = space.cluster_coef
    shift = space.shift
    lane_streams = space.streams
    lane_keys = space.keys
    for lane in range(SIDE_BY_SIDE):
        shown = min(lane, own_entities.shape[0] - 1)
        e = own_entities[shown]
        agent = agents[positions[shown]]
        lane_streams[lane] = streams[agent]
        lane_keys[lane] = keys[e]
        for j in range(coef.shape[1]):
            cluster_coef[j, lane] = coef[labels[e], j]
            shift[j, lane] = agent_effects[agent, j]


@kernel
def draw_lanes(of, round_number, u, group, space):
    """Draw the effects of the entities in all lanes, and write their residual sums of squares."""
    grams = space.grams
    coef = space.cluster_coef
    shift = space.shift
    effect = space.effect
    if of.columns.shape[0]:
        keyed_normal_lanes(space.streams, space.keys, round_number, EFFECT, space.normals)
        solve_effects(of, u, group, space)
        write_moments(effect, space.moments)
        for j in range(shift.shape[0]):
            store(shift, j, load(shift, j) + load(effect, j))
    write_products(grams, of, (coef, shift), space.fitted, space.shifted)
    move_lanes(grams, of, shift, space.shifted)
    store(space.squares, 0, squares_around(grams, of, coef, space.fitted))


@kernel
def finish_lanes(grams, law, lanes, rows, space, state, sums):
    """Draw the noise of the entities in lanes, keep what is kept of them, and add to the sums.

    `lanes` are their positions among the entities, and those of their agents in the scalars.
    """
    # unpacked once, because each access to a tuple counts references
    own_entities, positions = lanes
    m = space.grams
    moments = space.moments
    squares = space.squares
    streams = space.streams
    keys = space.keys
    variance = state.variance
    coef = state.coef
    data = sums.data
    effects = sums.effects
    scalars = sums.scalars
    noise = (law.noise_shape, law.noise_scale, law.noise_unit, law.round)
    unit = law.noise_unit**2
    packed = grams.shape[1]
    n_coef = law.coef.shape[1]
    has_effects = law.columns.shape[0] > 0
    last_row = place(n_coef + law.first, 0)
    given_effects = law.given_effects
    for lane in range(own_entities.shape[0]):
        e = own_entities[lane]
        position = positions[lane]
        row = rows[e]
        if has_effects:
            for p in range(moments.shape[0]):
                effects[row, p] += moments[p, lane]
        if coef.shape[0] > 0:
            for j in range(n_coef):
                coef[e, j] = space.cluster_coef[j, lane] + space.shift[j, lane]
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
