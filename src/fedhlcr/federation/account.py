"""The server's account of what the agents have contributed so far.

The delta rule needs one thing from an account: the sum of all agents' last accepted contributions. How an account
stores them is its own choice. `ledger.Ledger` stores the contribution of each agent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fedhlcr._support.arrays import IndexArray
from fedhlcr.federation.sums import AgentSums
from fedhlcr.model.arguments import EffectShift
from fedhlcr.model.likelihood import AnyLikelihood
from fedhlcr.model.schema import SumSchema
from fedhlcr.model.sums import ClusterSums
from fedhlcr.storage import codec
from fedhlcr.storage.reader import RecordReader


class Account(Protocol):
    """Contributions by agent. An agent is given by its position in the server's registry."""

    @property
    def is_empty(self) -> bool:
        """Whether no agent has any entity."""

    def grow(self, n_agents: int) -> None:
        """Make room for n_agents. New agents have contributed nothing yet."""

    def replace(self, agents: IndexArray, sums: AgentSums) -> None:
        """Replace the last contributions of the given agents by these."""

    def remove(self, agent: int) -> None:
        """Remove the contribution of an agent."""

    def clear(self) -> None:
        """Remove the contributions of all agents."""

    def shift(self, likelihood: AnyLikelihood, shift: EffectShift) -> None:
        """Move the blocks of all contributions, those of absent agents too, because effects have moved.

        The shift has an entry for each original cluster.
        """

    def total(self) -> ClusterSums:
        """The sum of all contributions, by original cluster."""

    def to_record(self) -> codec.Record:
        """The account's state, for a checkpoint."""

    def restore(self, reader: RecordReader, n_agents: int) -> None:
        """Read the fields of `to_record`, and check every value."""


# Creates an empty account for a number of original clusters, of what the schema sums.
AccountFactory = Callable[[int, SumSchema], Account]
