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

from typing import Protocol

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr.data.recipe import Recipe
from fedhlcr.posterior.prediction import Posterior


class HasUnits(Protocol):
    """What is asked of a fitted model here."""

    @property
    def posterior_(self) -> Posterior: ...

    @property
    def recipe_(self) -> Recipe | None: ...

    @property
    def feature_means_(self) -> FloatArray: ...

    @property
    def feature_spreads_(self) -> FloatArray: ...


def to_user_units(model: HasUnits, coef: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Slopes (..., n_features_in_) and intercepts (...) of standardised coefficients (..., n_coef)."""
    slopes, intercepts = model.posterior_.standardization.to_user_units(model.posterior_.layout, coef)
    if (determined := _determined(model)) is not None:
        both = np.concatenate([intercepts[..., None], slopes], axis=-1) @ determined.T
        slopes = both[..., 1:]
        intercepts = both[..., 0]
    return slopes, intercepts


def coef_transform(model: HasUnits, at: FloatArray) -> FloatArray:
    """(1 + n_features_in_, n_coef) T, so that T·coef is the prediction at the features `at`, and then the slopes.

    The prediction is without the target's shift and without curves; see `Standardization.coef_transform`.
    """
    layout = model.posterior_.layout
    units = model.posterior_.standardization
    if (determined := _determined(model)) is None:
        return units.coef_transform(layout, at)
    transform = determined @ units.coef_transform(layout, np.zeros_like(at))
    transform[0] += at @ transform[1:]
    return transform


def _determined(model: HasUnits) -> FloatArray | None:
    """A (1 + n_features_in_, 1 + n_features_in_) matrix that takes intercept and slopes to those that data determine.

    Each set of redundant features has a direction r along which no prediction changes, and shares s with which its
    coefficients should have mean zero. With both as rows of R and S, it is I − Rᵀ (S Rᵀ)⁺ S. None if there are no such
    features.
    """
    has_intercept = model.posterior_.layout.fit_intercept
    found = [] if model.recipe_ is None else model.recipe_.level_features(has_intercept=has_intercept)
    if not found:
        return None
    means = model.feature_means_
    directions, shares = np.zeros((2, len(found), 1 + len(means)))
    for row, (features, indicators, totals) in enumerate(found):
        # combinations of levels that never occur say nothing
        occurs = (means[features] != 0.0).astype(np.float64)
        own = np.clip(means[indicators], 0.0, 1.0) * occurs if indicators else occurs
        own = own if own.any() else np.ones(len(features))
        shares[row, 1 + np.array(features)] = own / own.sum()
        directions[row, 1 + np.array(features)] = 1.0
        directions[row, 1 + np.array(totals) if totals else 0] = -1.0
    return np.asarray(np.eye(1 + len(means)) - directions.T @ np.linalg.pinv(shares @ directions.T) @ shares)
