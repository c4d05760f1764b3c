"""Simpler models of two classes and of counts, fitted to the events that a model holds.

The analogue of `analysis.rivals`, which is for real targets: one rate for all events, a rate for each entity, and one
regression for all events without ids.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression, PoissonRegressor

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.data.events import EventStore
from fedhlcr.data.hierarchy import UNKNOWN
from fedhlcr.model.counts import NegativeBinomial
from fedhlcr.posterior.prediction import Posterior

ONE_RATE, RATE_PER_ENTITY = "one rate", "rate per entity"
ONE_LOGISTIC, ONE_POISSON = "one logistic regression", "one Poisson regression"
MOST_ITERATIONS = 1000
# The penalty of the Poisson regression; that of the logistic one is scikit-learn's default, as small for many events.
POISSON_PENALTY = 1e-6


class RivalMeans(NamedTuple):
    """Predicted probabilities of a 1, or mean counts, of some events."""

    name: str
    mean: FloatArray


def predict_means_by_rivals(
    posterior: Posterior, X: FloatArray, entities: IndexArray, exposure: FloatArray | None = None
) -> list[RivalMeans]:
    """Predictions of simpler models, fitted to the events that a model holds; none if it holds no events.

    Parameters
    ----------
    X : (rows, n_features) features of the events to predict
    entities : (rows,) positions of the rows' entities in the model, or UNKNOWN
    exposure : (rows,) for counts; None is 1 for every event
    """
    known = posterior.memory.entities.events
    if known is None or not known.n_events:
        return []
    features = posterior.standardization.apply(X)[:, : posterior.layout.n_inputs]
    exposed = np.ones(len(X)) if exposure is None else exposure
    at_risk = known.weight * np.exp(known.offsets)
    total, n_at_risk = float(known.weight @ known.y), float(at_risk.sum())
    rate = total / n_at_risk
    if isinstance(posterior.likelihood, NegativeBinomial):
        name, regressed = ONE_POISSON, _poisson(known, at_risk, features)
    else:
        name, regressed = ONE_LOGISTIC, _logistic(known, features)
    return [
        RivalMeans(ONE_RATE, rate * exposed),
        RivalMeans(RATE_PER_ENTITY, _rates_of_entities(known, at_risk, rate)[entities] * exposed),
        RivalMeans(name, regressed * exposed),
    ]


def _rates_of_entities(known: EventStore, at_risk: FloatArray, rate: float) -> FloatArray:
    """(entities + 1,) the rate of each entity, drawn towards that of all as by one event; last that of all.

    The position UNKNOWN is that of the last.
    """
    assert UNKNOWN == -1
    start, usual = known.event_start, float(at_risk.mean())
    ones, exposed = (
        np.diff(np.concatenate([[0.0], np.cumsum(values)])[start]) for values in (known.weight * known.y, at_risk)
    )
    return np.append((ones + rate * usual) / (exposed + usual), rate)


def _logistic(known: EventStore, features: FloatArray) -> FloatArray:
    if np.ptp(known.y) == 0.0:
        return np.full(len(features), known.y[0])
    fitted = LogisticRegression(max_iter=MOST_ITERATIONS).fit(known.X, known.y, sample_weight=known.weight)
    return np.asarray(fitted.predict_proba(features)[:, 1])


def _poisson(known: EventStore, at_risk: FloatArray, features: FloatArray) -> FloatArray:
    """Mean counts for an exposure of 1. A regression of rates, weighted by exposure, is that of counts."""
    rates = known.y / np.exp(known.offsets)
    model = PoissonRegressor(alpha=POISSON_PENALTY, max_iter=MOST_ITERATIONS)
    return np.asarray(model.fit(known.X, rates, sample_weight=at_risk).predict(features))
