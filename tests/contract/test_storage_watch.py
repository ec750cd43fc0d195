"""Contract of the watch of every Storage."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import cast

import pytest

from pinnace.apiserver.storage.interface import ChangeBatch, Compacted, Guard, KeyChange, Storage, Write
from tests.contract.steps import DEADLINE, done, put, take

A, B, C = "/registry/pods/default/a", "/registry/pods/default/b", "/other/c"


@asynccontextmanager
async def watching(storage: Storage, start_revision: int) -> AsyncIterator[AsyncIterator[ChangeBatch]]:
    async with aclosing(cast(AsyncGenerator[ChangeBatch], storage.watch(start_revision))) as watch:
        yield watch


async def watched(storage: Storage, start_revision: int) -> list[KeyChange]:
    """Return all changes from `start_revision` to the current revision."""
    async with watching(storage, start_revision) as watch:
        return await take(watch, await storage.current_revision())


async def test_watch_returns_every_change_of_every_key(storage: Storage) -> None:
    start = await storage.current_revision() + 1
    async with watching(storage, start) as watch:
        created = await put(storage, A, b"1")
        updated = await put(storage, A, b"2", expected=created)
        other = await put(storage, C, b"3")
        deleted = await done(storage, Write(A, None, updated))
        assert await take(watch, deleted) == [
            KeyChange(A, b"1", created, created),
            KeyChange(A, b"2", created, updated),
            KeyChange(C, b"3", other, other),
            KeyChange(A, None, 0, deleted),
        ]


async def test_watch_replays_past_changes_before_new_ones(storage: Storage) -> None:
    first = await put(storage, A, b"1")
    await put(storage, B, b"2")
    async with watching(storage, first) as watch:
        assert [change.key for change in await take(watch, first + 1)] == [A, B]
    async with watching(storage, first) as watch:
        last = await put(storage, C, b"3")
        assert [change.key for change in await take(watch, last)] == [A, B, C]


async def test_replayed_revision_is_identical_to_the_original(storage: Storage) -> None:
    """The watch cache compares replayed revisions to detect a store that was restored from a backup."""
    lease = await storage.grant_lease(60)
    start = await storage.current_revision() + 1
    async with watching(storage, start) as watch:
        created = await done(storage, Write(A, b"1", 0, lease=lease), Write(B, b"1", 0, lease=lease), Write(C, b"1", 0))
        await done(storage, Write(C, None, created), Write(A, b"2", created))
        await storage.revoke_lease(lease)
        received = await take(watch, await storage.current_revision())
    assert len(received) == 7
    for revision in range(start, start + 3):
        again = [change for change in await watched(storage, revision) if change.mod_revision == revision]
        assert again == [change for change in received if change.mod_revision == revision]


async def test_watch_skips_changes_before_the_start_revision(storage: Storage) -> None:
    await put(storage, A)
    second = await put(storage, B)
    assert [change.key for change in await watched(storage, second)] == [B]


async def test_watch_can_start_at_a_future_revision(storage: Storage) -> None:
    now = await storage.current_revision()
    async with watching(storage, now + 3) as watch:
        for key in (A, B):
            await put(storage, key)
        last = await put(storage, C)
        assert [change.key for change in await take(watch, last)] == [C]


async def test_changes_of_a_transaction_arrive_in_one_batch(storage: Storage) -> None:
    start = await storage.current_revision() + 1
    revision = await done(storage, *(Write(f"{A}{i}", b"x", 0) for i in range(100)))
    changes = await watched(storage, start)
    assert [change.key for change in changes] == [f"{A}{i}" for i in range(100)]
    assert {change.mod_revision for change in changes} == {revision}


async def test_large_revisions_arrive_complete(storage: Storage) -> None:
    """The revisions exceed the size of one etcd message, so etcd sends them in fragments."""
    start = await storage.current_revision() + 1
    for round_ in range(4):
        await done(storage, *(Write(f"{A}{round_}-{i}", bytes(100_000), 0) for i in range(10)))
    changes = await watched(storage, start)
    assert [change.key for change in changes] == [f"{A}{round_}-{i}" for round_ in range(4) for i in range(10)]


async def test_refused_writes_and_guards_create_no_events(storage: Storage) -> None:
    token = await put(storage, C)
    start = token + 1
    await storage.transact([Write(A, b"1", 99)])
    last = await done(storage, Write(B, b"1", 0, (Guard(C, token),)))
    assert [change.key for change in await watched(storage, start)] == [B]
    assert last == start


async def test_event_contains_the_lease_of_the_key(storage: Storage) -> None:
    lease = await storage.grant_lease(60)
    revision = await put(storage, A, lease=lease)
    assert await watched(storage, revision) == [KeyChange(A, b"", revision, revision, lease)]


async def test_keys_of_a_revoked_lease_are_deleted_in_one_batch(storage: Storage) -> None:
    lease = await storage.grant_lease(60)
    await put(storage, A, lease=lease)
    start = await put(storage, B, lease=lease) + 1
    await storage.revoke_lease(lease)
    changes = await watched(storage, start)
    assert {change.key for change in changes} == {A, B}
    assert all(change.value is None and change.mod_revision == start for change in changes)


async def test_expired_lease_deletes_its_keys_with_an_event(storage: Storage) -> None:
    lease = await storage.grant_lease(2)
    last = await put(storage, A, lease=lease)
    async with watching(storage, last + 1) as watch:
        assert await take(watch, last + 1) == [KeyChange(A, None, 0, last + 1)]
    assert await storage.get(A) is None


async def test_renewed_lease_keeps_its_keys(storage: Storage) -> None:
    """Two leases with the same TTL are granted together. Only the lease that is not renewed expires."""
    kept, lost = await storage.grant_lease(2), await storage.grant_lease(2)
    await put(storage, A, lease=kept)
    last = await put(storage, B, lease=lost)
    async with watching(storage, last + 1) as watch, asyncio.timeout(DEADLINE):
        async for batch in watch:  # an idle watch yields an empty batch at least once per second
            if batch.changes:
                break
            await storage.renew_lease(kept)
    assert batch.changes == [KeyChange(B, None, 0, last + 1)]
    assert await storage.get(A) is not None


async def test_idle_watch_sends_empty_batches(storage: Storage) -> None:
    last = await put(storage, A)
    async with watching(storage, last + 1) as watch, asyncio.timeout(DEADLINE):
        for _ in range(3):
            batch = await anext(watch)
            assert batch.revision == last and not batch.changes


async def test_compacted_revision_cannot_be_watched(storage: Storage) -> None:
    first = await put(storage, A)
    second = await put(storage, B)
    await put(storage, C)
    await storage.compact(second)
    for start in (first, second):
        with pytest.raises(Compacted) as error:
            await watched(storage, start)
        assert error.value.compact_revision == second
    assert [change.key for change in await watched(storage, second + 1)] == [C]


async def test_watch_from_a_compacted_delete_fails(storage: Storage) -> None:
    """etcd#18089: etcd accepted such a watch and omitted the delete."""
    deleted = await done(storage, Write(A, None, await put(storage, A)))
    await put(storage, B)
    await storage.compact(deleted)
    with pytest.raises(Compacted):
        await watched(storage, deleted)


async def test_running_watch_survives_compaction(storage: Storage) -> None:
    first = await put(storage, A)
    async with watching(storage, first) as watch:
        await take(watch, first)
        second = await put(storage, B)
        await storage.compact(second)
        last = await put(storage, C)
        assert [change.key for change in await take(watch, last)] == [B, C]


async def test_slow_watch_and_fast_watch_receive_all_changes(storage: Storage) -> None:
    start = await storage.current_revision() + 1
    async with watching(storage, start) as slow, watching(storage, start) as fast:
        await anext(slow)
        for i in range(50):
            last = await put(storage, f"{A}{i}")
        assert len(await take(fast, last)) == 50
        assert len(await take(slow, last)) == 50
