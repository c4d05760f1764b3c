"""The regression of one entity along an axis, with its interval: what the model knows of it beyond its cluster."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr.analysis.axes import Axis
from fedhlcr.analysis.axis_lines import AxisLine, features_along
from fedhlcr.analysis.effects import INTERVAL_LEVEL
from fedhlcr.analysis.links import link_of
from fedhlcr.kernels.mixtures import Mixture
from fedhlcr.kernels.responses import CountMixture
from fedhlcr.posterior.entity_coef import coef_moments
from fedhlcr.posterior.fitted_model import FittedModel
from fedhlcr.posterior.prediction import Profiles
from fedhlcr.posterior.predictive import MixtureRows, interval_ends
from fedhlcr.posterior.responses import moments_of

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
    others = entity_feature_moments(model, entity)[0] if others is None else others
    part = _noiseless(_entity_rows(model, entity, features_along(model, axis, places, others)))
    found, restore = moments_of(part, interval_ends(level)), model.posterior_.standardization.restore_target
    mean, (lower, upper) = restore(found.mean), restore(found.quantiles).T
    link = link_of(model)
    if link is not None and not link.is_binary:
        # the mixture of log rates; the mean of the rate itself is that of the counts
        counts = moments_of(_entity_rows(model, entity, features_along(model, axis, places, others)), ())
        mean, lower, upper = counts.mean, np.exp(lower), np.exp(upper)
    if len(model.posterior_.draws) < 2:
        lower, upper = np.full_like(mean, np.nan), np.full_like(mean, np.nan)
    return AxisLine(axis, places, mean, lower, upper)


def entity_feature_moments(model: FittedModel, entity: int) -> tuple[FloatArray, FloatArray]:
    """(n_features_in_,) means and standard deviations of the features over the entity's fitted events."""
    posterior, n = model.posterior_, model.n_features_in_
    gram = np.asarray(posterior.memory.entities.grams[entity])
    if not posterior.layout.n_events(gram) > 0.0:
        return model.feature_means_, model.feature_spreads_
    means, spreads = posterior.standardization.column_moments(posterior.layout, gram)
    return means[:n], spreads[:n]


def entity_strengths(model: FittedModel, axes: tuple[Axis, ...], entity: int) -> FloatArray:
    """(axes,) how much each axis moves the target over the entity's own events.

    It is the sum of |slope| × standard deviation over the axis' features, with the standard deviations of the entity's
    own events and its own slopes. So a feature that is the same in all of its events moves nothing.
    """
    posterior = model.posterior_
    spreads = entity_feature_moments(model, entity)[1]
    rows = _entity_rows(model, entity, model.feature_means_[None])
    mean, _ = coef_moments(rows.mixture, np.zeros((1, posterior.layout.n_coef)), posterior.memory.entities.n_threads)
    slopes, _ = posterior.standardization.to_user_units(posterior.layout, mean[0])
    sizes = np.abs(slopes) * spreads
    curves = posterior.standardization.curves
    if curves is not None:
        bends = posterior.standardization.feature_slopes(posterior.layout, mean[0])[model.n_features_in_ :]
        for place, f in enumerate(curves.columns):
            share = min(spreads[f] / max(float(model.feature_spreads_[f]), 1e-300), 1.0)
            sizes[f] = np.hypot(sizes[f], share * np.sqrt((bends[curves.span(place)] ** 2).sum()))
    return np.array([sizes[list(axis.columns)].sum() for axis in axes])


def _entity_rows(model: FittedModel, entity: int, X: FloatArray) -> MixtureRows:
    """The predictive mixture of an entity, at rows of features."""
    posterior, index = model.posterior_, model.posterior_.memory.entities.index
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
