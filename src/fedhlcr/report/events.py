"""The held-out events that a report draws."""

from __future__ import annotations

import numpy as np

from fedhlcr.analysis.evaluation import HeldOut
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.estimators.drawn_events import DrawnEvents, read_drawn_events
from fedhlcr.posterior.prediction import Profiles

# Most of the fitted events to draw.
MOST_FITTED = 20_000


def drawn_events(model: HierarchicalPredictor, data: HeldOut) -> DrawnEvents:
    """Read and predict events for the pictures of a report."""
    return read_drawn_events(model, data.X, data.y, data.agent, data.entity, data.exposure)


def fitted_events(model: HierarchicalPredictor) -> DrawnEvents | None:
    """Events that the model was fitted with; None if it does not keep them. Of very many, every second, third, …"""
    store = model.posterior_.memory.entities
    known = store.events
    if known is None or not known.n_events:
        return None
    of_entity = np.repeat(np.arange(known.n_entities), np.diff(known.event_start))
    rows = np.arange(0, known.n_events, -(-known.n_events // MOST_FITTED))
    units = model.posterior_.standardization
    n = model.n_features_in_
    # a constant feature has an infinite scale
    scale = np.where(np.isfinite(units.scale[:n]), units.scale[:n], 0.0)
    X = np.asarray(known.X[rows][:, :n] * scale + units.shift[:n])
    entity = of_entity[rows]
    agent = store.index.agent_of[entity]
    offset = known.offsets[rows]
    predicted = model.posterior_.mean(X, Profiles.of(agent, entity), offset)
    observed = units.restore_target(known.y[rows])
    exposure = np.exp(offset)
    return DrawnEvents(X, observed / exposure, predicted / exposure, agent, entity, model.labels_[entity])
