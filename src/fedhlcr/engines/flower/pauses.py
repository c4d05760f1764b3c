"""How long the server waits for nodes and replies."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

logger = logging.getLogger(__name__)

# Seconds between checks for replies: short at first, because a simulated round takes less than a second; then longer.
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
# Seconds between log lines while replies are awaited.
LOG_AGAIN = 30.0


@dataclass(frozen=True)
class WaitTimes:
    """How long to wait, in seconds, and for how many nodes: before the first round, and before each later one.

    `then` says what to do once there are enough nodes again.
    """

    min_nodes: int = 2
    for_nodes: float = 600.0
    for_replies: float = 300.0
    in_rounds: int = 1
    then: str = "run again with resume=true: the run continues from its last round"


class Pauses:
    """Pauses between checks, up to a time limit. Now and then a log line says what is awaited."""

    def __init__(self, limit: float, rest: Callable[[float], None]) -> None:
        self._start = self._logged = time.monotonic()
        self._rest = rest
        self._limit = limit
        # compared with the clock as it is: a difference of clock readings may fall short of the limit by rounding
        self._end = self._start + limit
        self._length = FIRST_PAUSE

    @property
    def over(self) -> bool:
        return time.monotonic() >= self._end

    def reset(self) -> None:
        """Make the next pause short: a reply has arrived, and more may follow soon."""
        self._length = FIRST_PAUSE

    def rest(self, awaited: str) -> None:
        now = time.monotonic()
        if now - self._logged > LOG_AGAIN:
            self._logged = now
            logger.info("%s; %.0f of %g seconds.", awaited, now - self._start, self._limit)
        self._rest(min(self._length, max(0.0, self._end - now)))
        self._length = min(1.5 * self._length, LONGEST_PAUSE)
