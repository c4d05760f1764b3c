"""Agents that share a device: they answer broadcasts, predict, and are saved in one file.

Why there are three classes for agents:

    `shard.AgentShard`   arrays and what a round does to them. A simulation splits one shard into many that share its
                         arrays, one for each task of a thread.
    `AgentGroup`         a shard on a device. It cannot be split, because it also has the entities' ids, by which
                         predictions find their entity, and the record that a file holds. A Flower node has one.
    `agent.Agent`        a group of one agent: it takes one table with one agent's id, answers with one contribution,
                         and saves itself. It adds no state.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray, KeyArray
from fedhlcr._support.checks import SIZE_LIMIT, not_negative, within
from fedhlcr._support.streams import ReservedChain, Stream
from fedhlcr._support.threads import single_threaded_blas
from fedhlcr._support.wording import AGENT, COLUMN, FEATURE
from fedhlcr.data import inputs
from fedhlcr.data.events import EventStore
from fedhlcr.data.hierarchy import UNKNOWN, EntityIndex, Hierarchy, row_agents, row_entities
from fedhlcr.data.ids import Ids
from fedhlcr.exceptions import ArgumentError, UnknownAgentError
from fedhlcr.federation.kept_sums import KeptSums
from fedhlcr.federation.messages import MOST_ROUNDS, NEVER, Broadcast, Contributions
from fedhlcr.federation.mods import Mod
from fedhlcr.federation.shard import AgentShard
from fedhlcr.model.gram import GramLayout, read_units
from fedhlcr.posterior import AgentMemory, Posterior, Profiles, PublicModel
from fedhlcr.posterior.responses import Moments
from fedhlcr.privacy.disclosure import DisclosureRule
from fedhlcr.samplers.state import EntityData
from fedhlcr.storage import codec
from fedhlcr.storage.reader import RecordReader
from fedhlcr.storage.records import from_record, to_record, under


class AgentGroup:
    """All agents of a device: the Gram matrices of their entities, and the entities' labels.

    Parameters
    ----------
    hierarchy : the agents' events; they are summed, and kept only until a run begins that does not need them
    mods : functions that contributions pass through before they leave the device, `federation.mods`
    disclosure : which agents take part; None for all
    """

    def __init__(
        self, hierarchy: Hierarchy, mods: Sequence[Mod] = (), disclosure: DisclosureRule | None = None
    ) -> None:
        self.index = hierarchy.index
        self.disclosure = disclosure
        self.shard = AgentShard.from_hierarchy(hierarchy)
        self.shard.mods = tuple(mods)
        # drawn once, and kept with the labels: a server that knows the seed must not be able to test guesses of these
        self.shard.secrets = _new_secrets(len(self.shard))

    @property
    def names(self) -> list[str]:
        """Canonical texts of the agents' ids, by which the server knows them."""
        return self.shard.agents

    @property
    def joins(self) -> NDArray[np.bool_]:
        """(agents,) which agents take part: those with enough events and entities for the disclosure rule."""
        if self.disclosure is None:
            return np.ones(len(self.names), dtype=bool)
        shard = self.shard
        return self.disclosure.joins(shard.n_events(), np.diff(shard.agent_start), shard.n_features)

    def positions(self, names: Sequence[str]) -> IndexArray:
        """Positions of agents by name. The error for an unknown agent does not quote its name."""
        place = {name: position for position, name in enumerate(self.names)}
        if n_unknown := sum(name not in place for name in names):
            raise UnknownAgentError(
                f"{n_unknown} of {AGENT.count(len(names))} asked {'is' if n_unknown == 1 else 'are'} not on this device"
            )
        return np.array([place[name] for name in names], dtype=np.int64)

    @single_threaded_blas
    def answer(self, broadcast: Broadcast, positions: IndexArray, acknowledged: IndexArray) -> Contributions:
        """Draw new labels for the entities of some agents, and return the sums of those that take part.

        Parameters
        ----------
        positions : of the agents asked
        acknowledged : round of each agent's last accepted contribution, or NEVER
        """
        joining = np.flatnonzero(self.joins[positions])
        positions = positions[joining]
        acknowledged = acknowledged[joining]
        order = np.argsort(positions, kind="stable")
        return self.shard.answer(broadcast, positions[order], acknowledged[order])

    @single_threaded_blas
    def predict(
        self, model: PublicModel, X: Any, entity: Any = None, *, agent: Any = None, offset: FloatArray | None = None
    ) -> Moments:
        """Predict for these agents' entities, from the public model and the private matrices. Nothing is sent.

        The agents need not have taken part in the federation. `agent=None` is for a group of one agent. Rows of an
        unknown entity, or all rows if `entity=None`, are predicted as a new entity of their agent. Means of a binary
        target are probabilities; `offset` (rows,) are logs of exposures, for counts.
        """
        matrix = inputs.feature_matrix(X)
        if matrix.shape[1] != model.layout.n_inputs:
            raise ArgumentError(
                f"`X` has {COLUMN.count(matrix.shape[1])}, but the model has {FEATURE.count(model.layout.n_inputs)}; "
                "pass the columns the federation was fitted to, in their order."
            )
        n_rows = len(matrix)
        agents = np.zeros(n_rows, dtype=np.int64)
        if agent is not None:
            agents = self.index.find_agents(row_agents(agent, n_rows))
        pairs = np.full(n_rows, UNKNOWN, dtype=np.int64)
        if entity is not None:
            pairs = self.index.find_entities(agents, row_entities(entity, n_rows))
        return self.posterior(model).predict(matrix, Profiles.of(agents, pairs), offset=offset)

    def posterior(self, model: PublicModel) -> Posterior:
        """The public draws together with these agents' matrices and their entities' labels under each draw."""
        if model.layout.n_inputs != self.shard.n_features:
            raise ArgumentError(
                f"the model has {FEATURE.count(model.layout.n_inputs)}, but the agents here have "
                f"{self.shard.n_features}; use the model of the federation they take part in."
            )
        events = (
            self.shard.events_in(model.standardization, model.likelihood) if model.likelihood.needs_events else None
        )
        grams = self.shard.grams_in(model.standardization)
        entities = EntityData(model.likelihood, self.index, grams, events=events)
        memory = AgentMemory.from_draws(entities, model.draws, Stream(model.seed, ReservedChain.PREDICTION))
        return Posterior(model.likelihood, model.standardization, model.draws, memory)

    def to_record(self) -> codec.Record:
        """The agent state, to be kept in a local file."""
        shard = self.shard
        index = self.index
        record: codec.Record = {
            "agents": list(index.agents.texts),
            "entities": list(index.entities.texts),
            "agent_of": index.agent_of,
            "entity_of": index.entity_of,
            "grams": shard.grams,
            "shifts": shard.shifts,
            "accepted": shard.accepted,
            "pending": shard.pending,
            "accepted_round": shard.accepted_round,
            "pending_round": shard.pending_round,
        }
        if shard.secrets is not None:
            record["secrets"] = shard.secrets
        if shard.kept is not None:
            record |= under("kept.", shard.kept.to_record())
        if shard.agent_state is not None:
            record |= under("private.", shard.agent_state.to_record())
        if shard.run is not None and shard.layout is not None and shard.units is not None:
            record |= {
                "run": shard.run,
                "session": shard.session,
                "newest_round": shard.newest_round,
                "fit_intercept": shard.layout.fit_intercept,
                **under("unit_", shard.units.to_record()),
            }
        if shard.events is not None:
            record |= under("events.", to_record(shard.events))
        return record

    @classmethod
    def read(cls, reader: RecordReader, mods: Sequence[Mod] = (), disclosure: DisclosureRule | None = None) -> Self:
        """Read the fields of `to_record`, and check every value."""
        group = cls.__new__(cls)
        group.disclosure = disclosure
        group.index = EntityIndex.read(
            reader, Ids.of_texts(reader.texts("agents")), Ids.of_texts(reader.texts("entities"))
        )
        shifts = reader.array("shifts", "f8", (group.index.n_agents, None), np.isfinite)
        reader.require(1 <= shifts.shape[1] <= SIZE_LIMIT, "shifts")
        layout = GramLayout(shifts.shape[1] - 1)
        units = None
        if "run" in reader:
            layout, units = read_units(reader.part("unit_"), fit_intercept=reader.value("fit_intercept", bool))
            reader.require(layout.n_inputs == shifts.shape[1] - 1, "unit_shift")
        grams = reader.array("grams", "f8", (group.index.n_entities, layout.packed_size))
        group.shard = shard = AgentShard.unlabelled(group.index, grams, shifts)
        shard.mods = tuple(mods)
        shard.restore(reader)
        # files of releases before 0.2 have none
        shard.secrets = (
            _new_secrets(len(shard)) if "secrets" not in reader else reader.array("secrets", "u8", (len(shard), 2))
        )
        if not (kept := reader.part("kept.")).is_empty:
            shard.kept = KeptSums.read(kept, shard.n_features, len(shard))
        sizes = {"entities": group.index.n_entities, "features": shard.n_features}
        if not (events := reader.part("events.")).is_empty:
            shard.events = from_record(EventStore, events, sizes)
        # matrices with curves cannot be converted, only built from the events again
        reader.require(shard.events is not None or not layout.curve_groups, "events.start")
        if units is not None:
            shard.layout = layout
            shard.units = units
            shard.run = reader.value("run", int)
            shard.session = reader.value("session", int, not_negative)
            shard.newest_round = reader.value("newest_round", int, within(NEVER, MOST_ROUNDS))
            shard.read_agent_state(reader.part("private."))
        return group


def _new_secrets(n_agents: int) -> KeyArray:
    """(n_agents, 2) random numbers from the operating system."""
    return np.frombuffer(os.urandom(16 * n_agents), dtype=np.uint64).reshape(-1, 2).copy()
