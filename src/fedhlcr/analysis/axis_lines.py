"""The regressions of clusters and of single entities along an axis, with intervals, on the scale of the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.analysis.axes import LARGEST_LOG, SPREADS_SHOWN, Axis, wide_ends
from fedhlcr.analysis.axis_names import base_of_log
from fedhlcr.analysis.effects import INTERVAL_LEVEL, change_intervals, target_name, target_spread
from fedhlcr.analysis.links import link_of
from fedhlcr.analysis.ticks import log_ticks, nice_ticks, tick_text
from fedhlcr.data.families import Family
from fedhlcr.data.terms import product_features
from fedhlcr.kernels.mixtures import Mixture
from fedhlcr.kernels.responses import CountMixture
from fedhlcr.posterior.alignment import central_interval, coef_by_draw
from fedhlcr.posterior.entity_coef import coef_moments
from fedhlcr.posterior.fitted_model import FittedModel
from fedhlcr.posterior.prediction import Profiles
from fedhlcr.posterior.responses import MixtureRows, interval_ends, moments_of
from fedhlcr.posterior.user_units import to_user_units

# Rows whose predictions in all draws are in memory at a time.
ROWS_AT_ONCE = 1 << 12
# The variance, and its root, that stand for no noise: a mixture of normals needs some.
NO_VARIANCE = 1e-12
# Values of a feature in its curve.
N_VALUES = 101


class AxisLine(NamedTuple):
    """What a cluster predicts along an axis if all other features have their means.

    Attributes
    ----------
    axis : the axis
    places : (points,) in the reader's units
    mean : (points,) posterior mean of the target; of classes and counts, of the probability or the rate
    lower, upper : (points,) ends of the interval over the draws; NaN if there is only one draw
    """

    axis: Axis
    places: FloatArray
    mean: FloatArray
    lower: FloatArray
    upper: FloatArray

    def at(self, places: FloatArray) -> FloatArray:
        """(events,) the mean at other places, interpolated; beyond the ends, that at the end."""
        if self.axis.is_discrete:
            return np.asarray(self.mean[places.astype(np.int64)])
        return np.interp(self.axis.fractions(places), self.axis.fractions(self.places), self.mean)

    def adjusted(self, places: FloatArray, residuals: FloatArray) -> FloatArray:
        """(events,) targets as they would be with average other features: this line plus the events' residuals.

        Residuals are those of the model's own predictions, so what it knows about single entities is taken out too.
        """
        return self.at(places) + residuals


class FeatureCurve(NamedTuple):
    """The effect of a feature on the target in one cluster, against its effect at the feature's mean.

    Attributes
    ----------
    x : (points,) values of the feature
    effect : (points,) posterior mean of f(x) − f(mean of x), in units of the target
    lower, upper : (points,) ends of its interval over the draws; NaN if there is only one draw
    """

    x: FloatArray
    effect: FloatArray
    lower: FloatArray
    upper: FloatArray


def axis_line(
    model: FittedModel,
    axis: Axis,
    cluster: int,
    places: FloatArray | None = None,
    level: float = INTERVAL_LEVEL,
    others: FloatArray | None = None,
) -> AxisLine:
    """The regression of a cluster along an axis, in the units of the target.

    Parameters
    ----------
    model : fitted
    axis : one of `feature_axes(model)`
    cluster : number of the cluster
    places : where to evaluate it; None is the axis' own grid
    level : probability of the interval
    others : (n_features_in_,) values of the other features; None is their means
    """
    places = axis.grid() if places is None else places
    by_draw, weight = axis_draws(model, axis, cluster, places, others)
    return AxisLine(axis, places, *_averaged(by_draw, weight, level))


def axis_draws(
    model: FittedModel, axis: Axis, cluster: int, places: FloatArray, others: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """(draws, points) the regression of a cluster along an axis in each draw, and (draws,) the draws' weights.

    Of classes and counts, it is the probability or the rate. Arguments as in `axis_line`.
    """
    by_draw, weight = _line_by_draw(model, cluster, features_along(model, axis, places, others))
    return model.posterior_.likelihood.family.to_response(by_draw), weight


def cluster_means(model: FittedModel, cluster: int, X: FloatArray) -> FloatArray:
    """(rows,) the mean of `axis_line` at any features X (rows, n_features_in_)."""
    family = model.posterior_.likelihood.family
    means = np.empty(len(X))
    for start in range(0, len(X), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        by_draw, weight = _line_by_draw(model, cluster, X[rows])
        means[rows] = weight @ family.to_response(by_draw) / weight.sum()
    return means


def axis_change(
    model: FittedModel, axis: Axis, cluster: int, places: FloatArray | None = None, level: float = INTERVAL_LEVEL
) -> AxisLine:
    """The change of the target along an axis, against that at average features.

    Of classes and counts, it is the change of the log odds or of the log rate. Arguments as in `axis_line`.
    """
    places = axis.grid() if places is None else places
    X = np.vstack([features_along(model, axis, places), model.feature_means_])
    by_draw, weight = _line_by_draw(model, cluster, X)
    return AxisLine(axis, places, *_averaged(by_draw[:, :-1] - by_draw[:, -1:], weight, level))


def usual_values(model: FittedModel, feature: int) -> FloatArray:
    """Evenly spaced values of a feature, over most of its fitted range."""
    return np.linspace(*wide_ends(model, feature, SPREADS_SHOWN), N_VALUES)


def feature_curve(model: FittedModel, feature: int, cluster: int, x: FloatArray, level: float) -> FeatureCurve:
    """The effect of the feature at this position at the values x, in the user's units."""
    X = np.repeat(model.feature_means_[None], 1 + len(x), axis=0)
    X[1:, feature] = x
    by_draw, weight = _line_by_draw(model, cluster, X)
    return FeatureCurve(x, *_averaged(by_draw[:, 1:] - by_draw[:, :1], weight, level))


def features_along(model: FittedModel, axis: Axis, places: FloatArray, others: FloatArray | None = None) -> FloatArray:
    """(points, n_features_in_) the model's features at places of an axis; other features have their means.

    With `others` (entities, n_features_in_), it is (entities, points, n_features_in_).
    Products of a formula follow their factors, so that the line of `price` in `price*brand` has the mean slope of the
    brands, and that of `brand` is at the mean price.
    """
    others = model.feature_means_ if others is None else others
    X = np.repeat(others[..., None, :], len(places), axis=-2)
    X[..., list(axis.columns)] = axis.features(places)
    for feature, factors in products_of(model):
        if feature not in axis.columns and not set(factors).isdisjoint(axis.columns):
            X[..., feature] = X[..., factors].prod(axis=-1)
    return X


def products_of(model: FittedModel) -> list[tuple[int, list[int]]]:
    """Positions of features that are products of others, by a formula, each with the positions of its factors."""
    recipe = model.recipe_
    return [] if recipe is None or recipe.terms is None else product_features(recipe.terms, recipe.categorical)


def _line_by_draw(model: FittedModel, cluster: int, X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(draws, points) the regression of a cluster in each draw, and the weights of the draws."""
    posterior = model.posterior_
    units = model.posterior_.standardization
    design = X if units.curves is None else units.curves.expand(X)
    coef, mass = coef_by_draw(posterior.draws, model.alignment_)
    slopes = units.feature_slopes(posterior.layout, coef[:, cluster]).copy()
    slopes[:, : model.n_features_in_], intercepts = to_user_units(model, coef[:, cluster])
    return intercepts[:, None] + slopes @ design.T, mass[:, cluster]


def _averaged(by_draw: FloatArray, weight: FloatArray, level: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean over the draws (draws, points), and ends of the interval; NaN if there is only one draw."""
    mean = weight @ by_draw / weight.sum()
    weight = weight if len(weight) > 1 else np.zeros_like(weight)
    return mean, *central_interval(by_draw, np.broadcast_to(weight[:, None], by_draw.shape), level)


def axis_strengths(model: FittedModel, axes: tuple[Axis, ...]) -> FloatArray:
    """(clusters, axes) how much each axis moves the target: the standard deviation of its effect over the events.

    Of classes and counts, it is that of the log odds or of the log rate. Products of a formula follow the axes of their
    factors, so their own axes move nothing.
    """
    curves = model.posterior_.standardization.curves
    covariance = np.diag(model.feature_spreads_**2)
    coef = model.coef_
    if len(model.posterior_.memory.entities):
        covariance = feature_covariance(model, model.posterior_.memory.entities.pooled_gram)
    variances = np.zeros((model.n_clusters_, len(axes)))
    for a, axis in enumerate(axes):
        columns = list(axis.columns)
        own = coef[:, columns]
        variances[:, a] = np.einsum("kf,fg,kg->k", own, covariance[np.ix_(columns, columns)], own)
        for f in columns:
            if curves is not None and (place := curves.place(f)) is not None:
                # the functions of a curve have mean square one, and are uncorrelated with each other and the line
                variances[:, a] += (model.curve_coef_[:, curves.span(place)] ** 2).sum(axis=1)
    followers = {feature for feature, _ in products_of(model)}
    variances[:, [not followers.isdisjoint(axis.columns) for axis in axes]] = 0.0
    return np.sqrt(np.maximum(variances, 0.0))


def axis_is_clear(model: FittedModel, axes: tuple[Axis, ...]) -> NDArray[np.bool_]:
    """(clusters, axes) whether the interval of any of the axis' features leaves out no change."""
    lower, upper = change_intervals(model)
    clear = (lower > 0.0) | (upper < 0.0)
    return np.stack([clear[:, list(axis.columns)].any(axis=1) for axis in axes], axis=1)


def feature_covariance(model: FittedModel, gram: FloatArray) -> FloatArray:
    """(features, features) covariance of the features over the events of a packed Gram matrix."""
    layout = model.posterior_.layout
    units = model.posterior_.standardization
    n = model.n_features_in_
    moments = layout.unpack(gram)[: 1 + n, : 1 + n] / layout.n_events(gram)
    scale = np.where(np.isfinite(units.scale[:n]), units.scale[:n], 0.0)
    return np.asarray((moments[1:, 1:] - np.outer(moments[0, 1:], moments[0, 1:])) * np.outer(scale, scale))


def entity_line(
    model: FittedModel,
    axis: Axis,
    entity: int,
    places: FloatArray | None = None,
    level: float = INTERVAL_LEVEL,
    others: FloatArray | None = None,
) -> AxisLine:
    """What the model expects of a fitted entity along an axis, without the noise of events.

    The interval is that of the entity's own regression, over draws, labels and effects; of classes, of its probability,
    and of counts, of its rate.

    Parameters
    ----------
    model : fitted
    axis : one of `feature_axes(model)`
    entity : position of the entity, as in `pair_ids_`
    places, level : as in `axis_line`
    others : (n_features_in_,) values of the other features; None is their means over the entity's own events
    """
    places = axis.grid() if places is None else places
    others = entity_feature_means(model, np.array([entity]))[0] if others is None else others
    X = features_along(model, axis, places, others)
    return AxisLine(axis, places, *expected_of_entities(model, np.full(len(X), entity), X, level).T)


def expected_of_entities(
    model: FittedModel, entities: IndexArray, X: FloatArray, level: float = INTERVAL_LEVEL
) -> FloatArray:
    """(rows, 3) what the model expects of fitted entities at rows of features: mean, lower and upper end.

    It is without the noise of events, as in `entity_line`. The ends are NaN if there is only one draw.

    Parameters
    ----------
    entities : (rows,) positions of the entities, as in `pair_ids_`
    X : (rows, n_features_in_) features
    level : probability of the interval
    """
    posterior = model.posterior_
    restore = posterior.standardization.restore_target
    is_rate = posterior.likelihood.family.has_exposure
    agents = np.asarray(posterior.memory.entities.index.agent_of[entities], dtype=np.int64)
    out = np.full((len(X), 3), np.nan)
    for part in posterior.mixtures(X, Profiles.of(agents, np.asarray(entities, dtype=np.int64))):
        found = moments_of(_noiseless(part), interval_ends(level))
        mean = restore(found.mean)
        ends = restore(found.quantiles)
        if is_rate:
            # the mixture of log rates; the mean of the rate itself is that of the counts
            mean = moments_of(part, ()).mean
            ends = np.exp(ends)
        out[part.rows, 0] = mean
        if len(posterior.draws) > 1:
            out[part.rows, 1:] = ends
    return out


def entity_feature_means(model: FittedModel, entities: IndexArray) -> FloatArray:
    """(entities, n_features_in_) means of the features over the fitted events of some entities.

    Those of an entity without events are the means over all events.
    """
    posterior = model.posterior_
    n = model.n_features_in_
    units = posterior.standardization
    layout = posterior.layout
    grams = np.asarray(posterior.memory.entities.grams[entities])
    n_events = layout.n_events(grams)[:, None]
    scale = np.where(np.isfinite(units.scale[:n]), units.scale[:n], 0.0)
    means = units.shift[:n] + scale * layout.unpack(grams)[:, 0, 1 : 1 + n] / np.maximum(n_events, 1e-300)
    return np.where(n_events > 0.0, means, model.feature_means_)


def entity_strengths(model: FittedModel, axes: tuple[Axis, ...], entity: int) -> FloatArray:
    """(axes,) how much each axis moves the target: the standard deviation of its effect over the entity's own events.

    So a feature that is the same in all of its events moves nothing.
    """
    posterior = model.posterior_
    units = posterior.standardization
    layout = posterior.layout
    entities = posterior.memory.entities
    gram = np.asarray(entities.grams[entity])
    covariance = feature_covariance(model, gram if layout.n_events(gram) > 0.0 else entities.pooled_gram)
    rows = _entity_rows(model, entity, model.feature_means_[None])
    mean, _ = coef_moments(rows.mixture, np.zeros((1, layout.n_coef)), entities.n_threads)
    slopes = np.append(to_user_units(model, mean[0])[0], units.feature_slopes(layout, mean[0])[layout.n_inputs :])
    variances = np.zeros(len(axes))
    for a, axis in enumerate(axes):
        columns = list(axis.columns)
        variances[a] = slopes[columns] @ covariance[np.ix_(columns, columns)] @ slopes[columns]
        for f in columns:
            if units.curves is not None and (place := units.curves.place(f)) is not None:
                bends = slopes[model.n_features_in_ :][units.curves.span(place)]
                # a curve bends less over a part of its range
                share = covariance[f, f] / max(float(model.feature_spreads_[f]) ** 2, 1e-300)
                variances[a] += min(share, 1.0) * (bends**2).sum()
    return np.sqrt(np.maximum(variances, 0.0))


def _entity_rows(model: FittedModel, entity: int, X: FloatArray) -> MixtureRows:
    """The predictive mixture of an entity, at rows of features."""
    posterior = model.posterior_
    index = model.posterior_.memory.entities.index
    one = np.array([entity], dtype=np.int64)
    profiles = Profiles(np.asarray(index.agent_of[one], dtype=np.int64), one, np.zeros(len(X), dtype=np.int64))
    (part,) = posterior.mixtures(X, profiles)
    return part


def _noiseless(part: MixtureRows) -> MixtureRows:
    """The same mixture for the regression itself; of counts, for the log rate."""
    mixture: Any = part.mixture
    if isinstance(mixture, Mixture):
        return part._replace(mixture=mixture._replace(scales=np.full_like(mixture.scales, np.sqrt(NO_VARIANCE))))
    if isinstance(mixture, CountMixture):
        mixture = mixture.own
    if hasattr(mixture, "noise"):
        mixture = mixture._replace(noise=np.full_like(mixture.noise, NO_VARIANCE))
    return part._replace(mixture=mixture)


@dataclass(frozen=True)
class TargetAxis:
    """How to label values of the target: as they are, or with their logarithm undone.

    Attributes
    ----------
    name : of the values shown, for a label
    base, offset : of the logarithm that the target is by its name; base None if it is none
    family : of the target; the values of classes are probabilities, and those of counts are means
    """

    name: str
    base: float | None
    offset: float
    family: Family

    @property
    def is_log(self) -> bool:
        return self.base is not None

    def ticks(self, low: float, high: float, most: int = 5) -> list[tuple[float, str]]:
        """(value on the model's scale, text) of the ticks between two values."""
        if self.base is None:
            values = nice_ticks(low, high, most)
            if self.family.has_classes:
                return [(value, f"{100.0 * value:.6g} %") for value in values]
            return [(value, tick_text(value)) for value in values]
        shown = log_ticks(self.base**low, self.base**high, most)
        return [(float(np.log(value) / np.log(self.base)), tick_text(value - self.offset)) for value in shown]

    def text(self, value: float) -> str:
        """A value for a sentence, in the units of the axis."""
        return self.family.in_words(value if self.base is None else self.base**value - self.offset)


def target_axis(model: FittedModel) -> TargetAxis:
    """The axis of a model's target."""
    link = link_of(model)
    found = None if link.family.has_link else base_of_log(target_name(model))
    if found is None or target_spread(model) * np.log(found[0]) > LARGEST_LOG:
        return TargetAxis(link.response, None, 0.0, link.family)
    base, offset, own = found
    return TargetAxis(own, base, offset, link.family)
