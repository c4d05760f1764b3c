"""Kernels that predict targets whose log odds, or log means, are mixtures of normals: probabilities and counts.

The mean of 1/(1 + e^−η) over η ~ N(m, v) has no closed form, but the logistic function is nearly a mixture of normal
distribution functions, Σ p_i Φ(s_i η), and Φ has: Φ(s m / √(1 + s²v)). The error is below LOGISTIC_ERROR for every m
and v.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr.kernels.compiling import finite_kernel, kernel
from fedhlcr.kernels.mixtures import FAR, NEGLIGIBLE, moments, normal_tail
from fedhlcr.kernels.profiles import OwnMixture, empty_components, fill_components, row_components
from fedhlcr.kernels.scores import small_exponential
from fedhlcr.kernels.steps import fix_weights, step_quantiles
from fedhlcr.kernels.vectors import clear, total_of

# p_i and s_i, by least squares over η.
_SHARES = (0.02333414, 0.20785437, 0.42996044, 0.29464026, 0.04421079)
_SLOPES = (0.29152778, 0.41101813, 0.57638958, 0.80417246, 1.1230195)
LOGISTIC_ERROR = 1e-6
# Below this variance two terms of a Taylor series are as good.
_SMALL_VARIANCE = 1e-3
# Below this probability, the error is relative instead: mostly a few per cent.
_SMALL_PROBABILITY = 1e-5
# Predicted probabilities are never exactly 0 or 1: their logarithms are finite.
LEAST_PROBABILITY = 1e-15
# Exponents are at most this, so that squares of means stay finite.
_MOST = 300.0


class ProbabilityMixture(NamedTuple):
    """Mixtures of log odds; the target is 0 or 1."""

    own: OwnMixture

    @property
    def weights(self) -> FloatArray:
        return self.own.weights


class CountMixture(NamedTuple):
    """Mixtures of log means; the target is a count with a negative binomial law."""

    own: OwnMixture
    log_size: FloatArray  # (profiles, draws) log r

    @property
    def weights(self) -> FloatArray:
        return self.own.weights


@kernel
def logistic(x):
    """1/(1 + e^−x), without overflow."""
    small = math.exp(-abs(x))
    return 1.0 / (1.0 + small) if x >= 0.0 else small / (1.0 + small)


@kernel
def mean_logistic(mean, variance):
    """Mean of 1/(1 + e^−η) over η ~ N(mean, variance); at least LEAST_PROBABILITY, and so is the rest."""
    if mean > 0.0:
        return 1.0 - mean_logistic_below(-mean, variance)
    return mean_logistic_below(mean, variance)


@kernel
def mean_logistic_below(mean, variance):
    """The same for a mean that is not positive, so that small probabilities keep their digits."""
    if variance < _SMALL_VARIANCE:
        p = logistic(mean)
        return max(p + 0.5 * variance * p * (1.0 - p) * (1.0 - 2.0 * p), LEAST_PROBABILITY)
    total = 0.0
    for share, slope in zip(_SHARES, _SLOPES):  # noqa: B905  (numba has no strict)
        total += share * normal_below(slope * mean / math.sqrt(1.0 + slope * slope * variance))
    if total < _SMALL_PROBABILITY:
        # normal tails fall too fast: the mean of e^η where η is negative, and of 1 elsewhere
        scale = math.sqrt(variance)
        tail = math.exp(mean + 0.5 * variance) * normal_below(-(mean + variance) / scale) + normal_below(mean / scale)
        total = max(total, min(tail, _SMALL_PROBABILITY))
    return max(total, LEAST_PROBABILITY)


@kernel
def normal_below(x):
    """Φ(x)."""
    return 0.5 * math.erfc(-x * 0.7071067811865476)


@finite_kernel
def write_factors(variance, factors):
    """factors[i, d] = s_i / √(1 + s_i²v) for the variance v of each draw."""
    for i, slope in enumerate(_SLOPES):
        for d in range(variance.shape[0]):
            factors[i, d] = np.divide(slope, math.sqrt(1.0 + slope * slope * variance[d]))


@finite_kernel
def add_normal_parts(means, draw, factors, share, totals):
    """Add p_i Φ(−f|m|) to the totals, with the factor f of each component's draw; in vector lanes."""
    for c in range(means.shape[0]):
        t = abs(means[c]) * factors[draw[c]]
        t = FAR if t > FAR else t
        totals[c] += share * normal_tail(t, small_exponential(-0.5 * t * t))


@finite_kernel
def write_small_variances(means, variance, draw, totals):
    """The mean of 1/(1 + e^|η|) where variances are small, as in `mean_logistic_below`; in vector lanes."""
    for c in range(means.shape[0]):
        e = small_exponential(-abs(means[c]))
        p = np.divide(e, 1.0 + e)
        totals[c] = p + 0.5 * variance[draw[c]] * p * (1.0 - p) * (1.0 - 2.0 * p)


@kernel
def mean_probability(means, weights, variance, draw, factors, totals):
    """Mean of 1/(1 + e^−η) over a mixture, whose components have the variances of their draws.

    `factors` (5, draws) and `totals` (components,) are scratch space.
    """
    is_small = True
    for d in range(variance.shape[0]):
        is_small &= variance[d] < _SMALL_VARIANCE
    if is_small:
        write_small_variances(means, variance, draw, totals)
    else:
        write_factors(variance, factors)
        clear(totals)
        for i, share in enumerate(_SHARES):
            add_normal_parts(means, draw, factors[i], share, totals)
    probability = 0.0
    for c in range(means.shape[0]):
        below = totals[c]
        if not is_small and (below < _SMALL_PROBABILITY or variance[draw[c]] < _SMALL_VARIANCE):
            below = mean_logistic_below(-abs(means[c]), variance[draw[c]])
        below = max(below, LEAST_PROBABILITY)
        probability += weights[c] * (1.0 - below if means[c] > 0.0 else below)
    # rounding errors of the weights
    return min(max(probability, LEAST_PROBABILITY), 1.0 - LEAST_PROBABILITY)


@kernel
def probability_rows(own, design, offset, row_start, levels, normal_levels, mean_out, quantiles_out, first, last):
    """Mean and quantiles of the probability that the target is 1, for the rows of profiles [first, last)."""
    components = empty_components(own)
    n_draws = own.coef.shape[0]
    size = components.weight.shape[0]
    space = np.empty((3, size))
    near = np.empty((3, size))
    starts = np.empty(levels.shape[0])
    fixed = np.empty(size, dtype=np.int64)
    near_fixed = np.empty(size, dtype=np.int64)
    variance = np.empty(n_draws)
    factors = np.empty((5, n_draws))
    for profile in range(first, last):
        n = fill_components(own, profile, components, NEGLIGIBLE)
        weights = components.weight[:n]
        draw = components.draw[:n]
        own_fixed = fixed[:n]
        means = space[0, :n]
        scales = space[1, :n]
        totals = space[2, :n]
        fix_weights(weights, own_fixed)
        for r in range(row_start[profile], row_start[profile + 1]):
            row_components(own, profile, components, design, r, variance, means, scales)
            for c in range(n):
                means[c] += offset[r]
            mean_out[r] = mean_probability(means, weights, variance, draw, factors, totals)
            if levels.shape[0] > 0:
                centre, spread = moments(means, weights, scales)
                for q in range(levels.shape[0]):
                    starts[q] = centre + normal_levels[q] * spread
                arrays = means, scales, weights, own_fixed
                step_quantiles(*arrays, levels, starts, spread, near, near_fixed, quantiles_out, r)
                for q in range(levels.shape[0]):
                    quantiles_out[r, q] = logistic(quantiles_out[r, q])


@kernel
def count_rows(own, log_size, design, offset, row_start, extra, mean_out, std_out, first, last):
    """Mean and standard deviation of counts, for the rows of profiles [first, last).

    A count of mean μ has variance μ(1 + extra) + μ²/r.
    """
    components = empty_components(own)
    n_draws = own.coef.shape[0]
    space = np.empty((3, components.weight.shape[0]))
    variance = np.empty(n_draws)
    factors = np.empty((2, n_draws))
    for profile in range(first, last):
        n = fill_components(own, profile, components, NEGLIGIBLE)
        means = space[0, :n]
        scales = space[1, :n]
        powers = space[2, :n]
        weights = components.weight[:n]
        draw = components.draw[:n]
        for d in range(n_draws):
            factors[0, d] = 1.0 + math.exp(-log_size[profile, d])
        for r in range(row_start[profile], row_start[profile + 1]):
            row_components(own, profile, components, design, r, variance, means, scales)
            for d in range(n_draws):
                factors[1, d] = factors[0, d] * math.exp(min(variance[d], _MOST))
            mean, second = count_moments(means, offset[r], weights, variance, draw, factors, powers)
            second += mean * (1.0 + extra)
            mean_out[r] = mean
            std_out[r] = math.sqrt(max(second - mean**2, 0.0))


@kernel
def count_moments(means, offset, weights, variance, draw, factors, powers):
    """Σ p e^(m + v/2) and Σ p (1 + 1/r) e^(2m + 2v) over components, with their log means m and variances v.

    `factors` (2, draws) are 1 + 1/r and the same times e^v; `powers` (components,) is scratch space.
    """
    top = most = -np.inf
    for c in range(means.shape[0]):
        log_mean = means[c] + offset
        v = variance[draw[c]]
        powers[c] = log_mean + 0.5 * v
        top = max(top, powers[c])
        most = max(most, 2.0 * log_mean + 2.0 * v)
    mean = second = 0.0
    if most < _MOST and top < _MOST:
        first, third = scaled_sums(powers, weights, draw, factors[1], top)
        unit = math.exp(top)
        return first * unit, third * unit * unit
    for c in range(means.shape[0]):
        mean += weights[c] * math.exp(min(powers[c], _MOST))
        power = min(2.0 * (means[c] + offset) + 2.0 * variance[draw[c]], _MOST)
        second += weights[c] * factors[0, draw[c]] * math.exp(power)
    return mean, second


@finite_kernel
def scaled_sums(powers, weights, draw, factors, top):
    """Σ p e^(x − top) and Σ p f e^(2(x − top)), with a factor f for each draw; in vector lanes."""
    first = second = 0.0
    for c in range(powers.shape[0]):
        e = small_exponential(powers[c] - top)
        first += weights[c] * e
        second += weights[c] * factors[draw[c]] * e * e
    return first, second


@kernel
def point_rows(own, log_size, design, offset, row_start, normals, log_means_out, log_sizes_out, first, last):
    """Write evenly weighted points of each row's mixture of log means, and log r of the draws that they belong to.

    Point s of S has the component at (s + ½)/S of the weights, and lies `normals[s]` standard deviations from its mean.
    Both outputs are (rows, S).
    """
    components = empty_components(own)
    n_points = normals.shape[0]
    space = np.empty((2, components.weight.shape[0]))
    chosen = np.empty(n_points, dtype=np.int64)
    variance = np.empty(own.coef.shape[0])
    for profile in range(first, last):
        n = fill_components(own, profile, components, NEGLIGIBLE)
        means = space[0, :n]
        scales = space[1, :n]
        choose_points(components.weight[:n], chosen)
        for r in range(row_start[profile], row_start[profile + 1]):
            row_components(own, profile, components, design, r, variance, means, scales)
            for s in range(n_points):
                c = chosen[s]
                log_means_out[r, s] = min(means[c] + offset[r] + scales[c] * normals[s], _MOST)
                log_sizes_out[r, s] = log_size[profile, components.draw[c]]


@kernel
def choose_points(weights, chosen):
    """The component of each point: that at (s + ½)/S of the weights."""
    total = total_of(weights)
    n_points = chosen.shape[0]
    c = 0
    reached = weights[0]
    for s in range(n_points):
        while reached < total * (s + 0.5) / n_points and c < weights.shape[0] - 1:
            c += 1
            reached += weights[c]
        chosen[s] = c
