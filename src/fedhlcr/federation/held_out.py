"""Validation during a run: how well the model would predict held-out events if the run ended now."""

from __future__ import annotations

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.streams import ReservedChain, Stream
from fedhlcr.data.events import EventStore
from fedhlcr.data.hierarchy import EntityIndex
from fedhlcr.federation.run import SimulationEngine
from fedhlcr.federation.server import Server
from fedhlcr.posterior import AgentMemory, Draws, Posterior, Profiles
from fedhlcr.samplers.state import Entities, GlobalDraw


class Validation:
    """Mean squared error of the mean prediction over the draws kept so far.

    The predictions of a draw depend only on the draw and the agents' matrices. So they are computed once, and a resumed
    run computes the same ones.

    Parameters
    ----------
    index : of the agents' table
    X, y, profiles : the held-out events
    events : of the agents' table, if the likelihood needs them
    offset : of the held-out events, None for none
    """

    def __init__(
        self,
        engine: SimulationEngine,
        index: EntityIndex,
        X: FloatArray,
        y: FloatArray,
        profiles: Profiles,
        events: EventStore | None = None,
        offset: FloatArray | None = None,
    ) -> None:
        self._engine, self._index, self._events = engine, index, events
        self._X, self._y, self._profiles, self._offset = X, y, profiles, offset
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
        """Predictions of a single draw."""
        assert server.units is not None
        units, likelihood = server.units.standardization, server.likelihood
        grams = self._engine.entity_grams(server.run, likelihood.layout, units)
        events = None if self._events is None else likelihood.events_in(self._events, units)
        entities, draws = Entities(likelihood, self._index, grams, events=events), Draws.from_chains([[draw]])
        memory = AgentMemory.from_draws(entities, draws, Stream(server.settings.seed, ReservedChain.HELD_OUT))
        return Posterior(likelihood, units, draws, memory).predict(self._X, self._profiles, offset=self._offset).mean
