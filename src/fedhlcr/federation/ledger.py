"""The ledger: an account that stores each agent's last accepted contribution."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.federation.sums import PAGE_SIZE, AgentSums
from fedhlcr.federation.weights import FEWEST_AGENTS, MAX_WEIGHT, agent_sizes, agent_weights
from fedhlcr.model.arguments import EffectShift
from fedhlcr.model.likelihood import AnyLikelihood
from fedhlcr.model.schema import SumSchema
from fedhlcr.model.sums import ClusterSums
from fedhlcr.storage import codec
from fedhlcr.storage.reader import RecordReader


class Ledger:
    """Contributions by agent, sparse over clusters, in pages of PAGE_SIZE agents.

    An accepted contribution replaces the agent's last one, so the total changes by new − old. The total is not updated
    by this difference: pages that changed are summed again, in the order of the agents. So it equals the sum of the
    ledger to the last digit, in whatever order the contributions arrived.

    An agent that would count for too much has a weight below 1 in the total, `federation.weights`.

    Parameters
    ----------
    max_weight : how many times the median agent any agent may count; infinite for no limit
    """

    def __init__(self, n_clusters: int, schema: SumSchema, max_weight: float = MAX_WEIGHT) -> None:
        self._n_clusters, self._schema, self._max_weight = n_clusters, schema, max_weight
        self._pages: list[AgentSums] = []
        # of each page: the total, and the agents' sizes
        self._totals: list[ClusterSums | None] = []
        self._sizes: list[FloatArray | None] = []

    def __len__(self) -> int:
        return sum(len(page) for page in self._pages)

    @property
    def pages(self) -> tuple[AgentSums, ...]:
        return tuple(self._pages)

    @property
    def is_empty(self) -> bool:
        """Whether no agent has any entity."""
        return all(len(page.clusters) == 0 for page in self._pages)

    def grow(self, n_agents: int) -> None:
        """Make room for n_agents. New agents have contributed nothing yet."""
        while (missing := n_agents - len(self)) > 0:
            if not self._pages or len(self._pages[-1]) == PAGE_SIZE:
                self._pages.append(AgentSums.empty(self._schema, 0))
                self._totals.append(None)
                self._sizes.append(None)
            room = min(missing, PAGE_SIZE - len(self._pages[-1]))
            self._pages[-1] = AgentSums.stack([self._pages[-1], AgentSums.empty(self._schema, room)])
            self._sizes[-1] = None

    def replace(self, agents: IndexArray, sums: AgentSums) -> None:
        """Replace the last contributions of the agents at the given positions."""
        order = np.argsort(agents, kind="stable")
        pages = agents[order] // PAGE_SIZE
        for page in np.unique(pages):
            own = order[pages == page]
            part = sums if len(own) == len(sums) and np.array_equal(own, np.arange(len(own))) else sums.take(own)
            self._pages[page] = self._pages[page].replace(agents[own] - page * PAGE_SIZE, part)
            # a page that is replaced as a whole is summed now, while agents of other pages are still at work
            self._totals[page] = part.total(self._n_clusters) if len(part) == len(self._pages[page]) else None
            self._sizes[page] = None

    def remove(self, agent: int) -> None:
        """Remove the contribution of an agent."""
        self.replace(np.array([agent]), AgentSums.empty(self._schema, 1))

    def clear(self) -> None:
        """Remove the contributions of all agents."""
        self._set_pages([AgentSums.empty(self._schema, len(page)) for page in self._pages])

    def shift(self, likelihood: AnyLikelihood, shift: EffectShift) -> None:
        """Move the blocks of all contributions, those of absent agents too, because effects have moved."""
        self._set_pages(
            [replace(page, blocks=likelihood.shifted(page.blocks, shift.of(page.clusters))) for page in self._pages]
        )

    def _set_pages(self, pages: list[AgentSums]) -> None:
        self._pages, self._totals, self._sizes = pages, [None] * len(pages), [None] * len(pages)

    def weights(self) -> FloatArray:
        """(agents,) the weight of each agent's contribution in the total."""
        if len(self) < FEWEST_AGENTS or np.isinf(self._max_weight):
            return np.ones(len(self))
        sizes = []
        for number, page in enumerate(self._pages):
            own = self._sizes[number]
            if own is None:
                own = self._sizes[number] = agent_sizes(page)
            sizes.append(own)
        counts_events = self._schema.counts_events
        return agent_weights(np.concatenate(sizes), self._max_weight, counts_events=counts_events)

    def total(self) -> ClusterSums:
        """The sum of all contributions, each with its agent's weight, by original cluster."""
        total, weights = ClusterSums.zero(self._schema, self._n_clusters), self.weights()
        for number, page in enumerate(self._pages):
            own_weights = weights[number * PAGE_SIZE :][: len(page)]
            if (own_weights < 1.0).any():
                total = total + page.total(self._n_clusters, own_weights)
                continue
            own = self._totals[number]
            if own is None:
                own = self._totals[number] = page.total(self._n_clusters)
            total = total + own
        return total

    def to_record(self) -> codec.Record:
        return AgentSums.stack([AgentSums.empty(self._schema, 0), *self._pages]).to_record()

    def restore(self, reader: RecordReader, n_agents: int) -> None:
        whole = AgentSums.read(reader, self._schema, self._n_clusters)
        reader.require(len(whole) <= n_agents, "sums_scalars")
        agents = np.arange(len(whole))
        self._set_pages([whole.take(agents[first : first + PAGE_SIZE]) for first in range(0, len(whole), PAGE_SIZE)])
