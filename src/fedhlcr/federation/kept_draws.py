"""Which draws are kept: a limited number, from the second half of the rounds, after merging has ended."""

from __future__ import annotations

import numpy as np

from fedhlcr._support.checks import within
from fedhlcr.federation.messages import MOST_ROUNDS
from fedhlcr.model.likelihood import AnyLikelihood
from fedhlcr.posterior import Draws
from fedhlcr.samplers.state import GlobalDraw
from fedhlcr.storage import codec
from fedhlcr.storage.reader import RecordReader


class DrawKeeper:
    """Keeps at most `most` draws, spread over the second half of the rounds.

    When there are too many, every second draw is dropped, and from then on only every second one is taken. A
    centralised chain (`samplers.chain.ChainPlan`) does not need this, because it knows its length in advance.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._stride = 1
        self._draws: list[GlobalDraw] = []
        self._newest: GlobalDraw | None = None

    @property
    def newest(self) -> GlobalDraw | None:
        return self._newest

    def add(self, draw: GlobalDraw, *, settled: bool) -> None:
        """Add the draw of a round. A draw from before the end of merging is only held until the next one."""
        self._newest = draw
        if settled:
            self._draws.append(draw)
        self._draws = self._wanted(draw.round)
        while len(self._draws) > self._most:
            self._stride *= 2
            self._draws = self._wanted(draw.round)

    def _wanted(self, last_round: int) -> list[GlobalDraw]:
        return [draw for draw in self._draws if draw.round > last_round // 2 and draw.round % self._stride == 0]

    def replace_newest(self, draw: GlobalDraw) -> None:
        """Replace the newest draw, and drop all others."""
        self._newest = draw
        self._draws = []

    def kept(self) -> list[GlobalDraw]:
        """The draws that a model built now would use: only the newest one as long as clusters are merged."""
        return self._draws or ([] if self._newest is None else [self._newest])

    def clear(self) -> None:
        self._newest = None
        self._draws = []
        self._stride = 1

    def to_record(self) -> codec.Record:
        if self._newest is None:
            return {}
        draws = [*self._draws, self._newest]
        return {
            **Draws.from_chains([draws]).to_record(),
            "round": np.array([draw.round for draw in draws]),
            "n_clusters": np.array([draw.globals.n_clusters for draw in draws]),
            "stride": self._stride,
        }

    def restore(self, reader: RecordReader, likelihood: AnyLikelihood) -> None:
        if reader.is_empty:
            return
        self._stride = reader.value("stride", int, within(1, MOST_ROUNDS))
        draws = Draws.read(reader, likelihood)
        rounds = reader.array("round", "i8", (len(draws),), within(0, MOST_ROUNDS))
        sizes = reader.array("n_clusters", "i8", (len(draws),), within(1, draws.n_clusters + 1))
        *self._draws, self._newest = draws.separate(rounds.tolist(), sizes.tolist())
