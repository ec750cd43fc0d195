"""The watches that a fleet opens, and the changes that it receives, with a fake watch."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import PODS
from pinnace.api.verbs_pb2 import WatchEventType
from pinnace.client.errors import unavailable_error
from pinnace.client.informer import STALE_AFTER, Delta
from pinnace.client.resource import WatchBatch
from pinnace.kubelet.pod_manager import GATHER, PodWatch
from tests.builders import make_node, make_pod
from tests.clock import FakeClock
from tests.unit.kubelet.fakeapi import FakeApi


class FakePods:
    """The client of the watch, and the pods of the fleet that receive its changes."""

    resource = PODS

    def __init__(self) -> None:
        self.selectors: list[str] = []
        self.open = 0
        self.broken = asyncio.Event()
        self.present: list[Pod] = []
        self.handled: list[str] = []
        self.listed: list[tuple[set[str], list[str]]] = []

    async def watch(self, *, fields: str, **_: object) -> AsyncIterator[WatchBatch[Pod]]:
        self.selectors.append(fields)
        self.open += 1
        try:
            if not self.broken.is_set():
                yield WatchBatch([(WatchEventType.ADDED, pod) for pod in self.present], 7)
            await self.broken.wait()
            raise unavailable_error("API server a:1 is at revision 5, behind 7")
        finally:
            self.open -= 1

    def handle(self, deltas: Sequence[Delta[Pod]]) -> None:
        self.handled += (delta.obj.metadata.name for delta in deltas)

    def replace_pods(self, nodes: Collection[str], pods: Collection[Pod]) -> None:
        self.listed.append((set(nodes), [pod.metadata.name for pod in pods]))


class Scene:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.pods = FakePods()
        self.watch = PodWatch(self.pods, self.pods, clock=self.clock)

    async def follow(self, *nodes: str) -> None:
        self.watch.watch_nodes(nodes)
        await self.clock.advance(0.0)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    running = asyncio.create_task(scene.watch.run())
    await scene.clock.advance(0.0)
    yield scene
    assert not running.done(), "the watch has ended"
    running.cancel()


async def test_fleet_without_nodes_is_healthy_without_a_watch(scene: Scene) -> None:
    await scene.follow()
    assert (scene.pods.selectors, scene.watch.healthy) == ([], None)


async def test_nodes_share_a_watch(scene: Scene) -> None:
    scene.pods.present = [make_pod("a").build()]
    await scene.follow("n-1", "n-0")
    assert scene.pods.selectors == ["spec.nodeName in (n-0,n-1)"]
    assert (scene.pods.handled, scene.pods.listed) == ([], [({"n-0", "n-1"}, ["a"])])
    assert scene.watch.healthy is None


async def test_nodes_added_together_cause_one_new_watch(scene: Scene) -> None:
    await scene.follow("n-0")
    await scene.follow("n-0", "n-1")
    await scene.clock.advance(GATHER / 2)
    await scene.follow("n-0", "n-1", "n-2")
    await scene.clock.advance(GATHER)
    assert scene.pods.selectors == ["spec.nodeName in (n-0)", "spec.nodeName in (n-0,n-1,n-2)"]
    assert scene.pods.open == 1
    assert len(scene.pods.listed) == 2


async def test_removed_node_keeps_the_watch(scene: Scene) -> None:
    await scene.follow("n-0", "n-1")
    await scene.follow("n-1")
    await scene.clock.advance(1.0)
    assert len(scene.pods.selectors) == 1


async def test_readded_node_causes_a_new_watch(scene: Scene) -> None:
    await scene.follow("n-0", "n-1")
    await scene.follow("n-1")
    await scene.follow("n-0", "n-1")
    await scene.clock.advance(1.0)
    assert len(scene.pods.selectors) == 2


async def test_fleet_with_a_stale_watch_is_not_ready(scene: Scene) -> None:
    """Regression: after a restore of etcd from a backup, every API server was behind and no pod was received, but the fleet
    was ready.
    """
    await scene.follow("n-0")
    assert scene.watch.healthy is None
    scene.pods.broken.set()
    await scene.clock.advance(STALE_AFTER)
    assert "is at revision 5, behind 7" in (scene.watch.healthy or "")


async def test_deleted_pods_free_room_before_new_pods_are_admitted() -> None:
    """Regression: a fleet gained a node while a pod was force-deleted and another one was bound in its place. The new pod
    failed with OutOfcpu.
    """
    api = FakeApi()
    api.deaf = True
    await api.start_fleet(make_node("n").capacity(cpu="1", memory="8Gi", pods="10").build())

    async def watch(**_: object) -> AsyncIterator[WatchBatch[Pod]]:
        await api.clock.sleep(0.01)
        yield WatchBatch([(WatchEventType.ADDED, pod) for pod in api.pods.values()], 7)
        await asyncio.Event().wait()

    client: Any = SimpleNamespace(resource=PODS, watch=watch)
    watched = PodWatch(client, api.fleet, clock=api.clock)
    running = asyncio.create_task(watched.run())
    api.create(make_pod("old").req(cpu="1"))
    watched.watch_nodes(["n"])
    await api.clock.advance(1.0)
    assert api.phases("old") == ["Running"]
    api.fleet.set_node(make_node("m").build())
    watched.watch_nodes(["n", "m"])
    api.remove("old")
    api.create(make_pod("new").req(cpu="1"))
    await api.clock.advance(1.0)
    running.cancel()
    await api.stop_fleet()
    assert api.phases("new") == ["Running"]
