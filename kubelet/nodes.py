"""Node objects of a fleet, as values: a new one, and the writes that one that exists still needs.

A node belongs to a fleet by the label `pinnace.io/fleet`, whose value is the fleet's name. The fleet makes its own nodes so,
and plays every other node that carries its label: `pinnace node add` only creates objects.

A fleet's own nodes are created Ready and without a taint, because their leases are held before they exist: there is no moment
at which a pod could be sent to a node that nobody plays, and a node costs one write. A node that somebody else created has the
taint node.kubernetes.io/not-ready from the API server. The fleet reports it Ready (status), and then removes the taint (spec),
once it has asked for the node's lease.

Both writes are level-triggered: what is due is found by comparing the object with what it should be, each time it changes, and
never by a mark such as the taint, which the node lifecycle controller may remove first. A node that is as it should be costs no
write. The object decides about the machine where it says something (capacity, labels, podCIDR, images); the fleet adds what is
missing, and reconciles what follows from the rest (allocatable, addresses, nodeInfo, conditions).
"""

from collections.abc import Collection, Iterator, Mapping
from ipaddress import ip_address
from typing import NamedTuple

from kubelet.addresses import host_ip, pod_cidr
from kubelet.eviction import CONDITIONS, Kind
from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Node
from pinnace.api.machines import ARCH, NATIVE, OS, MachineShape
from pinnace.api.names import is_extended_resource
from pinnace.api.quantity import QuantityError, amount, format_amount
from pinnace.api.scalars import to_time
from pinnace.api.wellknown import (
    ARCH_LABEL,
    FLEET_LABEL,
    HOSTNAME_LABEL,
    NOT_READY_TAINT,
    OS_LABEL,
    REGION_LABEL,
    RESERVED_ANNOTATION,
    ZONE_LABEL,
)
from pinnace.fit import allocatable
from pinnace.fit.requests import PODS
from pinnace.runtime.build import version

READY = ("True", "KubeletReady", "the fleet holds the lease of this node")
OS_IMAGE = "virtual node of a pinnace fleet"
PAUSE_IMAGE, PAUSE_SIZE = "registry.k8s.io/pause:3.10", 320_368
"""The image that a machine has before any pod has run on it, and its bytes."""


class Endpoint(NamedTuple):
    """Where API servers find the kubelet. `host`: a name or an address."""

    host: str
    port: int


class Machine(NamedTuple):
    """What all nodes of a fleet are."""

    shape: MachineShape
    """Of nodes that do not say it themselves."""
    runtime: str = "fake"
    local: bool = False
    """Their addresses are this machine's (see kubelet.addresses)."""
    endpoint: Endpoint | None = None
    """None: the kubelet serves nothing: neither logs nor exec, nor what is used."""
    own: Mapping[str, MachineShape] = {}
    """Of the fleet's own nodes, by name, where they differ."""

    def shape_of(self, node: str) -> MachineShape:
        return self.own.get(node, self.shape)


def new_node(name: str, fleet: str, machine: Machine, now: float) -> Node:
    """A node to create. `now` in Unix time."""
    node = Node()
    node.metadata.name = name
    shape = machine.shape_of(name)
    node.metadata.labels.update(shape.labels)
    node.spec.taints.extend(shape.taints)
    _add_capacity(node, shape, shape.resources)
    _set_status(node, machine, now)
    _set_spec(node, fleet, machine)
    return node


def needs_status(node: Node, machine: Machine, pressures: Collection[Kind] = ()) -> bool:
    """`pressures`: what it is short of."""
    status = node.status
    ready = conditions.find(status.conditions, "Ready")
    if ready is None or (ready.status, ready.reason, ready.message) != READY:
        return True
    if any(_is_outdated(node, kind, kind in pressures) for kind in Kind):
        return True
    known = machine.shape_of(node.metadata.name).resources
    if not status.images or any(resource in known and resource not in status.capacity for resource in NATIVE):
        return True
    info, labels = status.nodeInfo, node.metadata.labels
    told = info.operatingSystem, info.architecture, info.osImage, info.containerRuntimeVersion, info.kubeletVersion
    if told != _system_info(labels, machine) or any(_overwritten(node)):
        return True
    addresses = [(each.type, each.address) for each in status.addresses]
    return addresses != _addresses(node, machine) or status.daemonEndpoints.kubeletEndpoint.Port != _port(machine)


def needs_spec(node: Node, fleet: str, machine: Machine) -> bool:
    labels, shape = node.metadata.labels, machine.shape_of(node.metadata.name)
    if labels.get(FLEET_LABEL) != fleet or labels.get(HOSTNAME_LABEL) != node.metadata.name:
        return True
    if not all(key in labels for key in shape.label_keys) and any(key not in labels for key in _labels(node, fleet, machine)):
        return True
    return not node.spec.podCIDR or any(taint.key == NOT_READY_TAINT for taint in node.spec.taints)


def with_status(node: Node, machine: Machine, now: float, pressures: Collection[Kind] = ()) -> Node:
    """A copy that is Ready. A capacity that the node has, say from `pinnace node add`, is kept, and completed."""
    copy = Node()
    copy.CopyFrom(node)
    _set_status(copy, machine, now)
    for kind in Kind:
        if _is_outdated(copy, kind, kind in pressures):
            _set_pressure(copy, kind, kind in pressures, now)
    return copy


def changes(before: Node, after: Node) -> list[str]:
    """What events call the conditions that differ: NodeReady, NodeHasDiskPressure. A node that is Ready for the first time has
    changed from nothing: thousands that start have nothing to tell."""
    if conditions.find(before.status.conditions, "Ready") is None:
        return []
    known = {each.type: each.status for each in before.status.conditions}
    return [
        f"Node{each.reason.removeprefix('Kubelet')}" for each in after.status.conditions if known.get(each.type) != each.status
    ]


def with_spec(node: Node, fleet: str, machine: Machine) -> Node:
    """A copy that belongs to the fleet and takes pods."""
    copy = Node()
    copy.CopyFrom(node)
    _set_spec(copy, fleet, machine)
    return copy


def _set_spec(node: Node, fleet: str, machine: Machine) -> None:
    """After the status, which says how many pods it takes."""
    node.metadata.labels.update(_labels(node, fleet, machine))
    if not node.spec.podCIDR:
        node.spec.podCIDR = pod_cidr(node.metadata.name, allocatable(node).get(PODS, 0), local=machine.local)
        node.spec.podCIDRs[:] = [node.spec.podCIDR]
    taints = [taint for taint in node.spec.taints if taint.key != NOT_READY_TAINT]
    del node.spec.taints[:]
    node.spec.taints.extend(taints)


def _labels(node: Node, fleet: str, machine: Machine) -> Mapping[str, str]:
    """The labels that the node must have. Its own os, architecture, instance type, zone and region stay as they are.

    Source: updateDefaultLabels in pkg/kubelet/kubelet_node_status.go of Kubernetes."""
    name, own = node.metadata.name, node.metadata.labels
    resources = {resource: quantity.string for resource, quantity in node.status.capacity.items()}
    shape = machine.shape_of(name)
    defaults = shape.default_labels(name, resources)
    if own.get(ZONE_LABEL, "") not in ("", *shape.zones):  # it is somewhere else, and so perhaps in another region
        defaults.pop(REGION_LABEL, None)
    return {key: own.get(key, value) for key, value in defaults.items()} | {FLEET_LABEL: fleet, HOSTNAME_LABEL: name}


def _set_status(node: Node, machine: Machine, now: float) -> None:
    status, shape = node.status, machine.shape_of(node.metadata.name)
    _add_capacity(node, shape, NATIVE)
    for resource, text in list(_overwritten(node)):
        if text:
            status.allocatable[resource].string = text
        else:
            del status.allocatable[resource]
    ready = conditions.say(status.conditions, "Ready", *READY, now)
    ready.lastHeartbeatTime.CopyFrom(to_time(now))
    del status.addresses[:]
    for kind, address in _addresses(node, machine):
        status.addresses.add(type=kind, address=address)
    status.daemonEndpoints.kubeletEndpoint.Port = _port(machine)
    info = status.nodeInfo  # what is known of the system otherwise, a machine's id say, is left as it is
    info.operatingSystem, info.architecture, info.osImage, info.containerRuntimeVersion, info.kubeletVersion = _system_info(
        node.metadata.labels, machine
    )
    if not status.images:
        status.images.add(names=[PAUSE_IMAGE], sizeBytes=PAUSE_SIZE)


def _add_capacity(node: Node, shape: MachineShape, resources: Collection[str]) -> None:
    for resource in resources:
        if resource in shape.resources and resource not in node.status.capacity:
            node.status.capacity[resource].string = shape.resources[resource]


def _overwritten(node: Node) -> Iterator[tuple[str, str]]:
    """The resources whose allocatable is not what it should be, and what that is; "": it should not be there. Allocatable is
    the capacity less what the node reserves.

    Source: MachineInfo in pkg/kubelet/nodestatus/setters.go of Kubernetes."""
    capacity, told = node.status.capacity, node.status.allocatable
    annotation = node.metadata.annotations.get(RESERVED_ANNOTATION, "")
    reserved = _reserved(annotation) if annotation else {}
    for resource, quantity in capacity.items():
        wanted = quantity.string
        if resource in reserved:
            wanted = format_amount(resource, max(0, amount(resource, wanted) - reserved[resource]))
        if resource not in told or _differ(resource, told[resource].string, wanted):
            yield resource, wanted
    for resource in told:
        if resource not in capacity and is_extended_resource(resource):
            yield resource, ""


def _differ(resource: str, one: str, other: str) -> bool:
    return one != other and amount(resource, one) != amount(resource, other)


def _reserved(text: str) -> dict[str, int]:
    """By resource; what makes no sense is left out."""
    found = {}
    for word in text.split(","):
        resource, equals, quantity = word.strip().partition("=")
        try:
            found[resource] = amount(resource, quantity) if equals else 0
        except QuantityError:
            continue
    return {resource: value for resource, value in found.items() if value > 0}


def _system_info(labels: Mapping[str, str], machine: Machine) -> tuple[str, str, str, str, str]:
    """Of its nodeInfo: the operating system, the architecture, the image of the system, and both versions."""
    return labels.get(OS_LABEL, OS), labels.get(ARCH_LABEL, ARCH), OS_IMAGE, *_versions(machine)


def _versions(machine: Machine) -> tuple[str, str]:
    """Of the runtime and of the kubelet, as nodeInfo has them."""
    return f"{machine.runtime}://1", f"v{version()}"


def _addresses(node: Node, machine: Machine) -> list[tuple[str, str]]:
    """Type and address of each. Where the kubelet is found is an external one: it is of the real network."""
    name = node.metadata.name
    addresses = [("InternalIP", host_ip(name, local=machine.local)), ("Hostname", name)]
    if machine.endpoint is not None:
        addresses.append(("ExternalIP" if _is_ip(machine.endpoint.host) else "ExternalDNS", machine.endpoint.host))
    return addresses


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _port(machine: Machine) -> int:
    return machine.endpoint.port if machine.endpoint is not None else 0


def _is_outdated(node: Node, kind: Kind, holds: bool) -> bool:
    """A condition is reported once there is pressure, and from then on: most nodes never have any. That of a node that was
    silent has become Unknown."""
    found = conditions.find(node.status.conditions, CONDITIONS[kind])
    return holds if found is None else found.status != str(holds)


def _set_pressure(node: Node, kind: Kind, holds: bool, now: float) -> None:
    """Reasons and messages are Kubernetes'."""
    said = conditions.say(node.status.conditions, CONDITIONS[kind], str(holds), *_PRESSURE_WORDS[kind, holds], now)
    said.lastHeartbeatTime.CopyFrom(to_time(now))


_PRESSURE_WORDS = {
    (Kind.MEMORY, True): ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
    (Kind.MEMORY, False): ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    (Kind.DISK, True): ("KubeletHasDiskPressure", "kubelet has disk pressure"),
    (Kind.DISK, False): ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    (Kind.PID, True): ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
    (Kind.PID, False): ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
}
