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
from fedhlcr.kernels.compiling import kernel
from fedhlcr.kernels.mixtures import NEGLIGIBLE, mixture_quantile
from fedhlcr.kernels.profiles import OwnMixture, empty_components, fill_components, row_components

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


@kernel
def probability_rows(own, design, offset, row_start, levels, normal_levels, mean_out, quantiles_out, first, last):
    """Mean and quantiles of the probability that the target is 1, for the rows of profiles [first, last)."""
    components = empty_components(own)
    size = components.weight.shape[0]
    means, scales = np.empty(size), np.empty(size)
    products, variance = np.empty(components.spread.shape[1]), np.empty(components.spread.shape[0])
    for profile in range(first, last):
        n = fill_components(own, profile, components, NEGLIGIBLE)
        weights = components.weight[:n]
        for r in range(row_start[profile], row_start[profile + 1]):
            row_components(own, profile, components, n, design[r], products, variance, means, scales)
            probability = centre = square = 0.0
            for c in range(n):
                means[c] += offset[r]
                probability += weights[c] * mean_logistic(means[c], scales[c] ** 2)
                centre += weights[c] * means[c]
                square += weights[c] * (scales[c] ** 2 + means[c] ** 2)
            # rounding errors of the weights
            mean_out[r] = min(max(probability, LEAST_PROBABILITY), 1.0 - LEAST_PROBABILITY)
            spread = math.sqrt(max(square - centre**2, 0.0))
            for q in range(levels.shape[0]):
                start = centre + normal_levels[q] * spread
                quantiles_out[r, q] = logistic(mixture_quantile(means[:n], weights, scales[:n], levels[q], start))


@kernel
def count_rows(own, log_size, design, offset, row_start, extra, mean_out, std_out, first, last):
    """Mean and standard deviation of counts, for the rows of profiles [first, last).

    A count of mean μ has variance μ(1 + extra) + μ²/r.
    """
    components = empty_components(own)
    size = components.weight.shape[0]
    means, scales = np.empty(size), np.empty(size)
    products, variance = np.empty(components.spread.shape[1]), np.empty(components.spread.shape[0])
    for profile in range(first, last):
        n = fill_components(own, profile, components, NEGLIGIBLE)
        for r in range(row_start[profile], row_start[profile + 1]):
            row_components(own, profile, components, n, design[r], products, variance, means, scales)
            mean = second = 0.0
            for c in range(n):
                log_mean, v = means[c] + offset[r], scales[c] ** 2
                weight, own_size = components.weight[c], math.exp(-log_size[profile, components.draw[c]])
                expected = weight * math.exp(min(log_mean + 0.5 * v, _MOST))
                mean += expected
                second += expected * (1.0 + extra) + weight * (1.0 + own_size) * math.exp(
                    min(2.0 * log_mean + 2.0 * v, _MOST)
                )
            mean_out[r], std_out[r] = mean, math.sqrt(max(second - mean**2, 0.0))


@kernel
def point_rows(own, design, offset, row_start, normals, log_means_out, draws_out, first, last):
    """Write evenly weighted points of each row's mixture of log means, and the draws that they belong to.

    Point s of S has the component at (s + ½)/S of the weights, and lies `normals[s]` standard deviations from its mean.
    Both outputs are (rows, S).
    """
    components, n_points = empty_components(own), normals.shape[0]
    size = components.weight.shape[0]
    means, scales = np.empty(size), np.empty(size)
    products, variance = np.empty(components.spread.shape[1]), np.empty(components.spread.shape[0])
    for profile in range(first, last):
        n = fill_components(own, profile, components, NEGLIGIBLE)
        total = components.weight[:n].sum()
        for r in range(row_start[profile], row_start[profile + 1]):
            row_components(own, profile, components, n, design[r], products, variance, means, scales)
            c, reached = 0, components.weight[0]
            for s in range(n_points):
                while reached < total * (s + 0.5) / n_points and c < n - 1:
                    c += 1
                    reached += components.weight[c]
                log_means_out[r, s] = min(means[c] + offset[r] + scales[c] * normals[s], _MOST)
                draws_out[r, s] = components.draw[c]
