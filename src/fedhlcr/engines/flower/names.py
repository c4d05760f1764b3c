"""Which node may hold which agents: an agent's name belongs to the key of a node.

Without a list of the operator, a name belongs to the node that had it first. The server keeps this in a file, so it
also holds while that node is away and after the server was restarted. With a list, only what it says is allowed.

The file holds a keyed hash of each name. Its key is in the same file, so that it hides names from a glance, not from
somebody who tries the names that may occur.
"""

from __future__ import annotations

import base64
import hmac
import json
import secrets
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key
from flwr.proto.node_pb2 import NodeInfo

from fedhlcr._support.wording import AGENT
from fedhlcr.engines.flower.options import MOST_AGENTS
from fedhlcr.engines.flower.peers import fingerprint_of_bytes
from fedhlcr.exceptions import ArgumentError, Refusal, StorageError
from fedhlcr.storage.atomic import replace_file

PINS_FILE = "agents.json"


class NodeName(NamedTuple):
    """How a node is known: the fingerprint of its key, as `ssh-keygen -l` writes it, and its name; or neither."""

    key: str = ""
    name: str = ""

    @classmethod
    def of(cls, node: NodeInfo) -> NodeName:
        return cls(fingerprint(node.public_key), node.name)

    @property
    def shown(self) -> str:
        return f"{self.name} ({self.key})" if self.name else self.key


def fingerprint(public_key: bytes) -> str:
    """The fingerprint of a public key as Flower keeps it; empty if there is none."""
    if not public_key:
        return ""
    try:
        key = load_pem_public_key(public_key).public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        data = base64.b64decode(key.split()[1])
    except (ValueError, UnsupportedAlgorithm, IndexError):
        data = public_key
    return fingerprint_of_bytes(data)


@dataclass(frozen=True)
class Pins:
    """Which node's key each agent's name belongs to.

    Attributes
    ----------
    secret : the key of the hashes
    owners : the owner of each name, by the name's hash
    """

    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    owners: Mapping[str, NodeName] = field(default_factory=dict)

    def hashed(self, agents: Iterable[str]) -> list[str]:
        return [hmac.new(self.secret, name.encode(errors="surrogatepass"), "sha256").hexdigest() for name in agents]


@dataclass(frozen=True)
class AgentNames:
    """Decides which node may hold which agents.

    Attributes
    ----------
    pins : file with the key that each name belongs to; None to bind no names
    owners : the operator's list: patterns of names, by a node's name or fingerprint; None if there is no list
    max_agents : the largest number of agents of a node
    """

    pins: Path | None = None
    owners: Mapping[str, tuple[str, ...]] | None = None
    max_agents: int = MOST_AGENTS

    def claim(self, node: NodeName, agents: Collection[str]) -> Refusal | None:
        """Let a node hold these agents, or return why it may not. New names belong to it from now on."""
        if len(agents) > self.max_agents:
            return self._too_many(f"{len(agents):,} agents")
        if self.owners is not None:
            return _find_unlisted(self.owners, node, agents)
        if self.pins is None or not node.key:
            return None
        pins = read_pins(self.pins)
        names = pins.hashed(agents)
        owners = [pins.owners.get(name, node) for name in names]
        if taken := [owner for owner in owners if owner.key != node.key]:
            return Refusal(
                "NameTaken",
                f"{AGENT.count(len(taken))} of its {len(agents):,} belong to the key of node "
                f"{taken[0].shown}, but this node has the key {node.key}. If the node has a new key, or agents "
                f"have moved, release their names: fedhlcr flower release {self.pins.parent} --node "
                f"{taken[0].name or taken[0].key}",
            )
        if new := [name for name in names if name not in pins.owners]:
            # or a node could take every name there is, a few at a time
            n_own = sum(pin.key == node.key for pin in pins.owners.values())
            if n_own + len(new) > self.max_agents:
                return self._too_many(f"{len(new):,} new agents beside the {n_own:,} that its key has had so far")
            write_pins(self.pins, replace(pins, owners={**pins.owners, **dict.fromkeys(new, node)}))
        return None

    def _too_many(self, count: str) -> Refusal:
        return Refusal(
            "TooManyAgents",
            f"it has {count}, but a node may have {self.max_agents:,} (`max-agents-per-node`); raise the limit if you "
            "trust the node",
        )


def _find_unlisted(owners: Mapping[str, tuple[str, ...]], node: NodeName, agents: Collection[str]) -> Refusal | None:
    allowed = [pattern for known in node if known for pattern in owners.get(known, ())]
    unlisted = [name for name in agents if not any(fnmatchcase(name, pattern) for pattern in allowed)]
    if not unlisted:
        return None
    return Refusal(
        "NotListed",
        f"`agents-file` does not let node {node.shown or 'without a key'} hold {len(unlisted):,} of its "
        f"{AGENT.count(len(agents))}; add them to the file, or correct the names at the node",
    )


def read_owners(path: Path) -> dict[str, tuple[str, ...]]:
    """The operator's list: a TOML file whose table `agents` has a line `NODE = ["name", "pattern-*"]` for each node."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8")).get("agents")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ArgumentError(f"`agents-file` {path} cannot be read ({error}); check the path and the TOML.") from None
    is_list = isinstance(table, dict) and all(
        isinstance(names, list) and all(isinstance(name, str) for name in names) for names in table.values()
    )
    if not table or not is_list:
        raise ArgumentError(
            f'`agents-file` {path} must have a table [agents] with lines such as north = ["north", "ward-*"].'
        )
    return {node: tuple(names) for node, names in table.items()}


def read_pins(path: Path) -> Pins:
    """The key that each agent's name belongs to, from the server's file; none if there is no file.

    A file with names, as earlier versions wrote it, is replaced by one with their hashes.
    """
    if not path.exists():
        return Pins()
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(secret := table.get("secret"), str):
            return Pins(bytes.fromhex(secret), _owners(table["owners"]))
        named = _owners(table)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise StorageError(
            f"{path}, which says which node's key each agent belongs to, cannot be read; restore it, or remove it to "
            "let every name belong to the node that comes first."
        ) from None
    pins = Pins()
    pins = replace(pins, owners=dict(zip(pins.hashed(named), named.values(), strict=True)))
    write_pins(path, pins)
    return pins


def _owners(table: Mapping[str, Any]) -> dict[str, NodeName]:
    return {name: NodeName(str(pin["key"]), str(pin["node"])) for name, pin in table.items()}


def write_pins(path: Path, pins: Pins) -> None:
    owners = {name: {"key": pin.key, "node": pin.name} for name, pin in pins.owners.items()}
    table = {"secret": pins.secret.hex(), "owners": owners}
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, json.dumps(table, indent=1).encode(), private=True)


def release(folder: Path, nodes: Collection[str], agents: Collection[str]) -> int:
    """Let the names of these nodes or agents belong to whoever has them next. Returns how many there are."""
    path = folder / PINS_FILE
    pins = read_pins(path)
    names = set(pins.hashed(agents))
    kept = {
        name: pin
        for name, pin in pins.owners.items()
        if name not in names and pin.key not in nodes and pin.name not in nodes
    }
    if len(kept) < len(pins.owners):
        write_pins(path, replace(pins, owners=kept))
    return len(pins.owners) - len(kept)
