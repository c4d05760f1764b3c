"""Where the model is off: mean and spread of the residuals of each agent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.wording import EVENT, capital, number
from fedhlcr.analysis.facts import AgentFacts, UserNames
from fedhlcr.analysis.names import named
from fedhlcr.analysis.ticks import nice_ticks, tick_text
from fedhlcr.data.hierarchy import UNKNOWN
from fedhlcr.report import frames
from fedhlcr.report.events import DrawnEvents
from fedhlcr.report.frames import Scale, Tick

# With more agents, only those at both ends are drawn.
MOST_AGENTS = 40
AT_EACH_END = 15
# More rows than these are set in columns.
LONG = 14
# A mean this many standard errors from zero counts.
CLEAR = 2.0


@dataclass(frozen=True)
class ResidualRow:
    name: str
    svg: Markup
    value: str
    n_events: int


@dataclass(frozen=True)
class ResidualChart:
    """Residuals by agent.

    Attributes
    ----------
    rows : agents by their mean residual, lowest first; of many, those at the lower end
    last_rows : those at the upper end
    strip : the means of all agents as dots on one line
    sentence : what the chart shows
    """

    rows: tuple[ResidualRow, ...]
    last_rows: tuple[ResidualRow, ...]
    n_between: int
    strip: Markup
    ticks: tuple[Tick, ...]
    sentence: str

    @property
    def is_long(self) -> bool:
        """Whether the rows need the whole width of the page."""
        return len(self.rows) + len(self.last_rows) > LONG


def draw_residuals(events: DrawnEvents, agents: AgentFacts, names: UserNames) -> ResidualChart | None:
    """The chart; None with fewer than two agents that have events."""
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
    many = len(order) > MOST_AGENTS
    first, last = (order[:AT_EACH_END], order[-AT_EACH_END:]) if many else (order, order[:0])
    shown = np.concatenate([first, last])
    scale = frames.scale_around([np.zeros(1), (mean - spread)[shown], (mean + spread)[shown]])

    def row(i: int) -> ResidualRow:
        name = named(agents.ids[i], names.agent)
        told = f"{number(mean[i])}, spread {number(spread[i])}"
        return ResidualRow(name, _row(scale, mean[i], spread[i], f"{name}: {told}"), number(mean[i], 2), int(n[i]))

    # dots at the same place look like one
    spots = np.unique(scale(mean[order]).round(1))
    strip = frames.dots(spots, np.full(len(spots), 50.0), "spot faint")
    return ResidualChart(
        tuple(row(int(i)) for i in first),
        tuple(row(int(i)) for i in last),
        len(order) - len(shown),
        frames.svg(_zero(scale) + strip, f"Mean residuals of all {names.agent.count(len(order))}"),
        scale.ticks((value, tick_text(value)) for value in nice_ticks(scale.low, scale.high, 4)),
        _sentence(mean[order], spread[order], n[order], names),
    )


def _zero(scale: Scale) -> Markup:
    return frames.line(np.repeat(scale(np.zeros(1)), 2), np.array([0.0, 100.0]), "zero")


def _row(scale: Scale, mean: float, spread: float, told: str) -> Markup:
    ends = scale(np.array([mean - spread, mean + spread]))
    middle = np.array([50.0, 50.0])
    marks = (
        _zero(scale) + frames.line(ends, middle, "whisker") + frames.dots(scale(np.array([mean])), middle[:1], "spot")
    )
    return frames.svg(marks, told)


def _sentence(mean: FloatArray, spread: FloatArray, n: IndexArray, names: UserNames) -> str:
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
