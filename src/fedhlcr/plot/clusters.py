"""Coefficients and weights of the clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fedhlcr.analysis.effects import coef_intervals, feature_names
from fedhlcr.analysis.links import link_of
from fedhlcr.analysis.summary import shorten
from fedhlcr.estimators.base import HierarchicalPredictor, check_model
from fedhlcr.exceptions import ArgumentError
from fedhlcr.plot.axis_drawing import label_of_target
from fedhlcr.plot.canvas import axes_or_new, check_level, keep_outer_labels, legend, panels_or_new
from fedhlcr.plot.features import chosen_clusters, chosen_features, cluster_title
from fedhlcr.plot.forest import CLUSTER_HEIGHT, Estimates, draw_feature, draw_rows, figure_size
from fedhlcr.plot.palette import GREY, PALETTE
from fedhlcr.posterior.alignment import central_interval

PER = {"spread": "standard deviation", "unit": "unit"}
SCALES = ("common", "own")
# Inches of the panel of one feature, without its clusters.
PANEL_WIDTH = 2.3
PANEL_HEIGHT = 0.75
N_COLUMNS = 3


def coefficients(
    model: HierarchicalPredictor,
    ax: Axes | Sequence[Axes] | NDArray[np.object_] | None = None,
    *,
    level: float | None = 0.9,
    features: Sequence[str | int] | None = None,
    clusters: Sequence[int] | None = None,
    per: Literal["spread", "unit"] = "spread",
    scale: Literal["common", "own"] = "common",
    target: str | None = None,
) -> Axes | NDArray[np.object_]:
    """Coefficients of the clusters, one row for each feature, with posterior intervals.

    A point is the posterior mean, as in `coef_`; the bar around it is the interval of probability `level`. On a common
    scale, features can be compared, and intervals of those with weak effects are short. With `scale="own"` every
    feature has a panel with a scale of its own, and a row for each cluster. More than four clusters are also numbered
    beside their bars.

    Parameters
    ----------
    model : a fitted estimator of any sort
    ax : Axes to draw on, or an array of them, one for each feature, if `scale` is "own"; None makes a new figure
    level : probability of the intervals; None leaves them out
    features : names or positions; None is the six with the strongest effects
    clusters : numbers of clusters; None is all, at most the sixteen largest
    per : {"spread", "unit"}, default="spread"
        Change of y per standard deviation of the feature, which compares features, or per unit, as in `coef_`. Of a
        classifier, it is the change of the log odds; of a count model, that of the log rate.
    scale : {"common", "own"}, default="common"
        One axis for all features, or one for each.
    target : name of y in labels, best with its unit; None is that of its column

    Returns
    -------
    ax : Axes, or an array of them (features,) if `scale` is "own"
    """
    check_model(model)
    check_level(level, model)
    for name, value, known in (("per", per, tuple(PER)), ("scale", scale, SCALES)):
        if value not in known:
            raise ArgumentError(f"`{name}` must be {known[0]!r} or {known[1]!r}, but is {value!r}.")
    shown = chosen_clusters(model, clusters)
    rows = chosen_features(model, features, model.feature_spreads_)
    factor = model.feature_spreads_ if per == "spread" else np.ones(model.n_features_in_)
    ends = (None, None) if level is None else coef_intervals(model, level)
    lower, upper = (None if end is None else (end * factor)[np.ix_(shown, rows)] for end in ends)
    found = Estimates((model.coef_ * factor)[np.ix_(shown, rows)], lower, upper)
    names = [shorten(feature_names(model)[f]) for f in rows]
    link = link_of(model)
    label = (
        f"change of {label_of_target(model, target) if link is None else link.linear}\nper {PER[per]} of the feature"
    )
    if scale == "own":
        return _draw_panels(ax, shown, found, names, label)
    ax = axes_or_new(ax, figure_size(len(rows), len(shown)))
    ax.axvline(0.0, color=GREY, linewidth=0.7, zorder=1)
    draw_rows(ax, shown, found, names)
    ax.set_xlabel(label)
    legend(ax, title=cluster_title(model, shown), loc="center left", bbox_to_anchor=(1.0, 0.5), borderaxespad=0.3)
    return ax


def _draw_panels(
    ax: Any, shown: Sequence[int], found: Estimates, names: Sequence[str], label: str
) -> NDArray[np.object_]:
    """A panel for each feature, with a scale of its own."""
    size = PANEL_WIDTH, PANEL_HEIGHT + CLUSTER_HEIGHT * len(shown)
    axes = panels_or_new(ax, len(names), size, N_COLUMNS, share=False)
    for f, (own, name) in enumerate(zip(axes, names, strict=True)):
        own.axvline(0.0, color=GREY, linewidth=0.7, zorder=1)
        draw_feature(own, shown, found, f)
        own.xaxis.set_major_locator(MaxNLocator(4))
        own.set_title(name, fontsize=own.xaxis.label.get_fontsize())
        own.set_ylabel("cluster")
        if ax is None:
            keep_outer_labels(own, axes)
        else:
            own.set_xlabel(label)
    if ax is None:
        size_of_text = float(axes[0].xaxis.label.get_fontsize())
        axes[0].figure.supxlabel(label.replace("\n", " "), fontsize=size_of_text)
    return axes


def cluster_weights(model: HierarchicalPredictor, ax: Axes | None = None, *, level: float | None = 0.9) -> Axes:
    """Weights of the clusters, with posterior intervals.

    A bar is the posterior mean, `cluster_weights_`; the line on it is the interval of probability `level`.

    Parameters
    ----------
    model : HLCRRegressor or FedHLCRRegressor, fitted
    ax : Axes to draw on; None makes a new figure
    level : probability of the intervals; None leaves them out

    Returns
    -------
    ax : Axes
    """
    check_model(model)
    check_level(level, model)
    number = np.arange(model.n_clusters_)
    intervals = None
    if level is not None:
        weights = model.alignment_.by_draw(np.exp(model.posterior_.draws.log_weights))
        intervals = central_interval(weights, np.ones_like(weights), level)
    ax = axes_or_new(ax)
    colors = [PALETTE[k % len(PALETTE)] for k in number]
    ax.bar(number, model.cluster_weights_, width=0.8, color=colors, alpha=0.7)
    if intervals is not None:
        ax.vlines(number, *intervals, color="black", linewidth=1.2)
    ax.set_ylim(bottom=0.0)
    ax.set_xlim(-0.6, model.n_clusters_ - 0.4)
    ax.xaxis.set_major_locator(MaxNLocator(12, integer=True, min_n_ticks=1))
    ax.grid(visible=False, axis="x")
    ax.set_xlabel("cluster")
    ax.set_ylabel("weight of the cluster")
    return ax
