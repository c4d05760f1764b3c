"""Where the model is wrong: entities that have slopes of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments import markdown
from experiments.methods import DEFAULT, FEDERATED_DEFAULT, METHODS, fit_and_score
from experiments.study import Figures, Record, Report, Settings, Study
from experiments.synthetic.data import N_FOLDS, SAME, Size, folds, own_slopes
from experiments.synthetic.measuring import select

NOISE_SCALE, N_ENTITIES, EVENTS = 0.5, 8, (5, 20)
OURS = ("hlcr", "fedhlcr", DEFAULT, FEDERATED_DEFAULT)
COMPARED = ("ridge", "ridge-entity", "ifca-entity", "lcr-entity", "mixed", *OURS)


class Law(NamedTuple):
    """How entities get their slopes: the number of clusters, and how far entities are from their cluster."""

    title: str
    clusters: int
    spread: float


LAWS = {
    "classes": Law("8 clusters", 8, 0.0),
    "alike": Law("8 clusters, entities .3 apart", 8, 0.3),
    "own": Law("one cluster, entities 1 apart", 1, 1.0),
}


def settings(full: bool) -> list[Settings]:
    return [
        {"law": law, "events": events, "method": method, "seed": seed}
        for law in LAWS
        for events in (EVENTS if full else EVENTS[:1])
        for method in COMPARED
        for seed in range(3 if full else 1)
    ]


def measure(*, law: str, events: int, method: str, seed: int) -> Figures:
    """The mean squared error over five folds."""
    table = own_slopes(Size(N_ENTITIES, events, LAWS[law].clusters), NOISE_SCALE, LAWS[law].spread, seed)
    errors = [fit_and_score(method, *fold, seed=seed)["mse"] for fold in folds(table, seed)]
    return {"mse": sum(errors) / N_FOLDS}


def report(records: Sequence[Record], gallery: markdown.Gallery) -> Report:  # noqa: ARG001
    seeds = sorted({record.settings["seed"] for record in records})
    numbers = sorted({record.settings["events"] for record in records})
    text = (
        f"{SAME}. N_* = {N_ENTITIES}, σ = {NOISE_SCALE}. An entity's coefficients are those of its cluster plus "
        f"N(0, s² I), with s given in the table as *s apart*; data and algorithm seeds {seeds[0]}–{seeds[-1]}. The "
        "table shows the mean squared error divided by σ², the best of each column in bold. All methods are at their "
        "defaults and choose the number of clusters themselves."
    )
    columns = [(law, events) for law in LAWS for events in numbers]
    rows = [
        (METHODS[method].title, *(show(records, method, law, events) for law, events in columns)) for method in COMPARED
    ]
    header = ("method", *(f"{LAWS[law].title}; N_** = {events}" for law, events in columns))
    return Report("\n\n".join([text, markdown.table(header, rows), conclude(records, columns)]))


def errors_of(records: Sequence[Record], method: str, law: str, events: int) -> NDArray[np.float64]:
    """(seeds,) over σ²"""
    chosen = select(records, method=method, law=law, events=events)
    return np.array([record.figures["mse"] for record in chosen]) / NOISE_SCALE**2


def show(records: Sequence[Record], method: str, law: str, events: int) -> str:
    text = markdown.mean_and_error(errors_of(records, method, law, events), digits=2)
    return f"**{text}**" if method == best(records, law, events) else text


def best(records: Sequence[Record], law: str, events: int) -> str:
    return min(COMPARED, key=lambda method: errors_of(records, method, law, events).mean())


def conclude(records: Sequence[Record], columns: Sequence[tuple[str, int]]) -> str:
    """Which of HLCR at its defaults and the mixed model wins, and by how much."""
    winners = []
    for law, events in columns:
        hlcr, mixed = (errors_of(records, method, law, events).mean() for method in (DEFAULT, "mixed"))
        winner, ratio = ("HLCR", mixed / hlcr) if hlcr < mixed else ("the mixed model", hlcr / mixed)
        words = f"{winner}, whose rival's error is {ratio:.2f} times as high" if ratio >= 1.005 else "both are level"
        winners.append(f"{LAWS[law].title}, N_** = {events}: {words}")
    return "The better of HLCR, at its defaults, and the mixed model: " + "; ".join(winners) + "."


MISSPECIFIED = Study("misspecified", "Where the model is wrong: own slopes of each entity", settings, measure, report)
