"""Authorization by the group system:masters, RBAC and the node authorizer, in this order; and impersonation.

Authorizers read the watch cache, which may be stale. Before a call is denied, the cache is updated and the decision is
repeated, so a new role takes effect on all servers immediately. An allowed call is not checked again. As in Kubernetes, a
deleted role can still allow calls until the server receives the deletion.

The node authorizer limits a kubelet fleet to its own nodes, their leases, and the pods that are bound to these nodes. A fleet
can get the ConfigMaps, Secrets and claims to which these pods refer, and the volumes of these claims. It can read all services.
A node belongs to a fleet if the certificate of the fleet names it, or if it has the label pinnace.io/fleet. The admission
plugin NodeRestriction (apiserver.admission) limits the changes of a fleet to its nodes.

Source: https://kubernetes.io/docs/reference/access-authn-authz/node/

Impersonation: a caller such as the gateway can act as another user. The metadata of the call contain the user and the groups.
The caller needs the verb "impersonate" on the user, or on the service account in its namespace, and on each group in the
metadata (pinnace.api.users). Authorization and flow control then apply to the impersonated user. The audit log contains both
users.

Source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation
"""

from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from pinnace.api.core_v1_pb2 import Node, PersistentVolume, Pod
from pinnace.api.rbac_v1_pb2 import PolicyRule
from pinnace.api.references import CLAIM, CONFIG_MAP, SECRET, Reference, pod_references
from pinnace.api.resources import (
    ALL,
    CONFIG_MAPS,
    EVENTS,
    EVENTS_V1,
    LEASES,
    NODE_LEASE_NAMESPACE,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    SECRETS,
    SERVICES,
)
from pinnace.api.selectors import FIELDS, SelectorError, parse_fields, parse_labels
from pinnace.api.status import Code, Refusal
from pinnace.api.users import MAX_GROUPS, Impersonation
from pinnace.api.wellknown import FLEET_LABEL, IMPERSONATE_GROUP_KEY, IMPERSONATE_USER_KEY
from pinnace.apiserver.auth.audit import AuditEvent, AuditSink, NoAudit
from pinnace.apiserver.auth.authentication import MASTERS, Credential, User
from pinnace.apiserver.auth.permissions import (
    AUTHENTICATION_GROUP,
    CREATE_TOKEN,
    DENIED,
    ELECTIONS_GROUP,
    HEARTBEAT,
    METRICS_GROUP,
    REVIEWS_GROUP,
    ActionTarget,
    AuthorizationDecision,
    ResourceAction,
    resource_action,
)
from pinnace.apiserver.auth.rbac import ALL_RULES, RbacAuthorizer
from pinnace.apiserver.cacher.cacher import ResourceCache
from pinnace.apiserver.cacher.store import SelectionPredicate
from pinnace.apiserver.errors import Rejected, bad_request

_ALLOWED = "node authorizer: the object belongs to the fleet"

_MASTER = AuthorizationDecision(True, f'group "{MASTERS}" has all permissions')
CONTROLLERS = "system:kube-controller-manager"
"""The user name of the controllers."""
_MOST = 3
"""Maximum number of roles in a denial."""

GROUPS = ResourceAction("impersonate", "groups")
MAX_GRANTS, MAX_GRANT_SIZE = 1_000, 4_096
"""Maximum number of remembered impersonations, and of characters of their names."""


_COLLECTOR = AuthorizationDecision(True, "controllers collect and delete custom objects")
_COLLECTOR_VERBS = frozenset({"get", "list", "watch", "update", "patch", "delete", "deletecollection"})
_BUILT_IN_GROUPS = frozenset(
    (
        *(resource.group for resource in ALL),
        EVENTS_V1.group,
        *(REVIEWS_GROUP, AUTHENTICATION_GROUP, METRICS_GROUP, ELECTIONS_GROUP),
    )
)


def may_garbage_collect(user: User, action: ResourceAction) -> bool:
    """Return whether the action is one of the controllers on custom objects. Rules of a role cannot say "all groups but those
    of built-in kinds", which contain secrets."""
    return (
        user.name == CONTROLLERS
        and action.verb in _COLLECTOR_VERBS
        and action.group not in _BUILT_IN_GROUPS
        and "/" not in action.resource
    )


class NodeAuthorizer:
    """Decides actions of kubelet fleets."""

    def __init__(self, nodes: ResourceCache[Node], pods: ResourceCache[Pod], volumes: ResourceCache[PersistentVolume]) -> None:
        self._nodes = nodes
        self._pods = pods
        self._volumes = volumes
        self._rows: Mapping[ResourceAction, Callable[[User, ActionTarget], bool]] = {
            resource_action(NODES, "create"): lambda user, target: target.name in user.nodes,
            resource_action(NODES, "get"): self._own_node,
            resource_action(NODES, "list"): self._own_nodes,
            resource_action(NODES, "watch"): self._own_nodes,
            resource_action(NODES, "update"): self._own_node,
            resource_action(NODES, "update", "status"): self._own_node,
            HEARTBEAT: self._own_lease,
            resource_action(LEASES, "get"): self._own_lease,
            resource_action(LEASES, "list"): self._own_leases,
            resource_action(LEASES, "watch"): self._own_leases,
            resource_action(PODS, "get"): self._own_pod,
            resource_action(PODS, "list"): self._own_pods,
            resource_action(PODS, "watch"): self._own_pods,
            resource_action(PODS, "update", "status"): _any_target,
            resource_action(PODS, "delete"): _any_target,
            resource_action(EVENTS, "create"): _any_target,
            resource_action(EVENTS_V1, "create"): _any_target,
            resource_action(CONFIG_MAPS, "get"): partial(self._referenced_by_own_pod, CONFIG_MAP),
            resource_action(SECRETS, "get"): partial(self._referenced_by_own_pod, SECRET),
            resource_action(PERSISTENT_VOLUME_CLAIMS, "get"): partial(self._referenced_by_own_pod, CLAIM),
            resource_action(PERSISTENT_VOLUMES, "get"): self._own_volume,
            CREATE_TOKEN: self._own_account,
            resource_action(SERVICES, "get"): _any_target,  # for the variables of containers
            resource_action(SERVICES, "list"): _any_target,
            resource_action(SERVICES, "watch"): _any_target,
        }

    def decide(self, user: User, action: ResourceAction, target: ActionTarget) -> AuthorizationDecision:
        """Return the decision. Users that are not fleets, and actions without a row, are denied."""
        row = self._rows.get(action)
        if row is None or user.fleet is None:
            return DENIED
        try:
            return AuthorizationDecision(True, _ALLOWED) if row(user, target) else DENIED
        except SelectorError:
            return DENIED

    def owns_node(self, user: User, node: str) -> bool:
        """Report whether the node belongs to the fleet."""
        if node in user.nodes:
            return True
        entry = self._nodes.get(NODES.key("", node))
        return entry is not None and is_fleet(user, entry.obj.metadata.labels.get(FLEET_LABEL, ""))

    def node_of_pod(self, namespace: str, name: str) -> str | None:
        """Return the node of a pod: "" if the pod is not bound, None if the pod does not exist."""
        entry = self._pods.get(PODS.key(namespace, name))
        return entry.obj.spec.nodeName if entry is not None else None

    def _own_node(self, user: User, target: ActionTarget) -> bool:
        return self.owns_node(user, target.name)

    def _own_nodes(self, user: User, target: ActionTarget) -> bool:
        fleets = (
            requirement
            for requirement in parse_labels(target.labels).requirements
            if requirement.key == FLEET_LABEL and not requirement.negated
        )
        if any(requirement.values and all(is_fleet(user, value) for value in requirement.values) for requirement in fleets):
            return True
        return self._owns_selected_nodes(user, parse_fields(target.fields, FIELDS[NODES.plural]).allowed("metadata.name"))

    def _own_lease(self, user: User, target: ActionTarget) -> bool:
        return target.namespace == NODE_LEASE_NAMESPACE and self.owns_node(user, target.name)

    def _own_leases(self, user: User, target: ActionTarget) -> bool:
        names = parse_fields(target.fields, FIELDS[LEASES.plural]).allowed("metadata.name")
        return target.namespace == NODE_LEASE_NAMESPACE and self._owns_selected_nodes(user, names)

    def _own_pod(self, user: User, target: ActionTarget) -> bool:
        entry = self._pods.get(PODS.key(target.namespace, target.name))
        return entry is not None and self.owns_node(user, entry.obj.spec.nodeName)

    def _referenced_by_own_pod(self, kind: str, user: User, target: ActionTarget) -> bool:
        """Report whether a pod of the fleet refers to the object. Pods are parsed only if they contain the name."""
        if not target.namespace or not target.name:
            return False
        name, reference = target.name.encode(), Reference(kind, target.name)
        return any(
            entry.node and name in entry.value and self.owns_node(user, entry.node) and reference in pod_references(entry.obj)
            for entry in self._pods.select(SelectionPredicate.parse(PODS, target.namespace, "", ""))
        )

    def _own_account(self, user: User, target: ActionTarget) -> bool:
        """Report whether a pod of the fleet has the service account. The token's own checks are in services.tokens."""
        return any(
            entry.node and self.owns_node(user, entry.node) and entry.obj.spec.serviceAccountName == target.name
            for entry in self._pods.select(SelectionPredicate.parse(PODS, target.namespace, "", ""))
        )

    def _own_volume(self, user: User, target: ActionTarget) -> bool:
        """Report whether a pod of the fleet has the claim to which the volume is bound."""
        entry = self._volumes.get(PERSISTENT_VOLUMES.key("", target.name))
        if entry is None or not entry.obj.spec.HasField("claimRef"):
            return False
        claim = entry.obj.spec.claimRef
        return self._referenced_by_own_pod(CLAIM, user, target._replace(namespace=claim.namespace, name=claim.name))

    def _own_pods(self, user: User, target: ActionTarget) -> bool:
        return self._owns_selected_nodes(user, parse_fields(target.fields, FIELDS[PODS.plural]).allowed("spec.nodeName"))

    def _owns_selected_nodes(self, user: User, nodes: Collection[str] | None) -> bool:
        """Report whether a selector allows only nodes of the fleet. `nodes` is None if it allows all nodes."""
        return bool(nodes) and all(self.owns_node(user, node) for node in nodes or ())


def is_fleet(user: User, name: str) -> bool:
    """Report whether `name` is the user's fleet name, optionally with a dash and a suffix. Replicas that share a certificate
    differ in the suffix."""
    return user.fleet is not None and (name == user.fleet or name.startswith(f"{user.fleet}-"))


def _any_target(user: User, target: ActionTarget) -> bool:
    return True


class Authorizer(Protocol):
    async def authorize(self, user: User, action: ResourceAction, targets: Callable[[], Iterable[ActionTarget]]) -> None:
        """Return if the action is allowed on all targets. Raises Rejected (PERMISSION_DENIED)."""
        ...


class UnionAuthorizer:
    """The authorizer of the server. `refresh` updates the caches to the current revision of etcd, or raises an error."""

    def __init__(
        self,
        rbac: RbacAuthorizer,
        nodes: NodeAuthorizer,
        refresh: Callable[[], Awaitable[None]],
        audit: AuditSink | None = None,
    ) -> None:
        self._audit = audit or NoAudit()
        self._rbac = rbac
        self._nodes = nodes
        self._refresh = refresh

    async def authorize(self, user: User, action: ResourceAction, targets: Callable[[], Iterable[ActionTarget]]) -> None:
        """See Authorizer.check."""
        if MASTERS in user.groups or self._rbac.decisions(user, action).reason_for_all or may_garbage_collect(user, action):
            return
        if self._denied_targets(user, action, targets()):
            await self._refresh()
            if denied := self._denied_targets(user, action, targets()):
                refusal = self._forbidden_refusal(user, action, denied)
                self._audit.record(
                    user, (AuditEvent(action, target.namespace, target.name, refusal=refusal) for target in denied)
                )
                raise Rejected(refusal)

    def decide(self, user: User, action: ResourceAction, target: ActionTarget) -> AuthorizationDecision:
        """Return the decision by the current state of the caches."""
        if MASTERS in user.groups:
            return _MASTER
        if may_garbage_collect(user, action):
            return _COLLECTOR
        verdict = self._rbac.decisions(user, action).decide(target)
        return verdict if verdict.allowed else self._nodes.decide(user, action, target)

    async def review(self, user: User, action: ResourceAction, target: ActionTarget) -> AuthorizationDecision:
        """Update the caches and return the decision. The reason of a denial names roles that allow the action."""
        await self._refresh()
        verdict = self.decide(user, action, target)
        return verdict if verdict.allowed else AuthorizationDecision(False, self._binding_hint(action, target))

    async def rules(self, user: User, namespace: str) -> list[PolicyRule]:
        """Return all rules of the user in a namespace; with "" only the cluster-wide rules."""
        await self._refresh()
        if MASTERS in user.groups:
            return list(ALL_RULES)
        return [rule for grant in self._rbac.grants(user, namespace) for rule in grant.rules]

    def _binding_hint(self, action: ResourceAction, target: ActionTarget) -> str:
        binding = "" if target.namespace else "a ClusterRoleBinding to "
        if roles := self._rbac.roles_allowing(action, target.name):
            return f"this requires {binding}a ClusterRole such as {_format_role_names(roles)}"
        if target.name and (roles := self._rbac.roles_allowing(action, None)):
            others = _format_role_names(roles)
            return f"this requires {binding}a ClusterRole with this name in resourceNames; {others} have other names"
        return "only the ClusterRole cluster-admin allows this"

    def _denied_targets(self, user: User, action: ResourceAction, targets: Iterable[ActionTarget]) -> Collection[ActionTarget]:
        reach = self._rbac.decisions(user, action)  # shared by all items of a batch
        return [
            target
            for target in targets
            if not (reach.decide(target).allowed or self._nodes.decide(user, action, target).allowed)
        ]

    def _forbidden_refusal(self, user: User, action: ResourceAction, denied: Collection[ActionTarget]) -> Refusal:
        """Return the refusal with Kubernetes' message. It names the first target."""
        target = min(denied)
        what = f'{action.resource} "{target.name}"' if target.name else action.resource
        where = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
        message = f'{what} is forbidden: User "{user.name}" cannot {action} {where}'
        if user.fleet is not None:
            message += ": a fleet is limited to its own nodes, their leases, and the pods that are bound to these nodes"
        facts = (("user", user.name), ("hint", self._binding_hint(action, target)))
        return Refusal(Code.PERMISSION_DENIED, "Forbidden", message, metadata=facts)


def _format_role_names(roles: Sequence[str]) -> str:
    others = f" and {len(roles) - _MOST} more" if len(roles) > _MOST else ""
    return f"{', '.join(roles[:_MOST])}{others}"


class ImpersonatedCredential(NamedTuple):
    """The credential of a caller, and the impersonated user."""

    credential: Credential
    acting_as: User

    def user(self) -> User:
        """Return the impersonated user. Raises Rejected if the credential of the caller is no longer valid."""
        self.credential.user()
        return self.acting_as


def requested_impersonation(metadata: Iterable[tuple[str, str | bytes]]) -> Impersonation | None:
    """Return the user to impersonate; None if there is none. Raises Rejected if the metadata contain several users, groups
    without a user, or too many groups."""
    users, groups = list[str](), list[str]()
    for key, value in metadata:
        if key == IMPERSONATE_USER_KEY:
            users.append(str(value))
        elif key == IMPERSONATE_GROUP_KEY:
            groups.append(str(value))
    if len(users) > 1:
        raise Rejected(bad_request("requested impersonation of several users"))
    if not any(users):
        if groups:
            raise Rejected(bad_request("requested impersonation of groups without impersonating a user"))
        return None
    if len(groups) > MAX_GROUPS:
        raise Rejected(bad_request(f"too many groups to impersonate: at most {MAX_GROUPS}"))
    return Impersonation(users[0], groups)


class Impersonator:
    """Authorizes impersonation. A granted permission is checked again only when roles or bindings have changed, because it
    depends on nothing else: the node authorizer never allows the verb. `role_versions` returns a value that changes with them.
    """

    def __init__(self, authorizer: Authorizer, role_versions: Callable[[], Hashable]) -> None:
        self._authorizer = authorizer
        self._role_versions = role_versions
        self._grants: dict[tuple[Credential, str, tuple[str, ...]], _ImpersonationGrant] = {}

    async def impersonate(self, credential: Credential, caller: User, impersonation: Impersonation) -> ImpersonatedCredential:
        """Return the credential for the impersonation. `caller`: the user of `credential`. Raises Rejected
        (PERMISSION_DENIED)."""
        key = credential, impersonation.user, tuple(impersonation.groups)
        versions, grant = self._role_versions(), self._grants.get(key)
        if grant is not None and grant.versions == versions and grant.caller is caller:
            return grant.impersonated
        action, target = ResourceAction("impersonate", impersonation.resource), ActionTarget(*impersonation.place)
        await self._authorizer.authorize(caller, action, lambda: (target,))
        if groups := [ActionTarget(name=group) for group in impersonation.groups]:
            await self._authorizer.authorize(caller, GROUPS, lambda: groups)
        impersonated = ImpersonatedCredential(
            credential, User(impersonation.user, impersonation.all_groups(), impersonator=caller.name)
        )
        if len(impersonation.user) + sum(map(len, impersonation.groups)) <= MAX_GRANT_SIZE:
            if len(self._grants) >= MAX_GRANTS:
                self._grants.clear()
            self._grants[key] = _ImpersonationGrant(versions, caller, impersonated)
        return impersonated


class _ImpersonationGrant(NamedTuple):
    """A granted impersonation. `versions`: of the roles before the check."""

    versions: Hashable
    caller: User
    impersonated: ImpersonatedCredential
