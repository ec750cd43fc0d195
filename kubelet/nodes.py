"""Node objects of a fleet, as values: what a new one looks like, and what is left to do for one that exists.

A node belongs to a fleet by the label `pinnace.io/fleet`, whose value is the fleet's name. The fleet makes its own nodes so,
and plays every other node that carries its label: `pinnace node add` only creates objects.

A fleet's own nodes are created Ready and without a taint, because their leases are held before they exist: there is no moment
at which a pod could be sent to a node that nobody plays, and a node costs one write. A node that somebody else created has the
taint node.kubernetes.io/not-ready from the API server; it is made Ready (status) and then freed of the taint (spec), once its
lease is asked for.
"""

from collections.abc import Collection, Mapping
from ipaddress import ip_address
from typing import NamedTuple

from kubelet.addresses import host_ip, pod_cidr
from kubelet.eviction import CONDITIONS, Kind
from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Node
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.times import to_time
from pinnace.api.wellknown import FLEET_LABEL, NOT_READY_TAINT
from pinnace.fit import allocatable
from pinnace.fit.requests import PODS
from pinnace.runtime.build import version


class Endpoint(NamedTuple):
    """Where API servers find the kubelet. `host`: a name or an address."""

    host: str
    port: int


class Machine(NamedTuple):
    """What all nodes of a fleet are."""

    capacity: Mapping[str, Quantity]
    """By resource name; of nodes that have none already."""
    runtime: str = "fake"
    local: bool = False
    """Their addresses are this machine's (see kubelet.addresses)."""
    endpoint: Endpoint | None = None
    """None: the kubelet serves nothing: neither logs nor exec, nor what is used."""


def new_node(name: str, fleet: str, machine: Machine, now: float) -> Node:
    """A node to create. `now` in Unix time."""
    node = Node()
    node.metadata.name = name
    _set_status(node, machine, now)
    _set_spec(node, fleet, machine)
    return node


def needs_status(node: Node, machine: Machine, pressures: Collection[Kind] = ()) -> bool:
    """`pressures`: what it is short of."""
    status = node.status
    if not conditions.is_true(status.conditions, "Ready") or not status.allocatable:
        return True
    if any(_is_outdated(node, kind, kind in pressures) for kind in Kind):
        return True
    info = status.nodeInfo
    if (info.containerRuntimeVersion, info.kubeletVersion) != _versions(machine):  # of the kubelet that had it before
        return True
    addresses = [(each.type, each.address) for each in status.addresses]
    return addresses != _addresses(node, machine) or status.daemonEndpoints.kubeletEndpoint.Port != _port(machine)


def needs_spec(node: Node, fleet: str) -> bool:
    return node.metadata.labels.get(FLEET_LABEL) != fleet or any(taint.key == NOT_READY_TAINT for taint in node.spec.taints)


def with_status(node: Node, machine: Machine, now: float, pressures: Collection[Kind] = ()) -> Node:
    """A copy that is Ready. A capacity that the node has already, say from `pinnace node add`, is kept."""
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
    labels = node.metadata.labels
    labels[FLEET_LABEL] = fleet
    for key, value in (("hostname", node.metadata.name), ("os", "linux"), ("arch", "amd64")):
        labels[f"kubernetes.io/{key}"] = value
    if not node.spec.podCIDR:
        node.spec.podCIDR = pod_cidr(node.metadata.name, allocatable(node).get(PODS, 0), local=machine.local)
        node.spec.podCIDRs[:] = [node.spec.podCIDR]
    taints = [taint for taint in node.spec.taints if taint.key != NOT_READY_TAINT]
    del node.spec.taints[:]
    node.spec.taints.extend(taints)


def _set_status(node: Node, machine: Machine, now: float) -> None:
    status, capacity = node.status, machine.capacity
    for amounts, fallback in ((status.capacity, capacity), (status.allocatable, status.capacity or capacity)):
        if not amounts:
            for resource, amount in fallback.items():
                amounts[resource].CopyFrom(amount)
    text = "the fleet holds the lease of this node"
    ready = conditions.say(status.conditions, "Ready", "True", "KubeletReady", text, now)
    ready.lastHeartbeatTime.CopyFrom(to_time(now))
    del status.addresses[:]
    for kind, address in _addresses(node, machine):
        status.addresses.add(type=kind, address=address)
    status.daemonEndpoints.kubeletEndpoint.Port = _port(machine)
    info = status.nodeInfo
    info.operatingSystem, info.architecture, info.osImage = "linux", "amd64", "virtual node of a pinnace fleet"
    info.containerRuntimeVersion, info.kubeletVersion = _versions(machine)


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
