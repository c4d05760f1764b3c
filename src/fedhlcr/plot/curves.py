"""The effect of one feature in each cluster, as a function of the feature."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from fedhlcr.analysis.axes import Axis, axis_of, feature_axes
from fedhlcr.analysis.axis_lines import axis_change
from fedhlcr.analysis.links import link_of
from fedhlcr.data import inputs
from fedhlcr.estimators.base import HierarchicalPredictor, check_model
from fedhlcr.exceptions import ArgumentError
from fedhlcr.plot.axis_drawing import draw_line, label_of_target, level_shifts, set_place_axis
from fedhlcr.plot.canvas import LABEL_LENGTH, axes_or_new, check_level, number_lines, panels_or_new
from fedhlcr.plot.features import chosen_axis, chosen_clusters
from fedhlcr.plot.palette import GREY, cluster_style

PANEL_SIZE = (2.4, 2.1)
N_COLUMNS = 3


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
    check_model(model)
    check_level(level, model)
    shown = chosen_clusters(model, clusters)
    axes = _chosen_axes(model, feature)
    places = None if x is None else inputs.number_vector(x, "x")
    if places is not None and (len(axes) > 1 or axes[0].is_discrete):
        raise ArgumentError("`x` needs one feature of numbers; name it with `feature`, or leave `x` out.")
    one = len(axes) == 1
    panels = np.array([axes_or_new(ax)]) if one else panels_or_new(ax, len(axes), PANEL_SIZE, N_COLUMNS, share=False)
    link = link_of(model)
    for number, (own, axis) in enumerate(zip(panels, axes, strict=True)):
        own.axhline(0.0, color=GREY, linewidth=0.7, zorder=1)
        ends = {}
        for cluster, shift in zip(shown, level_shifts(axis, len(shown)), strict=True):
            line = axis_change(model, axis, cluster, places, 0.9 if level is None else level)
            draw_line(own, line, cluster_style(cluster), str(cluster), band=level is not None, shift=shift)
            ends[cluster] = float(line.mean[-1])
        set_place_axis(own, axis)
        if places is not None:
            own.set_xlim(places.min(), places.max())
        if number % N_COLUMNS == 0 or ax is not None:
            label = f"change of {label_of_target(model, target) if link is None else link.linear}"
            own.set_ylabel(label if one else fill(label, LABEL_LENGTH))
        number_lines(own, ends, {cluster: cluster_style(cluster).color for cluster in shown})
    return panels[0] if one else panels


def _chosen_axes(model: HierarchicalPredictor, feature: Any) -> list[Axis]:
    """The axis of the feature, or those of all features with curves."""
    axes = feature_axes(model)
    if feature is not None:
        return [chosen_axis(model, axes, feature)]
    columns = [0] if model.curves_ is None else model.curves_.columns
    found = {axis_of(axes, int(column)).columns: axis_of(axes, int(column)) for column in columns}
    return list(found.values())
