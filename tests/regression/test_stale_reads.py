"""Reads that were older than what had been told before, and what was done on the strength of them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from apiserver.cacher.cacher import Cacher
from apiserver.cacher.listing import ListQuery
from apiserver.services import resource
from apiserver.storage.interface import Changes
from kubelet.node import VirtualNodes
from kubelet.pod_manager import PodManager, PodWatch
from kubelet.runtime.fake import FakeRuntime
from kubelet.runtime.stages import Behaviour
from pinnace.api.core_v1_pb2 import PodList
from pinnace.api.resources import PODS
from pinnace.client.client import Client
from pinnace.client.events import EventRecorder
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
    """A server's own way to the store that others share: its watch shows nothing any more, once it `lags`."""

    lags = False

    async def watch(self, start_revision: int) -> AsyncGenerator[Changes]:
        async with aclosing(super().watch(start_revision)) as batches:
            async for batch in batches:
                if self.lags:
                    await asyncio.get_running_loop().create_future()
                yield batch


async def test_kubernetes_59848_a_kubelet_that_restarts_before_a_server_that_lags(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubelet restarted, and listed its pods with resourceVersion 0 at an API server whose cache was far behind: it started a
    pod that had been deleted, while its namesake ran on another node: https://github.com/kubernetes/kubernetes/issues/59848

    Here: the fleet begins with the initial state of a watch. Kept by: a watch without a resourceVersion is answered only when
    the cache has reached etcd's revision of now; a server that cannot get there refuses, and the client goes on elsewhere."""
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
        assert (await client.pods.list(resource_version="0")).items[0].spec.nodeName == "node-1", "it does not lag"

        restarted = Client(connect(bad, good))
        recorder = EventRecorder(restarted.events, "kubelet", "fleet")
        fleet = PodManager(VirtualNodes(), restarted.pods, FakeRuntime(Behaviour()), recorder)
        fleet.set_node(make_node("node-1").build())
        watch = PodWatch(restarted.pods, fleet)
        watch.follow(["node-1"])
        tasks = [asyncio.ensure_future(part.run()) for part in (fleet, watch)]
        await eventually(lambda: watch.healthy is None)
        assert len(fleet) == 0, "node-1 runs a pod that is deleted, beside its namesake on node-2"
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for each in (client, restarted):
            await each.connection.close()


class Forgetful(FlakyStorage):
    """As a member of etcd that was stopped: the next `stale` answers to "which revision is it?" are those of long ago."""

    stale = 0

    async def current_revision(self) -> int:
        now = await super().current_revision()
        if self.stale:
            self.stale -= 1
            return 2
        return now


async def test_etcd_20418_a_stale_answer_does_not_take_a_reader_back() -> None:
    """After a process had been paused, a member of etcd answered linearizable reads with the state of before:
    https://github.com/etcd-io/etcd/issues/20418

    Here: a list might show less than was told before. Kept by: etcd's revision is only ever waited for; what is shown is the
    cache, which has seen more."""
    storage = Forgetful()
    world = World(storage)
    await world.put(pod("a"))
    async with running(Cacher(storage)) as cacher:
        last = await world.put(pod("b"))
        await cacher.wait_for(last, PATIENCE)
        storage.stale = 1
        shown = PodList.FromString(await cacher.of(PODS).list(ListQuery(ALL_PODS)))
        assert [each.metadata.name for each in shown.items] == ["a", "b"]
        assert int(shown.metadata.resourceVersion) == last


async def test_etcd_20418_a_stale_answer_is_not_taken_for_a_restored_backup() -> None:
    """As above, at the moment at which the cache takes up a watch that broke: a revision below its own looks like a store that
    was restored, for which it would load the old state and end all watches.

    Kept by: it is believed only when it is said twice (a second read has a ReadIndex of its own)."""
    storage = Forgetful()
    world = World(storage)
    await world.put(pod("a"))
    async with running(Cacher(storage)) as cacher:
        start = cacher.revision
        reader = Reader(cacher.of(PODS).watch(ALL_PODS, start), start)
        await reader.until(await world.put(pod("b")))
        storage.stale = 1
        storage.break_watches()
        last = await world.put(pod("c"))
        await reader.until(last)
        assert storage.stale == 0, "it was not asked"
        assert reader.events == world.events(lambda pod: True, start, last)
