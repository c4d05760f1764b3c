"""The effect of one feature in one cluster, as a function of the feature: its straight line and its curve."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import FEATURE, listed
from fedhlcr.analysis.feature_ranges import wide_ends
from fedhlcr.exceptions import ArgumentError
from fedhlcr.posterior.alignment import central_interval, coef_by_draw
from fedhlcr.posterior.fitted_model import FittedModel

N_POINTS = 101
# Features without a curve are shown this many standard deviations to either side of their mean.
SPREADS_SHOWN = 2.0


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


def feature_curve(model: FittedModel, feature: int, cluster: int, x: FloatArray, level: float) -> FeatureCurve:
    """The effect of the feature at this position at the values x, in the user's units."""
    posterior = model.posterior_
    layout = posterior.layout
    units = posterior.standardization
    mean = model.feature_means_[feature]
    curves = units.curves
    columns = [feature]
    design = (x - mean)[:, None]
    if curves is not None and (place := curves.place(feature)) is not None:
        spline = curves.splines[place]
        span = curves.span(place)
        columns += range(curves.n_inputs + span.start, curves.n_inputs + span.stop)
        design = np.column_stack([design, spline.evaluate(x) - spline.evaluate(np.array([mean]))])
    coef, mass = coef_by_draw(posterior.draws, model.alignment_)
    slopes = units.feature_slopes(layout, coef)[:, cluster, columns]
    by_draw = slopes @ design.T
    weight = mass[:, cluster]
    effect = weight @ by_draw / weight.sum()
    weight = weight if len(weight) > 1 else np.zeros_like(weight)
    return FeatureCurve(x, effect, *central_interval(by_draw, np.broadcast_to(weight[:, None], by_draw.shape), level))


def usual_values(model: FittedModel, feature: int) -> FloatArray:
    """Evenly spaced values of a feature, over most of its fitted range."""
    return np.linspace(*wide_ends(model, feature, SPREADS_SHOWN), N_POINTS)


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
