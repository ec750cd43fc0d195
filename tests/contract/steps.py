"""Helpers of the storage tests."""

import asyncio
from collections.abc import AsyncIterator

from pinnace.apiserver.storage.interface import ChangeBatch, Committed, CompareFailed, KeyChange, Storage, Write

DEADLINE = 10.0


async def put(storage: Storage, key: str, value: bytes = b"", expected: int = 0, lease: int = 0) -> int:
    """Write one key and return the revision."""
    return await done(storage, Write(key, value, expected, lease=lease))


async def done(storage: Storage, *writes: Write) -> int:
    answer = await storage.transact(writes)
    assert isinstance(answer, Committed)
    return answer.revision


async def refused(storage: Storage, *writes: Write) -> CompareFailed:
    answer = await storage.transact(writes)
    assert isinstance(answer, CompareFailed)
    return answer


async def take(watch: AsyncIterator[ChangeBatch], until: int) -> list[KeyChange]:
    """Return the changes up to and including revision `until`. Check that batches contain whole revisions in order."""
    changes: list[KeyChange] = []
    async with asyncio.timeout(DEADLINE):
        async for batch in watch:
            if changes and batch.changes:
                assert batch.changes[0].mod_revision > changes[-1].mod_revision, "a revision is split over two batches"
            changes.extend(batch.changes)
            if changes:
                assert batch.revision >= changes[-1].mod_revision
            if batch.revision >= until:
                break
    assert [change.mod_revision for change in changes] == sorted(change.mod_revision for change in changes)
    return changes
