"""Regressions of clusters and entities in the user's units, with coefficients that the data determine.

A category of three or more levels has an indicator for each level, and exactly one of them is 1. So any number can be
added to its coefficients and taken from the intercept: no prediction changes, only the prior knows which number was
meant, and intervals are as wide as the prior. We report the coefficients whose mean over the events is zero: a
coefficient is then the difference of its level from the average event. The mean goes into the intercept.
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


class WholeCategory(NamedTuple):
    """A category with an indicator for each level: positions of its features, and shares of the events."""

    features: IndexArray
    shares: FloatArray


def whole_categories(model: HasUnits) -> Iterator[WholeCategory]:
    """The categories whose indicators always add up to 1. Without an intercept, their coefficients are determined."""
    if model.recipe_ is None or not model.posterior_.layout.fit_intercept:
        return
    for features in model.recipe_.whole_categories():
        shares = np.clip(model.feature_means_[features], 0.0, 1.0)
        total = shares.sum()
        yield WholeCategory(features, shares / total if total else np.full(len(shares), 1.0 / len(shares)))


def to_user_units(model: HasUnits, coef: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Slopes (..., n_features_in_) and intercepts (...) of standardised coefficients (..., n_coef)."""
    slopes, intercepts = model.posterior_.standardization.to_user_units(model.posterior_.layout, coef)
    slopes = slopes.copy()
    for features, shares in whole_categories(model):
        mean = slopes[..., features] @ shares
        slopes[..., features] -= mean[..., None]
        intercepts = intercepts + mean
    return slopes, intercepts


def coef_transform(model: HasUnits, at: FloatArray) -> FloatArray:
    """(1 + n_features_in_, n_coef) T, so that T·coef is the prediction at the features `at`, and then the slopes.

    The prediction is without the target's shift and without curves; see `Standardization.coef_transform`.
    """
    transform = model.posterior_.standardization.coef_transform(model.posterior_.layout, at)
    for features, shares in whole_categories(model):
        mean = shares @ transform[1 + features]
        transform[1 + features] -= mean
        # nothing, if exactly one of the indicators is 1
        transform[0] += (1.0 - at[features].sum()) * mean
    return transform
