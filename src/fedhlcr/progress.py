"""Progress bars with the figures that matter."""

from __future__ import annotations

import math
from typing import Any, Self

from fedhlcr.federation.history import RoundRecord
from fedhlcr.samplers.state import ChainState


class _Bar:
    """A bar on the error stream, or nothing if not enabled."""

    def __init__(self, total: int | None, what: str, unit: str, enabled: bool) -> None:
        self._bar: Any = None
        if enabled:
            from tqdm.auto import tqdm

            self._bar = tqdm(total=total, desc=what, unit=unit, mininterval=0.2)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def _advance(self, figures: dict[str, Any]) -> None:
        if self._bar is not None:
            self._bar.set_postfix(figures, refresh=False)
            self._bar.update()


class SweepProgress(_Bar):
    """Callback of `run_chain`."""

    def __init__(self, n_sweeps: int, target_scale: float, enabled: bool) -> None:
        super().__init__(n_sweeps, "sampling", "sweep", enabled)
        self._target_scale = target_scale

    def __call__(self, state: ChainState) -> None:
        self._advance(
            {
                "clusters": int(state.sums.occupied.sum()),
                "noise": f"{state.globals.hyper.noise_scale * self._target_scale:.3g}",
                "labels changed": int(state.sums.labels_changed),
            }
        )


class RoundProgress(_Bar):
    """Callback of `run_federation`; the number of rounds is None if the run ends by itself."""

    def __init__(self, n_rounds: int | None, enabled: bool) -> None:
        super().__init__(n_rounds, "federation", "round", enabled)
        self._bytes = 0

    def __call__(self, record: RoundRecord) -> None:
        self._bytes += record.bytes_down + record.bytes_up
        if record.round == 0:
            return
        figures = {
            "agents": f"{record.n_accepted}/{record.n_asked}",
            "clusters": record.n_clusters,
            "noise": f"{record.noise_scale:.3g}",
            "labels changed": record.labels_changed,
            "MB": f"{self._bytes / 1e6:.1f}",
        }
        if not math.isnan(record.validation_mse):
            figures["MSE"] = f"{record.validation_mse:.4g}"
        self._advance(figures)
