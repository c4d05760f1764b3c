"""Nodes with keys of their own on a grid without sockets, for secure aggregation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedhlcr.engines.flower.certificates import Certificates
from fedhlcr.federation.run import Checkpoints
from fedhlcr.federation.server import Server
from tests.flower_grid import LocalNode, local_nodes, state_of


def keyed_nodes(folder: Path, table: Any, n_nodes: int = 4, *, listed: bool = True) -> dict[int, LocalNode]:
    """Nodes 100, 101, …, each with a key and, if it is `listed`, with the keys of all others."""
    nodes = local_nodes(folder, table, n_nodes)
    certificates = Certificates(folder / "keys")
    certificates.make(nodes=[str(number) for number in nodes])
    for number, node in nodes.items():
        node.config["key-path"] = str(certificates.node_key(str(number)))
        if listed:
            node.config["peers-path"] = str(certificates.nodes)
    return nodes


def held_by(nodes: dict[int, LocalNode], server: Server, experiment: str = "experiment") -> np.ndarray:
    """The sum over all nodes of what their files hold, by the rounds that the server acknowledges."""
    account = server.rule.account
    total = np.zeros_like(account.integers())
    for node in nodes.values():
        shard = state_of(node, experiment).shard
        rounds = server.registry.accepted_round[server.registry.find(shard.agents)]
        for agent, number in enumerate(rounds.tolist()):
            if number >= 0:
                assert number in (shard.pending_round[agent], shard.accepted_round[agent])
                sums = shard.kept.pending if number == shard.pending_round[agent] else shard.kept.accepted
                total = total + account.vectors.total(sums.take(np.array([agent])))
    return total


def assert_nodes_hold_the_total(nodes: dict[int, LocalNode], server: Server, experiment: str = "experiment") -> None:
    """Bit for bit, whatever has been lost."""
    np.testing.assert_array_equal(held_by(nodes, server, experiment), server.rule.account.integers())
    assert server.rule.account.total().entity_counts.sum() > 0


def server_at(path: Path, settings: Any) -> Server:
    """The server as its checkpoint has it."""

    class NoEngine:
        def restore(self, record: Any) -> None: ...

    return Checkpoints(path).resume(settings, NoEngine())
