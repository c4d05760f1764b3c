"""How well a federation would predict if it ended now."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.streams import ReservedChain, Stream
from fedhlcr.data.hierarchy import EntityIndex
from fedhlcr.federation.server import Server
from fedhlcr.federation.shard import AgentShard
from fedhlcr.model.gram import GramLayout, Standardization
from fedhlcr.posterior.prediction import AgentMemory, Draws, Posterior, Profiles
from fedhlcr.samplers.state import Entities, GlobalDraw


class HoldsAgents(Protocol):
    """An engine whose agents live in this process."""

    everyone: AgentShard

    def enter_run(self, run: int, layout: GramLayout, units: Standardization) -> None: ...


class Validation:
    """Mean squared error of the mean prediction over the draws that are kept so far.

    What a draw predicts follows from it and the agents' matrices alone, so it is computed once, and the same after
    a run was resumed.
    """

    def __init__(
        self, engine: HoldsAgents, index: EntityIndex, X: FloatArray, y: FloatArray, profiles: Profiles
    ) -> None:
        self._engine, self._index = engine, index
        self._X, self._y, self._profiles = X, y, profiles
        self._predictions: dict[int, FloatArray] = {}

    def __call__(self, server: Server) -> float:
        known = self._predictions
        self._predictions = {
            draw.round: known[draw.round] if draw.round in known else self.predict(server, draw)
            for draw in server.kept_draws
        }
        mean = np.mean(list(self._predictions.values()), axis=0)
        return float(np.mean((mean - self._y) ** 2))

    def predict(self, server: Server, draw: GlobalDraw) -> FloatArray:
        """What one draw alone predicts."""
        assert server.units is not None
        units, layout = server.units.standardization, server.settings.layout
        self._engine.enter_run(server.run, layout, units)
        entities = Entities(layout, self._index, self._engine.everyone.grams)
        draws = Draws.from_chains([[draw]])
        memory = AgentMemory.from_draws(entities, draws, Stream(server.settings.seed, ReservedChain.HELD_OUT))
        return Posterior(layout, units, draws, memory).predict(self._X, self._profiles).mean
