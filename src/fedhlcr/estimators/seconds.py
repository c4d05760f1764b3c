"""How long a fit took: computing, scoring of held-out events, and compiling, each on its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, NamedTuple, TypeVar

from fedhlcr.kernels.compiling import waiting

Fit = TypeVar("Fit", bound=Callable[..., Any])


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


def timed(fit: Fit) -> Fit:
    """Decorator of methods that fit: sets `fit_seconds_`. While they run, the estimator has a `_clock`."""

    @wraps(fit)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._clock = FitClock()
        try:
            fitted = fit(self, *args, **kwargs)
            self.fit_seconds_ = self._clock.seconds()
        finally:
            del self._clock
        return fitted

    return run  # type: ignore[return-value]
