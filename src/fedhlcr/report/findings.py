"""The facts of a model, with the agents and entities that a page has room for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.threads import single_threaded_blas
from fedhlcr._support.wording import AGENT
from fedhlcr.analysis.axis_words import describe_effects
from fedhlcr.analysis.effects import entity_noise
from fedhlcr.analysis.facts import SURE, AgentFacts, Facts, UserNames
from fedhlcr.analysis.names import begins_with, named, names_to_show
from fedhlcr.report.packing import rows_that_fit, size_of_agents, size_of_entities

# Entities named as examples of a cluster, and effects described.
N_EXAMPLES = 3
N_EFFECTS = 3


@dataclass(frozen=True)
class ListedEntities:
    """Agent–entity pairs; of more than fit on a page, the least certain.

    Attributes
    ----------
    agents, entities : distinct names; `agent` and `entity` are positions in them
    label, certainty : the cluster in `labels_`, and its probability
    runner_up, runner_up_probability : the most probable of the other clusters; −1 and 0 if there is only one cluster
    scatter : root mean square of the events around the entity's own regression, in units of the target
    noise : the noise that the model assumes for the entity, in units of the target
    observed : of classes and counts, the share of the second class or the rate among its events; then there is no
        scatter or noise
    n_all, n_uncertain : numbers of all entities and of all uncertain ones, listed or not
    position : (listed,) positions in the model, as in `labels_`
    probability : (listed, clusters) of each cluster
    """

    names: UserNames
    agents: list[str]
    entities: list[str]
    agent: IndexArray
    entity: IndexArray
    n_events: FloatArray
    label: IndexArray
    certainty: FloatArray
    runner_up: IndexArray
    runner_up_probability: FloatArray
    scatter: FloatArray | None
    noise: FloatArray | None
    observed: FloatArray | None
    n_all: int
    n_uncertain: int
    position: IndexArray
    probability: FloatArray

    def __len__(self) -> int:
        return len(self.label)

    def name(self, row: int) -> str:
        """The entity and, if there are several agents, its agent."""
        entity = self.entities[self.entity[row]]
        agent = self.agents[self.agent[row]]
        alone = len(self.agents) < 2 or (begins_with(entity, agent) and not agent.isdigit())
        entity_name = named(entity, self.names.entity)
        return entity_name if alone else f"{entity_name} of {named(agent, self.names.agent)}"

    def examples(self, cluster: int) -> list[tuple[int, str]]:
        """The row and the name of the most certain entities; of equally certain ones, of those with most events."""
        own = np.flatnonzero((self.label == cluster) & (self.certainty >= SURE))
        # certainty is rounded, so that the number of events decides among the certain ones
        order = np.lexsort((-self.n_events[own], -self.certainty[own].round(2)))
        return [(int(row), self.name(row)) for row in own[order[:N_EXAMPLES]]]


class Findings(Facts):
    """The facts of a model that a report shows, except scores on held-out events."""

    @cached_property
    @single_threaded_blas
    def moves(self) -> list[list[str]]:
        """The strongest effects in each cluster, in words."""
        return describe_effects(self.model, N_EFFECTS)

    @property
    def noise_name(self) -> str:
        """ "noise scale", as in the summary; with heavy tails the standard deviation is another number"""
        heavy = self.model.posterior_.likelihood.has_heavy_tails
        return "standard deviation of the noise" if heavy else "noise scale"

    @property
    def has_agents(self) -> bool:
        """Whether there are agents to speak of: several, or one that the user named a column for."""
        return self.agents is not None and (len(self.agents) > 1 or self.names.agent != AGENT)

    @cached_property
    @single_threaded_blas
    def entities(self) -> ListedEntities | None:
        """The entities that fit on the page; None if the model is public."""
        if self.agents is None:
            return None
        posterior = self.model.posterior_
        store = posterior.memory.entities
        members = self.members
        rows, names, entity_of = self._rows_on_page(self.agents)
        chosen = members.listed[rows]
        runner_up, runner_up_probability = members.runners_up()
        n_events = self.events_of_entities[chosen]
        scatter = noise = observed = None
        if not self.link.family.has_link:
            scatter = np.sqrt(self.residual_squares[chosen] / np.maximum(n_events, 1e-300))
            noise = entity_noise(self.model)[chosen]
        else:
            totals, exposures = self.totals
            observed = totals[chosen] / np.maximum(exposures[chosen], 1e-300)
        return ListedEntities(
            names=self.names,
            agents=self.agents.ids,
            entities=names,
            agent=store.index.agent_of[chosen],
            entity=entity_of,
            n_events=n_events,
            label=members.label[chosen],
            certainty=members.certainty[chosen],
            runner_up=runner_up[rows],
            runner_up_probability=runner_up_probability[rows],
            scatter=scatter,
            noise=noise,
            observed=observed,
            n_all=len(store),
            n_uncertain=int((members.certainty < SURE).sum()),
            position=chosen,
            probability=members.probability[rows],
        )

    def _rows_on_page(self, agents: AgentFacts) -> tuple[IndexArray, list[str], IndexArray]:
        """The rows of `members.listed` that fit on a page, their distinct names, and the position of each row's."""
        members = self.members
        index = self.model.posterior_.memory.entities.index
        distinct, name_of = np.unique(index.entity_of[members.listed], return_inverse=True)
        names = names_to_show(index.entities.texts[entity] for entity in distinct)
        size = size_of_entities(names, members.probability, index.n_entities)
        n_rows = rows_that_fit(len(name_of), size_of_agents(agents.ids, agents.weights), size)
        rows = np.sort(np.argsort(members.certainty[members.listed], kind="stable")[:n_rows])
        used, name_of = np.unique(name_of[rows], return_inverse=True)
        return rows, [names[name] for name in used], name_of
