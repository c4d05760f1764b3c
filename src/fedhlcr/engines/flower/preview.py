"""What a node would send, in plain words and numbers. It runs at the node, for its owner, and sends nothing.

It shows names of agents and counts, never a value of the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.wording import AGENT, CLUSTER, ENTITY, EVENT, FEATURE
from fedhlcr.data.hierarchy import build_hierarchy
from fedhlcr.engines.flower.node import Node
from fedhlcr.engines.flower.node_options import NodeOptions
from fedhlcr.federation.messages import Contribution
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.schema import SumSchema, gram_sums
from fedhlcr.privacy.disclosure import DisclosureRule

# Agents that are listed by name.
MOST_LISTED = 20


@dataclass(frozen=True)
class AgentCounts:
    """What an agent has."""

    name: str
    n_entities: int
    n_events: int
    reason: str | None  # why it does not take part


@dataclass(frozen=True)
class Preview:
    """What a node has and would send.

    Attributes
    ----------
    agents : its agents, in the order of the table
    events_of : (entities,) numbers of events of the entities whose agents take part
    n_features : number of features
    n_clusters : number of clusters at the start of the run, which decides how much is sent
    rule : which agents take part
    """

    agents: tuple[AgentCounts, ...]
    events_of: IndexArray
    n_features: int
    n_clusters: int
    rule: DisclosureRule

    @classmethod
    def of_node(cls, options: NodeOptions, n_clusters: int) -> Preview:
        """Read the table as the node would, without its state folder."""
        events = Node(options, "preview").read_table()
        weight = np.ones(len(events.y))
        hierarchy = build_hierarchy(events.X, events.y, weight, events.agent, events.entity, events.offset)
        index = hierarchy.index
        n_features = hierarchy.X.shape[1]
        sizes = np.diff(hierarchy.event_start)
        agents = []
        joining = []
        for position, name in enumerate(index.agents.texts):
            own = sizes[index.agent_start[position] : index.agent_start[position + 1]]
            reason = options.disclosure.reason(int(own.sum()), len(own), n_features)
            agents.append(AgentCounts(name, len(own), int(own.sum()), reason))
            joining += [own] if reason is None else []
        events_of = np.concatenate([np.empty(0, dtype=np.int64), *joining])
        return cls(tuple(agents), events_of, n_features, n_clusters, options.disclosure)

    @property
    def joining(self) -> tuple[AgentCounts, ...]:
        return tuple(agent for agent in self.agents if agent.reason is None)

    def lines(self) -> Iterator[str]:
        yield from self._who_joins()
        if not self.joining:
            yield ""
            yield "So this node would send no sums; the server would learn only that none of its agents takes part."
            return
        yield from self._survey()
        yield from self._rounds()
        yield from self._worst_case()
        yield from self._modes()

    def _who_joins(self) -> Iterator[str]:
        n_joining = len(self.joining)
        yield f"Who takes part: {n_joining} of {AGENT.count(len(self.agents))}"
        yield (
            f"  An agent needs {EVENT.count(self.rule.least_events(self.n_features))} and "
            f"{ENTITY.count(self.rule.min_entities)} (`min-events`, `min-entities` of the node-config)."
        )
        width = max(len(agent.name) for agent in self.agents[:MOST_LISTED])
        for agent in self.agents[:MOST_LISTED]:
            has = f"{ENTITY.count(agent.n_entities)}, {EVENT.count(agent.n_events)}"
            verdict = "takes part" if agent.reason is None else f"stays out: {agent.reason}"
            yield f"  {agent.name:{width}s}  {has:30s}  {verdict}"
        if len(self.agents) > MOST_LISTED:
            others = self.agents[MOST_LISTED:]
            n_out = sum(agent.reason is not None for agent in others)
            yield f"  … and {AGENT.count(len(others))} more, of which {n_out} stay out"

    def _survey(self) -> Iterator[str]:
        layout = GramLayout(self.n_features)
        sent = _contribution(gram_sums(layout.packed_size), 1, self.n_features + 1)
        yield ""
        yield "Sent once, in the survey, by each agent that takes part"
        yield "  its name and the names of the columns"
        yield "  the number of its events"
        yield f"  the mean of each column: {self.n_features + 1} numbers"
        yield (
            f"  the sums of squares and products of all columns: {layout.packed_size} numbers, "
            f"{len(sent.to_bytes()):,} bytes in all, before compression"
        )
        yield "  if the run uses curves: 33 quantiles of each such column, which are values of the table"

    def _rounds(self) -> Iterator[str]:
        layout = GramLayout(self.n_features)
        models: tuple[dict[str, Any], ...] = {"effects": "none", "noise": "common"}, {}
        schemas = [FederationSettings(layout, **model).make_likelihood().sum_schema for model in models]
        sizes = [len(_contribution(schema, self.n_clusters, 0).to_bytes()) for schema in schemas]
        plain, whole = (len(schema.scalars) for schema in schemas)
        yield ""
        yield f"Sent in every round by each agent, for each of {CLUSTER.count(self.n_clusters)}; later there are fewer"
        yield "  how many of its entities are in the cluster: 2 numbers"
        yield f"  the sums of squares and products over the events of these entities: {layout.packed_size} numbers"
        yield (
            "  with effects: sums of squares and products of its entities' deviations from the cluster: "
            f"{layout.packed_size} numbers"
        )
        yield "And for all clusters together"
        yield f"  how many labels changed, their log prior, two draws for the concentrations: {plain} numbers"
        yield f"  with effects: {whole - plain} more sums over its entities, of variances, residuals and deviations"
        yield (
            f"In all {sizes[0]:,} bytes for the plain model, {sizes[1]:,} with effects and noise of entities, "
            "before compression."
        )
        yield "Never sent: rows of the table, ids of entities, and which entity is in which cluster."

    def _worst_case(self) -> Iterator[str]:
        n_one, n_two = (int((self.events_of == n).sum()) for n in (1, 2))
        n_few = int((self.events_of <= self.n_features + 1).sum())
        n_entities = len(self.events_of)
        yield ""
        yield f"What the server could work out in the plain mode, in the worst case ({ENTITY.count(n_entities)})"
        yield "  If an entity is alone in its cluster, or moves alone, the sums are that entity's."
        if n_one:
            yield f"  {_share(n_one, n_entities)} one event: its sums are the event, exactly."
        if n_two:
            yield f"  {_share(n_two, n_entities)} two events: both can be computed from the sums, exactly."
        if n_few:
            yield f"  {_share(n_few, n_entities)} at most {self.n_features + 1} events, few for {self._features}."
        others = "all others" if n_few else "these entities"
        yield f"  Of {others}: the number of events, means, variances and correlations."
        if n_one + n_two:
            yield "  Consider leaving these entities out, larger entities, or secure aggregation."

    @property
    def _features(self) -> str:
        return FEATURE.count(self.n_features)

    def _modes(self) -> Iterator[str]:
        yield ""
        yield "Who sees it"
        yield "  plain    The server sees these sums of each agent."
        yield (
            "  secure   The server sees only the sum over a cohort of devices (`min-cohort`). This node adds up its "
            "agents and sends numbers that look random."
        )
        yield (
            "  private  With differential privacy (`epsilon` of the run) none of these sums are sent, but clipped "
            "vectors, to which the server or, under secure aggregation, this node adds noise; see `max-epsilon`."
        )


def _share(count: int, n_entities: int) -> str:
    return f"{ENTITY.count(count)} of {n_entities:,} {'has' if count == 1 else 'have'}"


def _contribution(schema: SumSchema, n_clusters: int, n_means: int) -> Contribution:
    """A contribution of the size of an agent's; all have the same size, whatever the agent has."""
    counts = np.zeros(n_clusters, dtype=np.int32)
    scalars: FloatArray = np.zeros(len(schema.scalars))
    return Contribution(0, 0, 0, "agent", counts, counts, schema.zero_blocks(n_clusters), scalars, np.zeros(n_means))
