"""Transactions whose answer was lost: what is found out about them, and that it is true."""

from random import Random

import pytest

from apiserver.storage.interface import (
    Committed,
    Guard,
    LeaseNotFound,
    OutOfSpace,
    Refused,
    Storage,
    Unavailable,
    Write,
)
from apiserver.storage.memory import MemoryStorage
from apiserver.storage.resolution import resolve
from tests.contract.steps import done, put
from tests.unit.storage.faults import Fault, FaultyStorage, JumpingClock

LIMIT = 10.0


@pytest.fixture
def store() -> MemoryStorage:
    return MemoryStorage()


async def resolved(storage: Storage, *writes: Write) -> Committed | Refused | None:
    clock = JumpingClock()
    return await resolve(storage, writes, clock, clock.monotonic() + LIMIT, Random(1))


class TestUpdates:
    async def test_happened_and_is_still_there(self, store: MemoryStorage) -> None:
        write = Write("a", b"mine", await put(store, "a"))
        revision = await done(store, write)
        assert await resolved(store, write) == Committed(revision)
        assert await store.current_revision() == revision

    async def test_happened_and_was_overwritten_many_times(self, store: MemoryStorage) -> None:
        write = Write("a", b"mine", await put(store, "a"))
        await put(store, "unrelated")
        latest = revision = await done(store, write)
        for i in range(20):
            latest = await put(store, "a", b"%d" % i, expected=latest)
        assert await resolved(store, write) == Committed(revision)

    async def test_happened_and_was_deleted_since(self, store: MemoryStorage) -> None:
        write = Write("a", b"mine", await put(store, "a"))
        revision = await done(store, write)
        await done(store, Write("a", None, revision))
        assert await resolved(store, write) == Committed(revision)

    async def test_happened_and_left_the_key_its_lease(self, store: MemoryStorage) -> None:
        write = Write("a", b"mine", await put(store, "a", lease=await store.grant_lease(60)))
        revision = await done(store, write)
        assert await resolved(store, write) == Committed(revision)

    async def test_did_not_happen_and_is_sent_again(self, store: MemoryStorage) -> None:
        write = Write("a", b"mine", await put(store, "a"))
        answer = await resolved(store, write)
        assert isinstance(answer, Committed)
        assert (await store.get("a")).value == b"mine"  # type: ignore[union-attr]

    async def test_another_one_won(self, store: MemoryStorage) -> None:
        write = Write("a", b"mine", await put(store, "a"))
        await put(store, "a", b"theirs", expected=write.expected)
        answer = await resolved(store, write)
        assert isinstance(answer, Refused)
        assert answer.current["a"].value == b"theirs"  # type: ignore[union-attr]

    async def test_the_same_bytes_again_may_be_anybodys(self, store: MemoryStorage) -> None:
        """Whoever goes on with a session puts its key as it is: two servers that do are not told apart."""
        write = Write("a", b"as it is", await put(store, "a", b"as it is"))
        await done(store, write)
        assert await resolved(store, write) is None

    async def test_the_same_bytes_again_are_proven_by_another_write_of_the_transaction(self, store: MemoryStorage) -> None:
        same = Write("a", b"as it is", await put(store, "a", b"as it is"))
        other = Write("b", b"mine", await put(store, "b"))
        revision = await done(store, same, other)
        assert await resolved(store, same, other) == Committed(revision)

    async def test_its_guard_is_gone(self, store: MemoryStorage) -> None:
        token, expected = await put(store, "fence"), await put(store, "a")
        await done(store, Write("fence", None, token))
        assert isinstance(await resolved(store, Write("a", b"mine", expected, (Guard("fence", token),))), Refused)

    async def test_its_lease_is_gone(self, store: MemoryStorage) -> None:
        expected = await put(store, "a")
        with pytest.raises(LeaseNotFound):
            await resolved(store, Write("a", b"mine", expected, lease=99))

    async def test_history_is_compacted(self, store: MemoryStorage) -> None:
        write = Write("a", b"mine", await put(store, "a"))
        revision = await done(store, write)
        await store.compact(await put(store, "a", b"theirs", expected=revision))
        assert await resolved(store, write) is None

    async def test_the_answer_is_lost_again(self, store: MemoryStorage) -> None:
        write = Write("a", b"mine", await put(store, "a"))
        faulty = FaultyStorage([Fault.NOT_SENT, Fault.LOST_REQUEST, Fault.LOST_ANSWER], store)
        answer = await resolved(faulty, write)
        assert isinstance(answer, Committed)
        assert len(faulty.groups) == 4

    @pytest.mark.parametrize("error", [Unavailable("down"), OutOfSpace("full")])
    async def test_no_answer_until_the_deadline(self, store: MemoryStorage, error: Unavailable | OutOfSpace) -> None:
        write = Write("a", b"mine", await put(store, "a"))
        assert await resolved(FaultyStorage([error] * 1000, store), write) is None


class TestDeletes:
    async def test_did_not_happen_and_is_sent_again(self, store: MemoryStorage) -> None:
        write = Write("a", None, await put(store, "a"))
        assert isinstance(await resolved(store, write), Committed)
        assert await store.get("a") is None

    async def test_alone_it_leaves_no_trace_that_is_surely_ours(self, store: MemoryStorage) -> None:
        write = Write("a", None, await put(store, "a"))
        await done(store, write)
        assert await resolved(store, write) is None

    async def test_the_key_was_changed_instead(self, store: MemoryStorage) -> None:
        write = Write("a", None, await put(store, "a"))
        await put(store, "a", b"theirs", expected=write.expected)
        assert isinstance(await resolved(store, write), Refused)

    async def test_another_write_of_the_transaction_proves_it(self, store: MemoryStorage) -> None:
        writes = Write("a", None, await put(store, "a")), Write("b", b"mine", 0)
        revision = await done(store, *writes)
        assert await resolved(store, *writes) == Committed(revision)


class TestCreates:
    async def test_happened(self, store: MemoryStorage) -> None:
        writes = Write("a", b"mine", 0), Write("b", b"mine too", 0)
        revision = await done(store, *writes)
        assert await resolved(store, *writes) == Committed(revision)

    async def test_happened_and_was_changed_since(self, store: MemoryStorage) -> None:
        write = Write("a", b"mine", 0)
        revision = await done(store, write)
        await put(store, "a", b"theirs", expected=revision)
        assert await resolved(store, write) == Committed(revision)

    async def test_one_that_is_left_proves_the_others(self, store: MemoryStorage) -> None:
        writes = Write("a", b"mine", 0), Write("b", b"mine too", 0), Write("c", b"mine three", 0)
        revision = await done(store, *writes)
        await done(store, Write("a", None, revision), Write("b", None, revision))
        await put(store, "b", b"theirs")
        assert await resolved(store, *writes) == Committed(revision)

    async def test_what_is_absent_is_not_sent_again(self, store: MemoryStorage) -> None:
        """It may have been created and deleted: sending it again would bring it back."""
        before = await store.current_revision()
        assert await resolved(store, Write("a", b"mine", 0)) is None
        assert await store.current_revision() == before

    async def test_another_one_is_there(self, store: MemoryStorage) -> None:
        """Not a conflict: when that one is deleted, ours may still arrive."""
        await put(store, "a", b"theirs")
        assert await resolved(store, Write("a", b"mine", 0)) is None

    async def test_the_same_bytes_by_another_transaction(self, store: MemoryStorage) -> None:
        await put(store, "a", b"same")
        assert await resolved(store, Write("a", b"same", 0), Write("b", b"mine", 0)) is None


class TestMixed:
    async def test_an_update_makes_it_safe_to_create_again(self, store: MemoryStorage) -> None:
        writes = Write("new", b"mine", 0), Write("a", b"mine", await put(store, "a"))
        assert isinstance(await resolved(store, *writes), Committed)
        assert await store.get("new") is not None

    async def test_the_same_bytes_in_one_key_are_no_proof(self, store: MemoryStorage) -> None:
        writes = Write("a", b"same", await put(store, "a")), Write("b", b"mine", await put(store, "b"))
        await put(store, "a", b"same", expected=writes[0].expected)
        assert isinstance(await resolved(store, *writes), Refused)

    async def test_stopped_by_a_create_alone_it_may_still_happen(self, store: MemoryStorage) -> None:
        writes = Write("a", b"mine", 0), Write("b", b"mine", await put(store, "b"))
        theirs = await put(store, "a", b"theirs")
        assert await resolved(store, *writes) is None
        await done(store, Write("a", None, theirs))
        assert isinstance(await store.transact(writes), Committed), "a late copy was not dead"

    async def test_stopped_by_a_create_and_by_an_update_it_is_dead(self, store: MemoryStorage) -> None:
        b, c = await put(store, "b"), await put(store, "c")
        await put(store, "a", b"theirs")
        await put(store, "c", b"theirs", expected=c)
        writes = Write("b", b"mine", b), Write("a", b"mine", 0), Write("c", b"mine", c)
        assert isinstance(await resolved(store, *writes), Refused)
