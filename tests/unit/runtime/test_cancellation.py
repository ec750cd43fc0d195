"""Who was cancelled: the task, or only the call that it waits for."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from pinnace.runtime.tasks import CallCancelled, HeedsCancellation


class Stubborn:
    """Waits as grpc.aio does: in a task of its own, which ends as the call does when it is cancelled."""

    def __init__(self, outcome: Callable[[], str]) -> None:
        self.call: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._outcome = outcome

    async def _wait(self) -> str:
        with suppress(asyncio.CancelledError):
            await self.call
        return self._outcome()

    def answer(self) -> Awaitable[str]:
        return asyncio.ensure_future(self._wait())


def fail() -> str:
    raise ConnectionError("refused")


@pytest.mark.parametrize("outcome", [lambda: "answer", fail])
async def test_a_cancellation_that_the_call_has_swallowed(outcome: Callable[[], str]) -> None:
    stubborn = Stubborn(outcome)

    async def ask() -> str:
        with HeedsCancellation():
            return await stubborn.answer()

    asking = asyncio.ensure_future(ask())
    await asyncio.sleep(0.001)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_a_call_that_was_cancelled_by_others() -> None:
    call: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    call.cancel()
    with pytest.raises(CallCancelled), HeedsCancellation():
        await call


async def test_a_timeout_around_it_is_one() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            with HeedsCancellation():
                await Stubborn(lambda: "answer").answer()


async def test_a_timeout_within_it_is_one() -> None:
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    with pytest.raises(TimeoutError), HeedsCancellation():
        async with asyncio.timeout(0.001):
            await never


async def test_cancelled_task_may_clean_up() -> None:
    """Only what comes meanwhile counts."""
    said: list[str] = []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            with HeedsCancellation():
                await asyncio.sleep(0)
            said.append("cleaned up")

    working = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert said == ["cleaned up"]
