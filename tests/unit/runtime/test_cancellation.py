"""`CancellationGuard` distinguishes a cancelled task from a cancelled call."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from pinnace.runtime.tasks import CallCancelled, CancellationGuard


class Stubborn:
    """A call that is awaited in a separate task, as in grpc.aio. If it is cancelled, the task ends with the outcome of the
    call.
    """

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
async def test_cancellation_is_raised_even_if_the_call_swallows_it(outcome: Callable[[], str]) -> None:
    stubborn = Stubborn(outcome)

    async def ask() -> str:
        with CancellationGuard():
            return await stubborn.answer()

    asking = asyncio.ensure_future(ask())
    await asyncio.sleep(0.001)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_cancelled_call_does_not_cancel_the_task() -> None:
    call: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    call.cancel()
    with pytest.raises(CallCancelled), CancellationGuard():
        await call


async def test_outer_timeout_raises_timeout_error() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            with CancellationGuard():
                await Stubborn(lambda: "answer").answer()


async def test_inner_timeout_raises_timeout_error() -> None:
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    with pytest.raises(TimeoutError), CancellationGuard():
        async with asyncio.timeout(0.001):
            await never


async def test_cancelled_task_may_clean_up() -> None:
    """Only a cancellation inside the block counts."""
    said: list[str] = []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            with CancellationGuard():
                await asyncio.sleep(0)
            said.append("cleaned up")

    working = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert said == ["cleaned up"]
