"""Whose cancellation was it: the task's, or only that of the gRPC call which it waits for?

grpc.aio does not keep them apart. Who waits for an answer, or for the beginning of a stream, waits for a task of grpc.aio's
own. Cancelling the one cancels the other, which takes that for a wish to cancel the call, and ends as the call does: if that
has just failed or succeeded, the waiting task gets an error or an answer, and never hears that it was to stop
(github.com/grpc/grpc/issues/31227 and 43502 are of this family). The other way round, closing a channel cancels its calls, and
with that whoever waits for them, although nobody asked them to stop.
"""

import asyncio
from types import TracebackType


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
