"""The folder with the certificates of a cluster, in the layout of kubeadm.

    ca.crt, ca.key                  the authority of the API servers and their clients
    apiserver.crt, .key             the server certificate of every API server, with its names and addresses
    admin.crt, .key                 the administrator
    <component>.crt, .key           each client
    etcd/ca.crt, .key               the authority of the etcd members and of the API servers as their clients
    etcd/server.crt, .key           every member, for its clients
    etcd/peer.crt, .key             every member, for the other members
    apiserver-etcd-client.crt, .key every API server, as a client of etcd
    apiserver-kubelet-client.crt, .key  every API server, as a client of kubelets
    sa.key, sa.pub                  the key that signs tokens of service accounts, and all keys that verify them

Only the owner can read keys. A process that creates certificates holds the file `lock`. If it is killed, the next process
replaces incomplete certificates.

Source: https://kubernetes.io/docs/setup/best-practices/certificates/
"""

import ipaddress
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from pinnace.pki.authority import LIFETIME, Authority, CertificatePair, Subject, generate_key, public_key_of
from pinnace.runtime import files
from pinnace.runtime.tls import TlsFiles

ACCOUNT_KEY = "sa"
"""The key of service account tokens, with kubeadm's name."""
APISERVER, ADMIN, KUBELET_CLIENT = "apiserver", "admin", "apiserver-kubelet-client"
ETCD_SERVER, ETCD_PEER, ETCD_CLIENT = "etcd/server", "etcd/peer", "apiserver-etcd-client"
RENEW_BEFORE = timedelta(days=30)
"""Certificates that expire within this time are renewed."""


@dataclass(frozen=True, slots=True)
class AuthoritySpec:
    """An authority in the directory. `name`: its path without the extension; `subject`: its name."""

    name: str
    subject: str


CLUSTER_CA, ETCD_CA = AuthoritySpec("ca", "pinnace-ca"), AuthoritySpec("etcd/ca", "etcd-ca")


@dataclass(frozen=True, slots=True)
class CertificateSpec:
    """A certificate to create. `name`: its path without the extension."""

    name: str
    subject: Subject
    hosts: tuple[str, ...] = ()


class PkiFolder:
    """An authority and its certificates."""

    def __init__(self, path: Path, ca: AuthoritySpec = CLUSTER_CA) -> None:
        self.path = path
        self._ca = ca

    def files(self, name: str) -> TlsFiles:
        return TlsFiles(self._file_path(self._ca.name, "crt"), self._file_path(name, "crt"), self._file_path(name, "key"))

    def provide(self, wanted: Iterable[CertificateSpec], now: datetime) -> list[str]:
        """Create certificates that are missing, expiring or have another identity, and return their names. The authority and
        the hosts of existing certificates are kept. Raises OSError, and ValueError for files that pinnace has not created.
        """
        _create_pair(self.path)
        with files.hold_file_lock(self.path / "lock"):
            authority, made = self._ensure_authority(now), []
            for certificate_spec in wanted:
                certificate = self._find_certificate(certificate_spec, authority)
                hosts = list(
                    dict.fromkeys(
                        (
                            *map(_canonical_host, certificate_spec.hosts),
                            *(_certificate_hosts(certificate) if certificate else ()),
                        )
                    )
                )
                if not certificate or not self._is_certificate_sufficient(certificate, hosts, certificate_spec, now):
                    self._write(certificate_spec.name, authority.issue(certificate_spec.subject, now, hosts=hosts))
                    made.append(certificate_spec.name)
            return made

    def reissue(self, names: Iterable[str], now: datetime, lifetime: timedelta = LIFETIME) -> None:
        """Replace certificates and keys by new ones with the same subjects and hosts. Raises OSError, and ValueError for files
        that pinnace has not created.
        """
        with files.hold_file_lock(self.path / "lock"):
            authority = self._ensure_authority(now)
            for name in names:
                certificate = x509.load_pem_x509_certificate(self._file_path(name, "crt").read_bytes())
                pair = authority.issue(Subject.of(certificate), now, hosts=_certificate_hosts(certificate), lifetime=lifetime)
                self._write(name, pair)

    def provide_signing_key(self) -> list[str]:
        """Create the key that signs tokens, if it is missing, and return its name if it was created. Raises OSError."""
        private, public = self.signing_key_files()
        _create_pair(self.path)
        with files.hold_file_lock(self.path / "lock"):
            if private.exists() and public.exists():
                return []
            key = private.read_bytes() if private.exists() else generate_key()
            write_atomically(private, key, mode=0o600)
            write_atomically(public, public_key_of(key), mode=0o644)
            return [ACCOUNT_KEY]

    def rotate_signing_key(self, wait: Callable[[], None]) -> None:
        """Replace the key that signs tokens. Tokens of the previous key remain valid, and those of earlier keys do not. `wait`
        returns when all API servers have read the new public key. Raises OSError."""
        private, public = self.signing_key_files()
        with files.hold_file_lock(self.path / "lock"):
            previous, key = private.read_bytes(), generate_key()
            write_atomically(public, public_key_of(key) + public_key_of(previous), mode=0o644)
            wait()
            write_atomically(private, key, mode=0o600)

    def authority(self) -> Authority:
        """Return the authority. Raises OSError if one of its files is missing, and ValueError."""
        return Authority(CertificatePair(*(self._file_path(self._ca.name, end).read_bytes() for end in ("crt", "key"))))

    def signing_key_files(self) -> tuple[Path, Path]:
        """Return the file of the private key, and the file of all public keys."""
        return self._file_path(ACCOUNT_KEY, "key"), self._file_path(ACCOUNT_KEY, "pub")

    def _ensure_authority(self, now: datetime) -> Authority:
        cert, key = self._file_path(self._ca.name, "crt"), self._file_path(self._ca.name, "key")
        if cert.exists():  # the creation of this authority was interrupted
            try:
                return Authority(CertificatePair(cert.read_bytes(), key.read_bytes()))
            except ValueError as error:
                raise ValueError(f"{cert} and {key} are not a certificate and its key in PEM: {error}") from None
        authority = Authority.create(self._ca.subject, now)
        self._write(self._ca.name, authority.pair)
        return authority

    def _find_certificate(self, wanted: CertificateSpec, authority: Authority) -> x509.Certificate | None:
        """The existing authority's certificate with this subject."""
        cert = self._file_path(wanted.name, "crt")
        if not cert.exists():
            return None
        try:
            certificate = x509.load_pem_x509_certificate(cert.read_bytes())
        except ValueError as error:
            raise ValueError(f"{cert} is no certificate in PEM: {error}") from None
        return certificate if authority.signed(certificate) and Subject.of(certificate) == wanted.subject else None

    def _is_certificate_sufficient(
        self, found: x509.Certificate, hosts: Sequence[str], wanted: CertificateSpec, now: datetime
    ) -> bool:
        key = self._file_path(wanted.name, "key")
        return (
            key.exists()
            and _has_identity(key.read_bytes(), found)
            and found.not_valid_after_utc - RENEW_BEFORE > now
            and set(_certificate_hosts(found)) == set(hosts)
        )

    def _write(self, name: str, pair: CertificatePair) -> None:
        """Write the key first, so that readers of the new certificate find its key."""
        _create_pair(self._file_path(name, "crt").parent)
        write_atomically(self._file_path(name, "key"), pair.key, mode=0o600)
        write_atomically(self._file_path(name, "crt"), pair.certificate, mode=0o644)

    def _file_path(self, name: str, ending: str) -> Path:
        return self.path / f"{name}.{ending}"


def _create_pair(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)


def write_atomically(path: Path, data: bytes, *, mode: int) -> None:
    """Write a file atomically."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(descriptor, mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _has_identity(key: bytes, certificate: x509.Certificate) -> bool:
    try:
        return load_pem_private_key(key, password=None).public_key() == certificate.public_key()
    except (ValueError, TypeError):  # not a key, or protected by a password
        return False


def _canonical_host(host: str) -> str:
    """The canonical form, as in certificates; IPv6 addresses have several forms."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host


def _certificate_hosts(certificate: x509.Certificate) -> Sequence[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]
