"""The node lifecycle controller: says of a node whose kubelet is silent that nothing is known of it, and keeps its taints.

What the kubelet reports again when it comes back is the kubelet's to write; the taints then go here, at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from controllers.controller import Keys, Shared, T, Watch, itself
from controllers.nodelifecycle.conditions import left, ready, unreachable
from controllers.nodelifecycle.silence import Silences
from controllers.nodelifecycle.taints import evicts, should_evict, tainted
from controllers.nodelifecycle.zones import Rates, Zones, counts, zone_of
from controllers.places import node_of
from controllers.writes import Batcher, in_batches, unless_refused
from pinnace.api import conditions
from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.podstatus import status_of
from pinnace.api.resources import LEASES, NODE_LEASE_NAMESPACE, NODES, PODS
from pinnace.api.verbs_pb2 import DELETED
from pinnace.client.errors import ApiError, NotFound
from pinnace.client.informer import Delta

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
        self._silences = Silences(informers.store(LEASES))
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
