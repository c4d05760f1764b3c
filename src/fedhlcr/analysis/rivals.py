"""Simpler models, fitted to the events that a model was fitted to, on the same events to predict.

Of real targets: one ridge for all events, a ridge for each entity, and a mixed model (`analysis.simpler`). Of classes
and counts: one rate for all events, a rate for each entity, and the same three regressions on events that are
reweighted (`analysis.reweighting`).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.threads import single_threaded_blas
from fedhlcr.analysis.mixed_model import MixedModel
from fedhlcr.analysis.regressions import KnownEntities, Predicted, predict_by_entity, predict_by_one
from fedhlcr.analysis.reweighting import EntityRidge, expected_response, fit_mixed_model, pooled_regression, settled_by
from fedhlcr.analysis.scores import log_fit
from fedhlcr.analysis.simpler import (
    LOGISTIC_PER_ENTITY,
    MIXED_MODEL,
    MOST_CORRELATED,
    ONE_LOGISTIC,
    ONE_POISSON,
    ONE_RATE,
    POISSON_PER_ENTITY,
    RATE_PER_ENTITY,
    SimplerModels,
)
from fedhlcr.data.events import EventStore
from fedhlcr.data.families import Family
from fedhlcr.data.hierarchy import UNKNOWN
from fedhlcr.model.gram import GramLayout
from fedhlcr.posterior.prediction import Posterior

# With fewer entities for each coefficient, the mixed model's random deviations are independent: see `MOST_CORRELATED`.
FEWEST_CORRELATED = 5
# Numbers in the matrices of the entities that penalties and mixed models are fitted to, if there are more: fewer than
# in `analysis.simpler`, because they are fitted in each step of reweighting.
NUMBERS_FOR_REWEIGHTED = 1 << 16


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
        means = predict_means(posterior, X, entities, exposure)
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


@single_threaded_blas
def predict_means(
    posterior: Posterior, X: FloatArray, entities: IndexArray, exposure: FloatArray | None = None
) -> dict[str, FloatArray]:
    """Probabilities of a 1, or mean counts, by name of the simpler model; none if the model holds no events.

    Parameters
    ----------
    X : (rows, n_features) features of the events to predict
    entities : (rows,) positions of the rows' entities in the model, or UNKNOWN
    exposure : (rows,) for counts; None is 1 for every event
    """
    held = posterior.memory.entities.events
    if held is None or not held.n_events:
        return {}
    family = posterior.likelihood.family
    known, features = _standardized(held, posterior.standardization.apply(X), posterior.layout.n_inputs)
    design = np.column_stack([np.ones(len(features)), features])
    at_risk = known.weight * np.exp(known.offsets)
    rate = float(known.weight @ known.y) / float(at_risk.sum())
    found = {
        ONE_RATE: np.full(len(X), rate),
        RATE_PER_ENTITY: _rates_of_entities(known, at_risk, rate)[entities],
        ONE_LOGISTIC if family.has_classes else ONE_POISSON: family.to_response(
            design @ pooled_regression(family, known)
        ),
    }
    if (entities != UNKNOWN).any():
        one = list(found.values())[-1]
        of_entity = _by_entity_ridge(family, known, design, entities)
        found[LOGISTIC_PER_ENTITY if family.has_classes else POISSON_PER_ENTITY] = np.where(
            entities == UNKNOWN, one, of_entity
        )
    # a mixed model needs two entities or more, and some with several events
    if 1 < known.n_entities < known.n_events:
        # a matrix of extreme numbers; the model itself is sound
        with suppress(np.linalg.LinAlgError):
            found[MIXED_MODEL] = _by_mixed_model(family, known, design, entities)
    exposed = np.ones(len(X)) if exposure is None else exposure
    return {name: mean * exposed for name, mean in found.items() if np.isfinite(mean).all()}


def _standardized(known: EventStore, features: FloatArray, n_inputs: int) -> tuple[EventStore, FloatArray]:
    """The events and the rows to predict without columns of curves, standardised: the model may not have done so."""
    X = known.X[:, :n_inputs]
    features = features[:, :n_inputs]
    mean = np.average(X, axis=0, weights=known.weight)
    scale = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=known.weight))
    # rounding errors of a constant feature are not a spread
    scale = np.where(scale > 1e-9 * (1.0 + np.abs(mean)), scale, np.inf)
    return replace(known, X=(X - mean) / scale), (features - mean) / scale


def _rates_of_entities(known: EventStore, at_risk: FloatArray, rate: float) -> FloatArray:
    """(entities + 1,) the rate of each entity, drawn towards that of all as by one event; last that of all.

    The position UNKNOWN is that of the last.
    """
    assert UNKNOWN == -1
    start = known.event_start
    usual = float(at_risk.mean())
    ones, exposed = (
        np.diff(np.concatenate([[0.0], np.cumsum(values)])[start]) for values in (known.weight * known.y, at_risk)
    )
    return np.append((ones + rate * usual) / (exposed + usual), rate)


def _some(known: EventStore) -> EventStore:
    """Every second, third, … entity if there are very many: the few numbers that they share need no more."""
    step = -(-known.n_entities * (known.X.shape[1] + 2) ** 2 // NUMBERS_FOR_REWEIGHTED)
    return known if step == 1 else known.take(np.arange(0, known.n_entities, step))


def _by_entity_ridge(family: Family, known: EventStore, design: FloatArray, entities: IndexArray) -> FloatArray:
    """Means for an exposure of 1 by a regression for each entity."""
    ridge = EntityRidge.fit(family, _some(known))
    entity_grams = KnownEntities(GramLayout(design.shape[1] - 1), ridge.settled(family, known))
    nobody = Predicted(*np.zeros((3, len(design))))
    return family.to_response(predict_by_entity(ridge, entity_grams, design, entities, nobody).mean)


def _by_mixed_model(family: Family, known: EventStore, design: FloatArray, entities: IndexArray) -> FloatArray:
    """Means for an exposure of 1 by a mixed model: those over the laws of its regressions."""
    some = _some(known)
    most = min(MOST_CORRELATED, some.n_entities / FEWEST_CORRELATED)
    model: MixedModel = fit_mixed_model(family, some, diagonal=design.shape[1] > most)
    entity_grams = KnownEntities(GramLayout(design.shape[1] - 1), settled_by(model, family, known))
    new = predict_by_one(model.law_of_new(), model.noise_variance, design)
    linear = predict_by_entity(model, entity_grams, design, entities, new)
    return expected_response(family, linear.mean, np.maximum(linear.leverage, 0.0))[0]
