"""Regressions of clusters and entities in the user's units, with coefficients that the data determine.

A category of three or more levels has an indicator for each level, and exactly one of them is 1. So any number can be
added to its coefficients and taken from the intercept: no prediction changes, only the prior knows which number was
meant, and intervals are as wide as the prior. We report the coefficients whose mean over the events is zero: a
coefficient is then the difference of its level from the average event. The mean goes into the intercept. The same holds
for products: the slopes of `price:brand` are differences from the slope of `price`, if a formula has both, and
coefficients of `brand:size` from those of `brand` and of `size`. Without an intercept, the means go into the levels of
the first category.
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
    """Features, one for each level of a category, that add up to others.

    Attributes
    ----------
    features : their positions
    shares : of the events at each level; they add up to 1
    totals : positions of the features that they add up to; none is the intercept
    """

    features: IndexArray
    shares: FloatArray
    totals: IndexArray


def redundant_features(model: HasUnits) -> Iterator[Redundant]:
    """The features whose coefficients the data alone do not determine; those of the largest terms first."""
    if model.recipe_ is None:
        return
    means = model.feature_means_
    for features, indicators, totals in model.recipe_.level_features(
        has_intercept=model.posterior_.layout.fit_intercept
    ):
        # combinations of levels that never occur say nothing
        occurs = (means[features] != 0.0).astype(np.float64)
        shares = np.clip(means[indicators], 0.0, 1.0) * occurs if indicators else occurs
        shares = shares if shares.any() else np.ones(len(features))
        yield Redundant(np.array(features), shares / shares.sum(), np.array(totals, dtype=np.intp))


def to_user_units(model: HasUnits, coef: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Slopes (..., n_features_in_) and intercepts (...) of standardised coefficients (..., n_coef)."""
    slopes, intercepts = model.posterior_.standardization.to_user_units(model.posterior_.layout, coef)
    slopes = slopes.copy()
    for features, shares, totals in redundant_features(model):
        mean = slopes[..., features] @ shares
        slopes[..., features] -= mean[..., None]
        if len(totals):
            slopes[..., totals] += mean[..., None]
        else:
            intercepts = intercepts + mean
    return slopes, intercepts


def coef_transform(model: HasUnits, at: FloatArray) -> FloatArray:
    """(1 + n_features_in_, n_coef) T, so that T·coef is the prediction at the features `at`, and then the slopes.

    The prediction is without the target's shift and without curves; see `Standardization.coef_transform`.
    """
    transform = model.posterior_.standardization.coef_transform(model.posterior_.layout, at)
    for features, shares, totals in redundant_features(model):
        mean = shares @ transform[1 + features]
        transform[1 + features] -= mean
        transform[1 + totals] += mean
        # nothing, if the features at `at` add up to what they should
        transform[0] += ((at[totals].sum() if len(totals) else 1.0) - at[features].sum()) * mean
    return transform
