"""Strategies of namespaces, nodes, leases, events and runtime classes.

A namespace starts as Active and has a system finalizer in its spec, which keeps it until it is empty. Other finalizers in the
spec keep it until clients remove them (Finalize). Its name must be a DNS label, because it becomes a part of other names. A
node registers with its status. Later, the kubelet writes the status, and other clients write metadata and spec. Events have no
defaults.
"""

from collections.abc import Sequence

from pinnace.api import names
from pinnace.api.codec import to_dict
from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.core_v1_pb2 import Event, Namespace, Node, NodeSpec, NodeStatus, Toleration
from pinnace.api.meta_v1_pb2 import MicroTime, Time
from pinnace.api.node_v1_pb2 import RuntimeClass
from pinnace.api.quantity import QuantityError, amounts, format_amount
from pinnace.api.resources import DEFAULT_NAMESPACE, EVENTS_V1, SYSTEM_NAMESPACE
from pinnace.api.scalars import format_rfc3339
from pinnace.api.status import Violation
from pinnace.api.verbs_pb2 import Disruption
from pinnace.api.wellknown import NAMESPACE_FINALIZER, RESERVED_ANNOTATION
from pinnace.apiserver.registry.strategy import StatusStrategy, Strategy, carry_over_fields
from pinnace.apiserver.registry.validation.fields import (
    IMMUTABLE,
    NEGATIVE,
    duplicate,
    forbidden,
    invalid,
    required,
    too_many,
    validate_capacity,
    validate_finalizer,
    validate_key,
    validate_labels,
    validate_network,
    validate_overhead,
)
from pinnace.apiserver.registry.validation.pods import validate_number, validate_taints, validate_tolerations

NAME_LABEL = "kubernetes.io/metadata.name"
"""The label by which namespace selectors select one namespace by name."""

MAX_NODE_RESOURCES = 100
"""Maximum number of resources per node. The scheduler has a column of all nodes for each resource: one node with 4,900
resources used 11 s of its CPU time on 1,000 nodes. Kubernetes has no such limit."""

_EVENT_TYPES = ("Normal", "Warning")
MAX_REASON, MAX_MESSAGE = 128, 1024
"""The maximum lengths in bytes of the reason, reportingInstance and action, and of the message."""
_IMMUTABLE_EVENT_FIELDS = (
    "involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "type", "action", "related",
    "reportingComponent", "reportingInstance",
)  # fmt: skip
"""The fields that an update in the version events.k8s.io/v1 cannot change."""


class RuntimeClassStrategy(Strategy[RuntimeClass]):
    """Source: pkg/apis/node/validation of Kubernetes 1.36."""

    def check_fields(self, obj: RuntimeClass, out: list[Violation]) -> None:
        out.extend(invalid("handler", obj.handler, problem) for problem in names.dns_label(obj.handler))
        if obj.HasField("overhead"):
            validate_overhead(obj.overhead.podFixed, "overhead.limits", out)  # Kubernetes names this field
        if obj.HasField("scheduling"):
            validate_labels(obj.scheduling.nodeSelector, "scheduling.nodeSelector", out)
            _validate_class_tolerations(obj.scheduling.tolerations, "scheduling.tolerations", out)

    def check_change(self, new: RuntimeClass, old: RuntimeClass, out: list[Violation]) -> None:
        if new.handler != old.handler:
            out.append(invalid("handler", new.handler, IMMUTABLE))


def _validate_class_tolerations(tolerations: Sequence[Toleration], path: str, out: list[Violation]) -> None:
    validate_tolerations(tolerations, path, out)
    seen = set[bytes]()
    for index, toleration in enumerate(tolerations):
        encoded = toleration.SerializeToString()
        if encoded in seen:
            out.append(duplicate(f"{path}[{index}]", toleration.key))
        seen.add(encoded)


class NamespaceStrategy(StatusStrategy[Namespace]):
    check_name = staticmethod(names.dns_label)

    def set_defaults(self, obj: Namespace) -> None:
        obj.metadata.labels[NAME_LABEL] = obj.metadata.name

    def prepare_create(self, obj: Namespace) -> None:
        super().prepare_create(obj)
        obj.status.phase = "Active"
        if NAMESPACE_FINALIZER not in obj.spec.finalizers:
            obj.spec.finalizers.append(NAMESPACE_FINALIZER)

    def prepare_update(self, obj: Namespace, old: Namespace) -> None:
        super().prepare_update(obj, old)
        carry_over_fields(obj, old, "spec")

    def prepare_finalize(self, obj: Namespace, old: Namespace) -> None:
        self.set_defaults(obj)
        carry_over_fields(obj, old, "status")

    def validate_finalize(self, obj: Namespace, old: Namespace) -> list[Violation]:
        return self.validate_update(obj, old)

    def check_fields(self, obj: Namespace, out: list[Violation]) -> None:
        for index, finalizer in enumerate(obj.spec.finalizers):
            validate_finalizer(finalizer, f"spec.finalizers[{index}]", out)

    def check_status(self, obj: Namespace, out: list[Violation]) -> None:
        deleted, phase = obj.metadata.HasField("deletionTimestamp"), obj.status.phase
        if phase != (expected := "Terminating" if deleted else "Active"):
            detail = f"may only be '{expected}' if `deletionTimestamp` is {'not ' if deleted else ''}empty"
            out.append(invalid("status.Phase", phase, detail))

    def may_contain_objects(self, obj: Namespace) -> bool:
        return bool(obj.spec.finalizers)

    def prepare_delete(self, obj: Namespace, why: Disruption | None, now: float) -> None:
        obj.status.phase = "Terminating"
        obj.metadata.ClearField("deletionGracePeriodSeconds")  # Kubernetes gives namespaces none


class NodeStrategy(StatusStrategy[Node]):
    def prepare_create(self, obj: Node) -> None:
        """Set defaults. The status is kept, because nodes register with their status."""
        _default_allocatable(obj)
        _annotate_reserved_resources(obj)
        _default_networks(obj)

    def prepare_update(self, obj: Node, old: Node) -> None:
        super().prepare_update(obj, old)
        if _pod_networks(obj.spec) != _pod_networks(old.spec):
            _default_networks(obj)

    def prepare_status_update(self, obj: Node, old: Node) -> None:
        super().prepare_status_update(obj, old)
        _default_allocatable(obj)

    def check_fields(self, obj: Node, out: list[Violation]) -> None:
        validate_taints(obj.spec.taints, "spec.taints", out)
        _validate_networks(obj.spec, out)

    def check_new(self, obj: Node, out: list[Violation]) -> None:
        self.check_fields(obj, out)
        validate_number(obj.spec.taints, (), "spec.taints", out)
        _validate_status(obj.status, out)
        _validate_kinds(obj.status, NodeStatus(), out)

    def check_change(self, new: Node, old: Node, out: list[Violation]) -> None:
        validate_number(new.spec.taints, old.spec.taints, "spec.taints", out)
        for field in ("podCIDR", "podCIDRs", "providerID"):
            before = getattr(old.spec, field)
            if before and getattr(new.spec, field) != before:
                out.append(forbidden(f"spec.{field}", f'node updates may not change {field} except from "" to valid'))

    def check_status(self, obj: Node, out: list[Violation]) -> None:
        _validate_status(obj.status, out)

    def check_status_change(self, new: Node, old: Node, out: list[Violation]) -> None:
        _validate_kinds(new.status, old.status, out)


def _default_allocatable(node: Node) -> None:
    """Set the default of allocatable, which is the capacity."""
    status = node.status
    if not status.allocatable and status.capacity:
        status.allocatable.MergeFrom(status.capacity)


def _annotate_reserved_resources(node: Node) -> None:
    """Record the difference between capacity and allocatable of a new node as an annotation.

    The kubelet reconciles allocatable with capacity. Without the annotation, it could not distinguish reserved resources from
    an overwritten status.
    """
    if RESERVED_ANNOTATION in node.metadata.annotations:
        return
    status = node.status
    try:
        capacity, allocatable = amounts(status.capacity), amounts(status.allocatable)
    except QuantityError:
        return  # validation reports the error
    held = {name: total - allocatable.get(name, total) for name, total in sorted(capacity.items())}
    reserved = [f"{name}={format_amount(name, amount)}" for name, amount in held.items() if amount > 0]
    if reserved:
        node.metadata.annotations[RESERVED_ANNOTATION] = ",".join(reserved)


def _default_networks(node: Node) -> None:
    """Set podCIDR and podCIDRs from each other, as in Kubernetes: podCIDR is the first entry of podCIDRs."""
    spec = node.spec
    if spec.podCIDR and not spec.podCIDRs:
        spec.podCIDRs.append(spec.podCIDR)
    elif spec.podCIDRs and not spec.podCIDR:
        spec.podCIDR = spec.podCIDRs[0]


def _pod_networks(spec: NodeSpec) -> tuple[str, Sequence[str]]:
    """Return the pod networks of a node: podCIDR and podCIDRs."""
    return spec.podCIDR, list(spec.podCIDRs)


def _validate_networks(spec: NodeSpec, out: list[Violation]) -> None:
    """Validate the pod networks, after defaults: podCIDRs then contains podCIDR."""
    if spec.podCIDRs and spec.podCIDR != spec.podCIDRs[0]:
        out.append(invalid("spec.podCIDR", spec.podCIDR, "must be the same as spec.podCIDRs[0]"))
    seen, versions = set[str](), list[int]()
    for index, network in enumerate(spec.podCIDRs):
        versions.append(validate_network(network, f"spec.podCIDRs[{index}]", out))
        if network in seen:
            out.append(duplicate(f"spec.podCIDRs[{index}]", network))
        seen.add(network)
    if len(versions) > 1 and 0 not in versions and sorted(versions) != [4, 6]:
        out.append(invalid("spec.podCIDRs", spec.podCIDRs, "may specify no more than one CIDR for each IP family"))


def _validate_kinds(new: NodeStatus, old: NodeStatus, out: list[Violation]) -> None:
    """Limit the number of resources to MAX_NODE_RESOURCES, or to the present number if it is larger."""
    for field in ("capacity", "allocatable"):
        number, had = len(getattr(new, field)), len(getattr(old, field))
        if number > max(MAX_NODE_RESOURCES, had):
            out.append(too_many(f"status.{field}", number, MAX_NODE_RESOURCES))


def _validate_status(status: NodeStatus, out: list[Violation]) -> None:
    validate_capacity(status.capacity, "status.capacity", out)
    validate_capacity(status.allocatable, "status.allocatable", out)
    seen: set[tuple[str, str]] = set()
    for index, address in enumerate(status.addresses):
        pair = (address.type, address.address)
        if pair in seen:
            out.append(duplicate(f"status.addresses[{index}]", f"{address.type}: {address.address}"))
        seen.add(pair)


class LeaseStrategy(Strategy[Lease]):
    allow_unconditional_update = False

    def check_fields(self, obj: Lease, out: list[Violation]) -> None:
        spec = obj.spec
        if spec.HasField("leaseDurationSeconds") and spec.leaseDurationSeconds <= 0:
            out.append(invalid("spec.leaseDurationSeconds", spec.leaseDurationSeconds, "must be greater than 0"))
        if spec.leaseTransitions < 0:
            out.append(invalid("spec.leaseTransitions", spec.leaseTransitions, NEGATIVE))
        if spec.preferredHolder and not spec.strategy:
            out.append(forbidden("spec.preferredHolder", "may only be specified if `strategy` is defined"))


class EventStrategy(Strategy[Event]):
    """Events in the version v1, which accepts events in the older form almost without rules.

    Source: https://github.com/kubernetes/kubernetes/blob/master/pkg/apis/core/validation/events.go
    """

    check_name = staticmethod(names.path_segment)
    _controller = "reportingComponent"
    """The name of the field in messages."""

    def in_version(self, api_version: str) -> Strategy[Event]:
        return _EventV1Strategy(self.resource) if api_version == EVENTS_V1.api_version else self

    def check_fields(self, obj: Event, out: list[Violation]) -> None:
        """Check an event. Events about objects without a namespace are in the namespace `default`."""
        about, namespace = obj.involvedObject.namespace, obj.metadata.namespace
        if _is_zero(obj.eventTime):
            if namespace != (about or DEFAULT_NAMESPACE):
                out.append(invalid("involvedObject.namespace", about, "does not match event.namespace"))
            return
        if not about and namespace not in (DEFAULT_NAMESPACE, SYSTEM_NAMESPACE):
            out.append(invalid("involvedObject.namespace", about, "does not match event.namespace"))
        if not obj.reportingComponent:
            out.append(required(self._controller))
        validate_key(obj.reportingComponent, self._controller, out)
        for field in ("reportingInstance", "action", "reason"):
            value = getattr(obj, field)
            if not value:
                out.append(required(field))
            _check_length(value, MAX_REASON, field, out)
        _check_length(obj.message, MAX_MESSAGE, "message", out)


class _EventV1Strategy(EventStrategy):
    """Events in the version events.k8s.io/v1. Objects, and the names of fields in messages, are in the stored form."""

    check_name = staticmethod(names.dns_subdomain)
    _controller = "reportingController"

    def check_new(self, obj: Event, out: list[Violation]) -> None:
        super().check_new(obj, out)
        _check_series(obj, out)
        if _is_zero(obj.eventTime):
            out.append(required("eventTime"))
        if obj.type not in _EVENT_TYPES:
            out.append(invalid("type", "", f"has invalid value: {obj.type}"))
        given = {
            "firstTimestamp": not _is_zero(obj.firstTimestamp),
            "lastTimestamp": not _is_zero(obj.lastTimestamp),
            "count": obj.count != 0,
            "source": bool(obj.source.component or obj.source.host),
        }
        out.extend(invalid(field, "", "needs to be unset") for field, is_set in given.items() if is_set)

    def check_change(self, new: Event, old: Event, out: list[Violation]) -> None:
        if new.series != old.series:
            _check_series(new, out)
        changed = [field for field in _IMMUTABLE_EVENT_FIELDS if getattr(new, field) != getattr(old, field)]
        if format_rfc3339(new.eventTime) != format_rfc3339(old.eventTime):  # in microseconds
            changed.append("eventTime")
        form = to_dict(new)
        paths = {"reportingComponent": self._controller}
        out.extend(invalid(paths.get(field, field), form.get(field, ""), IMMUTABLE) for field in changed)


def _is_zero(instant: Time | MicroTime) -> bool:
    return not instant.seconds and not instant.nanos


def _check_length(value: str, most: int, field: str, out: list[Violation]) -> None:
    if len(value.encode()) > most:
        out.append(invalid(field, "", f"can have at most {most} characters"))


def _check_series(obj: Event, out: list[Violation]) -> None:
    if obj.HasField("series"):
        if obj.series.count < 2:
            out.append(invalid("series.count", "", "should be at least 2"))
        if _is_zero(obj.series.lastObservedTime):
            out.append(required("series.lastObservedTime"))
