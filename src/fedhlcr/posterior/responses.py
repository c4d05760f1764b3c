"""Moments, quantiles and densities of mixtures, one for each row of a table, in the units of the run.

Mixtures of normals are in standardised units; probabilities and counts are what they are.

`posterior.prediction` evaluates blocks of rows on threads; here everything runs on one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.special import betainc, ndtri, normal_quantiles
from fedhlcr._support.threads import Blocks, run_blocks
from fedhlcr.kernels import count_laws, mixtures, profiles, responses
from fedhlcr.kernels.count_laws import NOT_FOUND
from fedhlcr.kernels.mixtures import Mixture
from fedhlcr.kernels.profiles import OwnMixture
from fedhlcr.kernels.responses import CountMixture, ProbabilityMixture
from fedhlcr.model.counts import POISSON_LIMIT
from fedhlcr.model.mixed import GOLDEN
from fedhlcr.model.regression import LOG_2PI

# Variance that is left to a coefficient, in standardised units, so that quantiles of single numbers can be found.
LEAST_VARIANCE = 1e-10

AnyMixture = Mixture | OwnMixture | ProbabilityMixture | CountMixture
# Points of a mixture of log means over which counts are averaged.
N_POINTS = 100
# Counts are searched for up to about this number, which is far beyond any mean.
MOST = 1e200


def interval_ends(level: float) -> tuple[float, float]:
    """Probabilities of the quantiles that bound a central interval."""
    return 0.5 - level / 2, 0.5 + level / 2


class Moments(NamedTuple):
    """Predictive mean and standard deviation of each row, and quantiles (rows, levels)."""

    mean: FloatArray
    std: FloatArray
    quantiles: FloatArray

    @classmethod
    def empty(cls, n_rows: int, n_levels: int) -> Moments:
        return cls(np.empty(n_rows), np.empty(n_rows), np.empty((n_rows, n_levels)))


class MixtureRows(NamedTuple):
    """Some rows of a table, sorted by profile, and the mixtures that predict them.

    Attributes
    ----------
    rows : (n,) their positions in the table
    design : (n, n_coef) their features, with the constant if there is an intercept
    profile : (n,) the position of each row's mixture in `mixture`, ascending
    offset : (n,) what is added to the linear part of each row
    """

    rows: NDArray[np.int64]
    design: FloatArray
    profile: NDArray[np.int64]
    mixture: AnyMixture
    offset: FloatArray

    @property
    def row_start(self) -> NDArray[np.int64]:
        """(profiles + 1,) rows [row_start[p], row_start[p + 1]) have profile p."""
        return np.searchsorted(self.profile, np.arange(len(self.mixture.weights) + 1))


def mixture_mean(part: MixtureRows) -> FloatArray:
    """(n,) mean of each row's mixture of normals."""
    out = np.empty(len(part.rows))
    last = len(part.mixture.weights)
    rows = profiles.own_mean_rows if isinstance(part.mixture, OwnMixture) else mixtures.mean_rows
    rows(part.mixture, part.design, part.row_start, out, 0, last)
    return out


def mixture_moments(part: MixtureRows, levels: tuple[float, ...]) -> Moments:
    """Mean, standard deviation and quantiles of each row's mixture of normals."""
    wanted = np.array(levels, dtype=np.float64)
    out = Moments.empty(len(part.rows), len(levels))
    last = len(part.mixture.weights)
    rows = profiles.own_mixture_rows if isinstance(part.mixture, OwnMixture) else mixtures.mixture_rows
    rows(part.mixture, part.design, part.row_start, wanted, normal_quantiles(levels), *out, 0, last)
    return out


def mixture_log_density(part: MixtureRows, target: FloatArray) -> FloatArray:
    """(n,) log density of each row's mixture at its target. The mixture's weights may be overwritten."""
    out = np.empty(len(part.rows))
    row_start = part.row_start
    last = len(part.mixture.weights)
    if isinstance(part.mixture, OwnMixture):
        profiles.own_log_density_rows(part.mixture, part.design, row_start, target, out, 0, last)
        return out
    assert isinstance(part.mixture, Mixture)
    weights, coef, scales = part.mixture
    with np.errstate(divide="ignore"):
        # in place: a block of weights is the largest array here
        log_weights = np.log(weights, out=weights)
    log_weights -= np.log(scales) + 0.5 * LOG_2PI
    mixtures.log_density_rows(log_weights, coef, scales, part.design, row_start, target, out, 0, last)
    return out


def left_out_densities(part: MixtureRows, target: FloatArray) -> FloatArray:
    """(n, draws) log density of each row's target, had the row been left out of its entity's events, in each draw."""
    assert isinstance(part.mixture, OwnMixture)
    density, mean = (np.empty((len(part.rows), len(part.mixture.coef))) for _ in range(2))
    last = len(part.mixture.weights)
    profiles.own_left_out_rows(part.mixture, part.design, part.row_start, target, density, mean, 0, last)
    return density


def own_coef_moments(mixture: OwnMixture, n_threads: int) -> tuple[FloatArray, FloatArray]:
    """Mean (profiles, n_coef) and covariance (profiles, n_coef, n_coef) of the profiles' coefficients."""
    n_profiles = len(mixture.weights)
    n_coef = mixture.coef.shape[2]
    mean = np.empty((n_profiles, n_coef))
    covariance = np.empty((n_profiles, n_coef, n_coef))
    blocks = Blocks.balanced(np.arange(n_profiles + 1))

    def evaluate(block: int) -> None:
        profiles.coef_moments(mixture, mean, covariance, *blocks.range(block))

    run_blocks(evaluate, len(blocks), n_threads)
    return mean, covariance


def own_coef_quantiles(mixture: OwnMixture, rows: FloatArray, levels: tuple[float, ...], n_threads: int) -> FloatArray:
    """(profiles, rows, levels) quantiles of each row (n_coef,) of `rows` times the profiles' coefficients."""
    n_profiles = len(mixture.weights)
    n_rows = len(rows)
    certain = mixture._replace(noise=np.full_like(mixture.noise, LEAST_VARIANCE))
    design = np.tile(rows, (n_profiles, 1))
    row_start = np.arange(n_profiles + 1) * n_rows
    out = Moments.empty(n_profiles * n_rows, len(levels))
    wanted = np.array(levels, dtype=np.float64)
    blocks = Blocks.balanced(np.arange(n_profiles + 1))

    def evaluate(block: int) -> None:
        profiles.own_mixture_rows(
            *(certain, design, row_start, wanted, normal_quantiles(levels), *out), *blocks.range(block)
        )

    run_blocks(evaluate, len(blocks), n_threads)
    return out.quantiles.reshape(n_profiles, n_rows, len(levels))


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
