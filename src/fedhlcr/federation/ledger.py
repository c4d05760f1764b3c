"""The ledger: an account that stores each agent's last accepted contribution."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedhlcr._support.arrays import IndexArray
from fedhlcr.federation.sums import PAGE_SIZE, AgentSums
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
    """

    def __init__(self, n_clusters: int, schema: SumSchema) -> None:
        self._n_clusters, self._schema = n_clusters, schema
        self._pages: list[AgentSums] = []
        self._totals: list[ClusterSums | None] = []

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
            room = min(missing, PAGE_SIZE - len(self._pages[-1]))
            self._pages[-1] = AgentSums.stack([self._pages[-1], AgentSums.empty(self._schema, room)])

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

    def remove(self, agent: int) -> None:
        """Remove the contribution of an agent."""
        self.replace(np.array([agent]), AgentSums.empty(self._schema, 1))

    def clear(self) -> None:
        """Remove the contributions of all agents."""
        self._pages = [AgentSums.empty(self._schema, len(page)) for page in self._pages]
        self._totals = [None] * len(self._pages)

    def shift(self, likelihood: AnyLikelihood, shift: EffectShift) -> None:
        """Move the blocks of all contributions, those of absent agents too, because effects have moved."""
        self._pages = [
            replace(page, blocks=likelihood.shifted(page.blocks, shift.of(page.clusters))) for page in self._pages
        ]
        self._totals = [None] * len(self._pages)

    def total(self) -> ClusterSums:
        """The sum of all contributions, by original cluster."""
        total = ClusterSums.zero(self._schema, self._n_clusters)
        for number, page in enumerate(self._pages):
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
        self._pages = [whole.take(agents[first : first + PAGE_SIZE]) for first in range(0, len(whole), PAGE_SIZE)]
        self._totals = [None] * len(self._pages)
