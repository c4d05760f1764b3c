"""Descriptions of figures drawn with matplotlib."""

from __future__ import annotations

from textwrap import fill
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import (
    FixedFormatter,
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)
from numpy.typing import NDArray

from fedhlcr.exceptions import ArgumentError, ArgumentTypeError
from fedhlcr.figures.figure import Mark, Panel, Scale, spread_out
from fedhlcr.figures.palette import BLUE, GREEN, GREY, ORANGE, PALE, PALETTE, cluster_style

# inches: the width of a journal's column
FIGURE_SIZE = (3.5, 2.6)
# Characters in a line of a label beside a panel.
LABEL_LENGTH = 24
# More points than these are shown as counts in cells.
MAX_POINTS = 5_000
CELLS = 60
# Of more levels, the names are turned.
FLAT_LEVELS = 3
# Over more powers of ten, only these have ticks.
MANY_DECADES = 2.5
# The width of a letter, and of the gap between ticks, in font sizes.
LETTER = 0.55
GAP = 0.3
INK = "#222222"
# one hue each, so that only lightness carries information
FEW_TO_MANY = LinearSegmentedColormap.from_list("few_to_many", ["#bcd9eb", BLUE, "#00263b"])
NONE_TO_ALL = LinearSegmentedColormap.from_list("none_to_all", ["#ffffff", BLUE, "#00263b"])
DASHED = (0, (4, 3))

GREY_DOT = {"color": GREY, "marker": "o", "markersize": 3.0, "alpha": 0.6, "markeredgewidth": 0, "zorder": 2}
RING = {"markerfacecolor": "none", "markeredgewidth": 1.2, "zorder": 6}
# How marks look, by their shape and role; colours, lines and markers of clusters come from their numbers.
LOOKS: dict[tuple[str, str], dict[str, Any]] = {
    ("line", "line"): {"linewidth": 1.5, "zorder": 4},
    ("line", "shared"): {"linewidth": 4.0, "zorder": 4},
    ("line", "own"): {"color": INK, "linewidth": 1.5, "zorder": 4},
    ("line", "other"): {"color": PALE, "linewidth": 1.0, "zorder": 2},
    ("line", "diagonal"): {"color": "black", "linewidth": 0.8, "zorder": 3},
    ("line", "curve"): {"color": BLUE, "marker": "o", "linewidth": 1.2, "markersize": 3.5, "zorder": 3},
    ("line", "series"): {"linewidth": 1.0},
    ("line", "replicated"): {"color": BLUE, "linewidth": 0.6, "alpha": 0.45, "zorder": 2},
    ("line", "observed"): {"color": "black", "linewidth": 1.5, "zorder": 3},
    ("line", "auto"): {"color": GREEN, "linewidth": 1.2, "zorder": 4},
    ("dots", "event"): GREY_DOT,
    ("dots", "cluster event"): {"marker": ".", "markersize": 2.2, "alpha": 0.35, "markeredgewidth": 0, "zorder": 2},
    ("dots", "mean"): GREY_DOT,
    ("dots", "cluster mean"): {"markersize": 3.6, "markeredgewidth": 0.9, "markerfacecolor": "white", "zorder": 6},
    ("dots", "faint"): {"color": GREY, "marker": ".", "markersize": 2, "alpha": 0.4, "zorder": 1},
    ("dots", "observed"): {"color": "black", "marker": "o", "markersize": 3.0, "zorder": 3},
    ("dots", "auto"): {"color": GREEN, "marker": "D", "markersize": 4.5, "zorder": 5},
    ("dots", "ring"): RING | {"color": "black", "marker": "o", "markersize": 8.0},
    ("dots", "ring suggested"): RING | {"color": ORANGE, "marker": "s", "markersize": 10.5},
    ("levels", "spot"): {"color": BLUE, "marker": "o", "markersize": 3.5, "linewidth": 1.2},
    ("levels", "replicated"): {"color": BLUE, "marker": "o", "markersize": 2.4, "linewidth": 1.6},
    ("levels", "ink"): {"color": "black", "linewidth": 1.2},
    ("levels", "error"): {"color": BLUE, "linewidth": 1.0},
    ("levels", "error auto"): {"color": GREEN, "linewidth": 1.0},
    ("levels", "line"): {"markersize": 4.0, "linewidth": 1.3},
    ("levels", "shared"): {"markersize": 6.0, "linewidth": 1.3},
    ("levels", "own"): {"color": INK, "marker": "o", "markersize": 4.0, "linewidth": 1.3},
    ("levels", "estimate"): {"markersize": 2.6, "linewidth": 3.2},
    ("bars", "predictions"): {"color": GREY, "alpha": 0.3, "width": 0.9},
    ("bars", "observed"): {"color": GREY, "alpha": 0.45, "linewidth": 0, "width": 0.8, "zorder": 2},
    ("bars", "weight"): {"alpha": 0.7, "width": 0.8},
    ("rule", "zero"): {"color": GREY, "linewidth": 0.7, "zorder": 1},
    ("rule", "best"): {"color": GREY, "linewidth": 0.7, "linestyle": DASHED, "zorder": 1},
    ("span", "kept"): {"color": GREY, "alpha": 0.12, "linewidth": 0, "zorder": 0},
    ("span", "stripe"): {"color": "black", "alpha": 0.035, "linewidth": 0, "zorder": 0},
}
# Bands whose ends are drawn as lines too, and the opacity and the colour of the others.
OUTLINED = ("line", "own")
BANDS = {"chance": (GREY, 0.2), "spread": (BLUE, 0.2)}


def axes_or_new(ax: Any, size: tuple[float, float] = FIGURE_SIZE) -> Axes:
    """The given Axes, or that of a new figure, one column wide."""
    if ax is None:
        return panels_or_new(None, 1, size, 1, share=False)[0]
    if not isinstance(ax, Axes):
        raise ArgumentTypeError(
            f"`ax` must be one matplotlib Axes, but is of type {type(ax).__name__}; pass one of those that "
            "`plt.subplots()` returns, or leave it out for a new figure."
        )
    return ax


def panels_or_new(
    ax: Any, n: int, size: tuple[float, float], n_columns: int, *, share: bool = True
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
            sharex=share,
            sharey=share,
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


def _style(ax: Axes) -> None:
    """Small labels, a pale grid, no box."""
    ax.tick_params(labelsize=7)
    for text in (ax.xaxis.label, ax.yaxis.label, ax.title):
        text.set_fontsize(8)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color=PALE, linewidth=0.5)
    ax.set_axisbelow(True)


def draw(panel: Panel, ax: Axes, **legend_style: Any) -> Axes:
    """Draw one panel on the Axes."""
    for mark in panel.marks:
        _DRAWN[mark.shape](ax, mark)
    set_side(ax, ax.xaxis, panel.x)
    set_side(ax, ax.yaxis, panel.y)
    if panel.is_square:
        ax.set_aspect("equal")
    if panel.title:
        ax.set_title(panel.title, fontsize=ax.xaxis.label.get_fontsize())
    if panel.ends:
        _number_lines(ax, panel)
    if panel.legend is not None and ax.get_legend_handles_labels()[0]:
        legend(ax, title=panel.legend or None, **legend_style)
    return ax


def draw_panels(panels: list[Panel], axes: NDArray[np.object_], *, only_outer: bool) -> NDArray[np.object_]:
    """Draw a panel on each of the Axes; labels of sides only at the outer ones, if wanted."""
    for panel, ax in zip(panels, axes, strict=True):
        draw(panel, ax)
        ax.set_ylabel(fill(ax.get_ylabel(), LABEL_LENGTH))
        if only_outer:
            keep_outer_labels(ax, axes)
    return axes


def keep_outer_labels(ax: Axes, panels: NDArray[np.object_]) -> None:
    """Remove the label of y unless the panel is in the first column, and that of x if there is a panel below."""
    place = ax.get_subplotspec()
    assert place is not None
    if place.colspan.start > 0:
        ax.set_ylabel("")
    below = (place.rowspan.stop, place.colspan.start)
    if any((own.get_subplotspec().rowspan.start, own.get_subplotspec().colspan.start) == below for own in panels):
        ax.set_xlabel("")


def _looks(mark: Mark) -> dict[str, Any]:
    """Keyword arguments of a mark, with a label: its name, or one that legends leave out."""
    role = mark.role
    looks: dict[str, Any] = {"label": mark.name or f"_{role.split()[0]}"}
    if mark.cluster is not None:
        style = cluster_style(mark.cluster)
        looks["color"] = style.color
        if mark.shape == "line":
            looks["linestyle"] = style.line
        elif mark.shape in ("dots", "levels"):
            looks["marker"] = style.marker
        role = f"cluster {role}" if mark.shape == "dots" else role
    elif role.startswith("series "):
        looks["color"] = PALETTE[int(role[-1])]
    found = LOOKS.get((mark.shape, role)) or LOOKS.get((mark.shape, role.split()[0]), {})
    return looks | found


def _draw_line(ax: Axes, mark: Mark) -> None:
    looks = _looks(mark)
    if mark.has_ends:
        color, alpha = BANDS.get(mark.role, (looks.get("color"), 0.25))
        name = "_band" if len(mark.y) else looks["label"]
        ax.fill_between(mark.x, mark.low, mark.high, color=color, alpha=alpha, linewidth=0.0, label=name, zorder=3)
        for end in (mark.low, mark.high) if mark.role in OUTLINED else ():
            ax.plot(mark.x, end, color=color, linewidth=0.5, alpha=0.7, label="_end", zorder=3)
    if len(mark.y):
        ax.plot(mark.x, mark.y, **looks)


def _draw_dots(ax: Axes, mark: Mark) -> None:
    looks = _looks(mark)
    looks = {"markeredgecolor": looks.get("color"), "linestyle": "none"} | looks
    ax.plot(mark.x, mark.y, **looks)


def _draw_levels(ax: Axes, mark: Mark) -> None:
    """Dots with intervals. An estimate's is a pale bar with caps, so that even a short one is seen."""
    looks = _looks(mark)
    width = looks.pop("linewidth")
    color = looks["color"]
    has_dots = len(mark.x) > 0 and len(mark.y) > 0
    if mark.has_ends:
        along, across = (mark.y, ax.hlines) if mark.is_across else (mark.x, ax.vlines)
        is_pale = mark.role == "estimate" or (not has_dots and mark.is_across)
        name = "_interval" if has_dots else looks["label"]
        width = 3.0 if is_pale and not has_dots else width
        alpha = 0.4 if is_pale else 1.0
        across(along, mark.low, mark.high, color=color, linewidth=width, alpha=alpha, label=name, zorder=2)
        capped = mark.role in ("estimate", "line", "own", "error", "error auto")
        for end in (mark.low, mark.high) if capped else ():
            x, y, cap = (end, along, "|") if mark.is_across else (along, end, "_")
            ax.plot(x, y, cap, color=color, markersize=5.0, markeredgewidth=0.9, label="_end", zorder=3)
    if has_dots:
        ax.plot(mark.x, mark.y, linestyle="none", zorder=4, **looks)


def _draw_bars(ax: Axes, mark: Mark) -> None:
    looks = _looks(mark)
    step = float(np.diff(mark.x[:2])[0]) if len(mark.x) > 1 else 1.0
    ax.bar(mark.x, mark.y, **(looks | {"width": looks["width"] * step}))


def _draw_cloud(ax: Axes, mark: Mark) -> None:
    if len(mark.x) <= MAX_POINTS:
        ax.plot(mark.x, mark.y, "o", color=BLUE, markersize=2.5, alpha=0.5, markeredgewidth=0, zorder=2)
        return
    cells = ax.hexbin(mark.x, mark.y, gridsize=CELLS, bins="log", mincnt=1, cmap=FEW_TO_MANY, linewidths=0.1, zorder=2)
    color_bar(ax, cells, "events")


def _draw_rule(ax: Axes, mark: Mark) -> None:
    if len(mark.x):
        ax.axvline(float(mark.x[0]), **_looks(mark))
    else:
        ax.axhline(float(mark.y[0]), **_looks(mark))


def _draw_span(ax: Axes, mark: Mark) -> None:
    if len(mark.x):
        ax.axvspan(*mark.x, **_looks(mark))
    else:
        ax.axhspan(*mark.y, **_looks(mark))


def _draw_numbers(ax: Axes, mark: Mark) -> None:
    for x, y in zip(mark.x, mark.y, strict=True):
        ax.annotate(
            str(mark.cluster),
            (x, y),
            (3.5, -0.3),
            textcoords="offset points",
            color=_looks(mark)["color"],
            fontsize=0.72 * float(ax.xaxis.label.get_fontsize()),
            fontweight="bold",
            va="center",
            annotation_clip=True,
        )


_DRAWN = {
    "line": _draw_line,
    "dots": _draw_dots,
    "levels": _draw_levels,
    "bars": _draw_bars,
    "cloud": _draw_cloud,
    "rule": _draw_rule,
    "span": _draw_span,
    "number": _draw_numbers,
}


def set_side(ax: Axes, axis: Axis, scale: Scale) -> None:
    """Scale, limits, ticks and label of one side of the Axes."""
    name: Literal["x", "y"] = "x" if axis is ax.xaxis else "y"
    if scale.kind == "log" and scale.offset == 0.0:
        ax.set(**{f"{name}scale": "log"})
    elif scale.kind in ("log", "root"):
        offset = scale.offset
        to_log = (lambda v: np.log(np.maximum(v + offset, 1e-300)), lambda v: np.exp(v) - offset)
        to_root = (lambda v: np.sqrt(np.maximum(v, 0.0)), np.square)
        set_scale = ax.set_xscale if name == "x" else ax.set_yscale
        set_scale("function", functions=to_log if scale.kind == "log" else to_root)
    if scale.low is not None or scale.high is not None:
        ends = (scale.high, scale.low) if scale.is_reversed else (scale.low, scale.high)
        ax.set(**{f"{name}lim": ends})
    if scale.kind == "levels":
        ax.grid(visible=False, axis=name)
    _set_ticks(ax, axis, scale)
    axis.set_label_text(scale.label)


def _set_ticks(ax: Axes, axis: Axis, scale: Scale) -> None:
    if scale.ticks is not None:
        ticks = scale.ticks if scale.kind == "levels" or axis is ax.yaxis else _with_room(ax, scale)
        axis.set_major_locator(FixedLocator([place for place, _ in ticks]))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FixedFormatter([text for _, text in ticks]))
        if scale.kind == "levels" and axis is ax.xaxis and len(ticks) > FLAT_LEVELS:
            ax.tick_params(axis="x", labelrotation=40)
            for text in ax.get_xticklabels():
                text.set_horizontalalignment("right")
                text.set_rotation_mode("anchor")
    elif scale.kind == "log":
        plain_ticks(axis)
        if scale.low is None:
            axis.set_major_locator(log_locator(*sorted(axis.get_view_interval())))
            axis.set_minor_locator(NullLocator())
    elif scale.kind in ("whole", "root"):
        most = 8 if scale.kind == "whole" else 5
        axis.set_major_locator(MaxNLocator(most, integer=True, min_n_ticks=1))
    elif scale.kind == "share":
        axis.set_major_locator(MaxNLocator(5))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100.0 * value:.6g} %"))


def _with_room(ax: Axes, scale: Scale) -> list[tuple[float, str]]:
    """The ticks of x that do not touch those before them."""
    assert scale.ticks is not None
    low, high = sorted(ax.get_xlim())
    placed = Scale(low, high, kind=scale.kind, offset=scale.offset)
    size = float(ax.xaxis.label.get_fontsize()) / (72.0 * ax.bbox.width / ax.figure.dpi)
    kept: list[tuple[float, str]] = []
    for tick in scale.ticks:
        if kept:
            first, last = placed.fractions(np.array([kept[-1][0], tick[0]]))
            letters = (len(kept[-1][1]) + len(tick[1])) / 2.0
            if last - first < size * (LETTER * letters + GAP):
                continue
        kept.append(tick)
    return kept


def plain_ticks(axis: Axis) -> None:
    """Ticks at 1, 2 and 5 of a logarithmic axis, as plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_formatter(NullFormatter())


def log_locator(low: float, high: float) -> LogLocator:
    """Few enough ticks for any range: the wider it is, the fewer in each power of ten."""
    decades = np.log10(high / low)
    if decades > MANY_DECADES:
        return LogLocator(subs=(1.0,), numticks=6)
    return LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0) if decades < 1.0 else (1.0, 3.0))


def legend(ax: Axes, **kwargs: Any) -> None:
    """A legend without a frame, in a font slightly smaller than that of the labels."""
    size = 0.9 * float(ax.xaxis.label.get_fontsize())
    ax.legend(**{"frameon": False, "fontsize": size, "title_fontsize": size, "handlelength": 1.2, **kwargs})


def _number_lines(ax: Axes, panel: Panel) -> None:
    """The number of each cluster at the right of the Axes, at the height where its line ends; they do not overlap."""
    size = 0.9 * float(ax.xaxis.label.get_fontsize())
    low, high = ax.get_ylim()
    step = 1.15 * size / (72.0 * ax.bbox.height / ax.figure.dpi) if ax.bbox.height else 0.0
    ends = sorted(panel.ends, key=lambda end: end[1])
    wanted = np.clip([(value - low) / (high - low) for _, value in ends], 0.0, 1.0)
    heights = spread_out(wanted, step)
    words: dict[str, Any] = {
        "xycoords": "axes fraction",
        "textcoords": "offset points",
        "fontsize": size,
        "va": "center",
    }
    for (cluster, _), height in zip(ends, heights, strict=True):
        color = cluster_style(cluster).color
        ax.annotate(str(cluster), (1.0, height), (3, 0), color=color, fontweight="bold", **words)
    ax.annotate("cluster", (1.0, max([*heights, 0.0]) + step), (3, 1), **words)


def color_bar(ax: Axes, image: ScalarMappable, label: str) -> None:
    """A colour bar beside the Axes, in its font size."""
    size = float(ax.yaxis.label.get_fontsize())
    bar = ax.figure.colorbar(image, ax=ax)
    bar.set_label(label, fontsize=size)
    bar.ax.tick_params(labelsize=0.9 * size)
