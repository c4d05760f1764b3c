"""Kernels for the laws of counts: each row has evenly weighted points, negative binomial laws of a mean μ and a size r.

    P(y) = Γ(y + r) / (Γ(r) y!) · μ^y r^r / (μ + r)^(y + r)

Means are often so small that summing P(0), P(1), … for all points at once is the fastest way to their quantiles. Rows
whose counts are too large for that are left to `posterior.responses`.
"""

from __future__ import annotations

import math

import numpy as np

from fedhlcr.kernels.compiling import finite_kernel, kernel, vector_kernel
from fedhlcr.kernels.vectors import total_of

# Most counts that are summed over: this takes a third of the time of a search.
MOST_COUNTS = 1 << 14
# Least log probability of a zero for which it is a number of full precision.
LEAST_LOG = -650.0
# What a row's result is if it was not found.
NOT_FOUND = -1.0
# Stirling's series is used from this size on.
LARGE = 8.0


@kernel
def write_laws(log_means, log_sizes, poisson_limit, means, sizes):
    """Means and sizes of points; a size is bounded as in `model.counts.bounded_size`. All are (rows, points)."""
    for r in range(log_means.shape[0]):
        for s in range(log_means.shape[1]):
            mean = math.exp(log_means[r, s])
            means[r, s] = mean
            sizes[r, s] = 1.0 / (math.exp(-log_sizes[r, s]) + 1.0 / (poisson_limit * max(mean, 1e-12)))


@kernel
def zero_probabilities(means, sizes, ratios, probabilities):
    """P(0) of each point over their number, and μ/(μ + r); return whether all P(0) are large enough to start with."""
    n_points = means.shape[0]
    least = 0.0
    for s in range(n_points):
        log_zero = -sizes[s] * math.log1p(means[s] / sizes[s])
        least = min(least, log_zero)
        ratios[s] = means[s] / (means[s] + sizes[s])
        probabilities[s] = math.exp(log_zero) / n_points
    return least > LEAST_LOG


@vector_kernel
def take_count(count, sizes, ratios, probabilities):
    """P(count) of all points together; the probabilities become those of the next count."""
    total = 0.0
    step = 1.0 / (count + 1.0)
    for s in range(sizes.shape[0]):
        total += probabilities[s]
        probabilities[s] *= (count + sizes[s]) * ratios[s] * step
    return total


@kernel
def cumulate(means, sizes, wanted, ratios, probabilities, at_most):
    """Write P(count ≤ 0), P(count ≤ 1), … to `at_most` until the wanted one; return their number, or 0 if it is far.

    `ratios` and `probabilities` (points,) are scratch space.
    """
    mean = total_of(means) / means.shape[0]
    if mean > 0.5 * at_most.shape[0] or not zero_probabilities(means, sizes, ratios, probabilities):
        return 0
    total = 0.0
    for count in range(at_most.shape[0]):
        total += take_count(count, sizes, ratios, probabilities)
        at_most[count] = total
        if total >= wanted:
            return count + 1
    return 0


@kernel
def first_reaching(at_most, n, level):
    """The first of n ascending values that is at least `level`; n if none is."""
    low = 0
    high = n
    while low < high:
        middle = (low + high) >> 1
        if at_most[middle] < level:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def count_quantiles(means, sizes, levels, out):
    """The smallest counts (rows, levels) up to which the levels are reached; NOT_FOUND in rows with too large ones."""
    n_points = means.shape[1]
    at_most = np.empty(MOST_COUNTS)
    ratios = np.empty(n_points)
    probabilities = np.empty(n_points)
    highest = 0.0
    for q in range(levels.shape[0]):
        highest = max(highest, levels[q])
    for r in range(means.shape[0]):
        n = cumulate(means[r], sizes[r], highest, ratios, probabilities, at_most)
        for q in range(levels.shape[0]):
            out[r, q] = first_reaching(at_most, n, levels[q]) if n > 0 else NOT_FOUND


@kernel
def count_intervals(means, sizes, level, lower_level, lower, upper):
    """Ends of intervals as `posterior.responses.count_interval` defines them; NOT_FOUND in rows with too large ones."""
    n_points = means.shape[1]
    at_most = np.empty(MOST_COUNTS)
    ratios = np.empty(n_points)
    probabilities = np.empty(n_points)
    for r in range(means.shape[0]):
        # less than `lower_level` is missing below the lower end
        n = cumulate(means[r], sizes[r], level + lower_level, ratios, probabilities, at_most)
        lower[r] = upper[r] = NOT_FOUND
        if n > 0:
            first = first_reaching(at_most, n, lower_level)
            wanted = level + (at_most[first - 1] if first > 0 else 0.0)
            found = min(first_reaching(at_most, n, wanted), n - 1)
            before = max(found - 1, first)
            is_nearer = abs(at_most[before] - wanted) < abs(at_most[found] - wanted)
            lower[r] = first
            upper[r] = before if is_nearer else found


@finite_kernel
def stirling(x):
    """log Γ(x) − (x − ½) log x + x − ½ log 2π for x ≥ LARGE, to 13 digits."""
    y = 1.0 / (x * x)
    return ((((y / 1188.0 - 1.0 / 1680.0) * y + 1.0 / 1260.0) * y - 1.0 / 360.0) * y + 1.0 / 12.0) / x


@kernel
def log_rising(size, y):
    """log Γ(r + y)/Γ(r) − y log r, without differences of large numbers."""
    shifted = size
    product = 1.0
    steps = 0.0
    if size < LARGE:
        shifted = size + LARGE
        steps = math.log1p(LARGE / size)
        for j in range(int(LARGE)):
            product *= 1.0 + y / (size + j)
    whole = (shifted + y - 0.5) * math.log1p(y / shifted) - y + stirling(shifted + y) - stirling(shifted)
    return whole + y * steps - math.log(product)


@kernel
def count_log_densities(log_means, means, sizes, target, out):
    """Log probability of each row's target, averaged over its points."""
    n_points = means.shape[1]
    terms = np.empty(n_points)
    for r in range(means.shape[0]):
        y = target[r]
        best = -np.inf
        for s in range(n_points):
            size = sizes[r, s]
            mean = means[r, s]
            spread = (y + size) * math.log1p(mean / size)
            terms[s] = y * log_means[r, s] + log_rising(size, y) - spread
            best = max(best, terms[s])
        total = 0.0
        for s in range(n_points):
            total += math.exp(terms[s] - best)
        out[r] = best + math.log(total / n_points) - math.lgamma(y + 1.0)
