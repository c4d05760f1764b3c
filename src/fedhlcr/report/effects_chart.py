"""How strongly features act in each cluster: a dot and an interval for each cluster, a scale for each feature."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from fedhlcr._support.wording import number
from fedhlcr.analysis.axes import feature_axes
from fedhlcr.analysis.axis_lines import TargetAxis, axis_strengths, target_axis
from fedhlcr.analysis.contrasts import Contrast, ContrastEffects, contrast_effects, contrasts_of
from fedhlcr.analysis.effects import entity_shares
from fedhlcr.analysis.facts import LabelCertainty
from fedhlcr.analysis.ticks import nice_ticks, tick_text
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.report import frames
from fedhlcr.report.frames import Tick

# Charts shown, and clusters in each of them.
MOST_CHARTS = 12
MOST_ROWS = 16
# Charts shown at once; the others are behind a click.
FIRST_CHARTS = 6


@dataclass(frozen=True)
class EffectRow:
    """The effect in one cluster: its number, the picture, the figures, and whether it is clear and certain."""

    cluster: int
    svg: Markup
    value: str
    interval: str
    is_clear: bool
    is_faded: bool


@dataclass(frozen=True)
class EffectChart:
    """The effects of one contrast in all clusters."""

    title: str
    rows: tuple[EffectRow, ...]
    ticks: tuple[Tick, ...]


@dataclass(frozen=True)
class EffectSection:
    """All charts; `unit` says what the figures are."""

    charts: tuple[EffectChart, ...]
    more: tuple[EffectChart, ...]
    unit: str
    n_hidden: int  # clusters without a row


def draw_effects(model: HierarchicalPredictor, certainty: LabelCertainty) -> EffectSection | None:
    """The charts of the strongest features; None without features that vary."""
    axes = feature_axes(model)
    strength = np.sqrt(entity_shares(model) @ axis_strengths(model, axes) ** 2)
    order = [axes[a] for a in np.argsort(-strength, kind="stable") if strength[a] > 0.0][:MOST_CHARTS]
    contrasts = [contrast for axis in order for contrast in contrasts_of(model, axis)][:MOST_CHARTS]
    if not contrasts:
        return None
    target = target_axis(model)
    charts = [_chart(contrast, _units(target, contrast_effects(model, contrast)), certainty) for contrast in contrasts]
    hidden = max(0, model.n_clusters_ - MOST_ROWS)
    return EffectSection(tuple(charts[:FIRST_CHARTS]), tuple(charts[FIRST_CHARTS:]), _unit_name(target), hidden)


def _units(target: TargetAxis, effects: ContrastEffects) -> ContrastEffects:
    """Effects in the units of `_unit_name`."""
    if target.base is not None:
        base = target.base
        return ContrastEffects(*(100.0 * (base**part - 1.0) for part in effects))
    factor = 100.0 if target.family.has_classes else 1.0
    return ContrastEffects(*(factor * part for part in effects))


def _unit_name(target: TargetAxis) -> str:
    if target.is_log:
        return f"per cent of {target.name}"
    if target.family.has_classes:
        return f"percentage points of {target.name}"
    return f"units of {target.name}"


def _chart(contrast: Contrast, effects: ContrastEffects, certainty: LabelCertainty) -> EffectChart:
    mean, lower, upper = (part[:MOST_ROWS] for part in effects)
    # a wild interval of a cluster with few entities must not squeeze all others
    certain = np.array([k not in certainty.blurred for k in range(len(mean))])
    framed = certain if certain.any() else np.ones(len(mean), dtype=bool)
    scale = frames.scale_around([np.zeros(1), mean, lower[framed], upper[framed]], 0.08)
    rows = []
    for k in range(len(mean)):
        low, high = np.clip(scale(np.array([lower[k], upper[k]])), 0.0, 100.0)
        zero = float(scale(np.zeros(1))[0])
        clear = bool(lower[k] > 0.0 or upper[k] < 0.0)
        marks = frames.line(np.repeat(zero, 2), np.array([0.0, 100.0]), "zero")
        if np.isfinite(low) and np.isfinite(high):
            marks += frames.line(np.array([low, high]), np.array([50.0, 50.0]), "whisker")
        marks += frames.dots(scale(mean[k : k + 1]), np.array([50.0]), "spot" if clear else "spot open")
        interval = f"{number(lower[k])} to {number(upper[k])}" if np.isfinite(lower[k]) else ""
        told = f"{contrast.words}, cluster {k}: {number(mean[k])}{f', from {interval}' if interval else ''}"
        rows.append(EffectRow(k, frames.svg(marks, told), number(mean[k], 2), interval, clear, not certain[k]))
    ticks = scale.ticks((value, tick_text(value)) for value in nice_ticks(scale.low, scale.high, 4))
    return EffectChart(contrast.words, tuple(rows), ticks)
