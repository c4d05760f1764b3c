"""What an axis does to the target, in one number for each cluster: the change between two places on the axis."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr.analysis.axes import Axis, is_whole, usual_ends
from fedhlcr.analysis.axis_lines import axis_draws
from fedhlcr.analysis.effects import INTERVAL_LEVEL, entity_shares
from fedhlcr.analysis.ticks import range_text
from fedhlcr.posterior.alignment import central_interval
from fedhlcr.posterior.fitted_model import FittedModel

# A usual range has at least so many steps of the round numbers that its ends are.
FEWEST_STEPS = 4.0
# Places on a cycle to find its highest and lowest point at: 15-minute steps of a day, half weeks of a year.
CYCLE_POINTS = 96


@dataclass(frozen=True)
class Contrast:
    """Two places on an axis to compare.

    Attributes
    ----------
    low, high : the places; effects are the target at `high` minus the target at `low`
    level : of a category with more than two levels, the level that is compared with all others; else None
    words : what is compared, for a heading: "year from 1960 to 2000"
    """

    axis: Axis
    low: float
    high: float
    words: str
    level: int | None = None


def contrasts_of(model: FittedModel, axis: Axis) -> tuple[Contrast, ...]:
    """What to compare on an axis: usual low and high values, a doubling, two levels, or the ends of a season."""
    if axis.is_discrete:
        if len(axis.levels) == 2:
            where = f"{axis.name}: {axis.levels[1]} against {axis.levels[0]}"
            return (Contrast(axis, 0.0, 1.0, where),)
        return tuple(
            Contrast(axis, 0.0, float(level), f"{axis.name}: {name} against all others", level)
            for level, name in enumerate(axis.levels)
        )
    if axis.cycle is not None:
        lines = [cycle_line(model, axis, k)[1] for k in range(model.n_clusters_)]
        places = cycle_places(axis)
        mean = entity_shares(model) @ np.array(lines)
        low = places[mean.argmin()]
        high = places[mean.argmax()]
        where = f"{axis.name}: {axis.cycle.place(high)} against {axis.cycle.place(low)}"
        return (Contrast(axis, float(low), float(high), where),)
    low, high = compared_places(model, axis)
    words = "doubled" if is_doubled(model, axis) else f"from {range_text(low, high)}"
    return (Contrast(axis, low, high, f"{axis.name} {words}"),)


def contrast_effects(
    model: FittedModel, contrast: Contrast, level: float = INTERVAL_LEVEL
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(clusters,) mean effect of a contrast and the ends of its interval; NaN ends if there is only one draw.

    In units of the target; of classes and counts, differences of probabilities or rates.
    """
    mean, lower, upper = np.array([_effect(model, contrast, k, level) for k in range(model.n_clusters_)]).T
    return mean, lower, upper


def _effect(model: FittedModel, contrast: Contrast, cluster: int, level: float) -> tuple[float, float, float]:
    axis = contrast.axis
    if contrast.level is None:
        by_draw, weight = axis_draws(model, axis, cluster, np.array([contrast.low, contrast.high]))
        change = by_draw[:, 1] - by_draw[:, 0]
    else:
        by_draw, weight = axis_draws(model, axis, cluster, axis.grid())
        shares = level_shares(model, axis)
        own = shares[contrast.level]
        change = (by_draw[:, contrast.level] - by_draw @ shares) / (1.0 - own if own < 1.0 else 1.0)
    mean = float(weight @ change / weight.sum())
    if len(weight) == 1:
        return mean, math.nan, math.nan
    lower, upper = central_interval(change[:, None], weight[:, None], level)
    return mean, float(lower[0]), float(upper[0])


def level_shares(model: FittedModel, axis: Axis) -> FloatArray:
    """(levels,) share of the fitted events at each level of a category."""
    shares = np.clip(model.feature_means_[list(axis.columns)], 0.0, 1.0)
    if len(shares) < len(axis.levels):
        shares = np.append(max(0.0, 1.0 - shares.sum()), shares)
    total = shares.sum()
    return np.asarray(shares / total if total else np.full(len(shares), 1.0 / len(shares)))


def is_doubled(model: FittedModel, axis: Axis) -> bool:
    """Whether the effect of a doubling is the same everywhere on the axis."""
    curves = model.posterior_.standardization.curves
    bends = curves is not None and curves.place(axis.columns[0]) is not None
    return axis.kind == "log" and axis.offset == 0.0 and not bends and not model.family.has_link


def compared_places(model: FittedModel, axis: Axis) -> tuple[float, float]:
    """The ends of a doubling, where its effect is the same everywhere; else a low and a high value."""
    if not is_doubled(model, axis):
        return usual_range(model, axis)
    middle = float(axis.base ** model.feature_means_[axis.columns[0]])
    return middle, 2.0 * middle


def usual_range(model: FittedModel, axis: Axis) -> tuple[float, float]:
    """A low and a high value of an axis of numbers, rounded: of counts, to whole numbers."""
    column = axis.columns[0]
    ends = usual_ends(model, column, is_log=axis.kind == "log")
    if axis.kind == "log":
        low, high = (float(f"{axis.base**end - axis.offset:.2g}") for end in ends)
        return low, high
    step = _round_step((ends[1] - ends[0]) / FEWEST_STEPS)
    if is_whole(model, column):
        step = max(step, 1.0)
    low, high = (float(f"{round(end / step) * step:.12g}") for end in ends)
    return low, high


def _round_step(most: float) -> float:
    """The largest of 1, 2, 5, 10, 20 and so on, or of their tenths, up to `most`."""
    power = 10.0 ** math.floor(math.log10(most))
    return max(factor * power for factor in (1.0, 2.0, 5.0) if factor * power <= most * (1.0 + 1e-9))


def cycle_places(axis: Axis) -> FloatArray:
    """Places round a cycle, without its end, which is its start."""
    return np.linspace(axis.low, axis.high, CYCLE_POINTS, endpoint=False)


def cycle_line(model: FittedModel, axis: Axis, cluster: int) -> tuple[FloatArray, FloatArray]:
    """Places round a cycle, and the target there."""
    places = cycle_places(axis)
    by_draw, weight = axis_draws(model, axis, cluster, places)
    return places, np.asarray(weight @ by_draw / weight.sum())
