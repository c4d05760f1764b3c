"""A progress bar with the figures that matter."""

from __future__ import annotations

from typing import Any

from fedhlcr.samplers.state import ChainState


class SweepProgress:
    """Callback of `run_chain` that shows a bar on the error stream, or nothing if not enabled."""

    def __init__(self, n_sweeps: int, target_scale: float, enabled: bool) -> None:
        self._target_scale = target_scale
        self._bar: Any = None
        if enabled:
            from tqdm.auto import tqdm

            self._bar = tqdm(total=n_sweeps, desc="sampling", unit="sweep", mininterval=0.2)

    def __enter__(self) -> SweepProgress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def __call__(self, state: ChainState) -> None:
        if self._bar is None:
            return
        self._bar.set_postfix(
            {
                "clusters": int(state.sums.occupied.sum()),
                "noise": f"{state.globals.hyper.noise_scale * self._target_scale:.3g}",
                "labels changed": int(state.sums.labels_changed),
            },
            refresh=False,
        )
        self._bar.update()
