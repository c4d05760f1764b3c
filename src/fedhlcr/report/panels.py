"""The first picture of a report: what the strongest features do to the target, cluster by cluster, with events."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.wording import EVENT, capital, percent
from fedhlcr.analysis.axes import Axis, feature_axes
from fedhlcr.analysis.axis_lines import AxisLine, TargetAxis, axis_is_clear, axis_line, axis_strengths, target_axis
from fedhlcr.analysis.axis_words import axis_phrase
from fedhlcr.analysis.effects import INTERVAL_LEVEL, entity_shares
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.report import frames
from fedhlcr.report.certainty import Certainty, cluster_numbers
from fedhlcr.report.charts import color_class
from fedhlcr.report.events import DrawnEvents
from fedhlcr.report.findings import Findings
from fedhlcr.report.frames import Scale, Tick

# Axes shown at once, and behind a click; panels of one axis; dots of one panel; groups of events of a yes-or-no target.
FIRST_AXES, MORE_AXES, MOST_PANELS, MOST_DOTS, MOST_GROUPS = 3, 9, 6, 120, 8
# Of one common regression there is room for more axes.
AXES_OF_ONE = 4
# Dots that are this far apart are drawn, as a multiple of the range of the lines.
ZOOM = 4.0
# Half the width of a level's mark, and of the scatter of its dots, in shares of the room of a level.
HALF_MARK, HALF_SCATTER = 0.36, 0.3
# From so many letters on, names of levels are written upright.
UPRIGHT_LETTERS, MOST_LEVEL_TICKS = 16, 14


@dataclass(frozen=True)
class Panel:
    """The line and the events of one cluster, or of several that are read as one group, along one axis.

    Attributes
    ----------
    clusters : their numbers
    title : behind the clusters' tags
    is_faded : whether memberships are mostly uncertain
    svg : the picture, with a text that tells what it shows
    """

    clusters: tuple[int, ...]
    title: str
    is_faded: bool
    svg: Markup


@dataclass(frozen=True)
class AxisGroup:
    """The panels of one axis, which share both scales."""

    name: str
    panels: tuple[Panel, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    is_upright: bool


@dataclass(frozen=True)
class Picture:
    """All panels.

    Attributes
    ----------
    groups, more : the strongest axes, and others
    target : what the panels' heights are
    note : how to read the panels
    """

    groups: tuple[AxisGroup, ...]
    more: tuple[AxisGroup, ...]
    target: str
    note: str

    @property
    def n_panels(self) -> int:
        return len(self.groups[0].panels)


def draw_picture(
    model: HierarchicalPredictor, findings: Findings, certainty: Certainty, events: DrawnEvents | None
) -> Picture | None:
    """The panels of a model; None if it has no feature that varies."""
    axes = feature_axes(model, None if events is None else events.X)
    strength = np.sqrt(entity_shares(model) @ axis_strengths(model, axes) ** 2)
    # an effect that is clear in no cluster is shown only if there is no other
    order = np.lexsort((-strength, ~axis_is_clear(model, axes).any(axis=0)))
    chosen = [axes[a] for a in order if strength[a] > 0.0][: FIRST_AXES + MORE_AXES]
    if not chosen:
        return None
    members = shown_clusters(certainty)
    drawn = [_group(model, axis, members, certainty, events) for axis in chosen]
    first = AXES_OF_ONE if len(members) == 1 and len(chosen) >= AXES_OF_ONE else FIRST_AXES
    target = target_axis(model)
    return Picture(tuple(drawn[:first]), tuple(drawn[first:]), target.name, _note(findings, certainty, target, events))


def shown_clusters(certainty: Certainty) -> list[tuple[int, ...]]:
    """The clusters of each panel: clear ones alone, the others together."""
    clear, blurred = list(certainty.clear), list(certainty.blurred)
    if not certainty.is_finding:
        return [tuple(sorted(clear + blurred))]
    room = MOST_PANELS - bool(blurred)
    if len(clear) > room:
        room = MOST_PANELS - 1
    alone, rest = clear[:room], sorted(clear[room:] + blurred)
    return [*((k,) for k in alone), *([tuple(rest)] if rest else [])]


def _note(findings: Findings, certainty: Certainty, target: TargetAxis, events: DrawnEvents | None) -> str:
    interval = percent(INTERVAL_LEVEL)
    average = f"All other features are at their average. Bands: with {interval} probability, the line is inside."
    if events is None:
        dots = "To see events as dots, give the report a table of events."
    elif target.link is not None:
        dots = "Dots are means of groups of events, the effects of other features removed."
    else:
        dots = "Dots are single events, the effects of other features removed; a few lie outside the frames."
    several = len(findings.clusters) > 1
    scale = "Pictures side by side have the same scale." if several else ""
    merged = any(len(own) > 1 for own in shown_clusters(certainty))
    group = "The pale picture has a line for each of its clusters." if merged else ""
    return " ".join(filter(None, [average, dots, scale, group]))


def _group(
    model: HierarchicalPredictor,
    axis: Axis,
    members: list[tuple[int, ...]],
    certainty: Certainty,
    events: DrawnEvents | None,
) -> AxisGroup:
    lines = {k: axis_line(model, axis, k) for own in members for k in own}
    points = [_points(lines, own, events, binned=target_axis(model).link is not None) for own in members]
    height = _height([lines[k] for own in members if len(own) == 1 for k in own] or list(lines.values()), points)
    panels = tuple(
        _panel(model, axis, own, lines, place, height, certainty) for own, place in zip(members, points, strict=True)
    )
    ticks = axis.ticks(most=4)
    if axis.is_discrete:
        ticks = ticks[:: -(-len(ticks) // MOST_LEVEL_TICKS)]
    x_ticks = tuple(
        Tick(round(100.0 * float(axis.fractions(np.array([place]))[0]), 2), text)
        for place, text in ticks
        if 0.0 <= float(axis.fractions(np.array([place]))[0]) <= 1.0
    )
    upright = axis.is_discrete and sum(len(tick.text) + 1 for tick in x_ticks) > UPRIGHT_LETTERS
    y_ticks = height.ticks(target_axis(model).ticks(height.low, height.high, 4))
    return AxisGroup(axis.name, panels, x_ticks, y_ticks, upright)


def _points(
    lines: dict[int, AxisLine], own: tuple[int, ...], events: DrawnEvents | None, *, binned: bool
) -> tuple[FloatArray, FloatArray, int]:
    """Places along the axis (0 to 1) and targets of the events to draw, and the number of events behind them."""
    if events is None:
        return np.empty(0), np.empty(0), 0
    rows = np.flatnonzero(np.isin(events.label, own))
    axis = lines[own[0]].axis
    shown = rows if binned else rows[np.unique(np.linspace(0, len(rows) - 1, MOST_DOTS).astype(np.int64))[: len(rows)]]
    places = axis.places(events.X[shown])
    targets = np.empty(len(shown))
    for k in own:
        mine = events.label[shown] == k
        targets[mine] = lines[k].adjusted(places[mine], events.residuals[shown][mine])
    x = axis.fractions(places)
    if binned and len(x):
        x, targets = _means_of_groups(x, targets, is_discrete=axis.is_discrete)
    elif axis.is_discrete and len(x):
        # a fixed scatter, so that dots of one level do not hide each other
        x = x + (np.arange(len(x)) * 0.618034 % 1.0 - 0.5) * 2.0 * HALF_SCATTER / len(axis.levels)
    return x, targets, len(rows)


def _means_of_groups(x: FloatArray, y: FloatArray, *, is_discrete: bool) -> tuple[FloatArray, FloatArray]:
    """Means of events that are neighbours on the axis."""
    n_groups = max(1, min(MOST_GROUPS, len(x) // 8))
    edges = np.unique(x) if is_discrete else np.unique(np.quantile(x, np.linspace(0.0, 1.0, n_groups + 1))[:-1])
    group: IndexArray = np.searchsorted(edges, x, side="right") - 1
    counts = np.maximum(np.bincount(group, minlength=len(edges)), 1)
    means = [np.bincount(group, weights=values, minlength=len(edges)) / counts for values in (x, y)]
    return np.asarray(means[0]), np.asarray(means[1])


def _height(lines: list[AxisLine], points: list[tuple[FloatArray, FloatArray, int]]) -> Scale:
    """The scale that all panels of an axis share: all lines, and most of the events."""
    known = [
        np.concatenate([own.mean, own.lower[np.isfinite(own.lower)], own.upper[np.isfinite(own.upper)]])
        for own in lines
    ]
    every = np.concatenate(known)
    low, high = float(every.min()), float(every.max())
    seen = np.concatenate([targets for _, targets, _ in points])
    if len(seen):
        room = ZOOM * max(high - low, float(np.subtract(*np.quantile(seen, (0.75, 0.25)))) / 2.0)
        bottom, top = (float(end) for end in np.quantile(seen, (0.02, 0.98)))
        middle = (low + high) / 2.0
        low, high = min(low, max(bottom, middle - room / 2.0)), max(high, min(top, middle + room / 2.0))
    return frames.scale_around([np.array([low, high])], 0.05)


def _panel(
    model: HierarchicalPredictor,
    axis: Axis,
    own: tuple[int, ...],
    lines: dict[int, AxisLine],
    points: tuple[FloatArray, FloatArray, int],
    height: Scale,
    certainty: Certainty,
) -> Panel:
    x, targets, n_events = points
    merged = len(own) > 1
    faded = merged or own[0] in certainty.blurred
    color = "many" if merged else color_class(own[0])
    marks = frames.dots(100.0 * x, height(targets), "event" if target_axis(model).link is None else "event mean")
    for k in own:
        marks += _line(axis, lines[k], height, f"{color_class(k)}{' thin' if merged else ''}", bands=not merged)
    if merged:
        told = f"{capital(cluster_numbers(own))}: a line for each"
    else:
        subject = "" if certainty.n_clusters == 1 else f"cluster {own[0]}: "
        told = capital(f"{subject}{target_axis(model).name} {axis_phrase(model, axis, own[0])}")
    seen = f"; {EVENT.count(n_events)} behind the dots" if n_events else ""
    title = cluster_numbers(own) if merged else ("" if certainty.n_clusters == 1 else f"cluster {own[0]}")
    return Panel(own, title, faded, frames.svg(marks, f"{told}, over {axis.name}{seen}.", color))


def _line(axis: Axis, line: AxisLine, height: Scale, css: str, *, bands: bool) -> Markup:
    """A line with its band; of levels, a mark with its box each."""
    x = 100.0 * axis.fractions(line.places)
    mean, lower, upper = (height(part) for part in (line.mean, line.lower, line.upper))
    if not axis.is_discrete:
        band = frames.area(x, lower, upper, f"band {css}") if bands else Markup("")
        return band + frames.line(x, mean, f"line {css}")
    half = 100.0 * HALF_MARK / len(x)
    marks = Markup("")
    for at, level in enumerate(x):
        if bands and np.isfinite(lower[at]) and np.isfinite(upper[at]):
            marks += frames.box(level - half, level + half, lower[at], upper[at], f"band {css}")
        ends = np.array([level - half, level + half])
        marks += frames.line(ends, np.repeat(mean[at], 2), f"line {css}")
    return marks
