"""Calls of unary methods, whatever transport carries them, and the stream that carries many of them.

    gRPC call ------------> handlers ---,
                                        +--> CallRunner: impersonation, pacing, fences, warnings --> Method.call
    Exchange stream --> parts --> call -'
                          <-- results, those of at most PART_SIZE bytes first

A gRPC call costs the server 0.7 ms, nearly all of it in gRPC and TLS. A call in an Exchange (proto/pinnace/api/calls.proto)
costs less. Each has its own task, user, deadline and cancellation, and passes the same gates as any other call. Large results
travel in parts that alternate with those of other calls.

The request ID of a call is in the audit log (auditID), in the log lines of the call, and in its result. A client can set it by
the metadata `x-request-id`, as with Kubernetes' Audit-ID. IDs from clients need not be unique.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count

from pinnace.api.calls_pb2 import Call, CallBatch, Result, ResultBatch
from pinnace.api.status import Code, Refusal, encode
from pinnace.api.users import Impersonation
from pinnace.api.wellknown import REQUEST_ID_KEY
from pinnace.apiserver.auth.authentication import Credential
from pinnace.apiserver.auth.authorizer import Impersonator, requested_impersonation
from pinnace.apiserver.errors import Rejected, bad_request, forbidden
from pinnace.apiserver.flow.control import TOO_MANY_REQUESTS
from pinnace.apiserver.registry import fencing
from pinnace.apiserver.registry.strategy import CollectedWarnings, collect_warnings
from pinnace.apiserver.services.methods import Context, Method
from pinnace.runtime import logs, tracing
from pinnace.runtime.grpc_server import RefusalPacer, break_reference_cycle
from pinnace.runtime.tasks import DeadlineTimer
from pinnace.runtime.tracing import NO_TRACER, Tracer

MAX_OPEN = 2_000
"""Number of open calls and unsent results of an Exchange from which no more messages are read. The gateway has fewer."""
MAX_ITEMS = 1_000
"""Maximum number of calls, of cancellations, and of metadata entries of a call in a message."""
MAX_REQUEST = 4 << 20
"""Maximum size of a request in bytes, as for a gRPC message."""
MAX_INCOMPLETE = 64 << 20
"""Maximum size in bytes of the incomplete requests of an Exchange. The gateway holds as many bytes of bodies."""
PART_SIZE = 128 << 10
"""Maximum size of a part of a result in bytes. A message has one part of a larger result."""
BATCH_SIZE = 256 << 10
"""Size in bytes from which a message takes no more results."""
BATCH_INTERVAL = 0.001
"""Seconds between two messages, in which results gather. A message costs as much as ten results."""
DRAIN_TIMEOUT = 1.5
"""Seconds within which the client of a draining Exchange must end it. Its open calls then end without a result."""
_PACED = frozenset({Code.UNAUTHENTICATED, Code.UNIMPLEMENTED, Code.PERMISSION_DENIED})
_VALID_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+=@-]{0,63}")
Metadata = Iterable[tuple[str, str | bytes]]


class RequestIds:
    """Assigns request IDs. `server`: a prefix that is unique for each server process."""

    def __init__(self, server: str) -> None:
        self._prefix = f"{server}-"
        self._calls = count(1)

    def request_id_of(self, metadata: Metadata) -> str:
        """Return the request ID in the metadata if it is valid (at most 64 safe characters), else a new one."""
        for key, value in metadata:
            if key == REQUEST_ID_KEY and isinstance(value, str) and _VALID_ID.fullmatch(value):
                return value
        return f"{self._prefix}{next(self._calls)}"


class CallContext:
    """The context of a call: an pinnace.apiserver.services.methods.Context."""

    __slots__ = ("credential", "time_remaining", "user")

    def __init__(self, credential: Credential, time_remaining: Callable[[], float | None]) -> None:
        """Authenticate the caller. Raises Rejected if the credential belongs to no user."""
        self.credential: Credential = credential
        self.user = credential.user()
        self.time_remaining = time_remaining

    async def impersonate_user(self, impersonation: Impersonation, impersonator: Impersonator) -> None:
        """Impersonate another user for this call. Raises Rejected (PERMISSION_DENIED)."""
        impersonated = await impersonator.impersonate(self.credential, self.user, impersonation)
        self.credential, self.user = impersonated, impersonated.user()

    def on_response_taken(self, callback: Callable[[], None]) -> None:
        """Call `callback` at the end of the call's task, which gRPC keeps until the response is sent.

        The add_done_callback method of gRPC's context would create a reference cycle of context and call, which only the
        garbage collector frees.
        """
        if task := asyncio.current_task():
            task.add_done_callback(lambda _: callback())


class CallRunner:
    """Runs calls of unary methods. Shared by all ports and streams of a server."""

    def __init__(
        self, ids: RequestIds, refusals: RefusalPacer, impersonator: Impersonator | None = None, tracer: Tracer = NO_TRACER
    ) -> None:
        """`impersonator`: authorizes impersonation; without it, impersonation is refused."""
        self.ids = ids
        self.refusals = refusals
        self._impersonator = impersonator
        self._tracer = tracer

    async def impersonate(self, context: CallContext, metadata: Metadata) -> None:
        """Act as the user in the metadata, if there is one. Raises Rejected."""
        if impersonation := requested_impersonation(metadata):
            if self._impersonator is None:
                raise Rejected(forbidden("this server does not support impersonation"))
            await context.impersonate_user(impersonation, self._impersonator)

    async def run_call(
        self, method: Method, data: bytes, context: CallContext, metadata: Metadata
    ) -> tuple[bytes, CollectedWarnings]:
        """Return the encoded response and the warnings. Raises Rejected, with the warnings."""
        if method.is_paced:
            await self.refusals.wait(context.user.name, len(data), context.time_remaining())
        fencing.read_fences(metadata)
        with collect_warnings() as warnings:
            try:
                if not self._tracer.is_exporting:
                    return await method.call(method.parse(data), context), warnings
                with self._tracer.call(method.name, str(dict(metadata).get(tracing.KEY, ""))):
                    with self._tracer.span("decode"):
                        request = method.parse(data)
                    return await method.call(request, context), warnings
            except Rejected as rejected:
                rejected.warnings = list(warnings)
                raise

    async def delay_refusal(self, refusal: Refusal, caller: str, size: int, remaining: float | None) -> Refusal:
        """Delay a refusal for lack of permission or capacity, because clients may repeat such calls immediately. `caller`: a
        user name. `size`: size in bytes of the request, which is in memory until the call ends."""
        if refusal.code not in _PACED and refusal.reason != TOO_MANY_REQUESTS:
            return refusal
        waited = await self.refusals.wait(caller, size, remaining)
        if refusal.retry_after is None:
            return refusal
        return replace(refusal, retry_after=max(0.0, refusal.retry_after - waited))


class CallsService:
    """Implements the Exchange streams of a server."""

    def __init__(self, runner: CallRunner) -> None:
        self._runner = runner
        self._methods: Mapping[str, Method] = {}
        self._open = set[_Exchange]()

    def set_methods(self, methods: Mapping[str, Method]) -> None:
        """Set the methods that can be called."""
        self._methods = methods

    def drain(self) -> None:
        """Ask all clients to use another server."""
        for exchange in self._open:
            exchange.drain()

    async def exchange(self, requests: AsyncIterator[CallBatch], context: Context) -> AsyncGenerator[ResultBatch, None]:
        exchange = _Exchange(self._runner, self._methods, context.credential)
        self._open.add(exchange)
        reading = asyncio.create_task(exchange.dispatch_calls(requests))
        try:
            while (batch := await exchange.next_results()) is not None:
                yield batch
                exchange.finish_message()
                if not exchange.has_results:
                    await asyncio.sleep(BATCH_INTERVAL)
        finally:
            self._open.discard(exchange)
            reading.cancel()
            exchange.cancel()


class _ItemContext(CallContext):
    """The context of a call in an Exchange."""

    __slots__ = ("callbacks", "deadline")

    def __init__(self, credential: Credential, deadline: float, now: Callable[[], float]) -> None:
        self.deadline = deadline
        self.callbacks: list[Callable[[], None]] = []
        super().__init__(credential, lambda: deadline - now())

    def on_response_taken(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)


class _PartialCall:
    """A call whose request is not complete. `size`: of the received parts, in bytes."""

    __slots__ = ("first", "parts", "size")

    def __init__(self, first: Call) -> None:
        self.first = first
        self.parts: list[bytes] = []
        self.size = 0

    def add_part(self, part: bytes) -> None:
        self.parts.append(part)
        self.size += len(part)

    def drop_parts(self) -> None:
        """Drop the parts. The call is refused, as it has no method."""
        self.first.method = ""
        self.parts.clear()
        self.size = 0


class _PendingResult:
    """A result, of which the bytes from `start` on are to be sent. `callbacks` are called when it is sent."""

    __slots__ = ("callbacks", "data", "result", "start")

    def __init__(self, result: Result, data: bytes = b"", callbacks: Sequence[Callable[[], None]] = ()) -> None:
        self.result = result
        self.data = data
        self.start = 0
        self.callbacks = callbacks


class _Exchange:
    """One Exchange stream."""

    def __init__(self, runner: CallRunner, methods: Mapping[str, Method], credential: Credential) -> None:
        self._runner = runner
        self._methods = methods
        self._credential = credential
        self._incomplete: dict[int, _PartialCall] = {}
        self._incomplete_bytes = 0
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._small: deque[_PendingResult] = deque()
        """The results of at most PART_SIZE bytes that wait."""
        self._large: deque[_PendingResult] = deque()
        """The larger ones that are not sent completely. Their parts take turns."""
        self._deadlines: dict[int, float] = {}
        """When the open calls are cancelled, by the loop's clock."""
        self._timer = DeadlineTimer(self._cancel_expired)
        self._sent_results: list[_PendingResult] = []
        """The completely sent results of the last message."""
        self._ready = asyncio.Event()
        self._capacity_freed = asyncio.Event()
        """Set when a call or the sending of a result ends."""
        self._input_ended = False
        self._draining = False
        self._drain_sent = False
        self._refusal: Refusal | None = None
        """Why the stream is refused."""

    async def dispatch_calls(self, requests: AsyncIterator[CallBatch]) -> None:
        """Start the calls of the stream, until it ends. The open calls set the pace of the client."""
        try:
            async for batch in requests:
                if max(len(batch.calls), len(batch.cancelled)) > MAX_ITEMS:
                    self._refusal = bad_request(f"a message has more than {MAX_ITEMS:,} calls or cancellations")
                    break
                for call in batch.calls:
                    self._receive(call)
                for id_ in batch.cancelled:
                    self._pop_partial_call(id_)
                    if task := self._calls.get(id_):
                        task.cancel()
                while len(self._calls) + len(self._small) + len(self._large) >= MAX_OPEN:
                    self._capacity_freed.clear()
                    await self._capacity_freed.wait()
        except Rejected as rejected:
            self._refusal = rejected.refusal
        self._end_input()

    @property
    def has_results(self) -> bool:
        return bool(self._small or self._large)

    async def next_results(self) -> ResultBatch | None:
        """Return the next message; None when the input has ended and all results are sent. Raises Rejected."""
        while not self.has_results and not (self._draining and not self._drain_sent):
            if self._refusal is not None:
                raise Rejected(self._refusal)
            if self._input_ended and not self._calls:
                return None
            self._ready.clear()
            await self._ready.wait()
        batch, room = ResultBatch(), BATCH_SIZE
        if self._draining and not self._drain_sent:
            batch.draining = self._drain_sent = True
        while self._small and room > 0:
            pending = self._small.popleft()
            room -= len(pending.data) + len(pending.result.error)
            self._add_result(batch, pending, pending.data)
        if self._large:
            pending = self._large.popleft()
            part = pending.data[pending.start : pending.start + PART_SIZE]
            pending.start += len(part)
            self._add_result(batch, pending, part, more=pending.start < len(pending.data))
        return batch

    def _add_result(self, batch: ResultBatch, pending: _PendingResult, part: bytes, *, more: bool = False) -> None:
        """Add a result, or a part of a large one. `more`: further parts follow."""
        result = batch.results.add()
        result.CopyFrom(pending.result)
        result.response, result.more = part, more
        if more:
            self._large.append(pending)
        elif pending.callbacks:
            self._sent_results.append(pending)

    def finish_message(self) -> None:
        """Note that the last message is sent."""
        for pending in self._sent_results:
            for callback in pending.callbacks:
                callback()
        self._sent_results.clear()
        self._capacity_freed.set()

    def drain(self) -> None:
        self._draining = True
        self._ready.set()
        asyncio.get_running_loop().call_later(DRAIN_TIMEOUT, self._end_input)

    def cancel(self) -> None:
        """End all calls."""
        self._timer.close()
        for task in self._calls.values():
            task.cancel()
        self._sent_results += (*self._small, *self._large)
        self.finish_message()

    def _end_input(self) -> None:
        self._input_ended = True
        self._ready.set()

    def _receive(self, call: Call) -> None:
        """Add a part of a call, and start the call after its last part."""
        incomplete = self._pop_partial_call(call.id)
        if incomplete is None and not call.more:
            self._start_call(call, call.request)
            return
        incomplete = incomplete or _PartialCall(call)
        size = incomplete.size + len(call.request)
        is_too_large = size > MAX_REQUEST or self._incomplete_bytes + size > MAX_INCOMPLETE
        if is_too_large or len(self._incomplete) >= MAX_OPEN or not incomplete.first.method:
            incomplete.drop_parts()  # refused when the last part arrives
        else:
            incomplete.add_part(call.request)
        if call.more:
            self._incomplete[call.id] = incomplete
            self._incomplete_bytes += incomplete.size
        else:
            self._start_call(incomplete.first, b"".join(incomplete.parts))

    def _pop_partial_call(self, id_: int) -> _PartialCall | None:
        """Remove an incomplete call and return it."""
        if incomplete := self._incomplete.pop(id_, None):
            self._incomplete_bytes -= incomplete.size
        return incomplete

    def _start_call(self, call: Call, data: bytes) -> None:
        if call.id in self._calls:
            return  # the client reuses an ID: the open call keeps it
        id_ = call.id
        task = self._calls[id_] = asyncio.create_task(self._run_call(call, data))
        task.add_done_callback(lambda _: self._finish_call(id_))

    def _cancel_expired(self, now: float) -> float:
        """Cancel the calls whose deadline has passed. Return the next deadline."""
        for id_ in [id_ for id_, deadline in self._deadlines.items() if deadline <= now]:
            del self._deadlines[id_]
            self._calls[id_].cancel()
        return min(self._deadlines.values(), default=math.inf)

    def _finish_call(self, id_: int) -> None:
        self._calls.pop(id_, None)
        self._deadlines.pop(id_, None)
        self._capacity_freed.set()
        if self._input_ended and not self._calls:
            self._ready.set()

    async def _run_call(self, call: Call, data: bytes) -> None:
        entries = call.metadata
        metadata = list(zip(entries[::2], entries[1::2], strict=False))
        request_id = self._runner.ids.request_id_of(metadata)
        logs.request_id.set(request_id)
        result = Result(id=call.id, request_id=request_id)
        now = asyncio.get_running_loop().time
        deadline = self._deadlines[call.id] = now() + call.timeout_ms / 1000
        self._timer.add(deadline)
        caller, method = "", self._methods.get(call.method)
        try:
            try:
                if refusal := self._refusal_of(call, method):
                    raise Rejected(refusal)
                assert method is not None
                context = _ItemContext(self._credential, deadline, now)
                caller = context.user.name
                await self._runner.impersonate(context, metadata)
                caller = context.user.name
                answer, warnings = await self._runner.run_call(method, data, context, metadata)
                result.warnings.extend(warnings)
                result.created = warnings.created
                self._queue_result(_PendingResult(result, answer, context.callbacks))
            except Rejected as rejected:
                break_reference_cycle(rejected)
                refusal = await self._runner.delay_refusal(rejected.refusal, caller, len(data), deadline - now())
                result.error = encode(refusal).SerializeToString()
                result.warnings.extend(rejected.warnings)
                self._queue_result(_PendingResult(result))
        except asyncio.CancelledError as cancelled:  # by the client, or at the deadline: nobody waits for the result
            break_reference_cycle(cancelled)

    def _refusal_of(self, call: Call, method: Method | None) -> Refusal | None:
        """Return the reason why a call cannot be run."""
        if not call.method:
            limits = f"the request is larger than {MAX_REQUEST:,} bytes, or all incomplete ones than {MAX_INCOMPLETE:,}"
            return Refusal(Code.RESOURCE_EXHAUSTED, "TooLarge", limits)
        if len(call.metadata) > MAX_ITEMS:
            return bad_request(f"the call has more than {MAX_ITEMS:,} metadata entries")
        if method is None:
            return Refusal(Code.UNIMPLEMENTED, "NotFound", f"the server has no method {call.method[:128]}")
        if method.client_streaming or method.server_streaming:
            return bad_request(f"{call.method} is a stream: open it as a gRPC call")
        return None

    def _queue_result(self, pending: _PendingResult) -> None:
        (self._small if len(pending.data) <= PART_SIZE else self._large).append(pending)
        self._ready.set()
