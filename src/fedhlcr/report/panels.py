"""The first picture of a report: what the strongest features do to the target, cluster by cluster, with events."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import EVENT, capital, percent
from fedhlcr.analysis.axes import Axis, feature_axes
from fedhlcr.analysis.axis_lines import AxisLine, axis_is_clear, axis_line, target_axis
from fedhlcr.analysis.axis_words import axis_phrase
from fedhlcr.analysis.effects import INTERVAL_LEVEL, entity_shares
from fedhlcr.analysis.facts import LabelCertainty
from fedhlcr.analysis.words import cluster_numbers
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.estimators.drawn_events import DrawnEvents
from fedhlcr.figures.figure import Mark, Panel, ends_around
from fedhlcr.figures.lines import event_marks, line_mark, mean_strengths, place_scale, target_scale
from fedhlcr.figures.svg import ticks_across
from fedhlcr.report.findings import Findings

# Axes shown at once, and behind a click; panels of one axis.
FIRST_AXES = 3
MORE_AXES = 9
MOST_PANELS = 6
# Of one common regression there is room for more axes.
AXES_OF_ONE = 4
# Dots of one panel, and groups of events of classes and counts.
MOST_DOTS = 120
N_GROUPS = 8
# Dots that are this far apart are drawn, as a multiple of the range of the lines.
ZOOM = 4.0
# From so many letters on, names of levels are written upright.
UPRIGHT_LETTERS = 16
UPRIGHT_LETTERS_OF_FEW = 22
UPRIGHT_LETTERS_OF_ONE = 28
# Fewer panels than this stand in a column, so that each is wide.
STACKED = 4
# A line is drawn over the events of its cluster but this share at either end; at least over this share of the axis.
OUTSIDE = 0.005
SHORTEST = 0.1
# If every line covers less than this share of a common scale, each panel has a scale of its own.
FLAT = 0.25
MOST_TICKS = 4


@dataclass(frozen=True)
class ClusterPanel:
    """The line and the events of one cluster, or of several that are read as one group, along one axis.

    Attributes
    ----------
    clusters : their numbers
    title : behind the clusters' tags
    is_faded : whether memberships are mostly uncertain
    panel : the picture
    """

    clusters: tuple[int, ...]
    title: str
    is_faded: bool
    panel: Panel

    @property
    def is_merged(self) -> bool:
        return len(self.clusters) > 1


def draw_picture(model: HierarchicalPredictor, findings: Findings, events: DrawnEvents | None) -> dict[str, Any] | None:
    """The panels of a model by axis, strongest first; None if it has no feature that varies."""
    certainty = findings.certainty
    axes = feature_axes(model, None if events is None else events.X)
    strength = mean_strengths(model, axes)
    # an effect that is clear in no cluster is shown only if there is no other
    order = np.lexsort((-strength, ~axis_is_clear(model, axes).any(axis=0)))
    chosen = [axes[a] for a in order if strength[a] > 0.0][: FIRST_AXES + MORE_AXES]
    if not chosen:
        return None
    members = shown_clusters(certainty)
    drawn = [_group(model, axis, members, certainty, events) for axis in chosen]
    first = AXES_OF_ONE if len(members) == 1 and len(chosen) >= AXES_OF_ONE else FIRST_AXES
    return {
        "groups": drawn[:first],
        "more": drawn[first:],
        "target": target_axis(model).name,
        "note": _note(findings, certainty, events, alone=len(axes) == 1),
        "n_panels": len(members),
        # few panels of an axis stand in a column, with other axes beside them; many stand in a row
        "layout": "stacked" if len(members) >= STACKED else "side-by-side",
    }


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


def _note(findings: Findings, certainty: LabelCertainty, events: DrawnEvents | None, *, alone: bool) -> str:
    """How to read the panels; `alone` if there is only one axis, so that there are no other features."""
    interval = percent(INTERVAL_LEVEL)
    typical = findings.link.if_typical(f"Lines are those of a typical {findings.names.entity.one}. ")
    others = "" if alone else "All other features are at their average. "
    average = f"{typical}{others}Bands: with {interval} probability, the line is inside."
    removed = "" if alone else ", the effects of other features removed"
    if events is None:
        dots = "To see events as dots, give the report a table of events."
    elif findings.link.family.has_link:
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
) -> dict[str, Any]:
    """The panels of one axis. They share its scale and, unless each has a scale of its own, that of the target."""
    axis = _widened(axis, members, events)
    lines = {k: axis_line(model, axis, k, _span(axis, k, events)) for own in members for k in own}
    dots = [_dots(model, lines, own, events) for own in members]
    alone = [n for n, own in enumerate(members) if len(own) == 1]
    shared = _height([lines[members[n][0]] for n in alone], [mark for n in alone for mark in dots[n]])
    spans = [float(np.ptp(lines[members[n][0]].mean)) for n in alone]
    # clusters at very different levels would all look flat on one scale
    own_scales = len(alone) > 1 and max(spans) < FLAT * (shared[1] - shared[0])
    panels = []
    for own, marks in zip(members, dots, strict=True):
        merged = len(own) > 1
        height = _height([lines[k] for k in own], marks) if own_scales or merged else shared
        panels.append(_panel(model, own, {k: lines[k] for k in own}, marks, height, events, certainty))
    ticks = ticks_across(panels[0].panel.x)
    room = UPRIGHT_LETTERS if len(members) >= STACKED else UPRIGHT_LETTERS_OF_FEW
    room = room if len(members) > 1 else UPRIGHT_LETTERS_OF_ONE
    upright = axis.is_discrete and sum(len(tick.text) + 1 for tick in ticks) > room
    return {"name": axis.name, "panels": panels, "is_upright": upright, "own_scales": own_scales}


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


def _dots(
    model: HierarchicalPredictor, lines: dict[int, AxisLine], own: tuple[int, ...], events: DrawnEvents | None
) -> list[Mark]:
    """The events of some clusters, each around the line of its own."""
    if events is None:
        return []
    mine = events.take(np.isin(events.label, own))
    places = lines[own[0]].axis.places(mine.X)
    on_line = np.empty(len(mine))
    for k in own:
        on_line[mine.label == k] = lines[k].at(places[mine.label == k])
    color = own[0] if len(own) == 1 else None
    n_groups = N_GROUPS if model.family.has_link else 0
    return event_marks(lines[own[0]], mine, color, model.family, most=MOST_DOTS, n_groups=n_groups, on_line=on_line)


def _height(lines: list[AxisLine], dots: list[Mark]) -> tuple[float, float]:
    """Ends of the target's side: all lines, and most of the events."""
    every = [end[np.isfinite(end)] for line in lines for end in (line.mean, line.lower, line.upper)]
    values = np.concatenate([*every, np.empty(0)])
    if not len(values):
        return 0.0, 1.0
    low = float(values.min())
    high = float(values.max())
    seen = np.concatenate([*(mark.y for mark in dots), np.empty(0)])
    if len(seen):
        room = ZOOM * max(high - low, float(np.subtract(*np.quantile(seen, (0.75, 0.25)))) / 2.0)
        bottom, top = (float(end) for end in np.quantile(seen, (0.02, 0.98)))
        middle = (low + high) / 2.0
        low = min(low, max(bottom, middle - room / 2.0))
        high = max(high, min(top, middle + room / 2.0))
    return ends_around([np.array([low, high])], 0.05)


def _panel(
    model: HierarchicalPredictor,
    own: tuple[int, ...],
    lines: dict[int, AxisLine],
    dots: list[Mark],
    height: tuple[float, float],
    events: DrawnEvents | None,
    certainty: LabelCertainty,
) -> ClusterPanel:
    axis = lines[own[0]].axis
    target = target_axis(model)
    merged = len(own) > 1
    if merged:
        told = f"{capital(cluster_numbers(own))}: a line for each"
    else:
        subject = "" if certainty.n_clusters == 1 else f"cluster {own[0]}: "
        told = capital(f"{subject}{target.name} {axis_phrase(model, axis, own[0])}")
    n_events = 0 if events is None else int(np.isin(events.label, own).sum())
    seen = f"; {EVENT.count(n_events)} behind the dots" if n_events else ""
    marks = [line_mark(lines[k], k, "line thin" if merged else "line", band=not merged) for k in own]
    panel = Panel(
        replace(place_scale(axis, MOST_TICKS), label=""),
        replace(target_scale(target, *height, most=MOST_TICKS), label=""),
        (*dots, *marks),
        told=f"{told}, over {axis.name}{seen}.",
        ends=tuple((k, float(lines[k].mean[-1])) for k in own) if merged else (),
    )
    shares = entity_shares(model)
    share = 1.0 if len(own) == len(shares) else float(shares[list(own)].sum())
    title = f"{f'{cluster_numbers(own)}, ' if merged else ''}{percent(share)}"
    return ClusterPanel(own, title, merged or own[0] in certainty.blurred, panel)
