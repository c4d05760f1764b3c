"""Regressions of clusters and entities in the user's units, with coefficients that the data determine.

A category of three or more levels has an indicator for each level, and exactly one of them is 1. So any number can be
added to its coefficients and taken from the intercept: no prediction changes, only the prior knows which number was
meant, and intervals are as wide as the prior. We report the coefficients whose mean over the events is zero: a
coefficient is then the difference of its level from the average event. The mean goes into the intercept. The same holds
for slopes: those of `price:brand` are differences from the slope of `price`, if a formula has both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.data.recipe import Recipe
from fedhlcr.posterior.prediction import Posterior


class HasUnits(Protocol):
    """What is asked of a fitted model here."""

    posterior_: Posterior
    recipe_: Recipe | None
    feature_means_: FloatArray
    feature_spreads_: FloatArray


class Redundant(NamedTuple):
    """Features, one for each level of a category, that add up to another one.

    Attributes
    ----------
    features : their positions
    shares : of the events at each level; they add up to 1
    total : position of the feature that they add up to; None is the intercept
    """

    features: IndexArray
    shares: FloatArray
    total: int | None


def redundant_features(model: HasUnits) -> Iterator[Redundant]:
    """The features whose coefficients the data alone do not determine."""
    found = [] if model.recipe_ is None else model.recipe_.level_features()
    indicators = {category: features for category, features, total in found if total is None}
    for category, features, total in found:
        if total is None and not model.posterior_.layout.fit_intercept:
            continue
        shares = np.clip(model.feature_means_[indicators.get(category, [])], 0.0, 1.0)
        if len(shares) != len(features) or not shares.any():
            shares = np.ones(len(features))
        yield Redundant(np.array(features), shares / shares.sum(), total)


def to_user_units(model: HasUnits, coef: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Slopes (..., n_features_in_) and intercepts (...) of standardised coefficients (..., n_coef)."""
    slopes, intercepts = model.posterior_.standardization.to_user_units(model.posterior_.layout, coef)
    slopes = slopes.copy()
    for features, shares, total in redundant_features(model):
        mean = slopes[..., features] @ shares
        slopes[..., features] -= mean[..., None]
        if total is None:
            intercepts = intercepts + mean
        else:
            slopes[..., total] += mean
    return slopes, intercepts


def coef_transform(model: HasUnits, at: FloatArray) -> FloatArray:
    """(1 + n_features_in_, n_coef) T, so that T·coef is the prediction at the features `at`, and then the slopes.

    The prediction is without the target's shift and without curves; see `Standardization.coef_transform`.
    """
    transform = model.posterior_.standardization.coef_transform(model.posterior_.layout, at)
    for features, shares, total in redundant_features(model):
        mean = shares @ transform[1 + features]
        transform[1 + features] -= mean
        if total is not None:
            transform[1 + total] += mean
        # nothing, if the features at `at` add up to what they should
        transform[0] += ((1.0 if total is None else at[total]) - at[features].sum()) * mean
    return transform
