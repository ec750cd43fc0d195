"""Helpers for asyncio tasks: cancellation around gRPC calls, racing coroutines, and long work in time slices."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, TypeVar

from pinnace.runtime.clock import Clock


class CallCancelled(Exception):
    """The call was cancelled, and not the task that waits for it."""


class HeedsCancellation:
    """`with HeedsCancellation(): await ...` raises CancelledError if and only if this task was cancelled meanwhile, and
    CallCancelled if only the call was.

    grpc.aio does not distinguish the two. A task that awaits a response, or the start of a stream, awaits a task of grpc.aio.
    Cancelling the first cancels the second, which treats that as a request to cancel the call and ends as the call does: if the
    call has just failed or succeeded, the waiting task gets an error or an answer, and its cancellation is lost
    (see github.com/grpc/grpc/issues/31227 and 43502). Conversely, closing a channel cancels its calls, and with them the tasks
    that await them, although nothing cancelled those tasks.
    """

    __slots__ = ("_before", "_task")

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None, "only a task can be cancelled"
        self._task, self._before = task, task.cancelling()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._task.cancelling() > self._before:
            if not isinstance(error, asyncio.CancelledError):
                raise asyncio.CancelledError from error
        elif isinstance(error, asyncio.CancelledError):
            raise CallCancelled from None


async def race(*contenders: Coroutine[Any, Any, Any]) -> None:
    """Runs all coroutines. When one ends, cancels the others and waits for them. Raises what the first one raised."""
    tasks = [asyncio.ensure_future(contender) for contender in contenders]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


A = TypeVar("A")
B = TypeVar("B")

SLICE = 0.005
"""Seconds of work before other tasks run."""
YIELDS = 5
"""Iterations of the event loop to yield. gRPC needs this many to deliver a call; an idle iteration takes 11 us."""


class TimeSlice:
    """The time slice of one piece of work, or of several that share a slice."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()

    async def end(self) -> None:
        """Yields to other tasks if the slice has lasted SLICE seconds, and begins the next one. Call it between two steps."""
        if self._clock.monotonic() - self._began > SLICE:
            for _ in range(YIELDS):
                await asyncio.sleep(0)
            self._began = self._clock.monotonic()


async def in_slices(work: Callable[[A], B], items: Iterable[A], clock: Clock) -> list[B]:
    """Calls `work` for each item, in order, and yields to other tasks between items. Returns the results."""
    done: list[B] = []
    turn = TimeSlice(clock)
    for item in items:
        done.append(work(item))
        await turn.end()
    return done
