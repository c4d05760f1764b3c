"""The agents' side of a private run: they draw labels, and send clipped vectors instead of sums.

In process all agents are here. A Flower node does the same for its own agents, in a new process for each query.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray, LabelArray
from fedhlcr._support.streams import Stream
from fedhlcr._support.threads import Blocks
from fedhlcr.federation.private import units
from fedhlcr.federation.private.queries import Query
from fedhlcr.federation.private.scores import ClusterRows, agent_blocks
from fedhlcr.federation.shard import AgentShard
from fedhlcr.federation.sums import PAGE_SIZE
from fedhlcr.kernels.arguments import EntityArrays
from fedhlcr.kernels.grams import add_rows, sum_by_cluster
from fedhlcr.model.arguments import AgentsPart
from fedhlcr.model.gram import GramLayout, Standardization
from fedhlcr.privacy.differential_privacy import LOCATIONS, MOMENTS, SPREADS, VOTES
from fedhlcr.privacy.release import agent_vectors
from fedhlcr.samplers.blocked import relabel_agents

# Most numbers of a page of vectors, so that a page fits into memory.
PAGE_NUMBERS = 4_000_000


class PrivateAgents:
    """Agents of a shard, as they answer the queries of a private run.

    Parameters
    ----------
    shard : the agents; their matrices are converted to the units of the run
    secret : mixed into the keys of the agents' labels, so that who knows the seed cannot test guesses about labels;
        None draws one
    labels : (entities,) by the clusters of the first round, −1 for none; None if no label was drawn yet
    """

    def __init__(
        self, shard: AgentShard, *, n_threads: int = 1, secret: int | None = None, labels: LabelArray | None = None
    ) -> None:
        self._shard = shard
        self._n_threads = n_threads
        self.secret = secrets.randbits(62) if secret is None else secret
        self.labels = np.full(len(shard.grams), -1, dtype=np.int32) if labels is None else labels
        self._stream = Stream(self.secret)
        # (entities,) by the clusters of the query, and (agents, clusters) their numbers
        self._present = self.labels
        self._entities = np.zeros((len(shard), 0), dtype=np.int32)
        shard.events = None

    @property
    def names(self) -> list[str]:
        return self._shard.agents

    def answer(self, query: Query, agents: IndexArray) -> Iterator[tuple[IndexArray, NDArray[np.int64]]]:
        """The vectors of the given agents, ascending, page by page, in lattice units and before noise."""
        if query.law is not None:
            self._relabel(query, agents)
        page = max(1, min(PAGE_SIZE, PAGE_NUMBERS // query.n_values))
        for first in range(0, len(agents), page):
            part = agents[first : first + page]
            yield part, agent_vectors(self._values(query, part))

    def _values(self, query: Query, agents: IndexArray) -> list[FloatArray]:
        if query.round is not None:
            return list(agent_blocks(self._rows(agents), query.layout, query.round))
        own = self._moments(agents)
        if query.stage == VOTES:
            return [units.votes(own)]
        assert query.limits is not None
        if query.stage == LOCATIONS:
            return [units.locations(own, query.limits)]
        assert query.units is not None
        if query.stage == SPREADS:
            return [units.spreads(own, query.own_layout, query.units.shift)]
        assert query.stage == MOMENTS
        return [units.moments(own, query.own_layout, query.units, query.limits.most_events)]

    def _relabel(self, query: Query, agents: IndexArray) -> None:
        """Draw new labels of the given agents; all labels follow the clusters that were merged."""
        shard = self._shard
        assert query.law is not None
        assert query.cluster_of is not None
        assert query.units is not None
        shard.enter_run(query.run, query.layout, query.units)
        # an entity that absurd units make infinite counts as empty; an error would tell the server something
        shard.grams[~np.isfinite(shard.grams).all(axis=1)] = 0.0
        known = np.where(self.labels < len(query.cluster_of), self.labels, -1)
        labels = np.append(query.cluster_of, -1)[known].astype(np.int32)
        streams = self._stream.agent_streams(shard.agent_keys)
        arrays = EntityArrays(shard.grams, shard.agent_start, shard.entity_keys, streams)
        blocks = Blocks.balanced(np.concatenate([[0], np.cumsum(np.diff(shard.agent_start)[agents])]))
        part = AgentsPart(arrays, agents, {}, query.number, blocks, self._n_threads)
        self._present, answers, _ = relabel_agents(query.likelihood, part, query.law, labels)
        _, first = np.unique(query.cluster_of, return_index=True)
        self.labels = np.append(first, -1)[self._present].astype(np.int32)
        self._entities = np.zeros((len(shard), answers.entities.shape[1]), dtype=np.int32)
        self._entities[agents] = answers.entities

    def _rows(self, agents: IndexArray) -> ClusterRows:
        shard = self._shard
        entities = self._entities[agents]
        row_start = np.concatenate([[0], np.cumsum((entities > 0).sum(axis=1))])
        grams = np.empty((row_start[-1], shard.grams.shape[1]))
        sum_by_cluster(shard.grams, shard.agent_start, agents, self._present, row_start, entities, grams)
        owners, clusters = np.nonzero(entities)
        return ClusterRows(grams, owners, clusters, len(agents))

    def _moments(self, agents: IndexArray) -> units.AgentMoments:
        """What the agents know of their own columns, around their own means."""
        shard = self._shard
        assert shard.units is None, "units are asked for before the run has any"
        sizes = np.diff(shard.agent_start)[agents]
        chosen = np.concatenate([np.arange(*shard.agent_start[agent : agent + 2]) for agent in agents])
        grams = np.zeros((len(agents), shard.grams.shape[1]))
        add_rows(shard.grams[chosen], np.repeat(np.arange(len(agents)), sizes), grams)
        return units.AgentMoments(grams[:, 0], shard.shifts[agents], grams)

    def entity_grams(self, run: int, layout: GramLayout, standardization: Standardization) -> FloatArray:
        """(entities, packed) the matrices of all agents in the units of the run, to predict with."""
        self._shard.enter_run(run, layout, standardization)
        return self._shard.grams
