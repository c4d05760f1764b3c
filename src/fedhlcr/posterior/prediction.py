"""Predictions from kept draws: averages over labels and draws, never one sampled label.

In each draw a row's entity has a probability for each cluster, its *label weights*:

 - known entity: its responsibilities, from its own Gram matrix and its agent's other entities;
 - new entity of a known agent: (N_ik + βψ_k) / (N_i + β);
 - new agent: ψ_k.

From these the likelihood makes the mixture over draws and clusters that predicts the target. `Draws` is public: it
holds nothing of any single agent. `AgentMemory` is private to its agents.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, ranges
from fedhlcr._support.streams import Stream
from fedhlcr._support.threads import run_blocks
from fedhlcr.data.events import EventStore, joined
from fedhlcr.data.hierarchy import UNKNOWN, EntityIndex
from fedhlcr.kernels import labels as label_kernels
from fedhlcr.model.arguments import ProfileData
from fedhlcr.model.gram import GramLayout, Standardization
from fedhlcr.model.likelihood import AnyLikelihood
from fedhlcr.model.schema import Level, State
from fedhlcr.posterior.draws import Draws
from fedhlcr.posterior.predictive import AnyMixture, MixtureRows, Moments
from fedhlcr.posterior.responses import interval_of, log_density_of, moments_of
from fedhlcr.samplers.blocked import Agents, redraw
from fedhlcr.samplers.state import Draw, Entities, label_law

# The private state of agents in each draw, by name: (draws, agents or entities or events, ...).
PrivateDraws = dict[str, NDArray[np.float32]]
# Numbers in one block of label weights, (profiles, draws, clusters): 64 MB.
WEIGHTS_AT_ONCE = 1 << 23
# Sweeps over the entities of an agent that adapts to new events, in each draw, with the globals fixed.
ADAPT_SWEEPS = 10
# The same where agents have no labels yet.
LABEL_SWEEPS = 5
# The same where weights of events settle slowly: sweeps in the first draw of a segment, in its other draws, which begin
# with the weights of the draw before, and the number of draws in a segment.
FIRST_SWEEPS, NEXT_SWEEPS, SEGMENT = 20, 3, 10


@dataclass(frozen=True)
class AgentMemory:
    """The private part: the agents' Gram matrices, and the labels and the private state of each draw."""

    entities: Entities
    labels: NDArray[np.integer]  # (draws, entities)
    private: PrivateDraws = field(default_factory=dict)

    @classmethod
    def from_chains(cls, entities: Entities, chains: Sequence[Sequence[Draw]]) -> AgentMemory:
        kept = [draw for chain in chains for draw in chain]
        n_clusters = max(draw.globals.n_clusters for draw in kept)
        labels = np.empty((len(kept), len(entities)), dtype=np.min_scalar_type(n_clusters))
        for row, draw in zip(labels, kept, strict=True):
            row[:] = draw.labels
        private = {
            field.name: np.array([draw.private[field.name] for draw in kept], dtype=np.float32)
            for field in entities.likelihood.own_state
        }
        return cls(entities, labels, private)

    @classmethod
    def of_nobody(cls, likelihood: AnyLikelihood, draws: Draws, n_threads: int) -> AgentMemory:
        """The memory of a public model: no agents."""
        grams = np.empty((0, likelihood.layout.packed_size))
        events = EventStore.empty(likelihood.layout.n_features) if likelihood.needs_events else None
        entities = Entities(likelihood, EntityIndex.empty(), grams, n_threads, events)
        labels = np.empty((len(draws), 0), dtype=np.min_scalar_type(draws.n_clusters))
        return cls(entities, labels, empty_private(entities, len(draws)))

    @classmethod
    def from_draws(cls, entities: Entities, draws: Draws, stream: Stream) -> AgentMemory:
        """Draw labels given the public draws alone, so that agents can predict that took no part in the fit.

        Given the globals the agents are independent, so this is the agents' half of the blocked sampler. It starts
        without labels in every draw, so that an agent whose labels seldom move is not stuck in one mode for all draws.
        Weights of events, where there are any, go on from draw to draw.
        """
        labels = np.empty((len(draws), len(entities)), dtype=np.min_scalar_type(draws.n_clusters))
        private = empty_private(entities, len(draws))
        # threads run over draws here, not over agents
        alone = replace(entities, n_threads=1)
        slow = entities.likelihood.settles_slowly
        segment, first, following = (SEGMENT, FIRST_SWEEPS, NEXT_SWEEPS) if slow else (1, LABEL_SWEEPS, LABEL_SWEEPS)

        def label(number: int) -> None:
            own = Agents.unlabelled(alone)
            for draw in range(number * segment, min((number + 1) * segment, len(draws))):
                n_sweeps = first if draw % segment == 0 else following
                own = replace(own, labels=np.full_like(own.labels, -1))
                for sweep in range(n_sweeps):
                    own = redraw(alone, draws.globals(draw), own, draw * first + sweep, stream)
                labels[draw] = own.labels
                for name, values in own.private.items():
                    private[name][draw] = values

        run_blocks(label, math.ceil(len(draws) / segment), entities.n_threads)
        return cls(entities, labels, private)

    def private_of(self, agents: NDArray[np.int64], entities: NDArray[np.int64]) -> State:
        """The private state of pairs by name, (pairs, draws, ...); the initial value where an id is UNKNOWN.

        That of events has a row for each event of the pairs, as in `events_of`.
        """
        out: State = {}
        for own in self.entities.likelihood.own_state:
            places = self._places(own.level, agents, entities)
            values = np.full((len(places), len(self.labels), *self.private[own.name].shape[2:]), own.initial)
            known = np.flatnonzero(places != UNKNOWN)
            values[known] = np.moveaxis(self.private[own.name][:, places[known]], 0, 1)
            out[own.name] = values
        return out

    def _places(self, level: Level, agents: NDArray[np.int64], entities: NDArray[np.int64]) -> NDArray[np.int64]:
        if level != Level.EVENT:
            return agents if level == Level.AGENT else entities
        assert self.entities.events is not None
        return self.entities.events.places(entities)

    def events_of(self, entities: NDArray[np.int64]) -> EventStore | None:
        """The events of the given entities, if they are kept; UNKNOWN has none."""
        return None if self.entities.events is None else self.entities.events.take(entities)

    def counts(self, draw: int, agents: NDArray[np.int64], n_clusters: int) -> FloatArray:
        """(len(agents), clusters) N_ik, the entities of each agent in each cluster; zeros for UNKNOWN.

        `agents` must be sorted, without duplicates.
        """
        index = self.entities.index
        starts = np.where(agents == UNKNOWN, 0, index.agent_start[agents])
        sizes = np.where(agents == UNKNOWN, 0, index.agent_start[agents + 1] - starts)
        owner = np.repeat(np.arange(len(agents)), sizes)
        cells = owner * n_clusters + self.labels[draw, ranges(starts, sizes)]
        return np.bincount(cells, minlength=len(agents) * n_clusters).reshape(-1, n_clusters).astype(np.float64)


def empty_private(entities: Entities, n_draws: int) -> PrivateDraws:
    """Arrays for the private state of each draw, to be filled."""
    sizes = entities.index.n_agents, len(entities), entities.n_events
    return {
        own.name: np.empty((n_draws, *own.shape(*sizes)), dtype=np.float32) for own in entities.likelihood.own_state
    }


class Profiles(NamedTuple):
    """Distinct pairs of agent and entity, as positions (UNKNOWN if new), and the pair of each row.

    Rows with the same profile have the same label weights, so these are computed once for each profile.
    """

    agents: NDArray[np.int64]
    entities: NDArray[np.int64]
    of_row: NDArray[np.int64]

    @classmethod
    def of(cls, agents: NDArray[np.int64], entities: NDArray[np.int64]) -> Profiles:
        distinct, of_row = np.unique(np.column_stack([agents, entities]), axis=0, return_inverse=True)
        return cls(distinct[:, 0], distinct[:, 1], of_row.ravel())


@dataclass(frozen=True)
class Posterior:
    """All that a fitted model predicts from: public draws, and the private memory of its agents."""

    likelihood: AnyLikelihood
    standardization: Standardization
    draws: Draws
    memory: AgentMemory

    @property
    def layout(self) -> GramLayout:
        return self.likelihood.layout

    def noise_level(self) -> float:
        """Standard deviation of an event around its regression, in the user's units.

        It is averaged over draws, and over clusters by their weights.
        """
        scales = self.likelihood.noise_scales(self.draws.stacked)
        by_draw = np.average(scales, axis=1, weights=np.exp(self.draws.log_weights))
        return float(by_draw.mean() * self.standardization.scale[-1])

    def label_weights(self, agents: NDArray[np.int64], entities: NDArray[np.int64]) -> FloatArray:
        """(profiles, draws, clusters) p(z = k) in each draw, for profiles sorted by agent."""
        draws, store = self.draws, self.memory.entities
        distinct, of_agent = np.unique(agents, return_inverse=True)
        known = np.flatnonzero(entities != UNKNOWN)
        grams = store.grams[entities[known]]
        private = self.memory.private_of(agents[known], entities[known])
        events = self.memory.events_of(entities[known])
        weights = np.empty((len(agents), len(draws), draws.n_clusters))
        prior_weights = draws.prior_weights

        def weigh(draw: int) -> None:
            counts = self.memory.counts(draw, distinct, draws.n_clusters)[of_agent]
            prior = counts + prior_weights[draw]
            weights[:, draw] = prior / prior.sum(axis=1, keepdims=True)
            others = counts[known]
            others[np.arange(len(known)), self.memory.labels[draw, entities[known]]] -= 1.0
            responsibilities, given = np.empty((len(known), draws.n_clusters)), draws.globals(draw)
            own = {name: np.ascontiguousarray(values[:, draw]) for name, values in private.items()}
            law = label_law(self.likelihood, given, 0)
            matrices = self.likelihood.entity_matrices(grams, given, own, events)
            label_kernels.responsibilities(matrices, law.score_rows, law.prior_weights, others, responsibilities)
            weights[known, draw] = responsibilities

        run_blocks(weigh, len(draws), store.n_threads)
        return weights

    def blocks(self, profiles: Profiles) -> Iterator[tuple[slice, FloatArray]]:
        """Label weights of consecutive profiles, in blocks of at most WEIGHTS_AT_ONCE numbers.

        The limit also holds for their matrices if these differ between draws.
        """
        own = self.layout.packed_size if self.likelihood.needs_events else 0
        size = max(1, WEIGHTS_AT_ONCE // (len(self.draws) * max(self.draws.n_clusters, own)))
        for first in range(0, len(profiles.agents), size):
            chunk = slice(first, first + size)
            yield chunk, self.label_weights(profiles.agents[chunk], profiles.entities[chunk])

    def predict(
        self, X: FloatArray, profiles: Profiles, levels: tuple[float, ...] = (), offset: FloatArray | None = None
    ) -> Moments:
        """Moments and quantiles of the mixture over labels and draws, in the user's units.

        The mean is Σ p_k w_kᵀx over labels and draws; the variance is the mean of σ² plus the variance
        of w_kᵀx, without xᵀA⁻¹x because w is drawn. Quantiles are those of the mixture, not mean ± z·std. With a link,
        probabilities and counts are averaged, not log odds or log means. `offset` is added to these.
        """
        out = Moments.empty(len(X), len(levels))
        for part in self.mixtures(X, profiles, offset):
            moments = moments_of(part, levels, self.memory.entities.n_threads)
            for target, values in zip(out, moments, strict=True):
                target[part.rows] = values
        scale = self.standardization.scale[-1]
        restore = self.standardization.restore_target
        return Moments(restore(out.mean), out.std * scale, restore(out.quantiles))

    def interval(
        self, X: FloatArray, profiles: Profiles, level: float, offset: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """(rows,) ends of intervals that hold the target with probability `level`; for 0 and 1, its probability."""
        lower, upper = np.empty(len(X)), np.empty(len(X))
        for part in self.mixtures(X, profiles, offset):
            lower[part.rows], upper[part.rows] = interval_of(part, level, self.memory.entities.n_threads)
        restore = self.standardization.restore_target
        return restore(lower), restore(upper)

    def log_density(
        self, X: FloatArray, y: FloatArray, profiles: Profiles, offset: FloatArray | None = None
    ) -> FloatArray:
        """(rows,) log density of the same mixture at y, in the user's units."""
        target = self.standardization.apply_target(y)
        out = np.empty(len(X))
        for part in self.mixtures(X, profiles, offset):
            out[part.rows] = log_density_of(part, target[part.rows], self.memory.entities.n_threads)
        return out - np.log(self.standardization.scale[-1])

    def mixtures(self, X: FloatArray, profiles: Profiles, offset: FloatArray | None = None) -> Iterator[MixtureRows]:
        """All rows, sorted by profile and in blocks, with their mixtures over (draw, cluster)."""
        offset = np.zeros(len(X)) if offset is None else offset
        design = self.standardization.apply(X)
        if self.layout.fit_intercept:
            design = np.column_stack([np.ones(len(X)), design])
        order = np.argsort(profiles.of_row, kind="stable")
        starts = np.searchsorted(profiles.of_row[order], np.arange(len(profiles.agents) + 1))
        for chunk, weights in self.blocks(profiles):
            rows = order[starts[chunk.start] : starts[min(chunk.stop, len(profiles.agents))]]
            mixture = self.mixture(profiles, chunk, weights)
            yield MixtureRows(rows, design[rows], profiles.of_row[rows] - chunk.start, mixture, offset[rows])

    def mixture(self, profiles: Profiles, chunk: slice, weights: FloatArray) -> AnyMixture:
        """The mixtures of consecutive profiles, from their label weights."""
        agents, entities = profiles.agents[chunk], profiles.entities[chunk]
        is_known = entities != UNKNOWN
        grams = np.zeros((len(entities), self.layout.packed_size))
        if self.likelihood.has_state:
            grams[is_known] = self.memory.entities.grams[entities[is_known]]
        private, events = self.memory.private_of(agents, entities), self.memory.events_of(entities)
        data = ProfileData(grams, is_known, agents != UNKNOWN, private, events)
        return self.likelihood.mixture(self.draws.stacked, weights, data)

    def adapt(self, new: Entities, stream: Stream) -> Posterior:
        """Return the posterior after agents have seen the events of `new`, with the globals fixed.

        In every draw, the labels and the private state of these agents and of all their entities are sampled again.
        """
        old = self.memory.entities
        index, old_position, new_position = old.index.union(new.index)
        grams = np.zeros((index.n_entities, self.layout.packed_size))
        grams[old_position] += old.grams
        grams[new_position] += new.grams
        labels = np.full((len(self.draws), index.n_entities), -1, dtype=np.int32)
        labels[:, old_position] = self.memory.labels
        touched = np.zeros(index.n_agents, dtype=bool)
        touched[index.agent_of[new_position]] = True
        pairs = np.flatnonzero(touched[index.agent_of])
        entities, old_events = Entities(self.likelihood, index, grams, old.n_threads), None
        if old.events is not None and new.events is not None:
            events, old_events = joined(index.n_entities, old.events, old_position, new.events, new_position)
            entities = replace(entities, events=events)
        private = self._private_in(entities, old_position, old_events)
        # an index of some pairs still has all agents
        places: dict[Level, Any] = {Level.AGENT: slice(None), Level.ENTITY: pairs}
        part = Entities(self.likelihood, index.subset(pairs), grams[pairs])
        if entities.events is not None:
            part = replace(part, events=entities.events.take(pairs))
            places[Level.EVENT] = entities.events.places(pairs)

        def resample(draw: int) -> None:
            given = self.draws.globals(draw)
            state = {
                own.name: private[own.name][draw, places[own.level]].astype(np.float64)
                for own in self.likelihood.own_state
            }
            agents = Agents(np.ascontiguousarray(labels[draw, pairs]), state)
            for sweep in range(ADAPT_SWEEPS):
                agents = redraw(part, given, agents, draw * ADAPT_SWEEPS + sweep, stream)
            labels[draw, pairs] = agents.labels
            for own in self.likelihood.own_state:
                private[own.name][draw, places[own.level]] = agents.private[own.name]

        run_blocks(resample, len(self.draws), old.n_threads)
        return replace(self, memory=AgentMemory(entities, labels.astype(self.memory.labels.dtype), private))

    def _private_in(
        self, entities: Entities, old_position: NDArray[np.int64], old_events: NDArray[np.int64] | None
    ) -> PrivateDraws:
        """The private state of all draws, with the initial values for what is new in `entities`.

        The entities known so far are at `old_position`, and their events at `old_events`.
        """
        private = empty_private(entities, len(self.draws))
        position = {text: place for place, text in enumerate(entities.index.agents.texts)}
        old_agents = np.array([position[text] for text in self.memory.entities.index.agents.texts], dtype=np.int64)
        places = {Level.AGENT: old_agents, Level.ENTITY: old_position, Level.EVENT: old_events}
        for own in self.likelihood.own_state:
            private[own.name][:] = own.initial
            private[own.name][:, places[own.level]] = self.memory.private[own.name]
        return private
