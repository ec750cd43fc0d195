"""Transactions whose answer was lost: what a lane finds out about them, and that it is true."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import product
from random import Random

import pytest

from pinnace.api.resources import COMMITS_PREFIX
from pinnace.apiserver.storage.committer import NOT_DONE, TransactionPipeline, marker_keys
from pinnace.apiserver.storage.interface import (
    CommitOutcomeUnknown,
    Committed,
    CompareFailed,
    Guard,
    KeyValue,
    LeaseNotFound,
    OutOfSpace,
    Storage,
    StorageError,
    StorageUnavailable,
    Write,
)
from tests.contract.steps import done, put
from tests.storage.memory import MemoryStorage
from tests.unit.storage.faults import Fault, FaultyStorage, FullStorage, JumpingClock

OPENED = Fault.NONE
"""What happens to the first transaction of a chain, in most tests."""


@pytest.fixture
def store() -> MemoryStorage:
    return MemoryStorage()


def lane_on(storage: Storage, seed: int = 1) -> TransactionPipeline:
    rng = Random(seed)
    return TransactionPipeline(storage, marker_keys(rng), JumpingClock(), rng)


async def markers(storage: Storage) -> list[KeyValue]:
    return list((await storage.page(COMMITS_PREFIX)).items)


async def sweep(storage: Storage) -> None:
    for marker in await markers(storage):
        await done(storage, Write(marker.key, None, marker.mod_revision))


async def create(store: Storage) -> list[Write]:
    return [Write("a", b"mine", 0)]


async def update(store: Storage) -> list[Write]:
    return [Write("a", b"mine", await put(store, "a"))]


async def same_bytes_again(store: Storage) -> list[Write]:
    return [Write("a", b"as it is", await put(store, "a", b"as it is"))]


async def keeps_its_lease(store: Storage) -> list[Write]:
    return [Write("a", b"mine", await put(store, "a", lease=await store.grant_lease(60)))]


async def delete(store: Storage) -> list[Write]:
    return [Write("a", None, await put(store, "a"))]


async def several(store: Storage) -> list[Write]:
    return [Write("a", b"mine", await put(store, "a")), Write("b", b"mine", 0), Write("c", None, await put(store, "c"))]


Making = Callable[[Storage], Awaitable[list[Write]]]
ALL = [create, update, same_bytes_again, keeps_its_lease, delete, several]
of_any_kind = pytest.mark.parametrize("make", ALL, ids=lambda make: make.__name__)


class TestAnswers:
    async def test_marker_moves_with_every_transaction(self, store: MemoryStorage) -> None:
        lane = lane_on(store)
        for number in range(5):
            committed = await lane.send([Write(f"{number}", b"", 0)])
            assert isinstance(committed, Committed)
            (marker,) = await markers(store)
            assert marker.mod_revision == committed.revision

    async def test_refusal_and_an_error_leave_it_where_it_was(self, store: MemoryStorage) -> None:
        lane = lane_on(FaultyStorage([OPENED, Fault.NONE, Fault.NOT_SENT], store))
        assert isinstance(await lane.send([Write("a", b"", 99)]), CompareFailed)
        with pytest.raises(StorageUnavailable):
            await lane.send([Write("a", b"", 0)])
        with pytest.raises(LeaseNotFound):
            await lane.send([Write("a", b"", 0, lease=99)])
        assert isinstance(await lane.send([Write("a", b"", 0)]), Committed)
        assert len(await markers(store)) == 1

    @pytest.mark.parametrize("fault", [Fault.NOT_SENT, Fault.LOST_REQUEST, Fault.LOST_ANSWER, Fault.DELAYED])
    async def test_transaction_without_a_marker_is_not_sent(self, store: MemoryStorage, fault: Fault) -> None:
        faulty = FaultyStorage([fault], store)
        lane = lane_on(faulty)
        with pytest.raises(StorageUnavailable):
            await lane.send([Write("a", b"", 0)])
        await faulty.deliver()
        assert await store.get("a") is None
        assert isinstance(await lane.send([Write("a", b"", 0)]), Committed)

    async def test_marker_that_was_swept_costs_a_refusal(self, store: MemoryStorage) -> None:
        lane = lane_on(store)
        await lane.send([Write("a", b"", 0)])
        await sweep(store)
        assert await lane.send([Write("b", b"", 0)]) is NOT_DONE
        assert await store.get("b") is None
        assert isinstance(await lane.send([Write("b", b"", 0)]), Committed)


class TestLostAnswers:
    @of_any_kind
    async def test_happened(self, store: MemoryStorage, make: Making) -> None:
        writes = await make(store)
        lane = lane_on(FaultyStorage([OPENED, Fault.LOST_ANSWER], store))
        answer = await lane.send(writes)
        assert answer == Committed(await store.current_revision())
        assert await is_done(store, writes)

    @of_any_kind
    async def test_happened_and_others_have_changed_it_since(self, store: MemoryStorage, make: Making) -> None:
        writes = await make(store)

        class Eager(FaultyStorage):
            async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
                try:
                    return await super().transact(writes)
                except CommitOutcomeUnknown:
                    self.then = await store.current_revision()
                    for write in writes[:-1]:
                        state = await store.get(write.key)
                        await done(store, Write(write.key, None if state else b"", state.mod_revision if state else 0))
                    await store.compact(await store.current_revision())
                    raise

        eager = Eager([OPENED, Fault.LOST_ANSWER], store)
        assert await lane_on(eager).send(writes) == Committed(eager.then)

    @of_any_kind
    async def test_did_not_happen_and_may_go_again(self, store: MemoryStorage, make: Making) -> None:
        writes = await make(store)
        lane = lane_on(FaultyStorage([OPENED, Fault.LOST_REQUEST], store))
        assert await lane.send(writes) is NOT_DONE
        assert not await is_done(store, writes)
        assert isinstance(await lane.send(writes), Committed)
        assert await is_done(store, writes)

    @of_any_kind
    async def test_arrives_before_the_door_is_closed(self, store: MemoryStorage, make: Making) -> None:
        writes = await make(store)
        lane = lane_on(FaultyStorage([OPENED, Fault.DELAYED], store, delay=1))
        answer = await lane.send(writes)
        assert answer == Committed(await store.current_revision())
        assert await is_done(store, writes)

    @of_any_kind
    @pytest.mark.parametrize("swept", [False, True])
    async def test_arrives_when_the_door_is_closed(self, store: MemoryStorage, make: Making, swept: bool) -> None:
        """Even if the marker has gone meanwhile: the writes were never sent with a marker that is to be absent."""
        writes = await make(store)
        faulty = FaultyStorage([OPENED, Fault.DELAYED], store, delay=1000)
        assert await lane_on(faulty).send(writes) is NOT_DONE
        if swept:
            await sweep(store)
        before = await store.current_revision()
        await faulty.deliver()
        assert await store.current_revision() == before

    @of_any_kind
    async def test_arrives_when_it_was_sent_again_and_undone(self, store: MemoryStorage, make: Making) -> None:
        writes = await make(store)
        faulty = FaultyStorage([OPENED, Fault.DELAYED], store, delay=1000)
        lane = lane_on(faulty)
        await lane.send(writes)
        await lane.send(writes)
        for write in writes:
            if state := await store.get(write.key):
                await done(store, Write(write.key, None, state.mod_revision))
        before = await store.current_revision()
        await faulty.deliver()
        assert await store.current_revision() == before

    @pytest.mark.parametrize(
        ("faults", "happened"),
        [
            ([Fault.LOST_ANSWER, Fault.LOST_REQUEST, Fault.NOT_SENT, Fault.LOST_ANSWER], True),
            ([Fault.LOST_REQUEST, Fault.LOST_ANSWER, Fault.NOT_SENT, Fault.LOST_REQUEST], False),
            ([Fault.LOST_REQUEST, Fault.DELAYED, Fault.NONE], False),
            ([Fault.DELAYED, Fault.DELAYED, Fault.NOT_SENT], True),
            ([Fault.LOST_REQUEST, StorageError("what?"), Fault.LOST_REQUEST], False),
        ],
    )
    async def test_door_takes_several_tries(
        self, store: MemoryStorage, faults: list[Fault | StorageError], happened: bool
    ) -> None:
        writes = await update(store)
        answer = await lane_on(FaultyStorage([OPENED, *faults], store)).send(writes)
        assert isinstance(answer, Committed) if happened else answer is NOT_DONE
        assert await is_done(store, writes) == happened

    @of_any_kind
    @pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.LOST_REQUEST])
    async def test_lane_waits_for_an_answer_until_the_deadline(self, store: MemoryStorage, make: Making, fault: Fault) -> None:
        writes = await make(store)
        faulty = FaultyStorage([OPENED, fault, *[Fault.NOT_SENT] * 100], store)
        lane = lane_on(faulty)
        with pytest.raises(CommitOutcomeUnknown):
            await lane.send(writes)
        while True:
            try:
                answer = await lane.send([Write("later", b"", 0)])
            except StorageUnavailable:
                continue
            assert isinstance(answer, Committed)
            assert len(await markers(store)) == 2, "a chain that was given up is not taken up again"
            break

    @of_any_kind
    @pytest.mark.parametrize("happened", [False, True])
    async def test_marker_is_swept_at_that_moment(self, store: MemoryStorage, make: Making, happened: bool) -> None:
        writes = await make(store)

        class Swept(FaultyStorage):
            async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
                try:
                    return await super().transact(writes)
                except CommitOutcomeUnknown:
                    await sweep(store)
                    raise

        lane = lane_on(Swept([OPENED, Fault.LOST_ANSWER if happened else Fault.LOST_REQUEST], store))
        with pytest.raises(CommitOutcomeUnknown):
            await lane.send(writes)
        assert isinstance(await lane.send([Write("later", b"", 0)]), Committed)

    async def test_lost_refusal_is_resolved(self, store: MemoryStorage) -> None:
        """By a conflict, a fence, a lease: sent again it is refused again."""
        fence, theirs, free = await put(store, "fence"), await put(store, "theirs"), await put(store, "free")
        cases = [
            (Write("theirs", b"mine", theirs - 1), CompareFailed),
            (Write("free", b"mine", free, (Guard("fence", fence - 1),)), CompareFailed),
            (Write("free", b"mine", free, lease=99), LeaseNotFound),
        ]
        for seed, (write, refusal) in enumerate(cases):
            lane = lane_on(FaultyStorage([OPENED, Fault.LOST_REQUEST], store), seed)
            assert await lane.send([write]) is NOT_DONE
            try:
                answer: object = await lane.send([write])
            except LeaseNotFound as error:
                answer = error
            assert isinstance(answer, refusal)


class TestTwoServers:
    """Both write the same bytes over the same version."""

    FAULTS = (Fault.NONE, Fault.LOST_REQUEST, Fault.LOST_ANSWER, Fault.DELAYED)

    @pytest.mark.parametrize("make", [create, update, same_bytes_again, delete])
    @pytest.mark.parametrize(("ours", "theirs", "delay"), [*product(FAULTS, FAULTS, [1, 2, 3])])
    async def test_exactly_one_of_several_writers_succeeds(
        self, store: MemoryStorage, make: Making, ours: Fault, theirs: Fault, delay: int
    ) -> None:
        writes = await make(store)
        storages = [FaultyStorage([OPENED, fault], store, delay=delay) for fault in (ours, theirs)]
        told = [await send_until_known(lane_on(storage, seed), writes) for seed, storage in enumerate(storages)]
        for storage in storages:
            await storage.deliver()
        assert sorted(type(answer).__name__ for answer in told) == ["Committed", "CompareFailed"]
        assert await is_done(store, writes)

    @pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.DELAYED])
    async def test_other_is_faster_while_the_answer_is_missing(self, store: MemoryStorage, fault: Fault) -> None:
        writes = await update(store)

        class Overtaken(FaultyStorage):
            async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
                try:
                    return await super().transact(writes)
                except CommitOutcomeUnknown:
                    await done(store, writes[0])
                    raise

        lane = lane_on(Overtaken([OPENED, fault], store, delay=1))
        assert isinstance(await send_until_known(lane, writes), CompareFailed)


class TestOutOfSpace:
    async def test_writer_gets_the_result(self) -> None:
        store = FullStorage()
        writes = await update(store)
        lane = lane_on(store)
        await lane.send([Write("before", b"", 0)])
        store.full = True
        with pytest.raises(OutOfSpace):
            await lane.send(writes)
        assert not await is_done(store, writes)
        store.full = False
        assert isinstance(await lane.send(writes), Committed)

    @of_any_kind
    async def test_transaction_that_succeeded_on_a_full_store_is_reported(self, make: Making) -> None:
        store = FullStorage()
        writes = await make(store)
        lane = lane_on(store)
        await lane.send([Write("before", b"", 0)])
        store.full, store.late = True, 1
        assert await lane.send(writes) == Committed(await store.current_revision())

    async def test_door_was_closed_all_the_same(self) -> None:
        store = FullStorage()
        writes = await update(store)
        lane = lane_on(FaultyStorage([OPENED, Fault.NONE, Fault.LOST_REQUEST], store))
        await lane.send([Write("before", b"", 0)])
        store.full, store.late = True, 1
        assert await lane.send(writes) is NOT_DONE

    @pytest.mark.parametrize("opened", [False, True])
    async def test_deletes_go_on_without_a_marker(self, opened: bool) -> None:
        store = FullStorage()
        writes = await delete(store)
        lane = lane_on(store)
        if opened:
            await lane.send([Write("before", b"", 0)])
        store.full = True
        assert isinstance(await lane.send(writes), Committed)
        assert await is_done(store, writes)

    async def test_deletes_whose_answer_is_lost_stay_unknown(self) -> None:
        store = FullStorage()
        writes = await delete(store)
        store.full = True
        lane = lane_on(FaultyStorage([OPENED, Fault.LOST_ANSWER], store))
        with pytest.raises(CommitOutcomeUnknown):
            await lane.send(writes)

    async def test_answer_that_was_lost_before(self) -> None:
        store = FullStorage()
        writes = await update(store)

        class Filling(FaultyStorage):
            async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
                try:
                    return await super().transact(writes)
                except CommitOutcomeUnknown:
                    store.full = True
                    raise

        with pytest.raises(CommitOutcomeUnknown):
            await lane_on(Filling([OPENED, Fault.LOST_REQUEST], store)).send(writes)
        store.full = False
        answer = await lane_on(Filling([OPENED, Fault.LOST_ANSWER], store), seed=2).send(writes)
        assert answer == Committed(await store.current_revision())


def test_keys_of_servers_are_disjoint() -> None:
    def some(keys: Iterator[str]) -> set[str]:
        return {next(keys) for _ in range(10)}

    mine, theirs = some(marker_keys(Random(1))), some(marker_keys(Random(2)))
    assert len(mine | theirs) == 20
    assert all(key.startswith(COMMITS_PREFIX) for key in mine)


async def send_until_known(lane: TransactionPipeline, writes: Sequence[Write]) -> Committed | CompareFailed:
    while (answer := await lane.send(writes)) is NOT_DONE:
        pass
    return answer


async def is_done(store: Storage, writes: Sequence[Write]) -> bool:
    """By what the keys are; of a put: once."""
    states = [await store.get(write.key) for write in writes]
    return all(
        state is None if write.value is None else state is not None and state.mod_revision > max(1, write.expected)
        for write, state in zip(writes, states, strict=True)
    )
