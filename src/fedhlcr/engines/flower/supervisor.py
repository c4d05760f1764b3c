"""Keep a process of Flower running: start it again when it ends, and say in plain words why it ended.

What Flower prints is passed on line by line. Our own lines begin with `fedhlcr:`.
"""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from fedhlcr.engines.flower.processes import (
    END_SIGNALS,
    GRACE,
    end,
    family_of,
    flower_environment,
    signals_held,
    signals_ignored,
    start,
)

# Seconds before a process is started again: more and more, until it has run for a while.
FIRST_PAUSE = 5.0
LONGEST_PAUSE = 60.0
LONG_RUN = 120.0
# How often a running process is looked after, and asked whether it still runs, in seconds.
LOOK_AFTER = 30.0
POLL = 0.3
# Seconds to wait for the last lines of a process that has ended.
LAST_WORDS = 2.0
# Lines of a process that are searched for the reason why it ended.
LAST_LINES = 40


@dataclass
class Program:
    """A command that is kept running.

    Attributes
    ----------
    name : how it is called in our lines
    command, home, folder : the command, the folder of Flower's files, and the folder to start it in
    explain : from its last lines and its exit code, why it ended and what to do
    ready : text in its output that shows that it works
    look_after : called every half a minute while it runs; returns what to say, or nothing
    """

    name: str
    command: Sequence[str]
    home: Path
    folder: Path
    explain: Callable[[str, int], str]
    ready: str = ""
    look_after: Callable[[], str] = lambda: ""
    process: psutil.Popen | None = field(default=None, init=False)
    is_ready: threading.Event = field(default_factory=threading.Event, init=False)
    stopped: threading.Event = field(default_factory=threading.Event, init=False)
    last: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_LINES), init=False)
    _reader: threading.Thread = field(init=False, repr=False)

    def begin(self) -> None:
        self.is_ready.clear()
        self.last.clear()
        with signals_held():
            self.process = start(self.command, flower_environment(self.home), self.folder, subprocess.PIPE)
        self._reader = threading.Thread(target=self._pass_on, args=(self.process,), daemon=True)
        self._reader.start()

    def _pass_on(self, process: psutil.Popen) -> None:
        with process.stdout as lines:
            for raw in lines:
                line = raw.decode(errors="replace").rstrip()
                self.last.append(plain(line))
                print(line, flush=True)
                if self.ready and self.ready in line:
                    self.is_ready.set()

    def end(self) -> None:
        if self.process is not None:
            end(family_of(self.process), GRACE)
            # another thread may have waited for it; this notes that it is over
            self.process.poll()
            # nothing is printed after this; a child that left its family may hold the output open
            self._reader.join(LAST_WORDS)

    def stop(self) -> None:
        """End it for good."""
        self.stopped.set()
        with signals_ignored():
            self.end()


def plain(line: str) -> str:
    """A line without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", line)


def say(text: str) -> None:
    print(f"fedhlcr: {text}", flush=True)


def keep_running(programs: Sequence[Program], before: Callable[[Program], str] = lambda _: "") -> None:
    """Run programs until this one is ended by a signal.

    `before` is called before each start, and returns why a program cannot be started now, or an empty text.
    """
    with _ended_by_signals(programs):
        threads = [threading.Thread(target=_keep, args=(program, before), daemon=True) for program in programs]
        for thread in threads:
            thread.start()
        while True:
            time.sleep(1.0)


def _keep(program: Program, before: Callable[[Program], str]) -> None:
    pause = FIRST_PAUSE
    while not program.stopped.is_set():
        if reason := before(program):
            say(f"{program.name} is not started: {reason} Trying again in {pause:.0f} seconds.")
        else:
            began = time.monotonic()
            program.begin()
            code = _watch(program)
            if time.monotonic() - began > LONG_RUN:
                pause = FIRST_PAUSE
            # the last lines arrive a moment after the end
            if program.stopped.wait(0.5):
                return
            reason = program.explain("\n".join(program.last), code)
            say(f"{program.name} has ended (exit code {code}): {reason} Starting it again in {pause:.0f} seconds.")
            # a part of it may have outlived it, and would hold its port
            program.end()
        program.stopped.wait(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def _watch(program: Program) -> int:
    """Wait for the end of a program, and look after it meanwhile. Returns its exit code."""
    said = ""
    looked = time.monotonic()
    assert program.process is not None
    # asked, not waited for: when this program is ended, another thread waits for the process
    while (code := program.process.poll()) is None:
        time.sleep(POLL)
        if time.monotonic() - looked < LOOK_AFTER:
            continue
        looked = time.monotonic()
        trouble = program.look_after()
        if trouble and trouble != said:
            say(trouble)
        said = trouble
    return int(code)


@contextlib.contextmanager
def _ended_by_signals(programs: Sequence[Program]) -> Iterator[None]:
    def stop(number: int, _: object) -> None:
        sys.exit(128 + number)

    for number in END_SIGNALS:
        signal.signal(number, stop)
    try:
        yield
    finally:
        say("stopping.")
        for program in programs:
            program.stop()
