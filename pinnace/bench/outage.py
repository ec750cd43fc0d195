"""What becomes of the pods of a fleet that dies: an observer of nodes and pods, and what it has seen, moment by moment.

    hit -> the first node NotReady -> the last -> the first old pod deleted -> the last -> as many run elsewhere as are wanted
    back -> the last of its nodes is Ready -> the last of the old pods is gone

Times are those of arrival here, on this process' monotonic clock.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from pinnace.api import conditions
from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.resources import NODES, PODS, Resource, T
from pinnace.api.verbs_pb2 import WatchEventType
from pinnace.bench.errors import BenchError
from pinnace.client.client import Client
from pinnace.client.errors import Conflict, Unavailable
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock

RESUME_DELAY = 0.02


@dataclass(slots=True)
class _Pod:
    node: str = ""
    ready: bool = False
    ending: float = 0.0
    """When it was seen to be deleted, or asked to end; 0.0: never."""


@dataclass(slots=True)
class Outage:
    """The pure part: events in, moments out. `nodes`: those of the fleet that is to die; pods count when `counts` says so."""

    nodes: Collection[str]
    counts: Callable[[Pod], bool] = lambda pod: True
    unready: dict[str, float] = field(default_factory=dict)
    """Since when each of the nodes is not Ready; without those that are."""
    pods: dict[str, _Pod] = field(default_factory=dict)
    """By uid, those that are there."""
    ended: dict[str, float] = field(default_factory=dict)
    """When each pod that had been bound to one of the nodes was seen to be ending, by uid."""
    moved: list[str] = field(default_factory=list)
    """Names of the pods that were bound to another node than before: must never be."""
    fewest: int = 0
    """The least number of pods that were ready on other nodes, or on these while Ready, since `count`."""

    def see_nodes(self, events: Iterable[tuple[WatchEventType, Node]], now: float) -> None:
        for kind, node in events:
            name = node.metadata.name
            if name not in self.nodes:
                continue
            if kind != WatchEventType.DELETED and is_ready(node):
                self.unready.pop(name, None)
            else:
                self.unready.setdefault(name, now)

    def see_pods(self, events: Iterable[tuple[WatchEventType, Pod]], now: float) -> None:
        for kind, pod in events:
            if not self.counts(pod):
                continue
            uid = pod.metadata.uid
            seen = self.pods.setdefault(uid, _Pod())
            if seen.node and pod.spec.nodeName != seen.node:
                self.moved.append(pod.metadata.name)
            seen.node = pod.spec.nodeName
            seen.ready = is_ready(pod)
            if kind == WatchEventType.DELETED or pod.metadata.HasField("deletionTimestamp"):
                seen.ending = seen.ending or now
                if seen.node in self.nodes:
                    self.ended.setdefault(uid, now)
            if kind == WatchEventType.DELETED:
                del self.pods[uid]
        self.fewest = min(self.fewest, self.serving)

    def count(self) -> None:
        """From now on `fewest` counts."""
        self.fewest = self.serving

    @property
    def serving(self) -> int:
        """Pods that are ready, are to stay, and whose node is."""
        return sum(seen.ready and not seen.ending and seen.node not in self.unready for seen in self.pods.values())

    @property
    def there(self) -> set[str]:
        """The uids of the pods on the nodes of the fleet."""
        return {uid for uid, seen in self.pods.items() if seen.node in self.nodes}


def is_ready(obj: Node | Pod) -> bool:
    return conditions.is_true(obj.status.conditions, "Ready")


class Observer:
    """Feeds an Outage from two watches, each resumed where it was. `run` inside a task group; raises ApiError when something
    had to be missed."""

    def __init__(self, client: Client, outage: Outage, clock: Clock = SYSTEM_CLOCK) -> None:
        self.outage = outage
        self._client = client
        self._clock = clock
        self._news = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(NODES, self.outage.see_nodes))
            group.create_task(self._watch(PODS, self.outage.see_pods))

    async def _watch(self, resource: Resource[T], see: Callable[[Iterable[tuple[WatchEventType, T]], float], None]) -> None:
        client, revision = self._client.of(resource), None
        while True:
            try:
                async for batch in client.watch(resource_version=revision):
                    if batch.resource_version:
                        revision = batch.resource_version
                    if batch.events:
                        see(batch.events, self._clock.monotonic())
                        self._news.set()
            except (Unavailable, Conflict):
                await self._clock.sleep(RESUME_DELAY)

    async def until(self, condition: Callable[[], bool], what: str, timeout: float) -> float:
        """When it was first seen to be true. Raises BenchError when that is not in time."""
        try:
            async with asyncio.timeout(timeout):
                while not condition():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise BenchError(f"waited {timeout:g} s in vain for {what}") from None
        return self._clock.monotonic()
