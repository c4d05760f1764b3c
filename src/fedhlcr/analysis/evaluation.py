"""How well a model predicts events: a few figures, of all of them and of each agent's."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr.data.encoded import EncodedTable
from fedhlcr.data.hierarchy import UNKNOWN
from fedhlcr.data.ids import Ids
from fedhlcr.posterior.predictive import Moments

# A table counts as the fitted one if more than this share of its entities have the very events that were fitted.
SAME_TABLE_SHARE = 0.5
# Rows predicted at a time, so that progress can be told.
CHUNK = 20_000
Progress = Callable[[int], None]


class Errors(NamedTuple):
    """How far predictions are from what was observed.

    Attributes
    ----------
    r2 : share of the target's variance that is explained; NaN where it has none
    mse, mae : mean squared and mean absolute error
    """

    r2: float
    mse: float
    mae: float

    @classmethod
    def of(cls, observed: FloatArray, predicted: FloatArray) -> Errors:
        # what rounding leaves of a constant target is no spread
        error, spread = observed - predicted, float(observed.var()) if np.ptp(observed) > 0.0 else 0.0
        mse = float((error**2).mean())
        return cls(1.0 - mse / spread if spread > 0.0 else float("nan"), mse, float(np.abs(error).mean()))


class Scores(NamedTuple):
    """Figures of predictions.

    Attributes
    ----------
    n_events : how many were predicted
    r2, mse, mae : as in `Errors`
    coverage : share of the targets inside their central intervals of probability `level`
    width : mean width of these intervals
    level : probability that an interval is to hold its target
    """

    n_events: int
    r2: float
    mse: float
    mae: float
    coverage: float
    width: float
    level: float

    @classmethod
    def of(cls, y: FloatArray, predicted: Moments, level: float) -> Scores:
        """`predicted` with two quantiles: the ends of the intervals."""
        lower, upper = predicted.quantiles.T
        inside = (lower <= y) & (y <= upper)
        errors = Errors.of(y, predicted.mean)
        return cls(len(y), *errors, float(inside.mean()), float((upper - lower).mean()), level)


def predict_in_chunks(
    model: Any,
    table: EncodedTable,
    agent: Ids | None,
    entity: Ids | None,
    levels: tuple[float, ...],
    progress: Progress,
) -> Moments:
    """Predict all rows of a table, a few thousand at a time.

    Parameters
    ----------
    model : a fitted estimator
    table : the features
    agent, entity : ids of the rows, as in `predict`
    levels : probabilities of the quantiles
    progress : called after each chunk with its number of rows
    """
    parts = []
    for first in range(0, len(table), CHUNK):
        rows = slice(first, first + CHUNK)
        own_agent, own_entity = (None if ids is None else ids.take(rows) for ids in (agent, entity))
        parts.append(model.predict_moments(table.take(rows), own_agent, own_entity, levels))
        progress(len(parts[-1].mean))
    return Moments(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def was_fitted(model: Any, X: Any, y: Any, agent: Any, entity: Any) -> bool:
    """Whether a table holds, by and large, the events a model was fitted to: its figures are then optimistic."""
    return share_seen(model, X, y, agent, entity) > SAME_TABLE_SHARE


def share_seen(model: Any, X: Any, y: Any, agent: Any, entity: Any) -> float:
    """Share of the entities in a table whose events are, one and all, those the model knows.

    Two sets of events with the same sums are the same, but for an accident.
    """
    known = model.posterior_.memory.entities
    nobody = agent is None and model.sole_agent_ is None and entity is not None
    if not len(known) or nobody:
        return 0.0
    if entity is None:
        # rows are entities of their own, and have no names: all of them are the same, or none
        everyone = model.entities_of(X, y, agent=np.zeros(len(y)), entity=np.zeros(len(y))).grams
        return float(_same(known.grams.sum(axis=0, keepdims=True), everyone)[0])
    given = model.entities_of(X, y, agent=agent, entity=entity)
    agents = known.index.find_agents(given.index.agents._replace(codes=given.index.agent_of))
    place = known.index.find_entities(agents, given.index.entities._replace(codes=given.index.entity_of))
    both = np.flatnonzero(place != UNKNOWN)
    return float(_same(known.grams[place[both]], given.grams[both]).sum() / max(len(given), 1))


def _same(a: FloatArray, b: FloatArray) -> NDArray[np.bool_]:
    """Whether Gram matrices (groups, packed) are of the same events, as far as rounding tells."""
    size = np.maximum(np.abs(a).max(axis=1), np.abs(b).max(axis=1))
    return np.asarray(np.abs(a - b).max(axis=1) <= 1e-8 * size)


def scores_by_agent(y: FloatArray, predicted: Moments, level: float, agents: Ids) -> list[tuple[Any, Scores]]:
    """Figures of each agent's events, in the agents' order."""
    order = np.argsort(agents.codes, kind="stable")
    ends = np.searchsorted(agents.codes[order], np.arange(len(agents.texts) + 1))
    groups: list[NDArray[np.intp]] = [order[first:last] for first, last in pairwise(ends)]
    return [
        (agent, Scores.of(y[rows], Moments(*(part[rows] for part in predicted)), level))
        for agent, rows in zip(agents.values, groups, strict=True)
    ]
