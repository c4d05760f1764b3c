"""The held-out events that a report draws."""

from __future__ import annotations

from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.estimators.drawn_events import DrawnEvents, read_drawn_events
from fedhlcr.report.scores import HeldOut


def drawn_events(model: HierarchicalPredictor, data: HeldOut) -> DrawnEvents:
    """Read and predict events for the pictures of a report."""
    return read_drawn_events(model, data.X, data.y, data.agent, data.entity, data.exposure)
