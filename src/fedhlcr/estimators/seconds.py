"""How long a fit took: computing, scoring of held-out events, and compiling, each on its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from fedhlcr.kernels.compiling import waiting


class FitSeconds(NamedTuple):
    """Seconds of a fit by the clock; their sum is the whole time of `fit`.

    Attributes
    ----------
    computing : reading the table, sweeps or rounds, and all that follows from these; means the same in a centralised
        and in a federated fit
    scoring : predicting the held-out events of `validation`, which a federated fit does after each round
    compiling : compiling kernels, or loading them
    """

    computing: float
    scoring: float
    compiling: float


class FitClock:
    """Measures a fit."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._waited = waiting.seconds
        self._scoring = 0.0

    @property
    def _compiling(self) -> float:
        return waiting.seconds - self._waited

    @contextmanager
    def scoring(self) -> Iterator[None]:
        """Count what happens inside as scoring."""
        begun = time.perf_counter()
        compiling = self._compiling
        try:
            yield
        finally:
            self._scoring += time.perf_counter() - begun - (self._compiling - compiling)

    def seconds(self) -> FitSeconds:
        """From the beginning until now."""
        whole = time.perf_counter() - self._begun
        return FitSeconds(whole - self._scoring - self._compiling, self._scoring, self._compiling)
