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

    Shifts wait until a page is needed: most pages are replaced as a whole before that.

    Parameters
    ----------
    max_weight : how many times the median agent any agent may count; infinite for no limit
    """

    def __init__(self, n_clusters: int, schema: SumSchema, max_weight: float = MAX_WEIGHT) -> None:
        self._n_clusters = n_clusters
        self._schema = schema
        self._max_weight = max_weight
        self._pages: list[AgentSums] = []
        # of each page: the total, and the agents' sizes
        self._totals: list[ClusterSums | None] = []
        self._sizes: list[FloatArray | None] = []
        self._shifts: list[list[tuple[AnyLikelihood, EffectShift]]] = []

    def __len__(self) -> int:
        return sum(len(page) for page in self._pages)

    @property
    def pages(self) -> tuple[AgentSums, ...]:
        return tuple(self._page(number) for number in range(len(self._pages)))

    def _page(self, number: int) -> AgentSums:
        """A page with all shifts up to now."""
        for likelihood, shift in self._shifts[number]:
            page = self._pages[number]
            self._pages[number] = replace(page, blocks=likelihood.shifted(page.blocks, shift.of(page.clusters)))
        self._shifts[number] = []
        return self._pages[number]

    @property
    def page_lengths(self) -> list[int]:
        """Number of agents of each page."""
        return [len(page) for page in self._pages]

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
                self._shifts.append([])
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
            is_whole = len(part) == len(self._pages[page])
            if is_whole:
                self._shifts[page] = []
            self._pages[page] = self._page(page).replace(agents[own] - page * PAGE_SIZE, part)
            # a page that is replaced as a whole is summed now, while agents of other pages are still at work
            self._totals[page] = part.total(self._n_clusters) if is_whole else None
            self._sizes[page] = None

    def remove(self, agent: int) -> None:
        """Remove the contribution of an agent."""
        self.replace(np.array([agent]), AgentSums.empty(self._schema, 1))

    def clear(self) -> None:
        """Remove the contributions of all agents."""
        self._set_pages([AgentSums.empty(self._schema, len(page)) for page in self._pages])

    def shift(self, likelihood: AnyLikelihood, shift: EffectShift) -> None:
        """Move the blocks of all contributions, those of absent agents too, because effects have moved."""
        for number, waiting in enumerate(self._shifts):
            waiting.append((likelihood, shift))
            self._totals[number] = self._sizes[number] = None

    def _set_pages(self, pages: list[AgentSums]) -> None:
        self._pages = pages
        self._totals = [None] * len(pages)
        self._sizes = [None] * len(pages)
        self._shifts = [[] for _ in pages]

    def sizes(self) -> FloatArray:
        """(agents, sizes) of all agents, `weights.agent_sizes`."""
        return np.concatenate([self.page_sizes(number) for number in range(len(self._pages))])

    def page_sizes(self, number: int) -> FloatArray:
        """(agents of the page, sizes)."""
        own = self._sizes[number]
        if own is None:
            own = self._sizes[number] = agent_sizes(self._page(number))
        return own

    def page_total(self, number: int, weights: FloatArray | None = None) -> ClusterSums:
        """The sum of a page's contributions, each with the weight of its agent if there are weights."""
        if weights is not None:
            return self._page(number).total(self._n_clusters, weights)
        own = self._totals[number]
        if own is None:
            own = self._totals[number] = self._page(number).total(self._n_clusters)
        return own

    def weights(self) -> FloatArray:
        """(agents,) the weight of each agent's contribution in the total."""
        if len(self) < FEWEST_AGENTS or np.isinf(self._max_weight):
            return np.ones(len(self))
        return agent_weights(self.sizes(), self._max_weight, counts_events=self._schema.counts_events)

    def _light_pages(self) -> dict[int, FloatArray]:
        """The weights of the agents of each page in which a weight is below 1."""
        weights = self.weights()
        parts = {number: weights[number * PAGE_SIZE :][: len(page)] for number, page in enumerate(self._pages)}
        return {number: part for number, part in parts.items() if (part < 1.0).any()}

    def total(self) -> ClusterSums:
        """The sum of all contributions, each with its agent's weight, by original cluster."""
        total = ClusterSums.zero(self._schema, self._n_clusters)
        light = self._light_pages()
        for number in range(len(self._pages)):
            total = total + self.page_total(number, light.get(number))
        return total

    def to_record(self) -> codec.Record:
        return AgentSums.stack([AgentSums.empty(self._schema, 0), *self.pages]).to_record()

    def restore(self, reader: RecordReader, n_agents: int) -> None:
        whole = AgentSums.read(reader, self._schema, self._n_clusters)
        reader.require(len(whole) <= n_agents, "sums_scalars")
        agents = np.arange(len(whole))
        self._set_pages([whole.take(agents[first : first + PAGE_SIZE]) for first in range(0, len(whole), PAGE_SIZE)])
