"""Names of users and groups, and impersonation: the resource that the verb "impersonate" is checked on, and the groups of the
impersonated user.

    user                              resource          groups, if the caller names none
    system:serviceaccount:NS:NAME     serviceaccounts   system:serviceaccounts, system:serviceaccounts:NS, system:authenticated
    system:anonymous                  users             system:unauthenticated
    other                             users             system:authenticated

Source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation
"""

from collections.abc import Sequence
from typing import NamedTuple

from pinnace.api.names import dns_label, dns_subdomain

ANONYMOUS = "system:anonymous"
AUTHENTICATED, UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"
SERVICE_ACCOUNTS = "system:serviceaccounts"
_SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"
MAX_GROUPS = 100
"""Maximum number of impersonated groups per call."""


class ServiceAccountName(NamedTuple):
    namespace: str
    name: str


def parse_service_account(user: str) -> ServiceAccountName | None:
    """Return the service account with this user name; None if the user is not a service account."""
    if not user.startswith(_SERVICE_ACCOUNT_PREFIX):
        return None
    namespace, _, name = user.removeprefix(_SERVICE_ACCOUNT_PREFIX).partition(":")
    return None if dns_label(namespace) or dns_subdomain(name) else ServiceAccountName(namespace, name)


def service_account_user(namespace: str, name: str) -> str:
    """Return the user name of a service account."""
    return f"{_SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"


def service_account_groups(namespace: str) -> tuple[str, str]:
    """Return the groups of the service accounts of a namespace."""
    return SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}"


class Impersonation(NamedTuple):
    """A request to act as another user. `groups` are those that the caller names."""

    user: str
    groups: Sequence[str] = ()

    @property
    def resource(self) -> str:
        return "serviceaccounts" if parse_service_account(self.user) else "users"

    @property
    def place(self) -> ServiceAccountName:
        """The namespace and name on which "impersonate" is checked. The namespace is "" unless the user is a service
        account."""
        return parse_service_account(self.user) or ServiceAccountName("", self.user)

    def all_groups(self) -> tuple[str, ...]:
        """Return the groups of the impersonated user."""
        groups = dict.fromkeys(self.groups)
        if not groups and (account := parse_service_account(self.user)):
            groups = dict.fromkeys(service_account_groups(account.namespace))
        if self.user == ANONYMOUS:
            groups[UNAUTHENTICATED] = None
        elif UNAUTHENTICATED not in groups:
            groups[AUTHENTICATED] = None
        return tuple(groups)
