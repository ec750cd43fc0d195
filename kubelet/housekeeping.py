"""Nodes that are short of something: their conditions, and one pod after another that goes.

    looked at when the node changes, and every HOUSEKEEPING seconds --> conditions (written by whoever registers the nodes)
                                                                    '-> one pod a node at most is evicted, while it lasts

Only nodes that are told to be short of something, or that have a pod that declares what it uses, are looked at: all others have
what their pods request, because they admit no more.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from kubelet.eviction import (
    RESOURCES,
    THRESHOLD,
    Kind,
    available,
    consumer,
    eviction_message,
    over_limit,
    shortages,
    used,
    victim,
)
from kubelet.virtualnodes import VirtualNodes
from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock

HOUSEKEEPING = 2.0
"""Seconds between two looks, and so between two evictions of one node. The kubelet's is 10."""
TRANSITION = 30.0
"""Seconds for which a node says that it is under pressure after it was: else what it has evicted might come back at once, and
push again. The kubelet's eviction-pressure-transition-period is 5 minutes."""


class Tenants(Protocol):
    """What this needs of kubelet.pods.Pods."""

    def staying(self, node: str) -> Sequence[Pod]:
        """The pods that use something of the node, and are to stay."""
        ...

    def evict(self, uid: str, message: str, *, disrupts: bool) -> None:
        """`disrupts`: it is the node's need, and nothing that the pod has done."""
        ...


class Housekeeping:
    """`on_change(nodes)`: what these are short of has changed."""

    def __init__(
        self,
        nodes: VirtualNodes,
        tenants: Tenants,
        *,
        on_change: Callable[[Collection[str]], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._nodes = nodes
        self._tenants = tenants
        self._on_change = on_change
        self._clock = clock
        self._told: dict[str, dict[Kind, int | None]] = {}
        self._until: dict[str, dict[Kind, float]] = {}  # monotonic

    def pressures(self, node: str) -> Sequence[Kind]:
        held = self._until.get(node, {})
        return [kind for kind in Kind if kind in held]

    def beside(self, node: str) -> int:
        """Bytes of memory that others use beside the node's pods."""
        return self._told.get(node, {}).get(Kind.MEMORY) or 0

    def learn(self, node: Node) -> None:
        """A node that is played is there, or has changed."""
        name, told = node.metadata.name, shortages(node)
        if told == self._told.get(name, {}):
            return
        self._told[name] = told
        if not told:
            del self._told[name]
        self._until.pop(name, None)  # somebody has put it right, or made it worse
        self._look(name, evict=False)

    def forget(self, nodes: Collection[str]) -> None:
        for name in nodes:
            self._told.pop(name, None)
            self._until.pop(name, None)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._clock.sleep(HOUSEKEEPING)
            concerned = {*self._told, *self._until, *self._nodes.consuming}
            changed = [name for name in sorted(concerned) if self._look(name, evict=True)]
            if changed:
                self._on_change(changed)

    def _look(self, name: str, *, evict: bool) -> bool:
        """Has what it is short of changed?"""
        before, now = self.pressures(name), self._clock.monotonic()
        held = {kind: until for kind, until in self._until.get(name, {}).items() if until > now}
        pods = self._tenants.staying(name)
        gone: str | None = None
        for pod in pods if evict else ():
            if message := over_limit(pod):
                self._tenants.evict(pod.metadata.uid, message, disrupts=False)
                gone = pod.metadata.uid
        for kind in Kind:
            short, left = self._short(name, kind, pods)
            if short:
                held[kind] = now + TRANSITION
                if evict and gone is None:
                    gone = self._evict_one(kind, pods, left)
        self._until[name] = held
        if not held:
            del self._until[name]
        self._nodes.press(name, self.pressures(name))
        return self.pressures(name) != before

    def _short(self, name: str, kind: Kind, pods: Sequence[Pod]) -> tuple[bool, int | None]:
        """Is it short of it, and how much is left, where that is known?"""
        told, capacity = self._told.get(name, {}), self._nodes.allocatable(name).get(RESOURCES[kind])
        if kind in told and told[kind] is None:
            return True, None
        if capacity is None:
            return kind in told, None
        left = available((used(pod, kind) for pod in pods), capacity, told.get(kind) or 0)
        return left < THRESHOLD, left

    def _evict_one(self, kind: Kind, pods: Sequence[Pod], left: int | None) -> str | None:
        uid = victim(kind, (consumer(pod, kind) for pod in pods))
        for pod in pods:
            if pod.metadata.uid == uid:
                self._tenants.evict(pod.metadata.uid, eviction_message(pod, kind, left), disrupts=True)
        return uid
