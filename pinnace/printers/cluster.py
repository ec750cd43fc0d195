"""The tables of nodes, namespaces, events, leases, policies, roles, configuration and API services.

Source: Kubernetes, pkg/printers/internalversion/printers.go.
"""

from pinnace.api import conditions
from pinnace.api.apiextensions_v1_pb2 import CustomResourceDefinition
from pinnace.api.apiregistration_v1_pb2 import APIService
from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.core_v1_pb2 import ConfigMap, Event, LimitRange, Namespace, Node, ResourceQuota, Secret, ServiceAccount
from pinnace.api.meta_v1_pb2 import MicroTime, Time
from pinnace.api.node_v1_pb2 import RuntimeClass
from pinnace.api.rbac_v1_pb2 import ClusterRole, ClusterRoleBinding, Role, RoleBinding
from pinnace.api.resources import by_kind
from pinnace.api.scalars import to_seconds
from pinnace.api.scheduling_v1_pb2 import PriorityClass
from pinnace.printers.columns import NONE, Columns, format_age, format_time, is_set

_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE = "kubernetes.io/role"
CUSTOM_RESOURCE_DEFINITIONS: Columns[CustomResourceDefinition] = Columns(
    ("NAME", "CREATED AT"),
    (),
    lambda definition, now: (definition.metadata.name, format_time(definition.metadata.creationTimestamp)),
)


def node_row(node: Node, now: float) -> tuple[str, ...]:
    info = node.status.nodeInfo
    return (
        node.metadata.name,
        node_status(node),
        ",".join(node_roles(node)) or NONE,
        format_age(node.metadata.creationTimestamp, now),
        info.kubeletVersion,
        node_address(node, "InternalIP"),
        info.osImage or "<unknown>",
        info.containerRuntimeVersion or "<unknown>",
    )


NODES = Columns(
    headers=("NAME", "STATUS", "ROLES", "AGE", "VERSION"),
    wide=("INTERNAL-IP", "OS-IMAGE", "CONTAINER-RUNTIME"),
    row=node_row,
)


def node_status(node: Node) -> str:
    """ "Ready", "NotReady" or "Unknown", and ",SchedulingDisabled" for cordoned nodes."""
    ready = conditions.find_condition(node.status.conditions, "Ready")
    word = "Unknown" if ready is None else "Ready" if ready.status == "True" else "NotReady"
    return f"{word},SchedulingDisabled" if node.spec.unschedulable else word


def node_roles(node: Node) -> list[str]:
    labels = node.metadata.labels
    named = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    return sorted((named | {labels.get(_ROLE, "")}) - {""})


def node_address(node: Node, kind: str) -> str:
    return next((address.address for address in node.status.addresses if address.type == kind), NONE)


def namespace_row(namespace: Namespace, now: float) -> tuple[str, ...]:
    return namespace.metadata.name, namespace.status.phase, format_age(namespace.metadata.creationTimestamp, now)


NAMESPACES = Columns(headers=("NAME", "STATUS", "AGE"), wide=(), row=namespace_row)


def first_seen(event: Event) -> Time | MicroTime:
    return event.firstTimestamp if is_set(event.firstTimestamp) else event.eventTime


def last_seen(event: Event) -> Time | MicroTime:
    for instant in (event.series.lastObservedTime, event.lastTimestamp):
        if is_set(instant):
            return instant
    return first_seen(event)


def event_count(event: Event) -> int:
    return event.series.count or event.count or 1


def event_time(event: Event) -> tuple[float, int]:
    """Sort key: the last occurrence in Unix time with the available precision, then the order of storage."""
    last = to_seconds(last_seen(event))
    exact = to_seconds(event.eventTime)  # lastTimestamp has whole seconds; eventTime is of the first occurrence
    revision = event.metadata.resourceVersion
    return exact if int(exact) == last else last, int(revision) if revision.isdecimal() else 0


def event_target(event: Event) -> str:
    """The involved object, such as "pod/a"."""
    about = event.involvedObject
    resource = by_kind(about.kind, about.apiVersion or "v1")
    return f"{resource.kind.lower() if resource else about.kind.lower()}/{about.name}"


def event_reporter(event: Event) -> str:
    component = event.reportingComponent or event.source.component
    instance = event.reportingInstance or event.source.host
    return f"{component}, {instance}" if component and instance else component or instance or NONE


def format_occurrences(event: Event, now: float) -> str:
    """ "5s", or "5s (x3 over 10m)" for a repeated event."""
    last, times = format_age(last_seen(event), now), event_count(event)
    return last if times == 1 else f"{last} (x{times} over {format_age(first_seen(event), now)})"


def event_row(event: Event, now: float) -> tuple[str, ...]:
    return (
        format_occurrences(event, now),
        event.type,
        event.reason,
        event_target(event),
        event.message.strip(),
        event_reporter(event),
        format_age(first_seen(event), now),
        str(event_count(event)),
        event.metadata.name,
    )


EVENTS = Columns(
    headers=("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"),
    wide=("SOURCE", "FIRST SEEN", "COUNT", "NAME"),
    row=event_row,
)


def lease_row(lease: Lease, now: float) -> tuple[str, ...]:
    return lease.metadata.name, lease.spec.holderIdentity or NONE, format_age(lease.metadata.creationTimestamp, now)


LEASES = Columns(headers=("NAME", "HOLDER", "AGE"), wide=(), row=lease_row)


def priority_class_row(priority_class: PriorityClass, now: float) -> tuple[str, ...]:
    return (
        priority_class.metadata.name,
        str(priority_class.value),
        "true" if priority_class.globalDefault else "false",
        format_age(priority_class.metadata.creationTimestamp, now),
        priority_class.preemptionPolicy or "PreemptLowerPriority",
    )


PRIORITY_CLASSES = Columns(
    headers=("NAME", "VALUE", "GLOBAL-DEFAULT", "AGE", "PREEMPTIONPOLICY"), wide=(), row=priority_class_row
)


def limit_range_row(limit_range: LimitRange, now: float) -> tuple[str, ...]:
    return limit_range.metadata.name, format_time(limit_range.metadata.creationTimestamp)


LIMIT_RANGES = Columns(headers=("NAME", "CREATED AT"), wide=(), row=limit_range_row)


def resource_quota_row(quota: ResourceQuota, now: float) -> tuple[str, ...]:
    shown = {name: f"{name}: {used}/{hard}" for name, used, hard in quota_usage(quota)}
    return (
        quota.metadata.name,
        ", ".join(text for name, text in shown.items() if not name.startswith("limits.")),
        ", ".join(text for name, text in shown.items() if name.startswith("limits.")),
        format_age(quota.metadata.creationTimestamp, now),
    )


RESOURCE_QUOTAS = Columns(headers=("NAME", "REQUEST", "LIMIT", "AGE"), wide=(), row=resource_quota_row)


def quota_usage(quota: ResourceQuota) -> list[tuple[str, str, str]]:
    """Used and hard amounts by resource name."""
    hard, used = quota.status.hard, quota.status.used
    return [(name, used[name].string if name in used else "0", hard[name].string) for name in sorted(hard)]


def role_row(role: Role | ClusterRole, now: float) -> tuple[str, ...]:
    return role.metadata.name, format_time(role.metadata.creationTimestamp)


ROLES = Columns(headers=("NAME", "CREATED AT"), wide=(), row=role_row)


def role_binding_row(binding: RoleBinding | ClusterRoleBinding, now: float) -> tuple[str, ...]:
    role = binding.roleRef
    return (
        binding.metadata.name,
        f"{role.kind}/{role.name}",
        format_age(binding.metadata.creationTimestamp, now),
        *(", ".join(subject_names(binding, kind)) for kind in ("User", "Group", "ServiceAccount")),
    )


ROLE_BINDINGS = Columns(headers=("NAME", "ROLE", "AGE"), wide=("USERS", "GROUPS", "SERVICEACCOUNTS"), row=role_binding_row)


def subject_names(binding: RoleBinding | ClusterRoleBinding, kind: str) -> list[str]:
    """Names of the subjects of one kind; "namespace/name" of those that have a namespace."""
    return ["/".join(filter(None, (subject.namespace, subject.name))) for subject in binding.subjects if subject.kind == kind]


def config_map_row(config_map: ConfigMap, now: float) -> tuple[str, ...]:
    size = len(config_map.data) + len(config_map.binaryData)
    return config_map.metadata.name, str(size), format_age(config_map.metadata.creationTimestamp, now)


CONFIG_MAPS = Columns(headers=("NAME", "DATA", "AGE"), wide=(), row=config_map_row)


def secret_row(secret: Secret, now: float) -> tuple[str, ...]:
    return secret.metadata.name, secret.type, str(len(secret.data)), format_age(secret.metadata.creationTimestamp, now)


SECRETS = Columns(headers=("NAME", "TYPE", "DATA", "AGE"), wide=(), row=secret_row)


def runtime_class_row(runtime_class: RuntimeClass, now: float) -> tuple[str, ...]:
    metadata = runtime_class.metadata
    return metadata.name, runtime_class.handler, format_age(metadata.creationTimestamp, now)


RUNTIME_CLASSES = Columns(headers=("NAME", "HANDLER", "AGE"), wide=(), row=runtime_class_row)


def service_account_row(account: ServiceAccount, now: float) -> tuple[str, ...]:
    return account.metadata.name, format_age(account.metadata.creationTimestamp, now)


SERVICE_ACCOUNTS = Columns(headers=("NAME", "AGE"), wide=(), row=service_account_row)


def api_service_row(api_service: APIService, now: float) -> tuple[str, ...]:
    metadata, target = api_service.metadata, api_service.spec.service
    available = conditions.find_condition(api_service.status.conditions, "Available")
    status = available.status if available is not None else "Unknown"
    if available is not None and status != "True":
        status = f"{status} ({available.reason})"
    where = f"{target.namespace}/{target.name}" if api_service.spec.HasField("service") else "Local"
    return metadata.name, where, status, format_age(metadata.creationTimestamp, now)


API_SERVICES = Columns(headers=("NAME", "SERVICE", "AVAILABLE", "AGE"), wide=(), row=api_service_row)
