"""The effect of one feature in each cluster, as a function of the feature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from fedhlcr.analysis.curves import feature_position
from fedhlcr.analysis.effects import feature_names
from fedhlcr.analysis.links import link_of
from fedhlcr.analysis.summary import shorten
from fedhlcr.estimators.base import HierarchicalPredictor, check_model
from fedhlcr.plot.canvas import GREY, PALETTE, axes_or_new, check_level, legend
from fedhlcr.plot.clusters import chosen_clusters


def curves(
    model: HierarchicalPredictor,
    feature: str | int | None = None,
    ax: Axes | None = None,
    *,
    level: float | None = 0.9,
    clusters: Sequence[int] | None = None,
    x: Any = None,
    target: str = "y",
) -> Axes:
    """The effect of a feature in each cluster, with bands.

    A line is the posterior mean of the change of y against y at the feature's mean, `curve`; the band around it is the
    interval of probability `level` at each point. A feature without a curve is a straight line. Of a classifier, it is
    the change of the log odds; of a count model, that of the log rate.

    Parameters
    ----------
    model : HLCRRegressor or FedHLCRRegressor, fitted
    feature : name or position; None is the first feature with a curve, or the first of all
    ax : Axes to draw on; None makes a new figure
    level : probability of the bands; None leaves them out
    clusters : numbers of clusters, at most seven; None is the seven largest
    x : values of the feature; None is most of the fitted range
    target : name of y in labels, best with its unit

    Returns
    -------
    ax : Axes
    """
    check_model(model)
    check_level(level, model)
    if feature is None:
        feature = 0 if model.curves_ is None else int(model.curves_.columns[0])
    position = feature_position(feature, model.n_features_in_, feature_names(model), "feature")
    shown = chosen_clusters(model, clusters)
    ax = axes_or_new(ax)
    ax.axhline(0.0, color=GREY, linewidth=0.7, zorder=1)
    for cluster, color in zip(shown, PALETTE, strict=False):
        line = model.curve(position, cluster, x, 0.9 if level is None else level)
        if level is not None:
            ax.fill_between(line.x, line.lower, line.upper, color=color, alpha=0.2, linewidth=0)
        ax.plot(line.x, line.effect, color=color, linewidth=1.2, label=str(cluster))
    ax.set_xlabel(shorten(feature_names(model)[position]))
    link = link_of(model)
    ax.set_ylabel(f"change of {target if link is None else link.linear}")
    title = "cluster" if len(shown) == model.n_clusters_ else f"cluster\n({len(shown)} of {model.n_clusters_})"
    legend(ax, title=title, loc="center left", bbox_to_anchor=(1.0, 0.5), borderaxespad=0.3)
    return ax
