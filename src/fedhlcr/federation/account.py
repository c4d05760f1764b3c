"""The server's books: what the agents have contributed so far.

The delta rule asks an account for one thing, the sum of every agent's last accepted contribution. How it is kept is the
account's own business: `ledger.Ledger` keeps each agent's contribution by itself.
"""

from __future__ import annotations

from typing import Protocol

from fedhlcr._support.arrays import IndexArray
from fedhlcr.federation.sums import AgentSums
from fedhlcr.model.sums import ClusterSums
from fedhlcr.storage import codec
from fedhlcr.storage.reader import RecordReader


class Account(Protocol):
    """Contributions by agent; agents are known by their positions in the server's registry."""

    @property
    def is_empty(self) -> bool:
        """Whether no agent has any entity."""

    def grow(self, n_agents: int) -> None:
        """Make room for n_agents; new ones have contributed nothing."""

    def replace(self, agents: IndexArray, sums: AgentSums) -> None:
        """Enter the contributions of the given agents instead of their last ones."""

    def remove(self, agent: int) -> None:
        """Withdraw all that an agent has contributed."""

    def total(self) -> ClusterSums:
        """The sum of all contributions, by original cluster."""

    def to_record(self) -> codec.Record: ...

    def restore(self, reader: RecordReader, n_agents: int) -> None: ...
