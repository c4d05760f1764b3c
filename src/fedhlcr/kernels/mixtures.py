"""Kernels for mixtures of normals: mean, standard deviation, quantiles and log density.

Components of a profile are pruned once, not for each of its rows. Distribution functions are summed in vector lanes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr.kernels.compiling import finite_kernel, kernel, vector_kernel
from fedhlcr.kernels.vectors import total_of


class Mixture(NamedTuple):
    """One mixture of normals for each profile, with the same components (draw, cluster) in all of them."""

    weights: FloatArray  # (profiles, components)
    coef: FloatArray  # (components, n_coef)
    scales: FloatArray  # (components,)


# Components with no more weight than this are skipped in moments and quantiles. Even one that lies 30,000 standard
# deviations away would change the standard deviation by less than 1e-9 of it. Densities skip nothing for its weight
# alone: far away, such a component may be all there is.
NEGLIGIBLE = 1e-18
# A term that is smaller than another by this much, in logs, does not change their sum: e^−45 is 3e−20.
NOTHING = 45.0
# Largest distance, in scales, between a target and a component: the square of a larger one could overflow.
FARTHEST = 1e150
# A quantile is searched for between the components' means, and up to this many scales beyond them.
REACH = 40.0
# The search ends with a step of at most this share of the smallest scale, ...
QUANTILE_STEP = 1e-10
# ... or with a step of Halley's method, whose error is of third order, that is so small: its cube may be at most this
# share of the smallest scale squared times the mixture's standard deviation. Up to ten scales away from a component,
# the error is at most 50 times that.
CUBED_STEP = 1e-12
# Most steps of the search: it halves a bracket where it makes no progress, so that it needs far fewer.
MOST_STEPS = 200
# Distances, in scales, beyond which a normal distribution function is as good as 0 or 1.
FAR = 37.0
# With more components than this, a quantile is searched for among the first ones, which are those of a few draws, and
# then among those that are near.
MANY = 256
FIRST = 1 / 16
# Up to a scale from where the search starts, components that begin farther away than this have a mass of 0 or 1: what
# is missing is 1e-17 of it.
NEAR = 9.5

# 1/n!
_C2 = 1 / 2
_C3 = 1 / 6
_C4 = 1 / 24
_C5 = 1 / 120
_C6 = 1 / 720
_C7 = 1 / 5040
_C8 = 1 / 40320
# Φ(−t) = exp(−t²/2) · P(t)/Q(t) for t ≥ 0, with these coefficients of P and Q, highest power first. Hart (1968), in the
# form of West (2005): correct to 15 digits up to 7, and to some digits of less than 1e-12 beyond.
_P0 = 3.52624965998911e-02
_P1 = 0.700383064443688
_P2 = 6.37396220353165
_P3 = 33.912866078383
_P4 = 112.079291497871
_P5 = 221.213596169931
_P6 = 220.206867912376
_Q0 = 8.83883476483184e-02
_Q1 = 1.75566716318264
_Q2 = 16.064177579207
_Q3 = 86.7807322029461
_Q4 = 296.564248779674
_Q5 = 637.333633378831
_Q6 = 793.826512519948
_Q7 = 440.413735824752
_INVERSE_ROOT_2PI = 0.3989422804014327


@finite_kernel
def normal_tail(t, e):
    """Φ(−t) for 0 ≤ t ≤ FAR, where e is exp(−t²/2)."""
    above = (((((_P0 * t + _P1) * t + _P2) * t + _P3) * t + _P4) * t + _P5) * t + _P6
    below = ((((((_Q0 * t + _Q1) * t + _Q2) * t + _Q3) * t + _Q4) * t + _Q5) * t + _Q6) * t + _Q7
    # not `/`: a check for zero would keep loops from being vectorised
    return np.divide(e * above, below)


@finite_kernel
def mass_and_density(x, means, weights, inverses):
    """Distribution function, density and slope of the density of a mixture at x; `inverses` are 1/scales.

    exp is the Taylor polynomial of exp(x/1024), squared ten times: loops over it are vectorised.
    """
    mass = density = slope = 0.0
    for c in range(means.shape[0]):
        z = (x - means[c]) * inverses[c]
        t = abs(z)
        t = FAR if t > FAR else t
        y = t * t * (-0.5 / 1024.0)
        e = (((((((_C8 * y + _C7) * y + _C6) * y + _C5) * y + _C4) * y + _C3) * y + _C2) * y + 1.0) * y + 1.0
        e = e * e
        e = e * e
        e = e * e
        e = e * e
        e = e * e
        e = e * e
        e = e * e
        e = e * e
        e = e * e
        e = e * e
        tail = normal_tail(t, e)
        height = weights[c] * inverses[c] * e
        mass += weights[c] * (tail if z < 0.0 else 1.0 - tail)
        density += height
        slope -= height * z * inverses[c]
    return mass, density * _INVERSE_ROOT_2PI, slope * _INVERSE_ROOT_2PI


@finite_kernel
def quantile_bracket(means, scales):
    """Ends of a range that holds all quantiles, and the smallest scale."""
    low = 1e300
    high = -1e300
    least = 1e300
    for c in range(means.shape[0]):
        low = min(low, means[c] - REACH * scales[c])
        high = max(high, means[c] + REACH * scales[c])
        least = min(least, scales[c])
    return low, high, least


@finite_kernel
def invert(scales, inverses):
    """1/scales."""
    for c in range(scales.shape[0]):
        inverses[c] = np.divide(1.0, scales[c])


@kernel
def mixture_quantiles(means, weights, scales, inverses, levels, normal_levels, centre, spread, out, row):
    """Write quantiles of a mixture with mean `centre` and standard deviation `spread` to a row of `out`."""
    low, high, least = quantile_bracket(means, scales)
    near = np.empty((3, means.shape[0] if means.shape[0] > MANY else 0))
    for q in range(levels.shape[0]):
        start = min(max(centre + normal_levels[q] * spread, low), high)
        if means.shape[0] > MANY:
            start = search_first(means, weights, inverses, levels[q], start, low, high, least, spread)
            found = search_near(means, weights, inverses, levels[q], start, least, spread, near)
            if abs(found - start) < 0.999 * least:
                out[row, q] = found
                continue
        out[row, q] = search_quantile(means, weights, inverses, levels[q], start, low, high, least, spread)


@kernel
def search_first(means, weights, inverses, level, start, low, high, least, spread):
    """The quantile of the first components alone: mostly less than a scale away from that of all."""
    n = int(FIRST * means.shape[0])
    share = total_of(weights[:n])
    if not share > 0.0:
        return start
    return search_quantile(means[:n], weights[:n], inverses[:n], level * share, start, low, high, least, spread)


@kernel
def search_near(means, weights, inverses, level, start, least, spread, near):
    """A quantile up to a scale from `start`, from the components near it; if it is not there, an end of that range.

    `near` (3, components) is scratch space.
    """
    n = 0
    below = 0.0
    for c in range(means.shape[0]):
        apart = start - means[c]
        if abs(apart) * inverses[c] <= NEAR:
            near[0, n] = means[c]
            near[1, n] = weights[c]
            near[2, n] = inverses[c]
            n += 1
        elif apart > 0.0:
            below += weights[c]
    own = near[0, :n], near[1, :n], near[2, :n]
    return search_quantile(*own, level - below, start, start - least, start + least, least, spread)


@kernel
def search_quantile(means, weights, inverses, level, start, low, high, least, spread):
    """One quantile: Halley's method, and bisection where it leaves the bracket or does not halve its steps."""
    x = start
    last_step = np.inf
    enough = CUBED_STEP * least * least * spread
    for _ in range(MOST_STEPS):
        mass, density, slope = mass_and_density(x, means, weights, inverses)
        if mass < level:
            low = x
        else:
            high = x
        proposal = np.inf
        bend = 1.0
        if density > 0.0:
            newton = (mass - level) / density
            bend = 0.5 * newton * slope / density
            proposal = x - newton / (1.0 - bend) if abs(bend) < 0.5 else x - newton
        is_good = low <= proposal <= high and abs(proposal - x) <= 0.5 * last_step
        if not is_good:
            proposal = 0.5 * (low + high)
        step = abs(proposal - x)
        x = proposal
        last_step = step
        if step <= QUANTILE_STEP * least + 4e-16 * abs(x) or (is_good and abs(bend) < 0.1 and step**3 <= enough):
            break
    return x


@vector_kernel
def row_centres(coef, design, row, means):
    """means[c] = Σ_f coef[f, c] x[f], with x a row of `design`; four features at a time, in lanes over components."""
    n_coef = coef.shape[0]
    n = means.shape[0]
    for c in range(n):
        means[c] = 0.0
    whole = n_coef - n_coef % 4
    for f in range(0, whole, 4):
        x0 = design[row, f]
        x1 = design[row, f + 1]
        x2 = design[row, f + 2]
        x3 = design[row, f + 3]
        for c in range(n):
            means[c] += coef[f, c] * x0 + coef[f + 1, c] * x1 + coef[f + 2, c] * x2 + coef[f + 3, c] * x3
    for f in range(whole, n_coef):
        x0 = design[row, f]
        for c in range(n):
            means[c] += coef[f, c] * x0


@vector_kernel
def moments(means, weights, scales):
    """Mean and standard deviation of a mixture."""
    mean = second = 0.0
    for c in range(means.shape[0]):
        mean += weights[c] * means[c]
    for c in range(means.shape[0]):
        apart = means[c] - mean
        second += weights[c] * (scales[c] * scales[c] + apart * apart)
    return mean, math.sqrt(second)


@kernel
def keep_components(all_weights, profile, kept, weights):
    """Find the components of a profile that matter, and their weights; return their number."""
    n = 0
    for c in range(all_weights.shape[1]):
        if all_weights[profile, c] > NEGLIGIBLE:
            kept[n] = c
            weights[n] = all_weights[profile, c]
            n += 1
    return n


@kernel
def copy_components(all_coef, all_scales, kept, n, coef, scales):
    """Copy coefficients, as (n_coef, components), and scales of the first n components in `kept`."""
    for f in range(coef.shape[0]):
        for i in range(n):
            coef[f, i] = all_coef[kept[i], f]
    for i in range(n):
        scales[i] = all_scales[kept[i]]


@kernel
def mixture_rows(mixture, design, row_start, levels, normal_levels, mean_out, std_out, quantiles_out, first, last):
    """Mean, standard deviation and quantiles of the rows of profiles [first, last).

    Profile p has the rows [row_start[p], row_start[p + 1]) of `design`.
    """
    # unpacked and sliced as seldom as possible: each access counts references, on a cache line that all threads share
    all_weights, all_coef, all_scales = mixture
    n_components, n_coef = all_coef.shape
    space = np.empty((4, n_components))
    kept = np.empty(n_components, dtype=np.int64)
    coef = np.empty((n_coef, n_components))
    mean_coef = np.empty(n_coef)
    for profile in range(first, last):
        n = keep_components(all_weights, profile, kept, space[0])
        average_coef(all_coef, kept, n, space[0], mean_coef)
        weights = space[0, :n]
        scales = space[1, :n]
        means = space[2, :n]
        inverses = space[3, :n]
        copy_components(all_coef, all_scales, kept, n, coef, scales)
        invert(scales, inverses)
        for r in range(row_start[profile], row_start[profile + 1]):
            row_centres(coef, design, r, means)
            mean, std = moments(means, weights, scales)
            mean_out[r] = mean_at(mean_coef, design, r)
            std_out[r] = std
            if levels.shape[0] > 0:
                mixture_quantiles(means, weights, scales, inverses, levels, normal_levels, mean, std, quantiles_out, r)


@kernel
def mean_rows(mixture, design, row_start, mean_out, first, last):
    """The means alone, of the rows of profiles [first, last), to the same digits."""
    all_weights, all_coef, _ = mixture
    n_components, n_coef = all_coef.shape
    weights = np.empty(n_components)
    kept = np.empty(n_components, dtype=np.int64)
    coef = np.empty(n_coef)
    for profile in range(first, last):
        average_coef(all_coef, kept, keep_components(all_weights, profile, kept, weights), weights, coef)
        for r in range(row_start[profile], row_start[profile + 1]):
            mean_out[r] = mean_at(coef, design, r)


@kernel
def average_coef(all_coef, kept, n, weights, out):
    """Write the mean of the coefficients of the first n components in `kept`."""
    for f in range(out.shape[0]):
        out[f] = 0.0
    for c in range(n):
        for f in range(out.shape[0]):
            out[f] += weights[c] * all_coef[kept[c], f]


@kernel
def mean_at(coef, design, row):
    """The mean of a row's target, from the mean of its coefficients."""
    mean = 0.0
    for f in range(coef.shape[0]):
        mean += coef[f] * design[row, f]
    return mean


@kernel
def log_density_rows(log_weights, coef, scales, design, row_start, target, out, first, last):
    """Log density of the rows of profiles [first, last) at their targets.

    `log_weights` (profiles, components) holds log(weight / scale) − ½ log 2π, the upper bound of a component's term. A
    component is skipped if this bound is negligible beside the largest term so far. A small weight alone is no reason:
    far from all other components, one with a tiny weight may be the only one that matters.
    """
    n_components, n_coef = coef.shape
    terms = np.empty(n_components)
    for profile in range(first, last):
        for r in range(row_start[profile], row_start[profile + 1]):
            best = -np.inf
            n_terms = 0
            for c in range(n_components):
                term = log_weights[profile, c]
                if term > best - NOTHING:
                    z = target[r]
                    for f in range(n_coef):
                        z -= coef[c, f] * design[r, f]
                    z = min(abs(z) / scales[c], FARTHEST)
                    term -= 0.5 * z * z
                    best = max(best, term)
                    terms[n_terms] = term
                    n_terms += 1
            total = 0.0
            for t in range(n_terms):
                # ≥, so that the best term counts even if best − NOTHING rounds to best
                if terms[t] >= best - NOTHING:
                    total += math.exp(terms[t] - best)
            out[r] = best + math.log(total)
