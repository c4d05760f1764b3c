"""Has the sampler or the federation converged?"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fedhlcr.estimators.base import HierarchicalPredictor, check_model
from fedhlcr.exceptions import ArgumentError
from fedhlcr.plot.axis_drawing import label_of_target
from fedhlcr.plot.canvas import axes_or_new, legend
from fedhlcr.plot.palette import GREY, PALETTE

# Share of a run at its start that may be out of view, because the first log joints are far below all others.
START = 0.05


def traces(
    model: HierarchicalPredictor, ax: Axes | None = None, *, quantity: str = "log_joint", target: str | None = None
) -> Axes:
    """One quantity over the sweeps of each chain, or over the rounds of a federation.

    Draws are kept where the background is grey. There the lines should be level, and those of several chains should
    overlap.

    Parameters
    ----------
    model : HLCRRegressor or FedHLCRRegressor, fitted
    ax : Axes to draw on; None makes a new figure
    quantity : str, default="log_joint"
        A column of `trace_` or `history_`: log_joint, a hyperparameter such as noise_scale, n_clusters,
        labels_changed; for a federation also validation_mse. The first log joints may be out of view.
    target : name of y in labels, best with its unit; None is that of its column

    Returns
    -------
    ax : Axes
    """
    check_model(model)
    chains, step, first_kept = _records(model)
    labels = _labels(model, label_of_target(model, target))
    known = [name for name in labels if name in (chains[0].dtype.names or ())]
    if quantity not in known:
        raise ArgumentError(f"`quantity` must be one of {', '.join(known)}, but is {quantity!r}.")
    lines = [(chain[step], chain[quantity].astype(float)) for chain in chains]
    if not any(np.isfinite(values).any() for _, values in lines):
        raise ArgumentError(f"there is no {quantity} to show; for validation_mse pass `validation` to fit.")
    ax = axes_or_new(ax)
    for number, (steps, values) in enumerate(lines):
        shown = np.isfinite(values)
        color = PALETTE[number % len(PALETTE)]
        label = f"chain {number + 1}" if len(lines) > 1 else None
        ax.plot(steps[shown], values[shown], color=color, linewidth=1.0, label=label)
    last = max(int(steps[-1]) for steps, _ in lines)
    if first_kept < last:
        ax.axvspan(first_kept, last, color=GREY, alpha=0.12, linewidth=0, label="kept", zorder=0)
    if quantity == "log_joint":
        _leave_out_the_start(ax, [values for _, values in lines])
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.set_xlabel(step)
    ax.set_ylabel(labels[quantity])
    if len(lines) <= len(PALETTE) and ax.get_legend_handles_labels()[0]:
        legend(ax)
    return ax


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
    if hasattr(model, "history_"):
        # the survey, round 0, samples nothing
        rounds = model.history_[model.history_["round"] > 0]
        return [rounds], "round", int(rounds["round"][rounds["kept"]].min())
    if not hasattr(model, "trace_"):
        raise ArgumentError(
            "the model has no trace: the server of a federation on Flower wrote it, and keeps the rounds in "
            "EXPERIMENT.history.json; read that file, or plot an estimator that was fitted here."
        )
    trace = model.trace_
    kept = trace["sweep"][trace["kept"]]
    chains = [trace[trace["chain"] == chain] for chain in np.unique(trace["chain"])]
    return chains, "sweep", int(kept.min()) if len(kept) else int(trace["sweep"].max())


def _leave_out_the_start(ax: Axes, lines: list[np.ndarray]) -> None:
    later = np.concatenate([values[int(START * len(values)) :] for values in lines])
    low = np.nanmin(later)
    high = max(np.nanmax(values) for values in lines)
    if high > low:
        ax.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
