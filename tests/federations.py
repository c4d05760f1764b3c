"""Small federations for tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fedhlcr.data.hierarchy import build_hierarchy
from fedhlcr.engines.in_process import InProcessEngine
from fedhlcr.federation.agent import Agent
from fedhlcr.federation.messages import Broadcast, Contribution
from fedhlcr.federation.run import run_round
from fedhlcr.federation.server import Invitation, Server
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.federation.shard import AgentShard
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.schema import GRAMS

FIXED = {"noise_scale": 1.0, "coef_scale": 1.0, "global_concentration": 1.0, "agent_concentration": 0.7}


def hierarchy_of(table):
    return build_hierarchy(table.X, table.y, np.ones(len(table)), table.agent, table.entity)


def in_process(table, **params) -> InProcessEngine:
    return InProcessEngine(AgentShard.from_hierarchy(hierarchy_of(table)), **params)


def agents_of(table) -> list[Agent]:
    """The agents of a table, each on its own."""
    return [
        Agent(agent, table.X[own], table.y[own], table.entity[own])
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


def assert_same_server(one: Server, other: Server) -> None:
    """Bit for bit."""
    assert one.to_bytes() == other.to_bytes()
