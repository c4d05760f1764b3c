"""HeldOutErrors during a run: how well the model would predict held-out events if the run ended now."""

from __future__ import annotations

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.streams import ReservedChain, Stream
from fedhlcr._support.threads import run_blocks
from fedhlcr.data.events import EventStore
from fedhlcr.data.hierarchy import EntityIndex
from fedhlcr.federation.run import SimulationEngine
from fedhlcr.federation.server import Server
from fedhlcr.model.gram import Standardization
from fedhlcr.posterior import AgentMemory, Draws, Posterior, Profiles
from fedhlcr.samplers.state import EntityData, GlobalDraw


class HeldOutErrors:
    """Mean squared error of the mean prediction over the draws kept so far, in each round.

    The predictions of a draw depend only on the draw and the agents' matrices. So they are computed once, and a resumed
    run computes the same ones. Rounds are noted when they end and scored some at a time, because the predictions of
    several draws are computed on several threads.

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
        self._engine = engine
        self._index = index
        self._events = events
        self._X = X
        self._y = y
        self._profiles = profiles
        self._offset = offset
        self._entities: EntityData | None = None
        self._noted: dict[int, list[GlobalDraw]] = {}
        self._predictions: dict[int, FloatArray] = {}

    @property
    def n_noted(self) -> int:
        """Rounds that wait to be scored."""
        return len(self._noted)

    def note(self, server: Server) -> None:
        """Remember the draws that a model built now would use."""
        self._noted[server.round] = list(server.kept_draws)

    def errors(self, server: Server, n_threads: int = 1) -> dict[int, float]:
        """The errors of the rounds noted since the last call."""
        noted = self._noted
        draws = {draw.round: draw for kept in noted.values() for draw in kept if draw.round not in self._predictions}
        new = list(draws.values())
        if new:
            # made before threads need them
            self._prepared(server)
        predicted = run_blocks(lambda number: self.predict(server, new[number]), len(new), n_threads) if new else []
        known = self._predictions = self._predictions | dict(zip(draws, predicted, strict=True))
        errors = {number: self._error([known[draw.round] for draw in kept]) for number, kept in noted.items()}
        self._noted = {}
        # those that have been dropped do not come back
        needed = {draw.round for draw in server.kept_draws}
        self._predictions = {number: own for number, own in self._predictions.items() if number in needed}
        return errors

    def _error(self, predictions: list[FloatArray]) -> float:
        return float(np.mean((np.mean(predictions, axis=0) - self._y) ** 2))

    def predict(self, server: Server, draw: GlobalDraw) -> FloatArray:
        """Predictions of a single draw."""
        entities = self._prepared(server)
        draws = Draws.from_chains([[draw]])
        memory = AgentMemory.from_draws(entities, draws, Stream(server.settings.seed, ReservedChain.HELD_OUT))
        posterior = Posterior(entities.likelihood, _units(server), draws, memory)
        return posterior.mean(self._X, self._profiles, self._offset)

    def _prepared(self, server: Server) -> EntityData:
        """What agents predict from, which is the same in all rounds."""
        if self._entities is None:
            units = _units(server)
            likelihood = server.likelihood
            grams = self._engine.entity_grams(server.run, likelihood.layout, units)
            events = None if self._events is None else likelihood.events_in(self._events, units)
            self._entities = EntityData(likelihood, self._index, grams, events=events)
        return self._entities


def _units(server: Server) -> Standardization:
    assert server.units is not None
    return server.units.standardization
