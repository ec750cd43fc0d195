"""A store without free space."""

import asyncio
from itertools import count

import pytest

from pinnace.api.resources import COMPACT_REV_KEY
from pinnace.apiserver.storage.compactor import Compactor
from pinnace.apiserver.storage.etcd import EtcdStorage
from pinnace.apiserver.storage.interface import MAX_OPERATIONS, Compacted, OutOfSpace, Write
from pinnace.runtime.clock import SYSTEM_CLOCK
from tests.conftest import EtcdFactory
from tests.contract.steps import done, put

QUOTA = "--quota-backend-bytes=2000000"
DEADLINE = 20.0
A = "/registry/pods/default/a"


async def test_kubernetes_94029_full_store_can_be_compacted(start_etcd: EtcdFactory) -> None:
    """API servers wrote a key before each compaction to coordinate it. In a full store, the write failed, so no server ever
    compacted the store: https://github.com/kubernetes/kubernetes/issues/94029

    Here: the cluster accepts no writes and cannot recover. Guard: `compact` puts no keys. It compacts, defragments and clears
    the alarm, and etcd permits all of these, as well as deletes, without free space."""
    (server,) = await start_etcd(1, QUOTA)
    storage = EtcdStorage([server.endpoint])
    async with asyncio.timeout(DEADLINE):
        with pytest.raises(OutOfSpace):
            for number in count():
                await put(storage, f"/registry/pods/default/p{number:04d}", bytes(30_000))
        page = await storage.page("/registry/pods/")
        deleted = await done(storage, *(Write(kv.key, None, kv.mod_revision) for kv in page.items[:MAX_OPERATIONS]))
        await storage.compact(deleted)
        await put(storage, "/registry/pods/default/later", bytes(30_000))
    await storage.close()


async def test_kubernetes_94029_servers_compact_a_full_store_without_coordination(start_etcd: EtcdFactory) -> None:
    """As above, with the compactors of two API servers, which cannot write their coordination key.

    Here: old revisions fill etcd, and no server compacts them. Guard: a server that has no space for the key compacts
    nevertheless. Simultaneous compactions of two servers are harmless."""
    (server,) = await start_etcd(1, QUOTA)
    storages = [EtcdStorage([server.endpoint]) for _ in range(2)]
    storage = storages[0]
    revision = first = await put(storage, A, bytes(30_000))
    async with asyncio.timeout(DEADLINE):
        with pytest.raises(OutOfSpace):
            while True:
                revision = await put(storage, A, bytes(30_000), revision)
        assert await storage.get(COMPACT_REV_KEY) is None
        compactors = [asyncio.create_task(Compactor(item, SYSTEM_CLOCK, 0.3).run()) for item in storages]
        while await storage.get(COMPACT_REV_KEY) is None:  # noqa: ASYNC110 (etcd: there is no event to wait for)
            await asyncio.sleep(0.02)
        result = await storage.get(A)
        assert result is not None and result.create_revision == first and result.mod_revision >= revision
        with pytest.raises(Compacted):
            await storage.get(A, revision=first)
        for compactor in compactors:
            compactor.cancel()
        await asyncio.wait(compactors)
        await put(storage, A, bytes(30_000), result.mod_revision)
    for item in storages:
        await item.close()
