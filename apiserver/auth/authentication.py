"""From what a caller shows to who it is.

A certificate has been checked by TLS before: it is of the cluster's authority. Whether it has ended since is looked at with
each call, and while a stream is open, because these may live for longer. What it says is worked out once, not with each call.

Source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import NamedTuple, Protocol

from cryptography import x509

from apiserver.auth.user import AUTHENTICATED, UNSECURED, User
from apiserver.errors import Rejected
from pinnace.api.nodenames import NodeNames
from pinnace.api.status import Code, Refusal
from pinnace.pki import Subject

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
            known = self._known[pem] = _read(pem)
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


def _read(pem: bytes) -> _Known:
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        subject = Subject.of(certificate)
        user = User(subject.user, (*subject.groups, AUTHENTICATED), NodeNames.parse(subject.nodes))
    except ValueError as error:
        raise _refused("BadCertificate", f"the client certificate names nobody: {error}") from None
    return _Known(user, certificate.not_valid_after_utc.timestamp())


def _refused(reason: str, message: str) -> Rejected:
    return Rejected(Refusal(Code.UNAUTHENTICATED, reason, message))
