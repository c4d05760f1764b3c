"""Scores of different numbers of clusters."""

from __future__ import annotations

import numpy as np

from fedhlcr.analysis.comparison import Comparison
from fedhlcr.exceptions import ArgumentError, ArgumentTypeError
from fedhlcr.figures.figure import Mark, Panel, Scale

LABELS = {"log_density": "held-out log density\n(nats per event)", "evidence": "log evidence (nats)"}


def count_panel(comparison: Comparison, quantity: str) -> Panel:
    """Held-out log density, or evidence, against the number of clusters."""
    if not isinstance(comparison, Comparison):
        raise ArgumentTypeError(
            f"`comparison` must be a Comparison, but is of type {type(comparison).__name__}; "
            "`compare_cluster_counts` returns one."
        )
    if quantity not in LABELS:
        raise ArgumentError(f"`quantity` must be one of {', '.join(LABELS)}, but is {quantity!r}.")
    by_density = quantity == "log_density"
    best = comparison.best if by_density else comparison.most_evident
    if best is None:
        raise ArgumentError(
            "`quantity` is 'evidence', but the comparison has none; compare estimators with effects='none' and "
            "noise='common', or plot 'log_density'."
        )
    places = {row.n_clusters: (row.size[0], getattr(row, quantity)) for row in comparison.candidates}
    counts, values = np.array([places[row.n_clusters] for row in comparison.rows], dtype=float).T
    marks = [Mark("rule", "best", y=np.array([max(value for _, value in places.values())]))]
    if by_density:
        for results, role in ((comparison.rows, "error"), ((comparison.auto,), "error auto")):
            x, y = np.array([places[row.n_clusters] for row in results], dtype=float).T
            errors = np.nan_to_num([row.difference_se for row in results])
            marks.append(Mark("levels", role, x, low=y - errors, high=y + errors))
    marks += [Mark("line", "curve", counts, values), *_auto(comparison, quantity)]
    marks.append(_ring(places[best], "ring", f"{'best' if by_density else 'by evidence'}: {best}"))
    if by_density:
        marks.append(_ring(places[comparison.suggested], "ring suggested", f"suggested: {comparison.suggested}"))
    ticks = tuple((float(count), f"{count:,.0f}") for count in counts)
    return Panel(
        Scale(label="clusters", ticks=ticks, kind="log"), Scale(label=LABELS[quantity]), tuple(marks), legend=""
    )


def _ring(place: tuple[float, float], role: str, name: str) -> Mark:
    return Mark("dots", role, np.array(place[:1]), np.array(place[1:]), name=name)


def _auto(comparison: Comparison, quantity: str) -> list[Mark]:
    """The range of the numbers that were found, and their mean."""
    found = np.array(comparison.auto.occupied, dtype=float)
    value = getattr(comparison.auto, quantity)
    low, high = int(found.min()), int(found.max())
    name = f"auto: {low}" if low == high else f"auto: {low}–{high}"
    return [
        Mark("line", "auto", np.array([float(low), float(high)]), np.array([value, value])),
        Mark("dots", "auto", np.array([found.mean()]), np.array([value]), name=name),
    ]
