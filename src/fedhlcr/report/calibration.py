"""Whether intervals hold what they promise: of intervals of 50 %, half should hold the observed target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.threads import single_threaded_blas
from fedhlcr._support.wording import EVENT, percent
from fedhlcr.analysis.evaluation import HeldOut, coverage_gap
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.posterior.predictive import interval_ends
from fedhlcr.report import frames
from fedhlcr.report.frames import Scale, Tick

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
# Quantiles of many events take long, so of more events every second, third, … is used.
MOST_EVENTS = 2000
PER_CENT = Scale(0.0, 1.0)


@dataclass(frozen=True)
class Calibration:
    """The curve of calibration.

    Attributes
    ----------
    coverage : (levels,) share of the events inside intervals of each level
    n_events : number of events
    svg : the curve
    sentence : what it shows
    """

    coverage: FloatArray
    n_events: int
    svg: Markup
    sentence: str

    @property
    def ticks(self) -> tuple[Tick, ...]:
        return PER_CENT.ticks((level, f"{100.0 * level:.0f} %") for level in (0.0, 0.25, 0.5, 0.75, 1.0))


@single_threaded_blas
def calibrate(model: HierarchicalPredictor, data: HeldOut) -> Calibration:
    """Count how many events lie in their intervals, at several levels; of real targets and of counts."""
    events = model.read_events(data.X, data.agent, data.entity)
    observed = model.numeric_target(data.y, len(events.matrix))
    rows = np.arange(0, len(observed), -(-len(observed) // MOST_EVENTS))
    profiles = events.profiles._replace(of_row=events.profiles.of_row[rows])
    X = events.matrix[rows]
    y = observed[rows]
    posterior = model.posterior_
    if posterior.likelihood.needs_events and not posterior.likelihood.has_heavy_tails:
        offset = _offset(data, len(observed))
        ends = [posterior.interval(X, profiles, level, None if offset is None else offset[rows]) for level in LEVELS]
    else:
        both = tuple(end for level in LEVELS for end in interval_ends(level))
        quantiles = posterior.predict(X, profiles, both).quantiles
        ends = [(quantiles[:, 2 * n], quantiles[:, 2 * n + 1]) for n in range(len(LEVELS))]
    coverage = np.array([((lower <= y) & (y <= upper)).mean() for lower, upper in ends])
    sentence = in_words(coverage, len(y), is_sample=len(y) < len(observed))
    return Calibration(coverage, len(y), _draw(coverage, len(y), sentence), sentence)


def _offset(data: HeldOut, n_events: int) -> FloatArray | None:
    if data.exposure is None:
        return None
    exposure: Any = np.asarray(data.exposure, dtype=np.float64)
    return np.log(np.broadcast_to(exposure, n_events))


def in_words(coverage: FloatArray, n_events: int, *, is_sample: bool = False) -> str:
    """Whether intervals of 50 % and of 90 % hold what they promise; `is_sample` if there are more events."""
    who = f"a sample of {EVENT.count(n_events)}" if is_sample else EVENT.count(n_events)
    middle = coverage[LEVELS.index(0.5)]
    outer = coverage[LEVELS.index(0.9)]
    figures = (
        f"{percent(float(outer))} of {who} lie in their 90 % intervals, and {percent(float(middle))} "
        "in their 50 % intervals"
    )
    inner, wide = (_held(float(share), level, n_events) for share, level in ((middle, 0.5), (outer, 0.9)))
    if inner == wide:
        return f"The intervals {wide}: {figures}."
    return f"The 90 % intervals {wide}, and those of 50 % {inner}: {figures}."


def _held(share: float, level: float, n_events: int) -> str:
    """What intervals of one level do, by the share of the events inside."""
    off = share - level
    if abs(off) <= coverage_gap(level, n_events):
        return "hold what they promise"
    return "are too narrow" if off < 0.0 else "are wider than needed"


def _draw(coverage: FloatArray, n_events: int, told: str) -> Markup:
    """The shares against their levels, with what chance allows around the diagonal."""
    grid = np.linspace(0.0, 1.0, 21)
    chance = 2.0 * np.sqrt(grid * (1.0 - grid) / n_events)
    levels = np.array(LEVELS)
    marks = frames.area(PER_CENT(grid), PER_CENT(grid - chance), PER_CENT(grid + chance), "chance")
    marks += frames.line(np.array([0.0, 100.0]), np.array([0.0, 100.0]), "diagonal")
    marks += frames.line(PER_CENT(levels), PER_CENT(coverage), "curve")
    marks += frames.dots(PER_CENT(levels), PER_CENT(coverage), "spot")
    return frames.svg(marks, told, "calibration")
