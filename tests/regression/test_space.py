"""A store that is full."""

import asyncio
from itertools import count

import pytest

from apiserver.storage.etcd import EtcdStorage
from apiserver.storage.interface import MAX_OPERATIONS, OutOfSpace, Write
from tests.conftest import EtcdFactory
from tests.contract.steps import done, put

QUOTA = "--quota-backend-bytes=2000000"
DEADLINE = 20.0


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
