"""How long a fit took: computing, scoring of held-out events, and compiling, each on its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, NamedTuple, Self, TypeVar

from numba.core import event

Fit = TypeVar("Fit", bound=Callable[..., Any])


class FitSeconds(NamedTuple):
    """Seconds of a fit by the clock; their sum is the whole time of `fit`.

    Attributes
    ----------
    computing : reading the table, sweeps or rounds, and all that follows from these; means the same in a centralised
        and in a federated fit
    scoring : predicting the held-out events of `validation`, which a federated fit does after each round
    compiling : compiling kernels, once per installation
    """

    computing: float
    scoring: float
    compiling: float


class FitClock(event.Listener):
    """Measures a fit. Only one kernel is compiled at a time, and those that it calls are compiled meanwhile."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._scoring = self._compiling = 0.0
        self._depth, self._compiled_from = 0, 0.0

    def __enter__(self) -> Self:
        self._at_end = ExitStack()
        self._at_end.enter_context(event.install_listener("numba:compile", self))
        return self

    def __exit__(self, *_: object) -> None:
        self._at_end.close()

    def on_start(self, event: Any) -> None:  # noqa: ARG002
        if self._depth == 0:
            self._compiled_from = time.perf_counter()
        self._depth += 1

    def on_end(self, event: Any) -> None:  # noqa: ARG002
        self._depth -= 1
        if self._depth == 0:
            self._compiling += time.perf_counter() - self._compiled_from

    @contextmanager
    def scoring(self) -> Iterator[None]:
        """Count what happens inside as scoring."""
        begun, compiling = time.perf_counter(), self._compiling
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
        with FitClock() as clock:
            self._clock = clock
            try:
                fitted = fit(self, *args, **kwargs)
            finally:
                del self._clock
        self.fit_seconds_ = clock.seconds()
        return fitted

    return run  # type: ignore[return-value]
