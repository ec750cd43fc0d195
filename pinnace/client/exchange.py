"""Many calls in one stream to an API server (proto/pinnace/api/calls.proto).

    call --> queue --the writer takes what waits, at most BATCH bytes--> stream --> result of the call
               '--cancelled, timed out: the client asks the server to stop------------'

A gRPC call costs a client 0.6 ms, nearly all of it in gRPC and TLS. The calls that wait at the same moment share one message.
Requests above PART bytes are sent in parts, one part in a message, behind the small requests that wait.

The stream is opened by the first call. It ends with an error if the server dies, and without one if the server shuts down.
Calls that were not sent then fail with an error that says so, and can be repeated without risk. The others lose their result.
"""

import asyncio
import math
from collections import deque
from collections.abc import Sequence
from itertools import count
from typing import Any, NamedTuple

import grpc.aio
from google.protobuf.message import DecodeError
from google.rpc import status_pb2

from pinnace.api.calls_pb2 import Call, CallBatch, Result, ResultBatch
from pinnace.api.status import Code, Refusal
from pinnace.client.errors import ApiError, from_refusal, from_rpc, from_status, unavailable, unreadable
from pinnace.runtime import grpc_stream
from pinnace.runtime.tasks import CallCancelled, CancellationGuard, DeadlineTimer

METHOD = "/pinnace.v1.Calls/Exchange"
PART = 64 << 10
"""The maximum size of a part of a request in bytes."""
BATCH = 512 << 10
"""The size in bytes from which a message takes no more small requests."""
ITEMS = 1_000
"""The maximum number of calls and of cancellations in a message."""

PAUSE = 0.001
"""Seconds between two messages, in which calls gather. A message costs as much as ten calls."""


class Answer(NamedTuple):
    """The result of a call that succeeded."""

    data: bytes
    warnings: Sequence[str]
    created: bool
    request_id: str


class _Pending:
    """A call without a result."""

    __slots__ = ("deadline", "id", "metadata", "method", "parts", "request", "result", "sent", "start", "timeout")

    def __init__(self, id_: int, method: str, request: bytes, metadata: Sequence[tuple[str, str]], timeout: float) -> None:
        loop = asyncio.get_running_loop()
        self.id = id_
        self.method = method
        self.metadata = metadata
        self.timeout = timeout
        self.deadline = loop.time() + timeout
        self.request = request
        self.start = 0
        """The number of bytes of a large request that are sent."""
        self.result: asyncio.Future[Answer] = loop.create_future()
        self.parts: list[bytes] = []
        """The received parts of the response."""
        self.sent = False
        """Whether a part of the request was sent."""


class Exchange:
    """The stream of calls to one server."""

    def __init__(self, channel: grpc.aio.Channel, endpoint: str) -> None:
        self._channel = channel
        self._endpoint = endpoint
        self._ids = count(1)
        self._pending: dict[int, _Pending] = {}
        self._small: deque[_Pending] = deque()
        """The requests that wait, up to PART bytes each."""
        self._large: deque[_Pending] = deque()
        """Larger ones that are not sent completely. Their parts take turns."""
        self._cancelled: list[int] = []
        self._wake = asyncio.Event()
        self._call: Any = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer = DeadlineTimer(self._time_out)
        self.is_closed = False
        """Whether the stream accepts no more calls. Use another one."""

    async def call(self, method: str, request: bytes, metadata: Sequence[tuple[str, str]], timeout: float) -> Answer:
        """Send a call and return its result. Raises ApiError, and TimeoutError without a result within `timeout` seconds."""
        pending = _Pending(next(self._ids), method, request, metadata, timeout)
        if self.is_closed:
            raise self._unsent("it is shutting down")
        if self._call is None:
            self._open()
        self._pending[pending.id] = pending
        (self._small if len(request) <= PART else self._large).append(pending)
        self._wake.set()
        self._timer.add(pending.deadline)
        try:
            return await pending.result
        finally:
            if self._pending.pop(pending.id, None) is not None and pending.sent and not self.is_closed:
                self._cancelled.append(pending.id)
                self._wake.set()

    def close(self) -> None:
        """End the stream. Open calls fail."""
        self._end(unavailable(f"the connection to API server {self._endpoint} was closed"))
        for task in self._tasks:
            task.cancel()
        if self._call is not None:
            self._call.cancel()

    def _open(self) -> None:
        self._call = self._channel.stream_stream(METHOD, CallBatch.SerializeToString, _decode)()
        for work in (self._write(), self._read()):
            task = asyncio.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _write(self) -> None:
        """Send the calls that wait, until the stream ends."""
        now, sent = asyncio.get_running_loop().time, 0.0
        try:
            with CancellationGuard():
                while not self.is_closed:
                    await self._wake.wait()
                    self._wake.clear()
                    while self._small or self._large or self._cancelled:
                        if (pause := sent + PAUSE - now()) > 0:
                            await asyncio.sleep(pause)
                        sent = now()
                        await grpc_stream.write(self._call, self._next_batch())
                await self._call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, CallCancelled):
            return  # the reader reports the error

    def _next_batch(self) -> CallBatch:
        batch, room = CallBatch(cancelled=self._cancelled[:ITEMS]), BATCH
        del self._cancelled[:ITEMS]
        while self._small and room > 0 and len(batch.calls) < ITEMS - 1:
            pending = self._small.popleft()
            if pending.result.done():
                continue  # cancelled before it was sent
            _add_call(batch, pending, pending.request)
            room -= len(pending.request)
        while self._large and self._large[0].result.done():
            self._large.popleft()
        if self._large:
            pending = self._large.popleft()
            start, pending.start = pending.start, pending.start + PART
            call = _add_call(batch, pending, pending.request[start : pending.start])
            call.more = pending.start < len(pending.request)
            if call.more:
                self._large.append(pending)
        return batch

    async def _read(self) -> None:
        error: ApiError = unavailable(f"API server {self._endpoint} ended the stream of calls")
        try:
            with CancellationGuard():
                while (batch := await self._call.read()) is not grpc.aio.EOF:
                    if batch is None:
                        error = unreadable(METHOD, self._endpoint)
                        self._call.cancel()
                        break
                    for result in batch.results:
                        self._receive(result)
                    if batch.draining:
                        self.is_closed = True
                        self._wake.set()
                        self._fail_unsent("it is shutting down")
        except grpc.aio.AioRpcError as failure:
            error = from_rpc(failure)
        except CallCancelled:
            error = unavailable(f"the stream to API server {self._endpoint} was cancelled")
        self._end(error)

    def _receive(self, result: Result) -> None:
        pending = self._pending.get(result.id)
        if pending is None or pending.result.done():
            return
        if result.more:
            pending.parts.append(result.response)
            return
        if result.error:
            pending.result.set_exception(self._error(result))
            return
        data = b"".join((*pending.parts, result.response)) if pending.parts else result.response
        pending.result.set_result(Answer(data, result.warnings, result.created, result.request_id))

    def _error(self, result: Result) -> ApiError:
        try:
            error = from_status(status_pb2.Status.FromString(result.error))
        except DecodeError:
            error = unreadable(METHOD, self._endpoint)
        error.request_id = result.request_id
        return error

    def _end(self, error: ApiError) -> None:
        """End all calls. `error`: of the calls that were sent."""
        self.is_closed = True
        self._timer.close()
        self._wake.set()
        self._fail_unsent(error.message)
        for pending in self._pending.values():
            if not pending.result.done():
                pending.result.set_exception(from_refusal(error.refusal))

    def _fail_unsent(self, why: str) -> None:
        for pending in self._pending.values():
            if not pending.sent and not pending.result.done():
                pending.result.set_exception(self._unsent(why))
        self._small.clear()
        self._large = deque(pending for pending in self._large if pending.sent)

    def _time_out(self, now: float) -> float:
        """End the calls whose timeout has passed. Return the next deadline."""
        left = math.inf
        for pending in self._pending.values():
            if pending.deadline > now:
                left = min(left, pending.deadline)
            elif not pending.result.done():
                pending.result.set_exception(TimeoutError())
        return left

    def _unsent(self, why: str) -> ApiError:
        message = f"API server {self._endpoint} does not accept calls: {why}"
        return from_refusal(Refusal(Code.UNAVAILABLE, "", message, retry_after=0.0))


def _add_call(batch: CallBatch, pending: _Pending, part: bytes) -> Call:
    """Add a part of a request to a message. The first part names the method and the caller."""
    call = batch.calls.add(id=pending.id, request=part)
    if not pending.sent:
        call.method, call.timeout_ms = pending.method, round(pending.timeout * 1000)
        call.metadata.extend([text for entry in pending.metadata for text in entry])
        pending.sent = True
    return call


def _decode(data: bytes) -> ResultBatch | None:
    """Return None for a malformed message, as gRPC logs the exceptions of deserializers."""
    try:
        return ResultBatch.FromString(data)
    except DecodeError:
        return None
