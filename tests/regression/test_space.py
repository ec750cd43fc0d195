"""A store that is full."""

import asyncio
from itertools import count

import pytest

from apiserver.storage.compactor import Compactor
from apiserver.storage.etcd import EtcdStorage
from apiserver.storage.interface import MAX_OPERATIONS, Compacted, OutOfSpace, Write
from pinnace.api.resources import COMPACT_REV_KEY
from pinnace.runtime.clock import SYSTEM_CLOCK
from tests.conftest import EtcdFactory
from tests.contract.steps import done, put

QUOTA = "--quota-backend-bytes=2000000"
DEADLINE = 20.0
A = "/registry/pods/default/a"


async def test_kubernetes_94029_compaction_of_a_store_that_is_full(start_etcd: EtcdFactory) -> None:
    """The API server wrote a key before each compaction, to agree with the others on who does it; in a store that was full the
    write failed, so that nothing was ever compacted: https://github.com/kubernetes/kubernetes/issues/94029

    Here: a cluster that takes no writes any more, and cannot help itself. Kept by: `compact` writes nothing; it deletes,
    compacts, defragments and clears the alarm, all of which etcd does when it is full."""
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


async def test_kubernetes_94029_servers_that_agree_on_who_compacts_a_store_that_is_full(start_etcd: EtcdFactory) -> None:
    """The same, by the loops of two API servers: the key by which they agree cannot be put.

    Here: history fills etcd, and nobody takes it away. Kept by: a server that finds no space for the key compacts all the same;
    two that do it at the same time are harmless."""
    (server,) = await start_etcd(1, QUOTA)
    storages = [EtcdStorage([server.endpoint]) for _ in range(2)]
    storage = storages[0]
    revision = first = await put(storage, A, bytes(30_000))
    async with asyncio.timeout(DEADLINE):
        with pytest.raises(OutOfSpace):
            while True:
                revision = await put(storage, A, bytes(30_000), revision)
        assert await storage.get(COMPACT_REV_KEY) is None
        compactors = [asyncio.create_task(Compactor(each, SYSTEM_CLOCK, 0.3).run()) for each in storages]
        while await storage.get(COMPACT_REV_KEY) is None:  # noqa: ASYNC110 (etcd: there is no event to wait for)
            await asyncio.sleep(0.02)
        found = await storage.get(A)
        assert found is not None and found.create_revision == first and found.mod_revision >= revision
        with pytest.raises(Compacted):
            await storage.get(A, revision=first)
        for each in compactors:
            each.cancel()
        await asyncio.wait(compactors)
        await put(storage, A, bytes(30_000), found.mod_revision)
    for each in storages:
        await each.close()
