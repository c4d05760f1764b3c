"""A run: one quantity over the sweeps of each chain, or over the rounds of a federation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import number
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.exceptions import ArgumentError
from fedhlcr.figures.choices import label_of_target
from fedhlcr.figures.figure import Mark, Panel, Scale, ends_around

# Share of a run at its start that may be out of view, because the first values are far from all others.
START = 0.05
# Lines with a look of their own.
N_SERIES = 4
COUNTS = ("n_clusters", "labels_changed")


def trace_panel(model: HierarchicalPredictor, quantity: str, target: str | None = None, title: str = "") -> Panel:
    """One quantity over a run, with the part whose draws are kept."""
    chains, step, first_kept = _records(model)
    labels = _labels(model, label_of_target(model, target))
    known = [name for name in labels if name in (chains[0].dtype.names or ())]
    if quantity not in known:
        raise ArgumentError(f"`quantity` must be one of {', '.join(known)}, but is {quantity!r}.")
    lines = [
        (f"chain {n + 1}" if len(chains) > 1 else "", chain[step].astype(float), chain[quantity].astype(float))
        for n, chain in enumerate(chains)
    ]
    if not any(np.isfinite(values).any() for _, _, values in lines):
        raise ArgumentError(f"there is no {quantity} to show; for validation_mse pass `validation` to fit.")
    return run_panel(title, lines, step, labels[quantity], first_kept, is_count=quantity in COUNTS)


def run_panel(
    title: str,
    lines: Sequence[tuple[str, FloatArray, FloatArray]],
    step: str,
    label: str = "",
    first_kept: float | None = None,
    *,
    is_count: bool = False,
) -> Panel:
    """Lines (name, steps, values) over a run; a count starts at zero, and other quantities may start out of view."""
    last = max(float(steps[-1]) for _, steps, _ in lines)
    marks = []
    if first_kept is not None and first_kept < last:
        marks.append(Mark("span", "kept", np.array([first_kept, last]), name="kept"))
    for n, (name, steps, values) in enumerate(lines):
        seen = np.isfinite(values)
        marks.append(Mark("line", f"series series{n % N_SERIES}", steps[seen], values[seen], name=name))
    low, high = ends_around([values[0 if is_count else int(START * len(values)) :] for _, _, values in lines], 0.05)
    words = title or label
    told = "; ".join(f"{name} {_ends(values)}".strip() for name, _, values in lines)
    first = min(float(steps[0]) for _, steps, _ in lines)
    return Panel(
        Scale(first, max(last, first + 1.0), step, kind="whole"),
        Scale(0.0 if is_count else low, high, label),
        tuple(marks),
        title,
        f"{words}, {step}s {number(first)} to {number(last)}: {told}.",
        legend="",
    )


def _ends(values: FloatArray) -> str:
    """The first and the last value of a line."""
    known = values[np.isfinite(values)]
    if not len(known):
        return "not known"
    first = number(float(known[0]))
    last = number(float(known[-1]))
    return f"from {first} to {last}" if first != last else f"{first} at both ends"


def _labels(model: HierarchicalPredictor, target: str) -> dict[str, str]:
    """Axis labels of the columns of a trace or a history."""
    shared = model.posterior_.likelihood.globals_type.traced_quantities()
    return {
        "log_joint": "log joint density",
        **{q.name: f"{q.words} (units of {target})" if q.in_target_units else q.words for q in shared},
        "n_clusters": "clusters in use",
        "labels_changed": "labels changed",
        "validation_mse": f"validation error (units of {target}, squared)",
    }


def _records(model: Any) -> tuple[list[NDArray[np.void]], str, int]:
    """Records of each chain, the name of their step, and the first step with a kept draw."""
    if getattr(model, "history_", None) is not None:
        # the survey, round 0, samples nothing
        rounds = model.history_[model.history_["round"] > 0]
        return [rounds], "round", int(rounds["round"][rounds["kept"]].min())
    if getattr(model, "trace_", None) is None:
        raise ArgumentError(
            "the model has no trace: the server of a federation on Flower wrote it, and keeps the rounds in "
            "EXPERIMENT.history.json; read that file, or plot an estimator that was fitted here."
        )
    trace = model.trace_
    kept = trace["sweep"][trace["kept"]]
    chains = [trace[trace["chain"] == chain] for chain in np.unique(trace["chain"])]
    return chains, "sweep", int(kept.min()) if len(kept) else int(trace["sweep"].max())
