"""Progress with the figures that matter, and the time that is left by the pace of late."""

from __future__ import annotations

import math
import time
from typing import Any, Self

# The time that is left is told by the pace of this share of the steps done, the latest: early sweeps, with many
# clusters, are slower than late ones.
RECENT = 1 / 3
# Share of all steps before any time is told: what they take says little of what the others will.
SILENT = 0.1
# Seconds from one line to the next where there is no terminal to draw on.
BETWEEN_LINES = 5.0


class Bar:
    """A bar on the error stream, lines now and then where that is no terminal, or nothing if not enabled."""

    def __init__(self, total: int | None, what: str, unit: str, enabled: bool) -> None:
        self.total, self._what, self._unit = total, what, unit
        self._done = 0
        self._started = self._last_line = time.monotonic()
        self._reports = [(self._started, 0)]
        self._console: Any = None
        self._display: Any = None
        if enabled:
            from rich.console import Console

            self._console = Console(stderr=True, highlight=False)
            if self._console.is_terminal or self._console.is_jupyter:
                self._open_display()

    def _open_display(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        columns = [
            TextColumn("{task.description}", table_column=Column(no_wrap=True, min_width=len(self._what))),
            BarColumn(bar_width=None, table_column=Column(min_width=10, max_width=24, ratio=1)),
            # on a narrow terminal the last figures go first
            TextColumn("{task.fields[state]}", markup=False, table_column=Column(no_wrap=True, ratio=4)),
        ]
        self._display = Progress(*columns, console=self._console, transient=True, expand=True)
        self._task = self._display.add_task(self._what, total=self.total, state="preparing")
        self._display.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._display is not None:
            self._display.stop()

    def begin(self) -> None:
        """What was done so far was preparation, and says nothing of the pace."""
        self._reports = [(time.monotonic(), self._done)]

    def tell(self, state: str) -> None:
        """What is being done, where steps are not counted."""
        if self._display is not None:
            self._display.update(self._task, state=state)

    def advance(self, figures: dict[str, Any], steps: int = 1) -> None:
        if self._console is None:
            return
        self._done += steps
        now = time.monotonic()
        self._reports.append((now, self._done))
        state = self._state(now, figures)
        if self._display is not None:
            self._display.update(self._task, completed=self._done, total=self.total, state=state)
        elif now - self._last_line > BETWEEN_LINES or self._done == self.total:
            self._last_line = now
            self._console.print(f"{self._what}: {state}", soft_wrap=True, markup=False)

    def _state(self, now: float, figures: dict[str, Any]) -> str:
        of = "" if self.total is None else f" of {self.total:,}"
        parts = [f"{self._done:,}{of} {self._unit}"]
        if (left := self.seconds_left) is not None:
            parts.append(f"about {told_time(left)} left")
        parts.append(f"{told_time(now - self._started)} elapsed")
        return ", ".join(parts) + "".join(f" · {name} {value}".rstrip() for name, value in figures.items())

    @property
    def seconds_left(self) -> float | None:
        """By the pace of the latest steps; None as long as nothing can be said."""
        n_reports = len(self._reports) - 1
        if self.total is None or not SILENT * self.total < self._done < self.total or n_reports < 2:
            return None
        (then, before), (now, done) = self._reports[-1 - math.ceil(RECENT * n_reports)], self._reports[-1]
        return (now - then) / (done - before) * (self.total - done)


def told_time(seconds: float) -> str:
    """12 s, 3:05 min or 1:02:03 h."""
    whole = math.ceil(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, seconds = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}:{seconds:02.0f} min"
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02.0f} h"
