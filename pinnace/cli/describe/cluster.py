"""Descriptions of nodes, namespaces, quotas, limit ranges, roles, role bindings, config maps, secrets and
service accounts. For secrets, only the sizes of the values are shown.

Source: kubectl, pkg/describe: NamespaceDescriber, ResourceQuotaDescriber, LimitRangeDescriber, RoleDescriber,
ClusterRoleDescriber, RoleBindingDescriber, ClusterRoleBindingDescriber, ConfigMapDescriber, SecretDescriber,
ServiceAccountDescriber.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pinnace.api import quantity
from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.core_v1_pb2 import (
    ConfigMap,
    LimitRange,
    LimitRangeItem,
    Namespace,
    Node,
    Pod,
    ResourceQuota,
    ScopedResourceSelectorRequirement,
    Secret,
    ServiceAccount,
    Taint,
)
from pinnace.api.pods import ended
from pinnace.api.rbac_v1_pb2 import ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.selectors import from_message
from pinnace.cli.describe.text import NONE, Fields, NotShown, Rows, Value, annotations, head, instant, pairs
from pinnace.fit.requests import pod_requests, spec_limits
from pinnace.printers.cluster import roles, usage
from pinnace.printers.columns import since


def describe_node(node: Node, lease: Lease | NotShown | None, pods: Sequence[Pod] | NotShown, now: float) -> Fields:
    """Describe a node. `pods` are the pods on it; terminated pods are excluded. `lease` is the heartbeat of the node."""
    meta, info = node.metadata, node.status.nodeInfo
    return {
        "Name": meta.name,
        "Roles": ",".join(roles(node)) or NONE,
        "Labels": pairs(meta.labels),
        "Annotations": annotations(meta),
        "CreationTimestamp": instant(meta.creationTimestamp) or NONE,
        "Taints": [taint(t) for t in node.spec.taints],
        "Unschedulable": str(node.spec.unschedulable).lower(),
        "Lease": _lease(lease),
        "Conditions": Rows(
            ("Type", "Status", "LastTransitionTime", "Reason", "Message"),
            [(c.type, c.status, instant(c.lastTransitionTime), c.reason, c.message) for c in node.status.conditions],
        ),
        "Addresses": {address.type: address.address for address in node.status.addresses},
        "Capacity": _quantities(node.status.capacity),
        "Allocatable": _quantities(node.status.allocatable),
        "System Info": _system_info(info.kubeletVersion, info.osImage, info.containerRuntimeVersion),
        **_taken(node, pods, now),
    }


def taint(taint: Taint) -> str:
    """Format a taint as in arguments: "key=value:Effect"."""
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"


def _taken(node: Node, pods: Sequence[Pod] | NotShown, now: float) -> Fields:
    if isinstance(pods, NotShown):
        return {"Non-terminated Pods": pods, "Allocated resources": pods}
    alive = [pod for pod in pods if not ended(pod)]
    return {
        f"Non-terminated Pods ({len(alive)} in total)": _pods(node, alive, now),
        "Allocated resources": _allocated(node, alive),
    }


def _lease(lease: Lease | NotShown | None) -> str:
    """The lease exists while the kubelet sends heartbeats. Individual heartbeats are not written."""
    if isinstance(lease, NotShown):
        return lease
    return f"held by {lease.spec.holderIdentity}" if lease else f"{NONE} (no heartbeats)"


def _quantities(quantities: Mapping[str, Quantity]) -> Fields:
    return {name: amount.string for name, amount in sorted(quantities.items())}


def _system_info(kubelet: str, image: str, runtime: str) -> Fields:
    known = (("Kubelet Version", kubelet), ("OS Image", image), ("Container Runtime Version", runtime))
    return {label: text for label, text in known if text}


def _pods(node: Node, pods: Sequence[Pod], now: float) -> Value:
    allocatable = quantity.amounts(node.status.allocatable)
    rows = []
    for pod in pods:
        asked = (_requests(pod), spec_limits(pod.spec))
        shares = [_share(name, amounts.get(name, 0), allocatable) for name in ("cpu", "memory") for amounts in asked]
        rows.append((pod.metadata.namespace, pod.metadata.name, *shares, since(pod.metadata.creationTimestamp, now)))
    headers = ("Namespace", "Name", "CPU Requests", "CPU Limits", "Memory Requests", "Memory Limits", "Age")
    return Rows(headers, rows)


def _allocated(node: Node, pods: Sequence[Pod]) -> Value:
    """Return the sums of requests and limits by resource, with percentages of the allocatable amounts."""
    allocatable = quantity.amounts(node.status.allocatable)
    requests, limits = Counter[str](), Counter[str]()
    for pod in pods:
        requests.update(_requests(pod))
        limits.update(spec_limits(pod.spec))
    names = sorted(allocatable.keys() | requests.keys() | limits.keys())
    rows = [(name, *(_share(name, amounts[name], allocatable) for amounts in (requests, limits))) for name in names]
    return Rows(("Resource", "Requests", "Limits"), rows)


def _requests(pod: Pod) -> dict[str, int]:
    return dict(pod_requests(pod).amounts)


def _share(name: str, amount: int, allocatable: Mapping[str, int]) -> str:
    """Format an amount with its percentage of the allocatable amount: "500m (12%)"."""
    of = allocatable.get(name, 0)
    return f"{quantity.format_amount(name, amount)} ({amount * 100 // of}%)" if of else quantity.format_amount(name, amount)


def describe_namespace(
    namespace: Namespace, quotas: Iterable[ResourceQuota] | NotShown, ranges: Iterable[LimitRange] | NotShown
) -> Fields:
    """Describe a namespace. `quotas` and `ranges` are its quotas and limit ranges."""
    fields: dict[str, Value] = {**head(namespace.metadata), "Status": namespace.status.phase}
    if namespace.status.conditions:
        conditions = [(c.type, c.status, c.reason, c.message) for c in namespace.status.conditions]
        fields["Conditions"] = Rows(("Type", "Status", "Reason", "Message"), conditions)
    fields["Resource Quotas"] = (
        quotas if isinstance(quotas, NotShown) else {each.metadata.name: resource_quota_table(each) for each in quotas}
    )
    fields["Limit Ranges"] = (
        ranges if isinstance(ranges, NotShown) else {each.metadata.name: limit_range_table(each) for each in ranges}
    )
    return fields


def describe_resource_quota(quota: ResourceQuota) -> Fields:
    fields = head(quota.metadata)
    if quota.spec.scopes:
        fields["Scopes"] = ", ".join(sorted(quota.spec.scopes))
    if requirements := quota.spec.scopeSelector.matchExpressions:
        fields["Scope Selector"] = [_requirement(requirement) for requirement in requirements]
    fields["Resources"] = resource_quota_table(quota)
    return fields


def resource_quota_table(quota: ResourceQuota) -> Rows:
    return Rows(("Resource", "Used", "Hard"), usage(quota))


def _requirement(requirement: ScopedResourceSelectorRequirement) -> str:
    """Format a scope selector requirement: "PriorityClass In high, low", "BestEffort Exists"."""
    return f"{requirement.scopeName} {requirement.operator} {', '.join(requirement.values)}".rstrip()


HEADERS = ("Type", "Resource", "Min", "Max", "Default Request", "Default Limit", "Max Limit/Request Ratio")
UNSET = "-"


def describe_limit_range(limit_range: LimitRange) -> Fields:
    return {**head(limit_range.metadata), "Limits": limit_range_table(limit_range)}


def limit_range_table(limit_range: LimitRange) -> Rows:
    return Rows(HEADERS, [row for item in limit_range.spec.limits for row in _rows(item)])


def _rows(item: LimitRangeItem) -> Iterator[tuple[str, ...]]:
    columns = (item.min, item.max, item.defaultRequest, item.default, item.maxLimitRequestRatio)
    for name in sorted({name for amounts in columns for name in amounts}):
        yield item.type, name, *(amounts[name].string if name in amounts else UNSET for amounts in columns)


Thing = tuple[str, str, str]
"""A resource, a non-resource URL, and the name of an object; "" if the rule has none."""


def describe_role(role: Role | ClusterRole) -> Fields:
    fields = head(role.metadata)
    if isinstance(role, ClusterRole) and role.HasField("aggregationRule"):
        selectors = role.aggregationRule.clusterRoleSelectors
        fields["Aggregates"] = [str(from_message(selector)) or "<all>" for selector in selectors]
    fields["PolicyRule"] = Rows(("Resources", "Non-Resource URLs", "Resource Names", "Verbs"), _rule_rows(role.rules))
    return fields


def _rule_rows(rules: Iterable[PolicyRule]) -> list[tuple[str, ...]]:
    """Return a row for each distinct target in the order of the rules, with the verbs of all rules."""
    verbs: dict[Thing, dict[str, None]] = {}
    for rule in rules:
        for thing in _things(rule):
            verbs.setdefault(thing, {}).update(dict.fromkeys(rule.verbs))
    return [(resource, f"[{path}]", f"[{name}]", f"[{' '.join(said)}]") for (resource, path, name), said in verbs.items()]


def _things(rule: PolicyRule) -> Iterator[Thing]:
    for path in rule.nonResourceURLs:
        yield "", path, ""
    for group in rule.apiGroups:
        for resource in rule.resources:
            for name in rule.resourceNames or ("",):
                yield _in_group(resource, group), "", name


def _in_group(resource: str, group: str) -> str:
    """Format a resource with its API group: "pods", "deployments.apps", "deployments.apps/scale"."""
    plural, slash, subresource = resource.partition("/")
    return f"{plural}{f'.{group}' if group else ''}{slash}{subresource}"


def describe_role_binding(binding: RoleBinding | ClusterRoleBinding) -> Fields:
    subjects = [(subject.kind, subject.name, subject.namespace) for subject in binding.subjects]
    return {
        **head(binding.metadata),
        "Role": {"Kind": binding.roleRef.kind, "Name": binding.roleRef.name},
        "Subjects": Rows(("Kind", "Name", "Namespace"), subjects),
    }


def describe_config_map(config_map: ConfigMap) -> Fields:
    """Split text values into lines."""
    texts: dict[str, Value] = {key: config_map.data[key].splitlines() for key in sorted(config_map.data)}
    return {**head(config_map.metadata), **_immutable(config_map), "Data": texts, "BinaryData": _sizes(config_map.binaryData)}


def describe_secret(secret: Secret) -> Fields:
    return {**head(secret.metadata), "Type": secret.type, **_immutable(secret), "Data": _sizes(secret.data)}


def describe_service_account(account: ServiceAccount) -> Fields:
    fields: dict[str, Value] = head(account.metadata)
    fields["Image pull secrets"] = [each.name for each in account.imagePullSecrets]
    fields["Mountable secrets"] = [each.name for each in account.secrets]
    return fields


def _immutable(obj: ConfigMap | Secret) -> dict[str, Value]:
    return {"Immutable": "true"} if obj.immutable else {}


def _sizes(data: Mapping[str, bytes]) -> dict[str, Value]:
    return {key: f"{len(data[key])} bytes" for key in sorted(data)}
