"""What a rival is: a function that fits a split and says how long that took and how large its held-out error is."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from benchmarks.problems import Split


class Outcome(NamedTuple):
    """Seconds of the fit alone, mean squared error of held-out events, and what to know about it."""

    seconds: float
    mse: float
    note: str = ""


class UnavailableError(Exception):
    """The rival cannot run here; the text says why."""


Rival = Callable[[Split, int], Outcome]
