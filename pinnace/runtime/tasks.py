"""Whose cancellation was it: the task's, or only that of the gRPC call which it waits for?

grpc.aio does not keep them apart. Who waits for an answer, or for the beginning of a stream, waits for a task of grpc.aio's
own. Cancelling the one cancels the other, which takes that for a wish to cancel the call, and ends as the call does: if that
has just failed or succeeded, the waiting task gets an error or an answer, and never hears that it was to stop
(github.com/grpc/grpc/issues/31227 and 43502 are of this family). The other way round, closing a channel cancels its calls, and
with that whoever waits for them, although nobody asked them to stop.

Running several things until the first of them ends.

Long work in portions: who else waits for the event loop has a turn in between.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, TypeVar

from pinnace.runtime.clock import Clock


class CallCancelled(Exception):
    """The call was cancelled, and not the task that waits for it."""


class HeedsCancellation:
    """`with HeedsCancellation(): await ...` ends with CancelledError exactly if this task was cancelled meanwhile.

    When only the call was, it raises CallCancelled.
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
    """Runs all of them; when one ends, cancels the others and waits for them. Raises what the first one raised."""
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

PORTION = 0.005
"""Seconds of work before others have their turn."""
TURNS = 5
"""Of the event loop, which is how many gRPC needs to hand over a call; a turn in which there is nothing to do takes 11 us."""


class Turn:
    """Of one piece of work, or of several that take theirs together."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()

    async def end(self) -> None:
        """Lets others have theirs, if this one has lasted long enough; then the next begins. Say it between two steps."""
        if self._clock.monotonic() - self._began > PORTION:
            for _ in range(TURNS):
                await asyncio.sleep(0)
            self._began = self._clock.monotonic()


async def in_turns(work: Callable[[A], B], items: Iterable[A], clock: Clock) -> list[B]:
    """`work` of each item, in order. Between two of them anything may happen; a single one is not interrupted."""
    done: list[B] = []
    turn = Turn(clock)
    for item in items:
        done.append(work(item))
        await turn.end()
    return done
