"""Small federations for tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fedhlcr._support.streams import Stream
from fedhlcr.data.hierarchy import build_hierarchy
from fedhlcr.datasets.hierarchical import HierarchicalData
from fedhlcr.engines.in_process import InProcessEngine
from fedhlcr.federation.agent import Agent
from fedhlcr.federation.messages import Broadcast, Contribution
from fedhlcr.federation.open_round import Invitation
from fedhlcr.federation.run import run_round
from fedhlcr.federation.server import Server
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.federation.shard import AgentShard
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.schema import GRAMS
from fedhlcr.samplers import blocked
from fedhlcr.samplers.merging import Merger, MergeSchedule, merge_state
from fedhlcr.samplers.state import ChainState, EntityData

FIXED = {"noise_scale": 1.0, "coef_scale": 1.0, "global_concentration": 1.0, "agent_concentration": 0.7}


def one_cluster(seed: int = 0, n_agents: int = 20, n_events: int = 4) -> HierarchicalData:
    """One cluster whose entities differ in all coefficients and have few events: plain clusters are many at first."""
    rng, n_entities = np.random.default_rng(seed), 5 * n_agents
    own = np.array([1.0, 2.0, -1.0]) + rng.normal(size=(n_entities, 3)) * [0.8, 0.6, 0.5]
    return _table(rng, own, np.full(n_entities, 0.4), n_events)


def four_clusters(seed: int = 0, n_agents: int = 20) -> tuple[HierarchicalData, np.ndarray]:
    """Four clusters far apart, whose entities differ a little and have noise of their own; and the entities' labels."""
    rng, n_entities = np.random.default_rng(seed), 5 * n_agents
    centres = np.array([[0.0, 3.0, 0.0], [0.0, -3.0, 0.0], [0.0, 0.0, 3.0], [0.0, 0.0, -3.0]])
    labels = rng.integers(4, size=n_entities)
    own = centres[labels] + 0.15 * rng.normal(size=(n_entities, 3))
    return _table(rng, own, rng.choice([0.2, 0.6], size=n_entities), 12), labels


def _table(rng, own, noise, n_events) -> HierarchicalData:
    """Events of entities with coefficients `own` (entities, 3) and noise (entities,), five entities to an agent."""
    entity = np.repeat(np.arange(len(own)), n_events)
    X = rng.normal(size=(len(entity), 2))
    y = own[entity, 0] + (own[entity, 1:] * X).sum(axis=1) + noise[entity] * rng.normal(size=len(entity))
    return HierarchicalData(X, y, entity // 5, entity, ("u", "v"))


def hierarchy_of(table):
    return build_hierarchy(table.X, table.y, np.ones(len(table)), table.agent, table.entity)


def in_process(table, **params) -> InProcessEngine:
    return InProcessEngine(AgentShard.from_hierarchy(hierarchy_of(table)), **params)


def agents_of(table) -> list[Agent]:
    """The agents of a table, each on its own."""
    return [
        Agent(agent, table.X[own], table.y[own], table.entity[own], disclosure=None)
        for agent in np.unique(table.agent)
        for own in [table.agent == agent]
    ]


class OneByOneEngine:
    """Agents one after the other, every message through bytes, replies in any order."""

    def __init__(self, agents: list[Agent], shuffle: int | None = None) -> None:
        self.by_name = {agent.name: agent for agent in agents}
        self._shuffle = shuffle

    def agents(self) -> list[str]:
        return list(self.by_name)

    def deliver(self, call: Invitation) -> Iterator[bytes]:
        order = np.arange(len(call.agents))
        if self._shuffle is not None:
            order = np.random.default_rng([self._shuffle, call.broadcast.round]).permutation(order)
        for i in order:
            letter = call.broadcast.acknowledging(int(call.acknowledged[i])).to_bytes()
            yield self.by_name[call.agents[i]].round(Broadcast.from_bytes(letter)).to_bytes()

    def n_copies(self, call: Invitation) -> int:
        return len(call.agents)


def grams_of(contribution: Contribution) -> np.ndarray:
    """(clusters, packed) the Gram matrices that an agent reports."""
    return contribution.blocks[GRAMS]


def with_grams(contribution: Contribution, grams: np.ndarray, **changes) -> Contribution:
    """A contribution with other Gram matrices, and other changes."""
    return replace(contribution, blocks={**contribution.blocks, GRAMS: grams}, **changes)


def server_for(n_features: int, **params) -> Server:
    return Server(FederationSettings(GramLayout(n_features), **params))


def run_rounds(server, engine, n_rounds: int) -> None:
    for _ in range(n_rounds):
        run_round(server, engine)


def centralised_states(entities: EntityData, spec: ModelSpec, n_clusters: int, stream: Stream) -> Iterator[ChainState]:
    """The states of a centralised chain of 200 sweeps: round t of a federation of all agents is its state t − 1."""
    likelihood, merger = entities.likelihood, Merger.planned(MergeSchedule.until(100), None, spec)
    state = blocked.initial_state(entities, spec, n_clusters, stream)
    while True:
        yield state
        state = blocked.step(entities, spec, state, stream, merger.going_back())
        target = merger.look(likelihood, state)
        state = state if target is None else merge_state(likelihood, state, target)
        state = state.at(merger.stage(state.round), likelihood, spec)


def assert_same_server(one: Server, other: Server, *, same_bytes: bool = True) -> None:
    """Bit for bit; the bytes that were sent may differ where messages are packed: they hold when a server began."""
    if not same_bytes:
        for server in (one, other):
            server.history.records = [replace(record, bytes_down=0, bytes_up=0) for record in server.history.records]
    assert one.to_bytes() == other.to_bytes()


def put(place, value):
    """A change of an array, for forged records: a copy that has `value` at `place`."""

    def change(array):
        array = array.copy()
        array[place] = value
        return array

    return change


def total_after(fate, carrier, server):
    """The account's total after ten rounds; in the seventh, ten devices suffer `fate`."""
    run_rounds(server, carrier.engine, 6)
    for device in range(10):
        carrier.disturb(device, fate)
    run_rounds(server, carrier.engine, 1)
    for device in range(10):
        carrier.disturb(device, "fine")
    run_rounds(server, carrier.engine, 3)
    return server.rule.account.total()
