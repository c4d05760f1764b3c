"""Simpler models, fitted to the events that a model was fitted to, on the same events to predict."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.analysis.scores import log_fit
from fedhlcr.analysis.simpler import SimplerModels
from fedhlcr.posterior.prediction import Posterior


class RivalPredictions(NamedTuple):
    """Predictions of events by a simpler model, (rows,) each, in the user's units.

    Attributes
    ----------
    mean : predicted target; a probability of a 1, or a mean count
    log_density : of real targets; of classes log probabilities, of counts minus half the Poisson deviances
    """

    name: str
    mean: FloatArray
    log_density: FloatArray


def predict_by_rivals(
    posterior: Posterior,
    X: FloatArray,
    observed: FloatArray,
    entities: IndexArray,
    exposure: FloatArray | None = None,
) -> list[RivalPredictions]:
    """Predictions of simpler models, fitted to the entities that a model holds; none if it holds no entities.

    Parameters
    ----------
    X, observed : (rows, n_features) and (rows,) events that were not fitted
    entities : (rows,) positions of the rows' entities in the model, or UNKNOWN
    exposure : (rows,) of counts; None is 1 for every event
    """
    family = posterior.likelihood.family
    if family.has_link:
        # imported here, because scikit-learn takes more than a second to import
        from fedhlcr.analysis.response_rivals import predict_means_by_rivals

        means = predict_means_by_rivals(posterior, X, entities, exposure)
        return [RivalPredictions(name, mean, log_fit(family, observed, mean)) for name, mean in means.items()]
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
