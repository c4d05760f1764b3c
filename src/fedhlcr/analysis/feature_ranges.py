"""Usual values of features: what a sentence compares, and what an axis covers.

A fit to a whole table keeps quantiles of its features. A federation knows only sums, since a quantile is the value of
an event. Its ranges follow from means and standard deviations.
"""

from __future__ import annotations

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr.model.curves import QUANTILE_LEVELS
from fedhlcr.posterior.fitted_model import FittedModel

# Positions of the quantiles nearest to 16 % and 84 %: a standard deviation to either side of a normal mean.
LOW, HIGH = (int(np.abs(QUANTILE_LEVELS - level).argmin()) for level in (0.16, 0.84))
# A mean closer to zero than this, in standard deviations, is that of a feature around zero.
CENTRED = 0.05
# A range of usual values that is narrower than this, in standard deviations, says nothing of the others.
NARROW = 0.2


def usual_ends(model: FittedModel, feature: int, *, is_log: bool = False) -> tuple[float, float]:
    """A low and a high value of a feature with about two thirds of the events between.

    Of a logarithm, both signs are usual.
    """
    quantiles = known_quantiles(model, feature)
    if quantiles is not None:
        # more than two thirds of the events may have about the same value
        least = NARROW * float(model.feature_spreads_[feature])
        for low, high in ((quantiles[LOW], quantiles[HIGH]), (quantiles[0], quantiles[-1])):
            if high - low > least:
                return float(low), float(high)
    ends = _around(model, feature, 1.0)
    return ends if is_log else _one_sided(*ends)


def wide_ends(model: FittedModel, feature: int, spreads: float) -> tuple[float, float]:
    """The ends of an axis that covers most events; without quantiles, so many standard deviations around the mean."""
    quantiles = known_quantiles(model, feature)
    if quantiles is not None and quantiles[-1] > quantiles[0]:
        return float(quantiles[0]), float(quantiles[-1])
    return _around(model, feature, spreads)


def known_quantiles(model: FittedModel, feature: int) -> FloatArray | None:
    """(N_QUANTILES,) quantiles of a feature, of a curve or of the fit; None if the model has none."""
    curves = model.posterior_.standardization.curves
    place = None if curves is None else curves.place(feature)
    if curves is not None and place is not None:
        return np.asarray(curves.quantiles[place])
    return None if model.feature_quantiles_ is None else np.asarray(model.feature_quantiles_[feature])


def is_whole(model: FittedModel, feature: int) -> bool:
    """Whether all known quantiles of a feature are whole numbers, as those of a count."""
    quantiles = known_quantiles(model, feature)
    return quantiles is not None and bool((quantiles == np.round(quantiles)).all())


def _around(model: FittedModel, feature: int, spreads: float) -> tuple[float, float]:
    """So many standard deviations around the mean."""
    mean = float(model.feature_means_[feature])
    margin = spreads * float(model.feature_spreads_[feature])
    return mean - (margin or 1.0), mean + (margin or 1.0)


def _one_sided(low: float, high: float) -> tuple[float, float]:
    """A range around a mean without values that may be impossible.

    If it includes zero, and its mean is not about zero, all values may have one sign: a mean of 3 children with a
    standard deviation of 5 does not make −2 a usual number. Then the range starts at the mean.
    """
    mean = (low + high) / 2.0
    if not low < 0.0 < high or abs(mean) <= CENTRED * (high - mean):
        return low, high
    return (mean, high) if mean > 0.0 else (low, mean)
