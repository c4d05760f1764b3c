"""The cryptographic parts of a secure sum: X25519, HKDF-SHA256, the keystream of ChaCha20, and ChaCha20-Poly1305."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.extras import missing_extra
from fedhlcr.exceptions import SecureSumError

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError as missing:
    raise missing_extra("secure sums need cryptography", "privacy") from missing

KEY_BYTES = 32
TAG_BYTES = 16
# Every key seals one message and makes one stream, so that nonces can be constant.
SEAL_NONCE = bytes(12)
STREAM_NONCE = bytes(16)


class KeyPair:
    """An X25519 key and its public half."""

    def __init__(self, private: X25519PrivateKey) -> None:
        self._private = private
        self.public = private.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> KeyPair:
        return cls(X25519PrivateKey.generate())

    @classmethod
    def from_secret(cls, secret: bytes) -> KeyPair:
        return cls(X25519PrivateKey.from_private_bytes(secret))

    @property
    def secret(self) -> bytes:
        return self._private.private_bytes_raw()

    def agree(self, public: bytes) -> bytes:
        """Return the secret that this key shares with that of a public key."""
        try:
            return self._private.exchange(_public_key(public))
        except ValueError:
            raise SecureSumError("a public key of the round is not valid (a point of low order).") from None


@lru_cache(maxsize=4096)
def _public_key(public: bytes) -> X25519PublicKey:
    return X25519PublicKey.from_public_bytes(public)


def is_valid_key(public: bytes) -> bool:
    """Whether keys can be agreed with this public key."""
    try:
        KeyPair.generate().agree(public)
    except SecureSumError:
        return False
    return True


def derive(secret: bytes, purpose: bytes, context: bytes, n_bytes: int = KEY_BYTES) -> bytes:
    """Return a key for one purpose in one context (HKDF-SHA256)."""
    return HKDF(hashes.SHA256(), n_bytes, None, b"fedhlcr secure sum|" + purpose + b"|" + context).derive(secret)


def keystream(key: bytes, n_values: int) -> NDArray[np.uint64]:
    """Return pseudorandom integers modulo 2⁶⁴: the keystream of ChaCha20."""
    stream = Cipher(algorithms.ChaCha20(key, STREAM_NONCE), None).encryptor().update(bytes(8 * n_values))
    return np.frombuffer(stream, dtype="<u8")


def seal(key: bytes, data: bytes, context: bytes) -> bytes:
    """Encrypt and authenticate data, once per key; the context is authenticated with it."""
    return ChaCha20Poly1305(key).encrypt(SEAL_NONCE, data, context)


def unseal(key: bytes, sealed: bytes, context: bytes) -> bytes | None:
    """Return the data, or None if the bytes were not sealed with this key in this context."""
    try:
        return ChaCha20Poly1305(key).decrypt(SEAL_NONCE, sealed, context)
    except InvalidTag:
        return None
