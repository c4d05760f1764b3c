"""Whether intervals hold what they promise, and for which agents the model is off, on held-out events."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.wording import EVENT, capital, number, percent
from fedhlcr.analysis.evaluation import HeldOut, coverage_gap
from fedhlcr.analysis.facts import AgentFacts, UserNames
from fedhlcr.analysis.names import named
from fedhlcr.data.hierarchy import UNKNOWN
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.estimators.drawn_events import DrawnEvents
from fedhlcr.figures.estimates import residual_panel
from fedhlcr.figures.fit import calibration_panel, interval_coverage

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
# Quantiles of many events take long, so of more events a sample is used.
MOST_EVENTS = 2000
# With more agents, only those at both ends are drawn.
MOST_AGENTS = 40
AT_EACH_END = 15
# More rows than these are set in columns.
LONG = 14
# A mean this many standard errors from zero counts.
CLEAR = 2.0


def calibrate(model: HierarchicalPredictor, data: HeldOut) -> dict[str, Any]:
    """The share of events in their intervals, as a curve and in words; of real targets and of counts."""
    given = (data.X, data.y, data.agent, data.entity, data.exposure)
    coverage, n_used, n_all = interval_coverage(model, *given, LEVELS, MOST_EVENTS)
    sentence = in_words(coverage, n_used, is_sample=n_used < n_all)
    panel = calibration_panel(coverage, LEVELS, n_used, sentence)
    return {"coverage": coverage, "panel": panel, "sentence": sentence}


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


def residual_chart(events: DrawnEvents, agents: AgentFacts, names: UserNames) -> dict[str, Any] | None:
    """Residuals by agent, lowest mean first; of many agents those at both ends, and a strip for those between.

    None with fewer than two agents that have events.
    """
    known = events.agent != UNKNOWN
    agent = events.agent[known]
    residual = events.residuals[known]
    n = np.bincount(agent, minlength=len(agents))
    with_events = np.flatnonzero(n)
    if len(with_events) < 2:
        return None
    counts = np.maximum(n, 1)
    mean = np.bincount(agent, weights=residual, minlength=len(agents)) / counts
    square = np.bincount(agent, weights=residual**2, minlength=len(agents)) / counts
    spread = np.sqrt(np.maximum(square - mean**2, 0.0))
    order = with_events[np.argsort(mean[with_events], kind="stable")]
    shown = order
    between = None
    if len(order) > MOST_AGENTS:
        shown = np.concatenate([order[:AT_EACH_END], order[-AT_EACH_END:]])
        between = AT_EACH_END, f"{len(order) - len(shown)} between", mean[order]
    rows = [named(agents.ids[i], names.agent) for i in shown]
    panel = residual_panel(rows, mean[shown], spread[shown], between)
    sentence = _residuals_in_words(mean[order], spread[order], n[order], names)
    return {"panel": panel, "is_long": len(shown) > LONG, "sentence": sentence}


def _residuals_in_words(mean: FloatArray, spread: FloatArray, n: IndexArray, names: UserNames) -> str:
    error = spread / np.sqrt(np.maximum(n, 1))
    off = int((np.abs(mean) > CLEAR * error)[n > 1].sum())
    # one in twenty is beyond two standard errors by chance
    by_chance = 0.05 * len(mean)
    agents = names.agent
    how = (
        f"For {off:,} of {agents.count(len(mean))} the model is off on average by more than chance explains"
        if off > max(2.0 * by_chance, 1.0)
        else f"{capital(agents.one)} by {agents.one}, the model is off on average by no more than chance explains"
    )
    widest = number(float(np.abs(mean).max()))
    return f"{how}; the largest mean residual is {widest}. {EVENT.count(int(n.sum()))} are behind it."
