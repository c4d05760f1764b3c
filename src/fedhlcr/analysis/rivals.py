"""Scores of a model and of simpler models on the same events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.analysis.evaluation import Errors
from fedhlcr.analysis.simpler import SimplerModels
from fedhlcr.posterior.prediction import Posterior


@dataclass(frozen=True)
class Score:
    """Errors and log density of predictions, in the user's units.

    Attributes
    ----------
    r2 : NaN if the target is constant
    log_density : mean log predictive density of the events, in nats
    """

    name: str
    r2: float
    mse: float
    mae: float
    log_density: float

    @classmethod
    def of(cls, name: str, observed: FloatArray, predicted: FloatArray, log_density: FloatArray) -> Score:
        return cls(name, *Errors.of(observed, predicted), float(log_density.mean()))

    @property
    def rmse(self) -> float:
        return float(np.sqrt(self.mse))


class RivalPredictions(NamedTuple):
    """Predictions of events by a simpler model, (rows,) each, in the user's units."""

    name: str
    mean: FloatArray
    log_density: FloatArray


def predict_by_rivals(
    posterior: Posterior, X: FloatArray, observed: FloatArray, entities: IndexArray
) -> list[RivalPredictions]:
    """Predictions of simpler models, fitted to the entities that a model holds; none if it holds no entities.

    Parameters
    ----------
    X, observed : (rows, n_features) and (rows,) events that were not fitted
    entities : (rows,) positions of the rows' entities in the model, or UNKNOWN
    """
    if not len(posterior.memory.entities):
        return []
    units = posterior.standardization
    target = units.apply_target(observed)
    log_scale = np.log(units.scale[-1])
    features = units.apply(X)[:, : posterior.layout.n_inputs]
    predicted = SimplerModels.of(posterior).predict(features, entities)
    return [
        RivalPredictions(name, units.restore_target(rows.mean), rows.log_density(target) - log_scale)
        for name, rows in predicted.items()
    ]
