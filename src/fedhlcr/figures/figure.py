"""What a figure shows, as plain data: panels with two sides, and marks on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.analysis.ticks import log_ticks, nice_ticks, tick_text

Shape = Literal["line", "dots", "levels", "bars", "cloud", "rule", "span", "number"]
# Coordinates that a mark does not have.
NOTHING: FloatArray = np.empty(0)
# The margin beyond the outermost marks, as a share of their range.
MARGIN = 0.06


@dataclass(frozen=True)
class Scale:
    """One side of a panel.

    Attributes
    ----------
    low, high : values at its ends; None where they follow from the marks
    label : what stands beside it
    ticks : (value, text) of its ticks; None for round numbers
    kind : "linear"; "whole", of whole numbers; "share", written in per cent; "log", of the value plus `offset`; "root",
        the square root; "levels", names at 0, 1, 2, …
    is_reversed : whether it starts at the top
    """

    low: float | None = None
    high: float | None = None
    label: str = ""
    ticks: tuple[tuple[float, str], ...] | None = None
    kind: Literal["linear", "whole", "share", "log", "root", "levels"] = "linear"
    offset: float = 0.0
    is_reversed: bool = False

    def fractions(self, values: FloatArray) -> FloatArray:
        """How far along the side values are: 0 at its low end, 1 at its high one."""
        assert self.low is not None
        assert self.high is not None
        low, high, at = (self._warped(np.asarray(own, dtype=np.float64)) for own in (self.low, self.high, values))
        found = (at - low) / ((high - low) or 1.0)
        return np.asarray(1.0 - found if self.is_reversed else found)

    def _warped(self, values: FloatArray) -> FloatArray:
        if self.kind == "log":
            return np.log(np.maximum(values + self.offset, 1e-300))
        return np.sqrt(np.maximum(values, 0.0)) if self.kind == "root" else values

    def ticks_in(self, most: int = 5) -> list[tuple[float, str]]:
        """(fraction, text) of the ticks between the ends."""
        assert self.low is not None
        assert self.high is not None
        ticks = self.ticks
        if ticks is None:
            values = (log_ticks if self.kind == "log" else nice_ticks)(self.low, self.high, most)
            ticks = tuple((value, tick_text(value)) for value in values)
        places = self.fractions(np.array([value for value, _ in ticks]))
        return [(float(at), text) for at, (_, text) in zip(places, ticks, strict=True) if -0.005 <= at <= 1.005]


@dataclass(frozen=True)
class Mark:
    """Something drawn on a panel.

    Attributes
    ----------
    shape : "line", with a band if it has ends; "dots"; "levels", dots with intervals; "bars", from zero up; "cloud",
        points that may be too many to be drawn one by one; "rule", a line across the panel at one x or y; "span", the
        area between two x, or two y; "number", that of the cluster, beside each point
    role : what it stands for, which decides its looks
    x, y : where it is; empty where the shape needs no such value
    low, high : ends of intervals, if it has any: in the direction of y or, if `is_across`, of x
    cluster : whose colour it has
    name : in a legend, or of a row
    """

    shape: Shape
    role: str
    x: FloatArray = field(default_factory=lambda: NOTHING)
    y: FloatArray = field(default_factory=lambda: NOTHING)
    low: FloatArray = field(default_factory=lambda: NOTHING)
    high: FloatArray = field(default_factory=lambda: NOTHING)
    cluster: int | None = None
    name: str = ""
    is_across: bool = False

    @property
    def has_ends(self) -> bool:
        """Whether it has intervals."""
        return len(self.low) > 0

    @property
    def sides(self) -> tuple[list[FloatArray], list[FloatArray]]:
        """All values along x, and all along y."""
        ends = [self.low, self.high]
        return ([self.x, *ends], [self.y]) if self.is_across else ([self.x], [self.y, *ends])


@dataclass(frozen=True)
class Panel:
    """One frame of a figure.

    Attributes
    ----------
    x, y : its sides
    marks : what is drawn, in this order
    title : above it
    told : what it shows, for those who do not see it
    ends : (cluster, value) at the right ends of lines, to number them
    legend : title of the legend; None without a legend
    is_square : whether both sides are equally long
    """

    x: Scale
    y: Scale
    marks: tuple[Mark, ...]
    title: str = ""
    told: str = ""
    ends: tuple[tuple[int, float], ...] = ()
    legend: str | None = None
    is_square: bool = False

    def fitted(self) -> Panel:
        """The same panel with ends of both sides that hold all marks."""
        return replace(
            self,
            x=_fitted(self.x, [own for mark in self.marks for own in mark.sides[0]]),
            y=_fitted(self.y, [own for mark in self.marks for own in mark.sides[1]]),
        )


def _fitted(scale: Scale, values: list[FloatArray]) -> Scale:
    if scale.low is not None and scale.high is not None:
        return scale
    low, high = ends_around(values)
    return replace(scale, low=low if scale.low is None else scale.low, high=high if scale.high is None else scale.high)


def ends_around(values: Sequence[FloatArray], margin: float = MARGIN) -> tuple[float, float]:
    """Ends of a side that hold all finite values, with a margin."""
    every = np.concatenate([np.ravel(own) for own in values]) if values else np.zeros(1)
    every = every[np.isfinite(every)]
    low, high = (float(every.min()), float(every.max())) if len(every) else (0.0, 1.0)
    if high <= low:
        low = low - (abs(low) * 0.1 or 0.5)
        high = high + (abs(high) * 0.1 or 0.5)
    pad = margin * (high - low)
    return low - pad, high + pad


def level_scale(names: Sequence[str], label: str = "", *, is_reversed: bool = False) -> Scale:
    """The side of levels with these names."""
    ticks = tuple((float(n), name) for n, name in enumerate(names))
    return Scale(-0.5, len(names) - 0.5, label, ticks, "levels", is_reversed=is_reversed)


def evenly(n: int, most: int) -> IndexArray:
    """All of range(n), or a sample of `most` of it that depends on n only."""
    return np.arange(n) if n <= most else np.sort(np.random.default_rng(n).choice(n, most, replace=False))


def spread_out(wanted: FloatArray, step: float) -> FloatArray:
    """Ascending positions near the wanted ones, which ascend too, at least a step apart, between 0 and 1 if they fit.

    Neighbours that are too near are moved apart around their common middle.
    """
    groups: list[tuple[float, int]] = []
    for value in wanted:
        # (sum of wanted middles, size): a group takes `size` steps around its mean
        total, size = float(value), 1
        while groups and total / size - groups[-1][0] / groups[-1][1] < 0.5 * step * (size + groups[-1][1]):
            before = groups.pop()
            total = total + before[0]
            size = size + before[1]
        groups.append((total, size))
    out = []
    for total, size in groups:
        half = 0.5 * step * (size - 1)
        middle = min(max(total / size, half), max(1.0 - half, half))
        out += [middle + step * (i - 0.5 * (size - 1)) for i in range(size)]
    return np.array(out)
