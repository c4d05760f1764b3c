"""Events that a report draws: their features, targets and predictions, and whose they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.data.hierarchy import UNKNOWN
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.posterior.prediction import Profiles
from fedhlcr.report.scores import HeldOut

# Most of the fitted events to draw.
MOST_FITTED = 20_000


@dataclass(frozen=True)
class DrawnEvents:
    """Events as a report draws them, one row each.

    Attributes
    ----------
    X : (events, n_features_in_) in the user's units
    observed : (events,) target; 1 for the second of two classes; a count per exposure
    predicted : (events,) the model's mean, on the same scale
    agent, entity : (events,) positions in the model, or UNKNOWN
    label : (events,) cluster of the entity, as in `labels_`, or UNKNOWN
    """

    X: FloatArray
    observed: FloatArray
    predicted: FloatArray
    agent: IndexArray
    entity: IndexArray
    label: IndexArray

    def __len__(self) -> int:
        return len(self.observed)

    @property
    def residuals(self) -> FloatArray:
        """(events,) how much more was observed than predicted."""
        return self.observed - self.predicted


def drawn_events(model: HierarchicalPredictor, data: HeldOut) -> DrawnEvents:
    """Read and predict events for the pictures of a report."""
    rows = model.read_events(data.X, data.agent, data.entity)
    observed = model.numeric_target(data.y, len(rows.matrix))
    predicted = model.predict_moments(data.X, data.agent, data.entity, exposure=data.exposure).mean
    if data.exposure is not None:
        exposure = np.broadcast_to(np.asarray(data.exposure, dtype=np.float64), len(observed))
        observed, predicted = observed / exposure, predicted / exposure
    agent, entity = (own[rows.profiles.of_row] for own in (rows.profiles.agents, rows.profiles.entities))
    label = np.full(len(observed), UNKNOWN, dtype=np.int64)
    known = entity != UNKNOWN
    label[known] = model.labels_[entity[known]]
    return DrawnEvents(rows.matrix, observed, predicted, agent, entity, label)


def fitted_events(model: HierarchicalPredictor) -> DrawnEvents | None:
    """Events that the model was fitted with; None if it does not keep them. Of very many, every second, third, …"""
    store = model.posterior_.memory.entities
    known = store.events
    if known is None or not known.n_events:
        return None
    of_entity = np.repeat(np.arange(known.n_entities), np.diff(known.event_start))
    rows = np.arange(0, known.n_events, -(-known.n_events // MOST_FITTED))
    units, n = model.posterior_.standardization, model.n_features_in_
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
