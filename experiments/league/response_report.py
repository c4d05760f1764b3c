"""What the league says of yes-or-no targets and counts, beside glmer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments import markdown
from experiments.league.responses import MODELS
from experiments.league.tables import BINARY, COUNTS, REGIMES, known_figures
from experiments.study import Record

SHORT = {"full": "all events", "few": "at most four"}


@dataclass(frozen=True)
class Measure:
    """A figure of ours, its column in the file of glmer's figures, and our difference to these."""

    title: str
    figure: str
    column: str
    other: str
    apart: Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]
    form: str


LOG_LOSS = Measure("log loss", "log_loss", "logloss", "logit_dummies", np.subtract, "{:+.4f}")
AUC = Measure("AUC", "auc", "auc", "logit_dummies", np.subtract, "{:+.4f}")
DEVIANCE = Measure("Poisson deviance", "deviance", "pois_dev", "lme4", lambda a, b: 100 * (a / b - 1), "{:+.1f} %")
OTHERS = {"logit_dummies": "logistic regression with a dummy for each entity", "lme4": "lmer"}


def sections(records: Sequence[Record]) -> list[str]:
    """Parts of the report; none if no such table was measured."""
    parts = []
    if any(record.settings["table"] in BINARY for record in records):
        parts += ["### Yes or no", CLASSES_TEXT, *(_table(records, BINARY, by) for by in (LOG_LOSS, AUC))]
        parts.append(_calibration(records))
    if any(record.settings["table"] in COUNTS for record in records):
        parts += ["### Counts", COUNTS_TEXT, _table(records, COUNTS, DEVIANCE), _coverage(records)]
    return parts


CLASSES_TEXT = """\
`verbagg` (would a person react with verbal aggression) and `toenail` (is the infection severe), with `HLCRClassifier`
beside `glmer` with a logit link. Columns have glmer's figure and our difference to it, means over the splits; lower log
loss and higher AUC are better. *± s.e.* is the standard error of the default's difference."""
COUNTS_TEXT = """\
`owls` (calls of owl chicks) and `randhie` (doctor visits a year), with `HLCRCountRegressor` beside `glmer` with a
Poisson law and a log link. Columns have glmer's Poisson deviance and our difference to it in per cent; lower is
better."""


def _chosen(records: Sequence[Record], table: str, regime: str, model: str) -> list[Record]:
    wanted = {"table": table, "regime": regime, "model": model}
    return [record for record in records if wanted.items() <= record.settings.items()]


def _known(own: Sequence[Record], column: str, method: str) -> NDArray[np.float64]:
    known = known_figures(column)
    at = [(r.settings["table"], r.settings["regime"], r.settings["split"], method) for r in own]
    return np.array([known[key] for key in at])


def _table(records: Sequence[Record], tables: Sequence[str], by: Measure) -> str:
    models = [model for model in MODELS if any(_chosen(records, t, r, model) for t in tables for r in REGIMES)]
    rows = []
    for table in tables:
        for regime in REGIMES:
            own = [_chosen(records, table, regime, model) for model in models]
            if not own[0]:
                continue
            apart = [by.apart(_figures(of, by.figure), _known(of, by.column, "glmer")) for of in own]
            first, *further = (by.form.format(values.mean()) if len(values) else "–" for values in apart)
            known = (f"{_known(own[0], by.column, method).mean():.4f}" for method in ("glmer", by.other))
            clusters = "/".join(str(record.figures["n_clusters"]) for record in own[0])
            rows.append((table, SHORT[regime], *known, first, _standard_error(apart[0], by), *further, clusters))
    default, *names = (MODELS[model][0] for model in models)
    header = ("table", "training events", f"glmer, {by.title}", OTHERS[by.other], default, "± s.e.", *names)
    return markdown.table((*header, "clusters (default)"), rows)


def _figures(own: Sequence[Record], name: str) -> NDArray[np.float64]:
    return np.array([record.figures[name] for record in own])


def _standard_error(apart: NDArray[np.float64], by: Measure) -> str:
    if len(apart) < 2:
        return "–"
    return by.form.format(apart.std(ddof=1) / np.sqrt(len(apart))).removeprefix("+")


def _calibration(records: Sequence[Record]) -> str:
    """Expected calibration error of the default, over the events of all splits together."""
    told = []
    for table in BINARY:
        for regime in REGIMES:
            if own := _chosen(records, table, regime, "default"):
                predicted, observed = (_figures(own, f"{name}_ones").sum(axis=0) for name in ("predicted", "observed"))
                error = np.abs(predicted - observed).sum() / _figures(own, "n_events").sum()
                told.append(f"{table} {error:.3f} ({SHORT[regime]})")
    return (
        "Expected calibration error of the default, in ten bins of equal width, over the events of all splits: "
        f"{', '.join(told)}."
    )


def _coverage(records: Sequence[Record]) -> str:
    told = []
    for table in COUNTS:
        for regime in REGIMES:
            if own := _chosen(records, table, regime, "default"):
                share = np.average(_figures(own, "coverage"), weights=_figures(own, "n_events"))
                told.append(f"{table} {100 * share:.1f} % ({SHORT[regime]})")
    return f"90 % intervals of the default hold, over the events of all splits: {', '.join(told)}."
