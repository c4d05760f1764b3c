"""What regressions say of each feature, in the user's units.

Changes, ratios, intervals and effects of the clusters, and how much entities of one cluster differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import FEATURE, listed, printable
from fedhlcr.exceptions import ArgumentError
from fedhlcr.model.arguments import Differences
from fedhlcr.posterior.alignment import central_interval, coef_by_draw
from fedhlcr.posterior.fitted_model import FittedModel
from fedhlcr.posterior.user_units import HasUnits, coef_transform, to_user_units

# Probability of the intervals of coefficients.
INTERVAL_LEVEL = 0.9
# The range of the noise holds this share of the entities.
NOISE_RANGE = 0.8
# Effects below this share of the target's scale are rounding errors.
NO_EFFECT = 1e-9


def target_name(model: FittedModel) -> str:
    """The name of the target's column, if the model knows it."""
    return printable((model.recipe_ and model.recipe_.target) or "the target")


def feature_names(model: FittedModel) -> list[str]:
    given = getattr(model, "feature_names_in_", None)
    return [f"x{f}" for f in range(model.n_features_in_)] if given is None else [str(name) for name in given]


def id_columns(model: FittedModel) -> tuple[str | None, str | None]:
    """The names of the columns of agents and entities in the fit; None where ids were no columns."""
    recipe = model.recipe_
    if recipe is None:
        return model.agent_column_, model.entity_column_
    return recipe.agent or model.agent_column_, recipe.entity or model.entity_column_


def one_hot(model: FittedModel) -> dict[int, tuple[str, str]]:
    """Column and level of each feature that indicates a level of a category."""
    categorical = {} if model.recipe_ is None else model.recipe_.categorical
    position = {name: f for f, name in enumerate(feature_names(model))}
    named = ((f"{column}={level}", column, level) for column, levels in categorical.items() for level in levels)
    return {position[name]: (str(column), str(level)) for name, column, level in named if name in position}


def entity_shares(model: FittedModel) -> FloatArray:
    """(clusters,) share of the fitted entities in each cluster, mean over the draws. It falls with the cluster number.

    These are not the shares of `labels_`: where labels are uncertain, the largest cluster is the most probable one of
    nearly every entity.
    """
    counts = model.alignment_.gather(model.posterior_.draws.entity_counts)
    return counts / counts.sum() if counts.any() else model.cluster_weights_


def target_spread(model: FittedModel) -> float:
    """Standard deviation of the target over all events; in a public model, the scale it was divided by."""
    posterior = model.posterior_
    if not len(posterior.memory.entities):
        return float(posterior.standardization.scale[-1])
    pooled = posterior.memory.entities.pooled_gram
    return float(posterior.standardization.column_moments(posterior.layout, pooled)[1][-1])


def unit_changes(model: FittedModel) -> FloatArray:
    """(clusters, features): change of the target per unit of each feature.

    For a level of a category it is the difference from all other levels, (w − Σpw) / (1 − p), where p is the share of
    events at each level. A slope alone would depend on which level, if any, the encoding leaves out.
    """
    return _changes(model, model.coef_)


def _changes(model: FittedModel, slopes: FloatArray) -> FloatArray:
    """`unit_changes` of any slopes (..., features)."""
    changes = np.array(slopes)
    shares = np.clip(model.feature_means_, 0.0, 1.0)
    columns: dict[str, list[int]] = {}
    for f, (column, _) in one_hot(model).items():
        columns.setdefault(column, []).append(f)
    for features in columns.values():
        own = slopes[..., features]
        share = shares[features]
        elsewhere = np.where(share < 1.0, 1.0 - share, np.inf)
        changes[..., features] = (own - (own @ share)[..., None]) / elsewhere
    return changes


def coef_intervals(model: FittedModel, level: float = INTERVAL_LEVEL) -> tuple[FloatArray, FloatArray]:
    """Ends of the central posterior intervals of `coef_`, (clusters, features) each; NaN if there is one draw."""
    drawn = regressions_by_draw(model)
    return interval_over_draws(drawn.slopes, drawn.mass, level)


def change_intervals(model: FittedModel, level: float = INTERVAL_LEVEL) -> tuple[FloatArray, FloatArray]:
    """Ends of the central posterior intervals of `unit_changes`, as `coef_intervals`."""
    drawn = regressions_by_draw(model)
    return interval_over_draws(_changes(model, drawn.slopes), drawn.mass, level)


class RegressionDraws(NamedTuple):
    """The clusters' regressions in each draw, in the user's units; curves are not part of slopes and intercepts.

    Attributes
    ----------
    slopes : (draws, clusters, features)
    intercepts, levels : (draws, clusters); the level is the prediction at the features' means
    mass : (draws, clusters) number of entities, by which `coef_` weights the draws. It is about 0 where the cluster is
        empty, and exactly 0 where the draw has no such cluster.
    """

    slopes: FloatArray
    intercepts: FloatArray
    levels: FloatArray
    mass: FloatArray


def regressions_by_draw(model: FittedModel) -> RegressionDraws:
    """What `coef_` and `intercept_` average over the draws."""
    posterior = model.posterior_
    units = posterior.standardization
    layout = posterior.layout
    coef, mass = coef_by_draw(posterior.draws, model.alignment_)
    slopes, intercepts = to_user_units(model, coef)
    levels = intercepts + slopes @ model.feature_means_
    if units.curves is not None:
        bends = units.feature_slopes(layout, coef)[..., layout.n_inputs :]
        levels = levels + bends @ units.curves.appended(model.feature_means_[None])[0]
    return RegressionDraws(slopes, intercepts, levels, mass)


def interval_over_draws(values: FloatArray, mass: FloatArray, level: float) -> tuple[FloatArray, FloatArray]:
    """Ends of central intervals of values (draws, clusters, ...) by mass (draws, clusters); NaN if it is one draw."""
    mass = mass if len(mass) > 1 else np.zeros_like(mass)
    weights = mass.reshape(*mass.shape, *[1] * (values.ndim - mass.ndim))
    return central_interval(values, np.broadcast_to(weights, values.shape), level)


def effect_sizes(model: FittedModel) -> FloatArray:
    """(clusters, features): change of the target per standard deviation of the feature; 0 for a constant feature."""
    return unit_changes(model) * model.feature_spreads_


def typical_levels(model: FittedModel) -> FloatArray:
    """(clusters,): predicted target at the features' means."""
    curves = model.posterior_.standardization.curves
    level = model.intercept_ + model.coef_ @ model.feature_means_
    return level if curves is None else level + model.curve_coef_ @ curves.appended(model.feature_means_[None])[0]


def zero_or_one(model: FittedModel) -> NDArray[np.bool_]:
    """(features,) which features are 0 or 1 in all events."""
    means = model.feature_means_
    spreads = model.feature_spreads_
    # of all columns between 0 and 1, only those without values in between have this variance
    return np.isclose(spreads**2, means * (1.0 - means), rtol=1e-9, atol=0.0) & (spreads > 0.0)


def step_sizes(model: FittedModel) -> FloatArray:
    """(features,) the step of each feature that ratios belong to: 1 for zeros and ones, else a standard deviation."""
    is_unit = zero_or_one(model)
    is_unit[list(one_hot(model))] = True
    return np.where(is_unit, 1.0, model.feature_spreads_)


def step_ratios(model: FittedModel, level: float = INTERVAL_LEVEL) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Odds ratios of a classifier, or rate ratios of a count model, and the ends of their intervals.

    Each is (clusters, features); the ends are NaN if the model has only one draw. A ratio belongs to a step of the
    feature: from 0 to 1 for a feature of zeros and ones, from all other levels (their mean on the scale of the
    logarithm) to one level for a category, and one standard deviation for any other feature. Other features stay the
    same, and so does the entity: where entities differ, the ratio is that of events of one entity, not of averages over
    entities. An odds ratio is not a ratio of probabilities. Of a feature with a curve, it is the ratio of its straight
    line.
    """
    sizes = step_sizes(model)
    # a coefficient of an extreme fit may be beyond the largest number
    with np.errstate(over="ignore"):
        ratios, lower, upper = (
            np.asarray(np.exp(part * sizes)) for part in (unit_changes(model), *change_intervals(model, level))
        )
    return ratios, lower, upper


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


def feature_position(column: Any, n_features: int, names: Sequence[str] | None, argument: str) -> int:
    """The position of a feature that is given by its name or its position; `argument` is named in errors."""
    if isinstance(column, Integral) and not isinstance(column, (bool, np.bool_)):
        if 0 <= int(column) < n_features:
            return int(column)
        raise ArgumentError(
            f"`{argument}` refers to position {column}, but there {'is' if n_features == 1 else 'are'} "
            f"{FEATURE.count(n_features)}; positions go from 0 to {n_features - 1}."
        )
    if not isinstance(column, str):
        raise ArgumentError(
            f"`{argument}` must refer to features by name or by position, but got an object of type "
            f"{type(column).__name__}."
        )
    if names is None:
        raise ArgumentError(
            f"`{argument}` refers to {column!r}, but the features have no names; pass positions, or fit to a dataframe."
        )
    if column not in (known := [str(name) for name in names]):
        shown = listed([repr(name) for name in known])
        raise ArgumentError(f"`{argument}` refers to {column!r}, but the features are {shown}; check the spelling.")
    return known.index(column)


def entity_noise(model: FittedModel) -> FloatArray:
    """(entities,) posterior mean noise of each entity of a real target, in its units: the standard deviation."""
    posterior = model.posterior_
    found = entity_differences(model)
    states = {name: values.astype(np.float64) for name, values in posterior.memory.agent_state.items()}
    scales = posterior.likelihood.entity_noise(posterior.draws.stacked, states)
    if scales is None or found is None or found.noise_range is None:
        return np.full(len(posterior.memory.entities), posterior.noise_level())
    return np.asarray(scales.mean(axis=0) * posterior.standardization.scale[-1])
