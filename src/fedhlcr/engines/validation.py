"""How well a run would predict if it ended now."""

from __future__ import annotations

import numpy as np

from fedhlcr.arrays import FloatArray, LabelArray
from fedhlcr.engines.in_process import InProcessEngine
from fedhlcr.federation.server import Server
from fedhlcr.hierarchy import EntityIndex
from fedhlcr.posterior import AgentMemory, Draws, Posterior, Profiles
from fedhlcr.samplers.blocked import draw_labels
from fedhlcr.samplers.state import Entities
from fedhlcr.streams import Stream

# Chain of the draws by which agents label their entities to be evaluated.
VALIDATION_CHAIN = -3


class Validation:
    """Mean squared error, after each round, of the mean prediction over the later half of the rounds so far.

    Every round is predicted for once, with its own draw: a sweep over the agents and one pass over the events.
    """

    def __init__(
        self, engine: InProcessEngine, index: EntityIndex, X: FloatArray, y: FloatArray, profiles: Profiles
    ) -> None:
        self._engine, self._index = engine, index
        self._X, self._y, self._profiles = X, y, profiles
        self._predictions: dict[int, FloatArray] = {}
        self.newest = np.full(len(y), np.nan)  # what the last draw alone predicts

    def __call__(self, server: Server) -> float:
        self._predictions[server.round] = self.newest = self._predict(server)
        for number in [number for number in self._predictions if number <= server.round // 2]:
            del self._predictions[number]
        mean = np.mean(list(self._predictions.values()), axis=0)
        return float(np.mean((mean - self._y) ** 2))

    def _predict(self, server: Server) -> FloatArray:
        assert server.units is not None
        units, layout = server.units.standardization, server.settings.layout
        self._engine.enter_run(server.run, layout, units)
        entities = Entities(layout, self._index, self._engine.everyone.grams)
        draw, stream = server.newest_draw, Stream(server.settings.seed, VALIDATION_CHAIN)
        labels, _ = draw_labels(entities, draw.globals, self._known_labels(server), server.round, stream)
        posterior = Posterior(layout, units, Draws.from_chains([[draw]]), AgentMemory(entities, labels[None]))
        return posterior.predict(self._X, self._profiles).mean

    def _known_labels(self, server: Server) -> LabelArray:
        """Present clusters of the entities under the labels the server knows of; −1 where it knows none."""
        assert server.rule is not None
        everyone = self._engine.everyone
        labels = everyone.labels_at(server.registry.accepted_round[server.registry.find(everyone.agents)])
        return np.append(server.rule.cluster_of, -1)[labels].astype(np.int32)
