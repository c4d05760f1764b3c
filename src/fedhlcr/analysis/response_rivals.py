"""Simpler models of two classes and of counts, fitted to the events that a model holds.

What `analysis.simpler` is for real targets: one rate for all events, a rate for each entity, one
regression for all events without ids, a regression for each entity, and a mixed model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
from sklearn.linear_model import LogisticRegression, PoissonRegressor

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.special import expit
from fedhlcr._support.threads import single_threaded_blas
from fedhlcr.analysis.regressions import CoefLaw
from fedhlcr.analysis.response_laws import POINT_WEIGHTS, POINTS, Responses
from fedhlcr.analysis.response_mixed import MOST_RANDOM, ResponseMixedModel, poisson_log_size
from fedhlcr.analysis.response_ridges import EntityRegressions
from fedhlcr.analysis.simpler import (
    LOGISTIC_PER_ENTITY,
    MIXED_MODEL,
    MOST_CORRELATED,
    ONE_LOGISTIC,
    ONE_POISSON,
    ONE_RATE,
    POISSON_PER_ENTITY,
    RATE_PER_ENTITY,
)
from fedhlcr.data.events import EventStore
from fedhlcr.data.families import COUNT
from fedhlcr.data.hierarchy import UNKNOWN
from fedhlcr.posterior.prediction import Posterior

MOST_ITERATIONS = 1000
# The penalty of the Poisson regression; that of the logistic one is scikit-learn's default, as small for many events.
POISSON_PENALTY = 1e-6
# Numbers in the products of the columns of the events that the penalty and the mixed model are fitted to, if there are
# more; but at least so many events. An entity costs as much as some events do, and has at most its share of all events.
NUMBERS_FOR_PENALTY = 1 << 18
NUMBERS_FOR_MIXED = 1 << 20
FEWEST_EVENTS = 1000
COST_OF_ENTITY = 4
FEWEST_EACH = 20
# With fewer entities for each coefficient, the mixed model's random deviations are independent: see `MOST_CORRELATED`.
FEWEST_CORRELATED = 5
# Numbers in products of columns at a time, and most events of one entity that its own regression is fitted to.
NUMBERS_AT_ONCE = 1 << 22
MOST_EACH = 20_000
# Largest logarithm of a predicted mean count.
LARGEST_LOG_MEAN = 100.0


class _Rows(NamedTuple):
    """Events to predict, and the model's events."""

    known: EventStore
    features: FloatArray  # (rows, n_features) standardised
    entities: IndexArray  # (rows,) positions among the known ones, or UNKNOWN
    is_count: bool

    @property
    def n_coef(self) -> int:
        return self.features.shape[1] + 1

    @property
    def log_size(self) -> float | None:
        """The log size of a regression of these events: of counts that of a Poisson law."""
        return poisson_log_size(self.known.y) if self.is_count else None


class _Regressions(Protocol):
    """Regressions of entities."""

    def law(self, entities: Responses) -> CoefLaw:
        """The regression of each entity, given its events."""


@single_threaded_blas
def predict_means_by_rivals(
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
    known, features = _standardized(held, posterior.standardization.apply(X), posterior.layout.n_inputs)
    rows = _Rows(known, features, entities, posterior.likelihood.family is COUNT)
    exposed = np.ones(len(X)) if exposure is None else exposure
    at_risk = known.weight * np.exp(known.offsets)
    rate = float(known.weight @ known.y) / float(at_risk.sum())
    one = _poisson(known, at_risk, features) if rows.is_count else _logistic(known, features)
    found = {
        ONE_RATE: np.full(len(X), rate),
        RATE_PER_ENTITY: _rates_of_entities(known, at_risk, rate)[entities],
        ONE_POISSON if rows.is_count else ONE_LOGISTIC: one,
    }
    if (entities != UNKNOWN).any():
        found[POISSON_PER_ENTITY if rows.is_count else LOGISTIC_PER_ENTITY] = _by_entity(rows, one)
    if (mixed := _by_mixed_model(rows)) is not None:
        found[MIXED_MODEL] = mixed
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


def _logistic(known: EventStore, features: FloatArray) -> FloatArray:
    if np.ptp(known.y) == 0.0:
        return np.full(len(features), known.y[0])
    fitted = LogisticRegression(max_iter=MOST_ITERATIONS).fit(known.X, known.y, sample_weight=known.weight)
    return np.asarray(fitted.predict_proba(features)[:, 1])


def _poisson(known: EventStore, at_risk: FloatArray, features: FloatArray) -> FloatArray:
    """Mean counts for an exposure of 1. A regression of rates, weighted by exposure, is that of counts."""
    # the optimiser needs rates and weights of usual size
    usual = float(at_risk.mean())
    rates = known.y / np.exp(known.offsets) * usual
    model = PoissonRegressor(alpha=POISSON_PENALTY, max_iter=MOST_ITERATIONS)
    return np.asarray(model.fit(known.X, rates, sample_weight=at_risk / usual).predict(features)) / usual


def _by_entity(rows: _Rows, one: FloatArray) -> FloatArray:
    """Means for an exposure of 1 by a regression for each entity; those of `one` where the entity is unknown."""
    some = _thinned(rows.known, NUMBERS_FOR_PENALTY // rows.n_coef**2)
    regressions = EntityRegressions.fit(Responses.of(some, rows.log_size))
    mean, _ = _predict_linear(rows, regressions)
    return np.where(rows.entities == UNKNOWN, one, _respond(mean, np.zeros(len(mean)), is_count=rows.is_count))


def _by_mixed_model(rows: _Rows) -> FloatArray | None:
    """The same by a mixed model; None if there is none: one entity only, or one event of each."""
    if rows.known.n_entities < 2 or rows.known.n_events == rows.known.n_entities:
        return None
    some = _thinned(rows.known, NUMBERS_FOR_MIXED // min(rows.n_coef, MOST_RANDOM) ** 2)
    entities = Responses.of(some, 0.0 if rows.is_count else None)
    try:
        most = min(MOST_CORRELATED, entities.n_groups / FEWEST_CORRELATED)
        model = ResponseMixedModel.fit(entities, diagonal=entities.n_coef > most)
        mean, variance = _predict_linear(rows, model, model.law_of_new())
    except np.linalg.LinAlgError:
        # a matrix of extreme numbers; the model itself is sound
        return None
    return _respond(mean, variance, is_count=rows.is_count)


def _respond(mean: FloatArray, variance: FloatArray, *, is_count: bool) -> FloatArray:
    """Mean responses where η is N(mean, variance): probabilities, or counts for an exposure of 1."""
    if is_count:
        return np.exp(np.minimum(mean + 0.5 * variance, LARGEST_LOG_MEAN))
    return np.asarray(expit(mean[:, None] + np.sqrt(variance)[:, None] * POINTS) @ POINT_WEIGHTS)


def _predict_linear(rows: _Rows, model: _Regressions, new: CoefLaw | None = None) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of η of each row by its entity's regression; by `new`, or 0, where the entity is unknown."""
    design = np.column_stack([np.ones(len(rows.features)), rows.features])
    mean = np.zeros(len(design))
    variance = np.zeros(len(design))
    order = np.argsort(rows.entities, kind="stable")
    order = order[rows.entities[order] != UNKNOWN]
    distinct, group = np.unique(rows.entities[order], return_inverse=True)

    def write(own: IndexArray, law: CoefLaw, of_row: IndexArray) -> None:
        mean[own] = np.einsum("rc,rc->r", design[own], law.mean[of_row])
        along = (law.covariance[of_row] @ design[own][..., None])[..., 0]
        variance[own] = np.maximum(np.einsum("rc,rc->r", design[own], along), 0.0)

    for part in _parts(rows.known, distinct, design.shape[1]):
        law = model.law(Responses.of(_at_most(rows.known, distinct[part], MOST_EACH), rows.log_size))
        first, last = np.searchsorted(group, [part.start, part.stop])
        size = max(1, NUMBERS_AT_ONCE // design.shape[1] ** 2)
        for begin in range(first, last, size):
            own = slice(begin, min(begin + size, last))
            write(order[own], law, group[own] - part.start)
    if new is not None:
        unknown = np.flatnonzero(rows.entities == UNKNOWN)
        write(unknown, new, np.zeros(len(unknown), dtype=np.int64))
    return mean, variance


def _parts(known: EventStore, entities: IndexArray, n_coef: int) -> Iterator[slice]:
    """Consecutive entities, with few enough events at a time to bound the memory of products of their columns."""
    sizes = np.minimum(np.diff(known.event_start)[entities], MOST_EACH)
    block = np.cumsum(sizes) // max(1, NUMBERS_AT_ONCE // max(n_coef**2, len(POINTS)))
    starts = [0, *(np.flatnonzero(np.diff(block)) + 1).tolist(), len(entities)]
    for first, last in pairwise(starts):
        if first < last:
            yield slice(first, last)


def _thinned(known: EventStore, n_events: int) -> EventStore:
    """The events, or about `n_events` of very many: the few numbers that entities share need no more."""
    n_events = max(FEWEST_EVENTS, n_events)
    if known.n_events <= n_events:
        return known
    each = max(FEWEST_EACH, n_events // known.n_entities)
    cost = int(np.minimum(np.diff(known.event_start), each).sum()) + COST_OF_ENTITY * known.n_entities
    n_chosen = max(2, int(known.n_entities * min(1.0, n_events / cost)))
    chosen = np.unique(np.linspace(0, known.n_entities - 1, n_chosen).astype(np.int64))
    return _at_most(known, chosen, each)


def _at_most(known: EventStore, entities: IndexArray, each: int) -> EventStore:
    """The events of some entities, at most `each` of one entity, evenly spaced."""
    taken = known.take(entities)
    sizes = np.diff(taken.event_start)
    if not len(sizes) or sizes.max() <= each:
        return taken
    place = np.arange(taken.n_events) - np.repeat(taken.event_start[:-1], sizes)
    kept = np.repeat(np.minimum(sizes, each), sizes)
    # true where the whole part of place · kept / size grows
    return taken.where((place + 1) * kept // np.repeat(sizes, sizes) > place * kept // np.repeat(sizes, sizes))
