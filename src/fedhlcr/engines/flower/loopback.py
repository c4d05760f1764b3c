"""A whole federation on this machine: a real SuperLink and real SuperNodes, with TLS and node authentication.

    with Loopback(folder) as federation:
        federation.start_superlink()
        federation.start_supernode("a", {"data-path": "a.csv", …})
        run = federation.start_run(app_folder)
        federation.follow(run, print)

Everything listens on free ports of 127.0.0.1, and is stopped at the end, also after an error.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psutil

from fedhlcr.engines.flower.certificates import Certificates
from fedhlcr.engines.flower.processes import (
    GRACE,
    end,
    family_of,
    flower_environment,
    free_port,
    run_flwr,
    signals_held,
    signals_ignored,
    start,
    superlink_answers,
    superlink_command,
    supernode_command,
    write_connection,
)
from fedhlcr.engines.flower.supervisor import plain
from fedhlcr.exceptions import LoopbackError

CONNECTION = "loopback"
# Seconds that a SuperLink may take to start, and a flwr command to end: a busy machine must not end a federation.
START = 300.0
COMMAND = 600.0
# Seconds between two starts of a SuperNode that has ended.
REVIVE_AGAIN = 15.0
# Lines of a log that are shown with an error.
N_LINES = 12
FINISHED = "finished"
SUCCESS = "finished:completed"


@dataclass
class Loopback:
    """A SuperLink and SuperNodes, with all their files in one folder.

    Attributes
    ----------
    simulated_nodes : number of nodes that the SuperLink simulates itself, without TLS; 0 for real SuperNodes
    revived : node-configs of the nodes that are started again when they end, while a run is followed
    """

    folder: Path
    simulated_nodes: int = 0
    revived: Mapping[str, Mapping[str, str]] = field(default_factory=dict, init=False)
    processes: dict[str, psutil.Popen] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._may_revive: dict[str, float] = {}
        self.folder.mkdir(parents=True, exist_ok=True)
        self.certificates = Certificates(self.folder / "certificates")
        self.certificates.make()
        self.port = free_port()
        self.home = self.folder / "flwr"
        self.home.mkdir(exist_ok=True)
        write_connection(self.home, CONNECTION, self.address, self.ca)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def ca(self) -> Path | None:
        """The CA's certificate; None for a SuperLink that simulates the nodes, which has no TLS."""
        return None if self.simulated_nodes else self.certificates.ca

    @property
    def environment(self) -> dict[str, str]:
        return flower_environment(self.home)

    def start_superlink(self) -> None:
        """Start the SuperLink, or restart it on the same database, and wait until it answers."""
        keys = None if self.simulated_nodes else self.certificates
        self._start("superlink", *superlink_command(self.port, self.folder / "superlink.db", keys))
        for _ in self._within(START, "superlink"):
            if superlink_answers(self.address, self.ca):
                return

    def register(self, node: str) -> None:
        """Create a key for a node, if it has none, and register it at the SuperLink."""
        if self.certificates.make(nodes=[node]):
            self.flwr("supernode", "register", str(self.certificates.node_public_key(node)), CONNECTION, "--name", node)

    def start_supernode(self, node: str, config: Mapping[str, str], *, register: bool = True) -> None:
        if register:
            self.register(node)
        else:
            self.certificates.make(nodes=[node])
        keys = self.certificates
        self._start(node, *supernode_command(self.address, keys.ca, keys.node_key(node), config))

    def start_run(self, app: Path, options: Mapping[str, Any] | None = None) -> int:
        """Submit an app to the SuperLink. Returns the run's id."""
        command = ["run", str(app), CONNECTION, "--format", "json"]
        if self.simulated_nodes:
            command += ["--federation-config", f"num-supernodes={self.simulated_nodes}"]
        if options:
            command += ["--run-config", " ".join(f"{key}={json.dumps(value)}" for key, value in options.items())]
        answer = json.loads(self.flwr(*command))
        if not answer.get("success"):
            raise LoopbackError(f"the run could not be started: {answer.get('error-message', 'no reason given')}")
        return int(answer["run-id"])

    def watch(self, run: int) -> str:
        """Write a run's log to a file while it grows. Returns the name of the process that does it."""
        name = f"run-{run}"
        if name in self.processes:
            self.kill(name)
        self._start(name, "flwr", "log", str(run), CONNECTION, "--stream")
        return name

    def follow(self, run: int, show: Callable[[str], object] = str, limit: float = 3600.0) -> None:
        """Wait for a run to end, and pass each line of its log to `show`. Raises an error if the run fails."""
        deadline = time.monotonic() + limit
        n_shown = 0
        status = ""
        while not status.startswith(FINISHED):
            # a SuperLink that is too busy to answer breaks the stream off; a new one begins with the first line
            n_shown = self._follow_stream(run, show, n_shown, deadline)
            status = self.status(run)
        if status != SUCCESS:
            raise LoopbackError(f"run {run} ended as {status}.\n{self.causes(f'run-{run}')}")

    def _follow_stream(self, run: int, show: Callable[[str], object], n_shown: int, deadline: float) -> int:
        """Show the lines of a run's log, but for the first ones, until the stream ends. Returns how many there are."""
        self.log_path(f"run-{run}").unlink(missing_ok=True)
        name = self.watch(run)
        stream = self.processes[name]
        n_lines = 0
        with open(self.log_path(name), encoding="utf-8", errors="replace") as log:
            over = False
            while not over:
                # checked before the lines are read, so that the last lines are not missed
                over = stream.poll() is not None
                for line in log:
                    n_lines += 1
                    if n_lines > n_shown:
                        show(line.rstrip())
                if time.monotonic() > deadline:
                    raise LoopbackError(f"run {run} has not ended in time.\n{self.causes(name)}")
                self._revive()
                time.sleep(0.0 if over else 0.2)
        del self.processes[name]
        return max(n_shown, n_lines)

    def _revive(self) -> None:
        """Start SuperNodes again that have ended, as a restart loop would; a SuperLink that has ended is an error."""
        for name, process in list(self.processes.items()):
            if process.poll() is None:
                continue
            if name == "superlink":
                raise LoopbackError(f"SuperLink has ended.\n{self.causes(name)}")
            if name in self.revived and time.monotonic() > self._may_revive.get(name, 0.0):
                self._may_revive[name] = time.monotonic() + REVIVE_AGAIN
                self.start_supernode(name, self.revived[name])

    def causes(self, *first: str) -> str:
        """Lines of the logs that say what went wrong: of these processes, and of all that have ended."""
        ended = [name for name, process in self.processes.items() if process.poll() is not None]
        parts = []
        for name in dict.fromkeys((*first, *ended)):
            lines = _telling_lines(self.log_path(name))
            parts += [f"Last lines of {self.log_path(name)}:", *(f"  {line}" for line in lines or ["(empty)"])]
        return "\n".join(parts)

    def status(self, run: int) -> str:
        answer = json.loads(self.flwr("list", "--run-id", str(run), CONNECTION, "--format", "json"))
        return str(answer["runs"][0]["status"])

    def log_path(self, process: str) -> Path:
        return self.folder / f"{process}.log"

    def flwr(self, *arguments: str) -> str:
        """Run a flwr command, and return its output."""
        try:
            done = run_flwr(arguments, self.environment, self.folder, COMMAND)
        except subprocess.TimeoutExpired:
            raise LoopbackError(
                f"flwr {' '.join(arguments)} took more than {COMMAND:g} seconds.\n{self.causes('superlink')}"
            ) from None
        if done.returncode:
            said = f"{done.stdout}{done.stderr}".strip()
            raise LoopbackError(f"flwr {' '.join(arguments)} failed:\n{said}\n{self.causes('superlink')}")
        return done.stdout

    def kill(self, name: str) -> None:
        """Kill a process and all its descendants, as a power cut would."""
        family = self.family(name)
        del self.processes[name]
        end(family)

    def stop(self) -> None:
        """End all processes. Further signals are ignored meanwhile."""
        with signals_ignored():
            family = [process for name in self.processes for process in self.family(name)]
            self.processes.clear()
            end(family, GRACE)

    def family(self, name: str) -> list[psutil.Process]:
        """A process and all its descendants."""
        return family_of(self.processes[name])

    def _start(self, name: str, *command: str) -> None:
        # a signal between the start of a process and its entry in `processes` would leave it running
        with open(self.log_path(name), "ab") as log, signals_held():
            self.processes[name] = start(command, self.environment, self.folder, log)

    def _within(self, limit: float, name: str) -> Iterator[None]:
        """Yield a few times per second until the limit. Raises an error if the process has ended."""
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            yield
            if self.processes[name].poll() is not None:
                raise LoopbackError(f"{name} has ended.\n{self.causes(name)}")
            time.sleep(0.3)
        raise LoopbackError(f"{name} took more than {limit:g} seconds.\n{self.causes(name)}")


def _telling_lines(path: Path) -> list[str]:
    """The last lines of a log, without colours and blank lines."""
    if not path.exists():
        return []
    lines = [plain(line).rstrip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
    return [line for line in lines if line.strip() and "uvicorn.access" not in line][-N_LINES:]
