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
from fedhlcr.kernels.mixtures import FARTHEST, NEGLIGIBLE, mixture_quantile

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
    coef: FloatArray  # (components, n_coef)
    draw: IndexArray  # (components,)
    spread: FloatArray  # (draws, effects (effects + 1) / 2) V packed, off-diagonal entries doubled


@kernel
def empty_components(mixture):
    n_draws, n_clusters, n_coef = mixture.coef.shape
    size, n_effects = n_draws * n_clusters, mixture.columns.shape[0]
    return Components(
        np.empty(size),
        np.empty((size, n_coef)),
        np.empty(size, dtype=np.int64),
        np.zeros((n_draws, n_effects * (n_effects + 1) // 2)),
    )


@vector_kernel
def factor_draws(m, precision, roots, columns, first, h, b):
    """Factor B of one profile in several draws, one in each lane. m (packed, lanes) are the profile's matrices.

    h (width, effects, lanes) becomes M·Λ times the precision, and the lower triangle of b becomes L.
    """
    n_effects = columns.shape[0]
    for i in range(first, h.shape[0]):
        for r in range(n_effects):
            h[i, r, :] = 0.0
            for c in range(r, n_effects):
                p = place(i, columns[c])
                for lane in range(SIDE_BY_SIDE):
                    h[i, r, lane] += m[p, lane] * roots[c, r, lane]
            for lane in range(SIDE_BY_SIDE):
                h[i, r, lane] *= precision[lane]
    for r in range(n_effects):
        for s in range(r + 1):
            b[r, s, :] = 1.0 if r == s else 0.0
            for c in range(r, n_effects):
                for lane in range(SIDE_BY_SIDE):
                    b[r, s, lane] += roots[c, r, lane] * h[columns[c], s, lane]
    cholesky_lanes(b)


@vector_kernel
def posterior_spread(lane, b, roots, half, out):
    """Write V = ZᵀZ with Z = L⁻¹Λᵀ, packed with doubled off-diagonal entries, so that xᵀVx is one product."""
    n_effects = b.shape[0]
    for c in range(n_effects):
        for r in range(n_effects):
            value = roots[c, r, lane] if r <= c else 0.0
            for s in range(r):
                value -= b[r, s, lane] * half[s, c]
            half[r, c] = value * b[r, r, lane]
    p = 0
    for i in range(n_effects):
        for j in range(i + 1):
            value = 0.0
            for r in range(n_effects):
                value += half[r, i] * half[r, j]
            out[p] = value if i == j else 2.0 * value
            p += 1


@vector_kernel
def shrunken_coef(lane, h, b, roots, columns, first, work, coef):
    """Replace w + a in `coef` by the posterior mean of w + a + b. `work` (effects,) is scratch space."""
    n_effects, last = columns.shape[0], h.shape[0] - 1
    for r in range(n_effects):
        residual = h[last, r, lane]
        for j in range(coef.shape[0]):
            residual -= h[first + j, r, lane] * coef[j]
        for s in range(r):
            residual -= b[r, s, lane] * work[s]
        work[r] = residual * b[r, r, lane]
    for r in range(n_effects - 1, -1, -1):
        for s in range(r + 1, n_effects):
            work[r] -= b[s, r, lane] * work[s]
        work[r] *= b[r, r, lane]
    for c in range(n_effects):
        for r in range(c + 1):
            coef[columns[c] - first] += roots[c, r, lane] * work[r]


@vector_kernel
def fill_lanes(grams, first_draw, m):
    """Copy matrices of consecutive draws, (1 or draws, packed), to the lanes of m; the last one is repeated."""
    for lane in range(SIDE_BY_SIDE):
        draw = min(first_draw + lane, grams.shape[0] - 1)
        for p in range(grams.shape[1]):
            m[p, lane] = grams[draw, p]


@kernel
def fill_components(mixture, profile, components, least):
    """Compute the components of a profile with more than the least weight; return their number."""
    n_draws, n_clusters, n_coef = mixture.coef.shape
    columns, first = mixture.columns, mixture.first
    n_effects, width = columns.shape[0], n_coef + first + 1
    h = np.empty((width, n_effects, SIDE_BY_SIDE))
    b = np.empty((n_effects, n_effects, SIDE_BY_SIDE))
    half, work, precision = np.empty((n_effects, n_effects)), np.empty(n_effects), np.empty(SIDE_BY_SIDE)
    m = np.empty((mixture.grams.shape[2], SIDE_BY_SIDE))
    n = 0
    for group in range(mixture.roots.shape[1]):
        roots = mixture.roots[mixture.is_new_agent[profile], group]
        for lane in range(SIDE_BY_SIDE):
            precision[lane] = 1.0 / mixture.variance[profile, min(group * SIDE_BY_SIDE + lane, n_draws - 1)]
        if group == 0 or mixture.grams.shape[1] > 1:
            fill_lanes(mixture.grams[profile], group * SIDE_BY_SIDE, m)
        factor_draws(m, precision, roots, columns, first, h, b)
        for lane in range(min(SIDE_BY_SIDE, n_draws - group * SIDE_BY_SIDE)):
            draw = group * SIDE_BY_SIDE + lane
            posterior_spread(lane, b, roots, half, components.spread[draw])
            for k in range(n_clusters):
                weight = mixture.weights[profile, draw, k]
                if weight > least:
                    components.weight[n], components.draw[n] = weight, draw
                    for j in range(n_coef):
                        components.coef[n, j] = mixture.coef[draw, k, j] + mixture.agent_effects[profile, draw, j]
                    shrunken_coef(lane, h, b, roots, columns, first, work, components.coef[n])
                    n += 1
    return n


@vector_kernel
def row_components(mixture, profile, components, n, x, products, variance, means, scales):
    """Mean and standard deviation of each component at x. `products` and `variance` (draws,) are scratch space."""
    p = 0
    for i in range(mixture.columns.shape[0]):
        for j in range(i + 1):
            products[p] = x[mixture.columns[i] - mixture.first] * x[mixture.columns[j] - mixture.first]
            p += 1
    for draw in range(variance.shape[0]):
        total = mixture.noise[profile, draw]
        for q in range(p):
            total += components.spread[draw, q] * products[q]
        variance[draw] = total
    for c in range(n):
        mean = 0.0
        for j in range(x.shape[0]):
            mean += components.coef[c, j] * x[j]
        means[c], scales[c] = mean, math.sqrt(max(variance[components.draw[c]], 0.0))


@kernel
def own_mixture_rows(mixture, design, row_start, levels, normal_levels, mean_out, std_out, quantiles_out, first, last):
    """Mean, standard deviation and quantiles of the rows of profiles [first, last).

    Profile p has the rows [row_start[p], row_start[p + 1]) of `design`.
    """
    components = empty_components(mixture)
    size = components.weight.shape[0]
    means, scales = np.empty(size), np.empty(size)
    products, variance = np.empty(components.spread.shape[1]), np.empty(components.spread.shape[0])
    for profile in range(first, last):
        n = fill_components(mixture, profile, components, NEGLIGIBLE)
        weights = components.weight[:n]
        for r in range(row_start[profile], row_start[profile + 1]):
            row_components(mixture, profile, components, n, design[r], products, variance, means, scales)
            mean = second = 0.0
            for c in range(n):
                mean += weights[c] * means[c]
            for c in range(n):
                second += weights[c] * (scales[c] ** 2 + (means[c] - mean) ** 2)
            mean_out[r], std_out[r] = mean, math.sqrt(second)
            for q in range(levels.shape[0]):
                start = mean + normal_levels[q] * std_out[r]
                quantiles_out[r, q] = mixture_quantile(means[:n], weights, scales[:n], levels[q], start)


@kernel
def own_log_density_rows(mixture, design, row_start, target, out, first, last):
    """Log density of the rows of profiles [first, last) at their targets."""
    components = empty_components(mixture)
    size = components.weight.shape[0]
    means, scales, terms = np.empty(size), np.empty(size), np.empty(size)
    products, variance = np.empty(components.spread.shape[1]), np.empty(components.spread.shape[0])
    for profile in range(first, last):
        # far from all other components, one with a tiny weight may be the only one that matters
        n = fill_components(mixture, profile, components, 0.0)
        for r in range(row_start[profile], row_start[profile + 1]):
            row_components(mixture, profile, components, n, design[r], products, variance, means, scales)
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
    columns, first_regressor = mixture.columns, mixture.first
    n_effects = columns.shape[0]
    for profile in range(first, last):
        n = fill_components(mixture, profile, components, NEGLIGIBLE)
        mean, covariance = mean_out[profile], covariance_out[profile]
        mean[:] = 0.0
        covariance[:] = 0.0
        for c in range(n):
            mean += components.weight[c] * components.coef[c]
        for c in range(n):
            spread = components.spread[components.draw[c]]
            for i in range(mean.shape[0]):
                apart = components.weight[c] * (components.coef[c, i] - mean[i])
                for j in range(mean.shape[0]):
                    covariance[i, j] += apart * (components.coef[c, j] - mean[j])
            for i in range(n_effects):
                for j in range(n_effects):
                    value = spread[place(i, j)] * (1.0 if i == j else 0.5)
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
    size, n_draws = components.weight.shape[0], mixture.coef.shape[0]
    means, scales = np.empty(size), np.empty(size)
    products, variance = np.empty(components.spread.shape[1]), np.empty(n_draws)
    for profile in range(first, last):
        # a cluster with a tiny weight may have a large one without the row
        n = fill_components(mixture, profile, components, LEAST_WEIGHT)
        for r in range(row_start[profile], row_start[profile + 1]):
            row_components(mixture, profile, components, n, design[r], products, variance, means, scales)
            c = 0
            for draw in range(n_draws):
                noise = mixture.variance[profile, draw]
                left = max(1.0 - (variance[draw] - noise) / noise, LEAST_LEFT)
                top, total, weighted = -np.inf, 0.0, 0.0
                while c < n and components.draw[c] == draw:
                    residual = (target[r] - means[c]) / left
                    z = residual**2 * left / noise
                    term = math.log(components.weight[c] * n_draws) + 0.5 * (math.log(2.0 * math.pi * noise / left) + z)
                    if term > top:
                        total, weighted, top = total * math.exp(top - term), weighted * math.exp(top - term), term
                    total += math.exp(term - top)
                    weighted += math.exp(term - top) * (target[r] - residual)
                    c += 1
                density_out[r, draw] = -top - math.log(total)
                mean_out[r, draw] = weighted / total
