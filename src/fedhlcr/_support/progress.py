"""A progress bar with figures, and the time that is left, estimated from the pace of recent steps."""

from __future__ import annotations

import math
import time
from typing import Any, Self

from fedhlcr._support.wording import Noun

# The time left is estimated from the latest third of the steps done: early sweeps have more clusters and are slower.
RECENT = 1 / 3
# No time left is shown before this share of all steps is done: the first steps say little about the rest.
SILENT = 0.1
# Seconds from one line to the next if the error stream is not a terminal.
BETWEEN_LINES = 5.0
# Columns of a terminal from which on there is room for a bar beside the figures.
WIDE = 100
# The description has at most this share of a terminal's width.
DESCRIBED = 1 / 3


class Bar:
    """A progress bar on the error stream; plain lines if that is not a terminal; nothing if not enabled."""

    def __init__(self, total: int | None, what: str, unit: Noun, enabled: bool) -> None:
        self.total = total
        self._what = what
        self._unit = unit
        self._done = 0
        self._started = self._last_line = time.monotonic()
        self._reports = [(self._started, 0)]
        self._figures: dict[str, Any] = {}
        self._told: str | None = "preparing"
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

        width = math.ceil(DESCRIBED * self._console.width)
        described = Column(no_wrap=True, min_width=min(len(self._what), width), max_width=width)
        bar = BarColumn(bar_width=None, table_column=Column(min_width=10, max_width=24, ratio=1))
        columns = [
            TextColumn("{task.description}", table_column=described),
            *([bar] if self._console.width >= WIDE else []),
            # a narrow terminal cuts off the last figures
            TextColumn("{task.fields[state]}", markup=False, table_column=Column(no_wrap=True, ratio=4)),
        ]
        self._display = Progress(*columns, console=self._console, transient=True, expand=True)
        # written anew several times a second, so that the clock never stands still
        self._task = self._display.add_task(self._what, total=self.total, state=self)
        self._display.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._display is not None:
            self._display.stop()

    def begin(self) -> None:
        """Measure the pace from now on: the steps so far were preparation."""
        self._reports = [(time.monotonic(), self._done)]

    def skip_to(self, done: int) -> None:
        """Count steps that were done before, and measure the pace of those that follow."""
        self._done = done
        self.begin()

    def reach(self, done: int) -> None:
        """Count finished steps up to a number."""
        self.advance({}, done - self._done)

    def tell(self, state: str) -> None:
        """Show what is being done, without counting a step."""
        self._told = state

    def advance(self, figures: dict[str, Any], steps: int = 1) -> None:
        """Count finished steps and show the figures by name."""
        if self._console is None:
            return
        self._done += steps
        now = time.monotonic()
        self._reports.append((now, self._done))
        self._figures = figures
        self._told = None
        if self._display is not None:
            self._display.update(self._task, completed=self._filled, total=self.total)
        elif now - self._last_line > BETWEEN_LINES or self._done == self.total:
            self._last_line = now
            self._console.print(f"{self._what}: {self}", soft_wrap=True, markup=False)

    @property
    def _filled(self) -> float:
        """How much of the bar is filled, of `total`."""
        return self._done

    @property
    def seconds_elapsed(self) -> float:
        return time.monotonic() - self._started

    def __str__(self) -> str:
        """What the bar says now."""
        if self._told is not None:
            return self._told
        total = self._unit.count(self._done if self.total is None else self.total)
        parts = [total if self.total is None else f"{self._done:,} of {total}"]
        if (left := self.seconds_left) is not None:
            parts.append(f"about {duration(left)} left")
        parts.append(f"{duration(self.seconds_elapsed)} elapsed")
        return ", ".join(parts) + "".join(f" · {name} {value}".rstrip() for name, value in self._figures.items())

    @property
    def seconds_left(self) -> float | None:
        """Estimated from the pace of the latest steps; None if it is too early to say."""
        n_reports = len(self._reports) - 1
        if self.total is None or not SILENT * self.total < self._done < self.total or n_reports < 2:
            return None
        (then, before), (now, done) = self._reports[-1 - math.ceil(RECENT * n_reports)], self._reports[-1]
        # a reader of files may be ahead of the pieces it has returned, so that some of them count as no step
        return (now - then) / (done - before) * (self.total - done) if done > before else None


def duration(seconds: float) -> str:
    """12 s, 3:05 min or 1:02:03 h."""
    whole = math.ceil(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, seconds = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}:{seconds:02.0f} min"
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02.0f} h"
