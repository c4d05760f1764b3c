"""What the page shows of scores: a picture, a table, and what they mean."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedhlcr._support.wording import percent
from fedhlcr.analysis.evaluation import LEVEL, MODEL, Evaluation
from fedhlcr.analysis.scores import BIN_LEVEL, METRICS, SHOWN
from fedhlcr.analysis.simpler import ONE_RATE, RIDGE_PER_ENTITY
from fedhlcr.data.families import FamilyName
from fedhlcr.figures.fit import cloud_panel, reliability_panel
from fedhlcr.report.findings import Findings

CAPTIONS: dict[FamilyName, str] = {
    "real": "Observed against predicted values. On the line they are equal.",
    "binary": (
        f"Observed share against predicted probability, in groups of events; lines are {percent(BIN_LEVEL)} intervals. "
        "On the diagonal they are equal. Bars below show how many events have which prediction."
    ),
    "count": "Observed against predicted counts. On the line they are equal.",
}
NOTES: dict[FamilyName, str] = {
    "real": (
        "The log density is the mean over events, in nats; the higher, the better. It also rates how honest the "
        "uncertainty is."
    ),
    "binary": (
        "Log loss: minus the mean log probability of what was observed, in nats; the lower, the better. AUC: the "
        "probability that an event with this outcome has a higher prediction than one without; 0.5 is chance, 1 "
        "perfect. Brier score: mean squared difference between probability and outcome. Calibration error: mean "
        "difference between predicted probability and observed share, over groups of events."
    ),
    "count": (
        "Poisson deviance: 0 for a perfect prediction; the lower, the better. D² compares it with that of the mean "
        "of these counts."
    ),
}

# What the page shows of held-out events once it has some.
WOULD_SHOW: dict[FamilyName, str] = {
    "real": "R², the errors, and the coverage of the intervals, compared with one ridge for all, a ridge per {entity} "
    "and a mixed model",
    "binary": "log loss, AUC, Brier score and a reliability diagram",
    "count": "the deviance and the coverage of the intervals",
}


def score_section(findings: Findings, scores: Evaluation) -> dict[str, Any]:
    """What the page shows of the scores."""
    family = scores.family
    shown = SHOWN[family.name]
    # coverage and width of intervals have a place of their own
    names = shown.own if family.has_classes else shown.compared
    if family.has_classes:
        picture = reliability_panel(scores.observed, scores.predicted, has_classes=True)
    else:
        picture = cloud_panel(scores.observed, scores.predicted, is_cut=True)
    entity = findings.names.entity.one
    called = {ONE_RATE: "the same for all events"}
    rows = [
        (
            called.get(name, name).replace("entity", entity),
            [own.text(figure) for figure in names],
            _gauge(own.explained),
        )
        for name, own in scores.scores.items()
    ]
    inside = ""
    if family.has_exposure:
        inside = f"{scores.model.text('coverage')} of these counts lie in their {percent(LEVEL)} intervals."
    return {
        "all": scores,
        "header": [METRICS[name].meaning for name in names],
        # only R² is a share that is seen at a glance
        "has_gauge": names[0] == "r2",
        "rows": rows,
        "picture": picture,
        "caption": CAPTIONS[family.name],
        "note": _note(scores, entity),
        "by_agent": _by_agent(findings, scores),
        "inside": inside,
    }


def _gauge(share: float) -> float:
    return 100.0 * min(1.0, share) if share > 0.0 else 0.0


def _note(scores: Evaluation, entity: str) -> str:
    note = NOTES[scores.family.name]
    if scores.family.has_link:
        same = "“The same for all events” predicts what was observed on average among the fitted events."
        return note if scores.constant is None else f"{note} {same}"
    if not scores.rivals:
        return "The model is public: it holds no data to fit simpler models to, so there is no comparison."
    return (
        "The simpler models are fitted to the same events as HLCR. The penalties of the ridges maximise the evidence. "
        f"A ridge per {entity} uses the events of that {entity} only; for a new {entity} the one ridge predicts. The "
        "mixed model is like lme4’s: a common regression, and random deviations of intercept and slopes for each "
        f"{entity}. {note}"
    )


def _by_agent(findings: Findings, scores: Evaluation) -> str:
    """For how many agents the model beats the ridges; empty for fitted events, where this means nothing."""
    ridge = scores.agent_errors.get(RIDGE_PER_ENTITY)
    if ridge is None or len(scores.agent_events) < 2 or scores.was_fitted:
        return ""
    seen = scores.agent_events > 0
    better = int(np.sum(scores.agent_errors[MODEL][seen] < ridge[seen]))
    agent = findings.names.agent
    entity = findings.names.entity
    return f"HLCR has a smaller error than a ridge per {entity.one} for {better:,} of {agent.count(int(seen.sum()))}."
