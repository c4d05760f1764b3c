"""Style of the figures: legible at a journal's column width, with colours that colour-blind readers distinguish."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from fedhlcr.figures.palette import PALETTE

BLUE, ORANGE, GREEN, RED, SKY, PURPLE = PALETTE[:6]
BLACK = "#000000"
GREY = "#777777"
# inches
COLUMN_WIDTH, PAGE_WIDTH = 3.5, 7.2

STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.5,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 300,
    "svg.fonttype": "path",
    # what makes a picture the same to the byte whenever it is drawn
    "svg.hashsalt": "fedhlcr",
}


@contextmanager
def picture(path: Path, n_rows: int = 1, n_columns: int = 1, **kwargs: Any) -> Iterator[tuple[Figure, np.ndarray]]:
    """A figure and its axes (n_rows, n_columns), saved as SVG and PNG when all is drawn."""
    with mpl.rc_context(STYLE):
        kwargs.setdefault("figsize", (COLUMN_WIDTH if n_columns == 1 else PAGE_WIDTH, 2.5 * n_rows))
        figure, axes = plt.subplots(n_rows, n_columns, squeeze=False, **kwargs)
        try:
            yield figure, axes
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
            figure.savefig(path.with_suffix(".png"), metadata={"Software": None})
        finally:
            plt.close(figure)


def band(axes: Axes, x: ArrayLike, runs: ArrayLike, *, color: str, label: str | None = None, **kwargs: Any) -> None:
    """The mean of runs (runs, points), and the mean ± one standard error as a band."""
    runs = np.asarray(runs, float)
    mean, error = runs.mean(axis=0), standard_error(runs)
    axes.plot(x, mean, color=color, label=label, **kwargs)
    axes.fill_between(x, mean - error, mean + error, color=color, alpha=0.2, linewidth=0)


def standard_error(runs: ArrayLike) -> np.ndarray:
    """Of the mean over the first axis; 0 for one run."""
    runs = np.asarray(runs, float)
    return runs.std(axis=0, ddof=1) / np.sqrt(len(runs)) if len(runs) > 1 else np.zeros(runs.shape[1:])


def legend_below(figure: Figure, axes: Axes, n_columns: int) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=n_columns)
