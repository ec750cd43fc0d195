"""Utilities for asyncio tasks: cancellation of gRPC calls, races between coroutines, and time slices for long work."""

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, TypeVar

from pinnace.runtime.clock import Clock

A = TypeVar("A")
B = TypeVar("B")
SLICE = 0.005
"""The length of a time slice in seconds."""
YIELDS = 5
"""The number of event loop iterations to yield. gRPC needs this many to deliver a call. An idle iteration takes 11 us."""


class CallCancelled(Exception):
    """The call was cancelled, but not the task that awaits it."""


class CancellationGuard:
    """Separates the cancellation of a task from the cancellation of its gRPC call.

    `with CancellationGuard(): await ...` raises CancelledError if and only if this task was cancelled, and CallCancelled if
    only the call was cancelled.

    grpc.aio does not distinguish the two. A task that awaits a response or the start of a stream awaits an internal task of
    grpc.aio. Cancelling the outer task cancels the internal one, which requests the cancellation of the call and returns its
    result. If the call has just finished, the outer task receives a response or an error, and its cancellation is lost (see
    github.com/grpc/grpc/issues/31227 and 43502). Conversely, closing a channel cancels its calls and thereby the tasks that
    await them, although nothing cancelled these tasks.
    """

    __slots__ = ("_before", "_task")

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None, "not called from a task"
        self._task, self._before = task, task.cancelling()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._task.cancelling() > self._before:
            if not isinstance(error, asyncio.CancelledError):
                raise asyncio.CancelledError from error
        elif isinstance(error, asyncio.CancelledError):
            raise CallCancelled from None


async def run_until_first(*contenders: Coroutine[Any, Any, Any]) -> None:
    """Run all coroutines. When the first one ends, cancel the others and wait for them. Raises the exception of the first
    one."""
    tasks = [asyncio.ensure_future(contender) for contender in contenders]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


class TimeSlice:
    """A time slice of one computation, or of several that share it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()

    @property
    def is_over(self) -> bool:
        return self._clock.monotonic() - self._began > SLICE

    async def end(self) -> None:
        """Yield to other tasks if the slice has lasted SLICE seconds, and start the next slice. Call it between two steps."""
        if self.is_over:
            for _ in range(YIELDS):
                await asyncio.sleep(0)
            self._began = self._clock.monotonic()


async def apply_in_slices(work: Callable[[A], B], items: Iterable[A], clock: Clock) -> list[B]:
    """Call `work` for each item in order, and yield to other tasks between items. Return the results."""
    done: list[B] = []
    turn = TimeSlice(clock)
    for item in items:
        done.append(work(item))
        if turn.is_over:
            await turn.end()
    return done


class DeadlineTimer:
    """One timer for the deadlines of many calls. A timer for each call costs 2 us, and few calls reach their deadline. Times
    are those of the event loop's clock."""

    def __init__(self, expire: Callable[[float], float]) -> None:
        """`expire(now)` ends what is due, and returns the next deadline, or math.inf."""
        self._expire = expire
        self._next = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def add(self, deadline: float) -> None:
        """Expire what is due at this time. A deadline is not removed: `expire` may find nothing."""
        if deadline < self._next:
            self.close()
            self._next = deadline
            self._timer = asyncio.get_running_loop().call_at(deadline, self._expire_and_rearm)

    def close(self) -> None:
        """Forget all deadlines."""
        if self._timer is not None:
            self._timer.cancel()
        self._next, self._timer = math.inf, None

    def _expire_and_rearm(self) -> None:
        self._next, self._timer = math.inf, None
        self.add(self._expire(asyncio.get_running_loop().time()))
