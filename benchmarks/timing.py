"""Timing several sides against each other on a machine that does other things too.

The sides take turns, so that a slow minute falls on all. They take turns in *batches* with a pause between: the
worker threads of OpenBLAS spin for a while after a call and would steal the next side's core.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from statistics import median
from typing import NamedTuple

PAUSE_SECONDS = 0.2

Call = Callable[[], object]


class Side(NamedTuple):
    """What is timed, and a context that is entered for each batch, outside the clock."""

    call: Call
    context: Callable[[], AbstractContextManager[object]] = nullcontext


def seconds_of(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def alternate(*sides: Side, rounds: int, batch_seconds: float = 0.0) -> list[float]:
    """Median seconds of one call of each side; see `samples`."""
    return [median(own) for own in samples(*sides, rounds=rounds, batch_seconds=batch_seconds)]


def samples(*sides: Side, rounds: int, batch_seconds: float = 0.0) -> list[list[float]]:
    """Seconds of single calls of each side, over `rounds` batches of each, after one batch to warm up.

    A batch is as many calls as it takes to fill `batch_seconds`, at least one.
    """
    times: list[list[float]] = [[] for _ in sides]
    for turn in range(rounds + 1):
        for side, own in zip(sides, times, strict=True):
            time.sleep(PAUSE_SECONDS)
            with side.context():
                batch = _batch(side.call, batch_seconds)
            own += batch if turn > 0 else []
    return times


def _batch(call: Call, batch_seconds: float) -> list[float]:
    times = [seconds_of(call)]
    while sum(times) < batch_seconds:
        times.append(seconds_of(call))
    return times
