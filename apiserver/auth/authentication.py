"""Authentication: the user of a call, from its client certificate or its bearer token.

TLS has checked that a certificate is signed by the cluster's authority. Its expiry is checked with each call, and while a
stream is open. The user of a certificate is parsed once and remembered.

Tokens come from a file with one token a line, as for kube-apiserver's --token-auth-file:

    token,user,uid[,"group1,group2"]

The file is read again after each change. An invalid line is logged by its number, never by its content, and the other lines
stay valid. If the file cannot be read, the tokens stay as they are.

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

from apiserver.errors import Rejected
from pinnace.api.names import NodeNames
from pinnace.api.status import Code, Refusal
from pinnace.pki import Subject
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock

MASTERS = "system:masters"
"""Members may do everything, whatever the roles say."""
NODES_GROUP = "system:nodes"
AUTHENTICATED = "system:authenticated"
"""Everybody whom we know."""
NODE_PREFIX = "system:node:"


_NONE = NodeNames()


@dataclass(frozen=True)
class User:
    """`nodes`: the names that the certificate of a fleet gives to it. `impersonator`: the name of the caller that acts as this
    user; empty when that is the user."""

    name: str
    groups: tuple[str, ...] = ()
    nodes: NodeNames = _NONE
    impersonator: str = field(default="", compare=False)

    @property
    def fleet(self) -> str | None:
        """The kubelet fleet that this is; None: it is none."""
        return self.name.removeprefix(NODE_PREFIX) if NODES_GROUP in self.groups and self.name.startswith(NODE_PREFIX) else None


SERVER = User("system:apiserver", (MASTERS,))
"""The API server itself, in what it does of its own accord."""
UNSECURED = User("system:unsecured", (MASTERS, AUTHENTICATED))
"""The user of every call to a server that runs with --insecure: it does not distinguish callers."""


MAX_REMEMBERED = 10_000
"""Certificates whose subject is remembered: more than a cluster has kubelets and people, for each that is forgotten is parsed
again with its next call. Some 30 MB at most."""
_BEARER = "bearer"


class Credential(Hashable, Protocol):
    """What a caller has shown; compared by that."""

    def user(self) -> User:
        """Whose it is now. Raises Rejected (UNAUTHENTICATED)."""
        ...


class Tokens(Protocol):
    def user(self, token: str) -> User | None:
        """Whose token it is."""
        ...


class NoTokens:
    def user(self, token: str) -> User | None:
        return None


class Authenticator:
    """`now` gives Unix seconds. All methods raise Rejected (UNAUTHENTICATED)."""

    def __init__(self, now: Callable[[], float], tokens: Tokens | None = None) -> None:
        self._now = now
        self._tokens = tokens
        self._known: OrderedDict[bytes, _Known] = OrderedDict()

    def certificate(self, pem: bytes) -> User:
        """The owner of a certificate that TLS has taken."""
        known = self._known.get(pem)
        if known is None:
            known = self._known[pem] = _read_certificate(pem)
            if len(self._known) > MAX_REMEMBERED:
                self._known.popitem(last=False)
        if self._now() >= known.ends:
            raise _refused(
                "CertificateExpired", "the certificate has ended since the connection was made: renew it, and connect anew"
            )
        return known.user

    def authorization(self, header: str | None) -> User:
        """The owner of the token in the metadata entry "authorization"."""
        if header is None:
            raise _refused("Anonymous", "who are you? Show a client certificate, or send a bearer token")
        scheme, _, token = header.partition(" ")
        user = self._tokens.user(token.strip()) if self._tokens is not None and scheme.lower() == _BEARER else None
        if user is None:
            raise _refused("BadToken", "the bearer token is none that this server knows")
        return user


class Certificate(NamedTuple):
    authenticator: Authenticator
    pem: bytes

    def user(self) -> User:
        return self.authenticator.certificate(self.pem)


class Bearer(NamedTuple):
    authenticator: Authenticator
    header: str | None

    def user(self) -> User:
        return self.authenticator.authorization(self.header)


class Anybody(NamedTuple):
    """Where nobody shows anything."""

    def user(self) -> User:
        return UNSECURED


class _Known(NamedTuple):
    user: User
    ends: float


def _read_certificate(pem: bytes) -> _Known:
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        subject = Subject.of(certificate)
        user = User(subject.user, (*subject.groups, AUTHENTICATED), NodeNames.parse(subject.nodes))
    except ValueError as error:
        raise _refused("BadCertificate", f"the client certificate names nobody: {error}") from None
    return _Known(user, certificate.not_valid_after_utc.timestamp())


def _refused(reason: str, message: str) -> Rejected:
    return Rejected(Refusal(Code.UNAUTHENTICATED, reason, message))


log = logging.getLogger(__name__)

CHECK_INTERVAL = 1.0
"""Seconds between two looks at the file."""


class TokenFile:
    def __init__(self, path: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        """Raises OSError when the file cannot be read to begin with."""
        self._path = path
        self._clock = clock
        self._looked = clock.monotonic()
        self._stamp = self._look()
        self._users = _read_tokens(path)

    def user(self, token: str) -> User | None:
        """Whose token it is."""
        if (now := self._clock.monotonic()) - self._looked >= CHECK_INTERVAL:
            self._looked = now
            self._refresh()
        return self._users.get(_digest(token))

    def _refresh(self) -> None:
        try:
            stamp = self._look()
            if stamp != self._stamp:
                self._stamp, self._users = stamp, _read_tokens(self._path)
                log.info("%s has changed: %d tokens", self._path, len(self._users))
        except OSError as error:
            log.error("%s cannot be read, going on with what it was: %s", self._path, error)

    def _look(self) -> tuple[int, int]:
        found = self._path.stat()
        return found.st_mtime_ns, found.st_ino


def _read_tokens(path: Path) -> Mapping[bytes, User]:
    """Users by the digest of their token: how long it takes to find one tells nothing about the others."""
    users: dict[bytes, User] = {}
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            row = _fields(line)
            if len(row) not in (3, 4) or not row[0] or not row[1]:
                log.error('%s, line %d: expected token,user,uid or token,user,uid,"group1,group2"', path, number)
                continue
            groups = tuple(group.strip() for group in row[3].split(",") if group.strip()) if len(row) == 4 else ()
            if _digest(row[0]) in users:
                log.error("%s, line %d: this token has been given to another user before", path, number)
                continue
            users[_digest(row[0])] = User(row[1], (*groups, AUTHENTICATED))
    return users


def _fields(line: str) -> list[str]:
    """None, of a line whose quotes do not match: read together, the next line would be the rest of its groups."""
    try:
        return next(csv.reader([line], skipinitialspace=True, strict=True), [])
    except csv.Error:
        return []


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
