"""Contract of every Storage: reads, transactions, compaction, leases. test_storage_watch.py covers watches."""

import asyncio

import pytest

from pinnace.apiserver.storage.interface import (
    MAX_BYTES,
    MAX_OPERATIONS,
    MAX_REQUEST_BYTES,
    Committed,
    Compacted,
    Guard,
    KeyValue,
    LeaseNotFound,
    Storage,
    StorageError,
    TooLarge,
    Write,
)
from tests.contract.steps import done, put, refused

A, B, C = "/registry/pods/default/a", "/registry/pods/default/b", "/registry/pods/default/c"
FENCE = "/registry/elections/scheduler"
MISSING_LEASE = 0x7FFF_0000


class TestRevisions:
    async def test_empty_store_has_a_revision(self, storage: Storage) -> None:
        assert await storage.current_revision() >= 1

    async def test_each_transaction_increments_the_revision_by_one(self, storage: Storage) -> None:
        before = await storage.current_revision()
        assert await done(storage, Write(A, b"1", 0), Write(B, b"1", 0)) == before + 1
        assert await put(storage, C) == before + 2
        assert await storage.current_revision() == before + 2

    async def test_failed_compare_creates_no_revision(self, storage: Storage) -> None:
        before = await put(storage, A)
        assert (await refused(storage, Write(A, b"2", 0))).revision == before
        assert await storage.current_revision() == before


class TestCompareAndSwap:
    async def test_create_update_delete(self, storage: Storage) -> None:
        created = await put(storage, A, b"1")
        assert await storage.get(A) == KeyValue(A, b"1", created, created, 1)
        updated = await put(storage, A, b"2", expected=created)
        assert await storage.get(A) == KeyValue(A, b"2", created, updated, 2)
        await done(storage, Write(A, None, updated))
        assert await storage.get(A) is None

    async def test_recreated_key_starts_at_version_1(self, storage: Storage) -> None:
        await done(storage, Write(A, None, await put(storage, A, b"1")))
        again = await put(storage, A, b"2")
        assert await storage.get(A) == KeyValue(A, b"2", again, again, 1)

    async def test_create_of_an_existing_key_is_refused(self, storage: Storage) -> None:
        created = await put(storage, A, b"1")
        answer = await refused(storage, Write(A, b"2", 0))
        assert answer.current == {A: KeyValue(A, b"1", created, created, 1)}

    async def test_update_with_a_stale_revision_is_refused(self, storage: Storage) -> None:
        created = await put(storage, A, b"1")
        updated = await put(storage, A, b"2", expected=created)
        answer = await refused(storage, Write(A, b"3", created))
        assert answer.current == {A: KeyValue(A, b"2", created, updated, 2)}

    async def test_update_of_a_deleted_key_is_refused(self, storage: Storage) -> None:
        created = await put(storage, A, b"1")
        await done(storage, Write(A, None, created))
        assert (await refused(storage, Write(A, b"2", created))).current == {A: None}

    async def test_delete_with_a_stale_revision_is_refused(self, storage: Storage) -> None:
        created = await put(storage, A, b"1")
        await put(storage, A, b"2", expected=created)
        await refused(storage, Write(A, None, created))
        assert await storage.get(A) is not None

    async def test_empty_value_is_stored(self, storage: Storage) -> None:
        await put(storage, A, b"")
        result = await storage.get(A)
        assert result is not None and result.value == b""

    async def test_keys_and_values_are_stored_byte_for_byte(self, storage: Storage) -> None:
        key, value = "/registry/pods/default/ü-日本", bytes(range(256))
        await put(storage, key, value)
        result = await storage.get(key)
        assert result is not None and (result.key, result.value) == (key, value)


class TestTransactions:
    async def test_failed_compare_aborts_the_whole_transaction(self, storage: Storage) -> None:
        created = await put(storage, A, b"1")
        answer = await refused(storage, Write(A, b"2", created), Write(B, b"2", created), Write(C, b"2", 0))
        assert answer.current == {A: KeyValue(A, b"1", created, created, 1), B: None, C: None}
        assert await storage.get(C) is None

    async def test_guard_holds_while_the_create_revision_is_unchanged(self, storage: Storage) -> None:
        token = await put(storage, FENCE, b"me")
        await put(storage, FENCE, b"still me", expected=token)
        await done(storage, Write(A, b"1", 0, (Guard(FENCE, token),)), Write(B, b"1", 0, (Guard(FENCE, token),)))

    async def test_guard_on_a_recreated_key_fails(self, storage: Storage) -> None:
        token = await put(storage, FENCE, b"me")
        await done(storage, Write(FENCE, None, token))
        newer = await put(storage, FENCE, b"you")
        answer = await refused(storage, Write(A, b"1", 0, (Guard(FENCE, token),)))
        assert answer.current == {A: None, FENCE: KeyValue(FENCE, b"you", newer, newer, 1)}
        assert await storage.get(A) is None

    async def test_guard_on_a_missing_key_fails(self, storage: Storage) -> None:
        answer = await refused(storage, Write(A, b"1", 0, (Guard(FENCE, 5),)), Write(B, b"1", 0))
        assert answer.current == {A: None, B: None, FENCE: None}
        assert await storage.get(B) is None

    async def test_guard_can_require_a_mod_revision(self, storage: Storage) -> None:
        token = await put(storage, FENCE, b"me")
        later = await put(storage, FENCE, b"still me", expected=token)
        await refused(storage, Write(A, b"1", 0, (Guard(FENCE, token, token),)))
        await done(storage, Write(A, b"1", 0, (Guard(FENCE, token, later), Guard(FENCE, token))))

    async def test_guard_sees_the_state_before_the_transaction(self, storage: Storage) -> None:
        token = await put(storage, FENCE, b"me")
        await done(storage, Write(FENCE, None, token), Write(A, b"1", 0, (Guard(FENCE, token),)))
        assert await storage.get(A) is not None

    async def test_transaction_at_the_operation_limit_succeeds(self, storage: Storage) -> None:
        value = bytes(MAX_BYTES // MAX_OPERATIONS)
        await done(storage, *(Write(f"{A}{i:03}", value, 0) for i in range(MAX_OPERATIONS)))
        assert len((await storage.page(A)).items) == MAX_OPERATIONS
        token = await put(storage, FENCE, b"me")
        guarded = [Write(f"{B}{i:03}", b"", 0, (Guard(FENCE, token, token),)) for i in range(MAX_OPERATIONS - 1)]
        await done(storage, *guarded)

    async def test_transaction_above_the_operation_limit_is_too_large(self, storage: Storage) -> None:
        with pytest.raises(TooLarge):
            await storage.transact([Write(f"{A}{i}", b"", 0) for i in range(MAX_OPERATIONS + 1)])
        guards = tuple(Guard(f"{B}{i}", 1) for i in range(MAX_OPERATIONS))
        with pytest.raises(TooLarge):
            await storage.transact([Write(A, b"", 0, guards)])

    async def test_transaction_above_the_size_limit_is_too_large(self, storage: Storage) -> None:
        with pytest.raises(TooLarge):
            await storage.transact([Write(A, bytes(MAX_REQUEST_BYTES), 0)])
        assert await storage.get(A) is None

    async def test_single_write_fills_a_request(self, storage: Storage) -> None:
        await done(storage, Write(A, bytes(MAX_REQUEST_BYTES - 512), 0))
        result = await storage.get(A)
        assert result is not None and len(result.value) == MAX_REQUEST_BYTES - 512

    async def test_transaction_with_a_duplicate_key_is_an_error(self, storage: Storage) -> None:
        with pytest.raises(StorageError):
            await storage.transact([Write(A, b"1", 0), Write(A, b"2", 0)])

    async def test_exactly_one_of_many_concurrent_creates_succeeds(self, storage: Storage) -> None:
        answers = await asyncio.gather(*(storage.transact([Write(A, b"%d" % i, 0)]) for i in range(20)))
        (winner,) = (i for i, answer in enumerate(answers) if isinstance(answer, Committed))
        result = await storage.get(A)
        assert result is not None and result.value == b"%d" % winner


class TestHistory:
    async def test_get_returns_the_key_at_a_past_revision(self, storage: Storage) -> None:
        before = await storage.current_revision()
        created = await put(storage, A, b"1")
        updated = await put(storage, A, b"2", expected=created)
        deleted = await done(storage, Write(A, None, updated))
        assert await storage.get(A, revision=before) is None
        assert await storage.get(A, revision=created) == KeyValue(A, b"1", created, created, 1)
        assert await storage.get(A, revision=updated) == KeyValue(A, b"2", created, updated, 2)
        assert await storage.get(A, revision=deleted) is None

    async def test_get_at_a_future_revision_is_an_error(self, storage: Storage) -> None:
        with pytest.raises(StorageError, match="future"):
            await storage.get(A, revision=await storage.current_revision() + 100)


class TestPages:
    async def test_page_without_a_limit_contains_all_keys(self, storage: Storage) -> None:
        for key in (A, B, C):
            await put(storage, key)
        page = await storage.page("/registry/pods/", limit=0)
        assert len(page.items) == 3 and not page.more

    async def test_page_contains_the_keys_with_the_prefix_in_order(self, storage: Storage) -> None:
        for key in ("/registry/podsx", C, "/registry/pod", A, B):
            await put(storage, key)
        page = await storage.page("/registry/pods/")
        assert [kv.key for kv in page.items] == [A, B, C]
        assert not page.more
        assert page.revision == await storage.current_revision()

    async def test_page_of_an_unused_prefix_is_empty(self, storage: Storage) -> None:
        page = await storage.page("/registry/pods/")
        assert list(page.items) == [] and not page.more

    async def test_pages_at_one_revision_form_a_snapshot(self, storage: Storage) -> None:
        revisions = {key: await put(storage, key, b"old") for key in (A, B, C)}
        first = await storage.page("/registry/pods/", limit=2)
        await done(storage, Write(C, b"new", revisions[C]), Write(A, None, revisions[A]), Write(C + "x", b"new", 0))
        second = await storage.page("/registry/pods/", after=first.items[-1].key, limit=2, revision=first.revision)
        assert first.more and not second.more
        assert second.revision == first.revision
        assert [(kv.key, kv.value) for kv in (*first.items, *second.items)] == [(A, b"old"), (B, b"old"), (C, b"old")]

    async def test_exactly_full_page_has_no_more(self, storage: Storage) -> None:
        for key in (A, B):
            await put(storage, key)
        assert not (await storage.page("/registry/pods/", limit=2)).more

    async def test_page_can_start_after_a_missing_key(self, storage: Storage) -> None:
        for key in (A, C):
            await put(storage, key)
        assert [kv.key for kv in (await storage.page("/registry/pods/", after=B)).items] == [C]

    async def test_page_can_start_after_a_key_outside_the_prefix(self, storage: Storage) -> None:
        await put(storage, A)
        assert [kv.key for kv in (await storage.page("/registry/pods/", after="/registry/a")).items] == [A]
        assert not (await storage.page("/registry/pods/", after="/registry/z")).items


class TestCompaction:
    async def test_read_before_the_compacted_revision_fails(self, storage: Storage) -> None:
        created = await put(storage, A, b"1")
        updated = await put(storage, A, b"2", expected=created)
        await storage.compact(updated)
        for read in (storage.get(A, revision=created), storage.page(A, revision=created)):
            with pytest.raises(Compacted) as error:
                await read
            assert error.value.compact_revision == updated

    async def test_current_keys_survive_compaction(self, storage: Storage) -> None:
        created = await put(storage, A, b"1")
        other = await put(storage, B, b"1")
        await storage.compact(other)
        assert await storage.get(A, revision=other) == KeyValue(A, b"1", created, created, 1)
        assert [kv.key for kv in (await storage.page("/registry/", revision=other)).items] == [A, B]

    async def test_deleted_key_stays_deleted_after_compaction(self, storage: Storage) -> None:
        deleted = await done(storage, Write(A, None, await put(storage, A)))
        await storage.compact(deleted)
        assert await storage.get(A, revision=deleted) is None

    async def test_compaction_at_a_compacted_revision_fails(self, storage: Storage) -> None:
        revision = await put(storage, A)
        await storage.compact(revision)
        for again in (revision, revision - 1):
            with pytest.raises(Compacted) as error:
                await storage.compact(again)
            assert error.value.compact_revision == revision

    async def test_compaction_does_not_affect_compares_and_guards(self, storage: Storage) -> None:
        token = await put(storage, A, b"elected")
        renewed = await put(storage, A, b"renewed", expected=token)
        other = await put(storage, B, b"1")
        gone = await done(storage, Write(C, None, await put(storage, C)))
        await storage.compact(gone)
        assert await storage.get(A) == KeyValue(A, b"renewed", token, renewed, 2)
        await refused(storage, Write(B, b"2", other, guards=(Guard(A, renewed),)))
        await refused(storage, Write(B, b"2", other, guards=(Guard(C, gone - 1),)))
        await refused(storage, Write(A, b"again", token))
        await done(storage, Write(B, b"2", other, guards=(Guard(A, token),)))
        assert await put(storage, C) > gone + 1

    async def test_compaction_at_a_future_revision_is_an_error(self, storage: Storage) -> None:
        with pytest.raises(StorageError, match="future"):
            await storage.compact(await storage.current_revision() + 100)


class TestLeases:
    async def test_key_contains_its_lease(self, storage: Storage) -> None:
        lease = await storage.grant_lease(60)
        revision = await put(storage, A, b"1", lease=lease)
        assert await storage.get(A) == KeyValue(A, b"1", revision, revision, 1, lease)

    async def test_update_without_a_lease_keeps_the_lease(self, storage: Storage) -> None:
        lease, other = await storage.grant_lease(60), await storage.grant_lease(60)
        first = await put(storage, A, b"1", lease=lease)
        second = await storage.transact([Write(A, b"2", first)])
        assert isinstance(second, Committed)
        result = await storage.get(A)
        assert result is not None and (result.value, result.lease) == (b"2", lease)
        await storage.transact([Write(A, b"3", second.revision, lease=other)])
        await storage.revoke_lease(lease)
        result = await storage.get(A)
        assert result is not None and result.lease == other

    async def test_each_grant_returns_a_different_lease(self, storage: Storage) -> None:
        assert await storage.grant_lease(60) != await storage.grant_lease(60)

    async def test_renewal_returns_the_remaining_ttl(self, storage: Storage) -> None:
        lease = await storage.grant_lease(60)
        assert 55 < await storage.renew_lease(lease) <= 60

    async def test_short_ttl_may_be_rounded_up(self, storage: Storage) -> None:
        """etcd grants at least 1.5 election timeouts, in whole seconds: 2 s by default, 1 s with the timeout of the tests."""
        assert 0.9 < await storage.renew_lease(await storage.grant_lease(1)) <= 2

    async def test_revocation_deletes_the_keys_of_the_lease_at_one_revision(self, storage: Storage) -> None:
        lease = await storage.grant_lease(60)
        await put(storage, A, lease=lease)
        await put(storage, B, lease=lease)
        before = await put(storage, C)
        await storage.revoke_lease(lease)
        assert [kv.key for kv in (await storage.page("/registry/")).items] == [C]
        assert await storage.current_revision() == before + 1

    async def test_revocation_of_a_missing_lease_succeeds(self, storage: Storage) -> None:
        lease = await storage.grant_lease(60)
        await storage.revoke_lease(lease)
        await storage.revoke_lease(lease)

    async def test_lease_age_is_small_after_a_grant(self, storage: Storage) -> None:
        lease = await storage.grant_lease(60)
        assert 0 <= await storage.lease_age(lease) <= 5
        with pytest.raises(LeaseNotFound):
            await storage.lease_age(MISSING_LEASE)

    async def test_missing_lease_cannot_be_renewed(self, storage: Storage) -> None:
        with pytest.raises(LeaseNotFound):
            await storage.renew_lease(MISSING_LEASE)

    async def test_key_cannot_be_attached_to_a_missing_lease(self, storage: Storage) -> None:
        with pytest.raises(LeaseNotFound):
            await storage.transact([Write(A, b"1", 0, lease=MISSING_LEASE), Write(B, b"1", 0)])
        assert not (await storage.page("/registry/")).items

    async def test_failed_compare_takes_precedence_over_a_missing_lease(self, storage: Storage) -> None:
        await put(storage, A)
        await refused(storage, Write(A, b"1", 0, lease=MISSING_LEASE))
