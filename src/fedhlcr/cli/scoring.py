"""Predictions and scores of a model on events, for several commands."""

from __future__ import annotations

from functools import partial
from typing import Any

from fedhlcr._support.wording import ROW, fine_percent, number
from fedhlcr.analysis.evaluation import Scores, predict_in_chunks
from fedhlcr.analysis.rivals import Score, predict_by_rivals
from fedhlcr.cli.events import Events
from fedhlcr.cli.shell import Shell, plural
from fedhlcr.posterior.predictive import Moments, interval_ends


def predict_events(model: Any, events: Events, levels: tuple[float, ...], shell: Shell) -> Moments:
    with shell.bar(len(events), "predicting", ROW) as bar:
        done = partial(bar.advance, {})
        return predict_in_chunks(model, events.table, events.agents, events.entities, levels, done)


def score(model: Any, events: Events, *, shell: Shell, level: float = 0.9) -> Scores:
    return Scores.of(events.y, predict_events(model, events, interval_ends(level), shell), level)


def tell_scores(shell: Shell, scores: Scores, what: str) -> dict[str, Any]:
    shell.table(
        (plural(scores.n_events, what), ""),
        [
            ("R², share of variance explained", number(scores.r2, 4)),
            ("MSE, mean squared error", number(scores.mse, 4)),
            ("MAE, mean absolute error", number(scores.mae, 4)),
            (f"inside {100 * scores.level:g} % intervals", fine_percent(scores.coverage)),
            ("mean width of intervals", number(scores.width, 4)),
        ],
    )
    return scores._asdict()


def tell_rivals(shell: Shell, model: Any, events: Events, predicted: Moments) -> list[dict[str, Any]]:
    """Compare with simpler models, fitted to the events that the model was fitted to; nothing for a public model."""
    known = model.read_events(events.table, events.agents, events.entities)
    posterior, entities = model.posterior_, known.profiles.entities[known.profiles.of_row]
    with shell.stage("fitting simpler models"):
        rivals = predict_by_rivals(posterior, known.matrix, events.y, entities)
    if not rivals:
        return []
    own = posterior.log_density(known.matrix, events.y, known.profiles)
    scores = [
        Score.of("HLCR", events.y, predicted.mean, own),
        *(Score.of(rival.name, events.y, rival.mean, rival.log_density) for rival in rivals),
    ]
    shell.say()
    shell.table(
        ("compared with simpler models", "R²", "RMSE", "log density"),
        [(s.name, number(s.r2, 4), number(s.rmse, 4), number(s.log_density, 4)) for s in scores],
    )
    return [{"model": s.name, "r2": s.r2, "rmse": s.rmse, "log_density": s.log_density} for s in scores]
