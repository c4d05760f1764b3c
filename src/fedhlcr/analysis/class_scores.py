"""How good predicted probabilities are: log loss, AUC, Brier score, accuracy and calibration."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.special import betaincinv
from fedhlcr.posterior.predictive import interval_ends

# Bins of a calibration table, and the probability of the intervals in it.
N_BINS = 10
BIN_LEVEL = 0.9
# Probabilities are kept this far from 0 and 1, so that the log loss is finite; the same as in scikit-learn.
SMALLEST_PROBABILITY = float(np.finfo(np.float64).eps)


class CalibrationBin(NamedTuple):
    """Events of similar predicted probability, and how often the second class was observed among them.

    Attributes
    ----------
    n_events : number of events
    predicted : mean of their predicted probabilities
    observed : share of them that are of the second class
    lower, upper : 90 % interval of the probability behind that share (Jeffreys)
    """

    n_events: int
    predicted: float
    observed: float
    lower: float
    upper: float


class ClassScores(NamedTuple):
    """Scores of predicted probabilities of the second class.

    Attributes
    ----------
    n_events : number of events
    share : share of the events that are of the second class
    log_loss : minus the mean log probability of the observed class, in nats
    auc : probability that an event of the second class has a higher prediction than one of the first; NaN if the
        events are all of one class
    brier : mean squared difference between probability and outcome
    accuracy : share of the events whose more probable class was observed
    calibration_error : expected calibration error: mean over events of |predicted − observed| in the bins of
        `calibration_bins`
    """

    n_events: int
    share: float
    log_loss: float
    auc: float
    brier: float
    accuracy: float
    calibration_error: float

    @property
    def d2(self) -> float:
        """Share of the log loss that is gone, of one probability for all events: their share, as in scikit-learn.

        NaN if the events are all of one class.
        """
        if self.share in (0.0, 1.0):
            return float("nan")
        entropy = -self.share * np.log(self.share) - (1.0 - self.share) * np.log1p(-self.share)
        return float(1.0 - self.log_loss / entropy)

    @classmethod
    def of(cls, y: FloatArray, probability: FloatArray) -> ClassScores:
        """Scores of probabilities of a 1, given outcomes y, which are 0 or 1."""
        clipped = np.clip(probability, SMALLEST_PROBABILITY, 1.0 - SMALLEST_PROBABILITY)
        bins = calibration_bins(y, probability)
        apart = sum(part.n_events * abs(part.predicted - part.observed) for part in bins)
        return cls(
            n_events=len(y),
            share=float(y.mean()),
            log_loss=-float(np.log(np.where(y == 1.0, clipped, 1.0 - clipped)).mean()),
            auc=_auc(y, probability),
            brier=float(((probability - y) ** 2).mean()),
            accuracy=float(((probability > 0.5) == (y == 1.0)).mean()),
            calibration_error=apart / len(y),
        )


def calibration_bins(y: FloatArray, probability: FloatArray, n_bins: int = N_BINS) -> list[CalibrationBin]:
    """Bins of about equally many events, by predicted probability, in ascending order.

    Events of equal probability share a bin, so there may be fewer bins than `n_bins`.
    """
    # ties have the same rank
    place = np.floor((_ranks(probability) - 0.5) * n_bins / len(probability))
    return [_bin(y[place == b], probability[place == b]) for b in np.unique(place)]


def _bin(y: FloatArray, probability: FloatArray) -> CalibrationBin:
    n = len(y)
    ones = float(y.sum())
    low, high = (betaincinv(ones + 0.5, n - ones + 0.5, end) for end in interval_ends(BIN_LEVEL))
    lower = float(low) if ones > 0.0 else 0.0
    upper = float(high) if ones < n else 1.0
    return CalibrationBin(n, float(probability.mean()), ones / n, lower, upper)


def _auc(y: FloatArray, probability: FloatArray) -> float:
    second: NDArray[np.bool_] = y == 1.0
    n_second = int(second.sum())
    n_first = int((~second).sum())
    if not n_second or not n_first:
        return float("nan")
    wins = _ranks(probability)[second].sum() - n_second * (n_second + 1) / 2
    return float(wins / (n_second * n_first))


def _ranks(values: FloatArray) -> FloatArray:
    """Ranks from 1, their mean where values are equal."""
    # imported here, because it takes half a second to import
    from scipy.stats import rankdata

    return np.asarray(rankdata(values))
