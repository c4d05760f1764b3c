"""How good predicted counts are: Poisson deviance, errors, and coverage of intervals."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.special import xlogy

# A predicted mean of 0 would make any positive count impossible.
SMALLEST_MEAN = 1e-300


class CountScores(NamedTuple):
    """Scores of predicted mean counts, and coverage of intervals of whole numbers.

    Attributes
    ----------
    n_events : number of events
    deviance : mean Poisson deviance, 2 (y log(y/μ) − y + μ); 0 for a perfect prediction
    d2 : share of the deviance around the mean count that is explained, as in scikit-learn; NaN if all counts are equal
    mae : mean absolute error
    coverage : share of the counts inside their intervals of probability `level`, both ends included
    width : mean difference between the two ends
    level : probability of the intervals
    """

    n_events: int
    deviance: float
    d2: float
    mae: float
    coverage: float
    width: float
    level: float

    @classmethod
    def of(cls, y: FloatArray, mean: FloatArray, lower: FloatArray, upper: FloatArray, level: float) -> CountScores:
        """Scores of predicted means and of intervals, given the counts y."""
        deviance = poisson_deviance(y, mean)
        return cls(
            n_events=len(y),
            deviance=deviance,
            d2=explained_deviance(y, deviance),
            mae=float(np.abs(y - mean).mean()),
            coverage=float(((lower <= y) & (y <= upper)).mean()),
            width=float((upper - lower).mean()),
            level=level,
        )


def poisson_deviance(y: FloatArray, mean: FloatArray) -> float:
    """Mean Poisson deviance of counts y around their predicted means."""
    mean = np.maximum(mean, SMALLEST_MEAN)
    return float(2.0 * (xlogy(y, y / mean) - y + mean).mean())


def explained_deviance(y: FloatArray, deviance: float) -> float:
    """D²: the share of the deviance around the mean count that is gone; NaN if all counts are equal."""
    if np.ptp(y) == 0.0:
        return float("nan")
    return 1.0 - deviance / poisson_deviance(y, np.full(len(y), y.mean()))
