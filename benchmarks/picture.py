"""The picture of the cost model: one panel per size that was varied, measured dots and the model's lines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from benchmarks.cost_model import CENTRE, StageCost, fit_parallel
from benchmarks.report import Timing
from fedhlcr.figures.palette import PALETTE

PANELS = {
    "events": "events",
    "entities": "entities",
    "agents": "agents, same entities",
    "features": "features F",
    "clusters": "clusters K",
    "threads": "threads",
    "workers": "Ray workers",
}
STAGES = ("default fit", "intervals", "predictions", "matrices", "sort the table", "sweep", "round")
COLOURS = dict(zip(STAGES, PALETTE, strict=False))
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "white",
    "svg.hashsalt": "fedhlcr",  # the same picture is the same file
}


def draw(timings: Sequence[Timing], models: dict[str, StageCost], path: Path) -> None:
    """Write the picture. Sizes that nobody varied have no panel."""
    panels = [varied for varied in PANELS if any(t.varied == varied for t in timings)]
    n_columns = min(3, len(panels))
    n_rows = -(-len(panels) // n_columns)
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(
            n_rows, n_columns, figsize=(8.0, 2.6 * n_rows + 0.5), sharey=True, layout="constrained", squeeze=False
        )
        for ax, varied in zip(axes.flat, panels, strict=False):
            _panel(ax, varied, timings, models)
        for ax in axes.flat[len(panels) :]:
            ax.axis("off")
        for row in axes:
            row[0].set_ylabel("seconds")
        handles = {
            label: handle for ax in axes.flat for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
        }
        ordered = [stage for stage in STAGES if stage in handles]
        figure.legend([handles[s] for s in ordered], ordered, loc="outside upper center", ncols=6, frameon=False)
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)


def _panel(ax: Axes, varied: str, timings: Sequence[Timing], models: dict[str, StageCost]) -> None:
    ax.set(xscale="log", yscale="log", title=PANELS[varied])
    ticks: set[float] = set()
    for stage in STAGES:
        chosen = [t for t in timings if t.stage == stage and t.varied in _kinds(varied)]
        points = sorted(chosen, key=lambda t: t.shape[varied])
        if len(points) < 2:
            continue
        x = np.array([t.shape[varied] for t in points])
        y = np.array([t.seconds for t in points])
        spread = np.array([[t.seconds - t.low, t.high - t.seconds] for t in points]).T
        ax.errorbar(x, y, spread, fmt="o", markersize=4, linewidth=1, color=COLOURS[stage], label=stage)
        ax.plot(*_line(varied, points, models.get(stage)), color=COLOURS[stage], linewidth=1.2)
        ticks |= set(x.tolist())
    # the sizes of several stages may differ by a few rows; their labels would overlap
    apart = [tick for n, tick in enumerate(sorted(ticks)) if n == 0 or tick > 1.3 * sorted(ticks)[n - 1]]
    ax.xaxis.set(major_locator=FixedLocator(apart), minor_locator=NullLocator(), major_formatter=FuncFormatter(_short))


def _kinds(varied: str) -> tuple[str, ...]:
    """The centre belongs to every panel but those of threads and workers, which have their own."""
    return (varied,) if varied in ("threads", "workers") else (varied, CENTRE)


def _line(varied: str, points: Sequence[Timing], model: StageCost | None) -> tuple[list[float], list[float]]:
    """The model between the measured points, all other sizes interpolated too."""
    if varied in ("threads", "workers"):
        counts = [t.shape[varied] for t in points]
        parallel = fit_parallel(counts, [t.seconds for t in points])
        x = np.geomspace(min(counts), max(counts), 40).tolist()
        return x, [parallel.seconds(count) for count in x]
    if model is None:
        return [], []
    xs, ys = [], []
    for before, after in pairwise(points):
        for part in np.linspace(0, 1, 20):
            shape = {name: _between(value, after.shape[name], part) for name, value in before.shape.items()}
            xs.append(shape[varied])
            ys.append(model.seconds(shape))
    return xs, ys


def _between(first: float, second: float, part: float) -> float:
    return float(first ** (1 - part) * second**part) if first > 0 and second > 0 else first


def _short(value: float, _: object) -> str:
    if value >= 1e6:
        return f"{value / 1e6:.1f} M"
    return f"{value / 1e3:.0f} k" if value >= 1e3 else f"{value:g}"
