"""Draws → predictions. Averages over labels and over kept draws, never one sampled label.

A row is predicted through the weights its labels have in each draw:

 - known entity: its responsibilities, from its own Gram matrix and its agent's other entities;
 - new entity of a known agent: (N_ik + βψ_k) / (N_i + β);
 - new agent: ψ_k.

Given these, the target is a mixture of normals over draws and clusters. `Draws` is public: it holds
nothing of any agent. `AgentMemory` is private to the agents it belongs to.
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
from fedhlcr.data.ids import Ids
from fedhlcr.kernels import labels as label_kernels
from fedhlcr.kernels.mixtures import Mixture
from fedhlcr.model.gram import GramLayout, Standardization
from fedhlcr.model.priors import Hyperparameters
from fedhlcr.model.regression import CoefPrior
from fedhlcr.posterior.predictive import MixtureRows, Moments, mixture_log_density, mixture_moments
from fedhlcr.samplers.blocked import draw_labels
from fedhlcr.samplers.state import Draw, Entities, GlobalDraw, Globals, label_law
from fedhlcr.storage import atomic, codec
from fedhlcr.storage.atomic import PathLike
from fedhlcr.storage.reader import (
    MOST,
    RecordReader,
    log_weights,
    not_negative,
    positive,
    square_finite,
    square_positive,
    within,
)

# Numbers in one block of label weights, (profiles, draws, clusters): 64 MB.
WEIGHTS_AT_ONCE = 1 << 23
# Sweeps over an adapted agent's entities in each draw, all else held fixed.
ADAPT_SWEEPS = 10
# The same where all labels are drawn anew.
LABEL_SWEEPS = 5
MODEL_KIND, MODEL_VERSION = "public model", 1


@dataclass(frozen=True)
class Draws:
    """The public part of the posterior: kept draws of what all agents share, in standardised units.

    Chains may have found different numbers of clusters: the smaller ones are padded with clusters of
    weight zero.
    """

    coef: FloatArray  # (draws, clusters, n_coef)
    log_weights: FloatArray  # (draws, clusters)
    entity_counts: FloatArray  # (draws, clusters)
    noise_scale: FloatArray  # (draws,)
    coef_mean: FloatArray  # (draws, n_coef) μ
    coef_scale: FloatArray  # (draws, n_coef) δ
    global_concentration: FloatArray  # (draws,)
    agent_concentration: FloatArray  # (draws,)
    log_joint: FloatArray  # (draws,)
    chain: NDArray[np.int64]  # (draws,)

    @classmethod
    def from_chains(cls, chains: Sequence[Sequence[GlobalDraw]]) -> Draws:
        kept = [draw for chain in chains for draw in chain]
        n_clusters = max(draw.globals.n_clusters for draw in kept)

        def padded(values: list[FloatArray], fill: float) -> FloatArray:
            out = np.full((len(values), n_clusters, *values[0].shape[1:]), fill)
            for row, value in zip(out, values, strict=True):
                row[: len(value)] = value
            return out

        hypers = [draw.globals.hyper for draw in kept]

        return cls(
            coef=padded([draw.globals.coef for draw in kept], 0.0),
            log_weights=padded([draw.globals.log_weights for draw in kept], -np.inf),
            entity_counts=padded([draw.entity_counts for draw in kept], 0.0),
            noise_scale=np.array([hyper.noise_scale for hyper in hypers]),
            coef_mean=np.array([hyper.coef_prior.mean for hyper in hypers]),
            coef_scale=np.array([hyper.coef_prior.scale for hyper in hypers]),
            global_concentration=np.array([hyper.global_concentration for hyper in hypers]),
            agent_concentration=np.array([hyper.agent_concentration for hyper in hypers]),
            log_joint=np.array([draw.log_joint for draw in kept]),
            chain=np.repeat(np.arange(len(chains)), [len(chain) for chain in chains]),
        )

    @classmethod
    def read(cls, reader: RecordReader, layout: GramLayout) -> Draws:
        """From the fields of a record, checked."""
        noise_scale = reader.array("noise_scale", "f8", (None,), square_positive)
        weights = reader.array("log_weights", "f8", (len(noise_scale), None), log_weights)
        shape = n_draws, n_clusters = weights.shape
        reader.require(n_draws > 0 and 0 < n_clusters <= MOST, "log_weights")
        coef_shape = (n_draws, layout.n_coef)
        # chains follow each other and are numbered without gaps
        chain = reader.array("chain", "i8", (n_draws,), within(0, n_draws))
        reader.require(chain[0] == 0 and np.isin(np.diff(chain), (0, 1)).all(), "chain")
        return cls(
            coef=reader.array("coef", "f8", (*shape, layout.n_coef), square_finite),
            log_weights=weights,
            entity_counts=reader.array("entity_counts", "f8", shape, not_negative),
            noise_scale=noise_scale,
            coef_mean=reader.array("coef_mean", "f8", coef_shape, np.isfinite),
            coef_scale=reader.array("coef_scale", "f8", coef_shape, positive),
            global_concentration=reader.array("global_concentration", "f8", (n_draws,), positive),
            agent_concentration=reader.array("agent_concentration", "f8", (n_draws,), positive),
            log_joint=reader.array("log_joint", "f8", (n_draws,), np.isfinite),
            chain=chain,
        )

    def __len__(self) -> int:
        return len(self.noise_scale)

    @property
    def n_clusters(self) -> int:
        return self.log_weights.shape[1]

    @property
    def prior_weights(self) -> FloatArray:
        """(draws, clusters) βψ."""
        return self.agent_concentration[:, None] * np.exp(self.log_weights)

    def globals(self, draw: int) -> Globals:
        hyper = Hyperparameters(
            float(self.noise_scale[draw]),
            CoefPrior(self.coef_mean[draw], self.coef_scale[draw]),
            float(self.global_concentration[draw]),
            float(self.agent_concentration[draw]),
        )
        return Globals(self.coef[draw], self.log_weights[draw], hyper)

    def separate(self, rounds: list[int], n_clusters: list[int]) -> list[GlobalDraw]:
        """The draws one by one, as they were before they were put together; of one chain."""
        parted = []
        for draw, (number, size) in enumerate(zip(rounds, n_clusters, strict=True)):
            whole = self.globals(draw)
            drawn = Globals(whole.coef[:size], whole.log_weights[:size], whole.hyper)
            parted.append(GlobalDraw(number, self.entity_counts[draw, :size], drawn, float(self.log_joint[draw])))
        return parted


@dataclass(frozen=True)
class PublicModel:
    """All that is public of a fitted federation: what an agent needs besides its own matrices to predict.

    Attributes
    ----------
    features : names of the columns, in their order, where they are known
    """

    layout: GramLayout
    standardization: Standardization
    draws: Draws
    seed: int
    features: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        record: codec.Record = {
            "n_features": self.layout.n_features,
            "fit_intercept": self.layout.fit_intercept,
            "shift": self.standardization.shift,
            "scale": self.standardization.scale,
            "seed": self.seed,
            "features": list(self.features),
            **{f"draws.{name}": value for name, value in vars(self.draws).items()},
        }
        return codec.encode(MODEL_KIND, MODEL_VERSION, record)

    @classmethod
    def from_bytes(cls, data: bytes) -> PublicModel:
        """From bytes of `to_bytes`, checked; CodecError where they are of no model that can be used."""
        return cls._read(codec.decode(data, MODEL_KIND, MODEL_VERSION))

    def save(self, path: PathLike) -> None:
        """Write it to a file, whole or not at all."""
        atomic.write_atomically(path, self.to_bytes(), keep_previous=False)

    @classmethod
    def load(cls, path: PathLike) -> PublicModel:
        """From a file of `save`, checked as bytes are."""
        return cls._read(atomic.read_newest(path, MODEL_KIND, MODEL_VERSION))

    @classmethod
    def _read(cls, record: codec.Record) -> PublicModel:
        reader = RecordReader(record, "the model", "save it again")
        layout, units = reader.units(fit_intercept=reader.value("fit_intercept", bool))
        reader.value("n_features", int, lambda number: number == layout.n_features)
        draws = Draws.read(reader.part("draws."), layout)
        features = reader.value("features", list)
        reader.require(len(features) in (0, layout.n_features), "features")
        return cls(layout, units, draws, reader.value("seed", int), tuple(features))


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
    def of_nobody(cls, layout: GramLayout, draws: Draws, n_threads: int) -> AgentMemory:
        """Of no agent at all: what a public model remembers."""
        index = EntityIndex(Ids.of_texts([]), Ids.of_texts([]), *(np.empty(0, dtype=np.int64) for _ in range(2)))
        entities = Entities(layout, index, np.empty((0, layout.packed_size)), n_threads)
        return cls(entities, np.empty((len(draws), 0), dtype=np.min_scalar_type(draws.n_clusters)))

    @classmethod
    def from_draws(cls, entities: Entities, draws: Draws, stream: Stream) -> AgentMemory:
        """Labels drawn given the public draws alone: agents need not have been there when these were made.

        Given the globals the agents are independent, so this is their part of the blocked sampler, for each draw
        anew: an agent whose labels seldom move is not seen in one mode only.
        """
        labels = np.empty((len(draws), len(entities)), dtype=np.min_scalar_type(draws.n_clusters))
        # threads take draws, not blocks of agents
        alone = replace(entities, n_threads=1)

        def label(draw: int) -> None:
            own = np.full(len(entities), -1, dtype=np.int32)
            for sweep in range(LABEL_SWEEPS):
                own, _ = draw_labels(alone, draws.globals(draw), own, draw * LABEL_SWEEPS + sweep, stream)
            labels[draw] = own

        run_blocks(label, len(draws), entities.n_threads)
        return cls(entities, labels)

    def counts(self, draw: int, agents: NDArray[np.int64], n_clusters: int) -> FloatArray:
        """(len(agents), clusters): entities by cluster of each agent, none for UNKNOWN; `agents` sorted, distinct."""
        index = self.entities.index
        starts = np.where(agents == UNKNOWN, 0, index.agent_start[agents])
        sizes = np.where(agents == UNKNOWN, 0, index.agent_start[agents + 1] - starts)
        owner = np.repeat(np.arange(len(agents)), sizes)
        cells = owner * n_clusters + self.labels[draw, ranges(starts, sizes)]
        return np.bincount(cells, minlength=len(agents) * n_clusters).reshape(-1, n_clusters).astype(np.float64)


class Profiles(NamedTuple):
    """Distinct (agent, entity) positions, UNKNOWN where new, and the profile of each row."""

    agents: NDArray[np.int64]
    entities: NDArray[np.int64]
    of_row: NDArray[np.int64]

    @classmethod
    def of(cls, agents: NDArray[np.int64], entities: NDArray[np.int64]) -> Profiles:
        distinct, of_row = np.unique(np.column_stack([agents, entities]), axis=0, return_inverse=True)
        return cls(distinct[:, 0], distinct[:, 1], of_row.ravel())


@dataclass(frozen=True)
class Posterior:
    """Everything a fitted model knows."""

    layout: GramLayout
    standardization: Standardization
    draws: Draws
    memory: AgentMemory

    def label_weights(self, agents: NDArray[np.int64], entities: NDArray[np.int64]) -> FloatArray:
        """p(z = k) in each draw, (profiles, draws, clusters), for profiles sorted by agent."""
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
            responsibilities = np.empty((len(known), draws.n_clusters))
            law = label_law(self.layout, draws.globals(draw), round_number=0)
            label_kernels.responsibilities(grams, law.score_rows, law.prior_weights, others, responsibilities)
            weights[known, draw] = responsibilities

        run_blocks(weigh, len(draws), store.n_threads)
        return weights

    def blocks(self, profiles: Profiles) -> Iterator[tuple[slice, FloatArray]]:
        """Label weights of consecutive profiles, so many at a time that memory stays bounded."""
        size = max(1, WEIGHTS_AT_ONCE // (len(self.draws) * self.draws.n_clusters))
        for first in range(0, len(profiles.agents), size):
            chunk = slice(first, first + size)
            yield chunk, self.label_weights(profiles.agents[chunk], profiles.entities[chunk])

    def predict(self, X: FloatArray, profiles: Profiles, levels: tuple[float, ...] = ()) -> Moments:
        """Moments and quantiles of the mixture over labels and draws, in the user's units.

        The mean is Σ p_k w_kᵀx over labels and draws; the variance is the mean of σ² plus the variance
        of w_kᵀx: no xᵀA⁻¹x, for w is drawn. Quantiles are those of the mixture, not mean ± z·std.
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
        """All rows, those of one profile together, with their mixtures over (draw, cluster)."""
        design = self.standardization.apply(X)
        if self.layout.fit_intercept:
            design = np.column_stack([np.ones(len(X)), design])
        order = np.argsort(profiles.of_row, kind="stable")
        starts = np.searchsorted(profiles.of_row[order], np.arange(len(profiles.agents) + 1))
        draws = self.draws
        coef, scales = draws.coef.reshape(-1, draws.coef.shape[2]), np.repeat(draws.noise_scale, draws.n_clusters)
        for chunk, weights in self.blocks(profiles):
            rows = order[starts[chunk.start] : starts[min(chunk.stop, len(profiles.agents))]]
            mixture = Mixture(weights.reshape(len(weights), -1) / len(draws), coef, scales)
            yield MixtureRows(rows, design[rows], profiles.of_row[rows] - chunk.start, mixture)

    def adapt(self, new: Entities, stream: Stream) -> Posterior:
        """The posterior after its agents have seen the events behind `new`, the globals held fixed.

        In every draw the labels of all entities of the agents concerned are sampled again.
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
        part = Entities(self.layout, index.subset(pairs), grams[pairs])

        def resample(draw: int) -> None:
            given, own = self.draws.globals(draw), np.ascontiguousarray(labels[draw, pairs])
            for sweep in range(ADAPT_SWEEPS):
                own, _ = draw_labels(part, given, own, draw * ADAPT_SWEEPS + sweep, stream)
            labels[draw, pairs] = own

        run_blocks(resample, len(self.draws), old.n_threads)
        entities = Entities(self.layout, index, grams, old.n_threads)
        return replace(self, memory=AgentMemory(entities, labels.astype(self.memory.labels.dtype)))
