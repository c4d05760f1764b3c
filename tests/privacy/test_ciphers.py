"""The cryptographic parts do what their names say."""

from __future__ import annotations

import re
import runpy
import sys

import numpy as np
import pytest

from fedhlcr._support.extras import install_command
from fedhlcr.exceptions import MissingDependencyError, SecureSumError
from fedhlcr.privacy import ciphers
from fedhlcr.privacy.ciphers import KeyPair, derive, is_valid_key, keystream, seal, unseal


def test_keystream_is_that_of_chacha20():
    """RFC 8439, appendix A.1, test vector 1: key, nonce and counter are zero."""
    expected = bytes.fromhex("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7")
    np.testing.assert_array_equal(keystream(bytes(32), 4), np.frombuffer(expected, "<u8"))


def test_longer_keystream_begins_as_the_shorter_one():
    key = derive(b"secret", b"purpose", b"context")
    np.testing.assert_array_equal(keystream(key, 1000)[:17], keystream(key, 17))


def test_two_parties_agree():
    one, other, third = KeyPair.generate(), KeyPair.generate(), KeyPair.generate()
    assert one.agree(other.public) == other.agree(one.public)
    assert one.agree(other.public) != one.agree(third.public)
    assert KeyPair.from_secret(one.secret).public == one.public


@pytest.mark.parametrize("public", [bytes(32), b"\1" + bytes(31)])
def test_key_of_low_order_is_refused(public):
    assert not is_valid_key(public)
    with pytest.raises(SecureSumError, match="low order"):
        KeyPair.generate().agree(public)


def test_fresh_key_is_valid():
    assert is_valid_key(KeyPair.generate().public)


def test_derived_keys_depend_on_secret_purpose_and_context():
    keys = {derive(s, p, c) for s in (b"a", b"b") for p in (b"mask", b"seal") for c in (b"round 1", b"round 2")}
    assert len(keys) == 8
    assert len(derive(b"a", b"mask", b"round 1", 64)) == 64


def test_sealed_data_opens_only_with_its_key_and_context():
    key, other = derive(b"a", b"seal", b""), derive(b"b", b"seal", b"")
    sealed = seal(key, b"a share", b"round 1")
    assert unseal(key, sealed, b"round 1") == b"a share"
    assert unseal(other, sealed, b"round 1") is None
    assert unseal(key, sealed, b"round 2") is None
    assert unseal(key, bytes([sealed[0] ^ 1]) + sealed[1:], b"round 1") is None
    assert unseal(key, b"", b"round 1") is None


def test_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(MissingDependencyError, match=re.escape(install_command("privacy"))):
        runpy.run_path(ciphers.__file__)
