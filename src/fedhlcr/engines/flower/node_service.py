"""`fedhlcr flower node`: check a node, then keep its SuperNode running, and put Flower's errors in plain words."""

from __future__ import annotations

import time
from pathlib import Path

from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from fedhlcr.engines.flower.names import fingerprint
from fedhlcr.engines.flower.node_checks import Finding, check_disk, check_node, check_server
from fedhlcr.engines.flower.node_folder import NodeFolder
from fedhlcr.engines.flower.processes import supernode_command
from fedhlcr.engines.flower.supervisor import LOOK_AFTER, Program, keep_running, say
from fedhlcr.exceptions import ArgumentError

# SuperLink notices after a minute that a node is gone, and does not let it in before; a busy one takes longer.
NOTICED_AFTER = 100.0
_NOT_LET_IN = "[code: 2004]"
_UNAUTHORISED = "401"


def check(folder: Path) -> list[Finding]:
    """Check a node, and start nothing."""
    return list(check_node(NodeFolder.read(folder)))


def run_node(folder: Path) -> None:
    """Check a node and keep it running."""
    node = NodeFolder.read(folder)
    for finding in check_node(node):
        say(str(finding))
        if finding.is_fault and finding.check in ("files", "table"):
            raise ArgumentError(f"the node is not started. {finding}")
    service = NodeService(node)
    keep_running([service.program], before=lambda _: service.find_fault())


class NodeService:
    """A SuperNode that is kept running."""

    def __init__(self, node: NodeFolder) -> None:
        self.node = node
        # touched while the node is connected: a node that was here a moment ago is registered
        self.seen = node.folder / "last-connected"
        name = node.name or "the node"
        self.program = Program(
            name, self.command(), node.home, node.folder, self.explain, "SuperNode ID:", self.look_after
        )

    def command(self) -> list[str]:
        node = self.node
        config = {key: value for key, value in node.table.items() if value}
        return supernode_command(node.server, node.ca, node.key, config)

    def find_fault(self) -> str:
        """Why the node cannot be started now; empty if nothing is known."""
        faults = [finding for finding in (check_disk(self.node), check_server(self.node)) if finding.is_fault]
        if not faults:
            # the port of the last start may be taken meanwhile
            self.program.command = self.command()
        return " ".join(map(str, faults))

    def look_after(self) -> str:
        if self.program.is_ready.is_set():
            self.seen.touch()
        finding = check_disk(self.node)
        return str(finding) if finding.is_fault else ""

    def explain(self, said: str, code: int) -> str:
        """Why the SuperNode has ended, and what to do."""
        if self.program.is_ready.is_set():
            self.seen.touch()
        if _NOT_LET_IN in said:
            return self._not_let_in()
        fault = self.find_fault()
        if fault:
            return fault
        if "No space left" in said:
            return "the disk is full. Free some space."
        if _UNAUTHORISED in said:
            return "the server does not accept the node's signature. Check that the clocks agree, and its key."
        if "address already in use" in said.lower():
            return "its port is in use; another one is chosen."
        if code < 0:
            return f"signal {-code} ended it: somebody did, or the system, for lack of memory (see dmesg)."
        if code == 0:
            return (
                "the server has closed the connection. If this happens again, compare the clocks, and see the server's "
                "log."
            )
        return "see Flower's last lines above."

    def _not_let_in(self) -> str:
        """Flower has one error for two cases. Whether this key was let in a moment ago tells them apart."""
        if self.seen.exists() and time.time() - self.seen.stat().st_mtime < NOTICED_AFTER + LOOK_AFTER:
            return (
                "restarted too soon: the server has not noticed yet that this node was stopped. Nothing to do: it is "
                "let in within two minutes."
            )
        return (
            f"the server does not know this node's key {own_fingerprint(self.node.key)}, or still takes it for "
            "connected elsewhere. Register it, at the server: fedhlcr flower server DIR --node "
            f"{self.node.name or 'NAME'}; and do not start the node twice."
        )


def own_fingerprint(key: Path) -> str:
    """The fingerprint of the node's own key, as the server shows it."""
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    private = load_ssh_private_key(key.read_bytes(), password=None)
    return fingerprint(public_key_to_bytes(private.public_key()))  # type: ignore[arg-type]
