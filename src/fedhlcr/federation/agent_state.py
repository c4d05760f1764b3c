"""What agents keep for themselves besides labels: effects and noise, as far as the likelihood has them.

Like labels, the state has two versions: *accepted* goes with the labels that the server last acknowledged, *pending*
with those of the last answer, which the server may or may not have received. See `shard.AgentShard`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import IndexArray
from fedhlcr.model.likelihood import AnyLikelihood
from fedhlcr.model.schema import Level, State, StateField
from fedhlcr.storage import codec
from fedhlcr.storage.reader import RecordReader

VERSIONS = ("accepted", "pending")


class AgentState:
    """The state of consecutive agents, in both versions.

    Parameters
    ----------
    agent_start : (agents + 1,) entities of agent i are [agent_start[i], agent_start[i + 1])
    event_start : (entities + 1,) the same for the events of entities; None if the likelihood does not need them
    """

    def __init__(
        self, likelihood: AnyLikelihood, agent_start: IndexArray, event_start: IndexArray | None = None
    ) -> None:
        self.likelihood = likelihood
        self.agent_start = agent_start
        self.event_start = event_start
        events = np.zeros_like(agent_start) if event_start is None else event_start[agent_start]
        # by level, (agents + 1,): the rows of agent i are [starts[i], starts[i + 1])
        self.starts = {Level.AGENT: np.arange(len(agent_start)), Level.ENTITY: agent_start, Level.EVENT: events}
        n_rows = [int(self.starts[level][-1]) for level in Level]
        self.accepted: State = likelihood.start_state(*n_rows)
        self.pending: State = likelihood.start_state(*n_rows)

    def settle(self, arrived: NDArray[np.bool_], never: NDArray[np.bool_]) -> None:
        """Accept the pending state of agents whose answer arrived; agents never accepted start again."""
        for field in self.likelihood.state_fields:
            accepted = self.accepted[field.name]
            pending = self.pending[field.name]
            chosen, fresh = (self._rows(field, of) for of in (arrived & ~never, never))
            accepted[chosen] = pending[chosen]
            accepted[fresh] = field.initial

    def propose(self, state: State, asked: NDArray[np.bool_]) -> None:
        """Set the pending state of the agents that were asked."""
        for field in self.likelihood.state_fields:
            rows = self._rows(field, asked)
            self.pending[field.name][rows] = state[field.name][rows]

    def _rows(self, field: StateField, agents: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return np.repeat(agents, np.diff(self.starts[field.level]))

    def part(self, first: int, last: int) -> AgentState:
        """The state of agents [first, last) alone."""
        entities = slice(self.agent_start[first], self.agent_start[last] + 1)
        event_start = None
        if self.event_start is not None:
            event_start = self.event_start[entities] - self.event_start[entities.start]
        own = AgentState(self.likelihood, self.agent_start[first : last + 1] - entities.start, event_start)
        for version in VERSIONS:
            for field in self.likelihood.state_fields:
                rows = slice(*self.starts[field.level][[first, last]])
                getattr(own, version)[field.name][:] = getattr(self, version)[field.name][rows]
        return own

    def to_record(self) -> codec.Record:
        values = {f"{version}_{name}": array for version in VERSIONS for name, array in getattr(self, version).items()}
        return {"likelihood": self.likelihood.name, **values}

    def restore(self, reader: RecordReader) -> None:
        """Read and check the fields of `to_record`, for the same agents."""
        for version in VERSIONS:
            for field in self.likelihood.state_fields:
                array = getattr(self, version)[field.name]
                array[:] = reader.array(f"{version}_{field.name}", "f8", array.shape, field.possible)


def joined(states: Sequence[AgentState], kept: NDArray[np.bool_]) -> codec.Record:
    """One record of the states of consecutive groups of agents; agents that are not kept have initial values."""
    records = [state.to_record() for state in states]
    likelihood = states[0].likelihood
    whole: codec.Record = {"likelihood": likelihood.name}
    for version in VERSIONS:
        for field in likelihood.state_fields:
            name = f"{version}_{field.name}"
            values = np.concatenate([record[name] for record in records])
            sizes = np.concatenate([np.diff(state.starts[field.level]) for state in states])
            values[~np.repeat(kept, sizes)] = field.initial
            whole[name] = values
    return whole
