"""A supervised activity that fails: each failure is logged once, and repeats are counted."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from pinnace.runtime.backoff import Backoff
from pinnace.runtime.logs import ActivityFailed, ActivityRecovered
from pinnace.runtime.supervise import LOG_INTERVAL, EndedEarly, run_unending, supervise
from tests.clock import FakeClock
from tests.logged import logged


class Trouble(Exception):
    pass


class Loop:
    """Fails with the text from `trouble`. Without `trouble` it runs for an hour of the clock."""

    def __init__(self, clock: FakeClock) -> None:
        self.trouble: Callable[[int], str] | None = None
        self.failures = 0
        self._clock = clock

    async def attempt(self) -> None:
        if self.trouble is not None:
            self.failures += 1
            raise Trouble(self.trouble(self.failures))
        await self._clock.sleep(3600.0)


@asynccontextmanager
async def supervised(loop: Loop, clock: FakeClock) -> AsyncIterator[None]:
    running = supervise("loop", loop.attempt, retry_on=(Trouble,), backoff=Backoff(maximum=0.5), clock=clock)
    task = asyncio.create_task(running)
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_repeated_failure_is_logged_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    loop = Loop(clock)
    loop.trouble = lambda _: "no server"
    async with supervised(loop, clock):
        await clock.advance(LOG_INTERVAL - 1.0)
        assert loop.failures > 50
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "Trouble: no server" in caplog.messages[0]
        await clock.advance(2.0)
    first, second = logged(caplog, ActivityFailed)
    assert first == ActivityFailed("loop", 0) and 50 < second.repeats <= loop.failures
    assert f" {second.repeats} " in caplog.messages[1]


async def test_alternating_failures_are_each_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    loop = Loop(clock)
    loop.trouble = lambda number: ("no server", "no answer")[number % 2]
    async with supervised(loop, clock):
        await clock.advance(LOG_INTERVAL - 1.0)
    assert len(caplog.messages) == 2


async def test_recovery_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = FakeClock()
    loop = Loop(clock)
    loop.trouble = lambda _: "no server"
    async with supervised(loop, clock):
        await clock.advance(10.0)
        loop.trouble = None
        await clock.advance(LOG_INTERVAL + 1.0)
        assert logged(caplog, ActivityRecovered) == [ActivityRecovered("loop", loop.failures)]
        await clock.advance(3 * LOG_INTERVAL)
        assert len(caplog.messages) == 2


async def test_single_failure_is_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = FakeClock()
    loop = Loop(clock)
    loop.trouble = lambda _: "no server"
    async with supervised(loop, clock):
        await clock.advance(0.0)
        loop.trouble = None
        await clock.advance(2 * LOG_INTERVAL)
    assert len(caplog.messages) == loop.failures == 1


async def test_failure_after_a_recovery_is_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    loop = Loop(clock)
    loop.trouble = lambda _: "no server"
    async with supervised(loop, clock):
        await clock.advance(1.0)
        loop.trouble = None
        await clock.advance(LOG_INTERVAL + 3600.0)
        loop.trouble = lambda _: "no server"
        await clock.advance(3600.0)
    assert [item.repeats for item in logged(caplog, ActivityFailed)][:2] == [0, 0]


async def _cancelled() -> None:
    raise asyncio.CancelledError


async def _returns() -> None:
    """Returns at once."""


async def _exits() -> None:
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("activity", "message"),
    [(_cancelled, "part: it cancelled itself"), (_returns, "part: it returned"), (_exits, "part: SystemExit: 3")],
)
async def test_unending_activity_that_ends_is_named(activity: Callable[[], Awaitable[None]], message: str) -> None:
    with pytest.raises(EndedEarly, match=message):
        await run_unending("part", activity)


async def test_unending_activity_can_be_cancelled_by_its_owner() -> None:
    task = asyncio.ensure_future(run_unending("part", asyncio.Event().wait))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()


async def test_supervised_loop_that_cancels_itself_is_named() -> None:
    with pytest.raises(EndedEarly, match="loop: it cancelled itself"):
        await supervise("loop", _cancelled, retry_on=(Trouble,))
