"""What can be wrong with a node before it is started, each with its cure."""

from __future__ import annotations

import email.utils
import shutil
import socket
import ssl
import time
from collections.abc import Iterator
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import NamedTuple

from fedhlcr._support.wording import AGENT
from fedhlcr.engines.flower.node import Node
from fedhlcr.engines.flower.node_folder import NodeFolder
from fedhlcr.exceptions import ArgumentError, Refusal

# SuperLink refuses signatures from the future, or older than five minutes; a server's time has whole seconds.
MOST_AHEAD = 5.0
MOST_BEHIND = 300.0
# Bytes that a node needs for its state, its app and temporary files.
LEAST_DISK = 200_000_000
SECONDS = 15.0
# OpenSSL's codes for certificates that are not valid yet, or no longer.
_NOT_YET = 9
_EXPIRED = 10


class Finding(NamedTuple):
    """One check: a word for it, what was found, and the cure if it is a fault."""

    check: str
    found: str
    cure: str = ""

    @property
    def is_fault(self) -> bool:
        return bool(self.cure)

    def __str__(self) -> str:
        return f"{self.check}: {self.found}" + (f" {self.cure}" if self.cure else "")


def check_node(node: NodeFolder) -> Iterator[Finding]:
    """All checks of a node, one after the other."""
    yield check_files(node)
    yield check_disk(node)
    yield check_table(node)
    yield check_server(node)


def check_files(node: NodeFolder) -> Finding:
    missing = [path.name for path in (node.ca, node.key) if not path.is_file()]
    if missing:
        return Finding(
            "files",
            f"{', '.join(missing)} is missing from {node.folder}.",
            "Copy the folder that the server's operator made for this node, with all its files.",
        )
    if node.key.stat().st_mode & 0o077:
        return Finding("files", f"{node.key} can be read by others.", f"Protect it: chmod 600 {node.key}")
    return Finding("files", "the key and the server's certificate are there.")


def check_disk(node: NodeFolder) -> Finding:
    """Whether the folders that the node writes to have space."""
    for folder in (node.folder, Path(node.table["state-dir"]), Path("/tmp")):
        there = next(parent for parent in (folder, *folder.parents) if parent.exists())
        left = shutil.disk_usage(there).free
        if left < LEAST_DISK:
            return Finding(
                "disk",
                f"the disk of {there} has {left / 1e6:.0f} MB left, but a node needs {LEAST_DISK / 1e6:.0f}.",
                "Free some space: with a full disk the server hears nothing from this node (Expired).",
            )
    try:
        node.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = Path(node.table["state-dir"])
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = state / ".writable"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        return Finding(
            "disk", f"cannot write to {error.filename} ({error.strerror}).", "Let the node's user write there."
        )
    return Finding("disk", "there is space.")


def check_table(node: NodeFolder) -> Finding:
    """Whether the table has the columns, with values that can be used."""
    try:
        n_events, n_agents = Node(node.options(), "check").count()
    except ArgumentError as error:
        return Finding("table", str(error), "Correct it.")
    except Refusal as refusal:
        return Finding("table", f"{refusal.detail or refusal.cure}", "Correct the table, or the settings.")
    return Finding("table", f"{n_events:,} events of {AGENT.count(n_agents)} can be used.")


def check_server(node: NodeFolder) -> Finding:
    """Whether the server can be reached, has the right certificate, and has the same time."""
    try:
        ahead = clock_ahead(node)
    except ssl.SSLCertVerificationError as error:
        if error.verify_code in (_NOT_YET, _EXPIRED):
            return Finding(
                "clock",
                f"by this machine's clock ({time.strftime('%Y-%m-%d %H:%M %Z')}) the server's certificate is invalid.",
                "Set the clock (timedatectl set-ntp true). If it is right, the certificate has expired: the operator "
                "renews it with fedhlcr flower certs --renew.",
            )
        return Finding(
            "server",
            f"{node.server} has another certificate than the one for {node.host} in ca.crt ({error.verify_message}).",
            "Copy ca.crt from the server again, and use the host that its certificate is for.",
        )
    except (OSError, HTTPException) as error:
        return Finding(
            "server",
            f"{node.server} cannot be reached ({_reason(error)}).",
            "Check `server` in node.toml, the firewalls, and that fedhlcr flower server is running.",
        )
    if ahead > MOST_AHEAD or ahead < -MOST_BEHIND:
        side = "ahead of" if ahead > 0 else "behind"
        return Finding(
            "clock",
            f"this machine's clock is {abs(ahead):.0f} seconds {side} the server's, which then refuses the node.",
            "Set both clocks by NTP: timedatectl set-ntp true",
        )
    return Finding("server", f"{node.server} answers, and its clock differs by {abs(ahead):.0f} s.")


def clock_ahead(node: NodeFolder) -> float:
    """Seconds that this machine's clock is ahead of the server's, to a second or so."""
    connection = HTTPSConnection(
        node.host, node.port, timeout=SECONDS, context=ssl.create_default_context(cafile=str(node.ca))
    )
    try:
        connection.request("GET", "/health")
        # any answer has the time, also that the page is forbidden
        said = connection.getresponse().getheader("date", "")
    finally:
        connection.close()
    there = email.utils.parsedate_to_datetime(said) if said else None
    if there is None:
        return 0.0
    # the server cuts off parts of seconds
    return time.time() - there.timestamp() - 0.5


def _reason(error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return "there is no such host"
    return str(error) or type(error).__name__
