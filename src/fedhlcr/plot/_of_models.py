"""Plots of fitted models alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fedhlcr._support.wording import AGENT
from fedhlcr.analysis.comparison import Comparison
from fedhlcr.analysis.effects import step_sizes
from fedhlcr.analysis.summary import shorten
from fedhlcr.data import inputs
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.exceptions import ArgumentError
from fedhlcr.figures.agents import by_main_cluster, certainty_panel, weight_panel
from fedhlcr.figures.choices import check_agents, check_level, chosen_clusters, chosen_features
from fedhlcr.figures.counts import count_panel
from fedhlcr.figures.estimates import PER, coef_panels, ratio_panel
from fedhlcr.figures.lines import curve_axes, curve_panel
from fedhlcr.figures.palette import GREY, cluster_style
from fedhlcr.figures.runs import trace_panel
from fedhlcr.plot._drawing import (
    FIGURE_SIZE,
    NONE_TO_ALL,
    axes_or_new,
    color_bar,
    draw,
    draw_panels,
    panels_or_new,
)
from fedhlcr.posterior.alignment import mean_compositions
from fedhlcr.posterior.fitted_model import check_model

__all__ = [
    "agent_map",
    "cluster_counts",
    "cluster_weights",
    "coefficients",
    "curves",
    "label_certainty",
    "ratios",
    "traces",
]

SCALES = ("common", "own")
# Inches of a panel of curves, and panels in a row.
CURVE_SIZE = (2.4, 2.1)
N_COLUMNS = 3
# Inches between two clusters of a row of estimates, between two rows, and below all of them.
CLUSTER_HEIGHT = 0.1
ROW_GAP = 0.08
BELOW = 0.55
# Inches of the panel of one feature, without its clusters.
PANEL_WIDTH = 2.3
PANEL_HEIGHT = 0.75
# With more agents, their names are left out.
MAX_NAMED = 25
BESIDE = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5), "borderaxespad": 0.3}


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
    model = check_model(model)
    check_level(level, model)
    for name, value, known in (("per", per, tuple(PER)), ("scale", scale, SCALES)):
        if value not in known:
            raise ArgumentError(f"`{name}` must be {known[0]!r} or {known[1]!r}, but is {value!r}.")
    shown = chosen_clusters(model, clusters)
    rows = chosen_features(model, features, model.feature_spreads_)
    together = scale == "common"
    panels = coef_panels(model, shown, rows, level=level, per=per, target=target, together=together)
    if together:
        return draw(panels[0], axes_or_new(ax, _rows_size(len(rows), len(shown))), **BESIDE)
    size = PANEL_WIDTH, PANEL_HEIGHT + CLUSTER_HEIGHT * len(shown)
    axes = panels_or_new(ax, len(rows), size, N_COLUMNS, share=False)
    draw_panels(panels, axes, only_outer=ax is None)
    for own in axes:
        own.xaxis.set_major_locator(MaxNLocator(4))
        for text, cluster in zip(own.get_yticklabels(), shown, strict=True):
            text.set(color=cluster_style(cluster).color, fontweight="bold")
    if ax is None:
        for own in axes:
            own.set_xlabel("")
        words = panels[0].x.label.replace("\n", " ")
        axes[0].figure.supxlabel(words, fontsize=float(axes[0].xaxis.label.get_fontsize()))
    return axes


def _rows_size(n_rows: int, n_clusters: int) -> tuple[float, float]:
    """Inches of a new figure with room for every row."""
    return FIGURE_SIZE[0], max(FIGURE_SIZE[1], n_rows * (CLUSTER_HEIGHT * n_clusters + ROW_GAP) + BELOW)


def ratios(
    model: HierarchicalPredictor,
    ax: Axes | None = None,
    *,
    level: float | None = 0.9,
    features: Sequence[str | int] | None = None,
    clusters: Sequence[int] | None = None,
) -> Axes:
    """Odds ratios of a classifier, or rate ratios of a count model, one row for each feature, with intervals.

    The axis is logarithmic, so that halving and doubling are equally far from 1, which is no difference. A ratio
    belongs to the step from 0 to 1 of a feature of zeros and ones, from all other levels to one level of a category,
    and to one standard deviation of any other feature (SD in the labels).

    Parameters
    ----------
    model : classifier or count model, fitted
    ax : Axes to draw on; None makes a new figure
    level : probability of the intervals; None leaves them out
    features : names or positions; None is the six with the strongest effects
    clusters : numbers of clusters; None is all, at most the sixteen largest

    Returns
    -------
    ax : Axes
    """
    model = check_model(model)
    check_level(level, model)
    shown = chosen_clusters(model, clusters)
    rows = chosen_features(model, features, step_sizes(model))
    panel = ratio_panel(model, shown, rows, level)
    return draw(panel, axes_or_new(ax, _rows_size(len(rows), len(shown))), **BESIDE)


def curves(
    model: HierarchicalPredictor,
    feature: str | int | None = None,
    ax: Axes | Sequence[Axes] | NDArray[np.object_] | None = None,
    *,
    level: float | None = 0.9,
    clusters: Sequence[int] | None = None,
    x: Any = None,
    target: str | None = None,
) -> Axes | NDArray[np.object_]:
    """The effect of a feature in each cluster, with bands.

    A line is the posterior mean of the change of y against y at average features; the band around it is the interval
    of probability `level` at each point. The feature is shown as a reader knows it: miles instead of their logarithm,
    the month instead of its sine and cosine. A feature without a curve is a straight line in its own units. Of a
    classifier, it is the change of the log odds; of a count model, that of the log rate.

    Parameters
    ----------
    model : a fitted estimator of any sort
    feature : name or position of a feature, or name of its axis, such as "month"
        None is all features with curves, in a panel each; without curves, the first feature.
    ax : Axes to draw on, or an array of them, one for each feature; None makes a new figure
    level : probability of the bands; None leaves them out
    clusters : numbers of clusters; None is all, at most the sixteen largest
    x : values of the feature, in the units of the axis; None is most of the fitted range
    target : name of y in labels, best with its unit; None is that of its column

    Returns
    -------
    ax : Axes, or an array of them (features,) if several features are drawn
    """
    model = check_model(model)
    check_level(level, model)
    shown = chosen_clusters(model, clusters)
    chosen = curve_axes(model, feature)
    places = None if x is None else inputs.number_vector(x, "x")
    if places is not None and (len(chosen) > 1 or chosen[0].is_discrete):
        raise ArgumentError("`x` needs one feature of numbers; name it with `feature`, or leave `x` out.")
    panels = [curve_panel(model, axis, shown, places, level=level, target=target) for axis in chosen]
    if len(panels) == 1:
        return draw(panels[0], axes_or_new(ax))
    axes = draw_panels(panels, panels_or_new(ax, len(panels), CURVE_SIZE, N_COLUMNS, share=False), only_outer=False)
    for number, own in enumerate(axes if ax is None else ()):
        if number % N_COLUMNS:
            own.set_ylabel("")
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
    model = check_model(model)
    check_level(level, model)
    ax = draw(weight_panel(model, level), axes_or_new(ax))
    ax.grid(visible=False, axis="x")
    return ax


def agent_map(model: HierarchicalPredictor, ax: Axes | None = None) -> Axes:
    """Share of each agent's entities in each cluster, as an image with a row for each agent.

    Shares are means over the draws. They are not `agent_weights_`, which are the probabilities for a new entity.

    Agents are sorted by their main cluster, then by its share. Lines separate agents with different main clusters. Up
    to 25 agents are named.

    Parameters
    ----------
    model : HLCRRegressor or FedHLCRRegressor, fitted
    ax : Axes to draw on; None makes a new figure

    Returns
    -------
    ax : Axes
    """
    model = check_agents(model)
    shares = mean_compositions(model.posterior_.memory, model.alignment_)
    order, main = by_main_cluster(shares)
    ax = axes_or_new(ax)
    ax.grid(visible=False)
    # nearest: smoothing a thousand rows into a few hundred pixels would smear the columns too
    image = ax.imshow(shares[order], cmap=NONE_TO_ALL, vmin=0.0, aspect="auto", interpolation="nearest")
    borders = np.flatnonzero(np.diff(main)) + 0.5
    ax.hlines(borders, -0.5, model.n_clusters_ - 0.5, color=GREY, linewidth=0.5)
    if len(order) <= MAX_NAMED:
        ax.set_yticks(np.arange(len(order)), [shorten(str(model.agent_ids_[agent])) for agent in order])
        ax.set_ylabel("agent")
    else:
        ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        ax.set_ylabel(f"{AGENT.count(len(order))}, by main cluster")
    ax.xaxis.set_major_locator(MaxNLocator(12, integer=True, min_n_ticks=1))
    ax.set_xlabel("cluster")
    color_bar(ax, image, "share of the agent's entities")
    return ax


def label_certainty(model: HierarchicalPredictor, ax: Axes | None = None) -> Axes:
    """Probability of each entity's most probable cluster, against its number of events.

    The line is the median of entities with similar numbers of events, the band covers 80 % of them, and points are
    entities. If several chains found different clusters, certainty is low even with many events.

    Parameters
    ----------
    model : HLCRRegressor or FedHLCRRegressor, fitted
    ax : Axes to draw on; None makes a new figure

    Returns
    -------
    ax : Axes
    """
    model = check_agents(model)
    return draw(certainty_panel(model), axes_or_new(ax), loc="lower right")


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
        labels_changed; for a federation also validation_mse. The first values may be out of view.
    target : name of y in labels, best with its unit; None is that of its column

    Returns
    -------
    ax : Axes
    """
    model = check_model(model)
    return draw(trace_panel(model, quantity, target), axes_or_new(ax))


def cluster_counts(
    comparison: Comparison, ax: Axes | None = None, *, quantity: Literal["log_density", "evidence"] = "log_density"
) -> Axes:
    """Held-out log density, or evidence, against the number of clusters.

    A bar is one standard error of the difference from the best, to either side. Noise that is common to all numbers is
    not included, and the best has no bar. The suggested number is the smallest whose bar reaches the dashed line, the
    best score. The diamond is the result of `n_clusters="auto"`, at the mean over the splits of the number found; the
    line through it covers the range of these numbers. It takes part like any number: it may be best or suggested.

    Parameters
    ----------
    comparison : Comparison, as `compare_cluster_counts` returns
    ax : Axes to draw on; None makes a new figure
    quantity : {"log_density", "evidence"}, default="log_density"
        The evidence has no bars and no suggested number. It is known for plain clusters only, as in the paper.

    Returns
    -------
    ax : Axes
    """
    panel = count_panel(comparison, quantity)
    # above, where no bar can run into it
    above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": 3, "columnspacing": 1.2}
    ax = draw(panel, axes_or_new(ax), **above)
    # room for the rings
    ax.margins(y=0.1)
    ax.ticklabel_format(axis="y", useOffset=False)
    return ax
