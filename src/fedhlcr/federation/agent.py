"""One agent on a device of its own: it answers broadcasts, predicts for its entities, and can be saved to a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedhlcr.data import inputs
from fedhlcr.data.hierarchy import EntityIndex, Hierarchy, build_hierarchy
from fedhlcr.data.ids import Ids, canonical_text, is_missing
from fedhlcr.exceptions import ArgumentError, DisclosureError
from fedhlcr.federation.group import AgentGroup
from fedhlcr.federation.messages import Broadcast, Contribution
from fedhlcr.federation.mods import Mod
from fedhlcr.privacy.disclosure import DEFAULT_RULE, DisclosureRule
from fedhlcr.storage import atomic, codec
from fedhlcr.storage.atomic import PathLike
from fedhlcr.storage.reader import RecordReader, reading_errors

STATE_KIND = "agent"
STATE_VERSION = 1


class Agent(AgentGroup):
    """One agent: the Gram matrices of its entities, and their labels.

    The events are summed when the agent is constructed. They are kept, and saved, until the agent takes part in a run
    without curves: curves are columns that are made from the events. An agent may have no events.

    Parameters
    ----------
    agent : the agent's id, of any type; ids with the same text are the same id
    X, y : its events, as in `HLCRRegressor.fit`
    entity : (n_events,) ids; None makes each event an entity of its own
    sample_weight : (n_events,) frequencies
    mods : functions that contributions pass through before they leave the agent, `federation.mods`
    disclosure : the fewest events and entities with which the agent takes part; with fewer, `round` refuses to answer.
        None answers in any case
    """

    def __init__(
        self,
        agent: Any,
        X: Any,
        y: Any,
        entity: Any = None,
        sample_weight: Any = None,
        mods: Sequence[Mod] = (),
        disclosure: DisclosureRule | None = DEFAULT_RULE,
    ) -> None:
        super().__init__(_hierarchy_of_one(agent, X, y, entity, sample_weight), mods, disclosure)

    @property
    def name(self) -> str:
        """Canonical text of the agent's id, by which the server knows it."""
        return self.names[0]

    @property
    def accepted_labels(self) -> dict[str, int]:
        """Original cluster of each entity under the labels that the server last acknowledged; −1 for none."""
        texts = (self.index.entities.texts[i] for i in self.index.entity_of)
        return dict(zip(texts, self.shard.accepted.tolist(), strict=True))

    def round(self, broadcast: Broadcast) -> Contribution:
        """Answer a broadcast: draw new labels under its law, and return the entities' sums by cluster."""
        if self.disclosure is not None and not self.joins.all():
            n_entities = len(self.shard.grams)
            n_features = self.shard.n_features
            reason = self.disclosure.reason(self.shard.n_events()[0], n_entities, n_features)
            raise DisclosureError(
                f"the agent has {reason}: too few to share sums safely, so it does not take part. It can still "
                "predict. Pass another `disclosure` if its sums may be seen."
            )
        contributions = self.answer(broadcast, np.array([0]), np.array([broadcast.acknowledged]))
        if not len(contributions):
            raise DisclosureError("a mod withholds the agent's contribution; send nothing in this round.")
        return contributions[0]

    def save(self, path: PathLike) -> None:
        """Write the agent state to a local file, atomically: an interrupted save leaves the old file.

        Save after `round` and *before* you send its contribution. Otherwise the server may accept labels that the
        agent has lost.
        """
        atomic.write_atomically(path, codec.encode(STATE_KIND, STATE_VERSION, self.to_record()), private=True)

    @classmethod
    def load(cls, path: PathLike, mods: Sequence[Mod] = (), disclosure: DisclosureRule | None = DEFAULT_RULE) -> Agent:
        """Load an agent that was saved. If the newest file is damaged, the one before it is used."""
        record = atomic.read_newest(path, STATE_KIND, STATE_VERSION)
        whose = "the agent's state", "build the agent from its events again"
        with reading_errors(*whose):
            return cls.read(RecordReader(record, *whose), mods, disclosure)


def _hierarchy_of_one(agent: Any, X: Any, y: Any, entity: Any, sample_weight: Any) -> Hierarchy:
    if is_missing(agent):
        raise ArgumentError("`agent` is missing; pass the id by which the server will know this agent.")
    if np.shape(X)[:1] == (0,) and np.ndim(X) == 2:
        nothing = np.empty(0)
        nobody = np.empty(0, dtype=np.int64)
        index = EntityIndex(Ids.of_texts([canonical_text(agent)]), Ids.of_texts([]), nobody, nobody)
        return Hierarchy(np.empty(np.shape(X)), nothing, nothing, np.zeros(1, dtype=np.int64), index)
    matrix = inputs.feature_matrix(X)
    target = inputs.target_vector(y, len(matrix))
    weight = inputs.weight_vector(sample_weight, len(matrix))
    everywhere = np.empty(len(matrix), dtype=object)
    for row in range(len(matrix)):
        # not `everywhere[:] = agent`: an id may be a tuple, which numpy would spread over the rows
        everywhere[row] = agent
    return build_hierarchy(matrix, target, weight, everywhere, entity)
