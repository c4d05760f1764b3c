"""The first picture of a report: what the strongest features do to the target, cluster by cluster, with events."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from markupsafe import Markup

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import EVENT, capital, percent
from fedhlcr.analysis.axes import Axis, feature_axes
from fedhlcr.analysis.axis_lines import AxisLine, TargetAxis, axis_is_clear, axis_line, axis_strengths, target_axis
from fedhlcr.analysis.axis_words import axis_phrase
from fedhlcr.analysis.effects import INTERVAL_LEVEL, entity_shares
from fedhlcr.analysis.facts import LabelCertainty
from fedhlcr.analysis.words import cluster_numbers
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.report import frames
from fedhlcr.report.charts import color_class
from fedhlcr.report.events import DrawnEvents
from fedhlcr.report.findings import Findings
from fedhlcr.report.frames import Scale, Tick
from fedhlcr.report.panel_points import points_of

# Axes shown at once, and behind a click; panels of one axis.
FIRST_AXES = 3
MORE_AXES = 9
MOST_PANELS = 6
# Of one common regression there is room for more axes.
AXES_OF_ONE = 4
# Dots that are this far apart are drawn, as a multiple of the range of the lines.
ZOOM = 4.0
# Half the width of a level's mark, as a share of the room of a level.
HALF_MARK = 0.36
# From so many letters on, names of levels are written upright.
UPRIGHT_LETTERS = 16
UPRIGHT_LETTERS_OF_FEW = 22
UPRIGHT_LETTERS_OF_ONE = 28
MOST_LEVEL_TICKS = 14
# Fewer panels than this stand in a column, so that each is wide.
STACKED = 4
# A line is drawn over the events of its cluster but this share at either end; at least over this share of the axis.
OUTSIDE = 0.005
SHORTEST = 0.1
# If every line covers less than this share of a common scale, each panel has a scale of its own.
FLAT = 0.25
# Most numbers beside the lines of one panel, and the height of each, in per cent.
MOST_LABELS = 12
LABEL_HEIGHT = 16.0
CROWDED = 6
# Ticks of the target with more letters need more room.
LONG_TICK = 6
# Widths in a narrow panel, in per cent: of a letter, and of the gap between two ticks.
LETTER = 5.5
GAP = 2.5


@dataclass(frozen=True)
class Panel:
    """The line and the events of one cluster, or of several that are read as one group, along one axis.

    Attributes
    ----------
    clusters : their numbers
    title : behind the clusters' tags
    is_faded : whether memberships are mostly uncertain
    svg : the picture, with a text that tells what it shows
    y_ticks : of its scale
    labels : of several lines, where each ends, and the number of its cluster
    """

    clusters: tuple[int, ...]
    title: str
    is_faded: bool
    svg: Markup
    y_ticks: tuple[Tick, ...]
    labels: tuple[tuple[float, int], ...] = ()

    @property
    def is_merged(self) -> bool:
        return len(self.clusters) > 1

    @property
    def is_crowded(self) -> bool:
        """Whether the labels stand in two columns."""
        return len(self.labels) > CROWDED


@dataclass(frozen=True)
class AxisGroup:
    """The panels of one axis. They share its scale and, unless `own_scales`, that of the target.

    `is_upright` tells whether names of levels are written upright.
    """

    name: str
    panels: tuple[Panel, ...]
    x_ticks: tuple[Tick, ...]
    is_upright: bool
    own_scales: bool

    @property
    def is_roomy(self) -> bool:
        """Whether values of the target need more room than usual beside the frames."""
        return any(len(tick.text) > LONG_TICK for panel in self.panels for tick in panel.y_ticks)


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

    @property
    def layout(self) -> str:
        """Few panels of an axis stand in a column, with other axes beside them; many stand in a row."""
        return "stacked" if self.n_panels >= STACKED else "side-by-side"


def draw_picture(
    model: HierarchicalPredictor, findings: Findings, certainty: LabelCertainty, events: DrawnEvents | None
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
    return Picture(
        tuple(drawn[:first]),
        tuple(drawn[first:]),
        target.name,
        _note(findings, certainty, events, alone=len(axes) == 1, target=target),
    )


def shown_clusters(certainty: LabelCertainty) -> list[tuple[int, ...]]:
    """The clusters of each panel: clear ones alone, the others together."""
    clear = list(certainty.clear)
    blurred = list(certainty.blurred)
    if not certainty.is_finding:
        return [tuple(sorted(clear + blurred))]
    room = MOST_PANELS - bool(blurred)
    if len(clear) > room:
        room = MOST_PANELS - 1
    alone = clear[:room]
    rest = sorted(clear[room:] + blurred)
    return [*((k,) for k in alone), *([tuple(rest)] if rest else [])]


def _note(
    findings: Findings, certainty: LabelCertainty, events: DrawnEvents | None, *, alone: bool, target: TargetAxis
) -> str:
    """How to read the panels; `alone` if there is only one axis, so that there are no other features."""
    interval = percent(INTERVAL_LEVEL)
    typical = "" if target.link is None else f"Lines are those of a typical {findings.names.entity.one}. "
    others = "" if alone else "All other features are at their average. "
    average = f"{typical}{others}Bands: with {interval} probability, the line is inside."
    removed = "" if alone else ", the effects of other features removed"
    if events is None:
        dots = "To see events as dots, give the report a table of events."
    elif target.link is not None:
        dots = f"Dots are means of groups of events{removed}."
    else:
        dots = f"Dots are single events{removed}; a few lie outside the frames."
    merged = any(len(own) > 1 for own in shown_clusters(certainty))
    group = "A dashed frame has a line for each of its clusters, and a scale of its own." if merged else ""
    return " ".join(filter(None, [average, dots, group]))


def _group(
    model: HierarchicalPredictor,
    axis: Axis,
    members: list[tuple[int, ...]],
    certainty: LabelCertainty,
    events: DrawnEvents | None,
) -> AxisGroup:
    shares = entity_shares(model)
    axis = _widened(axis, members, events)
    lines = {k: axis_line(model, axis, k, _span(axis, k, events)) for own in members for k in own}
    link = target_axis(model).link
    points = [points_of(lines, own, events, link) for own in members]
    alone = [n for n, own in enumerate(members) if len(own) == 1]
    shared = _height([lines[members[n][0]] for n in alone], [points[n] for n in alone]) if alone else None
    spans = [float(np.ptp(lines[members[n][0]].mean)) for n in alone]
    # clusters at very different levels would all look flat on one scale
    own_scales = shared is not None and len(alone) > 1 and max(spans) < FLAT * (shared.high - shared.low)
    panels = []
    for n, own in enumerate(members):
        height = None if own_scales or len(own) > 1 else shared
        height = height or _height([lines[k] for k in own], points[n : n + 1])
        panels.append(_panel(model, axis, own, lines, points[n], height, certainty, shares))
    x_ticks = _x_ticks(axis)
    room = UPRIGHT_LETTERS if len(members) >= STACKED else UPRIGHT_LETTERS_OF_FEW
    room = room if len(members) > 1 else UPRIGHT_LETTERS_OF_ONE
    upright = axis.is_discrete and sum(len(tick.text) + 1 for tick in x_ticks) > room
    return AxisGroup(axis.name, tuple(panels), x_ticks, upright, bool(own_scales))


def _widened(axis: Axis, members: list[tuple[int, ...]], events: DrawnEvents | None) -> Axis:
    """The axis with room for the events of every cluster that has a panel of its own."""
    if events is None or axis.is_discrete or axis.cycle is not None:
        return axis
    ends = [(axis.low, axis.high)]
    for own in members:
        places = axis.places(events.X[np.isin(events.label, own)])
        if len(own) == 1 and len(places):
            low, high = np.quantile(places, (OUTSIDE, 1.0 - OUTSIDE))
            ends.append((float(low), float(high)))
    return replace(axis, low=min(low for low, _ in ends), high=max(high for _, high in ends))


def _span(axis: Axis, cluster: int, events: DrawnEvents | None) -> FloatArray | None:
    """Where to draw the line of a cluster: not far beyond its own events; None is the whole axis."""
    if events is None or axis.is_discrete or axis.cycle is not None:
        return None
    own = axis.fractions(axis.places(events.X[events.label == cluster]))
    if not len(own):
        return None
    low, high = (float(end) for end in np.quantile(own, (OUTSIDE, 1.0 - OUTSIDE)))
    margin = max(0.0, (SHORTEST - (high - low)) / 2.0)
    grid = axis.grid()
    inside = (axis.fractions(grid) >= low - margin) & (axis.fractions(grid) <= high + margin)
    return grid[inside] if inside.sum() > 1 else None


def _x_ticks(axis: Axis) -> tuple[Tick, ...]:
    """Ticks of an axis that do not touch each other in a narrow panel."""
    ticks = axis.ticks(most=4)
    if axis.is_discrete:
        ticks = ticks[:: -(-len(ticks) // MOST_LEVEL_TICKS)]
    places = 100.0 * axis.fractions(np.array([place for place, _ in ticks]))
    kept = [Tick(round(float(at), 2), text) for at, (_, text) in zip(places, ticks, strict=True) if -0.1 <= at <= 100.1]
    while not axis.is_discrete and len(kept) > 1 and ticks_touch(kept, GAP if len(kept) > 2 else 0.0):
        kept = kept[::2]
    return tuple(kept)


def ticks_touch(ticks: list[Tick], gap: float = GAP) -> bool:
    """Whether texts of neighbours are closer than a gap, in per cent; the last two ticks may stand close."""
    return any(_ends(b)[0] - _ends(a)[1] < gap for a, b in pairwise(ticks))


def _ends(tick: Tick) -> tuple[float, float]:
    """Where the text of a tick starts and ends in a narrow panel, in per cent; at an edge it is moved inside."""
    width = LETTER * len(tick.text)
    start = tick.place - width / 2.0
    if tick.side == "first":
        start = max(start, tick.place - LETTER)
    elif tick.side == "last":
        start = min(start, tick.place + LETTER - width)
    return start, start + width


def _height(lines: list[AxisLine], points: list[tuple[FloatArray, FloatArray, int]]) -> Scale:
    """The scale that all panels of an axis share: all lines, and most of the events."""
    known = [
        np.concatenate([own.mean, own.lower[np.isfinite(own.lower)], own.upper[np.isfinite(own.upper)]])
        for own in lines
    ]
    every = np.concatenate(known)
    low = float(every.min())
    high = float(every.max())
    seen = np.concatenate([targets for _, targets, _ in points])
    if len(seen):
        room = ZOOM * max(high - low, float(np.subtract(*np.quantile(seen, (0.75, 0.25)))) / 2.0)
        bottom, top = (float(end) for end in np.quantile(seen, (0.02, 0.98)))
        middle = (low + high) / 2.0
        low = min(low, max(bottom, middle - room / 2.0))
        high = max(high, min(top, middle + room / 2.0))
    return frames.scale_around([np.array([low, high])], 0.05)


def _panel(
    model: HierarchicalPredictor,
    axis: Axis,
    own: tuple[int, ...],
    lines: dict[int, AxisLine],
    points: tuple[FloatArray, FloatArray, int],
    height: Scale,
    certainty: LabelCertainty,
    shares: FloatArray,
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
    share = 1.0 if len(own) == len(shares) else float(shares[list(own)].sum())
    title = f"{f'{cluster_numbers(own)}, ' if merged else ''}{percent(share)}"
    picture = frames.svg(marks, f"{told}, over {axis.name}{seen}.", color)
    y_ticks = height.ticks(target_axis(model).ticks(height.low, height.high, 4))
    return Panel(own, title, faded, picture, y_ticks, line_labels(own, lines, height) if merged else ())


def line_labels(own: tuple[int, ...], lines: dict[int, AxisLine], height: Scale) -> tuple[tuple[float, int], ...]:
    """Where to write the numbers of several lines at their right ends, so that they do not hide each other."""
    ends = sorted((float(np.clip(height(lines[k].mean[-1:])[0], 0.0, 100.0)), k) for k in own[:MOST_LABELS])
    # many labels stand in two columns by turns
    apart = LABEL_HEIGHT / (2.0 if len(ends) > CROWDED else 1.0)
    places = []
    lowest = LABEL_HEIGHT / 2.0
    for end, _ in ends:
        places.append(max(end, lowest))
        lowest = places[-1] + apart
    # what was pushed beyond the top is pushed back down
    highest = 100.0 - LABEL_HEIGHT / 2.0
    for n in reversed(range(len(places))):
        places[n] = min(places[n], highest)
        highest = places[n] - apart
    return tuple((round(place, 1), k) for place, (_, k) in zip(places, ends, strict=True))


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
