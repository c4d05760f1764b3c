"""Lines of clusters and entities along an axis of the reader, with bands, and events around them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import expit, logit

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import ENTITY, noun
from fedhlcr.analysis.axes import Axis, axis_of, feature_axes
from fedhlcr.analysis.axis_lines import (
    AxisLine,
    TargetAxis,
    axis_change,
    axis_line,
    axis_strengths,
    entity_feature_means,
    entity_line,
    entity_strengths,
    target_axis,
)
from fedhlcr.analysis.effects import entity_shares
from fedhlcr.analysis.links import NO_TARGET, link_of
from fedhlcr.analysis.summary import shorten
from fedhlcr.data.families import Family
from fedhlcr.data.hierarchy import UNKNOWN
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.estimators.drawn_events import DrawnEvents, read_drawn_events
from fedhlcr.exceptions import ArgumentError
from fedhlcr.figures.choices import chosen_axis, label_of_target
from fedhlcr.figures.figure import NOTHING, Mark, Panel, Scale, ends_around, evenly, level_scale

# With more clusters, each has a panel.
MAX_TOGETHER = 4
# Of more events, this many are drawn as dots, and the means of all events in groups as larger ones.
MAX_DOTS = 250
MAX_DOTS_OF_ENTITY = 1_000
# Groups of events along an axis of numbers, and the least events in one.
N_GROUPS = 12
LEAST_IN_GROUP = 5
# Clusters of one level are drawn within this part of the distance to the next; events are scattered within the other,
# and their means stand beside the cluster's own point.
LEVEL_WIDTH = 0.6
LEVEL_GAP = 0.16
# Probability of intervals that are not drawn, but computed all the same.
LEVEL = 0.9


def place_scale(axis: Axis, most: int = 5) -> Scale:
    """The side of an axis of features."""
    name = shorten(axis.name)
    if axis.is_discrete:
        return level_scale([shorten(level) for level in axis.levels], name)
    ticks = tuple((place, shorten(text)) for place, text in axis.ticks(most))
    return Scale(axis.low, axis.high, name, ticks, "log" if axis.kind == "log" else "linear", axis.offset)


def target_scale(target: TargetAxis, low: float, high: float, name: str | None = None, most: int = 5) -> Scale:
    """The side of the target, with its logarithm undone; `name` replaces what the model knows."""
    if name is None:
        name = "y" if target.name == NO_TARGET else target.name.removeprefix("the ")
    return Scale(low, high, name, tuple(target.ticks(low, high, most)))


def line_mark(line: AxisLine, cluster: int | None, role: str = "line", *, band: bool = True, name: str = "") -> Mark:
    """A line with its band; of levels, points with intervals."""
    return Mark(
        "levels" if line.axis.is_discrete else "line",
        role,
        line.places,
        line.mean,
        line.lower if band else NOTHING,
        line.upper if band else NOTHING,
        cluster,
        name,
    )


def event_marks(
    line: AxisLine,
    events: DrawnEvents,
    cluster: int | None,
    family: Family,
    *,
    most: int = MAX_DOTS,
    n_groups: int = N_GROUPS,
    on_line: FloatArray | None = None,
    name: str = "",
) -> list[Mark]:
    """Events around a line, as they would be with average other features: dots, and means of groups of them.

    Of real targets a dot is the line plus the event's residual, and if there are more than `most`, some are drawn, and
    the means of all. Of classes and counts only means are drawn: the line, times the factor by which the odds or the
    rate of what was observed differ from what the model predicted of the same events.

    Parameters
    ----------
    line : of what the events belong to
    events : those to draw
    on_line : (events,) values of the lines at the events, if these belong to several lines; None is `line`
    """
    axis = line.axis
    places = axis.places(events.X)
    if not len(places):
        return []
    if on_line is None:
        on_line = line.at(places)
    made = []
    if not family.has_link:
        some = evenly(len(places), most)
        across = LEVEL_GAP * _scattered(len(some)) if axis.is_discrete else 0.0
        made.append(
            Mark("dots", "event", places[some] + across, (on_line + events.residuals)[some], cluster=cluster, name=name)
        )
    if family.has_link or (n_groups and len(places) > most):
        parts = _groups(axis, places, n_groups)
        middle = np.array([places[rows].mean() for rows in parts])
        values = np.array([_group_mean(on_line[rows], events.take(rows), family) for rows in parts])
        aside = 0.5 * LEVEL_GAP if axis.is_discrete else 0.0
        made.append(Mark("dots", "mean", middle + aside, values, cluster=cluster, name="" if made else name))
    return made


def _groups(axis: Axis, places: FloatArray, n_groups: int) -> list[Any]:
    """Rows of the events at each level, or in groups of equally many."""
    if axis.is_discrete:
        return [np.flatnonzero(places == level) for level in np.unique(places)]
    n_groups = min(n_groups, max(len(places) // LEAST_IN_GROUP, 1))
    return np.array_split(np.argsort(places, kind="stable"), n_groups)


def _group_mean(on_line: FloatArray, events: DrawnEvents, family: Family) -> float:
    line = float(on_line.mean())
    expected = float(events.predicted.mean())
    if not family.has_link:
        return line + float(events.residuals.mean())
    # one expected event is added, so that a share of 0 or 1 has odds
    seen = (float(events.observed.sum()) + expected) / (len(events) + 1.0)
    if not family.has_classes:
        return line * seen / max(expected, 1e-300)
    odds = [logit(np.clip(share, 1e-9, 1.0 - 1e-9)) for share in (line, seen, expected)]
    return float(expit(odds[0] + odds[1] - odds[2]))


def _scattered(n: int) -> FloatArray:
    """Steps to either side, within a half, so that events at one level do not hide each other."""
    return np.asarray((np.arange(1, n + 1) * 0.6180339887498949) % 1.0 - 0.5)


def value_limits(lines: Iterable[AxisLine], values: FloatArray, *, tails: float = 0.01) -> tuple[float, float]:
    """Ends of the target's side that hold all lines with their bands, and most of the values."""
    inner = np.quantile(values, (tails, 1.0 - tails)) if len(values) else values
    return ends_around([*(end for line in lines for end in (line.mean, line.lower, line.upper)), inner], 0.05)


def _event_values(line: AxisLine, events: DrawnEvents, marks: list[Mark], family: Family) -> FloatArray:
    """Of real targets those of all events, else those that are drawn."""
    if not family.has_link:
        return line.adjusted(line.axis.places(events.X), events.residuals)
    return np.concatenate([np.empty(0), *(mark.y for mark in marks)])


def _shifted(marks: Iterable[Mark], axis: Axis, number: int, of: int) -> list[Mark]:
    """The marks of one of several clusters, beside those of the others where places are levels."""
    if not axis.is_discrete or of == 1:
        return list(marks)
    shift = LEVEL_WIDTH * ((number + 0.5) / of - 0.5)
    return [replace(mark, x=mark.x + shift) for mark in marks]


def effect_panels(
    model: HierarchicalPredictor,
    axis: Axis,
    clusters: Sequence[int],
    events: DrawnEvents | None,
    *,
    level: float | None,
    target: str | None,
    together: bool,
) -> list[Panel]:
    """A feature against the target in every cluster: one panel for all of them, or one each with the others in grey."""
    lines = {k: axis_line(model, axis, k, level=level or LEVEL) for k in clusters}
    own_target = target_axis(model)
    dots: dict[int, list[Mark]] = {k: [] for k in clusters}
    values = np.empty(0)
    for k in clusters:
        if events is None:
            break
        own = events.take(events.label == k)
        dots[k] = event_marks(lines[k], own, k, model.family)
        values = np.append(values, _event_values(lines[k], own, dots[k], model.family))
    y = target_scale(own_target, *value_limits(lines.values(), values), target)
    x = place_scale(axis, 5 if len(clusters) <= MAX_TOGETHER else 3)
    drawn = {k: [*dots[k], line_mark(lines[k], k, band=level is not None, name=str(k))] for k in clusters}
    if together:
        marks = [m for n, k in enumerate(clusters) for m in _shifted(drawn[k], axis, n, len(clusters))]
        return [Panel(x, y, tuple(marks), ends=tuple((k, float(lines[k].mean[-1])) for k in clusters))]
    counts = _entity_counts(model)
    panels = []
    for k in clusters:
        others = (
            []
            if axis.is_discrete
            else [Mark("line", "other", lines[other].places, lines[other].mean) for other in clusters if other != k]
        )
        title = f"cluster {k}" + ("" if counts is None else f": {counts[k]}")
        panels.append(Panel(x, y, (*others, *drawn[k]), title))
    return panels


def _entity_counts(model: HierarchicalPredictor) -> list[str] | None:
    """How many entities are in each cluster, in words; None for a public model."""
    if not len(model.posterior_.memory.entities):
        return None
    word = noun(model.entity_column_, ENTITY)
    return [word.count(int(n)) for n in np.bincount(model.labels_, minlength=model.n_clusters_)]


def strongest_axis(model: HierarchicalPredictor, axes: tuple[Axis, ...]) -> Axis:
    """The axis that moves the target most, on average over the entities."""
    return axes[int(np.argmax(mean_strengths(model, axes)))]


def mean_strengths(model: HierarchicalPredictor, axes: tuple[Axis, ...]) -> FloatArray:
    """(axes,) how much each axis moves the target: root mean square over the entities' clusters."""
    return np.asarray(np.sqrt(entity_shares(model) @ axis_strengths(model, axes) ** 2))


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


def curve_axes(model: HierarchicalPredictor, feature: Any) -> list[Axis]:
    """The axis of the feature, or those of all features with curves."""
    axes = feature_axes(model)
    if feature is not None:
        return [chosen_axis(model, axes, feature)]
    columns = [0] if model.curves_ is None else model.curves_.columns
    found = {axis_of(axes, int(column)).columns: axis_of(axes, int(column)) for column in columns}
    return list(found.values())


def curve_panel(
    model: HierarchicalPredictor,
    axis: Axis,
    clusters: Sequence[int],
    places: FloatArray | None,
    *,
    level: float | None,
    target: str | None,
) -> Panel:
    """The effect of a feature in each cluster, against that of an average event."""
    lines = {k: axis_change(model, axis, k, places, level or LEVEL) for k in clusters}
    marks = [Mark("rule", "zero", y=np.zeros(1))]
    for n, k in enumerate(clusters):
        marks += _shifted([line_mark(lines[k], k, band=level is not None, name=str(k))], axis, n, len(clusters))
    x = place_scale(axis)
    if places is not None:
        x = Scale(float(places.min()), float(places.max()), x.label, None, x.kind, x.offset)
    label = f"change of {link_of(model, label_of_target(model, target)).linear}"
    return Panel(x, Scale(label=label), tuple(marks), ends=tuple((k, float(lines[k].mean[-1])) for k in clusters))


def entity_panel(
    model: HierarchicalPredictor,
    position: int,
    feature: str | int | None,
    events: DrawnEvents | None,
    *,
    level: float | None,
    target: str | None,
) -> Panel:
    """One entity: its events, its own line with a band, and the line of its cluster, at its own averages."""
    axes = feature_axes(model, None if events is None else events.X)
    if feature is None:
        axis = axes[int(np.argmax(entity_strengths(model, axes, position)))]
    else:
        axis = chosen_axis(model, axes, feature)
    cluster = int(model.labels_[position])
    others = entity_feature_means(model, np.array([position]))[0]
    own = entity_line(model, axis, position, None, level or LEVEL, others)
    shared = axis_line(model, axis, cluster, others=others)
    own_target = target_axis(model)
    dots = []
    if events is not None:
        means = "means of its events" if model.family.has_link else "its events"
        dots = event_marks(own, events, None, model.family, most=MAX_DOTS_OF_ENTITY, n_groups=N_GROUPS, name=means)[:1]
    marks = (
        *dots,
        line_mark(shared, cluster, "shared", band=False, name=f"cluster {cluster}"),
        line_mark(own, None, "own", band=level is not None, name=f"this {noun(model.entity_column_, ENTITY).one}"),
    )
    y = target_scale(
        own_target,
        *value_limits((own, shared), np.concatenate([mark.y for mark in dots] or [np.empty(0)]), tails=0.0),
        target,
    )
    return Panel(place_scale(axis), y, marks, legend="")


def cycle_panel(model: HierarchicalPredictor, clusters: Sequence[int], axis: Axis) -> Panel:
    """The curves of clusters over one round of a cycle, each against its own mean."""
    assert axis.cycle is not None
    target = target_axis(model)
    lines = {k: axis_line(model, axis, k) for k in clusters}
    # the last point is the first again
    marks = [
        Mark("line", "season", line.places, line.mean - line.mean[:-1].mean(), cluster=k) for k, line in lines.items()
    ]
    ticks = axis.ticks()
    peaks = "; ".join(f"cluster {m.cluster} is highest at {_peak(m, axis, ticks)}" for m in marks)
    unit = f"log {target.name}" if target.is_log else target.name
    title = f"{unit[:1].upper()}{unit[1:]}, against the {axis.cycle.whole}’s mean"
    low, high = ends_around([m.y for m in marks], 0.05)
    return Panel(
        place_scale(axis),
        Scale(low, high),
        (Mark("rule", "zero", y=np.zeros(1)), *marks),
        title,
        f"{title}: {peaks}.",
        tuple((m.cluster, float(m.y[-1])) for m in marks if m.cluster is not None),
    )


def _peak(mark: Mark, axis: Axis, ticks: list[tuple[float, str]]) -> str:
    """The tick nearest to the highest point."""
    places = axis.fractions(np.array([place for place, _ in ticks]))
    nearest = int(np.abs(places - axis.fractions(mark.x)[int(mark.y.argmax())]).argmin())
    text = ticks[nearest][1]
    return text if len(text) > 1 and not text.isdigit() else f"tick {nearest + 1} of {len(ticks)}"
