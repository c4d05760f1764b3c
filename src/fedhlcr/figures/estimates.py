"""Estimates with intervals in rows: coefficients, ratios and effects of the clusters, and residuals of the agents."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr.analysis.axis_lines import TargetAxis, target_axis
from fedhlcr.analysis.contrasts import Contrast, contrast_effects
from fedhlcr.analysis.effects import coef_intervals, feature_names, step_ratios, step_sizes
from fedhlcr.analysis.links import link_of
from fedhlcr.analysis.summary import shorten
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.exceptions import ArgumentError
from fedhlcr.figures.choices import label_of_target
from fedhlcr.figures.figure import NOTHING, Mark, Panel, Scale, ends_around, level_scale

PER = {"spread": "standard deviation", "unit": "unit"}
# The clusters of one feature are stacked within this part of its row; more than these are numbered in it.
ROW = 0.84
MAX_UNNUMBERED = 4


class Estimates(NamedTuple):
    """Means (clusters, features) and the ends of their intervals, of the same shape; None leaves intervals out."""

    means: FloatArray
    ends: tuple[FloatArray, FloatArray] | None

    def of(self, clusters: Sequence[int], features: Sequence[int]) -> Estimates:
        """Those of some clusters and features."""
        some = np.ix_(clusters, features)
        return Estimates(self.means[some], None if self.ends is None else (self.ends[0][some], self.ends[1][some]))


def coef_panels(
    model: HierarchicalPredictor,
    clusters: Sequence[int],
    features: Sequence[int],
    *,
    level: float | None,
    per: str,
    target: str | None,
    together: bool,
) -> list[Panel]:
    """Coefficients of the clusters: a row for each feature on a common scale, or a panel for each feature."""
    factor = model.feature_spreads_ if per == "spread" else np.ones(model.n_features_in_)
    lower, upper = (None, None) if level is None else coef_intervals(model, level)
    ends = None if lower is None or upper is None else (lower * factor, upper * factor)
    found = Estimates(model.coef_ * factor, ends).of(clusters, features)
    names = [shorten(feature_names(model)[f]) for f in features]
    label = f"change of {link_of(model, label_of_target(model, target)).linear}\nper {PER[per]} of the feature"
    if together:
        return [rows_panel(clusters, found, names, Scale(label=label), legend=legend_title(model, clusters))]
    return [cluster_rows(clusters, found, n, Scale(label=label), name) for n, name in enumerate(names)]


def ratio_panel(
    model: HierarchicalPredictor, clusters: Sequence[int], features: Sequence[int], level: float | None
) -> Panel:
    """Odds or rate ratios of the clusters, with a row for each feature."""
    if not model.family.has_link:
        raise ArgumentError(
            "`model` predicts real numbers, which have no odds or rates; draw its coefficients with "
            "`fedhlcr.plot.coefficients`."
        )
    means, lower, upper = step_ratios(model, 0.9 if level is None else level)
    found = Estimates(means, None if level is None else (lower, upper)).of(clusters, features)
    names = feature_names(model)
    is_unit = step_sizes(model) == 1.0
    rows = [shorten(names[f]) + ("" if is_unit[f] else ", SD") for f in features]
    x = Scale(label=f"{model.family.ratio} (logarithmic axis)", kind="log")
    return rows_panel(clusters, found, rows, x, none=1.0, legend=legend_title(model, clusters))


def legend_title(model: HierarchicalPredictor, shown: Sequence[int]) -> str:
    """The title of a legend of clusters."""
    return "cluster" if len(shown) == model.n_clusters_ else f"cluster\n({len(shown)} of {model.n_clusters_})"


def rows_panel(
    clusters: Sequence[int],
    found: Estimates,
    names: Sequence[str],
    x: Scale,
    *,
    none: float = 0.0,
    legend: str | None = None,
) -> Panel:
    """A row for each feature, with all clusters in it; `none` is no effect."""
    rows = np.arange(len(names), dtype=np.float64)
    marks = [Mark("rule", "zero", x=np.array([none]))]
    marks += [Mark("span", "stripe", y=np.array([row - 0.5, row + 0.5])) for row in rows[1::2]]
    shifts = ROW * ((np.arange(len(clusters)) + 0.5) / len(clusters) - 0.5)
    for n, (cluster, shift) in enumerate(zip(clusters, shifts, strict=True)):
        mark = _estimate(found, n, slice(None), rows + shift, cluster, str(cluster))
        marks.append(mark)
        if len(clusters) > MAX_UNNUMBERED:
            right = np.fmax(mark.high, mark.x) if mark.has_ends else mark.x
            marks.append(Mark("number", "number", right, mark.y, cluster=cluster))
    return Panel(x, level_scale(names, is_reversed=True), tuple(marks), legend=legend)


def cluster_rows(
    clusters: Sequence[int],
    found: Estimates,
    feature: int,
    x: Scale,
    title: str,
    roles: Sequence[str] = (),
) -> Panel:
    """One feature, with a row for each cluster."""
    marks = [Mark("rule", "zero", x=np.zeros(1))]
    for n, cluster in enumerate(clusters):
        mark = _estimate(found, n, slice(feature, feature + 1), np.array([float(n)]), cluster, str(cluster))
        marks.append(replace(mark, role=roles[n]) if roles else mark)
    names = [str(cluster) for cluster in clusters]
    return Panel(x, level_scale(names, "cluster", is_reversed=True), tuple(marks), title)


def _estimate(found: Estimates, number: int, features: slice, y: FloatArray, cluster: int, name: str) -> Mark:
    low, high = (NOTHING, NOTHING) if found.ends is None else (end[number, features] for end in found.ends)
    return Mark("levels", "estimate", found.means[number, features], y, low, high, cluster, name, is_across=True)


def contrast_panel(model: HierarchicalPredictor, contrast: Contrast, most: int, blurred: Collection[int]) -> Panel:
    """The effect of a contrast in each cluster, in the units of `contrast_unit`; blurred clusters are faded."""
    target = target_axis(model)
    mean, lower, upper = (_in_units(target, part[:most]) for part in contrast_effects(model, contrast))
    certain = np.array([k not in blurred for k in range(len(mean))])
    # a wild interval of a cluster with few entities must not squeeze all others
    framed = certain if certain.any() else np.ones(len(mean), dtype=bool)
    x = Scale(*ends_around([np.zeros(1), mean, lower[framed], upper[framed]], 0.08))
    clear = (lower > 0.0) | (upper < 0.0)
    roles = [f"spot{'' if clear[k] else ' open'}{'' if certain[k] else ' faded'}" for k in range(len(mean))]
    found = Estimates(mean[:, None], (lower[:, None], upper[:, None]))
    return cluster_rows(range(len(mean)), found, 0, x, contrast.words, roles)


def _in_units(target: TargetAxis, effects: FloatArray) -> FloatArray:
    if target.base is not None:
        return np.asarray(100.0 * (target.base**effects - 1.0))
    return 100.0 * effects if target.family.has_classes else effects


def contrast_unit(target: TargetAxis) -> str:
    """What effects of contrasts are counted in."""
    if target.is_log:
        return f"per cent of {target.name}"
    if target.family.has_classes:
        return f"percentage points of {target.name}"
    return f"units of {target.name}"


def residual_panel(
    names: Sequence[str], mean: FloatArray, spread: FloatArray, between: tuple[int, str, FloatArray] | None
) -> Panel:
    """Mean and spread of the residuals of agents, a row each.

    `between` is what stands after so many rows for the agents that have none: its name, and their means.
    """
    x = Scale(*ends_around([np.zeros(1), mean - spread, mean + spread]))
    marks = []
    for n, name in enumerate(names):
        low, high = np.array([mean[n] - spread[n]]), np.array([mean[n] + spread[n]])
        at = np.array([float(n)])
        marks.append(Mark("levels", "spot", mean[n : n + 1], at, low, high, name=name, is_across=True))
    if between is not None:
        place, name, means = between
        strip = Mark("dots", "spot faint", means, np.full(len(means), place - 0.5), name=name)
        marks.insert(place, strip)
    return Panel(x, level_scale(names, is_reversed=True), (Mark("rule", "zero", x=np.zeros(1)), *marks))
