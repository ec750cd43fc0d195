"""May this user do this? Asked in turn: is it one of the masters, does a role allow it, is it a fleet that keeps to its own.

Roles and nodes are read from the watch cache, which may be behind: a denial that rests on it is thought over after it has been
brought up to date, so that a role that was just given counts on every server. What was allowed is not looked at again: somebody
whose role was just taken away may get a call through until the server has heard of it, as in Kubernetes.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Protocol

from apiserver.auth.attributes import Action, Target, Verdict
from apiserver.auth.audit import Audit, Deed, NoAudit
from apiserver.auth.nodes import NodeAuthorizer
from apiserver.auth.rbac import EVERYTHING, Rbac
from apiserver.auth.user import MASTERS, User
from apiserver.errors import Rejected
from pinnace.api.rbac_v1_pb2 import PolicyRule
from pinnace.api.status import Code, Refusal

_MASTER = Verdict(True, f'a member of "{MASTERS}" may do everything')
_MOST = 3
"""Roles that a denial names."""


class Authorizer(Protocol):
    async def check(self, user: User, action: Action, targets: Callable[[], Iterable[Target]]) -> None:
        """Returns when the user may do this to all of the targets. Raises Rejected (PERMISSION_DENIED)."""
        ...


class Policy:
    """`refresh` brings the caches up to etcd's present revision; it raises when that cannot be done."""

    def __init__(
        self, rbac: Rbac, nodes: NodeAuthorizer, refresh: Callable[[], Awaitable[None]], audit: Audit | None = None
    ) -> None:
        self._audit = audit or NoAudit()
        self._rbac = rbac
        self._nodes = nodes
        self._refresh = refresh

    async def check(self, user: User, action: Action, targets: Callable[[], Iterable[Target]]) -> None:
        """As Authorizer's."""
        if MASTERS in user.groups or self._rbac.reach(user, action).everywhere:
            return
        if self._denied(user, action, targets()):
            await self._refresh()
            if denied := self._denied(user, action, targets()):
                refusal = self._refusal(user, action, denied)
                self._audit.note(user, (Deed(action, each.namespace, each.name, refusal=refusal) for each in denied))
                raise Rejected(refusal)

    def decide(self, user: User, action: Action, target: Target) -> Verdict:
        """As far as the caches know."""
        if MASTERS in user.groups:
            return _MASTER
        verdict = self._rbac.reach(user, action).verdict(target)
        return verdict if verdict.allowed else self._nodes.decide(user, action, target)

    async def review(self, user: User, action: Action, target: Target) -> Verdict:
        """As `check`, for people: a denial says what would allow it."""
        await self._refresh()
        verdict = self.decide(user, action, target)
        return verdict if verdict.allowed else Verdict(False, self._hint(action, target))

    async def rules(self, user: User, namespace: str) -> list[PolicyRule]:
        """All that roles give to the user there; "" are those that hold everywhere."""
        await self._refresh()
        if MASTERS in user.groups:
            return list(EVERYTHING)
        return [rule for grant in self._rbac.grants(user, namespace) for rule in grant.rules]

    def _hint(self, action: Action, target: Target) -> str:
        binding = "" if target.namespace else "a ClusterRoleBinding of "
        if roles := self._rbac.who_may(action, target.name):
            return f"it takes {binding}a ClusterRole such as {_first(roles)}"
        if target.name and (roles := self._rbac.who_may(action, None)):
            return f"it takes {binding}a ClusterRole with this name in resourceNames; those of {_first(roles)} have others"
        return "no ClusterRole but cluster-admin allows it"

    def _denied(self, user: User, action: Action, targets: Iterable[Target]) -> Collection[Target]:
        reach = self._rbac.reach(user, action)  # once, for a batch
        return [each for each in targets if not (reach.verdict(each).allowed or self._nodes.decide(user, action, each).allowed)]

    def _refusal(self, user: User, action: Action, denied: Collection[Target]) -> Refusal:
        """In Kubernetes' words. Of several targets the first is named."""
        target = min(denied)
        what = f'{action.resource} "{target.name}"' if target.name else action.resource
        where = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
        message = f'{what} is forbidden: User "{user.name}" cannot {action} {where}'
        if user.fleet is not None:
            message += ": a fleet is confined to its own nodes, their leases, and the pods that are bound to them"
        facts = (("user", user.name), ("hint", self._hint(action, target)))
        return Refusal(Code.PERMISSION_DENIED, "Forbidden", message, metadata=facts)


def _first(roles: Sequence[str]) -> str:
    others = f" and {len(roles) - _MOST} more" if len(roles) > _MOST else ""
    return f"{', '.join(roles[:_MOST])}{others}"
