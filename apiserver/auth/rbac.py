"""Role-based access control: roles hold rules, bindings give roles to users and groups. What no rule allows is denied.

What a user may do with one action is worked out once, for all namespaces and names, and remembered until a role or binding
changes: a call costs a look into a table. A ClusterRole with an aggregationRule has, beside its own, the rules of all that it
selects, without a controller that copies them.

Source: https://kubernetes.io/docs/reference/access-authn-authz/rbac/
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from apiserver.auth.attributes import DENIED, Action, Target, Verdict
from apiserver.auth.user import User
from apiserver.cacher.resource import ResourceCache
from apiserver.cacher.selection import Selection
from pinnace.api.rbac_v1_pb2 import ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject
from pinnace.api.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES, Resource
from pinnace.api.selectors import from_message

ALL = "*"
EVERYTHING = (
    PolicyRule(verbs=[ALL], apiGroups=[ALL], resources=[ALL]),
    PolicyRule(verbs=[ALL], nonResourceURLs=[ALL]),
)
MAX_REMEMBERED = 10_000
"""Pairs of users and actions."""


@dataclass(slots=True)
class Reach:
    """To what somebody may do one thing, each with the reason. Of several reasons the first one found."""

    everywhere: str = ""
    namespaces: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """In all namespaces, or of resources that have none."""
    named: dict[tuple[str, str], str] = field(default_factory=dict)

    def verdict(self, target: Target) -> Verdict:
        reason = (
            self.everywhere
            or self.namespaces.get(target.namespace)
            or self.names.get(target.name)
            or self.named.get((target.namespace, target.name))
        )
        return Verdict(True, reason) if reason else DENIED


class Grant(NamedTuple):
    """The rules that a binding gives to somebody: in one namespace, or ("") everywhere."""

    namespace: str
    rules: Sequence[PolicyRule]
    reason: str


class Rbac:
    """Reads roles and bindings from the caches."""

    def __init__(
        self,
        roles: ResourceCache[Role],
        cluster_roles: ResourceCache[ClusterRole],
        bindings: ResourceCache[RoleBinding],
        cluster_bindings: ResourceCache[ClusterRoleBinding],
    ) -> None:
        self._roles = roles
        self._cluster_roles = cluster_roles
        self._bindings = bindings
        self._cluster_bindings = cluster_bindings
        self._reaches: dict[tuple[User, Action], Reach] = {}
        self._version = self._versions()

    def reach(self, user: User, action: Action) -> Reach:
        """To what the user may do this."""
        if (now := self._versions()) != self._version:
            self._version = now
            self._reaches.clear()
        known = self._reaches.get((user, action))
        if known is None:
            if len(self._reaches) >= MAX_REMEMBERED:
                self._reaches.clear()
            known = self._reaches[user, action] = _reach(self.grants(user), action)
        return known

    def grants(self, user: User) -> Iterator[Grant]:
        """All that bindings give to the user; those that hold everywhere first."""
        for cluster_binding in _all(CLUSTER_ROLE_BINDINGS, self._cluster_bindings):
            if subject := _subject_of(user, cluster_binding.subjects):
                yield Grant(
                    "", self.rules(cluster_binding.roleRef, "") or (), _reason("ClusterRoleBinding", cluster_binding, subject)
                )
        for binding in _all(ROLE_BINDINGS, self._bindings):
            if subject := _subject_of(user, binding.subjects):
                namespace = binding.metadata.namespace
                yield Grant(namespace, self.rules(binding.roleRef, namespace) or (), _reason("RoleBinding", binding, subject))

    def rules(self, role: RoleRef, namespace: str) -> Sequence[PolicyRule] | None:
        """None: there is no such role."""
        if role.kind == "Role":
            entry = self._roles.get(ROLES.key(namespace, role.name))
            return entry.obj.rules if entry is not None else None
        found = self._cluster_roles.get(CLUSTER_ROLES.key("", role.name))
        return self._with_aggregated(found.obj) if found is not None else None

    def who_may(self, action: Action) -> list[str]:
        """The ClusterRoles that would allow this, by name, without those that allow everything."""
        return [
            role.metadata.name
            for role in _all(CLUSTER_ROLES, self._cluster_roles)
            if any(_allows(rule, action) and ALL not in rule.verbs for rule in self._with_aggregated(role))
        ]

    def _with_aggregated(self, role: ClusterRole) -> Sequence[PolicyRule]:
        if not role.HasField("aggregationRule"):
            return role.rules
        selectors = [from_message(each) for each in role.aggregationRule.clusterRoleSelectors]
        others = (
            each
            for each in _all(CLUSTER_ROLES, self._cluster_roles)
            if not each.HasField("aggregationRule") and any(selector.matches(each.metadata.labels) for selector in selectors)
        )
        return [*role.rules, *(rule for each in others for rule in each.rules)]

    def _versions(self) -> tuple[int, ...]:
        return self._roles.version, self._cluster_roles.version, self._bindings.version, self._cluster_bindings.version


def _reach(grants: Iterable[Grant], action: Action) -> Reach:
    reach = Reach()
    for namespace, rules, reason in grants:
        for rule in rules:
            if not _allows(rule, action):
                continue
            if rule.resourceNames:
                for name in rule.resourceNames:
                    if namespace:
                        reach.named.setdefault((namespace, name), reason)
                    else:
                        reach.names.setdefault(name, reason)
            elif namespace:
                reach.namespaces.setdefault(namespace, reason)
            else:
                reach.everywhere = reach.everywhere or reason
    return reach


def _allows(rule: PolicyRule, action: Action) -> bool:
    """Whatever the names."""
    if action.verb not in rule.verbs and ALL not in rule.verbs:
        return False
    resource = action.resource
    if resource.startswith("/"):
        return any(is_url(resource, url) for url in rule.nonResourceURLs)
    if action.group not in rule.apiGroups and ALL not in rule.apiGroups:
        return False
    _, slash, subresource = resource.partition("/")
    return resource in rule.resources or ALL in rule.resources or (bool(slash) and f"*/{subresource}" in rule.resources)


def is_url(path: str, url: str) -> bool:
    return path.startswith(url[:-1]) if url.endswith(ALL) else path == url


def _subject_of(user: User, subjects: Iterable[Subject]) -> Subject | None:
    """The first of them that the user is, or belongs to."""
    for subject in subjects:
        if (subject.kind == "User" and subject.name == user.name) or (subject.kind == "Group" and subject.name in user.groups):
            return subject
    return None


def _reason(kind: str, binding: RoleBinding | ClusterRoleBinding, subject: Subject) -> str:
    name = f"{binding.metadata.namespace}/{binding.metadata.name}" if binding.metadata.namespace else binding.metadata.name
    role = binding.roleRef
    return f'RBAC: allowed by {kind} "{name}" of {role.kind} "{role.name}" to {subject.kind} "{subject.name}"'


def _all(resource: Resource[Any], cache: ResourceCache[Any]) -> Iterator[Any]:
    return (entry.obj for entry in cache.select(Selection.parse(resource, "", "", "")))
