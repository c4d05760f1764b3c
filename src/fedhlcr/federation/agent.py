"""One agent on a device of its own: it answers broadcasts, predicts for itself, and survives a restart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedhlcr.data import inputs
from fedhlcr.data.hierarchy import EntityIndex, Hierarchy, build_hierarchy
from fedhlcr.data.ids import Ids, canonical_text, is_missing
from fedhlcr.federation.group import AgentGroup
from fedhlcr.federation.messages import Broadcast, Contribution
from fedhlcr.federation.mods import Mod
from fedhlcr.storage import atomic, codec
from fedhlcr.storage.atomic import PathLike
from fedhlcr.storage.reader import RecordReader

STATE_KIND, STATE_VERSION = "agent", 1


class Agent(AgentGroup):
    """What one agent holds: the Gram matrices of its entities, their labels, what it last had acknowledged.

    Its events are summed up when it is made and not kept; there may be none at all.

    Parameters
    ----------
    agent : the agent's id, of any type; ids are told apart by their text
    X, y : its events, as in `HLCRRegressor.fit`
    entity : (n_events,) ids; None makes each event an entity of its own
    sample_weight : (n_events,) frequencies
    mods : what contributions pass through before they leave the agent, `federation.mods`
    """

    def __init__(
        self, agent: Any, X: Any, y: Any, entity: Any = None, sample_weight: Any = None, mods: Sequence[Mod] = ()
    ) -> None:
        super().__init__(_hierarchy_of_one(agent, X, y, entity, sample_weight), mods)

    @property
    def name(self) -> str:
        """Canonical text of its id: how the server knows it."""
        return self.names[0]

    @property
    def accepted_labels(self) -> dict[str, int]:
        """Original cluster of each entity under the last acknowledged labels; −1 before there are any."""
        texts = (self.index.entities.texts[i] for i in self.index.entity_of)
        return dict(zip(texts, self.shard.accepted.tolist(), strict=True))

    def round(self, broadcast: Broadcast) -> Contribution:
        """New labels under the broadcast, and what the entities sum to under them."""
        return self.answer(broadcast, np.array([0]), np.array([broadcast.acknowledged]))[0]

    def save(self, path: PathLike) -> None:
        """Write the private state to a local file: whole or not at all, whatever happens meanwhile.

        Save after `round` and *before* its contribution is sent: otherwise the server may know labels that are lost
        here.
        """
        atomic.write_atomically(path, codec.encode(STATE_KIND, STATE_VERSION, self.to_record()), private=True)

    @classmethod
    def load(cls, path: PathLike, mods: Sequence[Mod] = ()) -> Agent:
        """An agent as it was saved; if the newest file is damaged, as it was saved before."""
        record = atomic.read_newest(path, STATE_KIND, STATE_VERSION)
        return cls.read(RecordReader(record, "the agent's state", "make it anew from its events"), mods)


def _hierarchy_of_one(agent: Any, X: Any, y: Any, entity: Any, sample_weight: Any) -> Hierarchy:
    if is_missing(agent):
        raise ValueError("`agent` is missing; pass the id by which the server is to know this agent.")
    if np.shape(X)[:1] == (0,) and np.ndim(X) == 2:
        nothing, nobody = np.empty(0), np.empty(0, dtype=np.int64)
        index = EntityIndex(Ids.of_texts([canonical_text(agent)]), Ids.of_texts([]), nobody, nobody)
        return Hierarchy(np.empty(np.shape(X)), nothing, nothing, np.zeros(1, dtype=np.int64), index)
    matrix = inputs.feature_matrix(X)
    target = inputs.target_vector(y, len(matrix))
    weight = inputs.weight_vector(sample_weight, len(matrix))
    everywhere = np.empty(len(matrix), dtype=object)
    for row in range(len(matrix)):
        # one by one: an id may be a tuple
        everywhere[row] = agent
    return build_hierarchy(matrix, target, weight, everywhere, entity)
