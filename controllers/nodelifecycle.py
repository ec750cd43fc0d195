"""The node lifecycle controller: marks nodes as unreachable if their kubelet does not respond, and maintains their taints.

    no lease --grace--> Ready Unknown, NoSchedule --rate of the zone--> NoExecute --tolerationSeconds--> pods deleted

Conditions: reasons and messages are Kubernetes'. If the kubelet has reported no conditions, only Ready is added. The kubelet
resets the conditions when it returns; then this controller removes the taints.

Leases: a Lease object exists only while the session of a fleet is alive, so a missing Lease means that the kubelet does not
respond. Timestamps are ignored. Standbys also measure the time, so that a new leader knows how long each node has been silent.

Taints: NoSchedule taints follow conditions immediately. NoExecute taints are added at the rate of the zone, and removed
immediately. A node that has never reported Ready keeps its initial not-ready taint. Other taints are not changed.

Zones: many silent nodes indicate a network failure, so the rate of evictions depends on the state of the zone.

    state of a zone      condition                                        evicted nodes per second
    Normal                                                                Rates.eviction
    PartialDisruption    more than 2 nodes are not ready, and at least    Rates.secondary; 0 in a zone with at most
                         the share Rates.unhealthy                        Rates.large nodes
    FullDisruption       no node is ready                                 Rates.eviction
    all FullDisruption                                                    0, and NoExecute taints are removed

Nodes with the label node.kubernetes.io/exclude-disruption do not count for the state. The node with the last turn takes a turn
that is returned, so that only one node is synced. After a disruption of all zones, no node is evicted for RECOVERY seconds,
because the kubelets return one after another.

Source: https://kubernetes.io/docs/concepts/architecture/nodes/#rate-limits-on-eviction, and ComputeZoneState in Kubernetes. The
default rates are a thousand times Kubernetes' rates (0.1 and 0.01 per second).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pinnace.api import conditions
from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.core_v1_pb2 import Node, Pod, Taint
from pinnace.api.pods import status_of
from pinnace.api.resources import LEASES, NODE_LEASE_NAMESPACE, NODES, PODS
from pinnace.api.scalars import to_time
from pinnace.api.verbs_pb2 import DELETED
from pinnace.api.wellknown import (
    MEMORY_PRESSURE_TAINT,
    NOT_READY_TAINT,
    REGION_LABEL,
    UNREACHABLE_TAINT,
    UNSCHEDULABLE_TAINT,
    ZONE_LABEL,
)
from pinnace.client.errors import ApiError, NotFound
from pinnace.client.informer import Delta
from pinnace.controllers.pods import pod_node_name
from pinnace.controllers.runtime import ControllerContext, Keys, T, WatchedResource, key_of_object
from pinnace.controllers.writes import WriteBatcher, raise_first_error, send_in_batches

PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")
_OBSERVED = frozenset({"Ready", *PRESSURES})
"""Condition types that only the kubelet sets."""


def ready_status(node: Node) -> str:
    """Return the status of the condition Ready, or an empty string."""
    node_condition = conditions.find_condition(node.status.conditions, "Ready")
    return node_condition.status if node_condition is not None else ""


def seconds_until_unreachable(node: Node, silent: float | None, grace: float, startup: float) -> float | None:
    """Return the seconds until the node is unreachable, 0 if it is, or None if its kubelet has a lease.

    `silent` is the time without a lease in seconds, or None. A node that has never reported Ready gets the `startup`
    grace period, other nodes get `grace`.
    """
    if silent is None:
        return None
    return max(0.0, (grace if ready_status(node) else startup) - silent)


def with_unknown_conditions(node: Node, now: float) -> Node | None:
    """Return the node with unknown conditions, or None if they are already unknown. `now` is Unix time."""
    known = [
        condition.type for condition in node.status.conditions if condition.type in _OBSERVED and condition.status != "Unknown"
    ]
    if not known and ready_status(node):
        return None
    changed = Node()
    changed.CopyFrom(node)
    told = changed.status.conditions
    for type_ in known:
        conditions.set_condition(told, type_, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.", now)
    if not ready_status(node):
        conditions.set_condition(told, "Ready", "Unknown", "NodeStatusNeverUpdated", "Kubelet never posted node status.", now)
    return changed


def lease_key(node: str) -> str:
    """Return the key of the node's lease in the informer's store."""
    return f"{NODE_LEASE_NAMESPACE}/{node}"


class LeaseMonitor:
    """Measures the time since each node lost its lease. `leases` are the existing leases by lease_key.

    When the kubelet reports a silent node as ready, the time starts again, because the event of the new lease may arrive later.
    Source: updateNodeHealth in Kubernetes' node lifecycle controller.
    """

    def __init__(self, leases: Mapping[str, Lease]) -> None:
        self._leases = leases
        self._since: dict[str, float] = {}

    def update_lease(self, node: str, now: float) -> None:
        """Handle an added or deleted node or lease."""
        if lease_key(node) in self._leases:
            self._since.pop(node, None)
        else:
            self._since.setdefault(node, now)

    def restart_timer(self, node: str, now: float) -> None:
        """Start the time of a silent node again."""
        if node in self._since:
            self._since[node] = now

    def remove_node(self, node: str) -> None:
        self._since.pop(node, None)

    def seconds_without_lease(self, node: str, now: float) -> float | None:
        """Return the seconds since the node lost its lease, or None if it has one."""
        since = self._since.get(node)
        return None if since is None else now - since


_BY_CONDITION = {
    ("Ready", "False"): NOT_READY_TAINT,
    ("Ready", "Unknown"): UNREACHABLE_TAINT,
    ("MemoryPressure", "True"): MEMORY_PRESSURE_TAINT,
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
}
_NO_SCHEDULE = frozenset({*_BY_CONDITION.values(), UNSCHEDULABLE_TAINT})
_NO_EXECUTE = frozenset({NOT_READY_TAINT, UNREACHABLE_TAINT})
_EVICTING = {"False": NOT_READY_TAINT, "Unknown": UNREACHABLE_TAINT}


def has_eviction_taint(node: Node) -> bool:
    """Return True if the node has a NoExecute taint of this controller."""
    return any(taint.effect == "NoExecute" and taint.key in _NO_EXECUTE for taint in node.spec.taints)


def should_evict(node: Node) -> bool:
    return ready_status(node) in _EVICTING


def with_correct_taints(node: Node, evict: bool, now: float) -> Node | None:
    """Return the node with the correct taints, or None if it has them. `now` is Unix time.

    With `evict`, a node that is not Ready also gets the NoExecute taint.
    """
    wanted = {
        (key, "NoSchedule")
        for (type_, status), key in _BY_CONDITION.items()
        if (node_condition := conditions.find_condition(node.status.conditions, type_)) is not None
        and node_condition.status == status
    }
    if node.spec.unschedulable:
        wanted.add((UNSCHEDULABLE_TAINT, "NoSchedule"))
    if not ready_status(node):
        wanted |= {(NOT_READY_TAINT, taint.effect) for taint in node.spec.taints if taint.key == NOT_READY_TAINT}
    if evict and should_evict(node):
        wanted.add((_EVICTING[ready_status(node)], "NoExecute"))
    has = {(taint.key, taint.effect) for taint in node.spec.taints if _is_lifecycle_taint(taint)}
    if has == wanted:
        return None
    changed = Node()
    changed.CopyFrom(node)
    kept = [taint for taint in node.spec.taints if not _is_lifecycle_taint(taint) or (taint.key, taint.effect) in wanted]
    del changed.spec.taints[:]
    changed.spec.taints.extend(kept)
    for key, effect in sorted(wanted - has):
        changed.spec.taints.add(key=key, effect=effect, timeAdded=to_time(now))
    return changed


def _is_lifecycle_taint(taint: Taint) -> bool:
    return taint.key in (_NO_EXECUTE if taint.effect == "NoExecute" else _NO_SCHEDULE if taint.effect == "NoSchedule" else ())


FEW = 2
"""Maximum number of nodes that are not ready in a zone without disruption."""
RECOVERY = 5.0
EXCLUDED_LABEL = "node.kubernetes.io/exclude-disruption"
"""The label key. Its value is ignored."""


class ZoneState(StrEnum):
    NORMAL = "Normal"
    PARTIAL = "PartialDisruption"
    FULL = "FullDisruption"


@dataclass(frozen=True, slots=True)
class EvictionRates:
    """Evicted nodes per second in normal and in disrupted zones, the share of nodes that are not ready at which a zone is
    disrupted, and the number of nodes above which a zone is large."""

    eviction: float = 100.0
    secondary: float = 10.0
    unhealthy: float = 0.55
    large: int = 50


def zone_of(node: Node) -> str:
    labels = node.metadata.labels
    region, zone = labels.get(REGION_LABEL, ""), labels.get(ZONE_LABEL, "")
    return f"{region}:{zone}" if region or zone else ""


def counts_for_zone(node: Node) -> bool:
    """Return True if the node counts for the state of its zone."""
    return EXCLUDED_LABEL not in node.metadata.labels


def compute_zone_state(healthy: int, unhealthy: int, threshold: float) -> ZoneState:
    if unhealthy and not healthy:
        return ZoneState.FULL
    if unhealthy > FEW and unhealthy / (healthy + unhealthy) >= threshold:
        return ZoneState.PARTIAL
    return ZoneState.NORMAL


class Zone:
    """The health of a zone's nodes, and the times at which unhealthy nodes may be evicted."""

    def __init__(self) -> None:
        self.nodes: dict[str, bool] = {}  # True: healthy
        self.excluded: set[str] = set()  # nodes that do not count
        self.unhealthy = 0  # unhealthy nodes that count
        self.rate = 0.0
        self.turns: dict[str, float] = {}  # assigned at this rate
        self.last_turn = float("-inf")

    def update_node(self, node: str, healthy: bool, counts: bool) -> bool:
        """Update a node. Return True if it has changed."""
        if self.nodes.get(node) is healthy and (node not in self.excluded) is counts:
            return False
        self.remove_node(node)
        self.nodes[node] = healthy
        if counts:
            self.unhealthy += not healthy
        else:
            self.excluded.add(node)
        return True

    def remove_node(self, node: str) -> None:
        healthy = self.nodes.pop(node, True)
        if node in self.excluded:
            self.excluded.remove(node)
        else:
            self.unhealthy -= not healthy

    @property
    def size(self) -> int:
        """Number of nodes that count."""
        return len(self.nodes) - len(self.excluded)

    def state(self, threshold: float) -> ZoneState:
        return compute_zone_state(self.size - self.unhealthy, self.unhealthy, threshold)

    def return_eviction_turn(self, node: str, now: float) -> Collection[str]:
        """Return a future turn of the node. Return the nodes with a changed turn."""
        turn = self.turns.pop(node, now)
        if turn <= now:
            return ()
        last = max(self.turns, key=self.turns.__getitem__, default=node)
        latest = self.turns.get(last, turn)
        self.last_turn = max(turn, latest) - 1 / self.rate
        if latest <= turn:
            return ()
        self.turns[last] = turn
        return (last,)


class Zones:
    """The state of all zones. Times are monotonic seconds."""

    def __init__(self, rates: EvictionRates) -> None:
        self._rates = rates
        self._zones: dict[str, Zone] = {}
        self._zone_of: dict[str, str] = {}
        self._disrupted = False
        self._changed: set[str] = set()
        self._resumed = float("-inf")

    def update_node(self, node: str, zone: str, healthy: bool, now: float, *, counts: bool = True) -> None:
        """Update a node. `counts_for_zone` is True if it counts for the state of its zone."""
        if self._zone_of.get(node, zone) != zone:
            self.remove_node(node, now)
        result = self._zones.setdefault(zone, Zone())
        if not result.update_node(node, healthy, counts):
            return
        self._zone_of[node] = zone
        if healthy:
            self._changed.update(result.return_eviction_turn(node, now))
        self._update_disruption(result, now)

    def remove_node(self, node: str, now: float) -> None:
        zone = self._zone_of.pop(node, None)
        if zone is None:
            return
        result = self._zones[zone]
        result.remove_node(node)
        self._changed.update(result.return_eviction_turn(node, now))
        self._changed.discard(node)
        if not result.nodes:
            del self._zones[zone]
        self._update_disruption(result, now)

    @property
    def is_fully_disrupted(self) -> bool:
        """True if no counted node of any zone is ready."""
        return self._disrupted

    def states(self) -> dict[str, ZoneState]:
        return {name: zone.state(self._rates.unhealthy) for name, zone in self._zones.items()}

    def seconds_until_eviction(self, node: str, now: float) -> float | None:
        """Return the seconds until the node may be evicted, or None if the state of its zone allows no evictions.

        The node keeps its turn unless it gets an earlier one.
        """
        zone = self._zones[self._zone_of[node]]
        if not zone.rate:
            return None
        if node not in zone.turns:
            zone.turns[node] = zone.last_turn = max(now, self._resumed + RECOVERY, zone.last_turn + 1 / zone.rate)
        return max(0.0, zone.turns[node] - now)

    def pop_changed_nodes(self) -> set[str]:
        """Return and clear the unhealthy nodes whose turns have changed, because the rate changed or a turn was returned."""
        changed, self._changed = self._changed, set()
        return changed

    def _eviction_rate(self, zone: Zone) -> float:
        if zone.state(self._rates.unhealthy) is not ZoneState.PARTIAL:
            return self._rates.eviction
        return self._rates.secondary if zone.size > self._rates.large else 0.0

    def _update_disruption(self, changed: Zone, now: float) -> None:
        states = [zone.unhealthy == zone.size for zone in self._zones.values() if zone.size]
        disrupted = bool(states) and all(states)
        concerned = (changed,) if disrupted is self._disrupted else self._zones.values()
        if self._disrupted and not disrupted:
            self._resumed = now
        self._disrupted = disrupted
        for zone in concerned:
            self._set_rate(zone)

    def _set_rate(self, zone: Zone) -> None:
        """Set the rate of the zone. A new rate discards all turns."""
        rate = 0.0 if self._disrupted else self._eviction_rate(zone)
        if rate != zone.rate:
            zone.rate, zone.last_turn = rate, float("-inf")
            zone.turns.clear()
            self._changed.update(name for name, healthy in zone.nodes.items() if not healthy)


LOOK_AGAIN = 10.0
"""Seconds between syncs of a silent node, because the Ready condition of a pod may arrive after its node was marked."""


@dataclass(frozen=True, slots=True)
class NodeLifecycleOptions:
    """`grace` is the time without a lease after which a node is unreachable, in seconds. `startup` applies to nodes that
    have never reported Ready."""

    grace: float = 0.5
    startup: float = 60.0
    rates: EvictionRates = field(default_factory=EvictionRates)


class NodeLifecycleController:
    name = "node-lifecycle"
    workers = 64
    max_backoff = 60.0

    def __init__(self, shared: ControllerContext, options: NodeLifecycleOptions) -> None:
        self._client = shared.client.nodes
        self._pods_client = shared.client.pods
        self._events = shared.events
        self._clock = shared.clock
        self._options = options
        informers = shared.informers
        self._nodes = informers.store(NODES)
        self._pods = informers.index(PODS, pod_node_name)
        self._silences = LeaseMonitor(informers.store(LEASES))
        self._zones = Zones(options.rates)
        self._statuses: WriteBatcher[Node] = WriteBatcher(self._client.update_status_batch)
        informers.add_handler(NODES, self._handle_node_deltas)
        informers.add_handler(LEASES, self._handle_lease_deltas)

    @property
    def watches(self) -> Sequence[WatchedResource[Any]]:
        return (
            WatchedResource(NODES, self._add_changed_nodes(key_of_object)),
            WatchedResource(LEASES, self._add_changed_nodes(_key_of_node)),
        )

    async def sync(self, key: str) -> float | None:
        node = self._nodes.get(key)
        if node is None:
            return None
        now = self._clock.monotonic()
        wait = seconds_until_unreachable(
            node, self._silences.seconds_without_lease(key, now), self._options.grace, self._options.startup
        )
        refused: Sequence[ApiError | None] = ()
        try:
            if wait == 0.0:
                node = await self._mark_unreachable(node)
                refused = await self._mark_pods_not_ready(key)
            if key not in self._nodes:
                return None
            turn = await self._update_taints(node, now)
        except NotFound:
            return None
        again = min((item for item in (LOOK_AGAIN if wait == 0.0 else wait, turn) if item is not None), default=None)
        return raise_first_error(again, refused, but=(NotFound,))

    async def _mark_unreachable(self, node: Node) -> Node:
        """Mark the node as unreachable."""
        marked = with_unknown_conditions(node, self._clock.time())
        if marked is not None:
            marked.metadata.resourceVersion = await self._statuses.write_item(marked)
            if ready_status(node) == "True":
                name = node.metadata.name
                self._events.event(node, "Normal", "NodeNotReady", f"Node {name} status is now: NodeNotReady")
        return marked or node

    async def _mark_pods_not_ready(self, node: str) -> Sequence[ApiError | None]:
        """Mark the node's pods as not ready. Return the result of each write. Taints do not depend on it."""
        changed = [
            pod for item in self._pods.under(node).values() if (pod := not_ready_status(item, self._clock.time())) is not None
        ]
        for pod in changed:
            self._events.event(pod, "Warning", "NodeNotReady", "Node is not ready")
        return await send_in_batches(self._pods_client.update_status_batch, changed)

    async def _update_taints(self, node: Node, now: float) -> float | None:
        """Write the taints. Return the seconds until the node's turn, or None if it needs no turn or its zone allows none."""
        marked = has_eviction_taint(node) and not self._zones.is_fully_disrupted
        turn = self._zones.seconds_until_eviction(node.metadata.name, now) if should_evict(node) and not marked else 0.0
        changed = with_correct_taints(node, turn == 0.0, self._clock.time())
        if changed is not None:
            await self._client.update(changed)
        return turn or None

    def _add_changed_nodes(self, keys: Keys[T]) -> Keys[T]:
        """Extend `keys` with the nodes whose turns changed in the handlers that ran before."""
        return lambda delta: (*keys(delta), *self._zones.pop_changed_nodes())

    def _handle_node_deltas(self, deltas: Sequence[Delta[Node]]) -> None:
        now = self._clock.monotonic()
        for delta in deltas:
            name = delta.obj.metadata.name
            if delta.kind == DELETED:
                self._silences.remove_node(name)
                self._zones.remove_node(name, now)
            else:
                self._silences.update_lease(name, now)
                if delta.old is not None and ready_status(delta.obj) == "True" != ready_status(delta.old):
                    self._silences.restart_timer(name, now)
                self._update_zone(delta.obj, now)

    def _handle_lease_deltas(self, deltas: Sequence[Delta[Lease]]) -> None:
        now = self._clock.monotonic()
        for delta in deltas:
            name = delta.obj.metadata.name
            if delta.obj.metadata.namespace == NODE_LEASE_NAMESPACE and (node := self._nodes.get(name)) is not None:
                self._silences.update_lease(name, now)
                self._update_zone(node, now)

    def _update_zone(self, node: Node, now: float) -> None:
        """Update the zone of a node. A silent node counts as unhealthy before it is marked, so that the zone's state is
        current."""
        name = node.metadata.name
        healthy = ready_status(node) == "True" and self._silences.seconds_without_lease(name, now) is None
        self._zones.update_node(name, zone_of(node), healthy, now, counts=counts_for_zone(node))


def not_ready_status(pod: Pod, now: float) -> Pod | None:
    """Return the status of a pod on an unreachable node, or None if the pod is not Ready. `now` is Unix time."""
    said = conditions.find_condition(pod.status.conditions, "Ready")
    if said is None or said.status != "True":
        return None
    changed = status_of(pod)
    conditions.set_condition(changed.status.conditions, "Ready", "False", said.reason, said.message, now)
    return changed


def _key_of_node(delta: Delta[Lease]) -> Sequence[str]:
    metadata = delta.obj.metadata
    return [metadata.name] if metadata.namespace == NODE_LEASE_NAMESPACE else []
