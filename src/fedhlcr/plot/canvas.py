"""What all plots share: Axes, legends, labels and checks."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr.estimators.base import HierarchicalPredictor, check_model, check_probability
from fedhlcr.exceptions import ArgumentError, ArgumentTypeError
from fedhlcr.plot.palette import PALE

# inches: the width of a journal's column
FIGURE_SIZE = (3.5, 2.6)
# More points than these are shown as counts in cells.
MAX_POINTS = 5_000


def axes_or_new(ax: Any, size: tuple[float, float] = FIGURE_SIZE) -> Axes:
    """The given Axes, or that of a new figure, one column wide."""
    if ax is None:
        from matplotlib import pyplot

        ax = pyplot.subplots(figsize=size, layout="constrained")[1]
        _style(ax)
        return ax
    if not isinstance(ax, Axes):
        raise ArgumentTypeError(
            f"`ax` must be one matplotlib Axes, but is of type {type(ax).__name__}; pass one of those that "
            "`plt.subplots()` returns, or leave it out for a new figure."
        )
    return ax


def panels_or_new(
    ax: Any, n: int, size: tuple[float, float], n_columns: int, *, share: bool | str = True
) -> NDArray[np.object_]:
    """(n,) Axes: those given, or those of a new figure whose panels have this size in inches."""
    if ax is None:
        from matplotlib import pyplot

        n_rows = -(-n // n_columns)
        n_columns = -(-n // n_rows)
        _, grid = pyplot.subplots(
            n_rows,
            n_columns,
            figsize=(max(size[0] * n_columns, FIGURE_SIZE[0]), size[1] * n_rows),
            layout="constrained",
            squeeze=False,
            sharex=bool(share),
            sharey=share is True,
        )
        for spare in grid.ravel()[n:]:
            spare.remove()
        for number, own in enumerate(grid.ravel()[:n]):
            _style(own)
            # a panel with no other below it shows its ticks
            own.tick_params(labelbottom=not share or number + n_columns >= n)
        return np.array(grid.ravel()[:n])
    given = np.array(ax, dtype=object).ravel()
    if any(not isinstance(own, Axes) for own in given):
        raise ArgumentTypeError(
            f"`ax` must be one matplotlib Axes or an array of them, but is of type {type(ax).__name__}; pass what "
            "`plt.subplots()` returns, or leave it out for a new figure."
        )
    if len(given) < n:
        raise ArgumentError(f"`ax` has {len(given)} Axes, but {n} are drawn; pass {n}, or leave it out.")
    return given[:n]


def keep_outer_labels(ax: Axes, panels: NDArray[np.object_]) -> None:
    """Remove the label of y unless the panel is in the first column, and that of x if there is a panel below."""
    place = ax.get_subplotspec()
    assert place is not None
    if place.colspan.start > 0:
        ax.set_ylabel("")
    below = (place.rowspan.stop, place.colspan.start)
    if any((own.get_subplotspec().rowspan.start, own.get_subplotspec().colspan.start) == below for own in panels):
        ax.set_xlabel("")


def _style(ax: Axes) -> None:
    """Small labels, a pale grid, no box."""
    ax.tick_params(labelsize=7)
    for text in (ax.xaxis.label, ax.yaxis.label, ax.title):
        text.set_fontsize(8)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color=PALE, linewidth=0.5)
    ax.set_axisbelow(True)


def check_agents(model: Any) -> None:
    """Refuse anything but a fitted model that knows agents."""
    check_model(model)
    if not len(model.posterior_.memory.entities):
        raise ArgumentError("`model` is public and knows no agents; use the private model, or `adapt` it to some.")


def check_level(level: float | None, model: HierarchicalPredictor) -> None:
    """Refuse a level outside (0, 1), and intervals if there is only one draw."""
    if level is None:
        return
    check_probability(level)
    n_draws = len(model.posterior_.draws)
    if n_draws < 2:
        raise ArgumentError(
            f"intervals need at least 2 kept draws, but the model has {n_draws}; fit with a larger n_draws and for "
            "longer, or pass level=None to leave the intervals out."
        )


def evenly(n: int, most: int) -> NDArray[np.int64]:
    """All of range(n), or a sample of `most` of it that depends on n only."""
    return np.arange(n) if n <= most else np.sort(np.random.default_rng(n).choice(n, most, replace=False))


def legend(ax: Axes, **kwargs: Any) -> None:
    """A legend without a frame, in a font slightly smaller than that of the labels."""
    size = 0.9 * float(ax.xaxis.label.get_fontsize())
    ax.legend(**{"frameon": False, "fontsize": size, "title_fontsize": size, "handlelength": 1.2, **kwargs})


def number_lines(ax: Axes, ends: dict[int, float], colors: dict[int, str]) -> None:
    """The number of each cluster at the right of the Axes, at the height where its line ends; numbers do not overlap.

    Call it when the limits of the Axes are set.
    """
    size = 0.9 * float(ax.xaxis.label.get_fontsize())
    low, high = ax.get_ylim()
    step = 1.15 * size / (72.0 * ax.bbox.height / ax.figure.dpi) if ax.bbox.height else 0.0
    order = sorted(ends, key=lambda cluster: ends[cluster])
    wanted = np.clip([(ends[cluster] - low) / (high - low) for cluster in order], 0.0, 1.0)
    heights = spread_out(wanted, step)
    for cluster, height in zip(order, heights, strict=True):
        ax.annotate(
            str(cluster),
            (1.0, height),
            (3, 0),
            xycoords="axes fraction",
            textcoords="offset points",
            color=colors[cluster],
            fontsize=size,
            fontweight="bold",
            va="center",
        )
    ax.annotate(
        "cluster",
        (1.0, max([*heights, 0.0]) + step),
        (3, 1),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=size,
        va="center",
    )


def spread_out(wanted: FloatArray, step: float) -> FloatArray:
    """Ascending positions near the wanted ones, which ascend too, at least a step apart, between 0 and 1 if they fit.

    Neighbours that are too near are moved apart around their common middle.
    """
    groups: list[list[float]] = []
    for value in wanted:
        # [sum of wanted middles, size]: a group takes `size` steps around its mean
        groups.append([float(value), 1.0])
        while len(groups) > 1 and _gap(groups[-2], groups[-1], step) < 0.0:
            last = groups.pop()
            groups[-1] = [groups[-1][0] + last[0], groups[-1][1] + last[1]]
    out = []
    for total, size in groups:
        half = 0.5 * step * (size - 1)
        middle = min(max(total / size, half), max(1.0 - half, half))
        out += [middle + step * (i - 0.5 * (size - 1)) for i in range(int(size))]
    return np.array(out)


def _gap(one: list[float], other: list[float], step: float) -> float:
    return other[0] / other[1] - one[0] / one[1] - 0.5 * step * (one[1] + other[1])


def color_bar(ax: Axes, image: ScalarMappable, label: str) -> None:
    """A colour bar beside the Axes, in its font size."""
    size = float(ax.yaxis.label.get_fontsize())
    bar = ax.figure.colorbar(image, ax=ax)
    bar.set_label(label, fontsize=size)
    bar.ax.tick_params(labelsize=0.9 * size)


def log_axis(ax: Axes) -> None:
    """Make the x axis logarithmic, with plain numbers as ticks."""
    ax.set_xscale("log")
    plain_ticks(ax.xaxis)


def plain_ticks(axis: Axis) -> None:
    """Ticks at 1, 2 and 5 of a logarithmic axis, as plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_formatter(NullFormatter())
