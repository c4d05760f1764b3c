"""What agents remember of a fit: their Gram matrices, and the labels and the agent state of each kept draw.

It is private to its agents. Of a million entities a hundred draws of labels are 100 MB, and a number for each entity
and draw 400 MB, so large arrays are in files (`storage.scratch`, or the model file), read by blocks of entities.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray, ranges
from fedhlcr._support.streams import Stream
from fedhlcr._support.threads import run_blocks
from fedhlcr.data.events import EventStore
from fedhlcr.data.hierarchy import UNKNOWN, EntityIndex
from fedhlcr.kernels.label_weights import AgentLabels, count_agent
from fedhlcr.kernels.profiles import gather_draws
from fedhlcr.model.likelihood import AnyLikelihood
from fedhlcr.model.schema import Level, State
from fedhlcr.posterior.draws import Draws
from fedhlcr.samplers.blocked import AgentStates, relabel
from fedhlcr.samplers.state import Draw, EntityData
from fedhlcr.storage import scratch

# The state of agents in each draw, by name: (draws, agents or entities or events, ...).
StateDraws = dict[str, NDArray[np.float32]]
# The same where agents have no labels yet.
LABEL_SWEEPS = 5
# The same where weights of events settle slowly: sweeps in the first draw of a segment, in its other draws, which begin
# with the weights of the draw before, and the number of draws in a segment.
FIRST_SWEEPS = 20
NEXT_SWEEPS = 3
SEGMENT = 10
# Agents with more entities than this are counted once, not whenever some of their entities are predicted for.
LARGE_AGENT = 1024
# Rows of mapped draws are few if there is less than one among so many; then so many draws are mapped at a time.
FAR_APART = 100
DRAWS_AT_ONCE = 8


@dataclass(frozen=True)
class AgentMemory:
    """The private part: the agents' Gram matrices, and the labels and the agent state of each draw."""

    entities: EntityData
    labels: NDArray[np.integer]  # (draws, entities)
    agent_state: StateDraws = field(default_factory=dict)

    @classmethod
    def from_chains(cls, entities: EntityData, chains: Sequence[Sequence[Draw]]) -> AgentMemory:
        kept = [draw for chain in chains for draw in chain]
        n_clusters = max(draw.globals.n_clusters for draw in kept)
        shape = (len(kept), len(entities))
        kind = np.min_scalar_type(n_clusters)
        labels = scratch.stacked((draw.labels for draw in kept), shape, kind)
        agent_state = {}
        for name in (own.name for own in entities.likelihood.state_fields):
            shape = (len(kept), *kept[0].agent_state[name].shape)
            agent_state[name] = scratch.stacked((draw.agent_state[name] for draw in kept), shape, np.float32)
        return cls(entities, labels, agent_state)

    @classmethod
    def of_nobody(cls, likelihood: AnyLikelihood, draws: Draws, n_threads: int) -> AgentMemory:
        """The memory of a public model: no agents."""
        grams = np.empty((0, likelihood.layout.packed_size))
        events = EventStore.empty(likelihood.layout.n_features) if likelihood.needs_events else None
        entities = EntityData(likelihood, EntityIndex.empty(), grams, n_threads, events)
        labels = np.empty((len(draws), 0), dtype=np.min_scalar_type(draws.n_clusters))
        return cls(entities, labels, empty_state(entities, len(draws)))

    @classmethod
    def from_draws(cls, entities: EntityData, draws: Draws, stream: Stream) -> AgentMemory:
        """Draw labels given the public draws alone, so that agents can predict that took no part in the fit.

        Given the globals the agents are independent, so this is the agents' half of the blocked sampler. It starts
        without labels in every draw, so that an agent whose labels seldom move is not stuck in one mode for all draws.
        Weights of events, where there are any, go on from draw to draw.
        """
        labels = scratch.empty((len(draws), len(entities)), np.min_scalar_type(draws.n_clusters))
        agent_state = empty_state(entities, len(draws))
        # threads run over draws here, not over agents
        alone = replace(entities, n_threads=1)
        slow = entities.likelihood.settles_slowly
        segment, first, following = (SEGMENT, FIRST_SWEEPS, NEXT_SWEEPS) if slow else (1, LABEL_SWEEPS, LABEL_SWEEPS)

        def label(number: int) -> None:
            own = AgentStates.unlabelled(alone)
            for draw in range(number * segment, min((number + 1) * segment, len(draws))):
                n_sweeps = first if draw % segment == 0 else following
                own = replace(own, labels=np.full_like(own.labels, -1))
                for sweep in range(n_sweeps):
                    own, _ = relabel(alone, draws.globals(draw), own, draw * first + sweep, stream)
                labels[draw] = own.labels
                for name, values in own.agent_state.items():
                    agent_state[name][draw] = values

        run_blocks(label, math.ceil(len(draws) / segment), entities.n_threads)
        return cls(entities, labels, agent_state)

    def release(self) -> None:
        """Drop what was read of mapped arrays from memory; the file still has it."""
        scratch.release(self.entities.grams, self.labels, *self.agent_state.values())

    def state_of(self, agents: IndexArray, entities: IndexArray) -> State:
        """The agent state of pairs by name, (pairs, draws, ...); the initial value where an id is UNKNOWN.

        That of events has a row for each event of the pairs, as in `events_of`.
        """
        out: State = {}
        places = self.places(agents, entities)
        for own in self.entities.likelihood.state_fields:
            kept = np.asarray(self.agent_state[own.name])
            at = places[own.name]
            values = np.empty((len(at), len(self.labels), *kept.shape[2:]))
            if scratch.mapping_of(kept) is not None and FAR_APART * len(at) < kept.shape[1]:
                _gather_few(kept, at, own.initial, values)
            else:
                # not −1, which cannot be resolved for arrays without rows: of public models, or of new entities alone
                width = math.prod(kept.shape[2:])
                flat = values.reshape(*values.shape[:2], width)
                gather_draws(kept.reshape(*kept.shape[:2], width), at, own.initial, flat)
            out[own.name] = values
        return out

    def places(self, agents: IndexArray, entities: IndexArray) -> dict[str, IndexArray]:
        """Where the agent state of pairs is, by name: positions of agents, of entities, or of the pairs' events."""
        of: dict[Level, IndexArray] = {Level.AGENT: agents, Level.ENTITY: entities}
        if self.entities.events is not None:
            of[Level.EVENT] = self.entities.events.places(entities)
        return {own.name: of[own.level] for own in self.entities.likelihood.state_fields}

    def events_of(self, entities: IndexArray) -> EventStore | None:
        """The events of the given entities, if they are kept; UNKNOWN has none."""
        return None if self.entities.events is None else self.entities.events.take(entities)

    def agent_labels(self, n_clusters: int) -> AgentLabels:
        """The labels as kernels read them, and the counts of agents that are too large to be counted often."""
        start = self.entities.index.agent_start
        chosen = np.flatnonzero(np.diff(start) > LARGE_AGENT)
        large = np.full(len(start) - 1, -1, dtype=np.int64)
        large[chosen] = np.arange(len(chosen))
        labels = np.asarray(self.labels)
        counts = np.empty((len(chosen), n_clusters, len(self.labels)))
        for agent, out in zip(chosen, counts, strict=True):
            count_agent(labels, start[agent], start[agent + 1], out)
        return AgentLabels(labels, start, counts, large)

    def counts(self, draw: int, agents: IndexArray, n_clusters: int) -> FloatArray:
        """(len(agents), clusters) N_ik, the entities of each agent in each cluster; zeros for UNKNOWN.

        `agents` must be sorted, without duplicates.
        """
        index = self.entities.index
        starts = np.where(agents == UNKNOWN, 0, index.agent_start[agents])
        sizes = np.where(agents == UNKNOWN, 0, index.agent_start[agents + 1] - starts)
        owner = np.repeat(np.arange(len(agents)), sizes)
        cells = owner * n_clusters + self.labels[draw, ranges(starts, sizes)]
        return np.bincount(cells, minlength=len(agents) * n_clusters).reshape(-1, n_clusters).astype(np.float64)


def _gather_few(kept: NDArray[np.float32], at: IndexArray, initial: float, out: FloatArray) -> None:
    """As `gather_draws`, for a few rows of mapped draws: the system maps much around each, so it is dropped at once."""
    known = at != UNKNOWN
    out[~known] = initial
    for draw in range(len(kept)):
        out[known, draw] = kept[draw, at[known]]
        if draw % DRAWS_AT_ONCE == 0:
            scratch.release(kept)
    scratch.release(kept)


def empty_state(entities: EntityData, n_draws: int) -> StateDraws:
    """Arrays for the agent state of each draw, to be filled."""
    sizes = entities.index.n_agents, len(entities), entities.n_events
    fields = entities.likelihood.state_fields
    return {own.name: scratch.empty((n_draws, *own.shape(*sizes)), np.float32) for own in fields}
