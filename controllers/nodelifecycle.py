"""The node lifecycle controller: marks nodes whose kubelet is silent as unreachable, and keeps their taints.

    lease gone --grace--> Ready Unknown, NoSchedule --rate of the zone--> NoExecute --tolerationSeconds--> pods deleted

Conditions: reasons and messages are Kubernetes'. Of conditions that no kubelet has reported, only Ready is added. The kubelet
resets them when it returns; then this controller removes the taints.

Leases: a Lease object exists only while a fleet's session is alive, so a missing Lease means that the kubelet is silent.
Timestamps do not matter. Standbys keep count as well, so that a new leader knows how long each node has been silent.

Taints: NoSchedule taints follow conditions at once. NoExecute taints are added when the zone's rate allows it, and removed at
once. A node that has never reported Ready keeps the not-ready taint that it was created with. Other taints are left alone.

Zones: many silent nodes indicate a network failure, so the rate of evictions depends on the state of the zone.

    state of a zone      when                                             nodes evicted a second
    Normal                                                                Rates.eviction
    PartialDisruption    more than 2 are not ready, and a share of        Rates.secondary; 0 in a zone that is
                         Rates.unhealthy of all                           no larger than Rates.large
    FullDisruption       none is ready                                    Rates.eviction
    all zones so                                                          0, and NoExecute taints are removed

Nodes with the label node.kubernetes.io/exclude-disruption do not count for the state. A turn that is given back goes to the
node with the last turn, so that only one node is synced. After all zones were disrupted, no node is evicted for RECOVERY
seconds: the kubelets return one after another.

Source: https://kubernetes.io/docs/concepts/architecture/nodes/#rate-limits-on-eviction, and ComputeZoneState in Kubernetes. The
default rates are a thousand times Kubernetes' (0.1 and 0.01 a second).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from controllers.pods import node_of
from controllers.runtime import Keys, Shared, T, Watch, itself
from controllers.writes import Batcher, in_batches, unless_refused
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

PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")
_OBSERVED = frozenset({"Ready", *PRESSURES})
"""What only the kubelet can tell."""


def ready(node: Node) -> str:
    """The status of its condition Ready; empty: it has none."""
    found = conditions.find(node.status.conditions, "Ready")
    return found.status if found is not None else ""


def left(node: Node, silent: float | None, grace: float, startup: float) -> float | None:
    """Seconds until the node counts as unreachable, 0 when it does; None: its kubelet is there. `silent`: for how long it has
    not been, in seconds. A node that has never been Ready or not gets the `startup` grace, others `grace`."""
    if silent is None:
        return None
    return max(0.0, (grace if ready(node) else startup) - silent)


def unreachable(node: Node, now: float) -> Node | None:
    """The node with nothing known of it; None: it says so already. `now` is Unix time."""
    known = [each.type for each in node.status.conditions if each.type in _OBSERVED and each.status != "Unknown"]
    if not known and ready(node):
        return None
    changed = Node()
    changed.CopyFrom(node)
    told = changed.status.conditions
    for type_ in known:
        conditions.say(told, type_, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.", now)
    if not ready(node):
        conditions.say(told, "Ready", "Unknown", "NodeStatusNeverUpdated", "Kubelet never posted node status.", now)
    return changed


def lease_key(node: str) -> str:
    """In the informer's store."""
    return f"{NODE_LEASE_NAMESPACE}/{node}"


class LeaseMonitor:
    """`leases`: those that there are, by lease_key."""

    def __init__(self, leases: Mapping[str, Lease]) -> None:
        self._leases = leases
        self._since: dict[str, float] = {}

    def look(self, node: str, now: float) -> None:
        """The node, or its lease, has come or gone."""
        if lease_key(node) in self._leases:
            self._since.pop(node, None)
        else:
            self._since.setdefault(node, now)

    def forget(self, node: str) -> None:
        self._since.pop(node, None)

    def lasts(self, node: str, now: float) -> float | None:
        """Seconds for which nobody has held its lease; None: somebody does."""
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


def evicts(node: Node) -> bool:
    """Has it a taint of ours that sends pods away?"""
    return any(taint.effect == "NoExecute" and taint.key in _NO_EXECUTE for taint in node.spec.taints)


def should_evict(node: Node) -> bool:
    return ready(node) in _EVICTING


def tainted(node: Node, evict: bool, now: float) -> Node | None:
    """The node with the taints that it should have; None: it has them. `evict`: with those that send pods away, if it is not
    Ready. `now` is Unix time."""
    wanted = {
        (key, "NoSchedule")
        for (type_, status), key in _BY_CONDITION.items()
        if (found := conditions.find(node.status.conditions, type_)) is not None and found.status == status
    }
    if node.spec.unschedulable:
        wanted.add((UNSCHEDULABLE_TAINT, "NoSchedule"))
    if not ready(node):
        wanted |= {(NOT_READY_TAINT, taint.effect) for taint in node.spec.taints if taint.key == NOT_READY_TAINT}
    if evict and should_evict(node):
        wanted.add((_EVICTING[ready(node)], "NoExecute"))
    has = {(taint.key, taint.effect) for taint in node.spec.taints if _is_ours(taint)}
    if has == wanted:
        return None
    changed = Node()
    changed.CopyFrom(node)
    kept = [taint for taint in node.spec.taints if not _is_ours(taint) or (taint.key, taint.effect) in wanted]
    del changed.spec.taints[:]
    changed.spec.taints.extend(kept)
    for key, effect in sorted(wanted - has):
        changed.spec.taints.add(key=key, effect=effect, timeAdded=to_time(now))
    return changed


def _is_ours(taint: Taint) -> bool:
    return taint.key in (_NO_EXECUTE if taint.effect == "NoExecute" else _NO_SCHEDULE if taint.effect == "NoSchedule" else ())


FEW = 2
"""So many nodes that are not ready disrupt no zone."""
RECOVERY = 5.0
EXCLUDED_LABEL = "node.kubernetes.io/exclude-disruption"
"""Whatever its value is."""


class State(StrEnum):
    NORMAL = "Normal"
    PARTIAL = "PartialDisruption"
    FULL = "FullDisruption"


@dataclass(frozen=True, slots=True)
class Rates:
    """Nodes a second; the share of nodes that are not ready from which a zone is disrupted; and the size from which a zone is
    large."""

    eviction: float = 100.0
    secondary: float = 10.0
    unhealthy: float = 0.55
    large: int = 50


def zone_of(node: Node) -> str:
    labels = node.metadata.labels
    region, zone = labels.get(REGION_LABEL, ""), labels.get(ZONE_LABEL, "")
    return f"{region}:{zone}" if region or zone else ""


def counts(node: Node) -> bool:
    """For the state of its zone."""
    return EXCLUDED_LABEL not in node.metadata.labels


def state_of(healthy: int, unhealthy: int, threshold: float) -> State:
    if unhealthy and not healthy:
        return State.FULL
    if unhealthy > FEW and unhealthy / (healthy + unhealthy) >= threshold:
        return State.PARTIAL
    return State.NORMAL


class Zone:
    """Which nodes are well, and when the others may be emptied."""

    def __init__(self) -> None:
        self.nodes: dict[str, bool] = {}  # is it healthy?
        self.excluded: set[str] = set()  # of these
        self.unhealthy = 0  # of the others
        self.rate = 0.0
        self.turns: dict[str, float] = {}  # given out at this rate
        self.last_turn = float("-inf")

    def put(self, node: str, healthy: bool, counts: bool) -> bool:
        """Is that news?"""
        if self.nodes.get(node) is healthy and (node not in self.excluded) is counts:
            return False
        self.drop(node)
        self.nodes[node] = healthy
        if counts:
            self.unhealthy += not healthy
        else:
            self.excluded.add(node)
        return True

    def drop(self, node: str) -> None:
        healthy = self.nodes.pop(node, True)
        if node in self.excluded:
            self.excluded.remove(node)
        else:
            self.unhealthy -= not healthy

    @property
    def size(self) -> int:
        """Nodes that count."""
        return len(self.nodes) - len(self.excluded)

    def state(self, threshold: float) -> State:
        return state_of(self.size - self.unhealthy, self.unhealthy, threshold)

    def give_back(self, node: str, now: float) -> Collection[str]:
        """The node's turn, unless it has come. Whose is another now."""
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
    """Times are monotonic seconds."""

    def __init__(self, rates: Rates) -> None:
        self._rates = rates
        self._zones: dict[str, Zone] = {}
        self._zone_of: dict[str, str] = {}
        self._disrupted = False
        self._changed: set[str] = set()
        self._resumed = float("-inf")

    def note(self, node: str, zone: str, healthy: bool, now: float, *, counts: bool = True) -> None:
        """What is known of a node. `counts`: for the state of its zone."""
        if self._zone_of.get(node, zone) != zone:
            self.forget(node, now)
        found = self._zones.setdefault(zone, Zone())
        if not found.put(node, healthy, counts):
            return
        self._zone_of[node] = zone
        if healthy:
            self._changed.update(found.give_back(node, now))
        self._look(found, now)

    def forget(self, node: str, now: float) -> None:
        zone = self._zone_of.pop(node, None)
        if zone is None:
            return
        found = self._zones[zone]
        found.drop(node)
        self._changed.update(found.give_back(node, now))
        self._changed.discard(node)
        if not found.nodes:
            del self._zones[zone]
        self._look(found, now)

    @property
    def disrupted(self) -> bool:
        """Is no node of any zone ready, of those that count?"""
        return self._disrupted

    def states(self) -> dict[str, State]:
        return {name: zone.state(self._rates.unhealthy) for name, zone in self._zones.items()}

    def turn(self, node: str, now: float) -> float | None:
        """Seconds until this node may be emptied, 0: now. None: not before its zone is better. It keeps its turn, unless it
        gets an earlier one."""
        zone = self._zones[self._zone_of[node]]
        if not zone.rate:
            return None
        if node not in zone.turns:
            zone.turns[node] = zone.last_turn = max(now, self._resumed + RECOVERY, zone.last_turn + 1 / zone.rate)
        return max(0.0, zone.turns[node] - now)

    def take_changed(self) -> set[str]:
        """Nodes that are not well, and whose turns are others since this was last asked: the rate of their zone has changed, or
        a turn was given back."""
        changed, self._changed = self._changed, set()
        return changed

    def _rate(self, zone: Zone) -> float:
        if zone.state(self._rates.unhealthy) is not State.PARTIAL:
            return self._rates.eviction
        return self._rates.secondary if zone.size > self._rates.large else 0.0

    def _look(self, changed: Zone, now: float) -> None:
        states = [zone.unhealthy == zone.size for zone in self._zones.values() if zone.size]
        disrupted = bool(states) and all(states)
        concerned = (changed,) if disrupted is self._disrupted else self._zones.values()
        if self._disrupted and not disrupted:
            self._resumed = now
        self._disrupted = disrupted
        for zone in concerned:
            self._set_rate(zone)

    def _set_rate(self, zone: Zone) -> None:
        """A new rate gives turns anew."""
        rate = 0.0 if self._disrupted else self._rate(zone)
        if rate != zone.rate:
            zone.rate, zone.last_turn = rate, float("-inf")
            zone.turns.clear()
            self._changed.update(name for name, healthy in zone.nodes.items() if not healthy)


LOOK_AGAIN = 10.0
"""Seconds between two looks at a node that is silent: that a pod was Ready may be heard after its node was marked."""


@dataclass(frozen=True, slots=True)
class Options:
    """`grace`: seconds for which a node may have no lease before it counts as unreachable; `startup`: of one that has never
    reported."""

    grace: float = 0.5
    startup: float = 60.0
    rates: Rates = field(default_factory=Rates)


class NodeLifecycle:
    name = "node-lifecycle"
    workers = 64
    max_backoff = 60.0

    def __init__(self, shared: Shared, options: Options) -> None:
        self._client = shared.client.nodes
        self._pods_client = shared.client.pods
        self._events = shared.events
        self._clock = shared.clock
        self._options = options
        informers = shared.informers
        self._nodes = informers.store(NODES)
        self._pods = informers.index(PODS, node_of)
        self._silences = LeaseMonitor(informers.store(LEASES))
        self._zones = Zones(options.rates)
        self._statuses: Batcher[Node] = Batcher(self._client.update_status_batch)
        informers.add_handler(NODES, self._nodes_changed)
        informers.add_handler(LEASES, self._leases_changed)

    @property
    def watches(self) -> Sequence[Watch[Any]]:
        return (Watch(NODES, self._and_changed(itself)), Watch(LEASES, self._and_changed(_its_node)))

    async def sync(self, key: str) -> float | None:
        node = self._nodes.get(key)
        if node is None:
            return None
        now = self._clock.monotonic()
        wait = left(node, self._silences.lasts(key, now), self._options.grace, self._options.startup)
        refused: Sequence[ApiError | None] = ()
        try:
            if wait == 0.0:
                node = await self._mark(node)
                refused = await self._mark_pods(key)
            if key not in self._nodes:
                return None
            turn = await self._taint(node, now)
        except NotFound:
            return None
        again = min((each for each in (LOOK_AGAIN if wait == 0.0 else wait, turn) if each is not None), default=None)
        return unless_refused(again, refused, but=(NotFound,))

    async def _mark(self, node: Node) -> Node:
        """Says of the node that it is unreachable."""
        marked = unreachable(node, self._clock.time())
        if marked is not None:
            marked.metadata.resourceVersion = await self._statuses.write(marked)
            if ready(node) == "True":
                name = node.metadata.name
                self._events.event(node, "Normal", "NodeNotReady", f"Node {name} status is now: NodeNotReady")
        return marked or node

    async def _mark_pods(self, node: str) -> Sequence[ApiError | None]:
        """Says of its pods that they are not ready. What became of each: nothing that its taints have to wait for."""
        changed = [pod for each in self._pods.under(node).values() if (pod := not_ready(each, self._clock.time())) is not None]
        for pod in changed:
            self._events.event(pod, "Warning", "NodeNotReady", "Node is not ready")
        return await in_batches(self._pods_client.update_status_batch, changed)

    async def _taint(self, node: Node, now: float) -> float | None:
        """Seconds until the node's turn to be emptied; None: it needs none, or gets it only when its zone is better."""
        marked = evicts(node) and not self._zones.disrupted
        turn = self._zones.turn(node.metadata.name, now) if should_evict(node) and not marked else 0.0
        changed = tainted(node, turn == 0.0, self._clock.time())
        if changed is not None:
            await self._client.update(changed)
        return turn or None

    def _and_changed(self, keys: Keys[T]) -> Keys[T]:
        """And the nodes that may be emptied now, or not any longer, by what our handlers heard of just before."""
        return lambda delta: (*keys(delta), *self._zones.take_changed())

    def _nodes_changed(self, deltas: Sequence[Delta[Node]]) -> None:
        now = self._clock.monotonic()
        for delta in deltas:
            name = delta.obj.metadata.name
            if delta.kind == DELETED:
                self._silences.forget(name)
                self._zones.forget(name, now)
            else:
                self._silences.look(name, now)
                self._note(delta.obj, now)

    def _leases_changed(self, deltas: Sequence[Delta[Lease]]) -> None:
        now = self._clock.monotonic()
        for delta in deltas:
            name = delta.obj.metadata.name
            if delta.obj.metadata.namespace == NODE_LEASE_NAMESPACE and (node := self._nodes.get(name)) is not None:
                self._silences.look(name, now)
                self._note(node, now)

    def _note(self, node: Node, now: float) -> None:
        """A node that is silent counts before it is marked: when the first of many is, it is known that there are many."""
        name = node.metadata.name
        healthy = ready(node) == "True" and self._silences.lasts(name, now) is None
        self._zones.note(name, zone_of(node), healthy, now, counts=counts(node))


def not_ready(pod: Pod, now: float) -> Pod | None:
    """The status of a pod whose node is unreachable; None: it is not Ready anyway. `now` is Unix time."""
    said = conditions.find(pod.status.conditions, "Ready")
    if said is None or said.status != "True":
        return None
    changed = status_of(pod)
    conditions.say(changed.status.conditions, "Ready", "False", said.reason, said.message, now)
    return changed


def _its_node(delta: Delta[Lease]) -> Sequence[str]:
    metadata = delta.obj.metadata
    return [metadata.name] if metadata.namespace == NODE_LEASE_NAMESPACE else []
