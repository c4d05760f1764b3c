"""Certificates and keys for a deployment."""

import ssl
import stat
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("flwr", reason="the flower extra is not installed")

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fedhlcr.engines.flower.certificates import Certificates


def read(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_server_certificate_is_signed_names_its_hosts_and_expires(tmp_path):
    keys = Certificates(tmp_path / "keys")
    keys.make(["server.example.org", "192.0.2.7"], ["north"])
    authority, server = read(keys.ca), read(keys.server)
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["server.example.org", "localhost"]
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["192.0.2.7", "127.0.0.1"]
    assert server.not_valid_after_utc - datetime.now(UTC) < timedelta(days=398)
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    ssl.create_default_context(cafile=str(keys.ca))


def test_node_keys_are_in_flowers_format_and_private(tmp_path):
    keys = Certificates(tmp_path / "keys")
    keys.make(nodes=["north", "south"])
    private = load_ssh_private_key(keys.node_key("north").read_bytes(), password=None)
    public = load_ssh_public_key(keys.node_public_key("north").read_bytes())
    assert private.curve.name == "secp384r1"
    assert private.public_key() == public
    assert public != load_ssh_public_key(keys.node_public_key("south").read_bytes())
    for path in (keys.ca_key, keys.server_key, keys.node_key("north")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(keys.folder.stat().st_mode) == 0o700


def test_existing_files_stay_unless_renewed(tmp_path):
    keys = Certificates(tmp_path / "keys")
    keys.make(["one.example.org"], ["north", "south"])
    before = {path: path.read_bytes() for path in keys.folder.rglob("*") if path.is_file()}
    assert keys.make(["one.example.org"], ["north"]) == []
    with pytest.raises(ValueError, match=r"not for two.example.org; add --renew"):
        keys.make(["two.example.org"])
    with pytest.raises(ValueError, match="pass --host for the server, or --node"):
        keys.make(renew=True)
    assert keys.make(nodes=["east"]) == [keys.node_key("east"), keys.node_public_key("east")]
    assert keys.make(nodes=["north"], renew=True) == [keys.node_key("north"), keys.node_public_key("north")]
    assert keys.make(["two.example.org"], renew=True) == [keys.server, keys.server_key]
    changed = {path.name for path, data in before.items() if path.read_bytes() != data}
    assert changed == {"north.key", "north.pub", "server.crt", "server.key"}
    read(keys.server).verify_directly_issued_by(read(keys.ca))


def test_authority_key_may_be_absent_but_is_never_replaced(tmp_path):
    keys = Certificates(tmp_path / "keys")
    keys.make(["one.example.org"], ["north"])
    held = keys.ca_key.read_bytes()
    keys.ca_key.unlink()
    assert len(keys.make(nodes=["north"], renew=True)) == 2
    assert len(keys.make(nodes=["east"])) == 2
    with pytest.raises(ValueError, match="is needed to sign"):
        keys.make(["one.example.org"], renew=True)
    keys.ca_key.write_bytes(held)
    keys.server_key.unlink()
    assert keys.make() == [keys.server, keys.server_key]
    keys.ca.unlink()
    with pytest.raises(ValueError, match=r"holds ca.key, server.crt, nodes but no ca.crt"):
        keys.make()
    assert keys.ca_key.read_bytes() == held
    keys.ca_key.unlink()
    with pytest.raises(ValueError, match=r"holds server.crt, nodes but no ca.crt"):
        keys.make(nodes=["west"])


def test_key_of_another_authority_signs_nothing(tmp_path):
    keys, others = Certificates(tmp_path / "keys"), Certificates(tmp_path / "others")
    keys.make(["one.example.org"])
    others.make()
    before = keys.server.read_bytes()
    keys.ca_key.write_bytes(others.ca_key.read_bytes())
    with pytest.raises(ValueError, match=r"is not the key of ca.crt"):
        keys.make(["one.example.org"], renew=True)
    assert keys.server.read_bytes() == before


@pytest.mark.parametrize("host", ["https://server", "server:9443", "a b", "", "sérver.org", "*" * 300, "-x", "x" * 64])
def test_invalid_host_is_refused(host, tmp_path):
    with pytest.raises(ValueError, match="`--host` must be a name such as"):
        Certificates(tmp_path / "keys").make([host])
    assert not (tmp_path / "keys").exists()


def test_addresses_are_valid_hosts(tmp_path):
    keys = Certificates(tmp_path / "keys")
    keys.make(["192.0.2.7", "2001:0DB8::1", "server"])
    assert keys.make(["2001:0DB8::1"]) == []
    assert keys.hosts() == {"192.0.2.7", "2001:db8::1", "server", "localhost", "127.0.0.1"}
