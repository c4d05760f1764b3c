"""Predictions of targets of any sort from their mixtures; here probabilities and counts, elsewhere normal ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import betainc, gammaln, ndtri

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.threads import Blocks, run_blocks
from fedhlcr.kernels import responses
from fedhlcr.kernels.responses import CountMixture, ProbabilityMixture
from fedhlcr.model.counts import POISSON_LIMIT, bounded_size
from fedhlcr.model.mixed import GOLDEN
from fedhlcr.posterior.predictive import MixtureRows, Moments, interval_ends, mixture_log_density, mixture_moments

# Points of a mixture of log means over which counts are averaged; rows of counts that are computed at once.
N_POINTS, ROWS_AT_ONCE = 100, 2000
# From rows and whole numbers, one for each row, to the probability that the count is at most that number.
CountLaw = Callable[[FloatArray], FloatArray]


def moments_of(part: MixtureRows, levels: tuple[float, ...], n_threads: int) -> Moments:
    """Mean, standard deviation and quantiles of each row's target."""
    if isinstance(part.mixture, ProbabilityMixture):
        return probability_moments(part, levels, n_threads)
    return (count_moments if isinstance(part.mixture, CountMixture) else mixture_moments)(part, levels, n_threads)


def interval_of(part: MixtureRows, level: float, n_threads: int) -> tuple[FloatArray, FloatArray]:
    """Ends of an interval that holds each row's target with probability `level`."""
    if isinstance(part.mixture, CountMixture):
        return count_interval(part, level, n_threads)
    quantiles = moments_of(part, interval_ends(level), n_threads).quantiles
    return quantiles[:, 0], quantiles[:, 1]


def log_density_of(part: MixtureRows, target: FloatArray, n_threads: int) -> FloatArray:
    """(n,) log density, or log probability, of each row's target. The mixture's weights may be overwritten."""
    if isinstance(part.mixture, ProbabilityMixture):
        return probability_log_density(part, target, n_threads)
    of = count_log_density if isinstance(part.mixture, CountMixture) else mixture_log_density
    return of(part, target, n_threads)


def probability_moments(part: MixtureRows, levels: tuple[float, ...], n_threads: int) -> Moments:
    """The mean probability of a 1, the standard deviation of such a target, and quantiles of its probability."""
    assert isinstance(part.mixture, ProbabilityMixture)
    own = part.mixture.own
    wanted, out = np.array(levels, dtype=np.float64), Moments.empty(len(part.rows), len(levels))
    row_start = part.row_start
    blocks = Blocks.balanced(row_start)

    def evaluate(block: int) -> None:
        arrays = own, part.design, part.offset, row_start, wanted, ndtri(wanted)
        responses.probability_rows(*arrays, out.mean, out.quantiles, *blocks.range(block))

    run_blocks(evaluate, len(blocks), n_threads)
    out.std[:] = np.sqrt(out.mean * (1.0 - out.mean))
    return out


def probability_log_density(part: MixtureRows, target: FloatArray, n_threads: int) -> FloatArray:
    """(n,) log probability of each row's target, which is 0 or 1."""
    mean = probability_moments(part, (), n_threads).mean
    return np.asarray(np.log(np.where(target == 1.0, mean, 1.0 - mean)))


def count_moments(part: MixtureRows, levels: tuple[float, ...], n_threads: int) -> Moments:
    """Mean and standard deviation of counts, and their quantiles: whole numbers."""
    assert isinstance(part.mixture, CountMixture)
    own, log_size = part.mixture
    out, row_start = Moments.empty(len(part.rows), len(levels)), part.row_start
    blocks = Blocks.balanced(row_start)

    def evaluate(block: int) -> None:
        arrays = own, log_size, part.design, part.offset, row_start, 1.0 / POISSON_LIMIT
        responses.count_rows(*arrays, out.mean, out.std, *blocks.range(block))

    run_blocks(evaluate, len(blocks), n_threads)
    if levels:
        law = _points(part, n_threads)

        def search(chunk: slice) -> None:
            below = law.at_most(chunk)
            for q, level in enumerate(levels):
                out.quantiles[chunk, q] = _smallest(below, np.full(chunk.stop - chunk.start, level), out.mean[chunk])

        _in_chunks(search, len(part.rows), n_threads)
    return out


def count_interval(part: MixtureRows, level: float, n_threads: int) -> tuple[FloatArray, FloatArray]:
    """Whole numbers between which the count lies with a probability as near to `level` as they allow.

    The lower end is that of the central interval. Where zeros are so common that nothing lies below it, the upper end
    makes up for that.
    """
    mean, law = count_moments(part, (), n_threads).mean, _points(part, n_threads)
    lower, upper = np.empty(len(mean)), np.empty(len(mean))

    def search(chunk: slice) -> None:
        below, n = law.at_most(chunk), chunk.stop - chunk.start
        lower[chunk] = _smallest(below, np.full(n, interval_ends(level)[0]), mean[chunk])
        wanted = level + np.where(lower[chunk] > 0.0, below(np.maximum(lower[chunk] - 1.0, 0.0)), 0.0)
        found = _smallest(below, wanted, mean[chunk])
        before = np.maximum(found - 1.0, lower[chunk])
        nearer = np.abs(below(before) - wanted) < np.abs(below(found) - wanted)
        upper[chunk] = np.where(nearer, before, found)

    _in_chunks(search, len(mean), n_threads)
    return lower, upper


def count_log_density(part: MixtureRows, target: FloatArray, n_threads: int) -> FloatArray:
    """(n,) log probability of each row's count."""
    law = _points(part, n_threads)
    out = np.empty(len(target))

    def evaluate(chunk: slice) -> None:
        y, log_mean, size = target[chunk, None], law.log_means[chunk], law.sizes(chunk)
        psi = log_mean - np.log(size)
        terms = gammaln(y + size) - gammaln(size) - gammaln(y + 1.0) + y * psi - (y + size) * np.logaddexp(0.0, psi)
        out[chunk] = np.logaddexp.reduce(terms, axis=1) - np.log(terms.shape[1])

    _in_chunks(evaluate, len(target), n_threads)
    return out


class _Points:
    """Evenly weighted negative binomial laws that stand for the mixture of each row, (rows, N_POINTS)."""

    def __init__(self, log_means: FloatArray, log_sizes: FloatArray) -> None:
        self.log_means, self._log_sizes = log_means, log_sizes

    def sizes(self, chunk: slice) -> FloatArray:
        mean = np.exp(self.log_means[chunk])
        return bounded_size(np.exp(self._log_sizes[chunk]), np.maximum(mean, 1e-12))

    def at_most(self, chunk: slice) -> CountLaw:
        """The law of some rows: the probabilities of counts up to given numbers."""
        size = self.sizes(chunk)
        stays = size / (size + np.exp(self.log_means[chunk]))

        def law(numbers: FloatArray) -> FloatArray:
            return np.asarray(betainc(size, numbers[:, None] + 1.0, stays).mean(axis=1))

        return law


def _points(part: MixtureRows, n_threads: int) -> _Points:
    assert isinstance(part.mixture, CountMixture)
    own, log_size = part.mixture
    shape = len(part.rows), N_POINTS
    log_means, draws, row_start = np.empty(shape), np.empty(shape, dtype=np.int64), part.row_start
    normals = ndtri((np.arange(1, N_POINTS + 1) * GOLDEN) % 1.0)
    blocks = Blocks.balanced(row_start)

    def evaluate(block: int) -> None:
        arrays = own, part.design, part.offset, row_start, normals
        responses.point_rows(*arrays, log_means, draws, *blocks.range(block))

    run_blocks(evaluate, len(blocks), n_threads)
    return _Points(log_means, log_size[part.profile[:, None], draws])


def _smallest(at_most: CountLaw, wanted: FloatArray, mean: FloatArray) -> FloatArray:
    """The smallest number in each row up to which the count lies with at least the wanted probability."""
    low, high = np.full(len(wanted), -1.0), np.ceil(2.0 * mean + 10.0)
    while (short := at_most(high) < wanted).any() and high.max() < 1e15:
        low = np.where(short, high, low)
        high = np.where(short, 2.0 * high, high)
    while (high - low > 1.0).any():
        middle = np.floor(0.5 * (low + high))
        enough = at_most(np.maximum(middle, 0.0)) >= wanted
        low, high = np.where(enough | (middle < 0.0), low, middle), np.where(enough & (middle >= 0.0), middle, high)
    return high


def _in_chunks(evaluate: Callable[[slice], None], n_rows: int, n_threads: int) -> None:
    starts = range(0, n_rows, ROWS_AT_ONCE)
    chunks = [slice(start, min(start + ROWS_AT_ONCE, n_rows)) for start in starts]
    run_blocks(lambda chunk: evaluate(chunks[chunk]), len(chunks), n_threads)
