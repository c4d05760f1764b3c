"""How strongly features act in each cluster: the effects of contrasts, a scale for each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedhlcr.analysis.axes import feature_axes
from fedhlcr.analysis.axis_lines import axis_strengths, target_axis
from fedhlcr.analysis.contrasts import contrasts_of
from fedhlcr.analysis.effects import entity_shares
from fedhlcr.analysis.facts import LabelCertainty
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.figures.estimates import contrast_panel, contrast_unit
from fedhlcr.figures.figure import Panel

# Charts shown, and clusters in each of them.
MOST_CHARTS = 12
MOST_ROWS = 16
# Charts shown at once; the others are behind a click.
FIRST_CHARTS = 6


@dataclass(frozen=True)
class EffectSection:
    """All charts; `unit` says what the figures are, `n_hidden` is the number of clusters without a row."""

    charts: tuple[Panel, ...]
    more: tuple[Panel, ...]
    unit: str
    n_hidden: int


def effect_section(model: HierarchicalPredictor, certainty: LabelCertainty) -> EffectSection | None:
    """The charts of the strongest features; None without features that vary."""
    axes = feature_axes(model)
    strength = np.sqrt(entity_shares(model) @ axis_strengths(model, axes) ** 2)
    order = [axes[a] for a in np.argsort(-strength, kind="stable") if strength[a] > 0.0][:MOST_CHARTS]
    contrasts = [contrast for axis in order for contrast in contrasts_of(model, axis)][:MOST_CHARTS]
    if not contrasts:
        return None
    charts = tuple(contrast_panel(model, contrast, MOST_ROWS, certainty.blurred) for contrast in contrasts)
    hidden = max(0, model.n_clusters_ - MOST_ROWS)
    return EffectSection(charts[:FIRST_CHARTS], charts[FIRST_CHARTS:], contrast_unit(target_axis(model)), hidden)
