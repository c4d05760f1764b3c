"""Kernels that predict with effects: every profile (an entity, or a new one) has coefficients of its own in each draw.

For a profile, a draw and a cluster, the target at x is N(xᵀβ, σ² + xᵀVx), with

    β = w + a + Λ B⁻¹Λᵀ(g − G(w + a)),   V = Λ B⁻¹Λᵀ,   B = I + ΛᵀGΛ

and G, g of the profile's events, divided by σ². A new entity has no events, so that β = w + a and V = D. For a new
agent a = 0, and Λ is the root of D and the agents' covariance together.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.kernels.compiling import kernel, vector_kernel
from fedhlcr.kernels.effective import place
from fedhlcr.kernels.lanes import SIDE_BY_SIDE, cholesky_lanes
from fedhlcr.kernels.mixtures import FARTHEST, NEGLIGIBLE, invert, mean_at, mixture_quantiles, moments, row_centres

# Draws for which effects are computed at once.
DRAWS_AT_ONCE = 16
# Least 1 − leverage of a row: below are rounding errors.
LEAST_LEFT = 1e-6
# Least weight of a cluster where a row is left out: `kernels.labels.exponentiate` cuts weights off at e^−700, so
# smaller ones may be far too large, and dividing by the row's density would make them count.
LEAST_WEIGHT = 1e-295


class OwnMixture(NamedTuple):
    """The mixtures of profiles that have coefficients of their own."""

    weights: FloatArray  # (profiles, draws, clusters), summing to 1 over draws and clusters
    coef: FloatArray  # (draws, clusters, n_coef)
    grams: FloatArray  # (profiles, 1 or draws, packed); 0 for a new entity
    variance: FloatArray  # (profiles, draws) noise variances of the profile's events, by which `grams` are divided
    noise: FloatArray  # (profiles, draws) noise variances of the event to predict
    agent_effects: FloatArray  # (profiles, draws, n_coef); 0 for a new agent
    roots: FloatArray  # (2, lane groups, effects, effects, lanes) Λ of each draw, for known and for new agents
    is_new_agent: IndexArray  # (profiles,) 0 or 1
    columns: IndexArray  # (effects,) positions of the columns with effects in the augmented matrix
    first: int  # position of the first regressor


class Components(NamedTuple):
    """The mixture of one profile; `n` components of (draw, cluster) are in use."""

    weight: FloatArray  # (components,)
    coef: FloatArray  # (n_coef, components)
    draw: IndexArray  # (components,)
    spread: FloatArray  # (effects (effects + 1) / 2, draws and a few more) V packed, off-diagonal entries doubled


@kernel
def empty_components(mixture):
    n_draws, n_clusters, n_coef = mixture.coef.shape
    size = n_draws * n_clusters
    n_effects = mixture.columns.shape[0]
    return Components(
        np.empty(size),
        np.empty((n_coef, size)),
        np.empty(size, dtype=np.int64),
        np.zeros((n_effects * (n_effects + 1) // 2, mixture.roots.shape[1] * DRAWS_AT_ONCE)),
    )


@vector_kernel
def factor_draws(m, precision, roots, columns, first, h, b):
    """Factor B of one profile in several draws, one in each lane. m (packed, lanes) are the profile's matrices.

    h (width, effects, lanes) becomes M·Λ times the precision, and the lower triangle of b becomes L.
    """
    n_effects = columns.shape[0]
    for i in range(first, h.shape[0]):
        for r in range(n_effects):
            for lane in range(DRAWS_AT_ONCE):
                h[i, r, lane] = 0.0
            for c in range(r, n_effects):
                p = place(i, columns[c])
                for lane in range(DRAWS_AT_ONCE):
                    h[i, r, lane] += m[p, lane] * roots[c, r, lane]
            for lane in range(DRAWS_AT_ONCE):
                h[i, r, lane] *= precision[lane]
    for r in range(n_effects):
        for s in range(r + 1):
            for lane in range(DRAWS_AT_ONCE):
                b[r, s, lane] = 1.0 if r == s else 0.0
            for c in range(r, n_effects):
                for lane in range(DRAWS_AT_ONCE):
                    b[r, s, lane] += roots[c, r, lane] * h[columns[c], s, lane]
    cholesky_lanes(b.reshape(n_effects, n_effects, DRAWS_AT_ONCE // SIDE_BY_SIDE, SIDE_BY_SIDE))


@vector_kernel
def write_spread(first_draw, b, roots, half, out):
    """Write V = ZᵀZ with Z = L⁻¹Λᵀ of the draw in each lane to a column of `out`, from `first_draw` on.

    V is packed with doubled off-diagonal entries, so that xᵀVx is one product. `half` has the shape of `roots`.
    """
    n_effects = b.shape[0]
    for c in range(n_effects):
        for r in range(n_effects):
            for lane in range(DRAWS_AT_ONCE):
                half[r, c, lane] = roots[c, r, lane] if r <= c else 0.0
            for s in range(r):
                for lane in range(DRAWS_AT_ONCE):
                    half[r, c, lane] -= b[r, s, lane] * half[s, c, lane]
            for lane in range(DRAWS_AT_ONCE):
                half[r, c, lane] *= b[r, r, lane]
    p = 0
    for i in range(n_effects):
        for j in range(i + 1):
            factor = 1.0 if i == j else 2.0
            own = out[p, first_draw : first_draw + DRAWS_AT_ONCE]
            for lane in range(DRAWS_AT_ONCE):
                own[lane] = 0.0
            for r in range(n_effects):
                for lane in range(DRAWS_AT_ONCE):
                    own[lane] += factor * half[r, i, lane] * half[r, j, lane]
            p += 1


@vector_kernel
def shrink_lanes(h, b, roots, columns, first, work, coef):
    """Replace w + a of each lane in `coef` (n_coef, lanes) by the posterior mean of w + a + b.

    `work` (effects, lanes) is scratch space.
    """
    n_effects = columns.shape[0]
    last = h.shape[0] - 1
    for r in range(n_effects):
        for lane in range(DRAWS_AT_ONCE):
            work[r, lane] = h[last, r, lane]
        for j in range(coef.shape[0]):
            for lane in range(DRAWS_AT_ONCE):
                work[r, lane] -= h[first + j, r, lane] * coef[j, lane]
        for s in range(r):
            for lane in range(DRAWS_AT_ONCE):
                work[r, lane] -= b[r, s, lane] * work[s, lane]
        for lane in range(DRAWS_AT_ONCE):
            work[r, lane] *= b[r, r, lane]
    for r in range(n_effects - 1, -1, -1):
        for s in range(r + 1, n_effects):
            for lane in range(DRAWS_AT_ONCE):
                work[r, lane] -= b[s, r, lane] * work[s, lane]
        for lane in range(DRAWS_AT_ONCE):
            work[r, lane] *= b[r, r, lane]
    for c in range(n_effects):
        for r in range(c + 1):
            for lane in range(DRAWS_AT_ONCE):
                coef[columns[c] - first, lane] += roots[c, r, lane] * work[r, lane]


@vector_kernel
def fill_lanes(grams, first_draw, m):
    """Copy matrices of consecutive draws, (1 or draws, packed), to the lanes of m; the last one is repeated."""
    for lane in range(DRAWS_AT_ONCE):
        draw = min(first_draw + lane, grams.shape[0] - 1)
        for p in range(grams.shape[1]):
            m[p, lane] = grams[draw, p]


@kernel
def start_lanes(mixture, profile, first_draw, k, least, coef):
    """Write w + a of a cluster in several draws to the lanes of `coef`; return whether any has more than least weight.

    The last draw is repeated.
    """
    n_draws = mixture.coef.shape[0]
    is_used = False
    for lane in range(DRAWS_AT_ONCE):
        draw = min(first_draw + lane, n_draws - 1)
        is_used |= mixture.weights[profile, draw, k] > least
        for j in range(coef.shape[0]):
            coef[j, lane] = mixture.coef[draw, k, j] + mixture.agent_effects[profile, draw, j]
    return is_used


@kernel
def fill_components(mixture, profile, components, least):
    """Compute the components of a profile with more than the least weight, sorted by draw; return their number."""
    n_draws, n_clusters, n_coef = mixture.coef.shape
    columns = mixture.columns
    first = mixture.first
    n_effects = columns.shape[0]
    width = n_coef + first + 1
    h = np.empty((width, n_effects, DRAWS_AT_ONCE))
    b = np.empty((n_effects, n_effects, DRAWS_AT_ONCE))
    half = np.empty((n_effects, n_effects, DRAWS_AT_ONCE))
    precision = np.empty(DRAWS_AT_ONCE)
    coef = np.empty((n_clusters, n_coef, DRAWS_AT_ONCE))
    work = np.empty((n_effects, DRAWS_AT_ONCE))
    m = np.empty((mixture.grams.shape[2], DRAWS_AT_ONCE))
    n = 0
    for group in range(mixture.roots.shape[1]):
        roots = mixture.roots[mixture.is_new_agent[profile], group]
        first_draw = group * DRAWS_AT_ONCE
        for lane in range(DRAWS_AT_ONCE):
            precision[lane] = 1.0 / mixture.variance[profile, min(first_draw + lane, n_draws - 1)]
        if group == 0 or mixture.grams.shape[1] > 1:
            fill_lanes(mixture.grams[profile], first_draw, m)
        factor_draws(m, precision, roots, columns, first, h, b)
        write_spread(first_draw, b, roots, half, components.spread)
        for k in range(n_clusters):
            if start_lanes(mixture, profile, first_draw, k, least, coef[k]):
                shrink_lanes(h, b, roots, columns, first, work, coef[k])
        for lane in range(min(DRAWS_AT_ONCE, n_draws - first_draw)):
            for k in range(n_clusters):
                weight = mixture.weights[profile, first_draw + lane, k]
                if weight > least:
                    components.weight[n] = weight
                    components.draw[n] = first_draw + lane
                    for j in range(n_coef):
                        components.coef[j, n] = coef[k, j, lane]
                    n += 1
    return n


@vector_kernel
def row_components(mixture, profile, components, design, row, variance, means, scales):
    """Mean and standard deviation of each component at a row of `design`, as many as `means` has room for.

    `variance` (draws,) becomes the variance of each draw.
    """
    columns = mixture.columns
    first = mixture.first
    noise = mixture.noise
    spread = components.spread
    n_draws = variance.shape[0]
    for draw in range(n_draws):
        variance[draw] = noise[profile, draw]
    p = 0
    for i in range(columns.shape[0]):
        for j in range(i + 1):
            product = design[row, columns[i] - first] * design[row, columns[j] - first]
            for draw in range(n_draws):
                variance[draw] += product * spread[p, draw]
            p += 1
    for draw in range(n_draws):
        variance[draw] = max(variance[draw], 0.0)
    row_centres(components.coef, design, row, means)
    last = -1
    scale = 0.0
    for c in range(means.shape[0]):
        if components.draw[c] != last:
            last = components.draw[c]
            scale = math.sqrt(variance[last])
        scales[c] = scale


@kernel
def own_mixture_rows(mixture, design, row_start, levels, normal_levels, mean_out, std_out, quantiles_out, first, last):
    """Mean, standard deviation and quantiles of the rows of profiles [first, last).

    Profile p has the rows [row_start[p], row_start[p + 1]) of `design`.
    """
    components = empty_components(mixture)
    size = components.weight.shape[0]
    space = np.empty((3, size))
    variance = np.empty(mixture.coef.shape[0])
    coef = np.empty(components.coef.shape[0])
    for profile in range(first, last):
        n = fill_components(mixture, profile, components, NEGLIGIBLE)
        average_coef(components, n, coef)
        weights = components.weight[:n]
        means = space[0, :n]
        scales = space[1, :n]
        inverses = space[2, :n]
        for r in range(row_start[profile], row_start[profile + 1]):
            row_components(mixture, profile, components, design, r, variance, means, scales)
            mean, std = moments(means, weights, scales)
            mean_out[r] = mean_at(coef, design, r)
            std_out[r] = std
            if levels.shape[0] > 0:
                invert(scales, inverses)
                mixture_quantiles(means, weights, scales, inverses, levels, normal_levels, mean, std, quantiles_out, r)


@kernel
def own_mean_rows(mixture, design, row_start, mean_out, first, last):
    """The means alone, of the rows of profiles [first, last), to the same digits."""
    components = empty_components(mixture)
    coef = np.empty(components.coef.shape[0])
    for profile in range(first, last):
        average_coef(components, fill_components(mixture, profile, components, NEGLIGIBLE), coef)
        for r in range(row_start[profile], row_start[profile + 1]):
            mean_out[r] = mean_at(coef, design, r)


@kernel
def average_coef(components, n, out):
    """Write the mean of the coefficients of n components."""
    for f in range(out.shape[0]):
        out[f] = 0.0
    for c in range(n):
        for f in range(out.shape[0]):
            out[f] += components.weight[c] * components.coef[f, c]


@kernel
def own_log_density_rows(mixture, design, row_start, target, out, first, last):
    """Log density of the rows of profiles [first, last) at their targets."""
    components = empty_components(mixture)
    size = components.weight.shape[0]
    space = np.empty((3, size))
    variance = np.empty(mixture.coef.shape[0])
    for profile in range(first, last):
        # far from all other components, one with a tiny weight may be the only one that matters
        n = fill_components(mixture, profile, components, 0.0)
        means = space[0, :n]
        scales = space[1, :n]
        terms = space[2, :n]
        for r in range(row_start[profile], row_start[profile + 1]):
            row_components(mixture, profile, components, design, r, variance, means, scales)
            best = -np.inf
            for c in range(n):
                z = min(abs(target[r] - means[c]) / scales[c], FARTHEST)
                terms[c] = math.log(components.weight[c] / scales[c]) - 0.5 * z * z
                best = max(best, terms[c])
            total = 0.0
            for c in range(n):
                total += math.exp(terms[c] - best)
            out[r] = best + math.log(total) - 0.5 * math.log(2.0 * math.pi)


@kernel
def coef_moments(mixture, mean_out, covariance_out, first, last):
    """Mean and covariance of the coefficients of profiles [first, last), over draws and clusters."""
    components = empty_components(mixture)
    columns = mixture.columns
    first_regressor = mixture.first
    n_effects = columns.shape[0]
    for profile in range(first, last):
        n = fill_components(mixture, profile, components, NEGLIGIBLE)
        mean = mean_out[profile]
        covariance = covariance_out[profile]
        for i in range(mean.shape[0]):
            mean[i] = 0.0
            for j in range(mean.shape[0]):
                covariance[i, j] = 0.0
        for c in range(n):
            for i in range(mean.shape[0]):
                mean[i] += components.weight[c] * components.coef[i, c]
        for c in range(n):
            draw = components.draw[c]
            for i in range(mean.shape[0]):
                apart = components.weight[c] * (components.coef[i, c] - mean[i])
                for j in range(mean.shape[0]):
                    covariance[i, j] += apart * (components.coef[j, c] - mean[j])
            for i in range(n_effects):
                for j in range(n_effects):
                    value = components.spread[place(i, j), draw] * (1.0 if i == j else 0.5)
                    covariance[columns[i] - first_regressor, columns[j] - first_regressor] += (
                        components.weight[c] * value
                    )


@kernel
def own_left_out_rows(mixture, design, row_start, target, density_out, mean_out, first, last):
    """Log density and mean of each row's target in each draw, had the row been left out of its entity's events.

    With h = xᵀVx/σ² the leverage and m the fitted mean of a cluster, the target without the row is normal with residual
    (y − m)/(1 − h) and variance σ²/(1 − h). A cluster's weight without the row is ∝ weight / p(y | rest, cluster), and
    1/p(y | rest) is the sum of these.
    """
    components = empty_components(mixture)
    size = components.weight.shape[0]
    n_draws = mixture.coef.shape[0]
    space = np.empty((2, size))
    variance = np.empty(n_draws)
    for profile in range(first, last):
        # a cluster with a tiny weight may have a large one without the row
        n = fill_components(mixture, profile, components, LEAST_WEIGHT)
        means = space[0, :n]
        scales = space[1, :n]
        for r in range(row_start[profile], row_start[profile + 1]):
            row_components(mixture, profile, components, design, r, variance, means, scales)
            c = 0
            for draw in range(n_draws):
                noise = mixture.variance[profile, draw]
                left = max(1.0 - (variance[draw] - noise) / noise, LEAST_LEFT)
                top = -np.inf
                total = 0.0
                weighted = 0.0
                while c < n and components.draw[c] == draw:
                    residual = (target[r] - means[c]) / left
                    z = residual**2 * left / noise
                    term = math.log(components.weight[c] * n_draws) + 0.5 * (math.log(2.0 * math.pi * noise / left) + z)
                    if term > top:
                        total = total * math.exp(top - term)
                        weighted = weighted * math.exp(top - term)
                        top = term
                    total += math.exp(term - top)
                    weighted += math.exp(term - top) * (target[r] - residual)
                    c += 1
                density_out[r, draw] = -top - math.log(total)
                mean_out[r, draw] = weighted / total


@kernel
def gather_draws(kept, places, initial, out):
    """out[i, d] = kept[d, places[i]], (draws, n, size) → (places, draws, size); `initial` where a place is negative."""
    n_draws, _, size = kept.shape
    for d in range(n_draws):
        for i in range(places.shape[0]):
            for j in range(size):
                out[i, d, j] = kept[d, places[i], j] if places[i] >= 0 else initial


@kernel
def sort_rows(profile, n_profiles):
    """The rows in the order of their profiles, and where those of each profile start: (rows,), (profiles + 1,)."""
    start = np.zeros(n_profiles + 1, dtype=np.int64)
    for r in range(profile.shape[0]):
        start[profile[r] + 1] += 1
    for p in range(n_profiles):
        start[p + 1] += start[p]
    order = np.empty(profile.shape[0], dtype=np.int64)
    place = start.copy()
    for r in range(profile.shape[0]):
        order[place[profile[r]]] = r
        place[profile[r]] += 1
    return order, start
