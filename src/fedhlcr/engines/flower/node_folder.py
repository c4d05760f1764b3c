"""A node's folder: its key, the server's CA certificate, and `node.toml` with the server's address and the table.

ca.crt, node.key     made at the server by `fedhlcr flower server`
peers                the public keys of all nodes, if there is such a file, for secure aggregation
node.toml            the address, and the options of a node (`options.NODE_OPTIONS`); whoever runs the node edits it
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedhlcr.engines.flower.node_options import NodeOptions
from fedhlcr.engines.flower.options import NODE_OPTIONS
from fedhlcr.exceptions import ArgumentError, Refusal

SETTINGS = "node.toml"
PEERS = "peers"
HEAD = """\
# A node of a federation. Set the options below, then start it in this folder: fedhlcr flower node .
server = {address}          # where nodes reach the server
name = {name}               # the node's name at the server

[table]
"""
# The lines that must be set; the others are optional.
NEEDED = ("data-path", "target", "features")


@dataclass(frozen=True)
class NodeFolder:
    """A node's folder, after its settings were read."""

    folder: Path
    server: str
    name: str
    table: dict[str, str]

    @classmethod
    def read(cls, folder: Path) -> NodeFolder:
        folder = folder.absolute()
        path = folder / SETTINGS
        try:
            settings = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ArgumentError(
                f"{folder} has no {SETTINGS}; pass the folder that the server's operator made for this node."
            ) from None
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ArgumentError(f"{path} cannot be read: {error}.") from None
        server = settings.get("server", "")
        name = settings.get("name", "")
        table = settings.get("table", {})
        if not isinstance(server, str) or not server.rpartition(":")[0] or not server.rpartition(":")[2].isdecimal():
            raise ArgumentError(f'`server` in {path} must be an address such as "server.example.org:9443".')
        if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
            raise ArgumentError(f'[table] in {path} must have lines such as target = "cost".')
        return cls(folder, server, str(name), _paths_from(folder, table))

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def key(self) -> Path:
        return self.folder / "node.key"

    @property
    def home(self) -> Path:
        """The folder of Flower's own files."""
        return self.folder / "flwr"

    @property
    def host(self) -> str:
        return self.server.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.server.rpartition(":")[2])

    def options(self) -> NodeOptions:
        """The options of the node; an error that names what is missing."""
        try:
            return NodeOptions.from_context(self.table, {})
        except Refusal as refusal:
            raise ArgumentError(f"[table] in {self.folder / SETTINGS}: {refusal.cure}.") from None


def _paths_from(folder: Path, table: dict[str, Any]) -> dict[str, str]:
    """The settings, with paths that start at the node's folder, whatever folder the node is started in."""
    paths = {
        key: table[key] for key in ("data-path", "test-path", "state-dir", "key-path", "peers-path") if table.get(key)
    }
    full = {key: str(folder / Path(value).expanduser()) for key, value in paths.items()}
    own = {"state-dir": str(folder / "state"), "key-path": str(folder / "node.key")}
    if (folder / PEERS).exists():
        own["peers-path"] = str(folder / PEERS)
    return {**own, **table, **full}


def write_node_folder(folder: Path, name: str, address: str) -> Path:
    """Write the settings of a node, for its owner to complete. Returns their path; an existing file is kept."""
    path = folder / SETTINGS
    if path.exists():
        return path
    text = HEAD.format(address=json.dumps(address), name=json.dumps(name))
    for key, comment in NODE_OPTIONS.items():
        if key in ("state-dir", "key-path", "peers-path"):
            continue
        line = f'{key} = "{name if key == "agent-name" else ""}"'
        text += f"{line if key in NEEDED or key == 'agent-name' else '# ' + line:<32} # {comment}\n"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
