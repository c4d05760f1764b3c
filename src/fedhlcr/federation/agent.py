"""One agent on a device of its own: it answers broadcasts, predicts for itself, and survives a restart."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedhlcr import codec, storage, tables
from fedhlcr.federation.messages import Broadcast, Contribution
from fedhlcr.federation.shard import AgentShard
from fedhlcr.gram import GramLayout, Standardization
from fedhlcr.hierarchy import UNKNOWN, EntityIndex, Hierarchy, build_hierarchy, row_entities
from fedhlcr.posterior import PREDICTION_CHAIN, AgentMemory, Moments, Posterior, Profiles, PublicModel
from fedhlcr.samplers.state import Entities
from fedhlcr.storage import PathLike
from fedhlcr.streams import Stream
from fedhlcr.tables import Ids
from fedhlcr.threads import single_threaded_blas

STATE_KIND, STATE_VERSION = "agent", 1


class Agent:
    """What one agent holds: the Gram matrices of its entities, their labels, what it last had acknowledged.

    Its events are summed up when it is made and not kept; there may be none at all.

    Parameters
    ----------
    agent : the agent's id, of any type; ids are told apart by their text
    X, y : its events, as in `HLCRRegressor.fit`
    entity : (n_events,) ids; None makes each event an entity of its own
    sample_weight : (n_events,) frequencies
    """

    def __init__(self, agent: Any, X: Any, y: Any, entity: Any = None, sample_weight: Any = None) -> None:
        hierarchy = _hierarchy_of_one(agent, X, y, entity, sample_weight)
        self._index = hierarchy.index
        self._shard = AgentShard.from_hierarchy(hierarchy)

    @property
    def name(self) -> str:
        """Canonical text of its id: how the server knows it."""
        return self._shard.agents[0]

    @property
    def accepted_labels(self) -> dict[str, int]:
        """Original cluster of each entity under the last acknowledged labels; −1 before there are any."""
        texts = self._index.entities.texts
        return dict(zip((texts[i] for i in self._index.entity_of), self._shard.accepted.tolist(), strict=True))

    @single_threaded_blas
    def round(self, broadcast: Broadcast) -> Contribution:
        """New labels under the broadcast, and what the entities sum to under them."""
        contributions = self._shard.answer(broadcast, np.array([0]), np.array([broadcast.acknowledged]))
        return contributions[0]

    @single_threaded_blas
    def predict(self, model: PublicModel, X: Any, entity: Any = None) -> Moments:
        """Predictions for its own entities, from what is public and its private matrices; nothing is sent.

        It need not have taken part. Entities it does not know, and `entity=None`, are predicted by what its others are.
        """
        matrix = tables.feature_matrix(X)
        known = np.zeros(len(matrix), dtype=np.int64)
        unknown = np.full(len(matrix), UNKNOWN, dtype=np.int64)
        ids = None if entity is None else row_entities(entity, len(matrix))
        pairs = unknown if ids is None else self._index.find_entities(known, ids)
        return self.posterior(model).predict(matrix, Profiles.of(known, pairs))

    def posterior(self, model: PublicModel) -> Posterior:
        """The public draws with its own matrices, and its entities' labels under each of the draws."""
        entities = Entities(model.layout, self._index, self._shard.grams_in(model.standardization))
        memory = AgentMemory.from_draws(entities, model.draws, Stream(model.seed, PREDICTION_CHAIN))
        return Posterior(model.layout, model.standardization, model.draws, memory)

    def save(self, path: PathLike) -> None:
        """Write the private state to a local file: whole or not at all, whatever happens meanwhile.

        Save after `round` and *before* its contribution is sent: else the server may know labels that are lost here.
        """
        shard, index = self._shard, self._index
        record: codec.Record = {
            "agent": self.name,
            "entities": [index.entities.texts[i] for i in index.entity_of],
            "grams": shard.grams,
            "shift": shard.shifts[0],
            "accepted": shard.accepted,
            "pending": shard.pending,
            "accepted_round": int(shard.accepted_round[0]),
            "pending_round": int(shard.pending_round[0]),
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
        storage.write_atomically(path, codec.encode(STATE_KIND, STATE_VERSION, record))

    @classmethod
    def load(cls, path: PathLike) -> Agent:
        """An agent as it was saved; if the newest file is damaged, as it was saved before."""
        record = storage.read_newest(path, STATE_KIND, STATE_VERSION)
        index = _index_of_one(record["agent"], record["agent"], record["entities"])
        agent = cls.__new__(cls)
        agent._index = index
        agent._shard = AgentShard(
            index.agents.texts,
            index.agent_start,
            index.agent_keys,
            index.entity_keys,
            # what comes out of a record is read-only
            grams=record["grams"].copy(),
            shifts=record["shift"][None].copy(),
            accepted=record["accepted"].copy(),
            pending=record["pending"].copy(),
            accepted_round=np.array([record["accepted_round"]]),
            pending_round=np.array([record["pending_round"]]),
        )
        if "run" in record:
            agent._shard.run = record["run"]
            agent._shard.session, agent._shard.newest_round = record["session"], record["newest_round"]
            agent._shard.layout = GramLayout(agent._shard.n_features, record["fit_intercept"])
            agent._shard.units = Standardization(record["unit_shift"], record["unit_scale"])
        return agent


def _hierarchy_of_one(agent: Any, X: Any, y: Any, entity: Any, sample_weight: Any) -> Hierarchy:
    if tables.is_missing(agent):
        raise ValueError("`agent` is missing; pass the id by which the server is to know this agent.")
    if np.shape(X)[:1] == (0,) and np.ndim(X) == 2:
        nothing, text = np.empty(0), tables.canonical_text(agent)
        start = np.zeros(1, dtype=np.int64)
        return Hierarchy(np.empty(np.shape(X)), nothing, nothing, start, _index_of_one(agent, text, []))
    matrix = tables.feature_matrix(X)
    target = tables.target_vector(y, len(matrix))
    weight = tables.weight_vector(sample_weight, len(matrix))
    everywhere = np.empty(len(matrix), dtype=object)
    for row in range(len(matrix)):
        # one by one: an id may be a tuple
        everywhere[row] = agent
    return build_hierarchy(matrix, target, weight, everywhere, entity)


def _index_of_one(agent: Any, text: str, entity_texts: list[str]) -> EntityIndex:
    """An index of one agent's entities, in their order."""
    value = np.empty(1, dtype=object)
    value[0] = agent
    n_entities = len(entity_texts)
    positions = np.arange(n_entities)
    entities = Ids(np.array(entity_texts, dtype=object), entity_texts, positions)
    return EntityIndex(Ids(value, [text], np.zeros(0, np.int64)), entities, np.zeros(n_entities, np.int64), positions)
