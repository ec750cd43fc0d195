"""The roles and bindings that every cluster has, under Kubernetes' names.

Each server puts back at its start what is missing of them; what an administrator has added stays. An object with the annotation
rbac.authorization.kubernetes.io/autoupdate: "false" is left as it is.

    view --> edit --> admin      each gathers the one before, and what is labelled for it:
                                 rbac.authorization.k8s.io/aggregate-to-<role>: "true"

Source: https://kubernetes.io/docs/reference/access-authn-authz/rbac/#default-roles-and-role-bindings
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from apiserver.auth.authentication import AUTHENTICATED, MASTERS
from apiserver.auth.permissions import ELECTIONS_GROUP, HEALTH, METRICS_GROUP, REFLECTION, REVIEWS_GROUP, VERSION
from apiserver.auth.rbac import EVERYTHING
from pinnace.api.rbac_v1_pb2 import ClusterRole, ClusterRoleBinding, PolicyRule
from pinnace.api.resources import (
    ALL,
    COLLECTED,
    CSI_NODES,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    EVENTS,
    JOBS,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    ROLE_BINDINGS,
    ROLES,
    SERVICES,
    STORAGE_CLASSES,
    Resource,
)
from pinnace.api.wellknown import CONTROLLERS_ELECTION, SCHEDULER_ELECTION

AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"
_BOOTSTRAPPING = "kubernetes.io/bootstrapping"
_GROUP = "rbac.authorization.k8s.io"
_AGGREGATE_TO = f"{_GROUP}/aggregate-to-"
_READ = ("get", "list", "watch")
_WRITE = ("create", "update", "patch", "delete", "deletecollection")
_SCHEDULED_BY = (
    NODES, NAMESPACES, PRIORITY_CLASSES, PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS, STORAGE_CLASSES, CSI_NODES, SERVICES,
    POD_DISRUPTION_BUDGETS,
)  # fmt: skip
"""What the scheduler looks at beside pods."""
_EDITED = (PODS, SERVICES, PERSISTENT_VOLUME_CLAIMS, POD_DISRUPTION_BUDGETS, DEPLOYMENTS, REPLICA_SETS, JOBS)
_SEEN = (*_EDITED, LIMIT_RANGES, RESOURCE_QUOTAS, EVENTS, ENDPOINT_SLICES)
"""What a viewer sees of a namespace."""
_KEPT = (
    PODS, NODES, PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS, RESOURCE_QUOTAS, POD_DISRUPTION_BUDGETS, DEPLOYMENTS,
    REPLICA_SETS, JOBS,
)  # fmt: skip
"""What controllers keep the status of."""
_VIEW = "view"
_METERED = PolicyRule(verbs=_READ, apiGroups=[METRICS_GROUP], resources=[PODS.plural, NODES.plural])
"""Source: https://github.com/kubernetes-sigs/metrics-server, the role system:aggregated-metrics-reader."""


def cluster_roles() -> Iterator[ClusterRole]:
    see = [*_rules(_READ, _SEEN), _rule(_READ, [NAMESPACES]), _rule(_READ, [PODS], "log"), _METERED]
    edit = [
        *see,
        *_rules(_WRITE, _EDITED),
        _rule(("patch",), [PODS], "resize"),
        *(_rule(("create",), [PODS], each) for each in ("eviction", "exec")),
    ]
    yield _role("cluster-admin", EVERYTHING)
    yield _gathering(_role("admin", [*edit, *_rules((*_READ, *_WRITE), [ROLES, ROLE_BINDINGS])]))
    yield _gathering(_role("edit", edit), part_of="admin")
    yield _gathering(_role(_VIEW, see), part_of="edit")
    yield _role("cluster-view", [*_rules(_READ, ALL), _rule(_READ, [PODS], "log"), _METERED, _elections("get", "list")])
    yield _role("system:basic-user", [_reviews("selfsubjectreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews")])
    yield _role("system:public-info-viewer", [PolicyRule(verbs=["get"], nonResourceURLs=[HEALTH, VERSION])])
    yield _role("system:discovery", [PolicyRule(verbs=["get"], nonResourceURLs=[HEALTH, REFLECTION, VERSION])])
    yield _role("system:kube-scheduler", _scheduler())
    yield _role("system:kube-controller-manager", _controllers())
    yield _role("system:gateway", [PolicyRule(verbs=["impersonate"], apiGroups=[""], resources=["users", "groups"])])


def cluster_role_bindings() -> Iterator[ClusterRoleBinding]:
    yield _binding("cluster-admin", "Group", MASTERS)
    for role in ("system:basic-user", "system:public-info-viewer", "system:discovery"):
        yield _binding(role, "Group", AUTHENTICATED)
    for component in ("system:kube-scheduler", "system:kube-controller-manager", "system:gateway"):
        yield _binding(component, "User", component)


def _scheduler() -> list[PolicyRule]:
    return [
        *_rules(_READ, _SCHEDULED_BY),
        _rule((*_READ, "delete"), [PODS]),
        _rule(("create",), [PODS], "binding"),
        _rule(("update", "patch"), [PODS], "status"),
        # Also their status, unlike in Kubernetes: there is no volume controller that would write it.
        *(_rule(("update", "patch"), [PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS], part) for part in ("", "status")),
        _rule(("create", "update", "patch"), [EVENTS]),
        _elections("get", "campaign", of=SCHEDULER_ELECTION),
        # All names: which profiles the cluster's own schedulers have is in their configuration.
        PolicyRule(verbs=["campaign"], apiGroups=[ELECTIONS_GROUP], resources=["schedulers"]),
    ]


def _controllers() -> list[PolicyRule]:
    """One identity for all of them, until each has its own.

    What belonged to an owner or a namespace that is gone is theirs to delete, whatever it is; to say who may do what, or which
    node is alive, is not.
    """
    return [
        *_rules(_READ, ALL),
        *_rules(("update", "patch", "delete"), COLLECTED),
        *_rules(("delete", "deletecollection"), [resource for resource in ALL if resource.namespaced]),
        *_rules(("create",), (PODS, REPLICA_SETS, JOBS, ENDPOINT_SLICES)),
        *_rules(("update", "patch"), _KEPT, "status"),
        _rule(("create", "update", "patch"), [EVENTS]),
        _elections("get", "campaign", of=CONTROLLERS_ELECTION),
        _elections("list"),
    ]


def _rules(verbs: Iterable[str], resources: Iterable[Resource[Any]], subresource: str = "") -> list[PolicyRule]:
    """One for each API group."""
    groups: dict[str, list[Resource[Any]]] = {}
    for resource in resources:
        groups.setdefault(resource.group, []).append(resource)
    return [_rule(tuple(verbs), each, subresource) for each in groups.values()]


def _rule(verbs: Sequence[str], resources: Sequence[Resource[Any]], subresource: str = "") -> PolicyRule:
    """Of resources that are in one API group, or that may as well be."""
    groups = sorted({resource.group for resource in resources})
    names = [f"{resource.plural}/{subresource}" if subresource else resource.plural for resource in resources]
    return PolicyRule(verbs=verbs, apiGroups=groups, resources=names)


def _elections(*verbs: str, of: str = "") -> PolicyRule:
    """`of`: the one election; "" are all. Kubernetes' roles, too, name the lease that a component leads by."""
    return PolicyRule(verbs=verbs, apiGroups=[ELECTIONS_GROUP], resources=["elections"], resourceNames=[of] if of else ())


def _reviews(*resources: str) -> PolicyRule:
    return PolicyRule(verbs=["create"], apiGroups=[REVIEWS_GROUP], resources=resources)


def _role(name: str, rules: Iterable[PolicyRule]) -> ClusterRole:
    role = ClusterRole(rules=rules)
    _mark(role, name)
    return role


def _gathering(role: ClusterRole, part_of: str = "") -> ClusterRole:
    """It has the rules of all that are labelled for it, and may be labelled for another itself."""
    role.aggregationRule.clusterRoleSelectors.add().matchLabels[f"{_AGGREGATE_TO}{role.metadata.name}"] = "true"
    if part_of:
        role.metadata.labels[f"{_AGGREGATE_TO}{part_of}"] = "true"
    return role


def _binding(role: str, kind: str, subject: str) -> ClusterRoleBinding:
    binding = ClusterRoleBinding()
    _mark(binding, role)
    binding.roleRef.apiGroup, binding.roleRef.kind, binding.roleRef.name = _GROUP, "ClusterRole", role
    binding.subjects.add(apiGroup=_GROUP, kind=kind, name=subject)
    return binding


def _mark(obj: ClusterRole | ClusterRoleBinding, name: str) -> None:
    obj.metadata.name = name
    obj.metadata.labels[_BOOTSTRAPPING] = "rbac-defaults"
    obj.metadata.annotations[AUTOUPDATE] = "true"
