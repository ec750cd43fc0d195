"""RoleEscalation: nobody gives away what he does not have.

Who writes a role must hold all of its rules (or have the verb "escalate" on it; of a role that is new, on all roles there); who
writes a binding must hold all rules of the role that it gives (or have the verb "bind" on that). To write a role that gathers
others, or did until now, takes everything: it can come to hold anything, or lose what others rely on. To change only finalizers
and ownerReferences gives nothing away: who sees to them need not hold what is in the role.

Source: https://kubernetes.io/docs/reference/access-authn-authz/rbac/#privilege-escalation-prevention-and-bootstrapping,
https://github.com/kubernetes/kubernetes/tree/master/pkg/registry/rbac (helpers.go, clusterrole/policybased/storage.go)
"""

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Any

from apiserver import errors
from apiserver.auth.authentication import MASTERS, User
from apiserver.auth.permissions import Target, action_on
from apiserver.auth.rbac import EVERYTHING, Held, Rbac
from apiserver.errors import Rejected
from apiserver.registry.admission import Operation, Request
from pinnace.api.rbac_v1_pb2 import ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding
from pinnace.api.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES

_MOST = 5
"""Rules that a refusal names."""
_MOST_WORDS = 20
"""Of each of them: verbs, things and names."""
_MAX_WORD = 64
"""Characters of each of those: a name may have a megabyte, and there is one for each group."""


class RoleEscalation:
    asked = tuple(
        (operation, resource)
        for operation in (Operation.CREATE, Operation.UPDATE)
        for resource in (ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS)
    )

    def __init__(self, rbac: Rbac) -> None:
        self._rbac = rbac

    def validate(
        self,
        request: Request,
        operation: Operation,
        obj: Role | ClusterRole | RoleBinding | ClusterRoleBinding,
        old: Role | ClusterRole | RoleBinding | ClusterRoleBinding | None,
    ) -> None:
        if MASTERS in request.user.groups or (old is not None and _granting(obj) == _granting(old)):
            return
        if isinstance(obj, Role | ClusterRole):
            self._role(request.user, obj, old)
        else:
            self._binding(request.user, obj)

    def _role(self, user: User, role: Role | ClusterRole, old: Any) -> None:
        name, namespace = role.metadata.name, role.metadata.namespace
        resource = CLUSTER_ROLES if isinstance(role, ClusterRole) else ROLES
        if self._may(user, "escalate", resource is CLUSTER_ROLES, namespace, name if old is not None else ""):
            return
        gathers = any(isinstance(each, ClusterRole) and each.HasField("aggregationRule") for each in (role, old))
        self._held(user, namespace, [*role.rules, *(EVERYTHING if gathers else ())], f'{resource.plural} "{name}"')

    def _binding(self, user: User, binding: RoleBinding | ClusterRoleBinding) -> None:
        namespace, role = binding.metadata.namespace, binding.roleRef
        if self._may(user, "bind", role.kind == "ClusterRole", namespace, role.name):
            return
        rules = self._rbac.rules(role, namespace)
        if rules is None:
            raise Rejected(
                errors.forbidden(f'{role.kind} "{role.name}" does not exist: only who may "bind" it can give it away')
            )
        resource = ROLE_BINDINGS if isinstance(binding, RoleBinding) else CLUSTER_ROLE_BINDINGS
        self._held(user, namespace, rules, f'{resource.plural} "{binding.metadata.name}"')

    def _may(self, user: User, verb: str, cluster_role: bool, namespace: str, name: str) -> bool:
        action = action_on(CLUSTER_ROLES if cluster_role else ROLES, verb)
        return self._rbac.reach(user, action).verdict(Target(namespace, name)).allowed

    def _held(self, user: User, namespace: str, wanted: Sequence[PolicyRule], what: str) -> None:
        held = Held(rule for grant in self._rbac.grants(user, namespace) for rule in grant.rules)
        lacking = [rule for rule in wanted if not held.cover(rule)]
        if lacking:
            message = f'{what} is forbidden: user "{user.name}" is attempting to grant permissions that it does not hold: '
            message += "; ".join(map(_words, lacking[:_MOST])) + (
                f"; and {len(lacking) - _MOST} more" if lacking[_MOST:] else ""
            )
            raise Rejected(errors.forbidden(message))


def _granting(obj: Role | ClusterRole | RoleBinding | ClusterRoleBinding) -> Any:
    """All of it that may give something away. Labels do: an aggregated role gathers others by them."""
    copy: Any = type(obj)()
    copy.CopyFrom(obj)
    for field in ("finalizers", "ownerReferences", "resourceVersion"):
        copy.metadata.ClearField(field)
    return copy


def _words(rule: PolicyRule) -> str:
    """As one would say it: "get, list pods, nodes"."""
    things = chain(
        map(_cut, rule.nonResourceURLs),
        (f"{_cut(name)}.{_cut(group)}" if group else _cut(name) for name in rule.resources for group in rule.apiGroups),
    )
    names = f" named {_some(map(_cut, rule.resourceNames))}" if rule.resourceNames else ""
    return f"{_some(map(_cut, rule.verbs))} {_some(things)}{names}"


def _some(words: Iterable[str]) -> str:
    shown = list(islice(words, _MOST_WORDS + 1))
    return ", ".join(shown[:_MOST_WORDS]) + (", ..." if shown[_MOST_WORDS:] else "")


def _cut(word: str) -> str:
    return word if len(word) <= _MAX_WORD else word[:_MAX_WORD] + "..."
