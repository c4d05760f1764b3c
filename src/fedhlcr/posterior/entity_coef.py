"""The coefficients of each entity: posterior means and standard deviations over draws and labels.

With effects, the coefficients of an entity are β = w_z + a + b, as a mixed model estimates them. In plain clusters they
are those of its cluster, and only the label and the draws vary.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr.kernels.profiles import OwnMixture
from fedhlcr.kernels.responses import CountMixture, ProbabilityMixture
from fedhlcr.posterior.prediction import Posterior, Profiles
from fedhlcr.posterior.responses import AnyMixture, interval_ends, own_coef_moments, own_coef_quantiles

# Numbers in the covariances of the entities that are computed at once.
NUMBERS_AT_ONCE = 1 << 22


class EntityCoef(NamedTuple):
    """Coefficients of all entities.

    Attributes
    ----------
    mean : (entities, n_coef) posterior means, in standardised units
    of_cluster : (entities, n_coef) the part that comes from the clusters, mean of w_z, in standardised units
    std : (entities, rows of the transform) standard deviations of what the transform makes of the coefficients
    """

    mean: FloatArray
    of_cluster: FloatArray
    std: FloatArray


def entity_coef(posterior: Posterior, transform: FloatArray) -> EntityCoef:
    """The coefficients of all entities that the posterior knows, in the order of its index.

    `transform` (rows, n_coef) takes them to the user's units.
    """
    layout = posterior.layout
    index = posterior.memory.entities.index
    n_entities = index.n_entities
    n_coef = layout.n_coef
    out = EntityCoef(*(np.empty((n_entities, size)) for size in (n_coef, n_coef, len(transform))))
    flat_coef = posterior.draws.coef.reshape(-1, n_coef)
    size = max(1, NUMBERS_AT_ONCE // n_coef**2)
    for first in range(0, n_entities, size):
        entities = np.arange(first, min(first + size, n_entities))
        profiles = Profiles(index.agent_of[entities], entities, np.arange(len(entities)))
        for chunk, weights in posterior.blocks(profiles, exact=False):
            rows = entities[chunk]
            out.of_cluster[rows] = weights.reshape(len(rows), -1) @ flat_coef / len(posterior.draws)
            mixture = posterior.mixture(profiles, chunk, weights)
            out.mean[rows], variance = coef_moments(mixture, transform, posterior.memory.entities.n_threads)
            out.std[rows] = np.sqrt(np.maximum(variance, 0.0))
    return out


def entity_coef_interval(posterior: Posterior, transform: FloatArray, level: float) -> tuple[FloatArray, FloatArray]:
    """(entities, 1 + n_inputs) ends of the central intervals of intercept and slopes, in the user's units.

    They are quantiles of the mixture over draws and labels, of which `EntityCoef` has the means. So where a label is in
    doubt, an interval may reach from one cluster's coefficient to that of another. `transform` is as in `entity_coef`;
    its first row is that of the intercept.
    """
    units = posterior.standardization
    index = posterior.memory.entities.index
    ends = np.empty((index.n_entities, len(transform), 2))
    profiles = Profiles(index.agent_of, np.arange(index.n_entities), np.arange(index.n_entities))
    for chunk, weights in posterior.blocks(profiles, exact=False):
        mixture = posterior.mixture(profiles, chunk, weights)
        ends[chunk] = _quantiles(mixture, transform, interval_ends(level), posterior.memory.entities.n_threads)
    ends[:, 0] += units.shift[-1]
    return ends[..., 0], ends[..., 1]


def _quantiles(mixture: AnyMixture, transform: FloatArray, levels: tuple[float, ...], n_threads: int) -> FloatArray:
    """(profiles, rows, levels) quantiles of the rows of `transform` times the coefficients."""
    if isinstance(mixture, ProbabilityMixture | CountMixture):
        mixture = mixture.own
    # the kernel searches on the scale of standardised coefficients
    length = np.sqrt((transform**2).sum(axis=1))
    rows = transform / np.where(length > 0.0, length, 1.0)[:, None]
    if isinstance(mixture, OwnMixture) and len(mixture.columns):
        found = own_coef_quantiles(mixture, rows, levels, n_threads)
    else:
        # nobody has effects, so all profiles have the same components, which are sorted once
        weights = mixture.weights.reshape(len(mixture.weights), -1)
        coef = mixture.coef.reshape(-1, rows.shape[1])
        found = np.empty((len(weights), len(rows), len(levels)))
        for row, values in enumerate((coef @ rows.T).T):
            order = np.argsort(values, kind="stable")
            below = np.cumsum(weights[:, order], axis=1)
            for q, level in enumerate(levels):
                place = (below < level * below[:, -1:]).sum(axis=1)
                found[:, row, q] = values[order[np.minimum(place, len(order) - 1)]]
    return np.where(length > 0.0, length, 0.0)[:, None] * found


def coef_moments(mixture: AnyMixture, transform: FloatArray, n_threads: int) -> tuple[FloatArray, FloatArray]:
    """Means (profiles, n_coef), and variances (profiles, rows) of the rows of `transform` times the coefficients."""
    if isinstance(mixture, ProbabilityMixture | CountMixture):
        mixture = mixture.own
    if isinstance(mixture, OwnMixture):
        mean, covariance = own_coef_moments(mixture, n_threads)
        return mean, np.einsum("if,pfg,ig->pi", transform, covariance, transform, optimize=True)
    # around their mean, because the intercept of features far from zero is large
    values = mixture.coef @ transform.T
    values -= values.mean(axis=0)
    return mixture.weights @ mixture.coef, mixture.weights @ values**2 - (mixture.weights @ values) ** 2
