"""`fedhlcr flower server`: keep SuperLink and its front running, and register nodes."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from fedhlcr.engines.flower.processes import superlink_answers, superlink_command
from fedhlcr.engines.flower.server_folder import ServerFolder
from fedhlcr.engines.flower.supervisor import Program, keep_running, say
from fedhlcr.exceptions import FedHLCRError

# Seconds that a SuperLink may take to start on a busy machine.
START = 300.0


def run_server(server: ServerFolder, *, front: bool) -> None:
    """Keep SuperLink running, and nginx in front of it; register the nodes once SuperLink answers."""
    command = superlink_command(server.superlink_port, server.folder / "superlink.db", server.keys)
    programs = [
        Program("SuperLink", command, server.home, server.folder, _explain_superlink),
    ]
    if front:
        programs.append(Program("nginx", server.nginx_command(), server.home, server.folder, _explain_nginx))
    threading.Thread(target=_register, args=(server,), daemon=True).start()
    keep_running(programs)


def await_superlink(server: ServerFolder, limit: float = START) -> bool:
    """Wait until SuperLink answers. Whether it does."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        if superlink_answers(server.address, server.keys.ca):
            return True
        time.sleep(0.5)
    return False


def _register(server: ServerFolder) -> None:
    if not await_superlink(server):
        say(f"SuperLink does not answer after {START:.0f} seconds; see its lines above.")
        return
    try:
        names = server.register()
    except (FedHLCRError, OSError, ValueError, KeyError) as error:
        say(f"nodes could not be registered: {error}")
        return
    if names:
        say(f"registered {', '.join(names)}.")
    say(f"ready. Start a run in another terminal: fedhlcr flower run {server.folder}")


def _explain_superlink(said: str, code: int) -> str:  # noqa: ARG001
    if "address already in use" in said.lower():
        return "its port is in use. Stop the other SuperLink, or choose another port: --superlink-port."
    if "No space left" in said or "disk is full" in said:
        return "the disk is full. Free some space."
    if "database" in said.lower() and "schema" in said.lower():
        return "superlink.db is of another release of Flower. Move it away; nodes are then registered again."
    return "see its last lines above. Runs that were under way continue with resume=true."


def _explain_nginx(said: str, code: int) -> str:  # noqa: ARG001
    if "Address already in use" in said:
        return "its port is in use. Stop the other program, or choose another port: --port."
    if "Permission denied" in said or "permitted" in said:
        return "it may not use this port or these files. Choose a port above 1023, or run it as another user."
    return "see its last lines above."


def next_steps(server: ServerFolder, nodes: Sequence[str]) -> list[str]:
    """What to do at the nodes."""
    return [
        line
        for name in nodes
        for line in (
            f"copy {server.node_folder(name)} to {name} over a secure channel, and set the table in its node.toml;",
            f"then, there: fedhlcr flower node {name}",
        )
    ]
