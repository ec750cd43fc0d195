"""Authentication by client certificate or bearer token, and the impersonated user of a request.

TLS has verified the certificate. An API server reviews the token, and the gateway caches the result for a few seconds. If a
client sends both, the certificate determines the user.

    token --cached-------------------------------------------> user, or 401
          --valid within KNOWN_FOR---------------> review ---'
          --unknown--> its turn: RATE per second --> review -'
                          '--too many wait--> 429

Unknown tokens share one rate, so a client that guesses tokens delays the first request of a new token, and nothing else.

Source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/
"""

import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from cryptography import x509

from pinnace.api.users import AUTHENTICATED, MAX_GROUPS, Impersonation, parse_service_account
from pinnace.client.errors import ApiError, Exhausted, Unavailable
from pinnace.gateway.errors import convert_error
from pinnace.gateway.flow import too_many_requests
from pinnace.gateway.http import ANONYMOUS, User, bad_request, unauthorized
from pinnace.pki import Subject
from pinnace.runtime.grpc_server import RefusalPacer

MAX_REMEMBERED = 10_000
"""The maximum number of cached certificates, and of cached tokens."""
MAX_TOKEN = 4096
"""The maximum length of a token in characters."""
VALID_FOR, INVALID_FOR = 10.0, 1.0
"""Seconds for which valid and invalid tokens are cached. The first value equals that of kube-apiserver's delegated
authentication."""
ACCOUNT_VALID_FOR = 2.0
"""Seconds for which the token of a service account is cached. It is revoked with its pod."""
KNOWN_FOR = 600.0
"""Seconds for which a token that was valid is reviewed without waiting for a turn."""
MAX_WAITING = 100
"""The maximum number of unknown tokens that wait for their turn."""
log = logging.getLogger(__name__)
IMPERSONATE_USER, IMPERSONATE_GROUP = "impersonate-user", "impersonate-group"
_UNKNOWN = ""
IMPERSONATE_OTHER = ("impersonate-uid", "impersonate-extra-")
"""Headers that are rejected instead of ignored, because the API servers only support user names and groups."""


class _CertificateUser(NamedTuple):
    user: User
    begins: float
    ends: float


class _TokenUser(NamedTuple):
    user: User | None
    ends: float


class TokenReviewer(Protocol):
    async def review_token(self, token: str) -> User | None:
        """Return the user of the token, or None if the token is invalid. Raises ApiError."""
        ...


class Authenticator:
    def __init__(self, tokens: TokenReviewer, now: Callable[[], float] = time.time) -> None:
        self._tokens = tokens
        self._now = now
        self._known: OrderedDict[bytes, _CertificateUser] = OrderedDict()
        self._reviewed: OrderedDict[bytes, _TokenUser] = OrderedDict()
        """Reviews by digest of the token."""
        self._unknown = RefusalPacer()

    async def user(self, certificate: bytes | None, headers: Mapping[str, str]) -> User:
        """Return the authenticated user, or system:anonymous without credentials. `certificate`: the client certificate in DER.
        Raises ApiStatus: 401, or 503 if no API server can review tokens."""
        if certificate is not None:
            return self._authenticate_certificate(certificate)
        if (header := headers.get("authorization")) is None:
            return ANONYMOUS
        scheme, _, token = header.strip().partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or len(token) > MAX_TOKEN:
            raise unauthorized()
        user = await self._authenticate_token(token)
        if user is None:
            raise unauthorized()
        return user

    async def _authenticate_token(self, token: str) -> User | None:
        digest = hashlib.sha256(token.encode(errors="replace")).digest()
        known = self._reviewed.get(digest)
        if known is not None and self._now() < known.ends:
            return known.user
        if known is None or known.user is None or self._now() >= known.ends + KNOWN_FOR:
            if self._unknown.waiting >= MAX_WAITING:
                raise too_many_requests("too many unknown bearer tokens")
            await self._unknown.wait(_UNKNOWN)
        try:
            user = await self._tokens.review_token(token)
        except ApiError as error:
            log.warning("failed to review a bearer token: %s", error.message)
            raise (convert_error(error) if isinstance(error, Unavailable | Exhausted) else unauthorized()) from None
        self._reviewed[digest] = _TokenUser(user, self._now() + _seconds_cached(user))
        self._reviewed.move_to_end(digest)
        if len(self._reviewed) > MAX_REMEMBERED:
            self._reviewed.popitem(last=False)
        return user

    def _authenticate_certificate(self, der: bytes) -> User:
        known = self._known.get(der)
        if known is None:
            known = self._known[der] = _parse_certificate(der)
            if len(self._known) > MAX_REMEMBERED:
                self._known.popitem(last=False)
        if not known.begins <= self._now() < known.ends:
            raise unauthorized()
        return known.user


def _seconds_cached(user: User | None) -> float:
    if user is None:
        return INVALID_FOR
    return ACCOUNT_VALID_FOR if parse_service_account(user.name) is not None else VALID_FOR


def parse_impersonation(names: Iterable[str], users: Sequence[str], groups: Sequence[str]) -> Impersonation | None:
    """Return the request of the impersonation headers to act as another user, or None. `names`: the names of all headers.
    `users` and `groups`: the values of Impersonate-User and Impersonate-Group. Raises ApiStatus.

    Unlike kube-apiserver, which uses the first Impersonate-User, several of them are rejected: a proxy may have checked another
    one.
    """
    for name in names:
        if name.startswith(IMPERSONATE_OTHER):
            raise bad_request(f"the impersonation header {name} is not supported: use Impersonate-User and Impersonate-Group")
    if len(users) > 1:
        raise bad_request("requested to impersonate several users: Impersonate-User must occur once")
    if not any(users):
        if groups:
            raise bad_request("requested to impersonate groups without a user: Impersonate-User is missing")
        return None
    if len(groups) > MAX_GROUPS:
        raise bad_request(f"too many groups to impersonate: at most {MAX_GROUPS}")
    return Impersonation(users[0], groups)


def _parse_certificate(der: bytes) -> _CertificateUser:
    try:
        certificate = x509.load_der_x509_certificate(der)
        subject = Subject.of(certificate)
    except ValueError:
        raise unauthorized() from None
    begins, ends = certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()
    return _CertificateUser(User(subject.user, (*subject.groups, AUTHENTICATED)), begins, ends)
