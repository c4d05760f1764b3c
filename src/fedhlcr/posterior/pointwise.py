"""The log likelihood of single events in each draw: log p(y_n | θ^s), as leave-one-out cross-validation needs it.

θ^s is one draw of everything given the fitted events: the globals, the label of the event's entity, the effects of its
agent and of itself, and its noise. Effects of entities are integrated out in the sampler and not kept, so they are
drawn here from their law given all else, which leaves the posterior as it is. Weights of events (Student-t noise,
classes, counts) serve to draw these effects; the density of an event is without its weight.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.streams import Stream
from fedhlcr.model.arguments import EventPoints, FittedEntities
from fedhlcr.model.counts import mean_rates
from fedhlcr.model.schema import Level, State
from fedhlcr.posterior.prediction import Posterior


class KnownEvents(NamedTuple):
    """Events of entities that the model knows, in the units of the run.

    Attributes
    ----------
    design : (events, n_coef)
    target : (events,)
    offset : (events,) what is added to the linear part
    weight : (events,) frequencies; the log likelihood of an event counts so often
    entities : (events,) positions of their entities in the posterior's memory
    """

    design: FloatArray
    target: FloatArray
    offset: FloatArray
    weight: FloatArray
    entities: IndexArray

    @classmethod
    def kept(cls, posterior: Posterior) -> KnownEvents | None:
        """The events that the model keeps; None if it keeps matrices only."""
        store = posterior.memory.entities.events
        if store is None or not store.n_events:
            return None
        entities = np.repeat(np.arange(store.n_entities), np.diff(store.event_start))
        return cls(_with_constant(posterior, store.X), store.y, store.offsets, store.weight, entities)

    @classmethod
    def read(
        cls, posterior: Posterior, X: FloatArray, y: FloatArray, offset: FloatArray | None, entities: IndexArray
    ) -> KnownEvents:
        """Events in the user's units."""
        units = posterior.standardization
        zeros = np.zeros(len(y))
        design = _with_constant(posterior, units.apply(X))
        return cls(design, units.apply_target(y), zeros if offset is None else offset, zeros + 1.0, entities)


class EventDraws(NamedTuple):
    """(draws, events) each: log likelihoods of the events, and new targets from the same laws, in the user's units."""

    log_likelihood: FloatArray
    predictive: FloatArray


def draw_events(posterior: Posterior, events: KnownEvents, draws: IndexArray, stream: Stream) -> EventDraws:
    """The log likelihood of events in some of the draws, and new targets.

    Effects of an entity depend on the stream and on the entity, not on which events are given.
    """
    likelihood = posterior.likelihood
    memory = posterior.memory
    scale = float(posterior.standardization.scale[-1])
    own, of_event = np.unique(events.entities, return_inverse=True)
    noise = likelihood.noise_scales(posterior.draws.stacked)
    means = _entity_means(posterior, own)[of_event] * np.exp(events.offset)
    out = EventDraws(*(np.empty((len(draws), len(events.target))) for _ in range(2)))
    for row, draw in enumerate(draws.tolist()):
        current = posterior.draws.globals(draw)
        known = known_entities(posterior, own, draw)
        normals = stream.generator(draw, "effects").standard_normal((len(memory.entities), posterior.layout.n_coef))
        coef = likelihood.entity_coef(current, known, normals[own])
        linear = np.einsum("nf,nf->n", events.design, coef[of_event]) + events.offset
        scales = _scales(posterior, draw, known.agent_state, noise[draw, known.labels])
        # the state of single events is not needed here
        agent_state = {
            field.name: known.agent_state[field.name][of_event]
            for field in likelihood.state_fields
            if field.level != Level.EVENT
        }
        points = EventPoints(linear, events.target, scales[of_event], means, agent_state)
        out.log_likelihood[row] = events.weight * (likelihood.event_log_densities(current, points) - np.log(scale))
        out.predictive[row] = likelihood.draw_targets(current, points, stream.generator(draw, "events"))
    return out._replace(predictive=posterior.standardization.restore_target(out.predictive))


def known_entities(posterior: Posterior, entities: IndexArray, draw: int) -> FittedEntities:
    """What agents keep of the given entities in one draw."""
    memory = posterior.memory
    places = memory.places(memory.entities.index.agent_of[entities], entities)
    agent_state = {name: memory.agent_state[name][draw, of].astype(np.float64) for name, of in places.items()}
    labels = np.asarray(memory.labels[draw, entities]).astype(np.int64)
    return FittedEntities(memory.entities.grams[entities], labels, agent_state, memory.events_of(entities))


def _scales(posterior: Posterior, draw: int, agent_state: State, of_cluster: FloatArray) -> FloatArray:
    """(entities,) noise scales in one draw: those of the entities, or those of their clusters."""
    one = posterior.draws.stacked_draw(draw)
    own = posterior.likelihood.entity_noise(one, {name: values[None] for name, values in agent_state.items()})
    return of_cluster if own is None else own[0]


def _entity_means(posterior: Posterior, entities: IndexArray) -> FloatArray:
    """(entities,) mean target per exposure of the fitted events, as counts need it; 0 where events are not kept."""
    events = posterior.memory.events_of(entities)
    return np.zeros(len(entities)) if events is None else mean_rates(events)


def _with_constant(posterior: Posterior, X: FloatArray) -> FloatArray:
    return np.column_stack([np.ones(len(X)), X]) if posterior.layout.fit_intercept else np.asarray(X)
