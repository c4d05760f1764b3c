"""Coefficients and weights of the clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from fedhlcr._support.arrays import FloatArray
from fedhlcr.analysis.effects import coef_intervals, feature_names
from fedhlcr.analysis.links import link_of
from fedhlcr.analysis.summary import MAX_FEATURES, shorten
from fedhlcr.estimators.base import HierarchicalPredictor, check_model
from fedhlcr.exceptions import ArgumentError
from fedhlcr.plot.canvas import (
    BLUE,
    GREY,
    PALETTE,
    axes_or_new,
    check_level,
    legend,
)
from fedhlcr.posterior.alignment import central_interval

PER = {"spread": "standard deviation", "unit": "unit"}


def coefficients(
    model: HierarchicalPredictor,
    ax: Axes | None = None,
    *,
    level: float | None = 0.9,
    features: Sequence[str | int] | None = None,
    clusters: Sequence[int] | None = None,
    per: Literal["spread", "unit"] = "spread",
    target: str = "y",
) -> Axes:
    """Coefficients of the clusters, one row for each feature, with posterior intervals.

    A point is the posterior mean, as in `coef_`; the line through it is the interval of probability `level`.

    Parameters
    ----------
    model : HLCRRegressor or FedHLCRRegressor, fitted
    ax : Axes to draw on; None makes a new figure
    level : probability of the intervals; None leaves them out
    features : names or positions; None is the six with the strongest effects
    clusters : numbers of clusters, at most seven; None is the seven largest
    per : {"spread", "unit"}, default="spread"
        Change of y per standard deviation of the feature, which compares features, or per unit, as in `coef_`. Of a
        classifier, it is the change of the log odds; of a count model, that of the log rate.
    target : name of y in labels, best with its unit

    Returns
    -------
    ax : Axes
    """
    check_model(model)
    check_level(level, model)
    if per not in PER:
        raise ArgumentError(f"`per` must be 'spread' or 'unit', but is {per!r}.")
    spreads = model.feature_spreads_
    shown, rows = chosen_clusters(model, clusters), chosen_features(model, features, spreads)
    factor = spreads if per == "spread" else np.ones(len(spreads))
    intervals = None if level is None else coef_intervals(model, level)
    ax = axes_or_new(ax)
    ax.axvline(0.0, color=GREY, linewidth=0.7, zorder=1)
    # the clusters of one feature are stacked within 0.8 of its row
    shifts = 0.8 * ((np.arange(len(shown)) + 0.5) / len(shown) - 0.5)
    for number, (cluster, shift) in enumerate(zip(shown, shifts, strict=True)):
        height, color = np.arange(len(rows)) + shift, PALETTE[number]
        if intervals is not None:
            lower, upper = ((end[cluster] * factor)[rows] for end in intervals)
            ax.hlines(height, lower, upper, color=color, linewidth=1.2)
        means = (model.coef_[cluster] * factor)[rows]
        ax.plot(means, height, "o", color=color, markersize=3.2, label=str(cluster))
    names = feature_names(model)
    ax.set_yticks(np.arange(len(rows)), [shorten(names[f]) for f in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.grid(visible=False, axis="y")
    link = link_of(model)
    ax.set_xlabel(f"change of {target if link is None else link.linear}\nper {PER[per]} of the feature")
    title = "cluster" if len(shown) == model.n_clusters_ else f"cluster\n({len(shown)} of {model.n_clusters_})"
    legend(ax, title=title, loc="center left", bbox_to_anchor=(1.0, 0.5), borderaxespad=0.3)
    return ax


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
    ax.bar(number, model.cluster_weights_, width=0.8, color=BLUE, alpha=0.6)
    if intervals is not None:
        ax.vlines(number, *intervals, color="black", linewidth=1.2)
    ax.set_ylim(bottom=0.0)
    ax.set_xlim(-0.6, model.n_clusters_ - 0.4)
    ax.xaxis.set_major_locator(MaxNLocator(12, integer=True, min_n_ticks=1))
    ax.grid(visible=False, axis="x")
    ax.set_xlabel("cluster")
    ax.set_ylabel("weight of the cluster")
    return ax


def chosen_clusters(model: HierarchicalPredictor, clusters: Sequence[int] | None) -> list[int]:
    """The clusters to draw: those given, or the largest."""
    if clusters is None:
        return list(range(min(model.n_clusters_, len(PALETTE))))
    chosen = list(clusters)
    if not chosen or len(chosen) > len(PALETTE) or any(k not in range(model.n_clusters_) for k in chosen):
        raise ArgumentError(
            f"`clusters` must be 1 to {len(PALETTE)} numbers from 0 to {model.n_clusters_ - 1}, but is {clusters!r}."
        )
    return chosen


def chosen_features(model: Any, features: Sequence[str | int] | None, spreads: FloatArray) -> list[int]:
    """Positions of the features to draw: those given, or those with the strongest effects."""
    if features is None:
        effects = model.coef_ * spreads
        return sorted(np.argsort(-(effects**2).sum(axis=0), kind="stable")[:MAX_FEATURES].tolist())
    names = feature_names(model)
    position = {name: f for f, name in enumerate(names)} | {f: f for f in range(len(names))}
    unknown = [feature for feature in features if feature not in position]
    if unknown or isinstance(features, str) or not len(features):
        given = f"{unknown[0]!r} is not a feature" if unknown and not isinstance(features, str) else f"is {features!r}"
        raise ArgumentError(
            f"`features` must be a list of names or positions of the {len(names)} features, but {given}."
        )
    return [position[feature] for feature in features]
