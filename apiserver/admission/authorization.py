"""Admission plugins that restrict writes by the permissions of the user.

NodeRestriction limits the writes of kubelets. The node authorizer already restricts a fleet to its own nodes. A kubelet can
register a node with labels and taints. It cannot change them later, because labels and taints control scheduling, except that
it can remove the taint not-ready: a cluster can run without the controllers that remove it. It cannot change a reported
capacity, and allocatable never exceeds capacity. It cannot set finalizers and ownerReferences: a finalizer blocks the deletion
of the node, and with an owner the garbage collector deletes it (CVE-2025-5187). Unlike in Kubernetes, events are restricted
too: a kubelet records events about its own nodes, about pods that are bound to them, and about pods that no longer exist.

Source: https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction

RoleEscalation prevents privilege escalation. A write of a role requires all permissions of the role, or the verb "escalate". A
write of a binding requires all permissions of the referenced role, or the verb "bind". A write of an aggregated role, or of a
role that was aggregated, requires all permissions, because the rules of the role can change without another write. A change of
only finalizers and ownerReferences is always allowed.

Source: https://kubernetes.io/docs/reference/access-authn-authz/rbac/#privilege-escalation-prevention-and-bootstrapping,
https://github.com/kubernetes/kubernetes/tree/master/pkg/registry/rbac (helpers.go, clusterrole/policybased/storage.go)

ElectionLeases refuses writes of the Lease objects that represent elections (apiserver/services/leases.py). These objects are
derived from the election's key in etcd, so a write would have no effect.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.core_v1_pb2 import Event, Node, Pod, Taint
from pinnace.api.integers import parse_natural
from pinnace.api.machines import NATIVE, is_restricted
from pinnace.api.quantity import QuantityError, amount
from pinnace.api.rbac_v1_pb2 import ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    EVENTS,
    LEASES,
    NODES,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SYSTEM_NAMESPACE,
)
from pinnace.api.wellknown import ELECTION_LEASES, FENCE_ANNOTATION, FLEET_LABEL, NOT_READY_TAINT
from pinnace.apiserver import errors
from pinnace.apiserver.auth.authentication import MASTERS, User
from pinnace.apiserver.auth.authorizer import is_fleet
from pinnace.apiserver.auth.permissions import ActionTarget, resource_action
from pinnace.apiserver.auth.rbac import ALL_RULES, RbacAuthorizer, RuleCover
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.admission import AdmissionOperation, WriteRequest

Owns = Callable[[User, str], bool]
Place = Callable[[str, str], str | None]
"""Returns the node of a pod by namespace and name: "" if the pod is not bound, None if the pod does not exist."""

_METADATA_FIELDS = ("ownerReferences", "finalizers")

_MAX_LISTED = 5
"""Maximum number of rules in a refusal."""
_MAX_LISTED_WORDS = 20
"""Maximum number of verbs, resources and names of each rule in a refusal."""
_MAX_WORD_LENGTH = 64
"""Maximum characters of each verb, resource and name. A name can have up to one megabyte, and is repeated for each group."""

_RESERVED_LEASES = {name: election for election, name in ELECTION_LEASES.items()}


class NodeRestriction:
    """`owns(user, node)` reports whether the node belongs to the user's fleet. `validate` raises Rejected."""

    validated_operations = (
        (AdmissionOperation.CREATE, NODES),
        (AdmissionOperation.UPDATE, NODES),
        (AdmissionOperation.UPDATE_STATUS, NODES),
        (AdmissionOperation.UPDATE_STATUS, PODS),
        (AdmissionOperation.DELETE, PODS),
        (AdmissionOperation.CREATE, EVENTS),
        (AdmissionOperation.UPDATE, EVENTS),
    )

    def __init__(self, owns: Owns, place: Place) -> None:
        self._owns = owns
        self._place = place

    def validate(
        self,
        request: WriteRequest,
        operation: AdmissionOperation,
        obj: Node | Pod | Event | None,
        old: Node | Pod | Event | None,
    ) -> None:
        user = request.user
        if user.fleet is None:
            return
        match obj, old:
            case (_, Pod()):
                self._check_pod(user, old)
            case (Event(), _):
                self._check_event(user, obj)
                if isinstance(old, Event):
                    self._check_event(user, old)
            case (Node(), None):
                for field in _METADATA_FIELDS:
                    if getattr(obj.metadata, field):
                        raise _forbid_node_change(obj.metadata.name, f"is not allowed to set {field}")
                _check_labels(user, obj.metadata.name, {}, obj.metadata.labels, "set the following labels")
            case (Node(), Node()) if operation is AdmissionOperation.UPDATE:
                _check_spec_update(user, obj, old)
            case (Node(), Node()):
                _check_capacity(obj, old)

    def _check_pod(self, user: User, pod: Pod) -> None:
        if not pod.spec.nodeName or not self._owns(user, pod.spec.nodeName):
            where = f'is bound to node "{pod.spec.nodeName}"' if pod.spec.nodeName else "is not bound to a node"
            message = (
                f'pods "{pod.metadata.name}" is forbidden: it {where}; User "{user.name}" can only write pods of its own nodes'
            )
            raise Rejected(errors.forbidden(message))

    def _check_event(self, user: User, event: Event) -> None:
        about = event.involvedObject
        match about.kind:
            case "Node":
                own = self._owns(user, about.name)
            case "Pod":
                node = self._place(about.namespace, about.name)
                own = node is None or (bool(node) and self._owns(user, node))
            case _:
                own = False
        if not own:
            message = (
                f'events "{event.metadata.name}" is forbidden: it is about {about.kind} "{about.name}"; User "{user.name}" '
                "can only record events about its own nodes and their pods"
            )
            raise Rejected(errors.forbidden(message))


def _check_spec_update(user: User, node: Node, old: Node) -> None:
    name = node.metadata.name
    _check_labels(user, name, old.metadata.labels, node.metadata.labels, "modify labels")
    new, before = _taints_by_encoding(node), _taints_by_encoding(old)
    if not new.keys() <= before.keys() or any(before[gone].key != NOT_READY_TAINT for gone in before.keys() - new.keys()):
        raise _forbid_node_change(name, "is not allowed to modify taints")
    if node.spec.unschedulable != old.spec.unschedulable:
        raise _forbid_node_change(name, "is not allowed to cordon or uncordon its nodes")
    for field in _METADATA_FIELDS:
        if getattr(node.metadata, field) != getattr(old.metadata, field):
            raise _forbid_node_change(name, f"is not allowed to modify {field}")


def _check_labels(user: User, name: str, old: Mapping[str, str], new: Mapping[str, str], what: str) -> None:
    """Refuse changes of restricted labels. `what` describes the change in Kubernetes' words. A fleet can set its fleet label on
    nodes that its certificate names."""
    changed = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    if name in user.nodes and is_fleet(user, new.get(FLEET_LABEL, "")):
        changed.discard(FLEET_LABEL)
    if refused := sorted(filter(is_restricted, changed)):
        raise _forbid_node_change(name, f"is not allowed to {what}: {', '.join(refused)}")


def _taints_by_encoding(node: Node) -> dict[bytes, Taint]:
    """Return the taints by their serialized form."""
    return {taint.SerializeToString(): taint for taint in node.spec.taints}


def _check_capacity(node: Node, old: Node) -> None:
    """Refuse changes of a reported capacity, and values of allocatable above capacity. A kubelet can add extended resources to
    capacity, and can set any allocatable value up to capacity."""
    name, before, after = node.metadata.name, old.status.capacity, node.status.capacity
    if before and before != after:
        native = {resource: after[resource] for resource in after if resource in before or resource not in NATIVE}
        if native != {resource: before[resource] for resource in before}:
            raise _forbid_node_change(name, "is not allowed to modify status.capacity of a node that has been admitted")
    if node.status.allocatable != old.status.allocatable:
        known = old.status.allocatable
        for resource, value in node.status.allocatable.items():
            if (resource not in known or value != known[resource]) and _exceeds_capacity(resource, value, after):
                raise _forbid_node_change(
                    name, f"is not allowed to set status.allocatable of {resource} above the node's capacity"
                )


def _exceeds_capacity(resource: str, value: Quantity, capacity: Mapping[str, Quantity]) -> bool:
    """Report whether the value exceeds the capacity. Invalid quantities return False, because validation refuses them."""
    try:
        return amount(resource, value.string) > (amount(resource, capacity[resource].string) if resource in capacity else 0)
    except QuantityError:
        return False


def _forbid_node_change(name: str, what: str) -> Rejected:
    return Rejected(errors.forbidden(f'nodes "{name}" is forbidden: a kubelet {what}'))


class RoleEscalation:
    validated_operations = tuple(
        (operation, resource)
        for operation in (AdmissionOperation.CREATE, AdmissionOperation.UPDATE)
        for resource in (ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS)
    )

    def __init__(self, rbac: RbacAuthorizer) -> None:
        self._rbac = rbac

    def validate(
        self,
        request: WriteRequest,
        operation: AdmissionOperation,
        obj: Role | ClusterRole | RoleBinding | ClusterRoleBinding,
        old: Role | ClusterRole | RoleBinding | ClusterRoleBinding | None,
    ) -> None:
        if MASTERS in request.user.groups or (old is not None and _copy_permission_fields(obj) == _copy_permission_fields(old)):
            return
        if isinstance(obj, Role | ClusterRole):
            self._check_role(request.user, obj, old)
        else:
            self._check_binding(request.user, obj)

    def _check_role(self, user: User, role: Role | ClusterRole, old: Any) -> None:
        name, namespace = role.metadata.name, role.metadata.namespace
        resource = CLUSTER_ROLES if isinstance(role, ClusterRole) else ROLES
        if self._is_allowed(user, "escalate", resource is CLUSTER_ROLES, namespace, name if old is not None else ""):
            return
        gathers = any(
            isinstance(role_version, ClusterRole) and role_version.HasField("aggregationRule") for role_version in (role, old)
        )
        self._check_holds_rules(user, namespace, [*role.rules, *(ALL_RULES if gathers else ())], f'{resource.plural} "{name}"')

    def _check_binding(self, user: User, binding: RoleBinding | ClusterRoleBinding) -> None:
        namespace, role = binding.metadata.namespace, binding.roleRef
        if self._is_allowed(user, "bind", role.kind == "ClusterRole", namespace, role.name):
            return
        rules = self._rbac.rules(role, namespace)
        if rules is None:
            raise Rejected(
                errors.forbidden(f'{role.kind} "{role.name}" does not exist: a binding to it requires the verb "bind"')
            )
        resource = ROLE_BINDINGS if isinstance(binding, RoleBinding) else CLUSTER_ROLE_BINDINGS
        self._check_holds_rules(user, namespace, rules, f'{resource.plural} "{binding.metadata.name}"')

    def _is_allowed(self, user: User, verb: str, cluster_role: bool, namespace: str, name: str) -> bool:
        action = resource_action(CLUSTER_ROLES if cluster_role else ROLES, verb)
        return self._rbac.decisions(user, action).decide(ActionTarget(namespace, name)).allowed

    def _check_holds_rules(self, user: User, namespace: str, wanted: Sequence[PolicyRule], what: str) -> None:
        held = RuleCover(rule for grant in self._rbac.grants(user, namespace) for rule in grant.rules)
        lacking = [rule for rule in wanted if not held.covers(rule)]
        if lacking:
            message = f'{what} is forbidden: user "{user.name}" is attempting to grant RBAC permissions not currently held: '
            message += "; ".join(map(_format_rule, lacking[:_MAX_LISTED])) + (
                f"; and {len(lacking) - _MAX_LISTED} more" if lacking[_MAX_LISTED:] else ""
            )
            raise Rejected(errors.forbidden(message))


def _copy_permission_fields(obj: Role | ClusterRole | RoleBinding | ClusterRoleBinding) -> Any:
    """Return a copy with all fields that affect permissions. Labels are included, because aggregated roles select by label."""
    copy: Any = type(obj)()
    copy.CopyFrom(obj)
    for field in ("finalizers", "managedFields", "ownerReferences", "resourceVersion"):
        copy.metadata.ClearField(field)
    return copy


def _format_rule(rule: PolicyRule) -> str:
    """Format a rule for a message, such as "get, list pods, nodes"."""
    things = chain(
        map(_truncate, rule.nonResourceURLs),
        (
            f"{_truncate(name)}.{_truncate(group)}" if group else _truncate(name)
            for name in rule.resources
            for group in rule.apiGroups
        ),
    )
    names = f" named {_join_limited(map(_truncate, rule.resourceNames))}" if rule.resourceNames else ""
    return f"{_join_limited(map(_truncate, rule.verbs))} {_join_limited(things)}{names}"


def _join_limited(words: Iterable[str]) -> str:
    shown = list(islice(words, _MAX_LISTED_WORDS + 1))
    return ", ".join(shown[:_MAX_LISTED_WORDS]) + (", ..." if shown[_MAX_LISTED_WORDS:] else "")


def _truncate(word: str) -> str:
    return word if len(word) <= _MAX_WORD_LENGTH else word[:_MAX_WORD_LENGTH] + "..."


class ElectionLeases:
    validated_operations = tuple(
        (operation, LEASES) for operation in (AdmissionOperation.CREATE, AdmissionOperation.UPDATE, AdmissionOperation.DELETE)
    )

    def validate(self, request: WriteRequest, operation: AdmissionOperation, obj: Lease | None, old: Lease | None) -> None:
        """Raise Rejected if the write is not allowed."""
        lease = old if old is not None else obj
        if lease is None or lease.metadata.namespace != SYSTEM_NAMESPACE:
            return
        if election := _election_of_lease(lease.metadata.name, old):
            what = f'leases.coordination.k8s.io "{lease.metadata.name}" is forbidden: the Lease of election "{election}"'
            way = f"run `pinnace leader transfer {election}` to change the leader"
            raise Rejected(errors.forbidden(f"{what} is read-only; {way}"))


def _election_of_lease(name: str, old: Lease | None) -> str:
    """Return the election that the Lease represents; "" if there is none."""
    election, _, token = old.metadata.annotations.get(FENCE_ANNOTATION, "").rpartition("/") if old is not None else ("",) * 3
    return election if parse_natural(token) is not None else _RESERVED_LEASES.get(name, "")
