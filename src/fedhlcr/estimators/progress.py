"""What a fit shows while it runs (clusters, noise, labels changed), and how long it took."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from fedhlcr._support.progress import Bar
from fedhlcr._support.wording import ROUND, SWEEP
from fedhlcr.federation.history import RoundRecord
from fedhlcr.kernels.compiling import waiting
from fedhlcr.samplers.state import ChainState


class SweepProgress(Bar):
    """Callback of `run_chain`."""

    def __init__(self, n_sweeps: int, enabled: bool) -> None:
        super().__init__(n_sweeps, "sampling", SWEEP, enabled)
        self.target_scale = 1.0

    def __call__(self, state: ChainState) -> None:
        self.advance(
            {
                "clusters": int(state.sums.occupied.sum()),
                **_scales(state.globals.traced(self.target_scale)),
                "labels changed": int(state.sums.scalars["labels_changed"]),
            }
        )


class RoundProgress(Bar):
    """Callback of `run_federation`; the number of rounds is None if the run ends when it converges."""

    def __init__(self, n_rounds: int | None, enabled: bool) -> None:
        super().__init__(n_rounds, "federation", ROUND, enabled)
        self._bytes = 0
        self._mse = math.nan

    def __call__(self, record: RoundRecord) -> None:
        self._bytes += record.bytes_down + record.bytes_up
        if record.round == 0:
            return
        figures = {
            "agents": f"{record.n_accepted}/{record.n_asked}",
            "clusters": record.n_clusters,
            **_scales(record.shared),
            "labels changed": record.labels_changed,
            "MB": f"{self._bytes / 1e6:.1f}",
        }
        if not math.isnan(record.validation_mse):
            # rounds are scored some at a time: the last error known is shown
            self._mse = record.validation_mse
        if not math.isnan(self._mse):
            figures["MSE"] = f"{self._mse:.4g}"
        self.advance(figures)


def _scales(shared: dict[str, float]) -> dict[str, str]:
    """Traced scales by short name: "noise" for `noise_scale`."""
    return {name.removesuffix("_scale"): f"{value:.3g}" for name, value in shared.items() if name.endswith("_scale")}


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
