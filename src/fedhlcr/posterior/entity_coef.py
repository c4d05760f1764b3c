"""The coefficients of each entity: posterior means and standard deviations over draws and labels.

With effects, the coefficients of an entity are β = w_z + a + b, as a mixed model estimates them. In plain clusters they
are those of its cluster, and only the label and the draws vary.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.kernels.profiles import OwnMixture
from fedhlcr.kernels.responses import CountMixture, ProbabilityMixture
from fedhlcr.posterior.prediction import Posterior, Profiles
from fedhlcr.posterior.predictive import AnyMixture, own_coef_moments

# Numbers in the covariances of the entities that are computed at once.
NUMBERS_AT_ONCE = 1 << 22


class EntityCoef(NamedTuple):
    """Coefficients of all entities.

    Attributes
    ----------
    mean : (entities, n_coef) posterior means, in standardised units
    of_cluster : (entities, n_coef) the part that comes from the clusters, mean of w_z, in standardised units
    std : (entities, 1 + n_inputs) standard deviations of intercept and slopes, in the user's units
    """

    mean: FloatArray
    of_cluster: FloatArray
    std: FloatArray


def entity_coef(posterior: Posterior) -> EntityCoef:
    """The coefficients of all entities that the posterior knows, in the order of its index."""
    layout, index = posterior.layout, posterior.memory.entities.index
    n_entities, n_coef = index.n_entities, layout.n_coef
    transform = posterior.standardization.coef_transform(layout, np.zeros(layout.n_inputs))
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
            out.mean[rows], variance = _moments(mixture, transform, posterior.memory.entities.n_threads)
            out.std[rows] = np.sqrt(np.maximum(variance, 0.0))
    return out


def linear_moments(posterior: Posterior, entities: IndexArray, X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Means and standard deviations (entities, rows) of what the regressions of entities predict for rows of features.

    Noise is left out. Values are in units of the target or, with a link, on the linear scale.

    Parameters
    ----------
    entities : positions, ascending
    X : (rows, n_inputs) features in the user's units, the same rows for all entities
    """
    layout, index, units = posterior.layout, posterior.memory.entities.index, posterior.standardization
    design = units.apply(X)
    if layout.fit_intercept:
        design = np.column_stack([np.ones(len(X)), design])
    mean, std = np.empty((len(entities), len(X))), np.empty((len(entities), len(X)))
    size = max(1, NUMBERS_AT_ONCE // layout.n_coef**2)
    for first in range(0, len(entities), size):
        own = entities[first : first + size]
        profiles = Profiles(index.agent_of[own], own, np.arange(len(own)))
        for chunk, weights in posterior.blocks(profiles, exact=False):
            mixture = posterior.mixture(profiles, chunk, weights)
            rows = slice(first + chunk.start, first + chunk.start + len(weights))
            coef, variance = _moments(mixture, design, posterior.memory.entities.n_threads)
            mean[rows], std[rows] = coef @ design.T, np.sqrt(np.maximum(variance, 0.0))
    return units.restore_target(mean), std * units.scale[-1]


def _moments(mixture: AnyMixture, transform: FloatArray, n_threads: int) -> tuple[FloatArray, FloatArray]:
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
