"""The regression of one entity along an axis, with its interval: what the model knows of it beyond its cluster."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.analysis.axes import Axis
from fedhlcr.analysis.axis_lines import AxisLine, feature_covariance, features_along
from fedhlcr.analysis.effects import INTERVAL_LEVEL
from fedhlcr.analysis.links import link_of
from fedhlcr.kernels.mixtures import Mixture
from fedhlcr.kernels.responses import CountMixture
from fedhlcr.posterior.entity_coef import coef_moments
from fedhlcr.posterior.fitted_model import FittedModel
from fedhlcr.posterior.prediction import Profiles
from fedhlcr.posterior.predictive import MixtureRows, interval_ends
from fedhlcr.posterior.responses import moments_of
from fedhlcr.posterior.user_units import to_user_units

# The variance, and its root, that stand for no noise: a mixture of normals needs some.
NO_VARIANCE = 1e-12


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
    link = link_of(model)
    restore = posterior.standardization.restore_target
    is_rate = link is not None and not link.family.has_classes
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
