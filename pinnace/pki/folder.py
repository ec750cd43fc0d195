"""The folder in which a cluster keeps its certificates, laid out as kubeadm does.

    ca.crt, ca.key                  the cluster's authority: of the API servers, and of whoever talks to them
    apiserver.crt, .key             of every API server, with the names and addresses at which they are found
    admin.crt, .key                 of who may do everything
    <component>.crt, .key           of each client

Keys are readable by the owner only. Source: https://kubernetes.io/docs/setup/best-practices/certificates/
"""

import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509

from pinnace.pki.authority import Authority, Pair, Subject
from pinnace.runtime.tls import TlsFiles

CA, APISERVER, ADMIN = "ca", "apiserver", "admin"
_AUTHORITY = "pinnace-ca"
RENEW_BEFORE = timedelta(days=30)
"""A certificate that ends sooner is made anew."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A certificate that shall be in the folder. `name`: its path there, without the ending."""

    name: str
    subject: Subject
    hosts: tuple[str, ...] = ()


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def files(self, name: str) -> TlsFiles:
        return TlsFiles(self._path(CA, "crt"), self._path(name, "crt"), self._path(name, "key"))

    def provide(self, wanted: Iterable[Wanted], now: datetime) -> list[str]:
        """Makes what is missing, ends soon, or is about others than wanted; the names of what was made. The authority stays.
        Raises OSError and, when what is there is none of ours, ValueError."""
        authority, made = self._authority(now), []
        for each in wanted:
            if not self._has(each, authority, now):
                self._write(each.name, authority.issue(each.subject, now, hosts=each.hosts))
                made.append(each.name)
        return made

    def _authority(self, now: datetime) -> Authority:
        cert, key = self._path(CA, "crt"), self._path(CA, "key")
        if cert.exists() or key.exists():
            return Authority(Pair(cert.read_bytes(), key.read_bytes()))
        authority = Authority.create(_AUTHORITY, now)
        self._write(CA, authority.pair)
        return authority

    def _has(self, wanted: Wanted, authority: Authority, now: datetime) -> bool:
        """Is a certificate there that will do?"""
        cert, key = self._path(wanted.name, "crt"), self._path(wanted.name, "key")
        if not cert.exists() or not key.exists():
            return False
        certificate = x509.load_pem_x509_certificate(cert.read_bytes())
        return (
            authority.signed(certificate)
            and certificate.not_valid_after_utc - RENEW_BEFORE > now
            and Subject.of(certificate) == wanted.subject
            and set(_hosts(certificate)) >= set(wanted.hosts)
        )

    def _write(self, name: str, pair: Pair) -> None:
        """The key first: who sees the new certificate finds its key."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace(self._path(name, "key"), pair.key, mode=0o600)
        replace(self._path(name, "crt"), pair.certificate, mode=0o644)

    def _path(self, name: str, ending: str) -> Path:
        return self.path / f"{name}.{ending}"


def replace(path: Path, data: bytes, *, mode: int) -> None:
    """Writes a file whole: a reader sees the old one or the new one."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(descriptor, mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _hosts(certificate: x509.Certificate) -> Sequence[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]
