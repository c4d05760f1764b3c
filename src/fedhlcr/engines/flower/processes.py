"""Processes of Flower: how they are started and ended, with all their descendants."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

import psutil

END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Seconds that processes have to end by themselves.
GRACE = 10.0
# Flower must not install anything or send reports, and should look for new work often.
QUIET = {
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "PYTHONUNBUFFERED": "1",
}


def flower_environment(home: Path) -> dict[str, str]:
    """The environment of Flower's commands, which keep their own files in `home`."""
    tools = str(Path(sys.executable).parent)
    path = os.pathsep.join([tools, os.environ.get("PATH", os.defpath)])
    return {**os.environ, **QUIET, "FLWR_HOME": str(home), "PATH": path}


def run_flwr(
    arguments: Sequence[str], environment: Mapping[str, str], folder: Path, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a flwr command to its end, for at most `timeout` seconds."""
    return subprocess.run(
        ["flwr", *arguments],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def start(command: Sequence[str], environment: Mapping[str, str], folder: Path, output: int | IO[Any]) -> psutil.Popen:
    """Start a command whose output goes to a file or a pipe. Ctrl-C does not reach it: this program has to end it."""
    return psutil.Popen(
        command,
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        # it must not inherit what `signals_held` holds back
        preexec_fn=partial(signal.pthread_sigmask, signal.SIG_UNBLOCK, END_SIGNALS),
    )


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Hold back the signals that would end this program: between the start of a process and its entry in a list."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def family_of(process: psutil.Process) -> list[psutil.Process]:
    """A process and all its descendants. Flower starts its children in sessions of their own."""
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return [process]


def end(family: list[psutil.Process], grace: float | None = None) -> None:
    """Kill processes, or terminate them first and wait `grace` seconds for them to end."""
    if grace is not None:
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        _, family = psutil.wait_procs(family, timeout=grace)
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(family)


@contextlib.contextmanager
def signals_ignored() -> Iterator[None]:
    """Ignore the signals that would end this program."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in END_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
