"""Rows of events for a fitted model: which agent and which entity each belongs to. No scikit-learn here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.data import inputs
from fedhlcr.data.hierarchy import UNKNOWN, EntityIndex, row_agents, row_entities, row_sole_agent
from fedhlcr.posterior.prediction import Profiles


class EventRows(NamedTuple):
    """Rows of events that were read for a fitted model.

    Attributes
    ----------
    features : encoded features, as a table or array
    matrix : ndarray (n_events, n_features_in_), the features in the user's units
    profiles : which agent and which entity of the model each row belongs to
    agent, entity : the ids of the rows, or None
    """

    features: Any
    matrix: FloatArray
    profiles: Profiles
    agent: Any
    entity: Any


class EventReader(ABC):
    """What fitted models share that read tables: the columns of ids that `fit` used, and the sole agent."""

    agent_column_: str | None
    entity_column_: str | None
    sole_agent_: NDArray[np.object_] | None

    def _read(self, X: Any, agent: Any, entity: Any) -> tuple[inputs.Table, FloatArray]:
        """Split X into features and ids, as `fit` did."""
        remembered = inputs.IdColumns(self.agent_column_, self.entity_column_)
        table = inputs.take_apart(X, agent, entity, remembered, one_agent=self.sole_agent_ is not None)
        matrix = self._features(table, reset=False)
        return table.with_read_ids(len(matrix)), matrix

    @abstractmethod
    def _features(self, table: inputs.Table, *, reset: bool) -> FloatArray:
        """The checked features; their names and number are set (reset) or compared with those fitted."""

    def _agents_or_sole(self, agent: Any, n_rows: int) -> Any:
        """The agents as given; if None, the sole agent of the fit, if there was one."""
        return row_sole_agent(self.sole_agent_[0], n_rows) if agent is None and self.sole_agent_ is not None else agent

    def _find(
        self, index: EntityIndex, agent: Any, entity: Any, n_rows: int, *, takes_sole: bool = True
    ) -> tuple[IndexArray, IndexArray]:
        """Positions of the rows' agents and entities in the index, or UNKNOWN; `takes_sole` as in `_agents_or_sole`."""
        unknown = np.full(n_rows, UNKNOWN, dtype=np.int64)
        agent = self._agents_or_sole(agent, n_rows) if takes_sole else agent
        agents = unknown if agent is None else index.find_agents(row_agents(agent, n_rows))
        entities = unknown if entity is None else index.find_entities(agents, row_entities(entity, n_rows))
        return agents, entities
