"""For whom the writes of a committer wait, and how long."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count

import pytest

from pinnace.apiserver.storage import committer as committer_module
from pinnace.apiserver.storage.committer import (
    COMMIT_SIBLINGS,
    FULL_GROUP,
    Answer,
    Committer,
    DecidedOutcomes,
    TransactionPipeline,
)
from pinnace.apiserver.storage.interface import Committed, Write
from tests.contract.steps import DEADLINE
from tests.unit.storage.committing import FIRST, committing, creates, keys_of
from tests.unit.storage.faults import FaultyStorage


class FirstHeld:
    """A Send that keeps the first group from its lane until `gate` is set."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.holding = asyncio.Event()

    async def __call__(self, lane: TransactionPipeline, writes: Sequence[Write]) -> Answer:
        if not self.holding.is_set():
            self.holding.set()
            await self.gate.wait()
        return await lane.send(writes)


class TestAnotherLane:
    @pytest.fixture(autouse=True)
    def patience(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without end, but for the test of it."""
        monkeypatch.setattr(committer_module, "MAX_GROUP_DELAY", 10 * DEADLINE)

    async def test_writes_during_a_transaction_share_the_next_one(self) -> None:
        storage, held = FaultyStorage(), FirstHeld()
        async with committing(storage, send=held) as committer:
            calls = [asyncio.create_task(committer.commit(Write("a", b"1", 0)))]
            await held.holding.wait()
            for write in creates("b", "c"):  # at different moments
                calls.append(asyncio.create_task(committer.commit(write)))
                await asyncio.sleep(0)
            held.gate.set()
            await asyncio.gather(*calls)
        assert keys_of(storage) == [["a"], ["b", "c"]]

    async def test_enough_writes_go_at_once(self) -> None:
        storage, held = FaultyStorage(), FirstHeld()
        names = [f"{i:03}" for i in range(FULL_GROUP)]
        async with committing(storage, send=held) as committer:
            first = asyncio.create_task(committer.commit_many(creates("first")))
            await held.holding.wait()
            await committer.commit_many(creates(*names))
            held.gate.set()
            await first
        assert keys_of(storage) == [names, ["first"]]

    async def test_unanswered_write_delays_others_briefly(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(committer_module, "MAX_GROUP_DELAY", 0.001)
        storage, held = FaultyStorage(), FirstHeld()
        async with committing(storage, send=held) as committer:
            first = asyncio.create_task(committer.commit_many(creates("first")))
            await held.holding.wait()
            for name in "abc":
                await committer.commit_many(creates(name))
            held.gate.set()
            await first
        assert keys_of(storage) == [["a"], ["b"], ["c"], ["first"]]


def busy() -> Callable[[], int]:
    """A CPU that is short all the time."""
    return partial(next, count(0, 1_000_000))


class TestSiblings:
    @pytest.fixture(autouse=True)
    def patience(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without end, but for the test of it."""
        monkeypatch.setattr(committer_module, "MAX_GROUP_DELAY", 10 * DEADLINE)

    async def test_repeated_writer_is_waited_for(self) -> None:
        storage = FaultyStorage()
        async with committing(storage, preempted=busy()) as committer:
            await self.twice(committer)
            await asyncio.gather(*(self.late(committer, number) for number in range(COMMIT_SIBLINGS)))
        assert keys_of(storage) == [[f"{round_}{number}" for number in range(COMMIT_SIBLINGS)] for round_ in "abc"]

    async def test_committer_waits_for_a_short_time_only(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(committer_module, "MAX_GROUP_DELAY", 0.001)
        async with committing(FaultyStorage(), preempted=busy()) as committer:
            await self.twice(committer)
            await committer.commit_many(creates("alone"))

    async def test_single_writer_is_not_waited_for(self) -> None:
        async with committing(FaultyStorage(), preempted=busy()) as committer:
            await asyncio.gather(*(committer.commit_many(creates(f"{number}")) for number in range(COMMIT_SIBLINGS)))
            await committer.commit_many(creates("alone"))

    async def test_committer_does_not_wait_with_spare_cpu(self) -> None:
        async with committing(FaultyStorage()) as committer:
            await self.twice(committer)
            await committer.commit_many(creates("alone"))

    async def test_few_are_not(self) -> None:
        async with committing(FaultyStorage(), preempted=busy()) as committer:
            await self.twice(committer, COMMIT_SIBLINGS - 1)
            await committer.commit_many(creates("alone"))

    async def test_many_writes_of_a_few_are_a_few(self) -> None:
        async with committing(FaultyStorage(), preempted=busy()) as committer:
            for round_ in "ab":
                await committer.commit_many(creates(*(f"{round_}{number}" for number in range(COMMIT_SIBLINGS))))
            await committer.commit_many(creates("alone"))

    async def test_enough_writes_go_without_them(self) -> None:
        async with committing(FaultyStorage(), preempted=busy()) as committer:
            await self.twice(committer)
            await committer.commit_many(creates(*(f"more-{number}" for number in range(FULL_GROUP))))

    async def test_writer_of_the_same_key_is_not_waited_for(self) -> None:
        """They take turns anyway."""
        async with committing(FaultyStorage(), preempted=busy()) as committer:
            await committer.commit(Write("one", b"", 0))
            turns = [
                committer.commit(Write("one", b"%d" % revision, revision)) for revision in range(FIRST, 4 * COMMIT_SIBLINGS)
            ]
            await asyncio.gather(*turns)
            await committer.commit(Write("other", b"", 0))

    async def test_quota_writer_is_waited_for(self) -> None:
        async def charging(lane: TransactionPipeline, writes: Sequence[Write]) -> DecidedOutcomes:
            answer = await lane.send(writes)
            assert isinstance(answer, Committed)
            return DecidedOutcomes({write.key: answer.revision for write in writes})

        storage = FaultyStorage()
        async with committing(storage, preempted=busy(), send=charging) as committer:
            await self.twice(committer)
            await asyncio.gather(*(self.late(committer, number) for number in range(COMMIT_SIBLINGS)))
        assert len(keys_of(storage)) == 3

    @staticmethod
    async def twice(committer: Committer, callers: int = COMMIT_SIBLINGS) -> None:
        """That is again and again."""
        for round_ in "ab":
            await asyncio.gather(*(committer.commit_many(creates(f"{round_}{number}")) for number in range(callers)))

    @staticmethod
    async def late(committer: Committer, number: int) -> None:
        """The third time they come one after the other."""
        for _ in range(number):
            await asyncio.sleep(0)
        await committer.commit_many(creates(f"c{number}"))
