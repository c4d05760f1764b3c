"""Curves of the clusters over a cycle, such as the months of a year, beside the map."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.analysis.axes import feature_axes
from fedhlcr.analysis.axis_lines import axis_line, axis_strengths, target_axis
from fedhlcr.analysis.effects import entity_shares
from fedhlcr.analysis.ticks import nice_ticks, tick_text
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.report.charts import color_class

# Clusters with a curve, largest first.
MAX_CURVES = 6
# Numbers of clusters beside their curves are at least this far apart, in per cent of the height.
LEAST_GAP = 7.0


@dataclass(frozen=True)
class Seasons:
    """A chart of curves over one cycle.

    Attributes
    ----------
    title : what is shown
    axis : what the axis shows: "month"
    svg : the curves
    across, up : (position in per cent, text) of the ticks; `up` from the top
    ends : (cluster, position in per cent from the top) of the numbers beside the curves
    """

    title: str
    axis: str
    svg: Markup
    across: tuple[tuple[float, str], ...]
    up: tuple[tuple[float, str], ...]
    ends: tuple[tuple[int, float], ...]


def season_curves(model: HierarchicalPredictor, clusters: IndexArray) -> Seasons | None:
    """The curves of some clusters over the strongest cycle, each against its own mean; None if there is no cycle."""
    axes = tuple(axis for axis in feature_axes(model) if axis.kind == "cycle")
    if not axes:
        return None
    strengths = entity_shares(model) @ axis_strengths(model, axes) ** 2
    axis = axes[int(strengths.argmax())]
    shown = clusters[:MAX_CURVES].tolist()
    curves = np.array([axis_line(model, axis, k).mean for k in shown])
    # the last point is the first again
    curves -= curves[:, :-1].mean(axis=1, keepdims=True)
    low = float(curves.min())
    high = float(curves.max())
    margin = 0.05 * (high - low or 1.0)
    low = low - margin
    high = high + margin
    down = 100.0 * (high - curves) / (high - low)
    at = 100.0 * axis.fractions(axis.grid())
    drawn = Markup("").join(
        Markup('<path class="season {}" d="{}" vector-effect="non-scaling-stroke"/>').format(
            color_class(k), _path(at, own)
        )
        for k, own in zip(shown, down, strict=True)
    )
    target = target_axis(model)
    ticks = axis.ticks()
    assert axis.cycle is not None
    places = 100.0 * axis.fractions(np.array([place for place, _ in ticks]))
    zero = 100.0 * high / (high - low)
    peaks = "; ".join(
        f"cluster {k} is highest at {_peak(own, at, ticks, places)}" for k, own in zip(shown, curves, strict=True)
    )
    unit = f"log {target.name}" if target.is_log else target.name
    title = f"{unit[:1].upper()}{unit[1:]}, against the {axis.cycle.whole}’s mean"
    svg = Markup(
        '<svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img"><title>{}: {}.</title>'
        '<path class="zero" d="M0 {:.1f}H100" vector-effect="non-scaling-stroke"/>{}</svg>'
    ).format(title, peaks, zero, drawn)
    return Seasons(
        title=title,
        axis=axis.name,
        svg=svg,
        across=tuple((float(place), text) for place, (_, text) in zip(places, ticks, strict=True)),
        up=tuple((100.0 * (high - value) / (high - low), tick_text(value)) for value in nice_ticks(low, high)),
        ends=_apart([(k, float(own[-1])) for k, own in zip(shown, down, strict=True)]),
    )


def _path(at: FloatArray, down: FloatArray) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in zip(at, down, strict=True))


def _peak(values: FloatArray, at: FloatArray, ticks: list[tuple[float, str]], places: FloatArray) -> str:
    """The tick nearest to the highest point."""
    nearest = int(np.abs(places - at[int(values.argmax())]).argmin())
    text = ticks[nearest][1]
    return text if len(text) > 1 and not text.isdigit() else f"tick {nearest + 1} of {len(ticks)}"


def _apart(ends: list[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """The same from top to bottom, moved down or up as far as needed to be legible."""
    ends = sorted(ends, key=lambda end: end[1])
    tops: list[float] = []
    for _, top in ends:
        tops.append(max(top, tops[-1] + LEAST_GAP) if tops else top)
    shift = max(0.0, tops[-1] - 100.0) if tops else 0.0
    return tuple((k, top - shift) for (k, _), top in zip(ends, tops, strict=True))
