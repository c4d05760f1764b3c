"""How well a model predicts events: errors and coverage, overall and by agent."""

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
from fedhlcr.posterior.predictive import Moments, interval_ends
from fedhlcr.storage.scratch import release

# A table counts as the fitted one if more than this share of its entities have exactly the fitted events.
SAME_TABLE_SHARE = 0.5
# Rows to predict at a time, so that progress can be shown.
CHUNK = 1 << 18
Progress = Callable[[int], None]


class Errors(NamedTuple):
    """Errors of predictions.

    Attributes
    ----------
    r2 : share of the target's variance that is explained; NaN if the target is constant
    mse, mae : mean squared and mean absolute error
    """

    r2: float
    mse: float
    mae: float

    @classmethod
    def of(cls, observed: FloatArray, predicted: FloatArray) -> Errors:
        # rounding errors of a constant target are not a spread
        error = observed - predicted
        spread = float(observed.var()) if np.ptp(observed) > 0.0 else 0.0
        mse = float((error**2).mean())
        return cls(1.0 - mse / spread if spread > 0.0 else float("nan"), mse, float(np.abs(error).mean()))


class Scores(NamedTuple):
    """Errors of predictions, and coverage of their intervals.

    Attributes
    ----------
    n_events : number of events
    r2, mse, mae : as in `Errors`
    coverage : share of the targets inside their central intervals of probability `level`
    width : mean width of these intervals
    level : probability of the intervals
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
        """Scores of `predicted`, whose two quantiles are the ends of the intervals."""
        lower, upper = predicted.quantiles.T
        inside = (lower <= y) & (y <= upper)
        errors = Errors.of(y, predicted.mean)
        return cls(len(y), *errors, float(inside.mean()), float((upper - lower).mean()), level)


def predict_in_chunks(
    model: Any,
    table: EncodedTable,
    agent: Ids | None,
    entity: Ids | None,
    level: float | None,
    progress: Progress,
    exposure: FloatArray | None = None,
) -> Moments:
    """Predict all rows of a table, a few thousand at a time. The quantiles are the ends of intervals.

    Parameters
    ----------
    model : a fitted estimator
    table : the features
    agent, entity : ids of the rows, as in `predict`
    level : probability of the intervals; None for none
    progress : called after each chunk with its number of rows
    exposure : of the rows, for counts
    """
    # the interval of a count is not bounded by its central quantiles
    has_counts = model.family.has_exposure
    levels = () if level is None or has_counts else interval_ends(level)
    parts = []
    for first in range(0, len(table), CHUNK):
        rows = slice(first, first + CHUNK)
        own_agent, own_entity = (None if ids is None else ids.take(rows) for ids in (agent, entity))
        arguments = table.take(rows), own_agent, own_entity
        own_exposure = None if exposure is None else exposure[rows]
        moments = model.predict_moments(*arguments, levels, exposure=own_exposure)
        if has_counts and level is not None:
            ends = model.interval_of(*arguments, level, exposure=own_exposure)
            moments = moments._replace(quantiles=np.column_stack(ends))
        parts.append(moments)
        progress(len(moments.mean))
    return Moments(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def was_fitted(model: Any, X: Any, y: Any, agent: Any, entity: Any) -> bool:
    """Whether a table holds mostly the events that the model was fitted to; scores on it are optimistic."""
    return share_seen(model, X, y, agent, entity) > SAME_TABLE_SHARE


def share_seen(model: Any, X: Any, y: Any, agent: Any, entity: Any) -> float:
    """Share of the entities in a table whose events are exactly those the model knows.

    Events are compared by their Gram matrices.
    """
    known = model.posterior_.memory.entities
    nobody = agent is None and model.sole_agent_ is None and entity is not None
    if not len(known) or nobody:
        return 0.0
    if entity is None:
        # each row is its own entity without a name: compare the whole table
        everyone = model.entities_of(X, y, agent=np.zeros(len(y)), entity=np.zeros(len(y))).grams
        return float(_same(known.grams.sum(axis=0, keepdims=True), everyone)[0])
    given = model.entities_of(X, y, agent=agent, entity=entity)
    agents = known.index.find_agents(given.index.agents.with_codes(given.index.agent_of))
    place = known.index.find_entities(agents, given.index.entities.with_codes(given.index.entity_of))
    both = np.flatnonzero(place != UNKNOWN)
    return float(_same(known.grams[place[both]], given.grams[both]).sum() / max(len(given), 1))


class SeenEvents:
    """Finds out whether a model was fitted to events that come in batches; `was_fitted` does so for all at once.

    For each entity it compares the number of its events, the sum of their targets, and the sum of the targets' squares.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._known = model.posterior_.memory.entities
        self._sums = np.zeros((3, len(self._known)))
        self._n_unknown = 0

    def add(self, X: Any, y: FloatArray, agent: Any, entity: Any) -> None:
        """Add events; y are numbers, arguments else as in `was_fitted`."""
        if not len(self._known) or entity is None or (agent is None and self._model.sole_agent_ is None):
            self._n_unknown += len(y)
            return
        profiles = self._model.read_events(X, agent, entity).profiles
        place = profiles.entities[profiles.of_row]
        rows = np.flatnonzero(place != UNKNOWN)
        target = self._model.posterior_.standardization.apply_target(y[rows])
        for sums, values in zip(self._sums, (np.ones(len(rows)), target, target**2), strict=True):
            sums += np.bincount(place[rows], weights=values, minlength=len(sums))
        self._n_unknown += len(y) - len(rows)

    @property
    def were_fitted(self) -> bool:
        """Whether most entities so far have exactly the fitted events."""
        layout = self._model.posterior_.layout
        n_same = 0
        last = layout.packed_size - 1
        # of the packed matrix: n, Σy, which is first in the row of the target, and Σy², which is last
        places = [0, last - layout.width + 1, last]
        for first in range(0, len(self._known), CHUNK):
            sums = self._sums[:, first : first + CHUNK].T
            present = sums[:, 0] > 0.0
            n_same += int(_same(self._known.grams[first : first + CHUNK, places][present], sums[present]).sum())
            # of a mapped file, this has read every page
            release(self._known.grams)
        return n_same > SAME_TABLE_SHARE * (int((self._sums[0] > 0.0).sum()) + self._n_unknown)


def _same(a: FloatArray, b: FloatArray) -> NDArray[np.bool_]:
    """Whether Gram matrices (groups, packed) are equal up to rounding."""
    size = np.maximum(np.abs(a).max(axis=1), np.abs(b).max(axis=1))
    return np.asarray(np.abs(a - b).max(axis=1) <= 1e-8 * size)


def rows_by_agent(agents: Ids) -> list[tuple[Any, NDArray[np.intp]]]:
    """Positions of each agent's events, in the order of the agents."""
    order = np.argsort(agents.codes, kind="stable")
    ends = np.searchsorted(agents.codes[order], np.arange(len(agents.texts) + 1))
    return [(agent, order[first:last]) for agent, (first, last) in zip(agents.values, pairwise(ends), strict=True)]
