"""Scores of different numbers of clusters."""

from __future__ import annotations

from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from fedhlcr._support.arrays import FloatArray
from fedhlcr.analysis.comparison import Comparison
from fedhlcr.exceptions import ArgumentError, ArgumentTypeError
from fedhlcr.plot.canvas import axes_or_new, legend
from fedhlcr.plot.palette import BLUE, GREY, ORANGE, PALETTE

GREEN = PALETTE[2]
LABELS = {"log_density": "held-out log density\n(nats per event)", "evidence": "log evidence (nats)"}
# Distance between the numbers named on the axis, in font sizes: two digits and a gap.
TICK_DISTANCE = 1.6


def cluster_counts(
    comparison: Comparison, ax: Axes | None = None, *, quantity: Literal["log_density", "evidence"] = "log_density"
) -> Axes:
    """Held-out log density, or evidence, against the number of clusters.

    A bar is one standard error of the difference from the best, to either side. Noise that is common to all numbers is
    not included, and the best has no bar. The suggested number is the smallest whose bar reaches the dashed line, the
    best score. The diamond is the result of `n_clusters="auto"`, at the mean over the splits of the number found; the
    line through it covers the range of these numbers. It takes part like any number: it may be best or suggested.

    Parameters
    ----------
    comparison : Comparison, as `compare_cluster_counts` returns
    ax : Axes to draw on; None makes a new figure
    quantity : {"log_density", "evidence"}, default="log_density"
        The evidence has no bars and no suggested number. It is known for plain clusters only, as in the paper.

    Returns
    -------
    ax : Axes
    """
    if not isinstance(comparison, Comparison):
        raise ArgumentTypeError(
            f"`comparison` must be a Comparison, but is of type {type(comparison).__name__}; "
            "`compare_cluster_counts` returns one."
        )
    if quantity not in LABELS:
        raise ArgumentError(f"`quantity` must be one of {', '.join(LABELS)}, but is {quantity!r}.")
    by_density = quantity == "log_density"
    best = comparison.best if by_density else comparison.most_evident
    if best is None:
        raise ArgumentError(
            "`quantity` is 'evidence', but the comparison has none; compare estimators with effects='none' and "
            "noise='common', or plot 'log_density'."
        )
    places = {row.n_clusters: (row.size[0], getattr(row, quantity)) for row in comparison.candidates}
    counts, values = np.array([places[row.n_clusters] for row in comparison.rows], dtype=float).T
    ax = axes_or_new(ax)
    ax.axhline(max(value for _, value in places.values()), color=GREY, linewidth=0.7, linestyle=(0, (4, 3)), zorder=1)
    if by_density:
        for results, colour in ((comparison.rows, BLUE), ((comparison.auto,), GREEN)):
            x, y = np.array([places[row.n_clusters] for row in results], dtype=float).T
            bars = np.nan_to_num([row.difference_se for row in results])
            ax.errorbar(x, y, bars, fmt="none", ecolor=colour, elinewidth=1.0, capsize=2.0, zorder=2)
    ax.plot(counts, values, "o-", color=BLUE, linewidth=1.2, markersize=3.5, zorder=3)
    _mark_auto(ax, comparison, quantity)
    _mark(ax, places[best], "o", f"{'best' if by_density else 'by evidence'}: {best}")
    if by_density:
        _mark(ax, places[comparison.suggested], "s", f"suggested: {comparison.suggested}")
    _count_axis(ax, counts)
    # room for the rings
    ax.margins(y=0.1)
    ax.ticklabel_format(axis="y", useOffset=False)
    ax.set_ylabel(LABELS[quantity])
    # above, where no bar can run into it
    legend(ax, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, columnspacing=1.2)
    return ax


def _mark(ax: Axes, place: tuple[float, float], shape: str, label: str) -> None:
    """A ring around a point."""
    size = {"o": 8.0, "s": 10.5}[shape]
    ax.plot(
        *([coordinate] for coordinate in place),
        shape,
        markersize=size,
        markerfacecolor="none",
        markeredgecolor=ORANGE if shape == "s" else "black",
        markeredgewidth=1.2,
        label=label,
        zorder=6,
    )


def _mark_auto(ax: Axes, comparison: Comparison, quantity: str) -> None:
    found = np.array(comparison.auto.occupied, dtype=float)
    value = getattr(comparison.auto, quantity)
    low = int(found.min())
    high = int(found.max())
    ax.plot([low, high], [value, value], color=GREEN, linewidth=1.2, zorder=4)
    name = f"auto: {low}" if low == high else f"auto: {low}–{high}"
    ax.plot([found.mean()], [value], "D", color=GREEN, markersize=4.5, label=name, zorder=5)


def _count_axis(ax: Axes, counts: FloatArray) -> None:
    """A logarithmic axis with ticks at the counts, as many as there is room for."""
    ax.set_xscale("log")
    points = 72.0 * ax.bbox.width / ax.figure.dpi
    distance = TICK_DISTANCE * float(ax.xaxis.label.get_fontsize()) / points
    named = [counts[0]]
    factor = (counts[-1] / counts[0]) ** distance
    for count in counts[1:]:
        if count >= factor * named[-1]:
            named.append(count)
    ax.xaxis.set_major_locator(FixedLocator(named))
    ax.xaxis.set_major_formatter(FixedFormatter([f"{count:,.0f}" for count in named]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("clusters")
