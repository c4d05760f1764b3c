"""What the contract suite needs of an engine: agents on devices, and what can happen to a device.

Another engine is one more class with these methods, and one more entry in `CARRIERS`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest

from fedhlcr.datasets.hierarchical import HierarchicalData
from fedhlcr.engines.in_process import Fate, InProcessEngine
from fedhlcr.engines.ray.engine import RayEngine
from fedhlcr.federation import Contribution, Contributions, Engine, Invitation, Mod
from fedhlcr.federation.open_round import Reply
from fedhlcr.federation.shard import AgentShard
from tests.federations import hierarchy_of
from tests.local_actors import local_engine


class Carrier(Protocol):
    """An engine on test: how it is made, and how its devices are disturbed.

    Attributes
    ----------
    engine : the engine on test
    devices : the agents of each device, by name
    """

    engine: Engine
    devices: Sequence[frozenset[str]]

    def __init__(self, table: HierarchicalData, folder: Path, mods: Sequence[Mod] = ()) -> None: ...

    def disturb(self, device: int, fate: str) -> None:
        """From the next round on a device is "fine", "silent" (asked in vain), "late" (by a round) or "away"."""

    def restart(self) -> None:
        """Another engine for the same agents, as after a crash of the server's process."""


class InProcess:
    """Every agent is a device."""

    class Scripted(InProcessEngine):
        """With faults that a test chooses."""

        def __init__(self, agents: AgentShard) -> None:
            super().__init__(agents)
            self.fates = np.full(len(agents), Fate.FINE)

        def _draw_fates(self) -> Any:
            return self.fates

    def __init__(self, table: HierarchicalData, folder: Path, mods: Sequence[Mod] = ()) -> None:
        del folder
        self._table, self._mods = table, tuple(mods)
        self.restart()
        self.devices = [frozenset({name}) for name in self.engine.everyone.agents]

    def restart(self) -> None:
        agents = AgentShard.from_hierarchy(hierarchy_of(self._table))
        agents.mods = self._mods
        self.engine = self.Scripted(agents)

    def disturb(self, device: int, fate: str) -> None:
        self.engine.fates[device] = {"silent": Fate.LOST, "late": Fate.LATE}.get(fate, Fate.FINE)
        (self.engine.send_away if fate == "away" else self.engine.bring_back)(self.devices[device])


class Flower:
    """Three nodes on a grid without sockets."""

    WAIT = 0.3

    def __init__(self, table: HierarchicalData, folder: Path, mods: Sequence[Mod] = ()) -> None:
        pytest.importorskip("flwr", reason="the flower extra is not installed")
        from fedhlcr.engines.flower import client_app
        from tests.flower_grid import local_nodes

        self._nodes = local_nodes(folder, table)
        for node in self._nodes.values():
            node.app = client_app.make_app(mods)
        self.restart()
        self.devices = [self.engine.present[node] for node in self._nodes]

    def restart(self) -> None:
        from fedhlcr.engines.flower.engine import FlowerEngine, WaitTimes
        from tests.flower_grid import LocalGrid

        self.engine = FlowerEngine(LocalGrid(self._nodes), "experiment", WaitTimes(3, 5.0, self.WAIT))
        self.engine.gather()

    def disturb(self, device: int, fate: str) -> None:
        node = list(self._nodes.values())[device]
        # looks for replies that a late one is behind: more than there are in a round
        node.silent, node.online, node.late_by = fate == "silent", fate != "away", 5 if fate == "late" else 0


class RayWorkers:
    """Three workers that share a block, in this process. Every agent is a device, as the history counts it."""

    class Scripted(RayEngine):
        """With faults that a test chooses, by the agents' names."""

        def __init__(self, *args: Any, **params: Any) -> None:
            super().__init__(*args, **params)
            self.fates: dict[str, str] = {}
            self._late: list[Reply] = []

        def agents(self) -> list[str]:
            return [name for name in super().agents() if self.fates.get(name) != "away"]

        def deliver(self, call: Invitation) -> Iterator[Reply]:
            late, self._late = self._late, []
            yield from late
            for reply in super().deliver(call):
                fates = np.array([self.fates.get(name, "fine") for name in reply.agents])
                self._late += [reply.take(np.array([i])) for i in np.flatnonzero(fates == "late")]
                yield reply.take(np.flatnonzero(fates == "fine"))

    def __init__(self, table: HierarchicalData, folder: Path, mods: Sequence[Mod] = ()) -> None:
        del folder
        self._table, self._mods = table, mods
        self.restart()
        self.devices = [frozenset({name}) for name in self.engine.agents()]

    def restart(self) -> None:
        self.engine = local_engine(self._table, 3, mods=self._mods, kind=self.Scripted)

    def disturb(self, device: int, fate: str) -> None:
        self.engine.fates |= dict.fromkeys(self.devices[device], fate)


CARRIERS: dict[str, type[Carrier]] = {"in process": InProcess, "flower": Flower, "ray": RayWorkers}


class Tampered:
    """An engine whose replies pass through a function, one by one, as a network or an adversary would change them."""

    def __init__(self, engine: Engine, change: Callable[[list[Contribution]], list[Reply]]) -> None:
        self._engine, self._change = engine, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def deliver(self, call: Invitation) -> Iterator[Reply]:
        yield from self._change([one for reply in self._engine.deliver(call) for one in single(reply)])


def single(reply: Reply) -> list[Contribution]:
    """The contributions in a reply."""
    if isinstance(reply, Contributions):
        return [reply[i] for i in range(len(reply))]
    return [reply if isinstance(reply, Contribution) else Contribution.from_bytes(bytes(reply))]


def forged(contribution: Contribution) -> list[Reply]:
    """Replies in an agent's name that cannot be true."""
    change, grams = dataclasses.replace, contribution.blocks["grams"]
    return [
        b"",
        contribution.to_bytes()[:-9],
        change(contribution, blocks={"grams": np.full_like(grams, np.nan)}),
        change(contribution, blocks={"grams": -grams}),
        change(contribution, blocks={"grams": grams[:, :-1]}),
        change(contribution, blocks={}),
        change(contribution, scalars=contribution.scalars + 1e9),
        change(contribution, round=contribution.round + 1),
        change(contribution, run=contribution.run + 1),
        change(contribution, agent="nobody"),
    ]
