"""Predictions from kept draws: averages over labels and draws, never one sampled label.

In each draw a row's entity has a probability for each cluster, its *label weights*:

 - known entity: its responsibilities, from its own Gram matrix and its agent's other entities;
 - new entity of a known agent: (N_ik + βψ_k) / (N_i + β);
 - new agent: ψ_k.

From these the likelihood makes the mixture over draws and clusters that predicts the target. `Draws` is public: it
holds nothing of any single agent. `AgentMemory` is private to its agents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, ranges
from fedhlcr._support.streams import Stream
from fedhlcr._support.threads import run_blocks
from fedhlcr.data.hierarchy import UNKNOWN, EntityIndex
from fedhlcr.kernels import labels as label_kernels
from fedhlcr.model.gram import GramLayout, Standardization
from fedhlcr.model.likelihood import AnyLikelihood
from fedhlcr.posterior.draws import Draws
from fedhlcr.posterior.predictive import MixtureRows, Moments, mixture_log_density, mixture_moments
from fedhlcr.samplers.blocked import draw_labels
from fedhlcr.samplers.state import Draw, Entities, label_law

# Numbers in one block of label weights, (profiles, draws, clusters): 64 MB.
WEIGHTS_AT_ONCE = 1 << 23
# Sweeps over the entities of an agent that adapts to new events, in each draw, with the globals fixed.
ADAPT_SWEEPS = 10
# The same where agents have no labels yet.
LABEL_SWEEPS = 5


@dataclass(frozen=True)
class AgentMemory:
    """The private part: the agents' Gram matrices and the labels of their entities in each draw."""

    entities: Entities
    labels: NDArray[np.integer]  # (draws, entities)

    @classmethod
    def from_chains(cls, entities: Entities, chains: Sequence[Sequence[Draw]]) -> AgentMemory:
        kept = [draw for chain in chains for draw in chain]
        n_clusters = max(draw.globals.n_clusters for draw in kept)
        labels = np.empty((len(kept), len(entities)), dtype=np.min_scalar_type(n_clusters))
        for row, draw in zip(labels, kept, strict=True):
            row[:] = draw.labels
        return cls(entities, labels)

    @classmethod
    def of_nobody(cls, likelihood: AnyLikelihood, draws: Draws, n_threads: int) -> AgentMemory:
        """The memory of a public model: no agents."""
        grams = np.empty((0, likelihood.layout.packed_size))
        entities = Entities(likelihood, EntityIndex.empty(), grams, n_threads)
        return cls(entities, np.empty((len(draws), 0), dtype=np.min_scalar_type(draws.n_clusters)))

    @classmethod
    def from_draws(cls, entities: Entities, draws: Draws, stream: Stream) -> AgentMemory:
        """Draw labels given the public draws alone, so that agents can predict that took no part in the fit.

        Given the globals the agents are independent, so this is the agents' half of the blocked sampler. It starts
        without labels in every draw, so that an agent whose labels seldom move is not stuck in one mode for all draws.
        """
        labels = np.empty((len(draws), len(entities)), dtype=np.min_scalar_type(draws.n_clusters))
        # threads run over draws here, not over agents
        alone = replace(entities, n_threads=1)

        def label(draw: int) -> None:
            own = np.full(len(entities), -1, dtype=np.int32)
            for sweep in range(LABEL_SWEEPS):
                own, _ = draw_labels(alone, draws.globals(draw), own, draw * LABEL_SWEEPS + sweep, stream)
            labels[draw] = own

        run_blocks(label, len(draws), entities.n_threads)
        return cls(entities, labels)

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
        weights = np.empty((len(agents), len(draws), draws.n_clusters))
        prior_weights = draws.prior_weights

        def weigh(draw: int) -> None:
            counts = self.memory.counts(draw, distinct, draws.n_clusters)[of_agent]
            prior = counts + prior_weights[draw]
            weights[:, draw] = prior / prior.sum(axis=1, keepdims=True)
            others = counts[known]
            others[np.arange(len(known)), self.memory.labels[draw, entities[known]]] -= 1.0
            responsibilities, given = np.empty((len(known), draws.n_clusters)), draws.globals(draw)
            law, matrices = label_law(self.likelihood, given, 0), self.likelihood.scoring_matrices(grams, given)
            label_kernels.responsibilities(matrices, law.score_rows, law.prior_weights, others, responsibilities)
            weights[known, draw] = responsibilities

        run_blocks(weigh, len(draws), store.n_threads)
        return weights

    def blocks(self, profiles: Profiles) -> Iterator[tuple[slice, FloatArray]]:
        """Label weights of consecutive profiles, in blocks of at most WEIGHTS_AT_ONCE numbers."""
        size = max(1, WEIGHTS_AT_ONCE // (len(self.draws) * self.draws.n_clusters))
        for first in range(0, len(profiles.agents), size):
            chunk = slice(first, first + size)
            yield chunk, self.label_weights(profiles.agents[chunk], profiles.entities[chunk])

    def predict(self, X: FloatArray, profiles: Profiles, levels: tuple[float, ...] = ()) -> Moments:
        """Moments and quantiles of the mixture over labels and draws, in the user's units.

        The mean is Σ p_k w_kᵀx over labels and draws; the variance is the mean of σ² plus the variance
        of w_kᵀx, without xᵀA⁻¹x because w is drawn. Quantiles are those of the mixture, not mean ± z·std.
        """
        out = Moments.empty(len(X), len(levels))
        for part in self._mixtures(X, profiles):
            moments = mixture_moments(part, levels, self.memory.entities.n_threads)
            for target, values in zip(out, moments, strict=True):
                target[part.rows] = values
        scale = self.standardization.scale[-1]
        restore = self.standardization.restore_target
        return Moments(restore(out.mean), out.std * scale, restore(out.quantiles))

    def log_density(self, X: FloatArray, y: FloatArray, profiles: Profiles) -> FloatArray:
        """(rows,) log density of the same mixture at y, in the user's units."""
        target = self.standardization.apply_target(y)
        out = np.empty(len(X))
        for part in self._mixtures(X, profiles):
            out[part.rows] = mixture_log_density(part, target[part.rows], self.memory.entities.n_threads)
        return out - np.log(self.standardization.scale[-1])

    def _mixtures(self, X: FloatArray, profiles: Profiles) -> Iterator[MixtureRows]:
        """All rows, sorted by profile and in blocks, with their mixtures over (draw, cluster)."""
        design = self.standardization.apply(X)
        if self.layout.fit_intercept:
            design = np.column_stack([np.ones(len(X)), design])
        order = np.argsort(profiles.of_row, kind="stable")
        starts = np.searchsorted(profiles.of_row[order], np.arange(len(profiles.agents) + 1))
        for chunk, weights in self.blocks(profiles):
            rows = order[starts[chunk.start] : starts[min(chunk.stop, len(profiles.agents))]]
            mixture = self.likelihood.mixture(self.draws.stacked, weights)
            yield MixtureRows(rows, design[rows], profiles.of_row[rows] - chunk.start, mixture)

    def adapt(self, new: Entities, stream: Stream) -> Posterior:
        """Return the posterior after agents have seen the events of `new`, with the globals fixed.

        In every draw, the labels of all entities of these agents are sampled again.
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
        part = Entities(self.likelihood, index.subset(pairs), grams[pairs])

        def resample(draw: int) -> None:
            given, own = self.draws.globals(draw), np.ascontiguousarray(labels[draw, pairs])
            for sweep in range(ADAPT_SWEEPS):
                own, _ = draw_labels(part, given, own, draw * ADAPT_SWEEPS + sweep, stream)
            labels[draw, pairs] = own

        run_blocks(resample, len(self.draws), old.n_threads)
        entities = Entities(self.likelihood, index, grams, old.n_threads)
        return replace(self, memory=AgentMemory(entities, labels.astype(self.memory.labels.dtype)))
