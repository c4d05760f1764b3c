"""Predictions and scores of a model on events, for several commands."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.wording import ROW, fine_percent, number, three_decimals
from fedhlcr.analysis.class_scores import BIN_LEVEL, CalibrationBin, ClassScores, calibration_bins
from fedhlcr.analysis.count_scores import CountScores, explained_deviance, poisson_deviance
from fedhlcr.analysis.evaluation import Scores, predict_in_chunks
from fedhlcr.cli.events import Events
from fedhlcr.cli.families import outcomes
from fedhlcr.cli.shell import Shell, plural
from fedhlcr.estimators.rows import EventRows
from fedhlcr.posterior.predictive import Moments

AnyScores = Scores | ClassScores | CountScores
# The score by which the worst agents come first, and the columns of a table of agents: fields by their headings.
AGENT_COLUMNS: dict[type, tuple[str, dict[str, str]]] = {
    Scores: ("mse", {"R²": "r2", "MSE": "mse", "MAE": "mae", "coverage": "coverage"}),
    ClassScores: ("log_loss", {"log loss": "log_loss", "AUC": "auc", "Brier": "brier", "accuracy": "accuracy"}),
    CountScores: ("deviance", {"deviance": "deviance", "D²": "d2", "MAE": "mae", "coverage": "coverage"}),
}
# Columns of a table that compares a few models.
FEW_COLUMNS: dict[type, dict[str, str]] = {
    Scores: {"R²": "r2", "MSE": "mse", "in 90 % intervals": "coverage"},
    ClassScores: {"log loss": "log_loss", "AUC": "auc", "Brier": "brier"},
    CountScores: {"deviance": "deviance", "D²": "d2", "in 90 % intervals": "coverage"},
}
SHARES = ("coverage", "accuracy")
# Scores whose size depends on the units of the target.
IN_UNITS = ("mse", "rmse", "mae", "width")
# Headings of the comparison with simpler models.
HEADINGS = {
    **{"r2": "R²", "mse": "MSE", "log_density": "log density"},
    **{"log_loss": "log loss", "auc": "AUC", "brier": "Brier"},
    **{"deviance": "deviance", "d2": "D²", "mae": "MAE"},
}


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


def score(model: Any, events: Events, *, shell: Shell, level: float = 0.9) -> AnyScores:
    return scores_of(model, events, predict_events(model, events, level, shell), level)


def scores_of(model: Any, events: Events, predicted: Moments, level: float, rows: Any = slice(None)) -> AnyScores:
    """Return the scores of some rows that suit the model's target."""
    return scores_of_targets(model, events.y[rows], Moments(*(part[rows] for part in predicted)), level)


def scores_of_targets(model: Any, targets: NDArray[Any], own: Moments, level: float) -> AnyScores:
    """Return the scores that suit the model's target; targets are numbers or classes."""
    y = outcomes(model, targets)
    if model.family.has_classes:
        return ClassScores.of(y, own.mean)
    if model.family.has_exposure:
        lower, upper = own.quantiles.T
        return CountScores.of(y, own.mean, lower, upper, level)
    return Scores.of(y, own, level)


def figure(scores: AnyScores, field: str) -> str:
    return _text(field, getattr(scores, field))


def _text(field: str, value: float) -> str:
    """A score as the report writes it: errors in units of the target with three digits, others with three decimals."""
    if field in SHARES:
        return fine_percent(value)
    return number(value) if field in IN_UNITS else three_decimals(value)


def compared(what: str, by_name: Mapping[str, AnyScores]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return a table of scores, a row for each name."""
    columns = FEW_COLUMNS[type(next(iter(by_name.values())))]
    rows = [(name, *(figure(scores, field) for field in columns.values())) for name, scores in by_name.items()]
    return (what, *columns), rows


def tell_scores(shell: Shell, scores: AnyScores, what: str) -> dict[str, Any]:
    shell.table((plural(scores.n_events, what), ""), _lines(scores))
    return scores._asdict()


def _lines(scores: AnyScores) -> list[tuple[str, str]]:
    match scores:
        case ClassScores():
            return [
                ("log loss", figure(scores, "log_loss")),
                ("AUC, area under the ROC curve", figure(scores, "auc")),
                ("Brier score", figure(scores, "brier")),
                ("accuracy", figure(scores, "accuracy")),
                ("expected calibration error", figure(scores, "calibration_error")),
            ]
        case CountScores():
            first = [
                ("mean Poisson deviance", figure(scores, "deviance")),
                ("D², share of deviance explained", figure(scores, "d2")),
            ]
        case _:
            first = [
                ("R², share of variance explained", figure(scores, "r2")),
                ("MSE, mean squared error", figure(scores, "mse")),
            ]
    return [
        *first,
        ("MAE, mean absolute error", figure(scores, "mae")),
        (f"inside {100 * scores.level:g} % intervals", figure(scores, "coverage")),
        ("mean width of intervals", figure(scores, "width")),
    ]


def tell_calibration(shell: Shell, y: FloatArray, probability: FloatArray) -> list[dict[str, Any]]:
    """Compare predicted probabilities with observed shares; y is 1 for the second class."""
    bins = calibration_bins(y, probability)
    shell.say()
    header = ("calibration: predicted", "observed", f"{100 * BIN_LEVEL:g} % interval", "events")
    shell.table(header, [_calibration_row(part) for part in bins])
    return [part._asdict() for part in bins]


def _calibration_row(part: CalibrationBin) -> tuple[str, ...]:
    interval = f"{part.lower:.3f} to {part.upper:.3f}"
    return f"{part.predicted:.3f}", f"{part.observed:.3f}", interval, f"{part.n_events:,}"


def tell_rivals(shell: Shell, model: Any, events: Events, predicted: Moments) -> list[dict[str, Any]]:
    """Compare with simpler models, fitted to the events that the model was fitted to; nothing for a public model."""
    known = model.read_events(events.table, events.agents, events.entities)
    entities = known.profiles.entities[known.profiles.of_row]
    with shell.stage("fitting simpler models"):
        if model.family.has_link:
            rows = _compared_means(model, events, known.matrix, entities, predicted)
        else:
            rows = _compared_densities(model, events, known, entities, predicted)
    if not rows:
        return []
    fields = [field for field in next(iter(rows.values())) if field in HEADINGS]
    shell.say()
    shell.table(
        ("compared with simpler models", *(HEADINGS[field] for field in fields)),
        [(name, *(_text(field, figures[field]) for field in fields)) for name, figures in rows.items()],
    )
    return [{"model": name, **figures} for name, figures in rows.items()]


def _compared_densities(
    model: Any, events: Events, known: EventRows, entities: IndexArray, predicted: Moments
) -> dict[str, dict[str, float]]:
    """Scores of the model and of simpler ones for real targets, by name; empty if there are none."""
    from fedhlcr.analysis.rivals import Score, predict_by_rivals

    posterior = model.posterior_
    rivals = predict_by_rivals(posterior, known.matrix, events.y, entities)
    if not rivals:
        return {}
    own = posterior.log_density(known.matrix, events.y, known.profiles)
    scores = [
        Score.of("HLCR", events.y, predicted.mean, own),
        *(Score.of(rival.name, events.y, rival.mean, rival.log_density) for rival in rivals),
    ]
    return {s.name: {name: getattr(s, name) for name in ("r2", "mse", "rmse", "mae", "log_density")} for s in scores}


def _compared_means(
    model: Any, events: Events, matrix: FloatArray, entities: IndexArray, predicted: Moments
) -> dict[str, dict[str, float]]:
    """Scores of the model and of simpler ones for classes and counts, by name; empty if there are none."""
    # imported here, because scikit-learn takes more than a second to import
    from fedhlcr.analysis.response_rivals import predict_means_by_rivals

    rivals = predict_means_by_rivals(model.posterior_, matrix, entities, events.exposure)
    if not rivals:
        return {}
    y = outcomes(model, events.y)

    def figures(mean: FloatArray) -> dict[str, float]:
        if model.family.has_classes:
            scores = ClassScores.of(y, mean)
            return {"log_loss": scores.log_loss, "auc": scores.auc, "brier": scores.brier}
        deviance = poisson_deviance(y, mean)
        return {"deviance": deviance, "d2": explained_deviance(y, deviance), "mae": float(np.abs(y - mean).mean())}

    return {"HLCR": figures(predicted.mean), **{rival.name: figures(rival.mean) for rival in rivals}}
