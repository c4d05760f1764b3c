"""How well probabilities and counts are predicted, compared with one probability, or one rate, for all events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.special import xlogy
from fedhlcr._support.threads import single_threaded_blas
from fedhlcr._support.wording import EVENT, fine_percent, number, percent, three_decimals
from fedhlcr.analysis.class_scores import (
    BIN_LEVEL,
    SMALLEST_PROBABILITY,
    CalibrationBin,
    ClassScores,
    calibration_bins,
)
from fedhlcr.analysis.count_scores import SMALLEST_MEAN, CountScores
from fedhlcr.analysis.evaluation import was_fitted
from fedhlcr.analysis.response_rivals import ONE_RATE, predict_means_by_rivals
from fedhlcr.analysis.verdict import FitComparison, compare_densities
from fedhlcr.data.hierarchy import UNKNOWN
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.figures.fit import cloud_panel, reliability_panel
from fedhlcr.report.scores import LEVEL, HeldOut, entity_groups


@dataclass(frozen=True)
class LinkScores:
    """How well a classifier or a count model predicts the given events.

    Attributes
    ----------
    model, constant : scores of the model, and of the same prediction for all events: that of the fitted ones; None if
        the model holds no events
    n_new_entities, n_new_agents : numbers of events of new entities of known agents, and of new agents
    was_fitted : whether these are the events the model was fitted with
    observed, predicted : (n_events,) outcomes, and probabilities or mean counts
    rivals : names and scores of simpler models, fitted to the events that the model holds; empty if it holds none
    comparison : the model against these, event by event: log probabilities, or half the Poisson deviances
    """

    model: ClassScores | CountScores
    constant: ClassScores | CountScores | None
    n_new_entities: int
    n_new_agents: int
    was_fitted: bool
    observed: FloatArray
    predicted: FloatArray
    rivals: tuple[tuple[str, ClassScores | CountScores], ...] = ()
    comparison: FitComparison | None = None

    @property
    def n_events(self) -> int:
        return len(self.observed)

    @property
    def bins(self) -> list[CalibrationBin]:
        """The table of calibration, of a classifier."""
        return calibration_bins(self.observed, self.predicted)


@single_threaded_blas
def score_link(model: HierarchicalPredictor, data: HeldOut, base: float | None) -> LinkScores:
    """Compare a model's probabilities or counts with the outcomes.

    `base` is the share of the second class, or the rate, among the fitted events.
    """
    events = model.read_events(data.X, data.agent, data.entity)
    n_events = len(events.matrix)
    observed = model.numeric_target(data.y, n_events)
    predicted = model.predict_moments(data.X, data.agent, data.entity, exposure=data.exposure).mean
    agents, entities = (ids[events.profiles.of_row] for ids in (events.profiles.agents, events.profiles.entities))
    exposure = np.ones(n_events) if data.exposure is None else np.asarray(data.exposure, dtype=np.float64)
    exposure = np.array(np.broadcast_to(exposure, n_events))
    binary = hasattr(model, "classes_")
    ends = None if binary else model.interval_of(data.X, data.agent, data.entity, LEVEL, data.exposure)

    def scores_of(mean: FloatArray) -> ClassScores | CountScores:
        return ClassScores.of(observed, mean) if ends is None else CountScores.of(observed, mean, *ends, LEVEL)

    constant = None if base is None else scores_of(np.full(n_events, base) if binary else base * exposure)
    rivals = [
        rival
        for rival in predict_means_by_rivals(model.posterior_, events.matrix, entities, exposure)
        if rival.name != ONE_RATE
    ]
    comparison = None
    if rivals:
        fits = {rival.name: _log_fit(observed, rival.mean, binary=binary) for rival in rivals}
        groups = entity_groups(entities, events.agent, events.entity)
        comparison = compare_densities(_log_fit(observed, predicted, binary=binary), fits, groups)
    return LinkScores(
        scores_of(predicted),
        constant,
        int(((entities == UNKNOWN) & (agents != UNKNOWN)).sum()),
        int((agents == UNKNOWN).sum()),
        was_fitted(model, events.features, data.y, events.agent, events.entity),
        observed,
        predicted,
        tuple((rival.name, scores_of(rival.mean)) for rival in rivals),
        comparison,
    )


def _log_fit(observed: FloatArray, mean: FloatArray, *, binary: bool) -> FloatArray:
    """(events,) log probabilities of outcomes, or minus half the Poisson deviances of counts."""
    if binary:
        own = np.where(observed == 1.0, mean, 1.0 - mean)
        return np.asarray(np.log(np.maximum(own, SMALLEST_PROBABILITY)))
    mean = np.maximum(mean, SMALLEST_MEAN)
    return np.asarray(-(xlogy(observed, observed / mean) - observed + mean))


def goodness_in_words(scores: LinkScores) -> str:
    """The scores in a few sentences."""
    own = scores.model
    constant = scores.constant if isinstance(scores.constant, ClassScores) else None
    held_out = "the events it was fitted with" if scores.was_fitted else f"{EVENT.count(scores.n_events)} held out"
    caution = " These figures are optimistic." if scores.was_fitted else ""
    if isinstance(own, ClassScores):
        apart = (
            f"it tells the two outcomes apart in {fine_percent(own.auc)} of the pairs of events that differ (AUC)"
            if np.isfinite(own.auc)
            else "all outcomes are the same, so it cannot be seen whether it tells them apart"
        )
        same = "" if constant is None else f"; one probability for all events has {number(constant.log_loss)}"
        return (
            f"On {held_out} {apart}. Its log loss is {number(own.log_loss)}{same}. Predicted probabilities and "
            f"observed shares differ by {number(100.0 * own.calibration_error, 2)} percentage points on "
            f"average.{caution}"
        )
    inside = f"{fine_percent(own.coverage)} of these counts lie in their {percent(LEVEL)} intervals."
    if not np.isfinite(own.d2):
        return f"On {held_out} all counts are equal, so no deviance can be explained. {inside}{caution}"
    does = (
        f"explains {fine_percent(own.d2)} of the deviance of the counts"
        if own.d2 >= 0.0
        else "predicts worse than the mean of these counts does"
    )
    return f"On {held_out} it {does}. {inside}{caution}"


def score_rows(scores: LinkScores) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The table of scores: its header, and a row for the model and for one prediction for all."""
    named = [("HLCR", scores.model), ("the same for all events", scores.constant), *scores.rivals]
    if isinstance(scores.model, ClassScores):
        header: tuple[str, ...] = ("log loss", "AUC", "Brier score", "accuracy", "calibration error")
        rows = [
            (
                name,
                *map(three_decimals, (s.log_loss, s.auc, s.brier)),
                fine_percent(s.accuracy),
                three_decimals(s.calibration_error),
            )
            for name, s in named
            if isinstance(s, ClassScores)
        ]
        return header, rows
    header = ("Poisson deviance", "D², share of the deviance explained", "mean absolute error")
    counts = [
        (name, *map(three_decimals, (s.deviance, s.d2, s.mae))) for name, s in named if isinstance(s, CountScores)
    ]
    return header, counts


def score_section(scores: LinkScores) -> dict[str, Any]:
    """What the page shows of the scores."""
    header, rows = score_rows(scores)
    own = scores.model
    if isinstance(own, ClassScores):
        picture = reliability_panel(scores.observed, scores.predicted, has_classes=True)
        caption = (
            f"Observed share against predicted probability, in groups of events; lines are {percent(BIN_LEVEL)} "
            "intervals. On the diagonal they are equal. Bars below show how many events have which prediction"
        )
        note = (
            "Log loss: minus the mean log probability of what was observed, in nats; the lower, the better. AUC: the "
            "probability that an event with this outcome has a higher prediction than one without; 0.5 is chance, 1 "
            "perfect. Brier score: mean squared difference between probability and outcome. Calibration error: mean "
            "difference between predicted probability and observed share, over groups of events."
        )
        inside = ""
    else:
        picture = cloud_panel(scores.observed, scores.predicted, is_cut=True)
        caption = "Observed against predicted counts"
        note = (
            "Poisson deviance: 0 for a perfect prediction; the lower, the better. D² compares it with that of the mean "
            "of these counts."
        )
        inside = f"{fine_percent(own.coverage)} of these counts lie in their {percent(LEVEL)} intervals."
    return {
        "all": scores,
        "header": header,
        "rows": rows,
        "picture": picture,
        "caption": caption,
        "note": note,
        "inside": inside,
    }
