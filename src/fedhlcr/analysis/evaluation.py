"""How well a model predicts events, compared with simpler models: one evaluation for all families of targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.threads import single_threaded_blas
from fedhlcr.analysis.rivals import predict_by_rivals
from fedhlcr.analysis.scores import Scores, log_fit, scores_of
from fedhlcr.analysis.simpler import ONE_RATE, RIDGE_PER_ENTITY
from fedhlcr.analysis.verdict import FitComparison, compare_densities
from fedhlcr.data import inputs
from fedhlcr.data.families import Family
from fedhlcr.data.hierarchy import UNKNOWN, EntityIndex
from fedhlcr.data.ids import Ids, natural_key, read_ids
from fedhlcr.data.inputs import EncodedTable
from fedhlcr.exceptions import ArgumentError
from fedhlcr.posterior.fitted_model import check_model
from fedhlcr.posterior.prediction import Posterior
from fedhlcr.posterior.responses import Moments, interval_ends
from fedhlcr.storage.scratch import release

# A table counts as the fitted one if more than this share of its entities have exactly the fitted events.
SAME_TABLE_SHARE = 0.5
# Rows to predict at a time, so that progress can be shown.
CHUNK = 1 << 18
Progress = Callable[[int], None]


LEVEL = 0.9
# Coverage further than this from the level of the intervals, beyond chance, is told.
COVERAGE_SLACK = 0.02
# The name of the model among the scores.
MODEL = "HLCR"
# The name of the only agent of a table without agents.
EVERYBODY = "all events"


def coverage_gap(level: float, n_events: int) -> float:
    """How far the coverage of intervals may be from their level: a little, and two standard errors."""
    return COVERAGE_SLACK + 2.0 * float(np.sqrt(level * (1.0 - level) / n_events))


@dataclass(frozen=True)
class HeldOut:
    """Events that the model was not fitted with; X, y, agent, entity and, for counts, exposure as in `score`."""

    X: Any
    y: Any = None
    agent: Any = None
    entity: Any = None
    exposure: Any = None

    def read(self, model: Any) -> HeldOut:
        """The same events with columns in place of names, and without rows that have missing values."""
        given = check_model(model).events_of(self.X, self.y, self.agent, self.entity, exposure=self.exposure)
        return HeldOut(given.X, given.y, given.agent, given.entity, given.exposure)


@dataclass(frozen=True)
class Evaluation:
    """How well a model, and simpler models, predict the given events.

    Attributes
    ----------
    family : what the target is
    scores : by name, of the model first; then of simpler models, fitted to the events that the model holds
    observed, predicted : (n_events,) targets as numbers, and their predicted means
    n_new_entities, n_new_agents : numbers of events of new entities of known agents, and of new agents
    was_fitted : whether these are the events the model was fitted with
    densities : the model against the simpler ones, event by event, in log density; for counts in half the Poisson
        deviance. None without simpler models
    errors : the same in squared error, of real targets
    agent_events : (agents,) number of events of each agent of the model
    agent_errors : (agents,) root mean squared error by name, of the model and of a ridge per entity, if there is one;
        NaN for an agent without events. Empty if all agents are new, and for classes and counts
    """

    family: Family
    scores: Mapping[str, Scores]
    observed: FloatArray
    predicted: FloatArray
    n_new_entities: int
    n_new_agents: int
    was_fitted: bool
    densities: FitComparison | None
    errors: FitComparison | None
    agent_events: IndexArray
    agent_errors: Mapping[str, FloatArray]

    @property
    def n_events(self) -> int:
        return len(self.observed)

    @property
    def model(self) -> Scores:
        return self.scores[MODEL]

    @property
    def constant(self) -> Scores | None:
        """The scores of the same prediction for all events: that of the fitted ones."""
        return self.scores.get(ONE_RATE)

    @property
    def rivals(self) -> dict[str, Scores]:
        """The scores of the simpler models that know features or entities."""
        return {name: own for name, own in self.scores.items() if name not in (MODEL, ONE_RATE)}


@single_threaded_blas
def evaluate(model: Any, data: HeldOut, level: float = LEVEL, predicted: Moments | None = None) -> Evaluation:
    """Compare a model and simpler models with the observed targets.

    Parameters
    ----------
    model : a fitted estimator
    data : the events
    level : probability of the intervals
    predicted : the predictions, if they are known; their quantiles are the ends of intervals
    """
    model = check_model(model)
    posterior = model.posterior_
    family = posterior.likelihood.family
    rows = model.read_events(data.X, data.agent, data.entity)
    n_events = len(rows.matrix)
    observed = model.numeric_target(data.y, n_events)
    if data.exposure is not None and not family.has_exposure:
        raise ArgumentError("`exposure` is for counts; leave it out, or use a model of counts.")
    agents, entities = (ids[rows.profiles.of_row] for ids in (rows.profiles.agents, rows.profiles.entities))
    offset = inputs.log_exposure(data.exposure, n_events)
    if predicted is None:
        predicted = _predict(posterior, rows, level, offset)
    exposure = None if offset is None else np.exp(offset)
    own = None if family.has_link else posterior.log_density(rows.matrix, observed, rows.profiles)
    scores = {MODEL: scores_of(family, observed, predicted.mean, predicted.quantiles, level, own)}
    rivals = predict_by_rivals(posterior, rows.matrix, observed, entities, exposure)
    for rival in rivals:
        density = None if family.has_link else rival.log_density
        scores[rival.name] = scores_of(family, observed, rival.mean, log_density=density)
    densities = errors = None
    compared = [rival for rival in rivals if rival.name != ONE_RATE]
    if compared:
        groups = entity_groups(entities, rows.agent, rows.entity)
        fit = log_fit(family, observed, predicted.mean) if own is None else own
        densities = compare_densities(fit, {rival.name: rival.log_density for rival in compared}, groups)
        if not family.has_link:
            squares = {rival.name: -((observed - rival.mean) ** 2) for rival in compared}
            errors = compare_densities(-((observed - predicted.mean) ** 2), squares, groups)
    known = agents != UNKNOWN
    of_agents = {}
    if errors is not None and known.any():
        means = {MODEL: predicted.mean, **{r.name: r.mean for r in compared if r.name == RIDGE_PER_ENTITY}}
        of_agents = {
            name: _agent_errors(len(model.agent_ids_), agents, observed - mean) for name, mean in means.items()
        }
    return Evaluation(
        family=family,
        scores=scores,
        observed=observed,
        predicted=predicted.mean,
        n_new_entities=int(((entities == UNKNOWN) & known).sum()),
        n_new_agents=int((~known).sum()),
        was_fitted=was_fitted(model, rows.features, data.y, rows.agent, rows.entity),
        densities=densities,
        errors=errors,
        agent_events=np.bincount(agents[known], minlength=len(model.agent_ids_)),
        agent_errors=of_agents,
    )


def _predict(posterior: Posterior, rows: Any, level: float, offset: FloatArray | None) -> Moments:
    """Predictions of rows; the quantiles are the ends of intervals."""
    if not posterior.likelihood.family.has_exposure:
        return posterior.predict(rows.matrix, rows.profiles, interval_ends(level), offset)
    # the interval of a count is not bounded by its central quantiles
    moments = posterior.predict(rows.matrix, rows.profiles, (), offset)
    ends = posterior.interval(rows.matrix, rows.profiles, level, offset)
    return moments._replace(quantiles=np.column_stack(ends))


def _agent_errors(n_agents: int, agents: IndexArray, error: FloatArray) -> FloatArray:
    known = agents != UNKNOWN
    n_events = np.bincount(agents[known], minlength=n_agents)
    total = np.bincount(agents[known], weights=error[known] ** 2, minlength=n_agents)
    return np.sqrt(np.where(n_events > 0, total / np.maximum(n_events, 1), np.nan))


def entity_groups(entities: IndexArray, own_agent: Any, own_entity: Any) -> IndexArray:
    """(events,) a number for the entity of each event, also of entities that the model does not know."""
    groups = np.array(entities)
    new = groups == UNKNOWN
    if new.any():
        given = {"agent": own_agent, "entity": own_entity}
        codes = [read_ids(own, name, len(groups)).codes[new] for name, own in given.items() if own is not None]
        # rows without ids are entities of their own
        pairs = np.column_stack(codes) if codes else np.arange(new.sum())[:, None]
        groups[new] = groups.max() + 1 + np.unique(pairs, axis=0, return_inverse=True)[1].ravel()
    return groups


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
    model = check_model(model)
    has_counts = model.posterior_.likelihood.family.has_exposure
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
    model = check_model(model)
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
        self._model = check_model(model)
        self._known = self._model.posterior_.memory.entities
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


class AgentGroups:
    """Numbers for the agents of a table that comes in batches: those that a model knows, then new ones."""

    def __init__(self, index: EntityIndex) -> None:
        self._index = index
        self._new: dict[str, int] = {}
        # the names of the agents that occur, as the table has them
        self._names: dict[int, tuple[str, Any]] = {}

    def of_rows(self, agents: Ids | None, n_rows: int) -> IndexArray:
        """(rows,) the number of each row's agent."""
        if agents is None:
            self._names[0] = ("", EVERYBODY)
            return np.zeros(n_rows, dtype=np.int64)
        codes = self._index.agents.texts.find(agents.texts)
        texts = list(agents.texts)
        for place in np.flatnonzero(codes == UNKNOWN).tolist():
            codes[place] = self._new.setdefault(texts[place], self._index.n_agents + len(self._new))
        for code, text, value in zip(codes.tolist(), texts, agents.values, strict=True):
            self._names.setdefault(code, (text, value))
        return codes[agents.codes]

    def in_order(self) -> list[tuple[Any, int]]:
        """The name and the number of each agent, in natural order."""
        ordered = sorted(self._names.items(), key=lambda item: natural_key(item[1][0]))
        return [(value, code) for code, (_, value) in ordered]
