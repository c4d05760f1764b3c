"""Predictions of targets of any sort from their mixtures; here probabilities and counts, elsewhere normal ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.special import betainc, ndtri, normal_quantiles
from fedhlcr.kernels import count_laws, responses
from fedhlcr.kernels.count_laws import NOT_FOUND
from fedhlcr.kernels.responses import CountMixture, ProbabilityMixture
from fedhlcr.model.counts import POISSON_LIMIT
from fedhlcr.model.mixed import GOLDEN
from fedhlcr.posterior.predictive import (
    MixtureRows,
    Moments,
    interval_ends,
    mixture_log_density,
    mixture_mean,
    mixture_moments,
)

# Points of a mixture of log means over which counts are averaged.
N_POINTS = 100
# Counts are searched for up to about this number, which is far beyond any mean.
MOST = 1e200


def mean_of(part: MixtureRows) -> FloatArray:
    """(n,) mean of each row's target."""
    if isinstance(part.mixture, ProbabilityMixture | CountMixture):
        return moments_of(part, ()).mean
    return mixture_mean(part)


def moments_of(part: MixtureRows, levels: tuple[float, ...]) -> Moments:
    """Mean, standard deviation and quantiles of each row's target."""
    if isinstance(part.mixture, ProbabilityMixture):
        return probability_moments(part, levels)
    return (count_moments if isinstance(part.mixture, CountMixture) else mixture_moments)(part, levels)


def interval_of(part: MixtureRows, level: float) -> tuple[FloatArray, FloatArray]:
    """Ends of an interval that holds each row's target with probability `level`."""
    if isinstance(part.mixture, CountMixture):
        return count_interval(part, level)
    quantiles = moments_of(part, interval_ends(level)).quantiles
    return quantiles[:, 0], quantiles[:, 1]


def log_density_of(part: MixtureRows, target: FloatArray) -> FloatArray:
    """(n,) log density, or log probability, of each row's target. The mixture's weights may be overwritten."""
    if isinstance(part.mixture, ProbabilityMixture):
        return probability_log_density(part, target)
    of = count_log_density if isinstance(part.mixture, CountMixture) else mixture_log_density
    return of(part, target)


def probability_moments(part: MixtureRows, levels: tuple[float, ...]) -> Moments:
    """The mean probability of a 1, the standard deviation of such a target, and quantiles of its probability."""
    assert isinstance(part.mixture, ProbabilityMixture)
    own = part.mixture.own
    wanted = np.array(levels, dtype=np.float64)
    out = Moments.empty(len(part.rows), len(levels))
    row_start = part.row_start
    arrays = own, part.design, part.offset, row_start, wanted, normal_quantiles(levels)
    responses.probability_rows(*arrays, out.mean, out.quantiles, 0, len(own.weights))
    out.std[:] = np.sqrt(out.mean * (1.0 - out.mean))
    return out


def probability_log_density(part: MixtureRows, target: FloatArray) -> FloatArray:
    """(n,) log probability of each row's target, which is 0 or 1."""
    mean = probability_moments(part, ()).mean
    return np.asarray(np.log(np.where(target == 1.0, mean, 1.0 - mean)))


def count_moments(part: MixtureRows, levels: tuple[float, ...]) -> Moments:
    """Mean and standard deviation of counts, and their quantiles: whole numbers."""
    assert isinstance(part.mixture, CountMixture)
    own, log_size = part.mixture
    out = Moments.empty(len(part.rows), len(levels))
    row_start = part.row_start
    arrays = own, log_size, part.design, part.offset, row_start, 1.0 / POISSON_LIMIT
    responses.count_rows(*arrays, out.mean, out.std, 0, len(own.weights))
    if levels:
        laws = _points(part)
        count_laws.count_quantiles(laws.means, laws.sizes, np.array(levels), out.quantiles)
        large = laws.take(np.flatnonzero(out.quantiles[:, 0] == NOT_FOUND))
        for q, level in enumerate(levels):
            out.quantiles[large.rows, q] = _smallest(large, np.full(len(large.rows), level))
    return out


def count_interval(part: MixtureRows, level: float) -> tuple[FloatArray, FloatArray]:
    """Whole numbers between which the count lies with a probability as near to `level` as they allow.

    The lower end is that of the central interval. Where zeros are so common that nothing lies below it, the upper end
    makes up for that.
    """
    laws = _points(part)
    lower = np.empty(len(laws.rows))
    upper = np.empty(len(laws.rows))
    count_laws.count_intervals(laws.means, laws.sizes, level, interval_ends(level)[0], lower, upper)
    large = laws.take(np.flatnonzero(lower == NOT_FOUND))
    if len(large.rows):
        lower[large.rows], upper[large.rows] = _large_interval(large, level)
    return lower, upper


def _large_interval(laws: CountLaws, level: float) -> tuple[FloatArray, FloatArray]:
    """The same for counts that are too large to sum over."""
    lower = _smallest(laws, np.full(len(laws.rows), interval_ends(level)[0]))
    wanted = level + np.where(lower > 0.0, laws.at_most(np.maximum(lower - 1.0, 0.0)), 0.0)
    found = _smallest(laws, wanted)
    before = np.maximum(found - 1.0, lower)
    nearer = np.abs(laws.at_most(before) - wanted) < np.abs(laws.at_most(found) - wanted)
    return lower, np.where(nearer, before, found)


def count_log_density(part: MixtureRows, target: FloatArray) -> FloatArray:
    """(n,) log probability of each row's count."""
    laws = _points(part)
    out = np.empty(len(target))
    count_laws.count_log_densities(laws.log_means, laws.means, laws.sizes, target, out)
    return out


class CountLaws(NamedTuple):
    """Evenly weighted negative binomial laws that stand for the mixtures of some rows; arrays are (rows, N_POINTS)."""

    rows: IndexArray  # (rows,) their positions
    log_means: FloatArray
    means: FloatArray
    sizes: FloatArray

    @classmethod
    def of(cls, log_means: FloatArray, log_sizes: FloatArray) -> CountLaws:
        laws = cls(np.arange(len(log_means)), log_means, np.empty_like(log_means), np.empty_like(log_means))
        count_laws.write_laws(log_means, log_sizes, POISSON_LIMIT, laws.means, laws.sizes)
        return laws

    def take(self, rows: IndexArray) -> CountLaws:
        return CountLaws(self.rows[rows], self.log_means[rows], self.means[rows], self.sizes[rows])

    def at_most(self, numbers: FloatArray) -> FloatArray:
        """(rows,) the probability of a count up to the number of each row."""
        stays = self.sizes / (self.sizes + self.means)
        return np.asarray(betainc(self.sizes, numbers[:, None] + 1.0, stays).mean(axis=1))


def _points(part: MixtureRows) -> CountLaws:
    assert isinstance(part.mixture, CountMixture)
    own, log_size = part.mixture
    shape = len(part.rows), N_POINTS
    log_means = np.empty(shape)
    log_sizes = np.empty(shape)
    normals = ndtri((np.arange(1, N_POINTS + 1) * GOLDEN) % 1.0)
    arrays = own, log_size, part.design, part.offset, part.row_start, normals
    responses.point_rows(*arrays, log_means, log_sizes, 0, len(own.weights))
    return CountLaws.of(log_means, log_sizes)


def _smallest(laws: CountLaws, wanted: FloatArray) -> FloatArray:
    """The smallest number in each row up to which the count lies with at least the wanted probability."""
    low = np.full(len(wanted), -1.0)
    high = np.ceil(2.0 * laws.means.mean(axis=1) + 10.0)
    while (short := (laws.at_most(high) < wanted) & (high < MOST)).any():
        low = np.where(short, high, low)
        high = np.where(short, 2.0 * high, high)
    middle = np.floor(0.5 * (low + high))
    # beyond 2^53 there may be no number between two that differ by more than 1
    while ((low < middle) & (middle < high)).any():
        enough = laws.at_most(np.maximum(middle, 0.0)) >= wanted
        low = np.where(enough | (middle < 0.0), low, middle)
        high = np.where(enough & (middle >= 0.0), middle, high)
        middle = np.floor(0.5 * (low + high))
    return high
