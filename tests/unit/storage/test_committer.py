import asyncio
from collections.abc import Sequence
from contextlib import suppress

import pytest

from pinnace.apiserver.storage import committer as committer_module
from pinnace.apiserver.storage.committer import (
    MAX_GROUP,
    SWEEP_INTERVAL,
    WAIT_TIMEOUT,
    Answer,
    Committer,
    DecidedOutcomes,
    GuardFailed,
    MarkerSweeper,
    TransactionPipeline,
    WriteConflict,
    WriteDenied,
)
from pinnace.apiserver.storage.interface import (
    MAX_REQUEST_BYTES,
    CommitOutcomeUnknown,
    Committed,
    CompareFailed,
    Guard,
    LeaseNotFound,
    OutOfSpace,
    StorageError,
    StorageUnavailable,
    TooLarge,
    Write,
)
from tests.clock import FakeClock
from tests.contract.steps import DEADLINE, done, put
from tests.garbage import freed_at_once
from tests.storage.memory import MemoryStorage
from tests.unit.storage.committing import FIRST, committing, creates, keys_of
from tests.unit.storage.faults import Fault, FaultyStorage, FullStorage, JumpingClock

OPENED = Fault.NONE
"""What happens to the transaction that creates a lane's marker."""


class GatedStorage(FaultyStorage):
    """Transactions begin when they are called, and go on when `gate` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.begun = 0
        self._more = asyncio.Condition()

    async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
        async with self._more:
            self.begun += 1
            self._more.notify_all()
        await self.gate.wait()
        return await super().transact(writes)

    async def wait_begun(self, count: int) -> None:
        async with self._more, asyncio.timeout(DEADLINE):
            await self._more.wait_for(lambda: self.begun >= count)


async def test_failed_write_frees_its_error_at_once() -> None:
    async with committing(FaultyStorage()) as committer:
        await committer.commit(creates("a")[0])
        with freed_at_once(WriteConflict):
            with suppress(WriteConflict):  # `pytest.raises` keeps the error
                await committer.commit(creates("a")[0])
            await committer.commit(creates("b")[0])  # the committer itself remembers its last transaction


class TestGroups:
    async def test_call_with_several_writes_is_one_transaction(self) -> None:
        storage = FaultyStorage()
        async with committing(storage) as committer:
            outcomes = await committer.commit_many(creates("a", "b", "c"))
        assert keys_of(storage) == [["a", "b", "c"]]
        assert outcomes == [FIRST] * 3

    async def test_empty_call_returns_at_once(self) -> None:
        async with committing(FaultyStorage()) as committer:
            assert await committer.commit_many([]) == []

    async def test_calls_of_one_moment_share_a_transaction(self) -> None:
        storage = FaultyStorage()
        async with committing(storage) as committer:
            revisions = await asyncio.gather(*(committer.commit(write) for write in creates(*"abcdef")))
        assert keys_of(storage) == [list("abcdef")]
        assert set(revisions) == {FIRST}

    async def test_calls_made_before_it_runs_wait(self) -> None:
        storage = MemoryStorage()
        committer = Committer(storage)
        waiting = asyncio.create_task(committer.commit(*creates("a")))
        running = asyncio.create_task(committer.run())
        assert await asyncio.wait_for(waiting, DEADLINE) == FIRST
        running.cancel()

    async def test_lanes_that_were_opened_cost_the_first_writes_no_transaction(self) -> None:
        storage = FaultyStorage()
        async with committing(storage) as committer:
            await committer.open_pipelines()
            opened = len(storage.groups)
            assert await committer.commit_many(creates("a")) == [opened + 2]
        assert storage.groups[opened][0].key == "a"

    @pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.LOST_ANSWER])
    async def test_writes_go_although_lanes_could_not_be_opened(self, fault: Fault) -> None:
        async with committing(FaultyStorage([fault]), max_in_flight=1) as committer:
            opening = asyncio.create_task(committer.open_pipelines())
            await asyncio.sleep(0)
            assert [type(outcome) for outcome in await committer.commit_many(creates("a"))] == [int]
            await opening

    async def test_markers_of_idle_lanes_are_moved_before_they_are_swept_away(self) -> None:
        storage, clock = FaultyStorage(), FakeClock()
        async with committing(storage, clock=clock) as committer:
            keeping = [
                asyncio.create_task(part) for part in (committer.keep_pipelines_open(), MarkerSweeper(storage, clock).run())
            ]
            await clock.advance(5 * SWEEP_INTERVAL)
            before = len(storage.groups)
            await committer.commit_many(creates("a"))
            assert len(storage.groups) == before + 1, "it was sent at once, and once"
            for task in keeping:
                task.cancel()
            await asyncio.wait(keeping)

    async def test_big_calls_are_several_transactions(self) -> None:
        storage = FaultyStorage()
        async with committing(storage) as committer:
            outcomes = await committer.commit_many(creates(*(f"{i:03}" for i in range(300))))
        assert [len(group) for group in keys_of(storage)] == [MAX_GROUP, MAX_GROUP, 300 - 2 * MAX_GROUP]
        assert sorted(outcomes) == outcomes

    @pytest.mark.parametrize("max_in_flight", [1, 2, 4])
    async def test_transactions_in_flight_are_limited(self, max_in_flight: int) -> None:
        storage = GatedStorage()
        async with committing(storage, max_in_flight) as committer:
            call = asyncio.create_task(committer.commit_many(creates(*(f"{i:04}" for i in range(6 * MAX_GROUP)))))
            await storage.wait_begun(max_in_flight)
            await asyncio.sleep(0)
            assert storage.begun == max_in_flight
            storage.gate.set()
            await call

    async def test_write_is_not_in_one_failing_transaction_after_the_other(self) -> None:
        """Each write of somebody who does not lead failed the transaction that others shared, and these went again with the
        next one of his."""
        storage = FaultyStorage()
        async with committing(storage, max_in_flight=1) as committer:
            writes = [Write(f"bad-{number}", b"", 0, _false_fences(number)) for number in range(20)]
            writes.insert(1, *creates("good"))
            outcomes = await asyncio.gather(*map(committer.commit, writes), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes].count(GuardFailed) == 20
        assert sum("good" in group for group in keys_of(storage)) == 2


def _false_fences(number: int) -> tuple[Guard, ...]:
    """So many that no other write with as many fits in beside them."""
    return tuple(Guard(f"election-{number}-{index}", 7) for index in range(MAX_GROUP - 10))


class TestOneKey:
    async def test_writes_of_a_key_happen_in_the_order_of_the_calls(self) -> None:
        """Each write expects what the one before it left, so that only this order lets all of them pass."""
        storage = GatedStorage()
        async with committing(storage) as committer:
            first = asyncio.create_task(committer.commit(Write("a", b"1", 0)))
            await storage.wait_begun(1)
            rest = [asyncio.create_task(committer.commit(Write("a", b"%d" % i, i))) for i in range(FIRST, 7)]
            await asyncio.sleep(0)
            assert storage.begun == 1
            storage.gate.set()
            assert [await first, *[await item for item in rest]] == [3, 4, 5, 6, 7]

    async def test_twice_in_one_call(self) -> None:
        async with committing(FaultyStorage()) as committer:
            writes = [Write("a", b"1", 0), Write("b", b"1", 0), Write("a", b"2", FIRST)]
            assert await committer.commit_many(writes) == [FIRST, FIRST, FIRST + 1]


class TestRefusals:
    async def test_loser_fails_alone(self) -> None:
        storage = FaultyStorage()
        await put(storage.inner, "b", b"theirs")
        async with committing(storage) as committer:
            outcomes = await committer.commit_many(creates("a", "b", "c"))
        assert outcomes[0] == outcomes[2] == FIRST + 1
        lost = outcomes[1]
        assert isinstance(lost, WriteConflict)
        assert lost.write.key == "b"
        assert lost.current is not None and lost.current.value == b"theirs"
        assert keys_of(storage) == [["a", "b", "c"], ["a", "c"]]

    async def test_others_go_again_without_newer_ones(self) -> None:
        storage = GatedStorage()
        await put(storage.inner, "b", b"theirs")
        async with committing(storage, max_in_flight=1) as committer:
            older = asyncio.create_task(committer.commit_many(creates("a", "b", "c")))
            await storage.wait_begun(1)
            newer = asyncio.create_task(committer.commit_many(creates("d")))
            await asyncio.sleep(0)
            storage.gate.set()
            await asyncio.gather(older, newer)
        assert keys_of(storage) == [["a", "b", "c"], ["a", "c"], ["d"]]

    async def test_lost_fence(self) -> None:
        storage = FaultyStorage()
        token = await put(storage.inner, "fence", b"the next leader")
        stale, valid = Guard("fence", token - 1), Guard("fence", token)
        async with committing(storage) as committer:
            old, new, free = await committer.commit_many(
                [Write("a", b"", 0, (stale,)), Write("b", b"", 0, (valid,)), Write("c", b"", 0)]
            )
        assert isinstance(old, GuardFailed)
        assert old.guard is stale
        assert old.current is not None and old.current.create_revision == token
        assert new == free == token + 2

    async def test_wrapper_adds_writes_and_handles_some_results(self) -> None:
        """The others go again; what he added happens with the group that it was added to."""
        storage = FaultyStorage()

        async def send(lane: TransactionPipeline, writes: Sequence[Write]) -> Answer | DecidedOutcomes:
            *before, last = writes
            answer = await lane.send([last, *creates(f"with {last.key}")])
            assert isinstance(answer, Committed)
            return DecidedOutcomes(
                {last.key: answer.revision} | {item.key: WriteDenied("no") for item in before if item.key == "b"}
            )

        async with committing(storage, send=send) as committer:
            a, b, c = await committer.commit_many(creates("a", "b", "c"))
        assert (a, c) == (FIRST + 1, FIRST)
        assert isinstance(b, WriteDenied)
        assert keys_of(storage) == [["c", "with c"], ["a", "with a"]]

    async def test_all_lose(self) -> None:
        storage = FaultyStorage()
        await done(storage.inner, *creates("a", "b"))
        async with committing(storage) as committer:
            outcomes = await committer.commit_many(creates("a", "b"))
        assert all(isinstance(outcome, WriteConflict) for outcome in outcomes)
        assert keys_of(storage) == [["a", "b"]]

    async def test_commit_raises(self) -> None:
        storage = FaultyStorage()
        token = await put(storage.inner, "a")
        async with committing(storage) as committer:
            with pytest.raises(WriteConflict):
                await committer.commit(*creates("a"))
            with pytest.raises(GuardFailed):
                await committer.commit(Write("b", b"", 0, (Guard("a", token + 1),)))

    async def test_key_is_free_after_a_refusal(self) -> None:
        storage = FaultyStorage()
        revision = await put(storage.inner, "a")
        async with committing(storage) as committer:
            with pytest.raises(WriteConflict):
                await committer.commit(*creates("a"))
            assert await committer.commit(Write("a", b"2", revision)) == revision + 2


class TestErrors:
    @pytest.mark.parametrize("faults", [[Fault.NOT_SENT], [OPENED, Fault.NOT_SENT]])
    async def test_commit_fails_without_a_connection(self, faults: list[Fault]) -> None:
        async with committing(FaultyStorage(faults)) as committer:
            outcomes = await committer.commit_many(creates("a", "b"))
            assert all(isinstance(outcome, StorageUnavailable) for outcome in outcomes)
            assert await committer.commit_many(creates("a", "b")) == [FIRST, FIRST]

    async def test_out_of_space_deletes_go_on(self) -> None:
        storage = FullStorage()
        revision = await put(storage, "old")
        async with committing(storage) as committer:
            last = await committer.commit(*creates("before"))
            storage.full = True
            full, freed = await committer.commit_many([*creates("a"), Write("old", None, revision)])
        assert isinstance(full, OutOfSpace)
        assert freed == last + 1

    async def test_out_of_space_even_for_deletes(self) -> None:
        """etcd before 3.5.3 refuses them too."""
        storage = FaultyStorage([OutOfSpace("full")] * 10)
        revision = await put(storage.inner, "old")
        async with committing(storage) as committer:
            assert isinstance((await committer.commit_many([Write("old", None, revision)]))[0], OutOfSpace)

    async def test_refused_for_no_reason(self) -> None:
        class Stubborn(MemoryStorage):
            async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
                if len(writes) == 1:
                    return await super().transact(writes)
                return CompareFailed(1, {write.key: await self.get(write.key) for write in writes})

        async with committing(Stubborn()) as committer:
            assert isinstance((await committer.commit_many(creates("a")))[0], StorageError)

    async def test_lost_lease_fails_only_writes_with_that_lease(self) -> None:
        storage = FaultyStorage()
        good = await storage.grant_lease(60)
        async with committing(storage) as committer:
            outcomes = await committer.commit_many(
                [Write("a", b"", 0, lease=99), Write("b", b"", 0), Write("c", b"", 0, lease=good), Write("d", b"", 0, lease=99)]
            )
        assert [type(outcome) for outcome in outcomes] == [LeaseNotFound, int, int, LeaseNotFound]

    async def test_write_that_is_too_large_fails_alone(self) -> None:
        async with committing(FaultyStorage()) as committer:
            too_large, refused, fine, small = await committer.commit_many(
                [
                    Write("a", bytes(MAX_REQUEST_BYTES + 1), 0),
                    Write("b", bytes(MAX_REQUEST_BYTES), 0),  # too large with its key
                    Write("c", bytes(MAX_REQUEST_BYTES - 512), 0),
                    Write("d", b"", 0),
                ]
            )
        assert isinstance(too_large, TooLarge) and isinstance(refused, TooLarge)
        assert [fine, small] == [FIRST, FIRST + 1], "a large write is sent alone"

    async def test_unexpected_error_ends_the_committer(self) -> None:
        class Broken(MemoryStorage):
            async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
                raise ZeroDivisionError

        committer = Committer(Broken())
        call = asyncio.create_task(committer.commit_many(creates("a")))
        with pytest.raises(ExceptionGroup):
            await asyncio.wait_for(committer.run(), DEADLINE)
        assert isinstance((await call)[0], CommitOutcomeUnknown)


class TestLostAnswers:
    @pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.LOST_REQUEST, Fault.DELAYED])
    async def test_it_happens_once(self, fault: Fault) -> None:
        storage = FaultyStorage([OPENED, fault])
        revision = await put(storage.inner, "a")
        async with committing(storage, clock=JumpingClock()) as committer:
            updated, created = await committer.commit_many([Write("a", b"2", revision), *creates("b")])
        assert updated == created
        await storage.deliver()
        result = await storage.get("a"), await storage.get("b")
        assert [(state.mod_revision, state.version) for state in result if state] == [(updated, 2), (updated, 1)]

    async def test_failed_transaction_is_repeated_before_newer_ones(self) -> None:
        storage = FaultyStorage([OPENED, Fault.LOST_REQUEST])
        async with committing(storage, max_in_flight=1, clock=JumpingClock()) as committer:
            older = asyncio.create_task(committer.commit_many(creates("a", "b")))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            newer = asyncio.create_task(committer.commit_many(creates("c")))
            assert await older + await newer == [FIRST + 1] * 3
        assert keys_of(storage) == [["a", "b"], ["a", "b", "c"]]

    async def test_outcome_is_unknown_without_an_answer_before_the_deadline(self) -> None:
        storage = FaultyStorage([OPENED, Fault.LOST_REQUEST, *[Fault.NOT_SENT] * 1000])
        async with committing(storage, clock=JumpingClock()) as committer:
            outcomes = await committer.commit_many(creates("a", "b"))
        assert all(isinstance(outcome, CommitOutcomeUnknown) for outcome in outcomes)

    async def test_write_that_lost_a_conflict_fails_alone(self) -> None:
        storage = FaultyStorage([OPENED, Fault.LOST_REQUEST])
        a, b = await put(storage.inner, "a"), await put(storage.inner, "b")
        await put(storage.inner, "b", b"theirs", expected=b)
        async with committing(storage, clock=JumpingClock()) as committer:
            won, lost = await committer.commit_many([Write("a", b"mine", a), Write("b", b"mine", b)])
        assert isinstance(won, int)
        assert isinstance(lost, WriteConflict)

    async def test_later_writes_of_its_keys_wait_for_the_verdict(self) -> None:
        storage = FaultyStorage([OPENED, Fault.LOST_ANSWER])
        revision = await put(storage.inner, "a")
        async with committing(storage, clock=JumpingClock()) as committer:
            outcomes = await committer.commit_many([Write("a", b"2", revision), Write("a", b"3", revision + 2)])
        assert outcomes == [revision + 2, revision + 3]


class TestLimits:
    @pytest.mark.parametrize(("limit", "value"), [("MAX_OPEN", 2), ("MAX_OPEN_BYTES", 20)])
    async def test_queue_is_bounded(self, monkeypatch: pytest.MonkeyPatch, limit: str, value: int) -> None:
        monkeypatch.setattr(committer_module, limit, value)
        storage = GatedStorage()
        async with committing(storage) as committer:
            call = asyncio.create_task(committer.commit_many(creates("a", "b", "c")))
            await storage.wait_begun(1)
            storage.gate.set()
            assert [type(outcome) for outcome in await call] == [int, int, StorageUnavailable]
            assert await committer.commit_many(creates("c", "d")) == [FIRST + 1] * 2, "room was not given back"

    async def test_slow_write_is_reported(self) -> None:
        storage, clock = GatedStorage(), FakeClock()
        async with committing(storage, max_in_flight=1, clock=clock) as committer:
            sent = asyncio.create_task(committer.commit_many(creates("a")))
            await storage.wait_begun(1)
            waits = asyncio.create_task(committer.commit_many(creates("b")))
            await clock.advance(WAIT_TIMEOUT)
            storage.gate.set()
            assert await sent == [FIRST]
            assert isinstance((await waits)[0], StorageUnavailable)
            assert await committer.commit_many(creates("b")) == [FIRST + 1]

    async def test_cancelled_write_is_not_awaited(self) -> None:
        storage = GatedStorage()
        async with committing(storage, max_in_flight=1) as committer:
            sent = asyncio.create_task(committer.commit_many(creates("a")))
            await storage.wait_begun(1)
            waits = asyncio.create_task(committer.commit_many(creates("b")))
            await asyncio.sleep(0)
            waits.cancel()
            storage.gate.set()
            await sent
            assert await committer.commit_many(creates("c")) == [FIRST + 1]
        assert keys_of(storage) == [["a"], ["c"]]


class TestStopping:
    async def test_every_waiting_write_gets_the_error(self) -> None:
        storage = GatedStorage()
        committer = Committer(storage, max_in_flight=1)
        running = asyncio.create_task(committer.run())
        sent = asyncio.create_task(committer.commit_many(creates("a")))
        await storage.wait_begun(1)
        waits = asyncio.create_task(committer.commit_many([*creates("b"), Write("a", b"", 2)]))
        await asyncio.sleep(0)
        running.cancel()
        assert [type(outcome) for outcome in await asyncio.wait_for(sent, DEADLINE)] == [CommitOutcomeUnknown]
        assert [type(outcome) for outcome in await asyncio.wait_for(waits, DEADLINE)] == [
            StorageUnavailable,
            StorageUnavailable,
        ]
        later = await asyncio.wait_for(committer.commit_many(creates("c")), DEADLINE)
        assert [type(outcome) for outcome in later] == [StorageUnavailable]

    @pytest.mark.parametrize("steps", range(1, 8))
    async def test_every_waiting_write_gets_an_error_at_any_stop(self, steps: int) -> None:
        committer = Committer(FaultyStorage())
        running = asyncio.create_task(committer.run())
        call = asyncio.create_task(committer.commit_many(creates("a", "b")))
        for _ in range(steps):
            await asyncio.sleep(0)
        running.cancel()
        outcomes = await asyncio.wait_for(call, DEADLINE)
        assert all(isinstance(outcome, int | StorageUnavailable | CommitOutcomeUnknown) for outcome in outcomes)
