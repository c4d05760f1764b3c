"""One feature against the target, in every cluster, with events."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.wording import ENTITY, noun
from fedhlcr.analysis.axes import Axis, feature_axes
from fedhlcr.analysis.axis_lines import AxisLine, TargetAxis, axis_line, axis_strengths, target_axis
from fedhlcr.analysis.effects import entity_shares
from fedhlcr.analysis.links import Link
from fedhlcr.data.hierarchy import UNKNOWN
from fedhlcr.estimators.base import HierarchicalPredictor, check_model
from fedhlcr.estimators.drawn_events import DrawnEvents, read_drawn_events
from fedhlcr.exceptions import ArgumentError
from fedhlcr.plot.axis_drawing import draw_line, level_shifts, set_place_axis, set_target_axis, value_limits
from fedhlcr.plot.canvas import (
    LABEL_LENGTH,
    axes_or_new,
    check_level,
    evenly,
    keep_outer_labels,
    number_lines,
    panels_or_new,
)
from fedhlcr.plot.features import chosen_axis, chosen_clusters
from fedhlcr.plot.palette import PALE, cluster_style

# With more clusters, each has a panel.
MAX_TOGETHER = 4
# Of more events, this many are drawn as dots, and the means of all events in groups as larger ones.
MAX_DOTS = 250
# Groups of events along an axis of numbers, and the least events in one.
N_GROUPS = 12
LEAST_IN_GROUP = 5
# Means of events at a level are drawn beside the cluster's own point, a part of the distance to the next level.
LEVEL_GAP = 0.16
PANEL_SIZE = (1.75, 1.6)
N_COLUMNS = 4
LAYOUTS = ("panels", "together")


class Scatter(NamedTuple):
    """Events of one cluster along an axis: targets as they would be with average other features."""

    places: FloatArray
    values: FloatArray


def effects(
    model: HierarchicalPredictor,
    feature: str | int | None = None,
    X: Any = None,
    y: Any = None,
    agent: Any = None,
    entity: Any = None,
    ax: Axes | Sequence[Axes] | NDArray[np.object_] | None = None,
    *,
    level: float | None = 0.9,
    clusters: Sequence[int] | None = None,
    layout: Literal["panels", "together"] | None = None,
    target: str | None = None,
    exposure: Any = None,
) -> Axes | NDArray[np.object_]:
    """A feature against the target in every cluster: the line of the cluster, its band, and events.

    Features are shown as a reader knows them: the month instead of its sine and cosine, miles instead of their
    logarithm, the levels of a category. A line is the posterior mean of what the cluster predicts if all other features
    have their means; the band is its interval of probability `level`. Of a classifier it is the probability of the
    second class, of a count model the rate.

    Events are drawn in the panel of their entity's cluster, adjusted to average other features: the line plus the
    residual of the model's own prediction. Of more than 250 events, 250 are drawn, and the means of all of them in
    twelve groups of equally many as larger dots. Classes and counts are always drawn as means. The y axis leaves out
    the outermost hundredth of the dots at either end. Events of entities that were not fitted have no cluster, so they
    are left out.

    Parameters
    ----------
    model : a fitted estimator of any sort; a public one has no clusters for events
    feature : name or position of a feature, or name of its axis, such as "month"; None is the strongest
    X, y, agent, entity : events to draw, as in `score`; None draws lines only
    ax : one Axes for all clusters together, or an array of Axes, one for each cluster; None makes a new figure
    level : probability of the bands; None leaves them out
    clusters : numbers of clusters; None is all, at most the sixteen largest
    layout : {"panels", "together"}; None is together for up to four clusters
    target : name of y in labels, best with its unit
    exposure : as in `score`, for counts; rates are shown per unit of it

    Returns
    -------
    ax : Axes, or an array of them (clusters,) if every cluster has one
    """
    check_model(model)
    check_level(level, model)
    shown = chosen_clusters(model, clusters)
    events = read_given_events(model, X, y, agent, entity, exposure)
    axes = feature_axes(model, None if events is None else events.X)
    axis = strongest_axis(model, axes) if feature is None else chosen_axis(model, axes, feature)
    lines = {k: axis_line(model, axis, k, level=0.9 if level is None else level) for k in shown}
    dots = {k: _scatter(events, axis, lines[k], k) for k in shown} if events is not None else {}
    picture = _Picture(model, axis, lines, dots, target_axis(model), target, level is not None)
    if _is_together(layout, ax, len(shown)):
        return picture.together(axes_or_new(ax))
    return picture.panels(panels_or_new(ax, len(shown), PANEL_SIZE, N_COLUMNS), only_outer=ax is None)


def read_given_events(
    model: HierarchicalPredictor, X: Any, y: Any, agent: Any, entity: Any, exposure: Any
) -> DrawnEvents | None:
    """Events of known entities, or None if none are given."""
    if X is None and y is None:
        return None
    if X is None:
        raise ArgumentError("`X` is missing; pass both `X` and `y` to draw events, or neither.")
    events = read_drawn_events(model, X, y, agent, entity, exposure)
    known = events.label != UNKNOWN
    if not known.any():
        raise ArgumentError(
            "no event belongs to an entity that the model knows, so none has a cluster; pass `agent` and `entity` as "
            "in `fit`, or `adapt` the model to these events first."
        )
    return events.take(known)


def strongest_axis(model: HierarchicalPredictor, axes: tuple[Axis, ...]) -> Axis:
    """The axis that moves the target most, on average over the entities."""
    return axes[int(np.argmax(entity_shares(model) @ axis_strengths(model, axes) ** 2))]


def group_means(axis: Axis, scatter: Scatter, link: Link | None) -> Scatter:
    """Means of the events at each level, or in groups of equally many events.

    What is adjusted may leave the range of probabilities or rates a little, so it is cut off there.
    """
    places, values = scatter
    if axis.is_discrete:
        parts = [np.flatnonzero(places == level) for level in np.unique(places)]
    else:
        n_groups = min(N_GROUPS, max(len(places) // LEAST_IN_GROUP, 1))
        parts = np.array_split(np.argsort(places, kind="stable"), n_groups) if len(places) else []
    middle, means = (np.array([of[rows].mean() for rows in parts]) for of in (places, values))
    if link is not None:
        means = np.clip(means, 0.0, 1.0 if link.family.has_classes else None)
    return Scatter(middle, means)


class _Picture(NamedTuple):
    """Everything that is drawn: lines and events by cluster."""

    model: HierarchicalPredictor
    axis: Axis
    lines: dict[int, AxisLine]
    dots: dict[int, Scatter]
    target: TargetAxis
    name: str | None
    has_bands: bool

    def together(self, ax: Axes) -> Axes:
        """All clusters on one Axes, numbered at its right."""
        shifts = level_shifts(self.axis, len(self.lines))
        for (cluster, line), shift in zip(self.lines.items(), shifts, strict=True):
            self._draw_events(ax, cluster, shift)
            draw_line(ax, line, cluster_style(cluster), str(cluster), band=self.has_bands, shift=shift)
        self._set_axes(ax)
        number_lines(
            ax,
            {cluster: float(line.mean[-1]) for cluster, line in self.lines.items()},
            {cluster: cluster_style(cluster).color for cluster in self.lines},
        )
        return ax

    def panels(self, axes: NDArray[np.object_], *, only_outer: bool) -> NDArray[np.object_]:
        """A panel for each cluster, with the lines of all others in grey; labels of axes only outside, if wanted."""
        counts = self._entity_counts()
        for ax, (cluster, line) in zip(axes, self.lines.items(), strict=True):
            for other in self.lines.values():
                if other is not line and not self.axis.is_discrete:
                    ax.plot(other.places, other.mean, color=PALE, linewidth=1.0, label="_other", zorder=2)
            self._draw_events(ax, cluster, 0.0)
            draw_line(ax, line, cluster_style(cluster), str(cluster), band=self.has_bands)
            self._set_axes(ax)
            title = f"cluster {cluster}" + ("" if counts is None else f": {counts[cluster]}")
            ax.set_title(title, fontsize=ax.xaxis.label.get_fontsize())
            ax.set_ylabel(fill(ax.get_ylabel(), LABEL_LENGTH))
            if only_outer:
                keep_outer_labels(ax, axes)
        return axes

    def _set_axes(self, ax: Axes) -> None:
        set_place_axis(ax, self.axis, most=5 if len(self.lines) <= MAX_TOGETHER else 3)
        limits = value_limits(self.lines.values(), np.concatenate([*self._shown_values(), np.empty(0)]))
        set_target_axis(ax, self.target, self.name, limits)

    def _shown_values(self) -> list[FloatArray]:
        """What is drawn of the events: all of them, or their means."""
        if self.target.link is not None:
            return [group_means(self.axis, dots, self.target.link).values for dots in self.dots.values()]
        return [dots.values for dots in self.dots.values()]

    def _draw_events(self, ax: Axes, cluster: int, shift: float) -> None:
        """Dots for events, and means in groups where there are too many; of classes and counts, means only."""
        if (scatter := self.dots.get(cluster)) is None or not len(scatter.places):
            return
        color = cluster_style(cluster).color
        marker = cluster_style(cluster).marker
        if self.target.link is None:
            some: IndexArray = evenly(len(scatter.places), MAX_DOTS)
            across = _jitter(len(some)) if self.axis.is_discrete else 0.0
            x = scatter.places[some] + shift + across
            y = scatter.values[some]
            ax.plot(x, y, ".", color=color, markersize=2.2, alpha=0.35, markeredgewidth=0, label="_event", zorder=2)
        if self.target.link is not None or len(scatter.places) > MAX_DOTS:
            means = group_means(self.axis, scatter, self.target.link)
            x = means.places + shift + (0.5 * LEVEL_GAP if self.axis.is_discrete else 0.0)
            ax.plot(
                x,
                means.values,
                marker,
                color="white",
                markeredgecolor=color,
                markeredgewidth=0.9,
                markersize=3.6,
                label="_mean",
                zorder=6,
            )

    def _entity_counts(self) -> list[str] | None:
        """How many entities are in each cluster, in words; None for a public model."""
        if not len(self.model.posterior_.memory.entities):
            return None
        word = noun(self.model.entity_column_, ENTITY)
        return [word.count(int(n)) for n in np.bincount(self.model.labels_, minlength=self.model.n_clusters_)]


def _jitter(n: int) -> FloatArray:
    """Small steps to either side, so that events at one level do not hide each other."""
    return np.asarray(LEVEL_GAP * ((np.arange(1, n + 1) * 0.6180339887498949) % 1.0 - 0.5))


def _scatter(events: DrawnEvents, axis: Axis, line: AxisLine, cluster: int) -> Scatter:
    own = events.take(events.label == cluster)
    places = axis.places(own.X)
    return Scatter(places, line.adjusted(places, own.residuals))


def _is_together(layout: str | None, ax: Any, n: int) -> bool:
    if layout is not None and layout not in LAYOUTS:
        raise ArgumentError(f"`layout` must be 'panels' or 'together', but is {layout!r}.")
    if layout is None:
        return isinstance(ax, Axes) or (ax is None and n <= MAX_TOGETHER)
    if layout == "panels" and isinstance(ax, Axes) and n > 1:
        raise ArgumentError(f"`layout` is 'panels', but `ax` is one Axes; pass an array of {n} Axes, or leave it out.")
    return layout == "together"
