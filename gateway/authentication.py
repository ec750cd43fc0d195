"""The user of a request, from the client's certificate, which TLS has verified; and the user that it wants to act as.

Source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from cryptography import x509

from gateway.http import ANONYMOUS, User, bad_request, unauthorized
from pinnace.pki import Subject

AUTHENTICATED = "system:authenticated"
MAX_REMEMBERED = 10_000
"""Certificates whose subject is remembered."""
IMPERSONATE_USER, IMPERSONATE_GROUP = "impersonate-user", "impersonate-group"
IMPERSONATE_OTHER = ("impersonate-uid", "impersonate-extra-")
"""Headers that are refused, and not ignored: the API servers know users by name and groups only."""


class _Known(NamedTuple):
    user: User
    begins: float
    ends: float


class Authenticator:
    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._known: OrderedDict[bytes, _Known] = OrderedDict()

    def user(self, certificate: bytes | None, headers: Mapping[str, str]) -> User:
        """`certificate`: the client's, in DER. Without credentials: system:anonymous. Raises ApiStatus (401)."""
        if certificate is not None:
            return self._of_certificate(certificate)
        if "authorization" in headers:
            raise unauthorized()
        return ANONYMOUS

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
