"""Certificates and keys of a secure deployment: a private CA, a server certificate, and a key pair for every node.

DIR/ca.crt           copy it to every machine: nodes and users verify the server with it
DIR/ca.key           keep it where it was created: it can sign certificates for any server
DIR/server.crt, .key copy them to the server
DIR/nodes/NAME.key   copy it to that node only; NAME.pub is registered at the SuperLink
"""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedhlcr.exceptions import ArgumentError, CertificateError
from fedhlcr.storage.atomic import replace_file

CA_YEARS = 10
SERVER_DAYS = 397
LOOPBACK = ("localhost", "127.0.0.1")
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
HOST_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*")
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Certificates:
    """A folder of certificates and keys."""

    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def server(self) -> Path:
        return self.folder / "server.crt"

    @property
    def server_key(self) -> Path:
        return self.folder / "server.key"

    @property
    def ca_key(self) -> Path:
        return self.folder / "ca.key"

    @property
    def nodes(self) -> Path:
        return self.folder / "nodes"

    def node_key(self, name: str) -> Path:
        return self.nodes / f"{name}.key"

    def node_public_key(self, name: str) -> Path:
        return self.nodes / f"{name}.pub"

    def make(self, hosts: Sequence[str] = (), nodes: Sequence[str] = (), *, renew: bool = False) -> list[Path]:
        """Create the files that do not exist yet, and return their paths.

        The CA is never replaced, because every machine would need the new one.

        Parameters
        ----------
        hosts : names and addresses by which the server is reached, besides those of loopback
        nodes : names of nodes
        renew : replace the server's certificate if hosts are given, and the keys of the given nodes
        """
        _check_names(hosts, nodes)
        if renew and not hosts and not nodes:
            raise ArgumentError("`--renew` needs to know what to replace: pass --host for the server, or --node.")
        made = []
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self.ca.exists():
            if left := [path.name for path in (self.ca_key, self.server, self.nodes) if path.exists()]:
                raise CertificateError(
                    f"{self.folder} holds {', '.join(left)} but no ca.crt: restore it, or start in another folder."
                )
            self._make_ca()
            made += [self.ca, self.ca_key]
        if not self.server.exists() or not self.server_key.exists() or (renew and hosts):
            # SuperLink's own processes connect to it by loopback
            self._make_server([*dict.fromkeys((*hosts, *LOOPBACK))])
            made += [self.server, self.server_key]
        elif missing := {_written(host) for host in hosts} - self.hosts():
            raise ArgumentError(
                f"the server's certificate is not for {', '.join(sorted(missing))}; add --renew to create a new one, "
                "and pass all hosts of the server."
            )
        self.nodes.mkdir(mode=0o700, exist_ok=True)
        for name in nodes:
            if not self.node_key(name).exists() or renew:
                self._make_node(name)
                made += [self.node_key(name), self.node_public_key(name)]
        return made

    def hosts(self) -> set[str]:
        """Names and addresses in the server's certificate."""
        certificate = x509.load_pem_x509_certificate(self.server.read_bytes())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return {str(name.value) for name in names}

    def _make_ca(self) -> None:
        key = ec.generate_private_key(ec.SECP384R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedhlcr private CA")])
        public = key.public_key()
        usage = x509.KeyUsage(
            key_cert_sign=True,
            crl_sign=True,
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = _builder(name, name, public, datetime.timedelta(days=365 * CA_YEARS))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(usage, critical=True)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        _write_key(self.ca_key, key, serialization.PrivateFormat.PKCS8)
        replace_file(self.ca, builder.sign(key, hashes.SHA384()).public_bytes(serialization.Encoding.PEM))

    def _make_server(self, hosts: Sequence[str]) -> None:
        if not self.ca_key.exists():
            raise CertificateError(
                f"{self.ca_key} is needed to sign a certificate: restore it until the certificate is signed."
            )
        authority = x509.load_pem_x509_certificate(self.ca.read_bytes())
        authority_key = serialization.load_pem_private_key(self.ca_key.read_bytes(), password=None)
        if not isinstance(authority_key, ec.EllipticCurvePrivateKey):
            raise CertificateError(f"{self.ca_key} holds a key of another type than expected; start in another folder.")
        if authority_key.public_key() != authority.public_key():
            raise CertificateError(f"{self.ca_key} is not the key of {self.ca.name}; restore the right one.")
        key = ec.generate_private_key(ec.SECP384R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])])
        builder = _builder(name, authority.subject, key.public_key(), datetime.timedelta(days=SERVER_DAYS))
        # clients look for the server's name here and nowhere else
        builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(h) for h in hosts]), critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
        )
        _write_key(self.server_key, key, serialization.PrivateFormat.PKCS8)
        replace_file(self.server, builder.sign(authority_key, hashes.SHA384()).public_bytes(serialization.Encoding.PEM))

    def _make_node(self, name: str) -> None:
        key = ec.generate_private_key(ec.SECP384R1())
        _write_key(self.node_key(name), key, serialization.PrivateFormat.OpenSSH)
        public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        replace_file(self.node_public_key(name), public + f" {name}\n".encode())


def _check_names(hosts: Sequence[str], nodes: Sequence[str]) -> None:
    for name in nodes:
        if not NODE_NAME.fullmatch(name):
            raise ArgumentError(
                f"`--node` must consist of letters, digits, dots, dashes and underscores, but is {name!r}."
            )
    for host in hosts:
        if not HOST_NAME.fullmatch(host) and not _is_address(host):
            raise ArgumentError(
                f"`--host` must be a name such as server.example.org or an address such as 192.0.2.7, without a port "
                f"or https://, but is {host!r}."
            )


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, life: datetime.timedelta
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        # other machines' clocks may be behind
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + life)
    )


def _general_name(host: str) -> x509.GeneralName:
    return x509.IPAddress(ipaddress.ip_address(host)) if _is_address(host) else x509.DNSName(host)


def _written(host: str) -> str:
    """The host as a certificate writes it: an address can be written in several ways."""
    return str(_general_name(host).value)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> None:
    """Write a key to a file that nobody else can read at any moment."""
    data = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    replace_file(path, data, private=True)
