"""Are predicted probabilities, or mean counts, what is observed?"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import EVENT
from fedhlcr.analysis.links import link_of
from fedhlcr.analysis.scores import N_BINS, calibration_bins
from fedhlcr.estimators.base import HierarchicalPredictor, check_model
from fedhlcr.exceptions import ArgumentError
from fedhlcr.plot.canvas import axes_or_new, legend
from fedhlcr.plot.palette import BLUE, GREY

# Bars of the histogram, and the share of the height that the tallest takes.
N_BARS = 20
BAR_HEIGHT = 0.15
# Half the width of a 90 % interval of a normal law, in standard deviations.
HALF_WIDTH = 1.645


def reliability(
    model: HierarchicalPredictor,
    X: Any,
    y: Any = None,
    agent: Any = None,
    entity: Any = None,
    ax: Axes | None = None,
    *,
    exposure: Any = None,
) -> Axes:
    """Observed against predicted probabilities or mean counts, in groups of equally many events.

    On the diagonal they are equal. Of a classifier, a point is the share of the second class among a tenth of the
    events, with its 90 % interval (Jeffreys); of a count model, it is their mean count, with a 90 % interval from its
    standard error. Intervals take events as independent. Grey bars at the bottom are a histogram of the predictions.

    Parameters
    ----------
    model : classifier or count model, fitted
    X, y, agent, entity : events, as in `score`; best some that were not fitted
    ax : Axes to draw on; None makes a new figure
    exposure : as in `score`, for counts

    Returns
    -------
    ax : Axes
    """
    check_model(model)
    if (link := link_of(model)) is None:
        raise ArgumentError(
            "`model` predicts real numbers; use `plot.predicted_against_observed` and `plot.calibration` for it."
        )
    X, y, agent, entity, _, exposure = model.events_of(X, y, agent, entity, exposure=exposure)
    predicted = model.predict_moments(X, agent, entity, exposure=exposure).mean
    observed = model.numeric_target(y, len(predicted))
    if link.family.has_classes:
        groups = [(b.predicted, b.observed, b.lower, b.upper) for b in calibration_bins(observed, predicted)]
        longest = 1.0
    else:
        groups = _count_groups(observed, predicted)
        longest = 1.05 * max(max(mean, upper) for mean, _, _, upper in groups) or 1.0
    x, middle, lower, upper = np.array(groups).T
    ax = axes_or_new(ax)
    heights, edges = np.histogram(predicted, bins=N_BARS, range=(0.0, longest))
    bars = BAR_HEIGHT * longest * heights / max(heights.max(), 1)
    ax.bar(edges[:-1], bars, width=0.9 * np.diff(edges), align="edge", color=GREY, alpha=0.3, label="predictions")
    ax.plot([0.0, longest], [0.0, longest], color="black", linewidth=0.8, zorder=2)
    ax.vlines(x, lower, upper, color=BLUE, linewidth=1.2, zorder=3)
    ax.plot(x, middle, "o", color=BLUE, markersize=3.5, label="observed, 90 %", zorder=4)
    ax.set_xlim(0.0, longest)
    ax.set_ylim(0.0, longest)
    ax.set_aspect("equal")
    ax.set_xlabel("predicted probability" if link.family.has_classes else "predicted mean count")
    ax.set_ylabel("observed share" if link.family.has_classes else "observed mean count")
    ax.set_title(EVENT.count(len(observed)), fontsize=ax.xaxis.label.get_fontsize())
    legend(ax, loc="upper left")
    return ax


def _count_groups(observed: FloatArray, predicted: FloatArray) -> list[tuple[float, float, float, float]]:
    """Mean prediction, mean count and the ends of its interval, in groups of equally many events."""
    parts = np.array_split(np.argsort(predicted, kind="stable"), min(N_BINS, len(predicted)))
    groups = []
    for rows in parts:
        mean = float(observed[rows].mean())
        half = HALF_WIDTH * float(observed[rows].std(ddof=1) / np.sqrt(len(rows))) if len(rows) > 1 else 0.0
        groups.append((float(predicted[rows].mean()), mean, max(mean - half, 0.0), mean + half))
    return groups
