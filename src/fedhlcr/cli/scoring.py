"""Predictions and scores of a model on events, for several commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import ROW
from fedhlcr.analysis.evaluation import AgentGroups, Evaluation, predict_in_chunks
from fedhlcr.analysis.scores import (
    BIN_LEVEL,
    METRICS,
    SHOWN,
    ClassRows,
    Scores,
    calibration_bins,
    running_scores,
    score_table,
)
from fedhlcr.cli.events import Events
from fedhlcr.cli.shell import Shell, plural
from fedhlcr.data.families import Family
from fedhlcr.posterior.fitted_model import check_model
from fedhlcr.posterior.responses import Moments

# Agents shown on a terminal.
MOST_AGENTS = 50


def predict_quietly(model: Any, events: Events, level: float | None) -> Moments:
    """As `predict_events`, without progress."""
    ids = events.agents, events.entities
    return predict_in_chunks(model, events.table, *ids, level, lambda _: None, exposure=events.exposure)


def predict_events(model: Any, events: Events, level: float | None, shell: Shell) -> Moments:
    """Predict events. With a level, the two quantiles are the ends of intervals of this probability."""
    with shell.bar(len(events), "predicting", ROW) as bar:
        done = partial(bar.advance, {})
        return predict_in_chunks(
            model, events.table, events.agents, events.entities, level, done, exposure=events.exposure
        )


def score(model: Any, events: Events, *, shell: Shell, level: float = 0.9) -> Scores:
    return EventScores(model, [(events, predict_events(model, events, level, shell))], level).scores


class EventScores:
    """The scores of a model on events that may come in batches.

    Parameters
    ----------
    parts : events and their predictions, whose quantiles are the ends of intervals
    level : probability of the intervals
    by_agent : whether to score each agent too

    Attributes
    ----------
    scores : of all events
    y, probability : (events,) of classes, for their calibration; None for others
    by_agent : name and scores of each agent, if they were asked for
    """

    def __init__(
        self, model: Any, parts: Iterable[tuple[Events, Moments]], level: float, *, by_agent: bool = False
    ) -> None:
        running = running_scores(model.family, level)
        groups = AgentGroups(model.posterior_.memory.entities.index)
        for events, predicted in parts:
            own = groups.of_rows(events.agents, len(events)) if by_agent else np.zeros(len(events), dtype=np.int64)
            running.add(
                check_model(model).numeric_target(events.y, len(events)), predicted.mean, predicted.quantiles, own
            )
        self.scores = running.overall()
        self.calibrated = running.rows() if isinstance(running, ClassRows) else None
        self.by_agent: list[tuple[Any, Scores]] = []
        if by_agent:
            self.by_agent = [(name, running.of_group(code)) for name, code in groups.in_order()]


def compared(what: str, family: Family, by_name: Mapping[str, Scores]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return a table of scores, a row for each name."""
    names = SHOWN[family.name].few
    figures = next(iter(by_name.values())).figures
    inside = f"in {100 * figures['level']:g} % intervals" if "level" in figures else METRICS["coverage"].heading
    headings = (inside if name == "coverage" else METRICS[name].heading for name in names)
    return (what, *headings), score_table(names, by_name)


def tell_scores(shell: Shell, family: Family, scores: Scores, what: str) -> dict[str, Any]:
    lines = [(METRICS[name].meaning, scores.text(name)) for name in SHOWN[family.name].own]
    if "level" in scores.figures:
        inside = f"inside {100 * scores['level']:g} % intervals"
        lines = [(inside if meaning == METRICS["coverage"].meaning else meaning, text) for meaning, text in lines]
    shell.table((plural(scores.n_events, what), ""), lines)
    return scores.to_dict()


def tell_calibration(shell: Shell, y: FloatArray, probability: FloatArray) -> list[dict[str, Any]]:
    """Compare predicted probabilities with observed shares; y is 1 for the second class."""
    bins = calibration_bins(y, probability)
    shell.say()
    header = ("calibration: predicted", "observed", f"{100 * BIN_LEVEL:g} % interval", "events")
    rows = [
        (f"{p.predicted:.3f}", f"{p.observed:.3f}", f"{p.lower:.3f} to {p.upper:.3f}", f"{p.n_events:,}") for p in bins
    ]
    shell.table(header, rows)
    return [part._asdict() for part in bins]


def tell_rivals(shell: Shell, found: Evaluation) -> list[dict[str, Any]]:
    """Compare with simpler models, fitted to the events that the model was fitted to; nothing for a public model."""
    if found.densities is None:
        return []
    names = SHOWN[found.family.name].compared
    shell.say()
    header = ("compared with simpler models", *(METRICS[name].heading for name in names))
    shell.table(header, score_table(names, found.scores))
    fields = [name for name in found.model.figures if name in (*names, "rmse")]
    return [{"model": name, **{field: own[field] for field in fields}} for name, own in found.scores.items()]


def tell_agents(shell: Shell, family: Family, by: list[tuple[Any, Scores]]) -> None:
    """The scores of each agent, the worst first."""
    shown = SHOWN[family.name]
    shell.say()
    worst = sorted(by, key=lambda pair: -pair[1][shown.worst_first])
    rows = [
        (str(agent), f"{scores.n_events:,}", *(scores.text(name) for name in shown.by_agent))
        for agent, scores in worst[:MOST_AGENTS]
    ]
    shell.table(("agent, worst first", "events", *(METRICS[name].heading for name in shown.by_agent)), rows)
    if len(by) > MOST_AGENTS:
        shell.say(f"… and {plural(len(by) - MOST_AGENTS, 'more agent')}; --out FILE or --json shows all.")
