"""The keys of the other nodes: under secure aggregation every node signs its keys of a round with its own node key.

So a server that passes on other keys than the nodes' own is noticed. A node knows the keys of the others from a list
that its owner got from the operator or from the other owners (`peers-path`). Without a list it keeps the key that it
sees first under each name. That is weaker: it does not show that the server lied from the start, or invented a node.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import struct
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_public_key,
    load_ssh_private_key,
    load_ssh_public_key,
)
from filelock import FileLock

from fedhlcr.exceptions import Refusal
from fedhlcr.storage.atomic import replace_file

logger = logging.getLogger(__name__)

PINNED_FILE = "peers.pinned"
# Flower signs with the same key; what is signed here begins with these words, and with nothing that Flower signs.
PURPOSE = b"fedhlcr: keys of a node in a round of secure aggregation|"
ALGORITHM = ec.ECDSA(hashes.SHA384())
PUBLIC_KEYS = "*.pub"
PEER_KEY = "PeerKey"

PublicKey = ec.EllipticCurvePublicKey


def sign(key: ec.EllipticCurvePrivateKey, data: bytes) -> bytes:
    """The public key, and a signature of the data by it."""
    public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return struct.pack("<H", len(public)) + public + key.sign(PURPOSE + data, ALGORITHM)


def signer_of(data: bytes, signature: bytes) -> str | None:
    """The public key that signed the data, as OpenSSH writes it; None if the signature is wrong."""
    try:
        (size,) = struct.unpack_from("<H", signature)
        public = load_der_public_key(signature[2 : 2 + size])
        if not isinstance(public, PublicKey):
            return None
        public.verify(signature[2 + size :], PURPOSE + data, ALGORITHM)
    except (struct.error, ValueError, UnsupportedAlgorithm, InvalidSignature):
        return None
    return _written(public)


def fingerprint_of(key: str) -> str:
    """The fingerprint of a public key that OpenSSH wrote, as `ssh-keygen -l` shows it."""
    return fingerprint_of_bytes(base64.b64decode(key.split()[1]))


def fingerprint_of_bytes(data: bytes) -> str:
    """The fingerprint of the bytes of a public key."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def _written(public: PublicKey) -> str:
    return public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


@dataclass
class PeerKeys:
    """The keys of nodes by their names.

    Attributes
    ----------
    path : the file or folder they were read from
    is_list : whether only these nodes may take part; otherwise others are added to `new` when they are seen first
    """

    path: Path
    is_list: bool
    known: dict[str, str] = field(default_factory=dict)
    new: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, listed: Path | None, state_dir: Path) -> PeerKeys:
        """The operator's list, or without one the keys that were kept in the folder of the node's state."""
        if listed is not None:
            if not listed.exists():
                cure = "`peers-path` of the node names a file that does not exist; see the node's log"
                raise Refusal("NodeConfigError", cure, f"There is no {listed}.")
            return cls(listed, is_list=True, known=read_keys(listed))
        path = state_dir / PINNED_FILE
        return cls(path, is_list=False, known=read_keys(path) if path.exists() else {})

    def check(self, node: str, key: str) -> None:
        """Refuse a key that is not known to be this node's; a first key is taken, unless there is a list."""
        known = self.known.get(node) or self.new.get(node)
        if known is None and self.is_list:
            raise Refusal(
                PEER_KEY,
                f"node {node!r} is not in the list of nodes that this one sums with (`peers-path`); add it at the node",
                f"Its key has the fingerprint {fingerprint_of(key)}. If its owner confirms that, add its line to "
                f"{self.path}.",
            )
        others = [name for name, own in (self.known | self.new).items() if own == key and name != node]
        if others:
            raise Refusal(
                PEER_KEY,
                f"node {node!r} has the key of node {others[0]!r}; every node needs a key of its own",
                f"If node {others[0]!r} has a new name, correct its line in {self.path}.",
            )
        if known is None:
            self.new[node] = key
        elif known != key:
            raise Refusal(
                PEER_KEY,
                f"the key shown for node {node!r} is not the one that this node knows; nothing is sent, see its log",
                f"Either the server does not pass on the nodes' own keys, or {node!r} has a new key: "
                f"{fingerprint_of(key)} instead of {fingerprint_of(known)}. Ask its owner; if it is new, correct "
                f"its line in {self.path}{'' if self.is_list else ', or remove the line'}.",
            )

    def keep_new(self) -> None:
        """Write the keys that were seen first, so that they cannot change unnoticed."""
        if not self.new:
            return
        with FileLock(self.path.with_suffix(".lock")):
            before = read_keys(self.path) if self.path.exists() else {}
            lines = [f"{key} {node}\n" for node, key in sorted((self.new | before).items())]
            replace_file(self.path, "".join(lines).encode(), private=True)
        shown = ", ".join(f"{node} {fingerprint_of(key)}" for node, key in sorted(self.new.items()))
        logger.warning(
            "no `peers-path` is set, so the keys of these nodes are trusted at first use: %s. That is weaker than a "
            "list: compare the fingerprints with their owners. Kept in %s.",
            shown,
            self.path,
        )
        self.known = {**self.new, **before}
        self.new = {}


def read_keys(path: Path) -> dict[str, str]:
    """Public keys by name, from a file or all files *.pub of a folder. Lines are `TYPE KEY NAME`, as OpenSSH writes."""
    keys: dict[str, str] = {}
    for file in sorted(path.glob(PUBLIC_KEYS)) if path.is_dir() else [path]:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            raise _unreadable(path, f"{file.name} cannot be read.") from None
        for number, line in enumerate(lines, 1):
            if line.strip() and not line.lstrip().startswith("#"):
                name, key = _read_line(line, path, f"{file.name}, line {number}")
                if keys.setdefault(name, key) != key or list(keys.values()).count(key) > 1:
                    raise _unreadable(path, f"{file.name}, line {number}: this name or this key occurs twice.")
    return keys


def _read_line(line: str, path: Path, where: str) -> tuple[str, str]:
    words = line.split(maxsplit=2)
    try:
        public = load_ssh_public_key(" ".join(words[:2]).encode())
    except (ValueError, UnsupportedAlgorithm):
        raise _unreadable(path, f"{where}: this is not a public key.") from None
    if not isinstance(public, PublicKey):
        raise _unreadable(path, f"{where}: nodes have keys of type ecdsa-sha2-nistp384.")
    if len(words) < 3:
        raise _unreadable(path, f"{where}: the node's name is missing after its key.")
    return words[2].strip(), _written(public)


def _unreadable(path: Path, reason: str) -> Refusal:
    cure = "the node cannot use its list of other nodes' keys; its log says why"
    return Refusal("PeersError", cure, f"{path}: {reason} Lines must be: ecdsa-sha2-nistp384 KEY NAME")


@dataclass(frozen=True)
class NodeIdentity:
    """A node's own key, and the keys of the others, `privacy.roster.Signer`."""

    key: ec.EllipticCurvePrivateKey
    peers: PeerKeys

    @classmethod
    def read(cls, key_path: Path | None, peers_path: Path | None, state_dir: Path) -> NodeIdentity:
        if key_path is None:
            cure = "secure aggregation needs the node's private key; set `key-path` in the node-config"
            raise Refusal("NodeConfigError", cure)
        try:
            key = load_ssh_private_key(key_path.read_bytes(), password=None)
        except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
            reason = getattr(error, "strerror", None) or "it is not a private key without a password, as OpenSSH writes"
            cure = "the node cannot read its private key (`key-path`); its log says why"
            raise Refusal("NodeConfigError", cure, f"{key_path}: {reason}.") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            cure = "the node's private key (`key-path`) must be of type ecdsa-sha2-nistp384"
            raise Refusal("NodeConfigError", cure)
        return cls(key, PeerKeys.of(peers_path, state_dir))

    def sign(self, data: bytes) -> bytes:
        return sign(self.key, data)

    def verify(self, party: str, data: bytes, signature: bytes) -> bool:
        """Whether a node signed this; a Refusal if somebody else did."""
        signer = signer_of(data, signature)
        if signer is None:
            return False
        self.peers.check(party, signer)
        return True
