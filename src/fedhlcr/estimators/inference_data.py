"""A fitted model for ArviZ: its draws, and the log likelihood of each event."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.streams import ReservedChain, Stream
from fedhlcr._support.version import __version__
from fedhlcr._support.wording import EVENT as EVENTS
from fedhlcr.analysis.inference import (
    EVENT,
    FEATURE,
    Group,
    Variable,
    chosen,
    event_groups,
    kept_draws,
    posterior_group,
    stats_group,
    to_arviz,
)
from fedhlcr.data.hierarchy import UNKNOWN, EntityIndex, numbered, numbered_rows, row_agents, row_entities
from fedhlcr.exceptions import ArgumentError, DataWarning, warn_user
from fedhlcr.posterior import Posterior
from fedhlcr.posterior.event_rows import EventRows
from fedhlcr.posterior.fitted_model import FittedModel
from fedhlcr.posterior.pointwise import KnownEvents, draw_events

# Sums of the features and targets of an entity that differ by more than this share are those of other events.
SAME = 1e-6


def inference_data(model: FittedModel, rows: EventRows | None, name: str) -> Any:
    """The draws as ArviZ's `InferenceData`, and what events say in each of them.

    Parameters
    ----------
    model : the fitted model
    rows : the events of the fit, or all events of some of its entities; None takes those that the model keeps
    name : of the estimator's class
    """
    kept = kept_draws(model.posterior_.draws).ravel()
    groups = {
        "posterior": chosen(posterior_group(model), kept),
        "sample_stats": chosen(stats_group(model), kept),
    }
    events = KnownEvents.kept(model.posterior_) if rows is None else _fitted_events(model, rows)
    if events is not None:
        drawn = draw_events(model.posterior_, events, kept, Stream(model.seed_, ReservedChain.POINTWISE))
        observed = model.posterior_.standardization.restore_target(events.target)
        groups |= event_groups(drawn, observed, _constants(model, events))
    facts = {"inference_library": "fedhlcr", "inference_library_version": __version__, "model": name}
    return to_arviz(model, groups, facts)


def _fitted_events(model: FittedModel, rows: EventRows) -> KnownEvents:
    """Find the entities of events, and warn if they are not those of the fit."""
    n_rows = len(rows)
    index = model.posterior_.memory.entities.index
    if rows.read.given.y is None:
        raise ArgumentError("`y` is missing; pass the targets of the events, or no events.")
    agents = row_agents(model.schema.agents_or_sole(rows.agent, n_rows), n_rows)
    if rows.entity is None and _has_numbered_entities(index):
        ids = numbered_rows(agents.codes)
    elif rows.entity is None:
        raise ArgumentError("`entity` is missing; pass one entity id per event row, so that events find theirs.")
    else:
        ids = row_entities(rows.entity, n_rows)
    places = index.find_entities(index.find_agents(agents), ids)
    if n_unknown := int((places == UNKNOWN).sum()):
        raise ArgumentError(
            f"the model does not know the entities of {EVENTS.count(n_unknown)} of {n_rows:,}; pass events of the fit, "
            "or `adapt` the model to these events first."
        )
    events = KnownEvents.read(model.posterior_, rows.matrix, rows.target, rows.offset, places)
    if not _are_fitted(model.posterior_, events):
        warn_user(
            "These are not all events that their entities were fitted to, or others. The log likelihood is that of the "
            "events given; az.loo and az.waic need the events of the fit.",
            DataWarning,
        )
    return events


def _constants(model: FittedModel, events: KnownEvents) -> Group:
    posterior = model.posterior_
    index = posterior.memory.entities.index
    units = posterior.standardization
    n_features = model.n_features_in_
    first = 1 - posterior.layout.first_regressor
    # a constant feature has an infinite scale
    scale = np.where(np.isfinite(units.scale), units.scale, 0.0)[:n_features]
    X = events.design[:, first : first + n_features] * scale + units.shift[:n_features]
    texts = (_texts(index.agents, index.agent_of), _texts(index.entities, index.entity_of))
    group = {
        "X": Variable((EVENT, FEATURE), X),
        "agent": Variable((EVENT,), texts[0][events.entities]),
        "entity": Variable((EVENT,), texts[1][events.entities]),
    }
    if events.offset.any():
        group["exposure"] = Variable((EVENT,), np.exp(events.offset))
    return group


def _texts(ids: Any, codes: NDArray[np.int64]) -> NDArray[Any]:
    return np.array([str(value) for value in ids.values])[codes]


def _has_numbered_entities(index: EntityIndex) -> bool:
    """Whether `fit` had no entity ids, so that each row is an entity of its own."""
    return bool(index.n_entities) and next(iter(index.entities.texts)) == numbered(0)


def _are_fitted(posterior: Posterior, events: KnownEvents) -> bool:
    """Whether entities have as many events as in the fit, with the same sums of features and targets."""
    own, of_event = np.unique(events.entities, return_inverse=True)
    features = events.design[:, 1 - posterior.layout.first_regressor :]
    columns = np.column_stack([np.ones(len(features)), features, events.target])
    sums = np.zeros((len(own), columns.shape[1]))
    np.add.at(sums, of_event, columns)
    fitted = posterior.layout.unpack(np.asarray(posterior.memory.entities.grams[own]))[:, 0]
    return bool((np.abs(sums - fitted) <= SAME * (fitted[:, :1] + np.abs(fitted))).all())
