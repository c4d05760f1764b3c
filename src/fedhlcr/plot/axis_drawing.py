"""Lines along axes of features, in the reader's units."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from fedhlcr._support.arrays import FloatArray
from fedhlcr.analysis.axes import Axis
from fedhlcr.analysis.axis_lines import AxisLine, TargetAxis
from fedhlcr.analysis.effects import target_name
from fedhlcr.analysis.links import NO_TARGET
from fedhlcr.analysis.summary import shorten
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.plot.palette import ClusterStyle

# Of more levels, the names are turned.
FLAT_LEVELS = 3
# Clusters of one level are drawn within this part of the distance to the next.
LEVEL_WIDTH = 0.6


def draw_line(
    ax: Axes,
    line: AxisLine,
    style: ClusterStyle,
    label: str,
    *,
    band: bool = True,
    shift: float = 0.0,
    width: float = 1.5,
) -> None:
    """A line with its band; along levels, points with whiskers, moved by a shift."""
    color, stroke, marker = style
    if line.axis.is_discrete:
        places = line.places + shift
        if band:
            ends = np.stack([line.mean - line.lower, line.upper - line.mean])
            ax.errorbar(
                places,
                line.mean,
                np.maximum(ends, 0.0),
                fmt="none",
                ecolor=color,
                elinewidth=1.3,
                capsize=2.5,
                zorder=4,
            )
        ax.plot(places, line.mean, marker, color=color, markersize=4.0, label=label, zorder=5)
        return
    if band:
        ax.fill_between(line.places, line.lower, line.upper, color=color, alpha=0.25, linewidth=0.0, zorder=3)
        for end in (line.lower, line.upper):
            ax.plot(line.places, end, color=color, linewidth=0.5, alpha=0.7, label="_end", zorder=3)
    ax.plot(line.places, line.mean, color=color, linestyle=stroke, linewidth=width, label=label, zorder=4)


def level_shifts(axis: Axis, n: int) -> FloatArray:
    """(n,) where the clusters of one level are drawn beside it; 0 along an axis of numbers."""
    if not axis.is_discrete or n == 1:
        return np.zeros(n)
    return LEVEL_WIDTH * ((np.arange(n) + 0.5) / n - 0.5)


def set_place_axis(ax: Axes, axis: Axis, most: int = 5) -> None:
    """Scale, limits, ticks and label of the x axis."""
    if axis.is_discrete:
        ax.set_xlim(-0.5, len(axis.levels) - 0.5)
        ax.grid(visible=False, axis="x")
    else:
        if axis.kind == "log" and axis.offset == 0.0:
            ax.set_xscale("log")
        elif axis.kind == "log":
            offset = axis.offset
            scales = (lambda x: np.log(np.maximum(x + offset, 1e-300)), lambda x: np.exp(x) - offset)
            ax.set_xscale("function", functions=scales)
        ax.set_xlim(axis.low, axis.high)
    places, texts = zip(*axis.ticks(most), strict=True)
    ax.xaxis.set_major_locator(FixedLocator(list(places)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FixedFormatter([shorten(text) for text in texts]))
    if axis.is_discrete and len(axis.levels) > FLAT_LEVELS:
        ax.tick_params(axis="x", labelrotation=40)
        for text in ax.get_xticklabels():
            text.set_horizontalalignment("right")
            text.set_rotation_mode("anchor")
    ax.set_xlabel(shorten(axis.name))


def set_target_axis(ax: Axes, target: TargetAxis, name: str | None, limits: tuple[float, float]) -> None:
    """Limits, ticks and label of the y axis."""
    ax.set_ylim(limits)
    places, texts = zip(*target.ticks(*limits), strict=True)
    ax.yaxis.set_major_locator(FixedLocator(list(places)))
    ax.yaxis.set_major_formatter(FixedFormatter(list(texts)))
    ax.set_ylabel(target_label(target, name))


def target_label(target: TargetAxis, name: str | None) -> str:
    """The label of the target's axis: the given name, or what the model knows."""
    if name is not None:
        return name
    return "y" if target.name == NO_TARGET else target.name.removeprefix("the ")


def label_of_target(model: HierarchicalPredictor, name: str | None) -> str:
    """The given name of the target, or that of its column, for values in the units of `fit`."""
    own = target_name(model) if name is None else name
    return "y" if own == NO_TARGET else own


def value_limits(lines: Iterable[AxisLine], values: FloatArray, *, tails: float = 0.01) -> tuple[float, float]:
    """Limits that hold all lines with their bands and most of the values, with a margin."""
    ends = [end for line in lines for end in (line.mean, line.lower, line.upper)]
    known = np.concatenate([np.concatenate(ends), np.quantile(values, (tails, 1.0 - tails)) if len(values) else []])
    low = float(np.nanmin(known))
    high = float(np.nanmax(known))
    margin = 0.05 * (high - low) or 0.5 * abs(high) or 1.0
    return low - margin, high + margin
