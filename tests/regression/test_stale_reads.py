"""Reads that return a state older than an earlier read, and their consequences."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from pinnace.api.core_v1_pb2 import PodList
from pinnace.api.resources import PODS
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.cacher.listing import ListQuery
from pinnace.apiserver.services import resource
from pinnace.apiserver.storage.interface import ChangeBatch
from pinnace.client.client import Client
from pinnace.client.events import EventRecorder
from pinnace.kubelet.node import VirtualNodes
from pinnace.kubelet.pod_manager import PodManager, PodWatch
from pinnace.kubelet.runtime.simulated_runtime import SimulatedRuntime
from pinnace.kubelet.runtime.stages import Behaviour
from tests.builders import make_node
from tests.contract.servers import Severable
from tests.regression.servers import serving
from tests.storage.memory import MemoryStorage
from tests.unit.cacher.flaky import FlakyStorage
from tests.unit.cacher.world import CASES, Reader, World, eventually, pod, running
from tests.unit.client.fakeserver import connect

ALL_PODS = CASES[0].selection
PATIENCE = 10.0


class Lagging(Severable):
    """A shared store whose watch stops for one server once `lags` is set."""

    lags = False

    async def watch(self, start_revision: int) -> AsyncGenerator[ChangeBatch]:
        async with aclosing(super().watch(start_revision)) as batches:
            async for batch in batches:
                if self.lags:
                    await asyncio.get_running_loop().create_future()
                yield batch


async def test_kubernetes_59848_restarted_kubelet_does_not_use_a_stale_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubelet restarted and listed its pods with resourceVersion 0 from an API server whose cache lagged. It started a
    deleted pod while a pod with the same name ran on another node: https://github.com/kubernetes/kubernetes/issues/59848

    Here: the fleet starts with the initial state of a watch. Guard: the server answers a watch without a resourceVersion only
    once its cache has reached the current revision of etcd. Otherwise it fails the call, and the client uses another server."""
    monkeypatch.setattr(resource, "READ_TIMEOUT", 0.3)
    store = MemoryStorage()
    world = World(store)
    lagging = Lagging(store)
    async with serving(store) as good, serving(lagging) as bad:
        old = pod("pod-0", node="node-1")
        await world.put(old)
        client = Client(connect(bad))
        assert (await client.pods.get("pod-0", "default")).spec.nodeName == "node-1"
        lagging.lags = True
        await world.delete("pod-0")
        new = pod("pod-0", node="node-2")
        new.metadata.uid = "another"
        await world.put(new)
        assert (await client.pods.list(resource_version="0")).items[0].spec.nodeName == "node-1", "the cache does not lag"

        restarted = Client(connect(bad, good))
        recorder = EventRecorder(restarted.events, "kubelet", "fleet")
        fleet = PodManager(VirtualNodes(), restarted.pods, SimulatedRuntime(Behaviour()), recorder)
        fleet.set_node(make_node("node-1").build())
        watch = PodWatch(restarted.pods, fleet)
        watch.watch_nodes(["node-1"])
        tasks = [asyncio.ensure_future(part.run()) for part in (fleet, watch)]
        await eventually(lambda: watch.healthy is None)
        assert len(fleet) == 0, "node-1 runs a deleted pod, besides the pod with the same name on node-2"
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for item in (client, restarted):
            await item.connection.close()


class StaleRevisions(FlakyStorage):
    """Simulates an etcd member after a pause: the next `stale` reads of the revision return an old one."""

    stale = 0

    async def current_revision(self) -> int:
        now = await super().current_revision()
        if self.stale:
            self.stale -= 1
            return 2
        return now


async def test_etcd_20418_stale_read_does_not_move_a_list_backwards() -> None:
    """After a pause of its process, an etcd member answered linearizable reads with an old state:
    https://github.com/etcd-io/etcd/issues/20418

    Here: a list could be older than an earlier list. Guard: lists come from the cache. The server only waits until the cache
    has reached the revision of etcd, so a lower revision has no effect."""
    storage = StaleRevisions()
    world = World(storage)
    await world.put(pod("a"))
    async with running(Cacher(storage)) as cacher:
        last = await world.put(pod("b"))
        await cacher.wait_for(last, PATIENCE)
        storage.stale = 1
        shown = PodList.FromString(await cacher.cache_of(PODS).list(ListQuery(ALL_PODS)))
        assert [item.metadata.name for item in shown.items] == ["a", "b"]
        assert int(shown.metadata.resourceVersion) == last


async def test_etcd_20418_stale_read_is_not_mistaken_for_a_restore() -> None:
    """As above, while the cache resumes a broken watch. A revision below its own looks like a restored store, for which the
    cache would load the old state and end all watches.

    Guard: the cache needs two reads with a lower revision, because the second read has its own ReadIndex."""
    storage = StaleRevisions()
    world = World(storage)
    await world.put(pod("a"))
    async with running(Cacher(storage)) as cacher:
        start = cacher.revision
        reader = Reader(cacher.cache_of(PODS).watch(ALL_PODS, start), start)
        await reader.until(await world.put(pod("b")))
        storage.stale = 1
        storage.break_watches()
        last = await world.put(pod("c"))
        await reader.until(last)
        assert storage.stale == 0, "the cache did not read the revision"
        assert reader.events == world.events(lambda pod: True, start, last)
