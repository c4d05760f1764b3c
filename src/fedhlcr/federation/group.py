"""Agents that share a device: their matrices and labels in one place, and in one file.

`AgentGroup` adds to a shard what a device needs: ids as their users know them, predictions, and a file. `agent.Agent`
is a group of one with simpler arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from fedhlcr._support.arrays import IndexArray
from fedhlcr._support.streams import ReservedChain, Stream
from fedhlcr._support.threads import single_threaded_blas
from fedhlcr.data import inputs
from fedhlcr.data.hierarchy import UNKNOWN, EntityIndex, Hierarchy, row_agents, row_entities
from fedhlcr.data.ids import Ids
from fedhlcr.federation.messages import MOST_ROUNDS, NEVER, Broadcast, Contributions
from fedhlcr.federation.mods import Mod
from fedhlcr.federation.shard import AgentShard
from fedhlcr.model.gram import GramLayout, read_units
from fedhlcr.posterior import AgentMemory, Posterior, Profiles, PublicModel
from fedhlcr.posterior.predictive import Moments
from fedhlcr.samplers.state import Entities
from fedhlcr.storage import codec
from fedhlcr.storage.reader import MOST, RecordReader, not_negative, within


class AgentGroup:
    """The Gram matrices of all agents of a device, the labels of their entities, what they last had acknowledged.

    Parameters
    ----------
    hierarchy : their events, which are summed up and not kept
    mods : what contributions pass through before they leave the device, `federation.mods`
    """

    def __init__(self, hierarchy: Hierarchy, mods: Sequence[Mod] = ()) -> None:
        self.index = hierarchy.index
        self.shard = AgentShard.from_hierarchy(hierarchy)
        self.shard.mods = tuple(mods)

    @property
    def names(self) -> list[str]:
        """Canonical texts of the agents' ids: how the server knows them."""
        return self.shard.agents

    def positions(self, names: Sequence[str]) -> IndexArray:
        """Where agents are, by name; KeyError, without the name, where one is not here."""
        place = {name: position for position, name in enumerate(self.names)}
        if strangers := sum(name not in place for name in names):
            raise KeyError(f"{strangers} of {len(names)} agents asked are not here")
        return np.array([place[name] for name in names], dtype=np.int64)

    @single_threaded_blas
    def answer(self, broadcast: Broadcast, positions: IndexArray, acknowledged: IndexArray) -> Contributions:
        """New labels of some agents' entities, and what these sum to; each agent with its last accepted round."""
        order = np.argsort(positions, kind="stable")
        return self.shard.answer(broadcast, positions[order], acknowledged[order])

    @single_threaded_blas
    def predict(self, model: PublicModel, X: Any, agent: Any = None, entity: Any = None) -> Moments:
        """Predictions for their own entities, from what is public and their private matrices; nothing is sent.

        They need not have taken part. `agent=None` is for a group of one; entities that are not known, and
        `entity=None`, are predicted by what the agent's others are.
        """
        matrix = inputs.feature_matrix(X)
        if matrix.shape[1] != model.layout.n_features:
            raise ValueError(
                f"`X` has {matrix.shape[1]} columns, but the model is about {model.layout.n_features} features; pass "
                "the columns the federation was fitted to, in their order."
            )
        n_rows = len(matrix)
        agents = np.zeros(n_rows, dtype=np.int64)
        if agent is not None:
            agents = self.index.find_agents(row_agents(agent, n_rows))
        pairs = np.full(n_rows, UNKNOWN, dtype=np.int64)
        if entity is not None:
            pairs = self.index.find_entities(agents, row_entities(entity, n_rows))
        return self.posterior(model).predict(matrix, Profiles.of(agents, pairs))

    def posterior(self, model: PublicModel) -> Posterior:
        """The public draws with their own matrices, and their entities' labels under each of the draws."""
        if model.layout.n_features != self.shard.n_features:
            raise ValueError(
                f"the model is about {model.layout.n_features} features, but the agents here have "
                f"{self.shard.n_features}; use the model of the federation they take part in."
            )
        entities = Entities(model.likelihood, self.index, self.shard.grams_in(model.standardization))
        memory = AgentMemory.from_draws(entities, model.draws, Stream(model.seed, ReservedChain.PREDICTION))
        return Posterior(model.likelihood, model.standardization, model.draws, memory)

    def to_record(self) -> codec.Record:
        """The private state, for a local file."""
        shard, index = self.shard, self.index
        record: codec.Record = {
            "agents": index.agents.texts,
            "entities": index.entities.texts,
            "agent_of": index.agent_of,
            "entity_of": index.entity_of,
            "grams": shard.grams,
            "shifts": shard.shifts,
            "accepted": shard.accepted,
            "pending": shard.pending,
            "accepted_round": shard.accepted_round,
            "pending_round": shard.pending_round,
        }
        if shard.run is not None and shard.layout is not None and shard.units is not None:
            record |= {
                "run": shard.run,
                "session": shard.session,
                "newest_round": shard.newest_round,
                "fit_intercept": shard.layout.fit_intercept,
                "unit_shift": shard.units.shift,
                "unit_scale": shard.units.scale,
            }
        return record

    @classmethod
    def read(cls, reader: RecordReader, mods: Sequence[Mod] = ()) -> Self:
        """From the fields of `to_record`, checked."""
        group = cls.__new__(cls)
        group.index = EntityIndex.read(
            reader, Ids.of_texts(reader.texts("agents")), Ids.of_texts(reader.texts("entities"))
        )
        shifts = reader.array("shifts", "f8", (group.index.n_agents, None), np.isfinite)
        reader.require(1 <= shifts.shape[1] <= MOST, "shifts")
        layout = GramLayout(shifts.shape[1] - 1)
        grams = reader.array("grams", "f8", (group.index.n_entities, layout.packed_size))
        group.shard = shard = AgentShard.unlabelled(group.index, grams, shifts)
        shard.mods = tuple(mods)
        shard.restore(reader)
        if "run" in reader:
            shard.run, shard.session = reader.value("run", int), reader.value("session", int, not_negative)
            shard.newest_round = reader.value("newest_round", int, within(NEVER, MOST_ROUNDS))
            fit_intercept = reader.value("fit_intercept", bool)
            shard.layout, shard.units = read_units(reader.part("unit_"), fit_intercept=fit_intercept)
            reader.require(shard.layout.n_features == layout.n_features, "unit_shift")
        return group
