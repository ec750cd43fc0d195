"""The watch cache over a real etcd, on good days and bad. What it promises is spelled out in tests/unit/cacher."""

import asyncio
from unittest import mock

import pytest
from hypothesis import given, settings

from pinnace.api.core_v1_pb2 import PodList
from pinnace.api.resources import PODS
from pinnace.apiserver.cacher import event_history as past
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.cacher.listing import ListQuery
from pinnace.apiserver.cacher.store import RevisionExpired
from pinnace.apiserver.storage.etcd import EtcdStorage
from pinnace.apiserver.storage.interface import StorageError
from pinnace.cluster.links import Mode, Proxy
from tests.conftest import EtcdFactory, EtcdServer, wipe
from tests.unit.cacher.plan import PLANS, Plan, run
from tests.unit.cacher.world import CASES, Reader, World, eventually, pod, running

ALL_PODS = CASES[0].selection


@given(PLANS)
@settings(max_examples=20, deadline=None)
def test_events_of_a_reader_equal_the_history(etcd: EtcdServer, plan: Plan) -> None:
    async def check() -> None:
        await wipe(etcd.endpoint)
        storage = EtcdStorage([etcd.endpoint])
        try:
            await run(plan, storage)
        finally:
            await storage.close()

    with mock.patch.object(past, "CHUNK_EVENTS", plan.chunk):
        asyncio.run(check())


async def test_pages_of_a_list_are_one_snapshot_while_writers_go_on(etcd_storage: EtcdStorage) -> None:
    world = World(etcd_storage)
    await world.put(*[pod(f"p{number:03d}") for number in range(100)])
    async with running(Cacher(etcd_storage)) as one, running(Cacher(etcd_storage)) as other:
        listed, token, revision = list[str](), "", 0
        for number in range(0, 100, 10):
            cacher = (one, other)[number // 10 % 2]
            page = PodList.FromString(await cacher.cache_of(PODS).list(ListQuery(ALL_PODS, limit=10, continue_token=token)))
            listed += [PODS.key_of(item) for item in page.items]
            revision = revision or int(page.metadata.resourceVersion)
            assert int(page.metadata.resourceVersion) == revision
            token = getattr(page.metadata, "continue")
            await world.delete(f"p{99 - number:03d}")
            await world.put(pod(f"p{number:03d}x"))
        assert not token
        assert listed == list(world.state(revision, lambda pod: True))


async def test_compaction_behind_its_back_ends_watches_and_nothing_is_wrong_afterwards(
    etcd: EtcdServer, etcd_storage: EtcdStorage
) -> None:
    world = World(etcd_storage)
    await world.put(pod("a"), pod("b"))
    async with Proxy(etcd.endpoint) as proxy:
        storage = EtcdStorage([proxy.endpoint])
        async with running(Cacher(storage)) as cacher:
            reader = Reader(cacher.cache_of(PODS).watch(ALL_PODS, cacher.revision), cacher.revision)
            proxy.set(Mode.HOLD)
            await world.delete("a")
            last = await world.put(pod("c"))
            await etcd_storage.compact(last)
            proxy.reset()
            proxy.set(Mode.PASS)
            with pytest.raises(RevisionExpired) as caught:
                await reader.read()
            assert caught.value.oldest == last
            await eventually(lambda: cacher.ready)
            reader = Reader(cacher.cache_of(PODS).watch(ALL_PODS, None))
            await reader.until(last)
            assert reader.initial == [PODS.key("default", "b"), PODS.key("default", "c")]
            later = await world.put(pod("a"))
            await reader.until(later)
            assert [event.name for event in reader.events] == ["default/a"]
        await storage.close()


async def test_cacher_survives_etcd_restarts_without_loss(start_etcd: EtcdFactory) -> None:
    (server,) = await start_etcd(1)
    storage = EtcdStorage([server.endpoint])
    world = World(storage)
    await world.put(pod("a"))
    async with running(Cacher(storage)) as cacher:
        start = cacher.revision
        reader = Reader(cacher.cache_of(PODS).watch(ALL_PODS, start), start)
        await reader.until(await world.put(pod("b")))
        server.kill()
        await eventually(lambda: not cacher.ready)
        as_it_is = PodList.FromString(await cacher.cache_of(PODS).list(ListQuery(ALL_PODS, resource_version="0")))
        assert [item.metadata.name for item in as_it_is.items] == ["a", "b"]
        async with asyncio.timeout(3):
            with pytest.raises(StorageError):
                await cacher.wait_until_fresh(1.0)
        server.start()
        await server.wait_ready()
        await eventually(lambda: cacher.ready)
        last = await world.put(pod("c"))
        await reader.until(last)
        assert reader.events == world.events(lambda pod: True, start, last)
        assert await cacher.wait_until_fresh(5) >= last
    await storage.close()
