"""What agents keep under secure aggregation: the sums that the server has of them, and those of their last answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import IndexArray
from fedhlcr._support.checks import SIZE_LIMIT
from fedhlcr.federation.fixed_sums import Integers, VectorLayout
from fedhlcr.federation.sums import AgentSums
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.likelihood import AnyLikelihood, read_likelihood
from fedhlcr.storage import codec
from fedhlcr.storage.reader import RecordReader
from fedhlcr.storage.records import under

VERSIONS = ("accepted", "pending")
# The epoch of an agent that was never asked.
NO_EPOCH = -1


class KeptSums:
    """The sums of consecutive agents in both versions, `accepted` and `pending`; compare `agent_state.AgentState`.

    Under secure aggregation agents report the difference of the two.

    Attributes
    ----------
    epochs : (agents,) the server's epoch in which each agent was last asked
    """

    def __init__(self, likelihood: AnyLikelihood, n_agents: int) -> None:
        self.likelihood = likelihood
        self.accepted = AgentSums.empty(likelihood.sum_schema, n_agents)
        self.pending = AgentSums.empty(likelihood.sum_schema, n_agents)
        self.epochs = np.full(n_agents, NO_EPOCH)

    def __len__(self) -> int:
        return len(self.epochs)

    def settle(self, arrived: NDArray[np.bool_], never: NDArray[np.bool_]) -> None:
        """Accept the pending sums of agents whose answer arrived; those of agents never accepted are zero."""
        chosen = np.flatnonzero(arrived & ~never)
        fresh = np.flatnonzero(never)
        if len(chosen):
            self.accepted = self.accepted.replace(chosen, self.pending.take(chosen))
        self.accepted = _without(self.accepted, fresh)

    def propose(self, agents: IndexArray, sums: AgentSums) -> None:
        """Set the pending sums of the agents that were asked."""
        self.pending = self.pending.replace(agents, sums)

    def differences(self, agents: IndexArray, layout: VectorLayout) -> Integers:
        """(agents, n_values) pending − accepted of some agents."""
        return layout.by_agent(self.pending.take(agents)) - layout.by_agent(self.accepted.take(agents))

    def to_record(self) -> codec.Record:
        return {
            "likelihood": self.likelihood.name,
            "fit_intercept": self.likelihood.layout.fit_intercept,
            "epochs": self.epochs,
            **under("accepted.", self.accepted.to_record()),
            **under("pending.", self.pending.to_record()),
        }

    @classmethod
    def read(cls, reader: RecordReader, n_features: int, n_agents: int) -> KeptSums:
        """Read the fields of `to_record`, and check every value."""
        layout = GramLayout(n_features, reader.value("fit_intercept", bool))
        kept = cls(read_likelihood(reader, layout), n_agents)
        schema = kept.likelihood.sum_schema
        for version in VERSIONS:
            sums = AgentSums.read(reader.part(f"{version}."), schema, SIZE_LIMIT)
            reader.require(len(sums) == n_agents, f"{version}.sums_scalars")
            setattr(kept, version, sums)
        kept.epochs = reader.array("epochs", "i8", (n_agents,), lambda epoch: epoch >= NO_EPOCH)
        return kept

    @classmethod
    def joined(cls, parts: Sequence[KeptSums], forgotten: IndexArray) -> KeptSums:
        """The sums of consecutive groups of agents, without those of the agents at the given positions."""
        whole = cls(parts[0].likelihood, sum(map(len, parts)))
        for version in VERSIONS:
            stacked = AgentSums.stack([getattr(part, version) for part in parts])
            setattr(whole, version, _without(stacked, forgotten))
        whole.epochs = np.concatenate([part.epochs for part in parts])
        return whole

    def part(self, first: int, last: int) -> KeptSums:
        """Those of agents [first, last) alone."""
        own = KeptSums(self.likelihood, last - first)
        agents = np.arange(first, last)
        for version in VERSIONS:
            setattr(own, version, getattr(self, version).take(agents))
        own.epochs = self.epochs[agents]
        return own


def _without(sums: AgentSums, agents: IndexArray) -> AgentSums:
    """The same sums, with nothing for some agents."""
    return sums.replace(agents, AgentSums.empty(sums.schema, len(agents))) if len(agents) else sums
