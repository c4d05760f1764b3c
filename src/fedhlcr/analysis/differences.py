"""How much entities of one cluster differ, in the user's units and in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import listed, number, percent
from fedhlcr.model.arguments import Differences
from fedhlcr.model.likelihood import GAUSSIAN
from fedhlcr.posterior.fitted_model import FittedModel
from fedhlcr.posterior.user_units import HasUnits, coef_transform

# The range of the noise holds this share of the entities.
NOISE_RANGE = 0.8
# Effects below this share of the target's scale are rounding errors.
NO_EFFECT = 1e-9
# Most features to name in a line.
MAX_NAMED = 6
PAPER = "the paper's: entities of one cluster are equal, and all have the same noise"


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


def difference_facts(
    differences: EntityDifferences | None, likelihood: str, names: Sequence[str], scale: str | None = None
) -> list[tuple[str, str]]:
    """Lines of a summary: (name, value) pairs. `names` are those of the features.

    `scale` is that of the regressions, such as "log odds"; None if they are in units of the target.
    """
    if differences is None:
        return [("model", PAPER)] if likelihood == GAUSSIAN else []
    _, _, of_entities, of_agents, size, _ = differences
    deviations = "standard deviations" if scale is None else f"standard deviations of {scale}"
    facts = [("entities differ", _in_words(differences.entity_scales, of_entities, size, names, deviations))]
    if of_agents.any():
        words = _in_words(differences.agent_scales, of_agents, size, names, deviations)
        facts.append(("agents differ", words))
    return facts


def noise_words(differences: EntityDifferences | None) -> str:
    """What to add to the typical noise: its range, if entities differ; else nothing."""
    if differences is None or differences.noise_range is None:
        return ""
    low, high = differences.noise_range
    return f"; {number(low)} to {number(high)} for {percent(NOISE_RANGE)} of the entities"


def tail_words(model: FittedModel) -> str:
    """What to add to the scale of Student-t noise: its shape and its standard deviation; nothing for other noise."""
    posterior = model.posterior_
    if not posterior.likelihood.has_heavy_tails or not hasattr(model, "noise_shape_"):
        return ""
    shape = number(model.noise_shape_)
    level = number(posterior.noise_level())
    return f"; Student-t with {shape} degrees of freedom, so its standard deviation is {level}"


def _in_words(
    scales: FloatArray, has: NDArray[np.bool_], size: FloatArray, names: Sequence[str], deviations: str
) -> str:
    """ "level 0.3, slopes: price 0.1 and age 0.2 (standard deviations); no effects on the slope of size" """
    if not has.any():
        return "no effects beyond their clusters"
    parts = [f"level {number(scales[0])}"] if has[0] else []
    # the strongest first
    order = [f for f in np.argsort(-size[1:], kind="stable") if has[1 + f]]
    if slopes := [f"{names[f]} {number(scales[1 + f])}" for f in order]:
        parts.append(f"slopes: {_some(slopes)}")
    without = [] if has[0] else ["the level"]
    if left_out := [names[f] for f in range(len(names)) if not has[1 + f]]:
        many = "slope" if len(left_out) == 1 else "slopes"
        without.append(f"the {many} of {_some(left_out)}" if slopes else "slopes")
    ending = f"; no effects on {listed(without)}" if without else ""
    return f"{', '.join(parts)} ({deviations}){ending}"


def _some(items: list[str]) -> str:
    """The first items, and how many more there are."""
    shown = items if len(items) <= MAX_NAMED else [*items[: MAX_NAMED - 1], f"{len(items) - MAX_NAMED + 1} more"]
    return listed(shown)
