"""Seats and memory that users share."""

import asyncio

import pytest

from pinnace.gateway import flow
from pinnace.gateway.flow import FairPool
from pinnace.gateway.http import ApiStatus


def pool(total: int = 8, alone: int = 6, share: int = 2, waiting: int = 100) -> FairPool:
    return FairPool(total, alone, share, waiting, "a seat")


async def waiting(pool: FairPool, user: str, units: int = 1) -> "asyncio.Task[None]":
    """A request that waits."""
    assert not pool.try_take_units(user, units)
    task = asyncio.create_task(pool.wait_for_units(user, units))
    await asyncio.sleep(0)
    return task


def test_single_user_gets_its_limit() -> None:
    seats = pool()
    assert [seats.try_take_units("a", 1) for _ in range(7)] == [True] * 6 + [False]


def test_user_with_short_requests_keeps_the_others_at_their_share() -> None:
    """Between two short requests of a user, the flood of another one took nearly all seats."""
    now = 0.0
    seats = FairPool(8, 6, 2, 100, "a seat", lambda: now)
    assert seats.try_take_units("short", 1)
    seats.release_units("short", 1)
    assert [seats.try_take_units("flood", 1) for _ in range(3)] == [True, True, False]
    now = flow.ALONE_AFTER
    assert [seats.try_take_units("flood", 1) for _ in range(5)] == [True] * 4 + [False]


async def test_others_get_their_share_at_once_and_the_first_user_waits() -> None:
    seats = pool()
    assert all(seats.try_take_units("a", 1) for _ in range(6))
    assert seats.try_take_units("b", 1) and seats.try_take_units("b", 1)
    task = await waiting(seats, "a")
    seats.release_units("a", 1)
    await asyncio.sleep(0)
    assert not task.done(), "with another user, its share is two"
    for _ in range(4):
        seats.release_units("a", 1)
    await task


async def test_free_seat_goes_to_the_user_with_the_fewest() -> None:
    seats = pool(total=3, alone=3, share=3)
    assert all(seats.try_take_units("a", 1) for _ in range(3))
    first, second = await waiting(seats, "a"), await waiting(seats, "b")
    seats.release_units("a", 1)
    await second
    assert not first.done()
    first.cancel()


async def test_request_above_the_limit_runs_alone() -> None:
    seats = pool()
    assert seats.try_take_units("a", 50) and not seats.try_take_units("a", 1)
    seats.release_units("a", 50)
    assert seats.try_take_units("a", 1) and seats.held_units == 1


async def test_cancelled_request_leaves_the_queue() -> None:
    seats = pool(total=1, alone=1, share=1)
    assert seats.try_take_units("a", 1)
    task = await waiting(seats, "b")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    seats.release_units("a", 1)
    assert seats.held_units == 0 and seats.try_take_units("c", 1)


async def test_request_cancelled_as_it_gets_its_seat_returns_it() -> None:
    seats = pool(total=1, alone=1, share=1)
    assert seats.try_take_units("a", 1)
    task = await waiting(seats, "b")
    seats.release_units("a", 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert seats.held_units == 0


async def test_seat_freed_as_a_waiting_request_is_cancelled_goes_to_the_next() -> None:
    """The release raised InvalidStateError, and the seat was lost."""
    seats = pool(total=1, alone=1, share=1)
    assert seats.try_take_units("a", 1)
    first, second = await waiting(seats, "b"), await waiting(seats, "c")
    first.cancel()
    seats.release_units("a", 1)  # before the cancelled task has run
    await second
    await asyncio.gather(first, return_exceptions=True)
    assert seats.held_units == 1
    seats.release_units("c", 1)
    assert seats.held_units == 0 and seats.try_take_units("a", 1)


async def test_wait_ends_with_too_many_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "WAIT_TIMEOUT", 0.01)
    seats = pool(total=1, alone=1, share=1)
    assert seats.try_take_units("a", 1)
    with pytest.raises(ApiStatus) as caught:
        await (await waiting(seats, "b"))
    assert (caught.value.code, caught.value.retry_after) == (429, 1)
    seats.release_units("a", 1)
    assert seats.held_units == 0


async def test_queue_of_a_user_is_bounded() -> None:
    seats = pool(total=1, alone=1, share=1, waiting=1)
    assert seats.try_take_units("a", 1)
    task = await waiting(seats, "b")
    with pytest.raises(ApiStatus):
        await seats.wait_for_units("b", 1)
    other = await waiting(seats, "c")
    for item in (task, other):
        item.cancel()
