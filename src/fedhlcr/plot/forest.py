"""Forest plots: a row for each feature, and in it a mean with its interval for each cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from fedhlcr._support.arrays import FloatArray
from fedhlcr.plot.canvas import FIGURE_SIZE
from fedhlcr.plot.palette import cluster_style

# The clusters of one feature are stacked within this part of its row.
ROW = 0.84
# Inches between two clusters of a row, between two rows, and below all of them.
CLUSTER_HEIGHT = 0.1
ROW_GAP = 0.08
BELOW = 0.55
# Up to this many clusters, colours are enough; of more, each is numbered beside its interval too.
MAX_UNNUMBERED = 4


def figure_size(n_rows: int, n_clusters: int) -> tuple[float, float]:
    """Inches of a new figure with room for every row."""
    height = n_rows * (CLUSTER_HEIGHT * n_clusters + ROW_GAP) + BELOW
    return FIGURE_SIZE[0], max(FIGURE_SIZE[1], height)


class Estimates(NamedTuple):
    """Means (clusters, features) and the ends of their intervals, of the same shape; None leaves intervals out."""

    means: FloatArray
    lower: FloatArray | None
    upper: FloatArray | None

    def of(self, feature: int) -> Estimates:
        """Those of one feature, (clusters, 1)."""
        lower, upper = (None if end is None else end[:, [feature]] for end in (self.lower, self.upper))
        return Estimates(self.means[:, [feature]], lower, upper)


def draw_rows(ax: Axes, clusters: Sequence[int], found: Estimates, names: Sequence[str]) -> None:
    """A row for each feature, with all clusters in it."""
    n_rows = len(names)
    shifts = ROW * ((np.arange(len(clusters)) + 0.5) / len(clusters) - 0.5)
    for row in range(1, n_rows, 2):
        ax.axhspan(row - 0.5, row + 0.5, color="black", alpha=0.035, linewidth=0, zorder=0)
    for number, (cluster, shift) in enumerate(zip(clusters, shifts, strict=True)):
        height = np.arange(n_rows) + shift
        right = _draw_cluster(ax, cluster, number, found, np.arange(n_rows) + shift)
        if len(clusters) > MAX_UNNUMBERED:
            for x, y in zip(right, height, strict=True):
                _write_number(ax, cluster, x, y)
    ax.set_yticks(np.arange(n_rows), names)
    ax.set_ylim(n_rows - 0.5, -0.5)
    ax.grid(visible=False, axis="y")


def draw_feature(ax: Axes, clusters: Sequence[int], found: Estimates, feature: int) -> None:
    """One feature, with a row for each cluster."""
    own = found.of(feature)
    for number, cluster in enumerate(clusters):
        _draw_cluster(ax, cluster, number, own, np.array([number]))
    ax.set_yticks(np.arange(len(clusters)), [str(cluster) for cluster in clusters])
    for text, cluster in zip(ax.get_yticklabels(), clusters, strict=True):
        text.set_color(cluster_style(cluster).color)
        text.set_fontweight("bold")
    ax.set_ylim(len(clusters) - 0.5, -0.5)
    ax.grid(visible=False, axis="y")


def _draw_cluster(ax: Axes, cluster: int, number: int, found: Estimates, height: FloatArray) -> FloatArray:
    """Draw means and intervals of the cluster in this place, and return where each ends at the right.

    An interval is a pale bar with caps, taller than the mark of the mean, so that even a short one is seen.
    """
    means = found.means[number]
    style = cluster_style(cluster)
    right = means
    if found.lower is not None and found.upper is not None:
        lower = found.lower[number]
        upper = found.upper[number]
        ax.hlines(height, lower, upper, color=style.color, linewidth=3.2, alpha=0.4, zorder=2)
        for end in (lower, upper):
            ax.plot(end, height, "|", color=style.color, markersize=5.0, markeredgewidth=0.9, label="_end", zorder=3)
        right = np.fmax(upper, means)
    ax.plot(means, height, style.marker, color=style.color, markersize=2.6, label=str(cluster), zorder=4)
    return right


def _write_number(ax: Axes, cluster: int, x: float, y: float) -> None:
    ax.annotate(
        str(cluster),
        (x, y),
        (3.5, -0.3),
        textcoords="offset points",
        color=cluster_style(cluster).color,
        fontsize=0.72 * float(ax.xaxis.label.get_fontsize()),
        fontweight="bold",
        va="center",
        annotation_clip=True,
    )
