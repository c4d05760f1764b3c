"""The label weights of profiles: p(z = k) of known entities, new entities and new agents, in each draw."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.data.hierarchy import UNKNOWN
from fedhlcr.kernels import label_weights as kernels
from fedhlcr.kernels import labels as label_kernels
from fedhlcr.kernels.arguments import LabelLaw
from fedhlcr.kernels.label_weights import AgentLabels, ScoreLaw
from fedhlcr.model.likelihood import AnyLikelihood
from fedhlcr.model.schema import Globals
from fedhlcr.posterior.draws import Draws
from fedhlcr.posterior.memory import AgentMemory
from fedhlcr.samplers.state import label_law

# Most numbers in the score rows of all draws, 128 MB; if there are more, the rows of one draw are made at a time.
ROWS_AT_ONCE = 1 << 24
# Entities from whose matrices the units of the bound are taken.
N_PROBES = 1000


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
        if not self.is_plain or size > ROWS_AT_ONCE:
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
        kernels.label_weights(grams, self._agents, law, agents, entities, 0, len(agents), out)
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
        kernels.count_profiles(self._agents, agents, np.empty((n_clusters, n_draws)), counts)
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
