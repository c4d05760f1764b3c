"""How much entities of one cluster differ, in the user's units."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr.model.differences import Differences
from fedhlcr.posterior.user_units import HasUnits, coef_transform

# The range of the noise holds this share of the entities.
NOISE_RANGE = 0.8
# Effects below this share of the target's scale are rounding errors.
NO_EFFECT = 1e-9


class EntityDifferences(NamedTuple):
    """Standard deviations of effects within a cluster, and the range of the noise, in the user's units.

    Attributes
    ----------
    entity_scales, agent_scales : (1 + n_features,) of the level, which is the prediction at the features' means, and of
        each slope; posterior means. 0 where there is no effect.
    has_entity_effect, has_agent_effect : (1 + n_features,) where there is one
    typical_effect : (1 + n_features,) the entities' scales, those of slopes for one standard deviation of the feature
    noise_range : the noise of the middle 80 % of the entities; None if all have the same
    """

    entity_scales: FloatArray
    agent_scales: FloatArray
    has_entity_effect: NDArray[np.bool_]
    has_agent_effect: NDArray[np.bool_]
    typical_effect: FloatArray
    noise_range: tuple[float, float] | None


def entity_differences(model: HasUnits) -> EntityDifferences | None:
    """How entities of one cluster differ; None if the model takes them as equal."""
    posterior = model.posterior_
    found = posterior.likelihood.differences(posterior.draws.stacked)
    units = posterior.standardization
    if found is None:
        return None
    target_scale = float(units.scale[-1])
    size = np.concatenate([[1.0], model.feature_spreads_])
    of_entities, of_agents = (scales.mean(axis=0) for scales in scales_by_draw(model, found))
    ends = (found.noise_quantile(0.5 - NOISE_RANGE / 2), found.noise_quantile(0.5 + NOISE_RANGE / 2))
    return EntityDifferences(
        of_entities,
        of_agents,
        of_entities * size > NO_EFFECT * target_scale,
        of_agents * size > NO_EFFECT * target_scale,
        of_entities * size,
        (ends[0] * target_scale, ends[1] * target_scale) if found.noise_differs else None,
    )


def scales_by_draw(model: HasUnits, found: Differences) -> tuple[FloatArray, FloatArray]:
    """(draws, 1 + n_features) standard deviations of the effects of entities and of agents, in the user's units."""
    transform = coef_transform(model, model.feature_means_)
    of_entities, of_agents = (
        np.sqrt(np.maximum(np.einsum("if,dfg,ig->di", transform, own, transform, optimize=True), 0.0))
        for own in (found.entity_covariance, found.agent_covariance)
    )
    return of_entities, of_agents
