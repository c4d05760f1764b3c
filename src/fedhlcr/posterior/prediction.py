"""Predictions from kept draws: averages over labels and draws, never one sampled label.

In each draw a row's entity has a probability for each cluster, its *label weights*:

 - known entity: its responsibilities, from its own Gram matrix and its agent's other entities;
 - new entity of a known agent: (N_ik + βψ_k) / (N_i + β);
 - new agent: ψ_k.

From these the likelihood makes the mixture over draws and clusters that predicts the target. `Draws` is public: it
holds nothing of any single agent. `AgentMemory` is private to its agents.

Rows are sorted by profile and predicted in blocks on threads. A block is small whatever the table, and reads what
agents keep in the order in which it is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.streams import Stream
from fedhlcr._support.threads import run_blocks, stream_results
from fedhlcr.data.events import joined
from fedhlcr.data.hierarchy import UNKNOWN
from fedhlcr.kernels import label_weights as weight_kernels
from fedhlcr.kernels import labels as label_kernels
from fedhlcr.kernels.arguments import LabelLaw
from fedhlcr.kernels.label_weights import AgentLabels, ScoreLaw
from fedhlcr.kernels.profiles import sort_rows
from fedhlcr.model.arguments import ProfileData
from fedhlcr.model.gram import GramLayout, Standardization
from fedhlcr.model.likelihood import AnyLikelihood
from fedhlcr.model.schema import Globals, Level
from fedhlcr.posterior.draws import Draws
from fedhlcr.posterior.memory import AgentMemory, StateDraws, empty_state
from fedhlcr.posterior.responses import (
    AnyMixture,
    MixtureRows,
    Moments,
    interval_of,
    log_density_of,
    mean_of,
    moments_of,
)
from fedhlcr.samplers.blocked import AgentStates, relabel
from fedhlcr.samplers.state import EntityData, label_law
from fedhlcr.storage.scratch import mapping_of

# Numbers in the label weights, (profiles, draws, clusters), of one block of profiles: 16 MB.
WEIGHTS_AT_ONCE = 1 << 21
# The same where all profiles share their components, so that little else is done for a block: they stay in the cache.
PLAIN_WEIGHTS_AT_ONCE = 1 << 18
# Blocks of profiles, at least, where matrices are in a mapped file.
MAPPED_PARTS = 8
# Rows in one block.
ROWS_AT_ONCE = 1 << 12
# Most numbers in the score rows of all draws, 128 MB; if there are more, the rows of one draw are made at a time.
SCORES_AT_ONCE = 1 << 24
# Entities from whose matrices the units of the bound are taken.
N_PROBES = 1000
# Blocks after which pages that were read of mapped arrays are given back: an eighth of a batch of a large table.
RELEASE_EVERY = 8
# Sweeps over the entities of an agent that adapts to new events, in each draw, with the globals fixed.
ADAPT_SWEEPS = 10


class Profiles(NamedTuple):
    """Distinct pairs of agent and entity, as positions (UNKNOWN if new), and the pair of each row.

    Rows with the same profile have the same label weights, so these are computed once for each profile.
    """

    agents: IndexArray
    entities: IndexArray
    of_row: IndexArray

    @classmethod
    def of(cls, agents: IndexArray, entities: IndexArray) -> Profiles:
        """The pairs of rows, sorted; a known entity must always have the same agent."""
        n_entities = int(entities.max(initial=UNKNOWN)) + 1
        # an entity says which agent is meant; without one, the agent is what is left
        keys = np.where(entities == UNKNOWN, n_entities + 1 + agents, entities)
        n_keys = n_entities + 2 + int(agents.max(initial=UNKNOWN))
        if n_keys > 16 * len(keys) + 1024:
            distinct, first, of_row = np.unique(keys, return_index=True, return_inverse=True)
        else:
            first = np.full(n_keys, -1, dtype=np.int64)
            first[keys] = np.arange(len(keys))
            distinct = np.flatnonzero(first >= 0)
            first = first[distinct]
            rank = np.empty(n_keys, dtype=np.int64)
            rank[distinct] = np.arange(len(distinct))
            of_row = rank[keys]
        order = np.lexsort((entities[first], agents[first]))
        position = np.empty_like(order)
        position[order] = np.arange(len(order))
        return cls(agents[first[order]], entities[first[order]], position[of_row])


class RowBlock(NamedTuple):
    """Rows of consecutive profiles: rows [first, last) of the sorted rows have profiles [profiles.start, .stop)."""

    first: int
    last: int
    profiles: slice


@dataclass(frozen=True)
class Posterior:
    """All that a fitted model predicts from: public draws, and the private memory of its agents."""

    likelihood: AnyLikelihood
    standardization: Standardization
    draws: Draws
    memory: AgentMemory

    def __getstate__(self) -> dict[str, Any]:
        """What is computed once and kept does not belong to copies."""
        return {own.name: getattr(self, own.name) for own in fields(self)}

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

    @cached_property
    def _weights(self) -> LabelWeights:
        return LabelWeights(self.likelihood, self.draws, self.memory)

    def label_weights(self, agents: IndexArray, entities: IndexArray) -> FloatArray:
        """(profiles, draws, clusters) p(z = k) in each draw, for profiles sorted by agent."""
        return self._weights.of(agents, entities)

    def blocks(self, profiles: Profiles, *, exact: bool = True) -> Iterator[tuple[slice, FloatArray]]:
        """Label weights of consecutive profiles, in blocks of at most WEIGHTS_AT_ONCE numbers; see `LabelWeights.of`.

        The limit also holds for their matrices if these differ between draws.
        """
        size = self._profiles_at_once(WEIGHTS_AT_ONCE)
        if mapping_of(self.memory.entities.grams) is not None:
            # a few profiles far apart would load most of a mapped file at once
            size = min(size, -(-len(profiles.agents) // MAPPED_PARTS))
        chunks = [slice(first, first + size) for first in range(0, len(profiles.agents), size)]

        def weigh(block: int) -> tuple[slice, FloatArray]:
            own = chunks[block]
            return own, self._weights.of(profiles.agents[own], profiles.entities[own], exact=exact)

        self._weights.prepare()
        for block in stream_results(weigh, len(chunks), self.memory.entities.n_threads):
            yield block
            # profiles are sorted, so the next ones are elsewhere
            self.memory.release()

    def _profiles_at_once(self, numbers: int) -> int:
        own = self.layout.packed_size if self.likelihood.needs_events else 0
        return max(1, numbers // (len(self.draws) * max(self.draws.n_clusters, own)))

    def mean(self, X: FloatArray, profiles: Profiles, offset: FloatArray | None = None) -> FloatArray:
        """The means of `predict` alone, which take less time."""
        out = np.empty(len(X))

        def evaluate(part: MixtureRows) -> None:
            out[part.rows] = mean_of(part)

        self._evaluate(evaluate, X, profiles, offset)
        return self.standardization.restore_target(out)

    def predict(
        self, X: FloatArray, profiles: Profiles, levels: tuple[float, ...] = (), offset: FloatArray | None = None
    ) -> Moments:
        """Moments and quantiles of the mixture over labels and draws, in the user's units.

        The mean is Σ p_k w_kᵀx over labels and draws; the variance is the mean of σ² plus the variance
        of w_kᵀx, without xᵀA⁻¹x because w is drawn. Quantiles are those of the mixture, not mean ± z·std. With a link,
        probabilities and counts are averaged, not log odds or log means. `offset` is added to these.
        """
        out = Moments.empty(len(X), len(levels))

        def evaluate(part: MixtureRows) -> None:
            for target, values in zip(out, moments_of(part, levels), strict=True):
                target[part.rows] = values

        self._evaluate(evaluate, X, profiles, offset)
        scale = self.standardization.scale[-1]
        restore = self.standardization.restore_target
        return Moments(restore(out.mean), out.std * scale, restore(out.quantiles))

    def interval(
        self, X: FloatArray, profiles: Profiles, level: float, offset: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """(rows,) ends of intervals that hold the target with probability `level`; for 0 and 1, its probability."""
        lower = np.empty(len(X))
        upper = np.empty(len(X))

        def evaluate(part: MixtureRows) -> None:
            lower[part.rows], upper[part.rows] = interval_of(part, level)

        self._evaluate(evaluate, X, profiles, offset)
        restore = self.standardization.restore_target
        return restore(lower), restore(upper)

    def log_density(
        self, X: FloatArray, y: FloatArray, profiles: Profiles, offset: FloatArray | None = None
    ) -> FloatArray:
        """(rows,) log density of the same mixture at y, in the user's units."""
        target = self.standardization.apply_target(y)
        out = np.empty(len(X))

        def evaluate(part: MixtureRows) -> None:
            out[part.rows] = log_density_of(part, target[part.rows])

        # far from all other components, one with a tiny weight may be the only one that matters
        self._evaluate(evaluate, X, profiles, offset, exact=True)
        return out - np.log(self.standardization.scale[-1])

    def _evaluate(
        self,
        evaluate: Callable[[MixtureRows], None],
        X: FloatArray,
        profiles: Profiles,
        offset: FloatArray | None,
        *,
        exact: bool = False,
    ) -> None:
        """Call a function for blocks of all rows, on threads; it must write to arrays of its own rows only."""
        order, starts = sort_rows(profiles.of_row, len(profiles.agents))
        blocks = self._row_blocks(starts)
        # made before threads need them
        plain = self._weights.prepare()

        def run(number: int) -> None:
            block = blocks[number]
            own = block.profiles
            rows = order[block.first : block.last]
            weights = self._weights.of(profiles.agents[own], profiles.entities[own], exact=exact)
            if plain:
                mixture: AnyMixture = self.likelihood.plain_mixture(self.draws.stacked, weights)
            else:
                mixture = self.mixture(profiles, own, weights)
            evaluate(self._rows(X, profiles, rows, own.start, mixture, offset))
            if number % RELEASE_EVERY == RELEASE_EVERY - 1:
                # profiles are sorted, so the next ones are elsewhere
                self.memory.release()

        run_blocks(run, len(blocks), self.memory.entities.n_threads)

    def _row_blocks(self, starts: IndexArray) -> list[RowBlock]:
        """Cut the sorted rows into blocks; a profile with many rows may be in several."""
        size = self._profiles_at_once(PLAIN_WEIGHTS_AT_ONCE if self._weights.is_plain else WEIGHTS_AT_ONCE)
        blocks = []
        first = 0
        n_rows = int(starts[-1])
        while first < n_rows:
            profile = int(np.searchsorted(starts, first, side="right")) - 1
            last = min(first + ROWS_AT_ONCE, int(starts[min(profile + size, len(starts) - 1)]))
            stop = int(np.searchsorted(starts, last))
            blocks.append(RowBlock(first, last, slice(profile, stop)))
            first = last
        return blocks

    def _rows(
        self,
        X: FloatArray,
        profiles: Profiles,
        rows: IndexArray,
        first: int,
        mixture: AnyMixture,
        offset: FloatArray | None,
    ) -> MixtureRows:
        """Rows, and the mixtures of their profiles, of which `first` is the first."""
        design = self.standardization.apply(X[rows])
        if self.layout.fit_intercept:
            design = np.column_stack([np.ones(len(rows)), design])
        own = np.zeros(len(rows)) if offset is None else offset[rows]
        return MixtureRows(rows, design, profiles.of_row[rows] - first, mixture, own)

    def mixtures(self, X: FloatArray, profiles: Profiles, offset: FloatArray | None = None) -> Iterator[MixtureRows]:
        """All rows, sorted by profile and in blocks, with their mixtures over (draw, cluster), however small weights.

        Those of entities that might have coefficients of their own always have them.
        """
        order, starts = sort_rows(profiles.of_row, len(profiles.agents))
        for chunk, weights in self.blocks(profiles):
            rows = order[starts[chunk.start] : starts[min(chunk.stop, len(profiles.agents))]]
            yield self._rows(X, profiles, rows, chunk.start, self.mixture(profiles, chunk, weights), offset)

    def mixture(self, profiles: Profiles, chunk: slice, weights: FloatArray) -> AnyMixture:
        """The mixtures of consecutive profiles, from their label weights."""
        agents = profiles.agents[chunk]
        entities = profiles.entities[chunk]
        is_known = entities != UNKNOWN
        grams = np.zeros((len(entities), self.layout.packed_size))
        if self.likelihood.has_state:
            grams[is_known] = self.memory.entities.grams[entities[is_known]]
        agent_state = self.memory.state_of(agents, entities)
        events = self.memory.events_of(entities)
        data = ProfileData(grams, is_known, agents != UNKNOWN, agent_state, events)
        return self.likelihood.mixture(self.draws.stacked, weights, data)

    def adapt(self, new: EntityData, stream: Stream) -> Posterior:
        """Return the posterior after agents have seen the events of `new`, with the globals fixed.

        In every draw, the labels and the agent state of these agents and of all their entities are sampled again.
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
        entities = EntityData(self.likelihood, index, grams, old.n_threads)
        old_events = None
        if old.events is not None and new.events is not None:
            events, old_events = joined(index.n_entities, old.events, old_position, new.events, new_position)
            entities = replace(entities, events=events)
        agent_state = self._state_in(entities, old_position, old_events)
        # an index of some pairs still has all agents
        places: dict[Level, Any] = {Level.AGENT: slice(None), Level.ENTITY: pairs}
        part = EntityData(self.likelihood, index.subset(pairs), grams[pairs])
        if entities.events is not None:
            part = replace(part, events=entities.events.take(pairs))
            places[Level.EVENT] = entities.events.places(pairs)

        def resample(draw: int) -> None:
            current = self.draws.globals(draw)
            state = {
                own.name: agent_state[own.name][draw, places[own.level]].astype(np.float64)
                for own in self.likelihood.state_fields
            }
            agents = AgentStates(np.ascontiguousarray(labels[draw, pairs]), state)
            for sweep in range(ADAPT_SWEEPS):
                agents, _ = relabel(part, current, agents, draw * ADAPT_SWEEPS + sweep, stream)
            labels[draw, pairs] = agents.labels
            for own in self.likelihood.state_fields:
                agent_state[own.name][draw, places[own.level]] = agents.agent_state[own.name]

        run_blocks(resample, len(self.draws), old.n_threads)
        return replace(self, memory=AgentMemory(entities, labels.astype(self.memory.labels.dtype), agent_state))

    def _state_in(
        self, entities: EntityData, old_position: NDArray[np.int64], old_events: NDArray[np.int64] | None
    ) -> StateDraws:
        """The agent state of all draws, with the initial values for what is new in `entities`.

        The entities known so far are at `old_position`, and their events at `old_events`.
        """
        agent_state = empty_state(entities, len(self.draws))
        old_agents = entities.index.agents.texts.find(self.memory.entities.index.agents.texts)
        places = {Level.AGENT: old_agents, Level.ENTITY: old_position, Level.EVENT: old_events}
        for own in self.likelihood.state_fields:
            agent_state[own.name][:] = own.initial
            agent_state[own.name][:, places[own.level]] = self.memory.agent_state[own.name]
        return agent_state


@dataclass(frozen=True)
class LabelWeights:
    """Computes label weights; what is the same for all profiles is computed once and kept."""

    likelihood: AnyLikelihood
    draws: Draws
    memory: AgentMemory

    def prepare(self) -> bool:
        """Compute what is kept, before threads ask for it; return whether entities have nothing of their own."""
        _ = (self._agents, self._law if self.is_plain else None, None if self._law is not None else self._laws)
        return self.is_plain

    @cached_property
    def is_plain(self) -> bool:
        """Whether entities have nothing of their own, in any draw."""
        return self.likelihood.has_plain_entities(self.draws.stacked)

    @cached_property
    def _laws(self) -> list[tuple[Globals, LabelLaw]]:
        current = [self.draws.globals(draw) for draw in range(len(self.draws))]
        return [(own, label_law(self.likelihood, own, 0)) for own in current]

    @cached_property
    def _law(self) -> ScoreLaw | None:
        """The law of all draws; None if entities have more than Gram matrices, or if it would be too large."""
        size = len(self.draws) * self.draws.n_clusters * self.likelihood.layout.packed_size
        if not self.is_plain or size > SCORES_AT_ONCE:
            return None
        rows = np.empty((self.draws.n_clusters, len(self.draws), self.likelihood.layout.packed_size))
        for draw in range(len(self.draws)):
            rows[:, draw] = self.likelihood.score_rows(self.draws.globals(draw))
        grams = self.memory.entities.grams
        n_probes = min(N_PROBES, len(grams))
        probes: IndexArray = np.linspace(0, max(len(grams) - 1, 0), n_probes).astype(np.int64)
        return score_law(rows, self.draws.prior_weights.T.copy(), self.draws.chain, np.asarray(grams[probes]))

    @cached_property
    def _agents(self) -> AgentLabels:
        return self.memory.agent_labels(self.draws.n_clusters)

    def of(self, agents: IndexArray, entities: IndexArray, *, exact: bool = True) -> FloatArray:
        """(profiles, draws, clusters) p(z = k) in each draw, for profiles sorted by agent.

        If not `exact`, weights that are surely less than e^−45 may be 0.
        """
        law = self._law
        if law is None:
            return self._by_draw(agents, entities)
        if exact:
            law = law._replace(radius=np.full_like(law.radius, np.inf))
        out = np.empty((len(agents), len(self.draws), self.draws.n_clusters))
        grams = np.asarray(self.memory.entities.grams)
        weight_kernels.label_weights(grams, self._agents, law, agents, entities, 0, len(agents), out)
        return out

    def _by_draw(self, agents: NDArray[np.int64], entities: NDArray[np.int64]) -> FloatArray:
        """The same draw by draw, for entities that have scoring matrices of their own in each."""
        n_draws = len(self.draws)
        n_clusters = self.draws.n_clusters
        known = np.flatnonzero(entities != UNKNOWN)
        own = entities[known]
        grams = self.memory.entities.grams[own]
        events = self.memory.events_of(own)
        places = self.memory.places(agents[known], own)
        # draws first, so that each is written in one piece
        weights = np.empty((n_draws, len(agents), n_clusters))
        responsibilities = np.empty((len(known), n_clusters))
        counts = np.empty((n_draws, len(agents), n_clusters))
        weight_kernels.count_profiles(self._agents, agents, np.empty((n_clusters, n_draws)), counts)
        for draw, (current, law) in enumerate(self._laws):
            weights[draw] = counts[draw] + law.prior_weights
            weights[draw] /= weights[draw].sum(axis=1, keepdims=True)
            others = counts[draw, known]
            others[np.arange(len(known)), self.memory.labels[draw, own]] -= 1.0
            agent_state = {
                name: self.memory.agent_state[name][draw, of].astype(np.float64) for name, of in places.items()
            }
            matrices = self.likelihood.entity_matrices(grams, current, agent_state, events)
            label_kernels.responsibilities(matrices, law.score_rows, law.prior_weights, others, responsibilities)
            weights[draw, known] = responsibilities
        return np.ascontiguousarray(np.moveaxis(weights, 0, 1))


def score_law(rows: FloatArray, prior: FloatArray, chain: IndexArray, probes: FloatArray) -> ScoreLaw:
    """The law of score rows (clusters, draws, packed) and prior weights (clusters, draws).

    `probes` (entities, packed) are matrices of some entities, from which units are taken that make the bound small.
    """
    chain_start = np.searchsorted(chain, np.arange(int(chain.max()) + 2)).astype(np.int64)
    spans = [slice(*pair) for pair in pairwise(chain_start)]
    mean_rows = np.array([rows[:, span].mean(axis=1) for span in spans])
    apart = np.concatenate([rows[:, span] - mean[:, None] for span, mean in zip(spans, mean_rows, strict=True)], axis=1)
    typical = np.sqrt((probes**2).sum(axis=0) / max(len(probes), 1))
    spread = np.sqrt((apart**2).mean(axis=(0, 1)))
    # what minimises the product of both norms, had all entities typical matrices
    units = np.sqrt(_positive(typical) / _positive(spread))
    distance = np.sqrt(((apart * units) ** 2).sum(axis=2))
    with np.errstate(divide="ignore"):
        log_least = np.log(np.array([prior[:, span].min(axis=1) for span in spans]))
    return ScoreLaw(
        rows,
        prior,
        chain_start,
        mean_rows,
        1.0 / units,
        np.array([distance[:, span].max(axis=1) for span in spans]),
        log_least,
        np.array([prior[:, span].max() for span in spans]),
    )


def _positive(values: FloatArray) -> FloatArray:
    """Sizes that may serve as units: none is 0, or below a small share of the largest one."""
    largest = values.max(initial=0.0)
    return np.maximum(values, 1e-12 * largest) if largest > 0.0 else np.ones_like(values)
