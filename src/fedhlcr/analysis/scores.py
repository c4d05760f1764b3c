"""How good predictions are: named scores of each family of targets, of all events at once or batch by batch.

Scores of real targets and of counts follow from sums over events, overall and by group. Those of classes need the ranks
of all predictions, so outcomes and probabilities are kept, 9 bytes for each event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.special import betaincinv, xlogy
from fedhlcr._support.wording import fine_percent, number, three_decimals
from fedhlcr.data.families import Family, FamilyName
from fedhlcr.posterior.responses import interval_ends

# Bins of a calibration table, and the probability of the intervals in it.
N_BINS = 10
BIN_LEVEL = 0.9
# Probabilities are kept this far from 0 and 1, so that the log loss is finite; the same as in scikit-learn.
SMALLEST_PROBABILITY = float(np.finfo(np.float64).eps)
# A predicted mean of 0 would make any positive count impossible.
SMALLEST_MEAN = 1e-300


class Metric(NamedTuple):
    """The words for a score: the heading of its column, and what it is.

    A score is a share, shown in per cent, or in units of the target, shown with three digits, or plain, with three
    decimals.
    """

    heading: str
    meaning: str
    kind: Literal["plain", "share", "units"] = "plain"

    def text(self, value: float) -> str:
        """The score as every table shows it."""
        return {"plain": three_decimals, "share": fine_percent, "units": number}[self.kind](value)


METRICS = {
    "r2": Metric("R²", "R², share of variance explained"),
    "mse": Metric("MSE", "MSE, mean squared error", "units"),
    "mae": Metric("MAE", "MAE, mean absolute error", "units"),
    "log_density": Metric("log density", "log density"),
    "coverage": Metric("coverage", "inside intervals", "share"),
    "width": Metric("width", "mean width of intervals", "units"),
    "log_loss": Metric("log loss", "log loss"),
    "auc": Metric("AUC", "AUC, area under the ROC curve"),
    "brier": Metric("Brier", "Brier score"),
    "accuracy": Metric("accuracy", "accuracy", "share"),
    "calibration_error": Metric("calibration error", "expected calibration error"),
    "deviance": Metric("deviance", "mean Poisson deviance"),
    "d2": Metric("D²", "D², share of deviance explained"),
}


class ScoreNames(NamedTuple):
    """Which scores of a family are shown where, by their names in `METRICS`.

    Attributes
    ----------
    own : of a model
    compared : of a model and of simpler ones
    few : of a few models
    by_agent : of each agent
    worst_first : the one by which the worst agents come first
    first : the one that readers look for first
    """

    own: tuple[str, ...]
    compared: tuple[str, ...]
    few: tuple[str, ...]
    by_agent: tuple[str, ...]
    worst_first: str
    first: str


SHOWN: dict[FamilyName, ScoreNames] = {
    "real": ScoreNames(
        own=("r2", "mse", "mae", "coverage", "width"),
        compared=("r2", "mse", "mae", "log_density"),
        few=("r2", "mse", "coverage"),
        by_agent=("r2", "mse", "mae", "coverage"),
        worst_first="mse",
        first="r2",
    ),
    "binary": ScoreNames(
        own=("log_loss", "auc", "brier", "accuracy", "calibration_error"),
        compared=("log_loss", "auc", "brier"),
        few=("log_loss", "auc", "brier"),
        by_agent=("log_loss", "auc", "brier", "accuracy"),
        worst_first="log_loss",
        first="auc",
    ),
    "count": ScoreNames(
        own=("deviance", "d2", "mae", "coverage", "width"),
        compared=("deviance", "d2", "mae"),
        few=("deviance", "d2", "coverage"),
        by_agent=("deviance", "d2", "mae", "coverage"),
        worst_first="deviance",
        first="d2",
    ),
}


@dataclass(frozen=True)
class Scores:
    """Named scores of predictions.

    Attributes
    ----------
    n_events : number of events
    explained : share of the variance, of the deviance or, of classes, of the log loss of one prediction for all that is
        gone: R² or D² as in scikit-learn; NaN if all targets are equal
    figures : by name. Of real targets `r2`, `mse`, `rmse`, `mae` and, where densities are known, the mean log
        predictive density `log_density` in nats. Of counts the mean Poisson deviance `deviance`,
        2 (y log(y/μ) − y + μ), `d2` and `mae`. Of both, where intervals are known, the share `coverage` of the targets
        inside them, both ends included, their mean `width`, and their probability `level`. Of classes the `share` of
        the second class, `log_loss` in nats, `auc` (NaN if the events are all of one class), `brier`, `accuracy`, and
        the expected `calibration_error`: the mean over events of |predicted − observed| in the bins of
        `calibration_bins`.
    """

    n_events: int
    explained: float
    figures: Mapping[str, float]

    def __getitem__(self, name: str) -> float:
        return self.figures[name]

    def text(self, name: str) -> str:
        """A score as every table shows it."""
        return METRICS[name].text(self[name])

    def to_dict(self) -> dict[str, float]:
        """The number of events and the scores of a model, for JSON."""
        return {"n_events": self.n_events, **{name: value for name, value in self.figures.items() if name != "rmse"}}


def scores_of(
    family: Family,
    y: FloatArray,
    mean: FloatArray,
    ends: FloatArray | None = None,
    level: float = 0.9,
    log_density: FloatArray | None = None,
) -> Scores:
    """The scores of predicted means, or probabilities of a 1.

    Parameters
    ----------
    y : (n_events,) targets as numbers; of classes 0 and 1
    mean : (n_events,)
    ends : (n_events, 2) ends of intervals of probability `level`
    log_density : (n_events,) of real targets
    """
    running = running_scores(family, level)
    running.add(y, mean, ends, log_density=log_density)
    return running.overall()


class RunningScores(Protocol):
    """Scores that are computed batch by batch."""

    def add(
        self,
        y: FloatArray,
        mean: FloatArray,
        ends: FloatArray | None = None,
        groups: IndexArray | None = None,
        log_density: FloatArray | None = None,
    ) -> None:
        """Add events, as in `scores_of`; `groups` are the numbers of their agents."""

    def overall(self) -> Scores:
        """The scores of all events so far."""

    def of_group(self, group: int) -> Scores:
        """The scores of one group's events."""


def running_scores(family: Family, level: float = 0.9) -> RunningScores:
    """Return empty scores for a family of targets, with intervals of probability `level`."""
    return ClassRows() if family.has_classes else _Sums(*_SUMMED[family.name], level)


def _real_columns(y: FloatArray, mean: FloatArray) -> dict[str, FloatArray]:
    return {"squared": (y - mean) ** 2}


def _real_figures(sums: dict[str, float], *, is_constant: bool) -> tuple[float, dict[str, float]]:
    n = sums["n"]
    spread = 0.0 if is_constant else sums["square_deviation"] / n - (sums["deviation"] / n) ** 2
    mse = sums["squared"] / n
    r2 = 1.0 - mse / spread if spread > 0.0 else float("nan")
    return r2, {"r2": r2, "mse": mse, "rmse": float(np.sqrt(mse))}


def _count_columns(y: FloatArray, mean: FloatArray) -> dict[str, FloatArray]:
    return {"unlikely": -log_fit_of_counts(y, mean), "count": y, "count_log_count": xlogy(y, y)}


def _count_figures(sums: dict[str, float], *, is_constant: bool) -> tuple[float, dict[str, float]]:
    n = sums["n"]
    deviance = 2.0 * sums["unlikely"] / n
    d2 = float("nan")
    if not is_constant:
        # deviances around the mean count μ add up to 2 (Σ y log y − log μ Σ y)
        d2 = 1.0 - deviance * n / (2.0 * (sums["count_log_count"] - xlogy(sums["count"], sums["count"] / n)))
    return d2, {"deviance": deviance, "d2": d2}


_SUMMED: dict[FamilyName, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "real": (_real_columns, _real_figures),
    "count": (_count_columns, _count_figures),
}


class _Sums:
    """Sums of several figures by group, and the range of the targets.

    Deviations are from the group's first target, so that squares lose no digits.

    Parameters
    ----------
    columns : what each event adds to the sums of a family, from targets and means
    figures : the share explained and the scores that follow from sums
    level : probability of the intervals
    """

    def __init__(self, columns: Callable[..., Any], figures: Callable[..., Any], level: float) -> None:
        self._columns = columns
        self._figures = figures
        self._level = level
        self._sums: dict[str, FloatArray] = {}
        self._low = np.zeros(0)
        self._high = np.zeros(0)
        self._first = np.zeros(0)

    def add(
        self,
        y: FloatArray,
        mean: FloatArray,
        ends: FloatArray | None = None,
        groups: IndexArray | None = None,
        log_density: FloatArray | None = None,
    ) -> None:
        groups = np.zeros(len(y), dtype=np.int64) if groups is None else groups
        self._grow(int(groups.max(initial=0)) + 1)
        new = np.isinf(self._low[groups])
        self._first[groups[new][::-1]] = y[new][::-1]
        np.minimum.at(self._low, groups, y)
        np.maximum.at(self._high, groups, y)
        deviation = y - self._first[groups]
        columns = {
            "n": np.ones(len(y)),
            "deviation": deviation,
            "square_deviation": deviation**2,
            **self._columns(y, mean),
            "mae": np.abs(y - mean),
        }
        if log_density is not None:
            columns["log_density"] = log_density
        if ends is not None:
            lower, upper = ends.T
            columns["coverage"] = ((lower <= y) & (y <= upper)).astype(np.float64)
            columns["width"] = upper - lower
        for name, values in columns.items():
            added = np.bincount(groups, weights=values, minlength=len(self._low)).astype(np.float64)
            self._sums[name] = self._sums[name] + added if name in self._sums else added

    def _grow(self, size: int) -> None:
        missing = max(0, size - len(self._low))
        self._sums = {name: np.pad(values, (0, missing)) for name, values in self._sums.items()}
        self._low = np.pad(self._low, (0, missing), constant_values=np.inf)
        self._high = np.pad(self._high, (0, missing), constant_values=-np.inf)
        self._first = np.pad(self._first, (0, missing))

    def overall(self) -> Scores:
        # all deviations from the same value
        apart = self._first - self._first[0]
        by_group = dict(self._sums)
        by_group["deviation"] = self._sums["deviation"] + apart * self._sums["n"]
        by_group["square_deviation"] = (
            self._sums["square_deviation"] + 2.0 * apart * self._sums["deviation"] + apart**2 * self._sums["n"]
        )
        sums = {name: float(values.sum()) for name, values in by_group.items()}
        return self._scores(sums, is_constant=bool(self._low.min() == self._high.max()))

    def of_group(self, group: int) -> Scores:
        sums = {name: float(values[group]) for name, values in self._sums.items()}
        return self._scores(sums, is_constant=bool(self._low[group] == self._high[group]))

    def _scores(self, sums: dict[str, float], *, is_constant: bool) -> Scores:
        explained, figures = self._figures(sums, is_constant=is_constant)
        figures |= {
            name: sums[name] / sums["n"] for name in ("mae", "log_density", "coverage", "width") if name in sums
        }
        if "coverage" in sums:
            figures["level"] = self._level
        return Scores(int(sums["n"]), explained, figures)


class ClassRows:
    """Outcomes and probabilities of all events."""

    def __init__(self) -> None:
        self._groups: list[NDArray[np.int32]] = []
        self._y: list[NDArray[np.bool_]] = []
        self._probability: list[FloatArray] = []

    def add(
        self,
        y: FloatArray,
        mean: FloatArray,
        ends: FloatArray | None = None,
        groups: IndexArray | None = None,
        log_density: FloatArray | None = None,
    ) -> None:
        del ends, log_density
        self._groups.append(np.zeros(len(y), dtype=np.int32) if groups is None else groups.astype(np.int32))
        self._y.append(y == 1.0)
        self._probability.append(mean)

    def rows(self) -> tuple[FloatArray, FloatArray]:
        """Outcomes and probabilities of all events so far."""
        return np.concatenate(self._y).astype(np.float64), np.concatenate(self._probability)

    def overall(self) -> Scores:
        return _class_scores(*self.rows())

    def of_group(self, group: int) -> Scores:
        own = np.concatenate(self._groups) == group
        y, probability = self.rows()
        return _class_scores(y[own], probability[own])


def _class_scores(y: FloatArray, probability: FloatArray) -> Scores:
    share = float(y.mean())
    log_loss = -float(log_fit_of_classes(y, probability).mean())
    entropy = -float(xlogy(share, share) + xlogy(1.0 - share, 1.0 - share))
    bins = calibration_bins(y, probability)
    figures = {
        "share": share,
        "log_loss": log_loss,
        "auc": _auc(y, probability),
        "brier": float(((probability - y) ** 2).mean()),
        "accuracy": float(((probability > 0.5) == (y == 1.0)).mean()),
        "calibration_error": sum(part.n_events * abs(part.predicted - part.observed) for part in bins) / len(y),
    }
    return Scores(len(y), 1.0 - log_loss / entropy if entropy > 0.0 else float("nan"), figures)


def log_fit(family: Family, y: FloatArray, mean: FloatArray) -> FloatArray:
    """(events,) how well means fit outcomes: log probabilities of classes, or minus half the Poisson deviances."""
    return (log_fit_of_classes if family.has_classes else log_fit_of_counts)(y, mean)


def log_fit_of_classes(y: FloatArray, probability: FloatArray) -> FloatArray:
    """(events,) log probability of each class, 0 or 1."""
    clipped = np.clip(probability, SMALLEST_PROBABILITY, 1.0 - SMALLEST_PROBABILITY)
    return np.asarray(np.log(np.where(y == 1.0, clipped, 1.0 - clipped)))


def log_fit_of_counts(y: FloatArray, mean: FloatArray) -> FloatArray:
    """(events,) minus half the Poisson deviance of each count: 0 for a perfect prediction."""
    mean = np.maximum(mean, SMALLEST_MEAN)
    return np.asarray(-(xlogy(y, y / mean) - y + mean))


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
    """The probability that an event of the second class has a higher prediction than one of the first."""
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


def score_table(names: Iterable[str], scores: Mapping[str, Scores]) -> list[tuple[str, ...]]:
    """A row for each model: its name, and its scores of these names as texts."""
    names = tuple(names)
    return [(model, *(own.text(name) for name in names)) for model, own in scores.items()]
