"""Features as a reader sees them: the month instead of its sine and cosine, a brand instead of columns of 0 and 1.

A model's features are columns of numbers. Several columns may be one thing to a reader, and one column may be the
logarithm of what the reader knows. An axis joins such columns and undoes their encoding, so that pictures have months,
miles and names of levels on them. Categories are known from the recipe. Logarithms, sines and cosines of a cycle, and
squares are recognised by their names, and only if the moments of the columns agree.

What a sentence compares, and what an axis covers, are usual values. A fit to a whole table keeps quantiles of its
features. A federation knows only sums, since a quantile is the value of an event: its ranges follow from means and
standard deviations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import printable
from fedhlcr.analysis.axis_names import Cycle, base_of_log, cycle_of, find_squares, find_waves
from fedhlcr.analysis.effects import feature_names, one_hot, zero_or_one
from fedhlcr.analysis.ticks import log_ticks, nice_ticks, tick_text
from fedhlcr.model.curves import QUANTILE_LEVELS
from fedhlcr.posterior.fitted_model import FittedModel

AxisKind = Literal["number", "log", "cycle", "category", "switch"]
# Points of a line over an axis of numbers.
N_POINTS = 61
# Without events and without quantiles, numbers are shown this many standard deviations to either side of their mean.
SPREADS_SHOWN = 2.0
# With events, this share of them is left out at either end.
TAIL = 0.01
# Powers of e beyond these are no readable numbers, so such a column is no logarithm of one.
LARGEST_LOG = 40.0
TWO_PI = 2.0 * np.pi
# Positions of the quantiles nearest to 16 % and 84 %: a standard deviation to either side of a normal mean.
LOW, HIGH = (int(np.abs(QUANTILE_LEVELS - level).argmin()) for level in (0.16, 0.84))
# A mean closer to zero than this, in standard deviations, is that of a feature around zero.
CENTRED = 0.05
# A range of usual values that is narrower than this, in standard deviations, says nothing of the others.
NARROW = 0.2


@dataclass(frozen=True)
class Axis:
    """One or several features of a model on one axis.

    A *place* is a value in the reader's units: miles, months, the number of a level.

    Attributes
    ----------
    name : what the axis shows, for a label
    kind : "number"; "log", a number on a logarithmic axis; "cycle", such as the month; "category"; "switch", 0 or 1
    columns : positions of the model's features, in the order that `features` returns them
    low, high : the places at the ends of the axis
    levels : names of the levels of a category, and of a switch
    base : of the logarithm
    offset : what was added before the logarithm was taken
    centre : of a number with its square, what was subtracted before squaring
    orders : of a cycle, how often each pair of sine and cosine goes round
    cycle : of a cycle, its length, name and ticks
    """

    name: str
    kind: AxisKind
    columns: tuple[int, ...]
    low: float
    high: float
    levels: tuple[str, ...] = ()
    base: float = np.e
    offset: float = 0.0
    centre: float = 0.0
    orders: tuple[int, ...] = ()
    cycle: Cycle | None = None

    @property
    def is_discrete(self) -> bool:
        """Whether places are levels, with nothing in between."""
        return self.kind in ("category", "switch")

    def features(self, places: FloatArray) -> FloatArray:
        """(points, columns) the model's features at some places."""
        if self.kind == "category":
            first = len(self.levels) - len(self.columns)
            return (places[:, None] == np.arange(first, len(self.levels))).astype(np.float64)
        if self.cycle is not None:
            angles = TWO_PI * np.outer(places / self.cycle.length, self.orders)
            return np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(len(places), -1)
        if self.kind == "log":
            return (np.log(places + self.offset) / np.log(self.base))[:, None]
        return np.column_stack([places, (places - self.centre) ** 2][: len(self.columns)])

    def places(self, X: FloatArray) -> FloatArray:
        """(events,) where events with features X (events, n_features_in_) are on the axis."""
        own = X[:, list(self.columns)]
        if self.kind == "category":
            # the first of two levels has no column
            first = len(self.levels) - len(self.columns)
            return np.where(own.any(axis=1), first + own.argmax(axis=1), 0).astype(np.float64)
        if self.cycle is not None:
            return np.asarray(np.arctan2(own[:, 0], own[:, 1]) / TWO_PI % 1.0 * self.cycle.length)
        return np.asarray(self.base ** own[:, 0] - self.offset) if self.kind == "log" else own[:, 0]

    def fractions(self, places: FloatArray) -> FloatArray:
        """(points,) how far along the axis places are: 0 at the low end, 1 at the high end. Levels are centred."""
        if self.is_discrete:
            return (np.asarray(places, dtype=np.float64) + 0.5) / len(self.levels)
        ends = np.array([self.low, self.high])
        if self.kind == "log":
            places = np.log(np.maximum(places + self.offset, 1e-300))
            ends = np.log(ends + self.offset)
        return np.asarray((places - ends[0]) / (ends[1] - ends[0]))

    def grid(self) -> FloatArray:
        """Places to draw a line through; of a category, its levels."""
        if self.is_discrete:
            return np.arange(len(self.levels), dtype=np.float64)
        if self.kind == "log":
            ends = np.log(self.low + self.offset), np.log(self.high + self.offset)
            return np.asarray(np.exp(np.linspace(*ends, N_POINTS)) - self.offset)
        return np.linspace(self.low, self.high, N_POINTS)

    def ticks(self, most: int = 5) -> list[tuple[float, str]]:
        """(place, text) of the ticks."""
        if self.is_discrete:
            return [(float(place), level) for place, level in enumerate(self.levels)]
        if self.cycle is not None:
            return list(self.cycle.ticks)
        places = log_ticks(self.low, self.high, most) if self.kind == "log" else nice_ticks(self.low, self.high, most)
        return [(place, tick_text(place)) for place in places]

    def over(self, X: FloatArray) -> Axis:
        """The same axis with ends that fit events: most of them lie between."""
        if self.is_discrete or self.cycle is not None or not len(X):
            return self
        low, high = (float(end) for end in np.quantile(self.places(X), (TAIL, 1.0 - TAIL)))
        return replace(self, low=low, high=high) if high > low else self


def feature_axes(model: FittedModel, X: FloatArray | None = None) -> tuple[Axis, ...]:
    """The axes of all features of a fitted model, in the order of their first columns.

    Parameters
    ----------
    model : fitted
    X : (events, n_features_in_) events that the axes should cover; None covers most of the fitted range
    """
    names = feature_names(model)
    axes: list[Axis] = []
    taken: set[int] = set()
    for axis in (*_categories(model), *_cycles(model, names), *_squares(model, names, X)):
        if taken.isdisjoint(axis.columns):
            axes.append(axis)
            taken |= set(axis.columns)
    is_switch = zero_or_one(model)
    for f, name in enumerate(names):
        if f not in taken:
            axes.append(_switch(f, name) if is_switch[f] else _log(model, f, name) or _number(model, f, name))
    ordered = sorted(axes, key=lambda axis: axis.columns)
    return tuple(ordered if X is None else [axis.over(X) for axis in ordered])


def axis_of(axes: Sequence[Axis], feature: int) -> Axis:
    """The axis that shows a feature, given by its position."""
    return next(axis for axis in axes if feature in axis.columns)


def _categories(model: FittedModel) -> list[Axis]:
    columns: dict[str, list[int]] = {}
    for f, (column, _) in one_hot(model).items():
        columns.setdefault(column, []).append(f)
    categorical = {} if model.recipe_ is None else model.recipe_.categorical
    return [
        Axis(printable(column), "category", tuple(own), 0.0, len(levels) - 1.0, tuple(printable(v) for v in levels))
        for column, own in columns.items()
        if len(levels := categorical[column]) - len(own) in (0, 1)
    ]


def _cycles(model: FittedModel, names: list[str]) -> list[Axis]:
    axes = []
    for stem, pairs in find_waves(names, model.feature_means_, model.feature_spreads_).items():
        cycle = cycle_of(stem)
        columns = tuple(f for _, *pair in pairs for f in pair)
        orders = tuple(order for order, *_ in pairs)
        axes.append(Axis(cycle.name, "cycle", columns, 0.0, cycle.length, orders=orders, cycle=cycle))
    return axes


def _squares(model: FittedModel, names: list[str], X: FloatArray | None) -> list[Axis]:
    found = find_squares(names, model.feature_means_, model.feature_spreads_, X)
    return [replace(_number(model, f, names[f]), columns=(f, square), centre=centre) for f, square, centre in found]


def _number(model: FittedModel, feature: int, name: str) -> Axis:
    low, high = wide_ends(model, feature, SPREADS_SHOWN)
    return Axis(printable(name), "number", (feature,), low, high)


def _log(model: FittedModel, feature: int, name: str) -> Axis | None:
    """The axis of a column that is a logarithm by its name; None if it is not."""
    if (found := base_of_log(name)) is None:
        return None
    low, high = wide_ends(model, feature, SPREADS_SHOWN)
    base, offset, own = found
    if max(abs(low), abs(high)) * np.log(base) > LARGEST_LOG:
        return None
    return Axis(printable(own), "log", (feature,), base**low - offset, base**high - offset, base=base, offset=offset)


def _switch(feature: int, name: str) -> Axis:
    return Axis(printable(name), "switch", (feature,), 0.0, 1.0, ("0", "1"))


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
