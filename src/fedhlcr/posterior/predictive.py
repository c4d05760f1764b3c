"""Moments, quantiles and densities of mixtures, one for each row of a table, in the units of the run.

Mixtures of normals are in standardised units. Probabilities and counts (`posterior.responses`) are what they are.

`posterior.prediction` evaluates blocks of rows on threads; here everything runs on one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.special import normal_quantiles
from fedhlcr._support.threads import Blocks, run_blocks
from fedhlcr.kernels import mixtures, profiles
from fedhlcr.kernels.mixtures import Mixture
from fedhlcr.kernels.profiles import OwnMixture
from fedhlcr.kernels.responses import CountMixture, ProbabilityMixture
from fedhlcr.model.regression import LOG_2PI

# Variance that is left to a coefficient, in standardised units, so that quantiles of single numbers can be found.
LEAST_VARIANCE = 1e-10

AnyMixture = Mixture | OwnMixture | ProbabilityMixture | CountMixture


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
