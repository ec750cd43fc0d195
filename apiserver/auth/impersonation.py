"""Impersonation: a caller, such as a gateway, acts as another user.

The call's metadata name the user, and each of the groups. The caller needs the verb "impersonate" on users and on groups, for
these names. Everything else is decided, and counted, for the other user; the audit log has both.

Source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from apiserver.auth.authentication import AUTHENTICATED, Credential, User
from apiserver.auth.authorizer import Authorizer
from apiserver.auth.permissions import Action, Target
from apiserver.errors import Rejected, bad_request
from pinnace.api.wellknown import IMPERSONATE_GROUP_KEY, IMPERSONATE_USER_KEY

USERS, GROUPS = Action("impersonate", "users"), Action("impersonate", "groups")
MAX_GROUPS = 100
"""Groups that one call may name."""


class Impersonated(NamedTuple):
    """The credential of a caller, and the user that it acts as."""

    credential: Credential
    acting_as: User

    def user(self) -> User:
        """Raises Rejected once the caller's own credential is not valid any more."""
        self.credential.user()
        return self.acting_as


def requested(metadata: Iterable[tuple[str, str | bytes]]) -> User | None:
    """The user that a call is to be made as. Raises Rejected when there are groups only."""
    name, groups = "", list[str]()
    for key, value in metadata:
        if key == IMPERSONATE_USER_KEY:
            name = str(value)
        elif key == IMPERSONATE_GROUP_KEY:
            groups.append(str(value))
    if not name:
        if groups:
            raise Rejected(bad_request("impersonation of groups needs a user: say which"))
        return None
    if len(groups) > MAX_GROUPS:
        raise Rejected(bad_request(f"too many groups to impersonate: at most {MAX_GROUPS}"))
    return User(name, tuple(dict.fromkeys((*groups, AUTHENTICATED))))


async def impersonate(credential: Credential, acting_as: User, authorizer: Authorizer) -> Impersonated:
    """Raises Rejected (PERMISSION_DENIED) unless the caller may act as this user and its groups."""
    caller = credential.user()
    await authorizer.check(caller, USERS, lambda: (Target(name=acting_as.name),))
    groups = [Target(name=each) for each in acting_as.groups if each != AUTHENTICATED]
    if groups:
        await authorizer.check(caller, GROUPS, lambda: groups)
    return Impersonated(credential, replace(acting_as, impersonator=caller.name))
