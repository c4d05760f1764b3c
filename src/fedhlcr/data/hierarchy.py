"""Agent → entity → event: a table sorted by agent and entity, with the offsets of each.

Two agents may use the same entity id: an entity is a pair of both ids. Events of an entity may be anywhere in the
user's table. Agents and entities are sorted by the canonical text of their ids (whole numbers by value), so the order
of the rows does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, KeyArray
from fedhlcr._support.checks import within
from fedhlcr._support.streams import encoded_keys
from fedhlcr.data.events import EventStore
from fedhlcr.data.ids import Ids, Texts, canonical_text, read_ids, sorted_ids
from fedhlcr.storage.reader import RecordReader

UNKNOWN = -1


@dataclass(frozen=True)
class EntityIndex:
    """The agents and entities of a table, in order, and their positions by id.

    Attributes
    ----------
    agents, entities : the distinct ids; an entity id may belong to several agents
    agent_of, entity_of : for each agent–entity pair, positions in `agents` and `entities`; pairs are
        sorted by both
    """

    agents: Ids
    entities: Ids
    agent_of: NDArray[np.int64]
    entity_of: NDArray[np.int64]

    @classmethod
    def empty(cls) -> EntityIndex:
        """Return an index without agents."""
        return cls(Ids.of_texts([]), Ids.of_texts([]), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))

    @classmethod
    def read(cls, reader: RecordReader, agents: Ids, entities: Ids) -> EntityIndex:
        """Read the agent–entity pairs from a record, and check them."""
        agent_of = reader.array("agent_of", "i8", (None,), within(0, len(agents.texts)))
        entity_of = reader.array("entity_of", "i8", agent_of.shape, within(0, len(entities.texts)))
        # pairs are sorted and distinct
        reader.require((np.diff(agent_of * len(entities.texts) + entity_of) > 0).all(), "agent_of")
        return cls(agents, entities, agent_of, entity_of)

    @property
    def n_agents(self) -> int:
        return len(self.agents.texts)

    @property
    def n_entities(self) -> int:
        """Number of agent–entity pairs."""
        return len(self.agent_of)

    @cached_property
    def agent_start(self) -> NDArray[np.int64]:
        """Pairs of agent i are [agent_start[i], agent_start[i + 1])."""
        return np.searchsorted(self.agent_of, np.arange(self.n_agents + 1)).astype(np.int64)

    @cached_property
    def agent_keys(self) -> KeyArray:
        return encoded_keys(self.agents.texts.encoded())

    @cached_property
    def entity_keys(self) -> KeyArray:
        return encoded_keys(self.entities.texts.encoded())[self.entity_of]

    @property
    def agent_ids(self) -> NDArray[np.object_]:
        """(agents,) ids as the user wrote them."""
        return self.agents.values

    @property
    def entity_ids(self) -> NDArray[np.object_]:
        """(pairs,) entity ids as the user wrote them."""
        return self.entities.values[self.entity_of]

    @cached_property
    def _pairs(self) -> NDArray[np.int64]:
        """(pairs,) one ascending number for each pair."""
        return self.agent_of * len(self.entities.texts) + self.entity_of

    def find_agents(self, ids: Ids) -> NDArray[np.int64]:
        """Return the position of each row's agent, or UNKNOWN."""
        return self.agents.texts.find(ids.texts)[ids.codes]

    def find_entities(self, agents: NDArray[np.int64], ids: Ids) -> NDArray[np.int64]:
        """Return the position of each row's pair, or UNKNOWN; `agents` as `find_agents` returns them."""
        return self._find_pairs(agents, self.entities.texts.find(ids.texts)[ids.codes])

    def _find_pairs(self, agents: NDArray[np.int64], entities: NDArray[np.int64]) -> NDArray[np.int64]:
        if not self.n_entities:
            return np.full(len(agents), UNKNOWN, dtype=np.int64)
        wanted = agents * len(self.entities.texts) + entities
        position = np.minimum(np.searchsorted(self._pairs, wanted), self.n_entities - 1)
        found = (agents != UNKNOWN) & (entities != UNKNOWN) & (self._pairs[position] == wanted)
        return np.where(found, position, UNKNOWN)

    def subset(self, pairs: NDArray[np.int64]) -> EntityIndex:
        """Return the same agents with only the given pairs, which must ascend."""
        return EntityIndex(self.agents, self.entities, self.agent_of[pairs], self.entity_of[pairs])

    def union(self, other: EntityIndex) -> tuple[EntityIndex, NDArray[np.int64], NDArray[np.int64]]:
        """Return an index of the pairs of both, and the new positions of this one's and of the other's pairs."""
        agents, agent_codes = _merge_ids(self.agents, other.agents)
        entities, entity_codes = _merge_ids(self.entities, other.entities)
        agent_of = np.concatenate([agent_codes[0][self.agent_of], agent_codes[1][other.agent_of]])
        entity_of = np.concatenate([entity_codes[0][self.entity_of], entity_codes[1][other.entity_of]])
        index, positions = index_pairs(agents, entities, agent_of, entity_of)
        return index, positions[: self.n_entities], positions[self.n_entities :]


def index_pairs(
    agents: Ids, entities: Ids, agent_codes: NDArray[np.int64], entity_codes: NDArray[np.int64]
) -> tuple[EntityIndex, NDArray[np.int64]]:
    """Return an index of the distinct pairs of two columns of codes, and the position of each row's pair."""
    width = len(entities.texts)
    pairs, positions = np.unique(agent_codes * width + entity_codes, return_inverse=True)
    # the index must not keep a code for each row in memory
    agents = agents.with_codes()
    entities = entities.with_codes()
    return EntityIndex(agents, entities, pairs // width, pairs % width), positions


def _merge_ids(a: Ids, b: Ids) -> tuple[Ids, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return the distinct ids of both, and the positions of one's and of the other's among them."""
    n = len(a.texts)
    own = None
    if a.own is not None or b.own is not None:
        kept = (ids.values if ids.own is None else ids.own for ids in (a, b))
        own = np.concatenate([part.astype(object) if part.dtype.kind != "i" else part for part in kept])
    merged = sorted_ids(Ids(a.texts.joined(b.texts), np.arange(n + len(b.texts)), own))
    return merged.with_codes(), (merged.codes[:n], merged.codes[n:])


@dataclass(frozen=True)
class Hierarchy:
    """A table of events sorted by agent and entity.

    Attributes
    ----------
    X, y, weight : the events, sorted; events of weight 0 are left out
    offset : what is added to the linear part of each event (`EventStore`); None for none
    event_start : events of pair e are [event_start[e], event_start[e + 1])
    index : the agents and entities
    """

    X: FloatArray
    y: FloatArray
    weight: FloatArray
    event_start: NDArray[np.int64]
    index: EntityIndex
    offset: FloatArray | None = None

    @property
    def n_entities(self) -> int:
        return self.index.n_entities

    @property
    def n_events(self) -> int:
        return len(self.y)

    @property
    def events(self) -> EventStore:
        """The events without the ids."""
        return EventStore(self.X, self.y, self.weight, self.event_start, self.offset)


def build_hierarchy(
    X: FloatArray,
    y: FloatArray,
    weight: FloatArray,
    agent: Any,
    entity: Any,
    offset: FloatArray | None = None,
    n_threads: int = 1,
) -> Hierarchy:
    """Sort validated events into a hierarchy.

    With `agent=None` all rows belong to one agent. With `entity=None` each row is an entity of its own, named by its
    number among the rows of its agent, so that an agent alone names them as it would in a table with others.
    """
    # here, because commands that only need ids start without the kernels
    from fedhlcr.data.row_order import gathered, sort_by_pair

    n_rows = len(y)
    agents = row_agents(agent, n_rows)
    entities = numbered_rows(agents.codes) if entity is None else row_entities(entity, n_rows)
    order = sort_by_pair(agents, entities, np.flatnonzero(weight > 0))
    # the index must not keep a code for each row in memory
    index = EntityIndex(agents.with_codes(), entities.with_codes(), order.agent_of, order.entity_of)
    rows = order.rows
    if not np.array_equal(rows, np.arange(n_rows)):
        # a table that is sorted is not copied
        X = gathered(X, rows, n_threads)
        y = y[rows]
        weight = weight[rows]
        offset = None if offset is None else offset[rows]
    return Hierarchy(X, y, weight, order.start, index, offset)


def row_agents(agent: Any, n_rows: int) -> Ids:
    """Return the agent of each row; `None` is one agent without a name."""
    return row_sole_agent("", n_rows) if agent is None else read_ids(agent, "agent", n_rows)


def row_sole_agent(agent: Any, n_rows: int) -> Ids:
    """Return the same agent for each row."""
    value = np.empty(1, dtype=object)
    value[0] = agent
    return Ids(Texts.of([canonical_text(agent)]), np.zeros(n_rows, dtype=np.int64), value)


def row_entities(entity: Any, n_rows: int) -> Ids:
    return read_ids(entity, "entity", n_rows)


def numbered_rows(groups: NDArray[np.int64]) -> Ids:
    """Return ids for rows that have none: 0, 1, … in each group."""
    order = np.argsort(groups, kind="stable")
    sorted_groups = groups[order]
    starts = np.searchsorted(sorted_groups, sorted_groups)
    numbers = np.empty(len(groups), dtype=np.int64)
    numbers[order] = np.arange(len(groups)) - starts
    distinct = np.arange(numbers.max(initial=-1) + 1)
    return Ids(Texts.of(map(numbered, distinct)), numbers, distinct)


def has_entity_ids(index: EntityIndex) -> bool:
    """Return whether the entities have ids, rather than being single rows."""
    return bool(index.n_entities) and not index.entities.texts[0].startswith(numbered(0)[:1])


def numbered(number: int) -> str:
    """Return a text that no user writes, so that an id passed to `predict` never equals the number of a row."""
    return f"\0row {number}"
