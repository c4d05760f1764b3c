"""Scores of events that come in batches: sums that can be added up, overall and by agent.

They equal those of all events at once (`Scores.of`, `CountScores.of`) up to rounding, to about 12 digits. Scores of
classes need ranks of all predictions, so outcomes and probabilities are kept, 9 bytes for each event.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.special import xlogy
from fedhlcr.analysis.class_scores import ClassScores
from fedhlcr.analysis.count_scores import SMALLEST_MEAN, CountScores
from fedhlcr.analysis.evaluation import Scores
from fedhlcr.data.families import FamilyName
from fedhlcr.data.hierarchy import UNKNOWN, EntityIndex
from fedhlcr.data.ids import Ids, natural_key
from fedhlcr.posterior.predictive import Moments

# The name of the only agent of a table without agents.
EVERYBODY = "all events"


class RunningScores(Protocol):
    """Scores that are computed batch by batch; a group is an agent."""

    def add(self, groups: IndexArray, y: FloatArray, predicted: Moments) -> None:
        """Add events; `groups` are the numbers of their agents."""

    def overall(self) -> Any:
        """The scores of all events so far."""

    def of_group(self, group: int) -> Any:
        """The scores of one group's events."""


def running_scores(kind: FamilyName, level: float) -> RunningScores:
    """Return empty scores for a kind of target, with intervals of probability `level`."""
    if kind == "binary":
        return ClassRows()
    return _RealSums(level) if kind == "real" else _CountSums(level)


class _Sums(ABC):
    """Sums of several figures by group, and the range of the targets."""

    figures: tuple[str, ...]

    def __init__(self, level: float) -> None:
        self._level = level
        self._sums = {name: np.zeros(0) for name in ("n", "inside", "width", "absolute", *self.figures)}
        self._low = np.zeros(0)
        self._high = np.zeros(0)
        self._first = np.zeros(0)

    def add(self, groups: IndexArray, y: FloatArray, predicted: Moments) -> None:
        self._grow(int(groups.max()) + 1)
        new = self._sums["n"][groups] == 0.0
        self._first[groups[new][::-1]] = y[new][::-1]
        np.minimum.at(self._low, groups, y)
        np.maximum.at(self._high, groups, y)
        lower, upper = predicted.quantiles.T
        columns = {
            "n": np.ones(len(y)),
            "inside": ((lower <= y) & (y <= upper)).astype(np.float64),
            "width": upper - lower,
            "absolute": np.abs(y - predicted.mean),
            **self._columns(groups, y, predicted.mean),
        }
        for name, values in columns.items():
            self._sums[name] += np.bincount(groups, weights=values, minlength=len(self._sums[name]))

    @abstractmethod
    def _columns(self, groups: IndexArray, y: FloatArray, mean: FloatArray) -> dict[str, FloatArray]:
        """What each event adds to the sums of `figures`."""

    @abstractmethod
    def _of(self, sums: dict[str, float], *, is_constant: bool) -> Any:
        """The scores that follow from sums."""

    def _grow(self, size: int) -> None:
        missing = max(0, size - len(self._low))
        self._sums = {name: np.pad(values, (0, missing)) for name, values in self._sums.items()}
        self._low = np.pad(self._low, (0, missing), constant_values=np.inf)
        self._high = np.pad(self._high, (0, missing), constant_values=-np.inf)
        self._first = np.pad(self._first, (0, missing))

    def overall(self) -> Any:
        is_constant = bool(self._low.min() == self._high.max())
        return self._of(self._pooled(), is_constant=is_constant)

    def _pooled(self) -> dict[str, float]:
        return {name: float(values.sum()) for name, values in self._sums.items()}

    def of_group(self, group: int) -> Any:
        is_constant = bool(self._low[group] == self._high[group])
        return self._of({name: float(values[group]) for name, values in self._sums.items()}, is_constant=is_constant)


class _RealSums(_Sums):
    """Sums for `Scores`. Deviations are from the group's first target, so that squares lose no digits."""

    figures = ("squared", "deviation", "square_deviation")

    def _columns(self, groups: IndexArray, y: FloatArray, mean: FloatArray) -> dict[str, FloatArray]:
        deviation = y - self._first[groups]
        return {"squared": (y - mean) ** 2, "deviation": deviation, "square_deviation": deviation**2}

    def _pooled(self) -> dict[str, float]:
        # all deviations from the same value
        sums = super()._pooled()
        apart = self._first - self._first[0]
        deviation = self._sums["deviation"] + apart * self._sums["n"]
        square = self._sums["square_deviation"] + 2.0 * apart * self._sums["deviation"] + apart**2 * self._sums["n"]
        return sums | {"deviation": float(deviation.sum()), "square_deviation": float(square.sum())}

    def _of(self, sums: dict[str, float], *, is_constant: bool) -> Scores:
        n = sums["n"]
        spread = 0.0 if is_constant else sums["square_deviation"] / n - (sums["deviation"] / n) ** 2
        mse = sums["squared"] / n
        r2 = 1.0 - mse / spread if spread > 0.0 else float("nan")
        return Scores(int(n), r2, mse, sums["absolute"] / n, sums["inside"] / n, sums["width"] / n, self._level)


class _CountSums(_Sums):
    """Sums for `CountScores`. Around the mean count μ, the deviances add up to 2 (Σ y log y − log μ Σ y)."""

    figures = ("deviance", "count", "count_log_count")

    def _columns(self, groups: IndexArray, y: FloatArray, mean: FloatArray) -> dict[str, FloatArray]:
        del groups
        mean = np.maximum(mean, SMALLEST_MEAN)
        return {"deviance": xlogy(y, y / mean) - y + mean, "count": y, "count_log_count": xlogy(y, y)}

    def _of(self, sums: dict[str, float], *, is_constant: bool) -> CountScores:
        n = sums["n"]
        deviance = 2.0 * sums["deviance"] / sums["n"]
        d2 = float("nan")
        if not is_constant:
            around_mean = 2.0 * (sums["count_log_count"] - xlogy(sums["count"], sums["count"] / n)) / n
            d2 = 1.0 - deviance / around_mean
        shares = sums["absolute"] / n, sums["inside"] / n, sums["width"] / n
        return CountScores(int(n), deviance, d2, *shares, self._level)


class ClassRows:
    """Outcomes and probabilities of all events."""

    def __init__(self) -> None:
        self._groups: list[NDArray[np.int32]] = []
        self._y: list[NDArray[np.bool_]] = []
        self._probability: list[FloatArray] = []

    def add(self, groups: IndexArray, y: FloatArray, predicted: Moments) -> None:
        self._groups.append(groups.astype(np.int32))
        self._y.append(y == 1.0)
        self._probability.append(predicted.mean)

    def rows(self) -> tuple[FloatArray, FloatArray]:
        """Outcomes and probabilities of all events so far."""
        return np.concatenate(self._y).astype(np.float64), np.concatenate(self._probability)

    def overall(self) -> ClassScores:
        return ClassScores.of(*self.rows())

    def of_group(self, group: int) -> ClassScores:
        own = [rows == group for rows in self._groups]
        y, probability = (
            np.concatenate([values[rows] for values, rows in zip(column, own, strict=True)])
            for column in (self._y, self._probability)
        )
        return ClassScores.of(y.astype(np.float64), probability)


class AgentGroups:
    """Numbers for the agents of a table that comes in batches: those that a model knows, then new ones."""

    def __init__(self, index: EntityIndex) -> None:
        self._index = index
        self._new: dict[str, int] = {}
        # the names of the agents that occur, as the table has them
        self._names: dict[int, tuple[str, Any]] = {}

    def of_rows(self, agents: Ids | None, n_rows: int) -> IndexArray:
        """(rows,) the number of each row's agent."""
        if agents is None:
            self._names[0] = ("", EVERYBODY)
            return np.zeros(n_rows, dtype=np.int64)
        codes = self._index.agents.texts.find(agents.texts)
        texts = list(agents.texts)
        for place in np.flatnonzero(codes == UNKNOWN).tolist():
            codes[place] = self._new.setdefault(texts[place], self._index.n_agents + len(self._new))
        for code, text, value in zip(codes.tolist(), texts, agents.values, strict=True):
            self._names.setdefault(code, (text, value))
        return codes[agents.codes]

    def in_order(self) -> list[tuple[Any, int]]:
        """The name and the number of each agent, in natural order."""
        ordered = sorted(self._names.items(), key=lambda item: natural_key(item[1][0]))
        return [(value, code) for code, (_, value) in ordered]
