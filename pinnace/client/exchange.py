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
from pinnace.client.errors import ApiError, from_refusal, from_rpc, from_status, unavailable_error, unreadable_response_error
from pinnace.runtime import grpc_stream
from pinnace.runtime.tasks import CallCancelled, CancellationGuard, DeadlineTimer

EXCHANGE_METHOD = "/pinnace.v1.Calls/Exchange"
PART_SIZE = 64 << 10
"""The maximum size of a part of a request in bytes."""
BATCH_SIZE = 512 << 10
"""The size in bytes from which a message takes no more small requests."""
MAX_ITEMS = 1_000
"""The maximum number of calls and of cancellations in a message."""

BATCH_INTERVAL = 0.001
"""Seconds between two messages, in which calls gather. A message costs as much as ten calls."""


class CallResult(NamedTuple):
    """The result of a call that succeeded."""

    data: bytes
    warnings: Sequence[str]
    created: bool
    request_id: str


class _PendingCall:
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
        self.result: asyncio.Future[CallResult] = loop.create_future()
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
        self._pending: dict[int, _PendingCall] = {}
        self._small: deque[_PendingCall] = deque()
        """The requests that wait, up to PART bytes each."""
        self._large: deque[_PendingCall] = deque()
        """Larger ones that are not sent completely. Their parts take turns."""
        self._cancelled: list[int] = []
        self._wake = asyncio.Event()
        self._call: Any = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer = DeadlineTimer(self._fail_expired)
        self.is_closed = False
        """Whether the stream accepts no more calls. Use another one."""

    async def call(self, method: str, request: bytes, metadata: Sequence[tuple[str, str]], timeout: float) -> CallResult:
        """Send a call and return its result. Raises ApiError, and TimeoutError without a result within `timeout` seconds."""
        pending = _PendingCall(next(self._ids), method, request, metadata, timeout)
        if self.is_closed:
            raise self._unsent_error("it is shutting down")
        if self._call is None:
            self._open_stream()
        self._pending[pending.id] = pending
        (self._small if len(request) <= PART_SIZE else self._large).append(pending)
        self._wake.set()
        self._timer.add(pending.deadline)
        try:
            return await pending.result
        finally:
            if self._pending.pop(pending.id, None) is not None and pending.sent and not self.is_closed:
                self._cancelled.append(pending.id)
                self._wake.set()
            del pending  # an error of its result refers to this frame: the request would live until the garbage collection

    def close(self) -> None:
        """End the stream. Open calls fail."""
        self._fail_all(unavailable_error(f"the connection to API server {self._endpoint} was closed"))
        for task in self._tasks:
            task.cancel()
        if self._call is not None:
            self._call.cancel()

    def _open_stream(self) -> None:
        self._call = self._channel.stream_stream(EXCHANGE_METHOD, CallBatch.SerializeToString, _decode)()
        for work in (self._write_batches(), self._read_results()):
            task = asyncio.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _write_batches(self) -> None:
        """Send the calls that wait, until the stream ends."""
        now, sent = asyncio.get_running_loop().time, 0.0
        try:
            with CancellationGuard():
                while not self.is_closed:
                    await self._wake.wait()
                    self._wake.clear()
                    while self._small or self._large or self._cancelled:
                        if (pause := sent + BATCH_INTERVAL - now()) > 0:
                            await asyncio.sleep(pause)
                        sent = now()
                        await grpc_stream.write_request(self._call, self._next_batch())
                await self._call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, CallCancelled):
            return  # the reader reports the error

    def _next_batch(self) -> CallBatch:
        batch, room = CallBatch(cancelled=self._cancelled[:MAX_ITEMS]), BATCH_SIZE
        del self._cancelled[:MAX_ITEMS]
        while self._small and room > 0 and len(batch.calls) < MAX_ITEMS - 1:
            pending = self._small.popleft()
            if pending.result.done():
                continue  # cancelled before it was sent
            _add_call(batch, pending, pending.request)
            room -= len(pending.request)
        while self._large and self._large[0].result.done():
            self._large.popleft()
        if self._large:
            pending = self._large.popleft()
            start, pending.start = pending.start, pending.start + PART_SIZE
            call = _add_call(batch, pending, pending.request[start : pending.start])
            call.more = pending.start < len(pending.request)
            if call.more:
                self._large.append(pending)
        return batch

    async def _read_results(self) -> None:
        error: ApiError = unavailable_error(f"API server {self._endpoint} ended the stream of calls")
        try:
            with CancellationGuard():
                while (batch := await self._call.read()) is not grpc.aio.EOF:
                    if batch is None:
                        error = unreadable_response_error(EXCHANGE_METHOD, self._endpoint)
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
            error = unavailable_error(f"the stream to API server {self._endpoint} was cancelled")
        self._fail_all(error)

    def _receive(self, result: Result) -> None:
        pending = self._pending.get(result.id)
        if pending is None or pending.result.done():
            return
        if result.more:
            pending.parts.append(result.response)
            return
        if result.error:
            pending.result.set_exception(self._error_of(result))
            return
        data = b"".join((*pending.parts, result.response)) if pending.parts else result.response
        pending.result.set_result(CallResult(data, result.warnings, result.created, result.request_id))

    def _error_of(self, result: Result) -> ApiError:
        try:
            error = from_status(status_pb2.Status.FromString(result.error))
        except DecodeError:
            error = unreadable_response_error(EXCHANGE_METHOD, self._endpoint)
        error.request_id = result.request_id
        error.warnings = list(result.warnings)
        return error

    def _fail_all(self, error: ApiError) -> None:
        """End all calls. `error`: of the calls that were sent."""
        self.is_closed = True
        self._timer.close()
        self._wake.set()
        self._fail_unsent(error.message)
        for pending in self._pending.values():
            if not pending.result.done():
                pending.result.set_exception(from_refusal(error.refusal))

    def _fail_unsent(self, reason: str) -> None:
        for pending in self._pending.values():
            if not pending.sent and not pending.result.done():
                pending.result.set_exception(self._unsent_error(reason))
        self._small.clear()
        self._large = deque(pending for pending in self._large if pending.sent)

    def _fail_expired(self, now: float) -> float:
        """End the calls whose timeout has passed. Return the next deadline."""
        left = math.inf
        for pending in self._pending.values():
            if pending.deadline > now:
                left = min(left, pending.deadline)
            elif not pending.result.done():
                pending.result.set_exception(TimeoutError())
        return left

    def _unsent_error(self, reason: str) -> ApiError:
        message = f"API server {self._endpoint} does not accept calls: {reason}"
        return from_refusal(Refusal(Code.UNAVAILABLE, "", message, retry_after=0.0))


def _add_call(batch: CallBatch, pending: _PendingCall, part: bytes) -> Call:
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
