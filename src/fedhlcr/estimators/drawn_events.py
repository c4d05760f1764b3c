"""Events as reports and plots draw them: their features, targets and predictions, and whose they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.data.hierarchy import UNKNOWN
from fedhlcr.data.ids import native_array
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.posterior.fitted_model import check_model


@dataclass(frozen=True)
class DrawnEvents:
    """Events to draw, one row each.

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

    def take(self, rows: Any) -> DrawnEvents:
        """Some of the events."""
        own = self.X, self.observed, self.predicted, self.agent, self.entity, self.label
        return DrawnEvents(*(of[rows] for of in own))


def read_drawn_events(
    model: HierarchicalPredictor, X: Any, y: Any = None, agent: Any = None, entity: Any = None, exposure: Any = None
) -> DrawnEvents:
    """Read and predict events for pictures; arguments as in `score`."""
    model = check_model(model)
    X, y, agent, entity, _, exposure = model.events_of(X, y, agent, entity, exposure=exposure)
    rows = model.read_events(X, agent, entity)
    observed = model.numeric_target(y, len(rows.matrix))
    predicted = model.predict_moments(X, agent, entity, exposure=exposure).mean
    if exposure is not None:
        shared = np.asarray(native_array(exposure), dtype=np.float64)
        observed = observed / shared
        predicted = predicted / shared
    own_agent, own_entity = (own[rows.profiles.of_row] for own in (rows.profiles.agents, rows.profiles.entities))
    label = np.full(len(observed), UNKNOWN, dtype=np.int64)
    known = own_entity != UNKNOWN
    label[known] = model.labels_[own_entity[known]]
    return DrawnEvents(rows.matrix, observed, predicted, own_agent, own_entity, label)
