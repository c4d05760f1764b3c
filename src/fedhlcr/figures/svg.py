"""Figures on a page: marks in SVG, which is stretched to its frame, and texts in HTML, which keep their size.

Lines and dots keep their size too, because their strokes do not scale; a dot is a stroke of no length with round ends.
Colours are classes and variables of the page's style sheet, so that figures follow its theme.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import number, percent
from fedhlcr.analysis.effects import INTERVAL_LEVEL
from fedhlcr.figures.figure import Mark, Panel, Scale, spread_out
from fedhlcr.figures.palette import color_class

# Most points of a line, and cells along a side of a cloud.
MAX_POINTS = 400
CELLS = 48
# A tick this close to the end of a side, in per cent, has its text inside.
EDGE = 8.0
# Widths in a narrow panel, in per cent: of a letter, and of the gap between two ticks.
LETTER = 5.5
GAP = 2.5
MOST_LEVEL_TICKS = 14
# Ticks along y with more letters need more room.
LONG_TICK = 6
# Half the width of a level's mark, as a share of the room of a level.
HALF_MARK = 0.36
# The usual height of a frame, and that of a number beside a line, in font sizes; more numbers than CROWDED stand in two
# columns by turns. Taller frames are wider too, and have more ticks.
HEIGHT = 6.8
TALL = 10.0
LABEL_HEIGHT = 1.09
CROWDED = 6
MOST_LABELS = 12
STILL = Markup(' vector-effect="non-scaling-stroke"')


class Tick(NamedTuple):
    """A tick: its place in per cent of the side, from the left or from the bottom, and its text."""

    place: float
    text: str

    @property
    def side(self) -> str:
        """CSS class of a text that would stick out at an end."""
        return "first" if self.place < EDGE else "last" if self.place > 100.0 - EDGE else ""


def tag(cluster: int) -> Markup:
    """A cluster's number on its colour."""
    return Markup('<i class="tag {}">{}</i>').format(color_class(cluster), cluster)


def ticks_of(scale: Scale, most: int = 4) -> tuple[Tick, ...]:
    """The ticks of a side."""
    return tuple(Tick(round(100.0 * at, 2), text) for at, text in scale.ticks_in(most))


def ticks_across(scale: Scale, letter: float = LETTER) -> tuple[Tick, ...]:
    """Ticks along x that do not touch each other in a narrow panel."""
    kept = list(ticks_of(scale))
    if scale.kind == "levels":
        return tuple(kept[:: -(-len(kept) // MOST_LEVEL_TICKS) or 1])
    while len(kept) > 1 and ticks_touch(kept, GAP if len(kept) > 2 else 0.0, letter):
        # zero stays, if it is a tick
        kept = kept[1 if "0" in [tick.text for tick in kept[1::2]] else 0 :: 2]
    return tuple(kept)


def ticks_touch(ticks: list[Tick], gap: float = GAP, letter: float = LETTER) -> bool:
    """Whether texts of neighbours are closer than a gap, in per cent; the last two ticks may stand close."""
    return any(_extent(b, letter)[0] - _extent(a, letter)[1] < gap for a, b in pairwise(ticks))


def _extent(tick: Tick, letter: float) -> tuple[float, float]:
    """Where the text of a tick starts and ends in a narrow panel, in per cent; at an edge it is moved inside."""
    width = letter * len(tick.text)
    start = tick.place - width / 2.0
    if tick.side == "first":
        start = max(start, tick.place - letter)
    elif tick.side == "last":
        start = min(start, tick.place + letter - width)
    return start, start + width


def frame(panel: Panel, height: float = HEIGHT) -> Markup:
    """A panel with its ticks, the labels of its sides, and the numbers of clusters at the ends of lines.

    `height` is about that which the style sheet gives the frame, in font sizes.
    """
    panel = panel.fitted()
    y_ticks = ticks_of(panel.y, 4 if height < TALL else 6)
    parts = [_spans(y_ticks, "y-ticks", "bottom"), picture(panel)]
    if panel.ends:
        labels = line_labels(panel, height)
        own = Markup("").join(Markup('<span style="bottom:{}%">{}</span>').format(at, tag(k)) for at, k in labels)
        crowded = " crowded" if len(labels) > CROWDED else ""
        parts.append(Markup('<div class="line-labels{}" aria-hidden="true">{}</div>').format(crowded, own))
    parts.append(_spans(ticks_across(panel.x, LETTER * HEIGHT / height), "x-ticks", "left"))
    if panel.x.label:
        parts.append(Markup('<div class="x-label">{}</div>').format(panel.x.label))
    label = Markup('<div class="y-label">{}</div>').format(panel.y.label) if panel.y.label else Markup("")
    roomy = " roomy" if is_roomy(panel) else ""
    return Markup('{}<div class="framed{}">{}</div>').format(label, roomy, Markup("").join(parts))


def is_roomy(panel: Panel) -> bool:
    """Whether values beside a panel need more room than usual."""
    return any(len(tick.text) > LONG_TICK for tick in ticks_of(panel.fitted().y))


def figure(panel: Panel) -> Markup:
    """A small figure: its title, the names of its lines, and the panel."""
    names = [mark for mark in panel.marks if mark.name]
    bare = replace(panel, y=replace(panel.y, label=""))
    entries = Markup("").join(
        Markup('<span><i class="dash {}"></i>{}</span>').format(mark.role, mark.name) for mark in names
    )
    legend = Markup('<span class="legend">{}</span>').format(entries) if len(names) > 1 else Markup("")
    return Markup('<figure class="small"><figcaption>{}{}</figcaption>{}</figure>').format(
        panel.title, legend, frame(bare)
    )


def _spans(ticks: tuple[Tick, ...], css: str, side: str) -> Markup:
    spans = Markup("").join(
        Markup('<span{} style="{}:{}%">{}</span>').format(
            Markup(' class="{}"').format(tick.side) if side == "left" and tick.side else "", side, tick.place, tick.text
        )
        for tick in ticks
    )
    return Markup('<div class="{}" aria-hidden="true">{}</div>').format(css, spans)


def line_labels(panel: Panel, height: float = HEIGHT) -> tuple[tuple[float, int], ...]:
    """Where to write the numbers of lines at their right ends, in per cent, so that they do not hide each other."""
    ends = sorted(
        (float(panel.y.fractions(np.array(value)).clip(0.0, 1.0)), k) for k, value in panel.ends[:MOST_LABELS]
    )
    size = LABEL_HEIGHT / height
    half = size / 2.0
    # many labels stand in two columns by turns
    step = half if len(ends) > CROWDED else size
    inside = (np.array([end for end, _ in ends]) - half) / (1.0 - 2.0 * half)
    places = spread_out(inside.clip(0.0, 1.0), step / (1.0 - 2.0 * half)) * (1.0 - 2.0 * half) + half
    return tuple((round(100.0 * float(place), 1), k) for place, (_, k) in zip(places, ends, strict=True))


def rows(panel: Panel, has_tags: bool = True) -> Markup:
    """A panel of intervals as a list: for each row its name or its cluster's tag, its mark, and its value."""
    panel = panel.fitted()
    rules = tuple(mark for mark in panel.marks if mark.shape == "rule")
    items = Markup("").join(_row(mark, panel, rules, has_tags) for mark in panel.marks if mark.shape != "rule")
    ticks = _spans(ticks_across(panel.x), "x-ticks", "left")
    return Markup('<ul class="whisker-rows">{}</ul><div class="x-side">{}</div>').format(items, ticks)


def _row(mark: Mark, panel: Panel, rules: tuple[Mark, ...], has_tags: bool) -> Markup:
    head = Markup('<span class="name" title="{0}">{0}</span>').format(mark.name)
    words = mark.name
    level = ""
    if mark.cluster is not None:
        head = tag(mark.cluster) if has_tags else Markup("")
        words = f"{panel.title}, cluster {mark.cluster}"
        level = f"{percent(INTERVAL_LEVEL)} interval: "
    value = ""
    interval = ""
    if mark.shape == "levels":
        value = number(float(mark.x[0]), 2)
        if np.isfinite(mark.low[0]):
            interval = f"{number(float(mark.low[0]))} to {number(float(mark.high[0]))}"
        words = f"{words}: {number(float(mark.x[0]))}{f', from {interval}' if interval else ''}"
    own = Panel(panel.x, Scale(float(mark.y[0]) - 1.0, float(mark.y[0]) + 1.0), (*rules, mark), told=words)
    css = "faded" if "faded" in mark.role else "" if value else "between"
    title = f"{level}{interval}" if interval else ""
    return Markup('<li class="{}">{}{}<span class="value" title="{}">{}</span></li>').format(
        css, head, picture(own), title, value
    )


def picture(panel: Panel) -> Markup:
    """The marks of a panel, with a text for those who do not see them."""
    panel = panel.fitted()
    drawn = Markup("").join(_SHAPES[mark.shape](mark, panel) for mark in panel.marks if mark.shape in _SHAPES)
    return Markup(
        '<svg class="frame" viewBox="0 0 100 100" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(panel.told or panel.title, drawn)


def _color(mark: Mark) -> str:
    """CSS classes that decide a colour: of the cluster or, without one, of the role."""
    return mark.role if mark.cluster is None else color_class(mark.cluster)


def _css(mark: Mark) -> str:
    return mark.role if mark.cluster is None else f"{mark.role} {color_class(mark.cluster)}"


def _at(panel: Panel, x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Per cent from the left and from the top."""
    return 100.0 * panel.x.fractions(x), 100.0 - 100.0 * panel.y.fractions(y)


def _path(x: FloatArray, y: FloatArray) -> str:
    few = np.unique(np.linspace(0, len(x) - 1, MAX_POINTS).astype(np.int64)) if len(x) > MAX_POINTS else slice(None)
    points = [f"{a:.2f} {b:.2f}" for a, b in zip(x[few], y[few], strict=True) if np.isfinite(b)]
    return f"M{'L'.join(points)}" if points else ""


def _line(mark: Mark, panel: Panel) -> Markup:
    drawn = Markup("")
    if mark.has_ends:
        x, low = _at(panel, mark.x, mark.low)
        _, high = _at(panel, mark.x, mark.high)
        if np.isfinite(low).all() and np.isfinite(high).all():
            outline = _path(np.concatenate([x, x[::-1]]), np.concatenate([high, low[::-1]]))
            drawn += Markup('<path class="band {}" d="{}Z"/>').format(_color(mark), outline)
    if len(mark.y) and (d := _path(*_at(panel, mark.x, mark.y))):
        drawn += Markup('<path class="{}" d="{}"{}/>').format(_css(mark), d, STILL)
    return drawn


def _dots(mark: Mark, panel: Panel) -> Markup:
    x, y = _at(panel, mark.x, mark.y)
    inside = (x >= -0.5) & (x <= 100.5) & (y >= 0.0) & (y <= 100.0)
    # dots at the same place look like one
    places = dict.fromkeys(f"M{a:.1f} {b:.1f}h0" for a, b in zip(x[inside], y[inside], strict=True))
    return Markup('<path class="{}" d="{}"{}/>').format(_css(mark), "".join(places), STILL) if places else Markup("")


def _levels(mark: Mark, panel: Panel) -> Markup:
    """Across, whiskers with dots; upright, boxes with a line at the mean, or whiskers where x is no level."""
    if mark.is_across or panel.x.kind != "levels":
        return _whiskers(mark, panel) + (_dots(mark, panel) if len(mark.x) and len(mark.y) else "")
    half = HALF_MARK
    drawn = Markup("")
    for n, level in enumerate(mark.x):
        x, mean = _at(panel, level + np.array([-half, half]), np.repeat(mark.y[n], 2))
        if mark.has_ends and np.isfinite([mark.low[n], mark.high[n]]).all():
            low, high = 100.0 - 100.0 * panel.y.fractions(np.array([mark.low[n], mark.high[n]]))
            drawn += Markup('<rect class="band {}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}"/>').format(
                _color(mark), x[0], high, x[1] - x[0], max(low - high, 0.0)
            )
        drawn += Markup('<path class="{}" d="{}"{}/>').format(_css(mark), _path(x, mean), STILL)
    return drawn


def _whiskers(mark: Mark, panel: Panel) -> Markup:
    along = mark.y if mark.is_across else mark.x
    d = ""
    for n in np.flatnonzero(np.isfinite(mark.low) & np.isfinite(mark.high)):
        ends = np.array([mark.low[n], mark.high[n]])
        here = np.repeat(along[n], 2)
        x, y = _at(panel, ends, here) if mark.is_across else _at(panel, here, ends)
        d += _path(x.clip(0.0, 100.0), y.clip(0.0, 100.0))
    return Markup('<path class="whisker" d="{}"{}/>').format(d, STILL) if d else Markup("")


def _bars(mark: Mark, panel: Panel) -> Markup:
    half = 0.45 * float(np.diff(mark.x[:2])[0]) if len(mark.x) > 1 else 0.45
    left, top = _at(panel, mark.x - half, mark.y)
    right, bottom = _at(panel, mark.x + half, np.zeros(len(mark.x)))
    return Markup("").join(
        Markup('<rect class="bar {}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}"/>').format(
            _css(mark), left[n], top[n], right[n] - left[n], bottom[n] - top[n]
        )
        for n in np.flatnonzero(mark.y)
    )


def _cloud(mark: Mark, panel: Panel) -> Markup:
    """The numbers of points in cells."""
    x, y = (side.fractions(own) for side, own in ((panel.x, mark.x), (panel.y, mark.y)))
    counts, _, _ = np.histogram2d(x, y, bins=CELLS, range=((0.0, 1.0), (0.0, 1.0)))
    strength = np.log1p(counts) / np.log1p(counts.max() or 1.0)
    size = 100.0 / CELLS
    cells = Markup("").join(
        Markup('<rect x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}" fill-opacity="{:.2f}"/>').format(
            size * column, size * (CELLS - 1 - row), 1.04 * size, 1.04 * size, 0.1 + 0.9 * strength[column, row]
        )
        for column, row in np.argwhere(counts > 0)
    )
    return Markup('<g class="ink">{}</g>').format(cells)


def _rule(mark: Mark, panel: Panel) -> Markup:
    whole = np.array([0.0, 100.0])
    if len(mark.x):
        x, y = np.repeat(100.0 * panel.x.fractions(mark.x), 2), whole
    else:
        x, y = whole, np.repeat(100.0 - 100.0 * panel.y.fractions(mark.y), 2)
    return Markup('<path class="{}" d="{}"{}/>').format(_css(mark), _path(x, y), STILL)


def _span(mark: Mark, panel: Panel) -> Markup:
    if not len(mark.x):
        return Markup("")
    left, right = 100.0 * panel.x.fractions(mark.x)
    return Markup('<rect class="{}" x="{:.2f}" y="0" width="{:.2f}" height="100"/>').format(
        _css(mark), left, right - left
    )


_SHAPES = {
    "line": _line,
    "dots": _dots,
    "levels": _levels,
    "bars": _bars,
    "cloud": _cloud,
    "rule": _rule,
    "span": _span,
}
