"""How good predictions are; best shown on events that were not fitted."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from sklearn.metrics import r2_score

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.threads import single_threaded_blas
from fedhlcr._support.wording import EVENT
from fedhlcr.analysis.links import link_of
from fedhlcr.data import inputs
from fedhlcr.estimators.base import HierarchicalPredictor, check_model
from fedhlcr.exceptions import ArgumentError
from fedhlcr.plot.axis_drawing import label_of_target
from fedhlcr.plot.canvas import MAX_POINTS, axes_or_new, color_bar, evenly, legend
from fedhlcr.plot.palette import BLUE, FEW_TO_MANY, GREY
from fedhlcr.posterior.prediction import Profiles
from fedhlcr.posterior.predictive import interval_ends

# Probabilities of the intervals.
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
# Most events to use; of more, a random sample is taken. Shares then have a standard error of 0.5 %.
MAX_EVENTS = 10_000
CELLS = 60


def predicted_against_observed(
    model: HierarchicalPredictor,
    X: Any,
    y: Any = None,
    agent: Any = None,
    entity: Any = None,
    ax: Axes | None = None,
    *,
    target: str | None = None,
) -> Axes:
    """Observed against predicted targets. For a good model, events lie evenly around the diagonal.

    Predictions are on the horizontal axis: at each prediction, the mean of the observed targets should equal it. With
    the axes swapped, even perfect predictions look too flat. More than 5,000 events are shown as counts in cells.

    Parameters
    ----------
    model : HLCRRegressor or FedHLCRRegressor, fitted
    X, y, agent, entity : events, as in `score`; best some that were not fitted
    ax : Axes to draw on; None makes a new figure
    target : name of y in labels, best with its unit; None is that of its column

    Returns
    -------
    ax : Axes
    """
    _check_real(model)
    X, y, agent, entity, *_ = model.events_of(X, y, agent, entity)
    predicted = model.predict_moments(X, agent, entity).mean
    observed = inputs.target_vector(y, len(predicted))
    ax = axes_or_new(ax)
    if len(observed) <= MAX_POINTS:
        ax.plot(predicted, observed, "o", color=BLUE, markersize=2.5, alpha=0.5, markeredgewidth=0, zorder=2)
    else:
        cells = ax.hexbin(
            predicted, observed, gridsize=CELLS, bins="log", mincnt=1, cmap=FEW_TO_MANY, linewidths=0.1, zorder=2
        )
        color_bar(ax, cells, "events")
    low = predicted.min()
    high = predicted.max()
    ax.plot([low, high], [low, high], color="black", linewidth=0.8, zorder=3)
    name = label_of_target(model, target)
    ax.set_xlabel(f"predicted {name}")
    ax.set_ylabel(f"observed {name}")
    if len(observed) > 1:
        r2 = r2_score(observed, predicted)
        ax.set_title(f"{EVENT.count(len(observed))}, R² = {r2:.3f}", fontsize=ax.xaxis.label.get_fontsize())
    return ax


def calibration(
    model: HierarchicalPredictor,
    X: Any,
    y: Any = None,
    agent: Any = None,
    entity: Any = None,
    ax: Axes | None = None,
) -> Axes:
    """Share of the targets inside the central intervals, against the probability of the intervals.

    On the diagonal the intervals are right; below it they are too narrow, above it too wide. The band is two standard
    errors wide to either side, for independent events. Of more than 10,000 events a sample of 10,000 is used.

    Parameters
    ----------
    model : HLCRRegressor or FedHLCRRegressor, fitted
    X, y, agent, entity : events, as in `score`; best some that were not fitted
    ax : Axes to draw on; None makes a new figure

    Returns
    -------
    ax : Axes
    """
    _check_real(model)
    inside, n_events = _inside(model, X, y, agent, entity)
    ax = axes_or_new(ax)
    levels = np.linspace(0.0, 1.0, 101)
    allowed = 2.0 * np.sqrt(levels * (1.0 - levels) / n_events)
    ax.fill_between(
        levels,
        np.maximum(levels - allowed, 0.0),
        np.minimum(levels + allowed, 1.0),
        color=GREY,
        alpha=0.2,
        linewidth=0,
        label="chance",
    )
    ax.plot([0.0, 1.0], [0.0, 1.0], color="black", linewidth=0.8)
    ax.plot(LEVELS, inside, "o-", color=BLUE, linewidth=1.2, markersize=3.5, label="intervals")
    ax.set_xlim(0.0, 1.0)
    ax.set_ylim(0.0, 1.0)
    ax.set_aspect("equal")
    ax.set_xlabel("probability of the interval")
    ax.set_ylabel("share of events inside")
    legend(ax, loc="upper left")
    return ax


def _check_real(model: Any) -> None:
    """Refuse anything but a fitted model of real numbers."""
    check_model(model)
    if link_of(model) is not None:
        raise ArgumentError(
            "`model` predicts classes or counts, but this plot is for real numbers; use `plot.reliability` for it."
        )


@single_threaded_blas
def _inside(model: HierarchicalPredictor, X: Any, y: Any, agent: Any, entity: Any) -> tuple[FloatArray, int]:
    """Share of the targets inside the interval of each level, and the number of events used."""
    X, y, agent, entity, *_ = model.events_of(X, y, agent, entity)
    _, matrix, profiles, _, _ = model.read_events(X, agent, entity)
    target = inputs.target_vector(y, len(matrix))
    rows = evenly(len(matrix), MAX_EVENTS)
    of_row = profiles.of_row[rows]
    profiles = Profiles.of(profiles.agents[of_row], profiles.entities[of_row])
    lower_ends, upper_ends = zip(*map(interval_ends, LEVELS), strict=True)
    ends = (*lower_ends, *upper_ends)
    lower, upper = np.split(model.posterior_.predict(matrix[rows], profiles, ends).quantiles, 2, axis=1)
    observed = target[rows, None]
    return ((lower <= observed) & (observed <= upper)).mean(axis=0), len(rows)
