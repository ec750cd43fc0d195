"""The user of a request, from the client's certificate or its bearer token; and the user that it wants to act as.

TLS has verified the certificate. An API server reviews the token; the gateway remembers its answer for a few seconds. A client
that sends both is the user of the certificate.

Source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/
"""

import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from cryptography import x509

from gateway.errors import to_status
from gateway.http import ANONYMOUS, User, bad_request, unauthorized
from pinnace.client.errors import ApiError, Exhausted, Unavailable
from pinnace.pki import Subject

AUTHENTICATED = "system:authenticated"
MAX_REMEMBERED = 10_000
"""Certificates whose subject is remembered; also tokens."""
MAX_TOKEN = 4096
"""Characters of a token."""
VALID_FOR, INVALID_FOR = 10.0, 1.0
"""Seconds for which the review of a token is remembered, as kube-apiserver's delegating authenticators do for valid ones."""
log = logging.getLogger(__name__)
IMPERSONATE_USER, IMPERSONATE_GROUP = "impersonate-user", "impersonate-group"
IMPERSONATE_OTHER = ("impersonate-uid", "impersonate-extra-")
"""Headers that are refused, and not ignored: the API servers know users by name and groups only."""


class _Known(NamedTuple):
    user: User
    begins: float
    ends: float


class _Reviewed(NamedTuple):
    user: User | None
    ends: float


class TokenReviewer(Protocol):
    async def review_token(self, token: str) -> User | None:
        """The user of the token. Raises ApiError."""
        ...


class Authenticator:
    def __init__(self, tokens: TokenReviewer, now: Callable[[], float] = time.time) -> None:
        self._tokens = tokens
        self._now = now
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._reviewed: OrderedDict[bytes, _Reviewed] = OrderedDict()
        """By digest of the token."""

    async def user(self, certificate: bytes | None, headers: Mapping[str, str]) -> User:
        """`certificate`: the client's, in DER. Without credentials: system:anonymous. Raises ApiStatus: 401; 503 while no API
        server reviews tokens."""
        if certificate is not None:
            return self._of_certificate(certificate)
        if (header := headers.get("authorization")) is None:
            return ANONYMOUS
        scheme, _, token = header.strip().partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or len(token) > MAX_TOKEN:
            raise unauthorized()
        user = await self._of_token(token)
        if user is None:
            raise unauthorized()
        return user

    async def _of_token(self, token: str) -> User | None:
        digest = hashlib.sha256(token.encode(errors="replace")).digest()
        known = self._reviewed.get(digest)
        if known is not None and self._now() < known.ends:
            return known.user
        try:
            user = await self._tokens.review_token(token)
        except ApiError as error:
            log.warning("a bearer token cannot be reviewed: %s", error.message)
            raise (to_status(error) if isinstance(error, Unavailable | Exhausted) else unauthorized()) from None
        self._reviewed[digest] = _Reviewed(user, self._now() + (VALID_FOR if user is not None else INVALID_FOR))
        self._reviewed.move_to_end(digest)
        if len(self._reviewed) > MAX_REMEMBERED:
            self._reviewed.popitem(last=False)
        return user

    def _of_certificate(self, der: bytes) -> User:
        known = self._known.get(der)
        if known is None:
            known = self._known[der] = _read(der)
            if len(self._known) > MAX_REMEMBERED:
                self._known.popitem(last=False)
        if not known.begins <= self._now() < known.ends:
            raise unauthorized()
        return known.user


def impersonated(headers: Mapping[str, str], groups: Sequence[str]) -> User | None:
    """The user that the headers of impersonation name; None without them. `groups`: of each Impersonate-Group.

    Raises ApiStatus.
    """
    for name in headers:
        if name.startswith(IMPERSONATE_OTHER):
            raise bad_request(f"impersonation by {name} is not supported: use Impersonate-User and Impersonate-Group")
    name = headers.get(IMPERSONATE_USER, "")
    if not name:
        if groups:
            raise bad_request("requested to impersonate groups without a user: Impersonate-User is missing")
        return None
    return User(name, tuple(dict.fromkeys((*groups, AUTHENTICATED))))


def _read(der: bytes) -> _Known:
    try:
        certificate = x509.load_der_x509_certificate(der)
        subject = Subject.of(certificate)
    except ValueError:
        raise unauthorized() from None
    begins, ends = certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()
    return _Known(User(subject.user, (*subject.groups, AUTHENTICATED)), begins, ends)
