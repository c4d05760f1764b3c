"""Frames of charts: a scale for each side, ticks as HTML texts, and marks in SVG.

An SVG is stretched to its frame, so that charts fit every screen. Texts are HTML and keep their size. Lines and dots
keep theirs too, because their strokes do not scale; a dot is a stroke of no length with round ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from fedhlcr._support.arrays import FloatArray

# A tick this close to the end of an axis, in per cent, has its text inside.
EDGE = 8.0


class Tick(NamedTuple):
    """A tick: its place in per cent of the side, from the left or from the bottom, and its text."""

    place: float
    text: str

    @property
    def side(self) -> str:
        """CSS class of a text that would stick out at an end."""
        return "first" if self.place < EDGE else "last" if self.place > 100.0 - EDGE else ""


class Scale(NamedTuple):
    """From values to per cent of a frame's height or width."""

    low: float
    high: float

    def __call__(self, values: FloatArray) -> FloatArray:
        return np.asarray(100.0 * (np.asarray(values, dtype=np.float64) - self.low) / ((self.high - self.low) or 1.0))

    def ticks(self, ticks: Iterable[tuple[float, str]]) -> tuple[Tick, ...]:
        """Ticks (value, text) that lie on the scale."""
        placed = [(float(self(np.array(value))), text) for value, text in ticks]
        return tuple(Tick(round(place, 2), text) for place, text in placed if -0.5 <= place <= 100.5)


def scale_around(values: Sequence[FloatArray], margin: float = 0.06) -> Scale:
    """The scale that holds all finite values, with a margin."""
    every = np.concatenate([np.ravel(own) for own in values]) if values else np.zeros(1)
    every = every[np.isfinite(every)]
    low, high = (float(every.min()), float(every.max())) if len(every) else (0.0, 1.0)
    if high <= low:
        low = low - (abs(low) * 0.1 or 0.5)
        high = high + (abs(high) * 0.1 or 0.5)
    pad = margin * (high - low)
    return Scale(low - pad, high + pad)


def svg(marks: Markup, told: str, css: str = "") -> Markup:
    """An image that fills its frame, with a text for those who do not see it."""
    return Markup(
        '<svg class="frame {}" viewBox="0 0 100 100" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(css, told, marks)


def line(x: FloatArray, y: FloatArray, css: str) -> Markup:
    """A line through points in per cent; y counts from below."""
    return Markup('<path class="{}" d="{}" vector-effect="non-scaling-stroke"/>').format(css, _path(x, y))


def area(x: FloatArray, lower: FloatArray, upper: FloatArray, css: str) -> Markup:
    """The area between two lines; nothing where an end is not known."""
    if not (np.isfinite(lower).all() and np.isfinite(upper).all()):
        return Markup("")
    d = _path(np.concatenate([x, x[::-1]]), np.concatenate([upper, lower[::-1]]))
    return Markup('<path class="{}" d="{}Z"/>').format(css, d)


def dots(x: FloatArray, y: FloatArray, css: str) -> Markup:
    """Dots at points in per cent; those outside the frame are left out."""
    inside = (x >= -0.5) & (x <= 100.5) & (y >= 0.0) & (y <= 100.0)
    d = "".join(f"M{a:.1f} {100.0 - b:.1f}h0" for a, b in zip(x[inside], y[inside], strict=True))
    return Markup('<path class="{}" d="{}" vector-effect="non-scaling-stroke"/>').format(css, d) if d else Markup("")


def box(left: float, right: float, bottom: float, top: float, css: str) -> Markup:
    """A rectangle; all sides in per cent."""
    return Markup('<rect class="{}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}"/>').format(
        css, left, 100.0 - top, max(right - left, 0.0), max(top - bottom, 0.0)
    )


def _path(x: FloatArray, y: FloatArray) -> str:
    points = [f"{a:.2f} {100.0 - b:.2f}" for a, b in zip(x, y, strict=True) if np.isfinite(b)]
    return f"M{'L'.join(points)}" if points else ""
