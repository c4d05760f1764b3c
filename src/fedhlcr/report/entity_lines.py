"""The lines of single entities along the strongest axes, with intervals, and the events around them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.threads import single_threaded_blas
from fedhlcr.analysis.axes import Axis, feature_axes
from fedhlcr.analysis.axis_lines import (
    axis_line,
    cluster_means,
    entity_feature_means,
    expected_of_entities,
    features_along,
)
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.figures.lines import mean_strengths
from fedhlcr.report.events import DrawnEvents
from fedhlcr.report.packing import Steps, pack

# Axes offered, and the most levels of a category on one of them.
MAX_AXES = 4
MAX_LEVELS = 24
# Points of a straight line, whose interval is curved, and of a curve.
STRAIGHT_POINTS = 5
CURVE_POINTS = 13
# Events beyond the ends of an axis stretch it by at most this share to either side.
MOST_STRETCH = 0.5
FRACTIONS = Steps(0.0, 1.0)


@dataclass(frozen=True)
class DrawnAxis:
    """An axis, and where lines along it are computed.

    Attributes
    ----------
    axis : in the reader's units
    places : (points,) where lines are computed, in the reader's units
    """

    axis: Axis
    places: FloatArray

    def to_plain(self) -> dict[str, Any]:
        """What the page's script needs."""
        ticks = self.axis.ticks()
        where = self.axis.fractions(np.array([place for place, _ in ticks]))
        return {
            "name": self.axis.name,
            "levels": list(self.axis.levels),
            "points": self.axis.fractions(self.places).round(4).tolist(),
            "ticks": [[round(float(at), 4), text] for at, (_, text) in zip(where, ticks, strict=True)],
        }


def drawn_axes(model: HierarchicalPredictor, events: DrawnEvents | None) -> list[DrawnAxis]:
    """The strongest axes over all clusters, strongest first; with events, those that vary within entities first."""
    X = None if events is None or not len(events) else events.X
    axes = tuple(axis for axis in feature_axes(model, X) if len(axis.levels) <= MAX_LEVELS)
    if not axes:
        return []
    strength = mean_strengths(model, axes) ** 2
    if events is not None and X is not None:
        strength *= [_share_within(axis, events) for axis in axes]
    chosen = [axes[a] for a in np.argsort(-strength, kind="stable")[:MAX_AXES]]
    return [_with_places(model, axis if X is None else _stretched(axis, X)) for axis in chosen]


def _share_within(axis: Axis, events: DrawnEvents) -> float:
    """The share of an axis' variance that is within entities, not between them; never quite 0."""
    at = axis.fractions(axis.places(events.X))
    _, of_entity = np.unique(events.entity, return_inverse=True)
    means = np.bincount(of_entity, weights=at) / np.bincount(of_entity)
    return max(1e-6, float(((at - means[of_entity]) ** 2).mean() / max(float(at.var()), 1e-300)))


def _stretched(axis: Axis, X: FloatArray) -> Axis:
    """An axis with almost all events on it: that of `feature_axes` leaves out the first and last per cent."""
    if axis.is_discrete or axis.cycle is not None:
        return axis
    at = axis.fractions(axis.places(X))
    low = max(float(at.min()), -MOST_STRETCH)
    high = min(float(at.max()), 1.0 + MOST_STRETCH)
    if axis.kind == "log":
        ends = np.log(np.array([axis.low, axis.high]) + axis.offset)
        low, high = (float(np.exp(ends[0] + end * (ends[1] - ends[0])) - axis.offset) for end in (low, high))
    else:
        low, high = (axis.low + end * (axis.high - axis.low) for end in (low, high))
    return replace(axis, low=low, high=high) if high > low else axis


def _with_places(model: HierarchicalPredictor, axis: Axis) -> DrawnAxis:
    grid = axis.grid()
    curves = model.posterior_.standardization.curves
    if axis.is_discrete:
        return DrawnAxis(axis, grid)
    is_curve = curves is not None and any(curves.place(f) is not None for f in axis.columns)
    straight = len(axis.columns) == 1 and not is_curve and not model.family.has_link
    n_points = STRAIGHT_POINTS if straight else CURVE_POINTS
    return DrawnAxis(axis, grid[np.linspace(0, len(grid) - 1, n_points).astype(np.int64)])


def pack_lines(entities: FloatArray, clusters: FloatArray) -> dict[str, Any]:
    """Lines as `entity_lines` returns them, as the page's script needs them."""
    low, high = Steps.of(entities[..., [0, 3]], clusters[..., 0])
    # rates may have intervals of any width, which would leave no digits for the lines
    scale = Steps(2.0 * low - high, 2.0 * high - low)
    packed = [pack(scale.quantise(lines.clip(*scale))) for lines in (entities, clusters)]
    return {"low": scale.low, "high": scale.high, "entities": packed[0], "clusters": packed[1]}


@single_threaded_blas
def entity_lines(
    model: HierarchicalPredictor, axes: list[DrawnAxis], entities: IndexArray
) -> tuple[FloatArray, FloatArray]:
    """The lines of entities, given by ascending positions, and of all clusters: those that `plot.entity` draws.

    The mean is what the model predicts. Intervals are those of the regression, without the noise of single events.

    Returns
    -------
    entities : (entities, points of all axes, 4) mean, lower and upper end of the 90 % interval of the regression, and
        the mean of the entity's cluster; other features have the entity's own averages
    clusters : (clusters, points of all axes, 3) mean and interval of each cluster; other features have their means
    """
    X = _features(model, axes, entities)
    n_points = X.shape[1]
    flat = X.reshape(-1, X.shape[2])
    own = expected_of_entities(model, np.repeat(entities, n_points), flat)
    shared = np.empty(len(flat))
    label = np.repeat(model.labels_[entities], n_points)
    for k in np.unique(label):
        shared[label == k] = cluster_means(model, int(k), flat[label == k])
    clusters = np.empty((model.n_clusters_, n_points, 3))
    for k in range(model.n_clusters_):
        lines = [axis_line(model, drawn.axis, k, drawn.places) for drawn in axes]
        clusters[k] = np.concatenate([np.stack([line.mean, line.lower, line.upper], axis=1) for line in lines])
    return np.column_stack([own, shared]).reshape(len(entities), n_points, 4), clusters


def _features(model: HierarchicalPredictor, axes: list[DrawnAxis], entities: IndexArray) -> FloatArray:
    """(entities, points of all axes, n_features_in_) features along the axes; others have the entity's own averages."""
    others = entity_feature_means(model, entities)
    return np.concatenate([features_along(model, drawn.axis, drawn.places, others) for drawn in axes], axis=1)


def pack_events(
    model: HierarchicalPredictor, axes: list[DrawnAxis], entities: IndexArray, events: DrawnEvents, most: int
) -> dict[str, Any]:
    """At most `most` events of each entity: where they are on each axis, and their residual or, with a link, target.

    `entities` are ascending positions. Of more events, evenly spaced ones are kept.
    """
    rows, counts = _kept_rows(entities, events.entity, most)
    is_adjusted = not model.family.has_link
    values = (events.residuals if is_adjusted else events.observed)[rows]
    scale = Steps.of(values)
    places = [own.axis.fractions(own.axis.places(events.X[rows])) for own in axes]
    return {
        "adjusted": is_adjusted,
        "counts": pack(counts),
        "at": [pack(FRACTIONS.quantise(at)) for at in places],
        "values": pack(scale.quantise(values)),
        "low": scale.low,
        "high": scale.high,
    }


def _kept_rows(entities: IndexArray, entity_of: IndexArray, most: int) -> tuple[IndexArray, IndexArray]:
    """Rows of the events to draw, sorted by entity, and the number for each of the entities."""
    order = np.argsort(entity_of, kind="stable")
    starts = np.searchsorted(entity_of[order], entities)
    totals = np.searchsorted(entity_of[order], entities, side="right") - starts
    counts = np.minimum(totals, most)
    of = np.repeat(np.arange(len(entities)), counts)
    rank = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
    return order[starts[of] + rank * totals[of] // np.maximum(counts[of], 1)], counts
