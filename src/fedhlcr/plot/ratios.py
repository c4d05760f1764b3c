"""Odds ratios of classifiers and rate ratios of count models, as a forest plot."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from fedhlcr.analysis.effects import feature_names, step_ratios, step_sizes
from fedhlcr.analysis.links import link_of
from fedhlcr.analysis.summary import shorten
from fedhlcr.estimators.base import HierarchicalPredictor, check_model
from fedhlcr.exceptions import ArgumentError
from fedhlcr.plot.canvas import axes_or_new, check_level, legend, log_axis
from fedhlcr.plot.features import chosen_clusters, chosen_features, cluster_title
from fedhlcr.plot.forest import Estimates, draw_rows, figure_size
from fedhlcr.plot.palette import GREY

# Over more powers of ten, only these have ticks.
MANY_DECADES = 2.5


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
    check_model(model)
    check_level(level, model)
    link = link_of(model)
    if link is None:
        raise ArgumentError(
            "`model` predicts real numbers, which have no odds or rates; draw its coefficients with "
            "`fedhlcr.plot.coefficients`."
        )
    sizes = step_sizes(model)
    shown = chosen_clusters(model, clusters)
    rows = chosen_features(model, features, sizes)
    ax = axes_or_new(ax, figure_size(len(rows), len(shown)))
    ax.axvline(1.0, color=GREY, linewidth=0.7, zorder=1)
    found = step_ratios(model, 0.9 if level is None else level)
    means, lower, upper = (figures[np.ix_(shown, rows)] for figures in found)
    estimates = Estimates(means, lower, upper) if level is not None else Estimates(means, None, None)
    names = feature_names(model)
    is_unit = sizes == 1.0
    draw_rows(ax, shown, estimates, [shorten(names[f]) + ("" if is_unit[f] else ", SD") for f in rows])
    log_axis(ax)
    ax.xaxis.set_major_locator(_ticks(*ax.get_xlim()))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel(f"{link.ratio} (logarithmic axis)")
    legend(ax, title=cluster_title(model, shown), loc="center left", bbox_to_anchor=(1.0, 0.5), borderaxespad=0.3)
    return ax


def _ticks(low: float, high: float) -> LogLocator:
    """Few enough ticks for any range: the wider it is, the fewer in each power of ten."""
    decades = np.log10(high / low)
    if decades > MANY_DECADES:
        return LogLocator(subs=(1.0,), numticks=6)
    return LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0) if decades < 1.0 else (1.0, 3.0))
