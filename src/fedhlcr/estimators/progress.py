"""Progress bars of the estimators: clusters, noise, labels changed."""

from __future__ import annotations

import math

from fedhlcr._support.progress import Bar
from fedhlcr._support.wording import ROUND, SWEEP
from fedhlcr.federation.history import RoundRecord
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
