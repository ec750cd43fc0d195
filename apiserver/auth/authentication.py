"""Authentication of calls by client certificate or bearer token.

TLS verifies that the client CA signed the certificate. The expiry of a certificate is checked for each call and while a stream
is open. The user of a certificate is parsed once and cached.

Tokens are read from a file with the format of kube-apiserver's --token-auth-file:

    token,user,uid[,"group1,group2"]

The file is read again after each change. An invalid line is logged by its number, never by its content, and the other lines
remain valid. If the file cannot be read, the previous tokens remain valid.

Sources: https://kubernetes.io/docs/reference/access-authn-authz/authentication/,
https://kubernetes.io/docs/reference/access-authn-authz/authentication/#static-token-file
"""

import csv
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from cryptography import x509

from pinnace.api.names import NodeNames
from pinnace.api.status import Code, Refusal
from pinnace.api.users import AUTHENTICATED
from pinnace.apiserver.errors import Rejected
from pinnace.pki import Subject
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock

MASTERS = "system:masters"
"""The group whose members have all permissions, independently of RBAC."""
NODES_GROUP = "system:nodes"
NODE_PREFIX = "system:node:"


_NONE = NodeNames()

MAX_REMEMBERED = 10_000
"""Maximum number of cached certificates, which exceeds the number of clients of a large cluster. The cache uses at most 30
MB."""
_BEARER = "bearer"

log = logging.getLogger(__name__)

CHECK_INTERVAL = 1.0
"""Minimum seconds between two checks of the file for changes."""


@dataclass(frozen=True)
class User:
    """An authenticated user. `nodes` contains the node names in the certificate of a fleet. `impersonator` is the name of the
    caller that impersonates the user; "" without impersonation."""

    name: str
    groups: tuple[str, ...] = ()
    nodes: NodeNames = _NONE
    impersonator: str = field(default="", compare=False)
    uid: str = field(default="", compare=False)
    """The UID of a service account."""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = field(default=(), compare=False)
    """Facts about the credential, such as the pod of a token."""

    @property
    def fleet(self) -> str | None:
        """The name of the user's kubelet fleet; None if the user is not a fleet."""
        return self.name.removeprefix(NODE_PREFIX) if NODES_GROUP in self.groups and self.name.startswith(NODE_PREFIX) else None


SERVER = User("system:apiserver", (MASTERS,))
"""The user of the API server's own writes."""
UNSECURED = User("system:unsecured", (MASTERS, AUTHENTICATED))
"""The user of all calls to a server with --insecure."""


class Credential(Hashable, Protocol):
    """A certificate or token of a caller. Equal certificates or tokens are equal credentials."""

    def user(self) -> User:
        """Return the user. Raises Rejected (UNAUTHENTICATED), for example after the credential has expired."""
        ...


class TokenAuthenticator(Protocol):
    def user(self, token: str) -> User | None:
        """Return the user of a token; None if the token is unknown."""
        ...


class NoTokenAuthenticator:
    def user(self, token: str) -> User | None:
        return None


class RequestAuthenticator:
    """Authenticates certificates and tokens. `now` returns Unix seconds. All methods raise Rejected (UNAUTHENTICATED)."""

    def __init__(self, now: Callable[[], float], tokens: TokenAuthenticator | None = None) -> None:
        self._unix_time = now
        self.tokens = tokens or NoTokenAuthenticator()
        """The bearer tokens."""
        self._verified: OrderedDict[bytes, _VerifiedCertificate] = OrderedDict()

    def certificate(self, pem: bytes) -> User:
        """Return the user of a certificate that TLS has verified."""
        known = self._verified.get(pem)
        if known is None:
            known = self._verified[pem] = _read_certificate(pem)
            if len(self._verified) > MAX_REMEMBERED:
                self._verified.popitem(last=False)
        if self._unix_time() >= known.ends:
            raise _unauthenticated_error(
                "CertificateExpired", "the client certificate has expired: renew it and open a new connection"
            )
        return known.user

    def authorization(self, header: str | None) -> User:
        """Return the user of the bearer token in the metadata entry "authorization"."""
        if header is None:
            raise _unauthenticated_error("Anonymous", "Unauthorized: a client certificate or a bearer token is required")
        scheme, _, token = header.partition(" ")
        user = self.tokens.user(token.strip()) if scheme.lower() == _BEARER else None
        if user is None:
            raise _unauthenticated_error("BadToken", "Unauthorized: the bearer token is unknown")
        return user


class CertificateCredential(NamedTuple):
    authenticator: RequestAuthenticator
    pem: bytes

    def user(self) -> User:
        return self.authenticator.certificate(self.pem)


class BearerCredential(NamedTuple):
    authenticator: RequestAuthenticator
    header: str | None

    def user(self) -> User:
        return self.authenticator.authorization(self.header)


class UnsecuredCredential(NamedTuple):
    """The credential of all callers of a server with --insecure."""

    def user(self) -> User:
        return UNSECURED


class _VerifiedCertificate(NamedTuple):
    user: User
    ends: float


def _read_certificate(pem: bytes) -> _VerifiedCertificate:
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        subject = Subject.of(certificate)
        user = User(subject.user, (*subject.groups, AUTHENTICATED), NodeNames.parse(subject.nodes))
    except ValueError as error:
        raise _unauthenticated_error("BadCertificate", f"the subject of the client certificate is invalid: {error}") from None
    return _VerifiedCertificate(user, certificate.not_valid_after_utc.timestamp())


def _unauthenticated_error(reason: str, message: str) -> Rejected:
    return Rejected(Refusal(Code.UNAUTHENTICATED, reason, message))


class TokenFile:
    """The tokens of a file, which is read again after each change."""

    def __init__(self, path: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        """Raises OSError if the file cannot be read."""
        self._path = path
        self._clock = clock
        self._checked_at = clock.monotonic()
        self._stamp = self._file_version()
        self._users = _read_tokens(path)

    def user(self, token: str) -> User | None:
        """Return the user of a token; None if the token is unknown."""
        if (now := self._clock.monotonic()) - self._checked_at >= CHECK_INTERVAL:
            self._checked_at = now
            self._refresh()
        return self._users.get(_token_digest(token))

    def _refresh(self) -> None:
        try:
            stamp = self._file_version()
            if stamp != self._stamp:
                self._stamp, self._users = stamp, _read_tokens(self._path)
                log.info("reloaded %s: %d tokens", self._path, len(self._users))
        except OSError as error:
            log.error("cannot read %s, keeping the previous tokens: %s", self._path, error)

    def _file_version(self) -> tuple[int, int]:
        file_stat = self._path.stat()
        return file_stat.st_mtime_ns, file_stat.st_ino


def _read_tokens(path: Path) -> Mapping[bytes, User]:
    """Return the users by the SHA-256 digest of their token. The digest makes the lookup time independent of similar tokens."""
    users: dict[bytes, User] = {}
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            row = _parse_csv_line(line)
            if len(row) not in (3, 4) or not row[0] or not row[1]:
                log.error('%s, line %d: expected token,user,uid or token,user,uid,"group1,group2"', path, number)
                continue
            groups = tuple(group.strip() for group in row[3].split(",") if group.strip()) if len(row) == 4 else ()
            if _token_digest(row[0]) in users:
                log.error("%s, line %d: duplicate token; the first line with the token is used", path, number)
                continue
            users[_token_digest(row[0])] = User(row[1], (*groups, AUTHENTICATED))
    return users


def _parse_csv_line(line: str) -> list[str]:
    """Return the fields of one line; [] if its quotes are unbalanced. Each line is parsed separately, so such a line does not
    consume the next one."""
    try:
        return next(csv.reader([line], skipinitialspace=True, strict=True), [])
    except csv.Error:
        return []


def _token_digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
