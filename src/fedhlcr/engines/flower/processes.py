"""Processes of Flower: how they are started and ended, with all their descendants."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any
from urllib.error import URLError
from urllib.request import urlopen

import psutil

from fedhlcr.engines.flower.certificates import Certificates

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


def superlink_command(port: int, database: Path, keys: Certificates | None) -> list[str]:
    """A SuperLink on 127.0.0.1 with TLS, which only lets registered nodes in; without keys it simulates the nodes."""
    mode = ["--insecure", "--simulation"]
    if keys is not None:
        mode = ["--ssl-ca-certfile", str(keys.ca), "--ssl-certfile", str(keys.server)]
        mode += ["--ssl-keyfile", str(keys.server_key), "--enable-supernode-auth"]
    return ["flower-superlink", *mode, "--host", "127.0.0.1", "--port", str(port), "--database", str(database)]


def supernode_command(server: str, ca: Path, key: Path, config: Mapping[str, str]) -> list[str]:
    """A SuperNode with a free port and this node-config, whose values Flower reads as TOML."""
    return [
        "flower-supernode",
        *("--superlink", server, "--root-certificates", str(ca), "--auth-supernode-private-key", str(key)),
        *("--host", "127.0.0.1", "--port", str(free_port())),
        *("--node-config", " ".join(f"{name}={json.dumps(text, ensure_ascii=False)}" for name, text in config.items())),
    ]


def write_connection(home: Path, name: str, address: str, ca: Path | None) -> None:
    """Tell flwr commands where the SuperLink is, under a name; without a CA there is no TLS."""
    trust = {"insecure": True} if ca is None else {"root-certificates": str(ca.absolute())}
    settings = {"address": address, **trust}
    lines = [f"[superlink.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in settings.items())]
    (home / "config.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def superlink_answers(address: str, ca: Path | None) -> bool:
    """Whether a SuperLink answers now; without a CA there is no TLS."""
    trust = None if ca is None else ssl.create_default_context(cafile=str(ca))
    try:
        with urlopen(f"{'http' if ca is None else 'https'}://{address}/health", timeout=10, context=trust) as answer:
            return bool(answer.status == 200)
    except (URLError, ConnectionError, TimeoutError):
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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
