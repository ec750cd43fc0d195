"""Node registration: Node objects as values, and the writes that create, adopt and update them.

A node belongs to a fleet by the label `pinnace.io/fleet`, whose value is the fleet's name. The fleet creates its own
nodes, and runs every other node with its label: `pinnace node add` only creates objects.

A fleet creates its own nodes Ready and without a taint, because their leases exist before: no pod can be sent to a node
that no process runs, and a node costs one write. A node that another client created has the taint
node.kubernetes.io/not-ready from the API server. The fleet first requests its lease, then reports it Ready (status), then
removes the taint (spec).

Both writes are level-triggered: each time the object changes it is compared with the desired object. The taint is no
marker of progress, because the node lifecycle controller may remove it first. A node without a difference costs no write.
Where the object states something about the machine (capacity, labels, podCIDR, images), it wins; the fleet adds what is
missing, and reconciles what follows from it (allocatable, addresses, nodeInfo, conditions).

Each step may be repeated after any failure, including a write whose answer was lost. A node that the API server rejects,
such as by a webhook, delays no other node and is tried again with back-off.

    Registration   decides what to write, and when --> Registrar   makes the calls
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence, Set
from ipaddress import ip_address
from typing import Any, NamedTuple, Protocol, TypeAlias

from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Node
from pinnace.api.machines import ARCH, NATIVE, OS, MachineShape
from pinnace.api.names import is_extended_resource
from pinnace.api.quantity import QuantityError, amount, format_amount
from pinnace.api.scalars import to_time
from pinnace.api.verbs_pb2 import BatchItem
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
from pinnace.api.wire import split_into_batches
from pinnace.client.errors import AlreadyExists, ApiError, Conflict, Exhausted, NotFound, Unavailable, error_of
from pinnace.client.resource import ResourceClient
from pinnace.client.workqueue import RejectedQueue
from pinnace.fit import allocatable_amounts
from pinnace.fit.requests import PODS
from pinnace.kubelet.addresses import host_ip, pod_cidr
from pinnace.kubelet.eviction import CONDITIONS, PressureKind
from pinnace.runtime.build import build_version
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock

READY = ("True", "KubeletReady", "the fleet holds the lease of this node")
OS_IMAGE = "virtual node of a pinnace fleet"
PAUSE_IMAGE, PAUSE_SIZE = "registry.k8s.io/pause:3.10", 320_368
"""The image of a machine that has not run a pod, with its size in bytes."""
_PRESSURE_WORDS = {
    (PressureKind.MEMORY, True): ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
    (PressureKind.MEMORY, False): ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    (PressureKind.DISK, True): ("KubeletHasDiskPressure", "kubelet has disk pressure"),
    (PressureKind.DISK, False): ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    (PressureKind.PID, True): ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
    (PressureKind.PID, False): ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
}
log = logging.getLogger(__name__)
CHUNK = 500
"""Maximum number of nodes per batch."""
MAX_RETRY_INTERVAL = 7.0
"""Maximum seconds between retries of a rejected node, as in the kubelet's tryRegisterWithAPIServer."""
CONCURRENCY = 16
"""Maximum number of concurrent calls for single nodes."""
RejectedNodes: TypeAlias = dict[str, ApiError]
"""Error messages by node name."""


class KubeletEndpoint(NamedTuple):
    """The address of the kubelet for API servers. `host`: a name or an address."""

    host: str
    port: int


class FleetMachine(NamedTuple):
    """The properties that all nodes of a fleet share."""

    shape: MachineShape
    """Defaults for nodes without own values."""
    runtime: str = "fake"
    local: bool = False
    """Node addresses are in 127.0.0.0/8 (see pinnace.kubelet.addresses)."""
    endpoint: KubeletEndpoint | None = None
    """None: the kubelet does not serve logs, exec and stats."""
    own: Mapping[str, MachineShape] = {}
    """Different shapes of the fleet's own nodes, by name."""

    def shape_of(self, node: str) -> MachineShape:
        return self.own.get(node, self.shape)


def build_node(name: str, fleet: str, machine: FleetMachine, now: float) -> Node:
    """A new Node object. `now` in Unix time."""
    node = Node()
    node.metadata.name = name
    shape = machine.shape_of(name)
    node.metadata.labels.update(shape.labels)
    node.spec.taints.extend(shape.taints)
    _add_capacity(node, shape, shape.resources)
    _set_status(node, machine, now)
    _set_spec(node, fleet, machine)
    return node


def needs_status_update(node: Node, machine: FleetMachine, pressures: Collection[PressureKind] = ()) -> bool:
    """`pressures`: the current pressures of the node."""
    status = node.status
    ready = conditions.find_condition(status.conditions, "Ready")
    if ready is None or (ready.status, ready.reason, ready.message) != READY:
        return True
    if any(_is_pressure_outdated(node, kind, kind in pressures) for kind in PressureKind):
        return True
    known = machine.shape_of(node.metadata.name).resources
    if not status.images or any(resource in known and resource not in status.capacity for resource in NATIVE):
        return True
    info, labels = status.nodeInfo, node.metadata.labels
    told = info.operatingSystem, info.architecture, info.osImage, info.containerRuntimeVersion, info.kubeletVersion
    if told != _system_info(labels, machine) or any(_wrong_allocatable(node)):
        return True
    addresses = [(address.type, address.address) for address in status.addresses]
    return addresses != _node_addresses(node, machine) or status.daemonEndpoints.kubeletEndpoint.Port != _kubelet_port(machine)


def needs_spec_update(node: Node, fleet: str, machine: FleetMachine) -> bool:
    labels, shape = node.metadata.labels, machine.shape_of(node.metadata.name)
    if labels.get(FLEET_LABEL) != fleet or labels.get(HOSTNAME_LABEL) != node.metadata.name:
        return True
    if not all(key in labels for key in shape.label_keys) and any(
        key not in labels for key in _required_labels(node, fleet, machine)
    ):
        return True
    return not node.spec.podCIDR or any(taint.key == NOT_READY_TAINT for taint in node.spec.taints)


def with_ready_status(node: Node, machine: FleetMachine, now: float, pressures: Collection[PressureKind] = ()) -> Node:
    """A copy that is Ready. The capacity in the object is kept, and missing resources are added."""
    copy = Node()
    copy.CopyFrom(node)
    _set_status(copy, machine, now)
    for kind in PressureKind:
        if _is_pressure_outdated(copy, kind, kind in pressures):
            _set_pressure_condition(copy, kind, kind in pressures, now)
    return copy


def changed_condition_reasons(before: Node, after: Node) -> list[str]:
    """The reasons of events for changed conditions, such as NodeReady. Empty for a node that becomes Ready for the first time,
    because thousands of nodes can start together.
    """
    if conditions.find_condition(before.status.conditions, "Ready") is None:
        return []
    known = {condition.type: condition.status for condition in before.status.conditions}
    return [
        f"Node{condition.reason.removeprefix('Kubelet')}"
        for condition in after.status.conditions
        if known.get(condition.type) != condition.status
    ]


def with_fleet_spec(node: Node, fleet: str, machine: FleetMachine) -> Node:
    """A copy with the fleet's label and without the not-ready taint."""
    copy = Node()
    copy.CopyFrom(node)
    _set_spec(copy, fleet, machine)
    return copy


def _set_spec(node: Node, fleet: str, machine: FleetMachine) -> None:
    """Written after the status, which contains the pod capacity."""
    node.metadata.labels.update(_required_labels(node, fleet, machine))
    if not node.spec.podCIDR:
        node.spec.podCIDR = pod_cidr(node.metadata.name, allocatable_amounts(node).get(PODS, 0), local=machine.local)
        node.spec.podCIDRs[:] = [node.spec.podCIDR]
    taints = [taint for taint in node.spec.taints if taint.key != NOT_READY_TAINT]
    del node.spec.taints[:]
    node.spec.taints.extend(taints)


def _required_labels(node: Node, fleet: str, machine: FleetMachine) -> Mapping[str, str]:
    """Required labels of the node. Labels for os, architecture, instance type, zone and region are kept.

    Source: updateDefaultLabels in pkg/kubelet/kubelet_node_status.go of Kubernetes."""
    name, own = node.metadata.name, node.metadata.labels
    resources = {resource: quantity.string for resource, quantity in node.status.capacity.items()}
    shape = machine.shape_of(name)
    defaults = shape.default_labels(name, resources)
    if own.get(ZONE_LABEL, "") not in ("", *shape.zones):  # a node in another zone can be in another region
        defaults.pop(REGION_LABEL, None)
    return {key: own.get(key, value) for key, value in defaults.items()} | {FLEET_LABEL: fleet, HOSTNAME_LABEL: name}


def _set_status(node: Node, machine: FleetMachine, now: float) -> None:
    status, shape = node.status, machine.shape_of(node.metadata.name)
    _add_capacity(node, shape, NATIVE)
    for resource, text in list(_wrong_allocatable(node)):
        if text:
            status.allocatable[resource].string = text
        else:
            del status.allocatable[resource]
    ready = conditions.set_condition(status.conditions, "Ready", *READY, now)
    ready.lastHeartbeatTime.CopyFrom(to_time(now))
    del status.addresses[:]
    for kind, address in _node_addresses(node, machine):
        status.addresses.add(type=kind, address=address)
    status.daemonEndpoints.kubeletEndpoint.Port = _kubelet_port(machine)
    info = status.nodeInfo  # other known fields, such as machineID, are kept
    info.operatingSystem, info.architecture, info.osImage, info.containerRuntimeVersion, info.kubeletVersion = _system_info(
        node.metadata.labels, machine
    )
    if not status.images:
        status.images.add(names=[PAUSE_IMAGE], sizeBytes=PAUSE_SIZE)


def _add_capacity(node: Node, shape: MachineShape, resources: Collection[str]) -> None:
    for resource in resources:
        if resource in shape.resources and resource not in node.status.capacity:
            node.status.capacity[resource].string = shape.resources[resource]


def _wrong_allocatable(node: Node) -> Iterator[tuple[str, str]]:
    """The resources with a wrong allocatable amount, and the right amount; "": to be removed. Allocatable is the capacity minus
    the reserved amount.

    Source: MachineInfo in pkg/kubelet/nodestatus/setters.go of Kubernetes."""
    capacity, told = node.status.capacity, node.status.allocatable
    annotation = node.metadata.annotations.get(RESERVED_ANNOTATION, "")
    reserved = _parse_reserved(annotation) if annotation else {}
    for resource, quantity in capacity.items():
        wanted = quantity.string
        if resource in reserved:
            wanted = format_amount(resource, max(0, amount(resource, wanted) - reserved[resource]))
        if resource not in told or _amounts_differ(resource, told[resource].string, wanted):
            yield resource, wanted
    for resource in told:
        if resource not in capacity and is_extended_resource(resource):
            yield resource, ""


def _amounts_differ(resource: str, one: str, other: str) -> bool:
    return one != other and amount(resource, one) != amount(resource, other)


def _parse_reserved(text: str) -> dict[str, int]:
    """By resource. Invalid amounts are ignored."""
    numbers = {}
    for word in text.split(","):
        resource, equals, quantity = word.strip().partition("=")
        try:
            numbers[resource] = amount(resource, quantity) if equals else 0
        except QuantityError:
            continue
    return {resource: value for resource, value in numbers.items() if value > 0}


def _system_info(labels: Mapping[str, str], machine: FleetMachine) -> tuple[str, str, str, str, str]:
    """Fields of nodeInfo: operating system, architecture, OS image, and versions of runtime and kubelet."""
    return labels.get(OS_LABEL, OS), labels.get(ARCH_LABEL, ARCH), OS_IMAGE, *_node_versions(machine)


def _node_versions(machine: FleetMachine) -> tuple[str, str]:
    """The versions of the runtime and the kubelet, in the format of nodeInfo."""
    return f"{machine.runtime}://1", f"v{build_version()}"


def _node_addresses(node: Node, machine: FleetMachine) -> list[tuple[str, str]]:
    """Type and address of each entry. The kubelet's own address is external, because it is reachable in the real network."""
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


def _kubelet_port(machine: FleetMachine) -> int:
    return machine.endpoint.port if machine.endpoint is not None else 0


def _is_pressure_outdated(node: Node, kind: PressureKind, holds: bool) -> bool:
    """A pressure condition is reported from the first pressure on, or after it was set to Unknown."""
    node_condition = conditions.find_condition(node.status.conditions, CONDITIONS[kind])
    return holds if node_condition is None else node_condition.status != str(holds)


def _set_pressure_condition(node: Node, kind: PressureKind, holds: bool, now: float) -> None:
    """Reasons and messages are Kubernetes'."""
    said = conditions.set_condition(node.status.conditions, CONDITIONS[kind], str(holds), *_PRESSURE_WORDS[kind, holds], now)
    said.lastHeartbeatTime.CopyFrom(to_time(now))


def no_pressure(node: str) -> Collection[PressureKind]:
    return ()


class NodeEventSink(Protocol):
    """The methods that this module needs of pinnace.client.events.EventRecorder."""

    def event(self, obj: Node, type_: str, reason: str, message: str) -> None: ...


class NodeRegistrar:
    """All methods raise Unavailable; call them again. Events are recorded for written changes."""

    def __init__(
        self,
        client: ResourceClient[Node],
        events: NodeEventSink,
        fleet: str,
        machine: FleetMachine,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._client = client
        self._events = events
        self._fleet = fleet
        self._machine = machine
        self._clock = clock

    async def create_nodes(self, names: Sequence[str]) -> RejectedNodes:
        """Create nodes of this fleet as Ready, and adopt those that already exist. Return rejections."""
        refused: RejectedNodes = {}
        done = 0
        for chunk in split_into_batches(
            (build_node(name, self._fleet, self._machine, self._clock.time()) for name in names), CHUNK
        ):
            refused |= await _send_batch(self._client.create_batch, chunk)
            done += len(chunk)
            log.info("registered %d of %d nodes", done, len(names))
        existing = [name for name, error in refused.items() if isinstance(error, AlreadyExists)]
        for name in existing:
            del refused[name]
        return refused | await _run_concurrently({name: self._adopt_node(name) for name in existing})

    async def update_nodes(
        self, present: Iterable[Node], pressures: Callable[[str], Collection[PressureKind]] = no_pressure
    ) -> RejectedNodes:
        """Write the status of nodes with a difference, otherwise their spec. A new node takes two passes, because the second
        write needs the version of the first. A node that has changed meanwhile is left to the next pass. Return rejections.
        """
        unready, held_back = [], []
        for node in present:
            if needs_status_update(node, self._machine, pressures(node.metadata.name)):
                unready.append(node)
            elif needs_spec_update(node, self._fleet, self._machine):
                held_back.append(node)
        now = self._clock.time()
        reports = (with_ready_status(node, self._machine, now, pressures(node.metadata.name)) for node in unready)
        before = {node.metadata.name: node for node in unready}
        refused: RejectedNodes = {}
        for chunk in split_into_batches(reports, CHUNK):
            refused |= await _send_batch(self._client.update_status_batch, chunk)
            for node in chunk:
                if node.metadata.name not in refused:
                    self._record_condition_events(before[node.metadata.name], node)
        refused |= await _run_concurrently({node.metadata.name: self._write_spec(node) for node in held_back})
        return {name: error for name, error in refused.items() if not isinstance(error, Conflict | NotFound)}

    def _record_condition_events(self, before: Node, after: Node) -> None:
        """Kubernetes' message."""
        for reason in changed_condition_reasons(before, after):
            self._events.event(after, "Normal", reason, f"Node {after.metadata.name} status is now: {reason}")

    async def _adopt_node(self, name: str) -> None:
        def change(node: Node) -> None:
            node.CopyFrom(with_fleet_spec(node, self._fleet, self._machine))

        await self._client.modify(name, "", change)

    async def _write_spec(self, node: Node) -> None:
        await self._client.update(with_fleet_spec(node, self._fleet, self._machine))


class NodeRegistration:
    """Decides which writes are due. `own`: names of the nodes that the fleet creates. `there`: the existing nodes of the fleet.
    `on_due(nodes)`: these nodes must be reconciled, or `create_due_nodes` has work.
    """

    def __init__(
        self,
        registrar: NodeRegistrar,
        own: Sequence[str],
        there: Mapping[str, Node],
        *,
        pressures: Callable[[str], Collection[PressureKind]],
        on_due: Callable[[Collection[str]], None],
        clock: Clock,
    ) -> None:
        self._registrar = registrar
        self._own_nodes = own
        self._existing_nodes = there
        self._pressures = pressures
        self._on_due = on_due
        self._nodes_to_create = set(own)  # to create now
        self._uncreated: set[str] = set()  # to retry later
        self._rejected = RejectedQueue(clock, MAX_RETRY_INTERVAL)
        self.tried = not own
        """Whether each own node exists or was rejected."""

    @property
    def pending(self) -> bool:
        """Whether `create_due_nodes` has work."""
        return bool(self._nodes_to_create)

    @property
    def healthy(self) -> str | None:
        """None, or the problem, for /readyz."""
        refused = self._rejected.describe_errors()
        return f"the API server rejects nodes: {refused}" if refused else None

    async def update_nodes(self, touched: Set[str], played: Set[str]) -> None:
        """`touched`: changed nodes; `played`: those that exist and belong to the fleet. Raises Unavailable."""
        self._uncreated = {
            name for name in self._uncreated if name not in self._existing_nodes
        }  # another client has created them
        tried = touched - self._uncreated
        nodes = [self._existing_nodes[name] for name in sorted(played)]
        self._record_results(tried, await self._registrar.update_nodes(nodes, self._pressures))

    async def create_due_nodes(self) -> None:
        """Create own nodes that are due and do not exist. Raises Unavailable."""
        due = [name for name in self._own_nodes if name in self._nodes_to_create] if self._nodes_to_create else []
        missing = [name for name in due if name not in self._existing_nodes]
        refused = await self._registrar.create_nodes(missing)
        self._nodes_to_create.difference_update(due)
        self._uncreated = self._uncreated.difference(missing) | refused.keys()
        self._record_results(missing, refused)
        self.tried = True

    async def run(self) -> None:
        """Schedule retries of rejected nodes until cancelled."""
        while True:
            names = set(await self._rejected.get_batch(CHUNK))
            self._nodes_to_create |= names & self._uncreated
            self._on_due(names - self._uncreated)

    def _record_results(self, tried: Iterable[str], refused: RejectedNodes) -> None:
        for name in tried:
            if name in refused:
                self._rejected.add_rate_limited(name, refused[name])
            else:
                self._rejected.forget(name)
        if refused:
            exhausted = all(isinstance(error, Exhausted) for error in refused.values())
            # an etcd that is out of space is not an error of this kubelet
            level = logging.WARNING if exhausted else logging.ERROR
            log.log(level, "the API server rejected %d nodes, retrying: %s", len(refused), self._rejected.describe_errors())


async def _send_batch(send: Callable[[Sequence[Node]], Awaitable[Sequence[BatchItem]]], chunk: Sequence[Node]) -> RejectedNodes:
    """The rejections: all nodes if the whole call failed."""
    try:
        items = await send(chunk)
    except Unavailable:
        raise
    except ApiError as error:
        return {node.metadata.name: error for node in chunk}
    both = zip(chunk, map(error_of, items), strict=True)
    return {node.metadata.name: error for node, error in both if error is not None}


async def _run_concurrently(calls: Mapping[str, Coroutine[Any, Any, None]]) -> RejectedNodes:
    """Execute all calls with limited concurrency. Return rejections. Other errors are raised after all calls."""
    free = asyncio.Semaphore(CONCURRENCY)

    async def limited(call: Coroutine[Any, Any, None]) -> None:
        async with free:
            await call

    outcomes = await asyncio.gather(*map(limited, calls.values()), return_exceptions=True)
    refused: RejectedNodes = {}
    for name, outcome in zip(calls, outcomes, strict=True):
        if isinstance(outcome, ApiError) and not isinstance(outcome, Unavailable):
            refused[name] = outcome
        elif outcome is not None:
            raise outcome
    return refused
