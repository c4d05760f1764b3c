"""What all plots share: Axes, colours and checks."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray

from fedhlcr.estimators.base import HierarchicalPredictor, check_model, check_probability
from fedhlcr.exceptions import ArgumentError, ArgumentTypeError

# Okabe and Ito's palette, without its yellow, which is too light for lines
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#000000")
BLUE, ORANGE = PALETTE[:2]
GREY, PALE = "#777777", "#dddddd"
# one hue each, so that only lightness carries information
FEW_TO_MANY = LinearSegmentedColormap.from_list("few_to_many", ["#bcd9eb", BLUE, "#00263b"])
NONE_TO_ALL = LinearSegmentedColormap.from_list("none_to_all", ["#ffffff", BLUE, "#00263b"])
# inches: the width of a journal's column
FIGURE_SIZE = (3.5, 2.6)
# More points than these are shown as counts in cells.
MAX_POINTS = 5_000


def axes_or_new(ax: Axes | None) -> Axes:
    """The given Axes, or that of a new figure, one column wide."""
    if ax is None:
        from matplotlib import pyplot

        ax = pyplot.subplots(figsize=FIGURE_SIZE, layout="constrained")[1]
        ax.tick_params(labelsize=7)
        for text in (ax.xaxis.label, ax.yaxis.label):
            text.set_fontsize(8)
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(color=PALE, linewidth=0.5)
        ax.set_axisbelow(True)
        return ax
    if not isinstance(ax, Axes):
        raise ArgumentTypeError(
            f"`ax` must be one matplotlib Axes, but is of type {type(ax).__name__}; pass one of those that "
            "`plt.subplots()` returns, or leave it out for a new figure."
        )
    return ax


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
