"""What a flow may have told and not taken, and who waits or ends when that is too much."""

import asyncio
from dataclasses import dataclass

import pytest

from pinnace.apiserver.flow import send_budget as module
from pinnace.apiserver.flow.send_budget import SendBudget, SendPool

MIB = 1 << 20


class Everything:
    requirement_count = 1


EVERYTHING = Everything()


@dataclass(eq=False)
class Watch:
    budget: SendBudget
    buffered_bytes: int = 0
    selection: Everything = EVERYTHING
    ended: bool = False

    def end_overflowed(self) -> None:
        self.budget.add_buffered(-self.buffered_bytes)
        self.budget.remove_watch(self)
        self.buffered_bytes, self.ended = 0, True


def watching(budget: SendBudget, *mib: int) -> list[Watch]:
    """Watches for which so much waits."""
    watches = [Watch(budget, size * MIB) for size in mib]
    for watch in watches:
        budget.add_watch(watch)
        budget.add_buffered(watch.buffered_bytes)
    return watches


def ended(watches: list[Watch]) -> list[int]:
    """Their numbers."""
    return [number for number, watch in enumerate(watches) if watch.ended]


def filled(room: SendPool, mib: int) -> SendBudget:
    budget = SendBudget(room)
    budget.charge(mib * MIB)
    return budget


class TestWithGrpc:
    def test_flow_uses_as_much_as_it_leaves_free(self) -> None:
        assert not filled(SendPool(), 63).is_full
        assert filled(SendPool(), 64).is_full

    def test_room_of_other_flows_is_not_free(self) -> None:
        room = SendPool()
        filled(room, 64)
        assert not filled(room, 31).is_full
        assert filled(room, 32).is_full

    def test_flow_borrows_at_most_half_of_the_buffer(self) -> None:
        """One answer is given, as large as it is."""
        room = SendPool()
        large = filled(room, 1000)
        assert not filled(room, 31).is_full
        large.charge(-1000 * MIB)
        assert room.unsent_bytes == 31 * MIB

    def test_every_flow_may_use_the_minimum(self) -> None:
        room = SendPool()
        for _ in range(10):
            filled(room, 1000)
        assert not filled(room, 7).is_full
        assert filled(room, 8).is_full

    def test_buffered_events_do_not_block_the_handover(self) -> None:
        room = SendPool()
        budget = SendBudget(room)
        budget.add_buffered(1000 * MIB)
        assert not budget.is_full
        budget.charge(63 * MIB)
        assert not budget.is_full


class TestWaiting:
    def test_watch_ends_for_which_most_waits(self) -> None:
        budget = SendBudget(SendPool())
        watches = watching(budget, 20, 30, 14)
        budget.enforce_limit()
        assert ended(watches) == []
        watches += watching(budget, 1)
        budget.enforce_limit()
        assert ended(watches) == [1]

    def test_as_many_end_as_must(self) -> None:
        budget = SendBudget(SendPool())
        watches = watching(budget, 20, 30, 40, 0, 10)
        budget.enforce_limit()
        assert ended(watches) == [2]
        watches += watching(budget, 64)
        budget.enforce_limit()
        assert ended(watches) == [2, 5]
        assert budget.waiting == 60 * MIB

    def test_bytes_passed_to_grpc_end_no_stream(self) -> None:
        room = SendPool()
        filled(room, 1000)
        budget = SendBudget(room)
        budget.charge(1000 * MIB)
        watches = watching(budget, 60)
        budget.enforce_limit()
        assert ended(watches) == []

    def test_watch_of_the_largest_flow_is_ended(self) -> None:
        room = SendPool()
        large, small = SendBudget(room), SendBudget(room)
        watches = watching(large, 20, 22) + watching(small, 21)
        small.enforce_limit()
        assert ended(watches) == []
        small.add_buffered(2 * MIB)
        small.enforce_limit()
        assert ended(watches) == [1]

    def test_minimum_stays_reserved_for_every_flow(self) -> None:
        room = SendPool()
        watches = [watch for _ in range(20) for watch in watching(SendBudget(room), 4, 4)]
        watches[0].budget.enforce_limit()
        assert ended(watches) == []
        watches += watching(watches[0].budget, 1)
        watches[-1].budget.enforce_limit()
        assert ended(watches) == [0]

    def test_streams_that_share_a_buffer_end_together(self) -> None:
        budget = SendBudget(SendPool())
        shared = [Shared(budget, 65 * MIB) for _ in range(3)]
        for watch in shared:
            budget.add_watch(watch)
        budget.add_buffered(65 * MIB)
        other = watching(budget, 1)
        budget.enforce_limit()
        assert [watch.ended for watch in (*shared, *other)] == [True, True, True, False]


@dataclass(eq=False)
class Shared(Watch):
    def end_overflowed(self) -> None:
        self.budget.remove_watch(self)
        self.ended = True
        if all(other.buffered_bytes < self.buffered_bytes for other in self.budget.watches):
            self.budget.add_buffered(-self.buffered_bytes)
        self.buffered_bytes = 0


async def send(budget: SendBudget, size: int) -> None:
    if budget.must_wait:
        await budget.wait(Watch(budget))
    budget.charge(size)


async def test_waiting_streams_resume_in_order() -> None:
    budget = filled(SendPool(), 64)
    went: list[int] = []

    async def one(number: int) -> None:
        await send(budget, 60 * MIB)
        went.append(number)

    tasks = [asyncio.ensure_future(one(number)) for number in range(4)]
    await asyncio.sleep(0.01)
    assert went == []
    tasks[1].cancel()
    for expected in ([0], [0, 2], [0, 2, 3]):
        budget.charge(-60 * MIB)
        await asyncio.sleep(0.01)
        assert went == expected
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_served_stream_waits_behind_the_others() -> None:
    budget = filled(SendPool(), 64)
    waiting = asyncio.ensure_future(send(budget, MIB))
    await asyncio.sleep(0)
    for _ in range(3):
        budget.charge(-MIB)
        assert budget.must_wait, "others are first"
        await asyncio.sleep(0)
        budget.charge(MIB)
        if waiting.done():
            return
        await asyncio.sleep(0)
    raise AssertionError("it has never had its turn")


async def test_room_for_several_is_for_several() -> None:
    budget = filled(SendPool(), 64)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(send(budget, MIB))
        await asyncio.sleep(0.01)
        budget.charge(-60 * MIB)
    assert budget.unsent_bytes == 14 * MIB


async def test_waiting_stream_uses_released_room() -> None:
    room = SendPool()
    other, budget = filled(room, 60), filled(room, 40)
    waiting = asyncio.ensure_future(send(budget, MIB))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    other.charge(-60 * MIB)
    async with asyncio.timeout(5):
        await waiting
    assert not room.queued


async def test_every_waiting_stream_gets_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEND_TIMEOUT", 0.01)
    budget = filled(SendPool(), 64)
    with pytest.raises(TimeoutError):
        await send(budget, MIB)
    assert budget.is_full and list(budget.watches) == []


async def test_closed_stream_stops_waiting() -> None:
    budget = filled(SendPool(), 64)
    watch, other = watching(budget, 0, 0)
    waiting, behind = [asyncio.ensure_future(budget.wait(item)) for item in (watch, other)]
    await asyncio.sleep(0)
    budget.remove_watch(watch)
    async with asyncio.timeout(5):
        await waiting
    assert budget.is_full and not behind.done()
    budget.charge(-MIB)
    async with asyncio.timeout(5):
        await behind
