"""One HTTP/1.1 connection: requests are parsed by httptools, and answered in order by one task.

    bytes --> httptools --> head --> answer (gateway.server) --asks for the body--> body --> response
                              '--further requests wait, and reading is paused------------------'

Nothing of a body is read beyond what arrived with the head until the answer asks for it. A connection is closed when

* a head does not arrive within HEADER_TIMEOUT, or a body makes no progress for STALL_TIMEOUT;
* the client does not read for STALL_TIMEOUT while more than WRITE_BUFFER bytes wait for it;
* it is idle for KEEPALIVE_TIMEOUT;
* a response leaves more than DISCARD bytes of the request unread.

httptools wraps llhttp, the parser of Node.js. On uvloop with TLS it serves three to four times as many requests for each CPU
second as the HTTP server of aiohttp.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Protocol, cast
from urllib.parse import parse_qs

import httptools

from pinnace.gateway.flow import ChunkTurns
from pinnace.gateway.http import ApiStatus

MAX_HEAD = 64 << 10
"""The maximum size of a request's head in bytes."""
MAX_BODY = 3 << 20
"""The maximum size of a request body in bytes, as in kube-apiserver."""
BODY_TIMEOUT = 30.0
"""Seconds within which a request body must be received."""
HEADER_TIMEOUT = 10.0
"""Seconds from the first byte of a request, or from the start of a connection, to the end of the head of the request."""
KEEPALIVE_TIMEOUT = 75.0
STALL_TIMEOUT = 5.0
"""Seconds without progress after which a client that sends a body, or reads a response, is disconnected."""
WRITE_BUFFER = 256 << 10
"""The number of unsent bytes above which a response waits for the client."""
PIECE = 128 << 10
"""The size of the pieces in which large bodies are written."""
READ_AHEAD = 64 << 10
"""The number of bytes of a body that are read before the answer asks for it, and of received bytes that wait for TLS."""
STEP = 4 << 10
"""The number of bytes that are parsed at once, unless they are a body: a megabyte of heads would hold the event loop."""
DISCARD = 256 << 10
"""The maximum number of bytes of an unread body that are discarded to keep the connection, as in Go's server."""
LINGER = 0.5
"""Seconds between a response and the end of a connection whose request is not read completely, as in Go's server. An immediate
end would reset the connection, and the client would lose the response."""


_HEADERS = {
    spelled.encode(): name
    for name in (
        "host",
        "accept",
        "accept-encoding",
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "user-agent",
    )
    for spelled in (name, name.title())
}
"""The names of usual headers, as clients spell them."""


class BodyBudget(Protocol):
    """The memory for request bodies, shared by users (pinnace.gateway.flow)."""

    async def reserve_bytes(self, user: str, size: int) -> None:
        """Wait until `size` bytes are available. Raises ApiStatus (429)."""
        ...

    def release_bytes(self, user: str, size: int) -> None: ...


class IncomingRequest:
    """A request whose head has arrived."""

    __slots__ = (
        "_budget",
        "_connection",
        "_held",
        "_limit",
        "_parts",
        "_user",
        "complete",
        "headers",
        "is_chunkable",
        "keep_alive",
        "method",
        "size",
        "target",
        "upgrade",
    )

    def __init__(self, connection: "HttpConnection", method: str, target: str, headers: list[tuple[str, str]]) -> None:
        self._connection = connection
        self.method = method
        self.target = target
        self.headers = headers
        """Names in lower case, and values, in the order of the request."""
        self.keep_alive = True
        self.is_chunkable = True
        """Whether the client knows chunks: HTTP/1.0 does not."""
        self.upgrade = False
        self.complete = False
        """Whether the body has arrived."""
        self.size = 0
        """The number of received bytes of the body."""
        self._parts: list[bytes] = []
        self._budget: BodyBudget | None = None
        self._user, self._held, self._limit = "", 0, MAX_BODY

    @property
    def split_target(self) -> tuple[str, Mapping[str, list[str]]]:
        """The path, percent-encoded, and the parameters of the query."""
        target = self.target
        if not target.startswith("/"):  # absolute-form: http://host/path
            target = "/" + target.partition("://")[2].partition("/")[2]
        path, _, query = target.partition("?")
        return path, parse_qs(query, keep_blank_values=True) if query else {}

    def header(self, name: str) -> str:
        """Return the first value of a header, or ""."""
        return next((value for key, value in self.headers if key == name), "")

    def all_headers(self, name: str) -> list[str]:
        """Return the values of a header."""
        return [value for key, value in self.headers if key == name]

    @property
    def missing_body_bytes(self) -> int:
        """The number of bytes of the body that have not arrived, as far as they are announced."""
        announced = self.header("content-length")
        return int(announced) - self.size if announced.isdigit() else 0

    async def body(self, user: str, budget: BodyBudget, limit: int) -> bytes:
        """Read the body. Raises ApiStatus: 413 above `limit` bytes, 408 if it does not arrive in time, 429 without memory."""
        announced = self.header("content-length")
        self._limit = limit
        if self.size > limit or (announced.isdigit() and int(announced) > limit):
            raise body_too_large(limit)
        if self.complete and not self._parts:
            return b""
        self._budget, self._user = budget, user
        await self._reserve(int(announced) if announced.isdigit() else self.size)
        if not self.complete:
            await self._connection.receive_body(self)
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def reserve_chunk(self) -> None:
        """Reserve memory for a chunked body. Raises ApiStatus."""
        if self.size > self._limit:
            raise body_too_large(self._limit)
        if self.size > self._held:
            await self._reserve(self.size - self._held)

    def append_body(self, data: bytes) -> None:
        self.size += len(data)
        self._parts.append(data)

    def release_memory(self) -> None:
        """Release the body's memory, at the end of the request."""
        self._parts.clear()
        if self._budget is not None and self._held:
            self._budget.release_bytes(self._user, self._held)
            self._held = 0

    async def _reserve(self, size: int) -> None:
        if not size:
            return
        assert self._budget is not None
        await self._budget.reserve_bytes(self._user, size)
        self._held += size


def body_too_large(limit: int) -> ApiStatus:
    return ApiStatus(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


Answer = Callable[["HttpConnection", IncomingRequest], Awaitable[bool]]
"""Answers a request, and returns whether the connection can be used for another one."""


class HttpConnection(asyncio.Protocol):
    """A connection of the server. `answer` is called for each request, one after the other."""

    def __init__(self, connections: "Connections", answer: Answer) -> None:
        self._connections = connections
        self._answer = answer
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)
        self.identity: Any = None
        """A value that the server keeps for the connection: the user of the client certificate."""
        self._task: asyncio.Task[None] | None = None
        self._requests: deque[IncomingRequest] = deque()
        """The requests that were not answered. More than one if the client pipelines."""
        self._receiving: IncomingRequest | None = None
        self._target = ""
        self._headers: list[tuple[str, str]] = []
        self._head_size = 0
        self._unparsed = bytearray()
        """Received bytes behind the request that is being answered."""
        self._wake: asyncio.Future[None] | None = None
        """Waits for a request, or for more of its body."""
        self._writable: asyncio.Future[None] | None = None
        self._paused = False
        self._handed_over = False
        self.quiet_since = self._loop.time()
        """When the connection began to wait for a head. Infinite while a request is answered."""
        self.limit = HEADER_TIMEOUT

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(WRITE_BUFFER)
        self.transport.set_read_buffer_limits(READ_AHEAD)  # type: ignore[attr-defined]  # TLS transports have it; asyncio.Transport does not declare it
        if self._connections.add_connection(self):
            self._task = self._loop.create_task(self._serve())
            self._task.add_done_callback(self._break_reference_cycle)
        else:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._unparsed or len(data) > self._parse_step_size:
            self._unparsed += data
            self._parse_unparsed()
        elif self._task is not None:
            self._parse(data)
            self._wake_reader()

    @property
    def _parse_step_size(self) -> int:
        """The number of bytes that are parsed at once."""
        return STEP if self._receiving is None else max(STEP, self._receiving.missing_body_bytes)

    def _parse_unparsed(self) -> None:
        """Parse what was received, up to the end of the next request."""
        while self._unparsed and (self._receiving is not None or not self._requests):
            if self._task is None or self.transport.is_closing():
                self._unparsed.clear()
                return
            step = self._parse_step_size
            data = bytes(self._unparsed[:step])
            del self._unparsed[:step]
            self._parse(data)
        if self._unparsed:
            self._pause_reading()  # the client pipelines
        self._wake_reader()

    def _parse(self, data: bytes) -> None:
        if self._receiving is None:
            self._head_size += len(data)
            if self.limit != HEADER_TIMEOUT and not self._requests:
                self.limit, self.quiet_since = HEADER_TIMEOUT, self._loop.time()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            if self._requests:
                self._requests[-1].complete = self._requests[-1].upgrade = True
            self._pause_reading()  # the rest of the connection is not HTTP
        except httptools.HttpParserError:
            self._close_with_status(b"400 Bad Request")
            return
        if len(self._requests) > 1:
            self._pause_reading()  # the client pipelines
        if self._receiving is None and not self._requests and self._head_size > MAX_HEAD:
            self._close_with_status(b"431 Request Header Fields Too Large")

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.remove_connection(self)
        if self._task is not None:
            self._task.cancel()
        else:
            self._break_reference_cycle()
        self.resume_writing()

    def pause_writing(self) -> None:
        if self._writable is None:
            self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None:
            if not self._writable.done():
                self._writable.set_result(None)
            self._writable = None

    # httptools

    def on_message_begin(self) -> None:
        self._target, self._headers = "", []

    def on_url(self, url: bytes) -> None:
        self._target += url.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((_HEADERS.get(name) or name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        incoming = IncomingRequest(self, self._parser.get_method().decode(), self._target, self._headers)
        incoming.is_chunkable = self._parser.get_http_version() != "1.0"
        incoming.keep_alive = self._parser.should_keep_alive()
        self._receiving = incoming
        self._requests.append(incoming)
        self._head_size = 0
        self.quiet_since = float("inf")

    def on_body(self, data: bytes) -> None:
        incoming = self._receiving
        if incoming is not None:
            incoming.append_body(data)
            if incoming.size > READ_AHEAD and self._wake is None:
                self._pause_reading()

    def on_message_complete(self) -> None:
        if self._receiving is not None:
            self._receiving.complete = True
            self._receiving = None

    # for the server

    async def receive_body(self, incoming: IncomingRequest) -> None:
        """Wait until the body is complete. Raises ApiStatus."""
        if incoming.header("expect").lower() == "100-continue" and not incoming.size:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        deadline = self._loop.time() + BODY_TIMEOUT
        while not incoming.complete:
            self._resume_reading()
            if not await self._wait_for_bytes(min(deadline, self._loop.time() + STALL_TIMEOUT)):
                raise ApiStatus(408, "Timeout", "timed out reading the request body")
            await incoming.reserve_chunk()

    async def write(self, data: bytes) -> None:
        """Write a part of a response, and wait while the client does not read. Raises ConnectionError if it reads nothing for
        STALL_TIMEOUT."""
        transport = self.transport
        transport.write(data)
        while (writable := self._writable) is not None:
            before = transport.get_write_buffer_size()
            await asyncio.wait((writable,), timeout=STALL_TIMEOUT)
            if not writable.done() and transport.get_write_buffer_size() >= before:
                transport.abort()
                raise ConnectionError("the client does not read the response")
        if transport.is_closing():
            raise ConnectionError("the client has left")

    async def write_large(self, data: bytes) -> None:
        """Write a body in pieces."""
        if len(data) <= WRITE_BUFFER:
            await self.write(data)
            return
        view = memoryview(data)
        for start in range(0, len(data), PIECE):
            await self._connections.turns.take_turn()
            await self.write(bytes(view[start : start + PIECE]))

    def hand_over(self, protocol: asyncio.Protocol) -> None:
        """Let another protocol continue the connection. Bytes that have already arrived are not passed on."""
        self._handed_over = True
        self._connections.remove_connection(self)
        protocol.connection_made(self.transport)
        self.transport.set_protocol(protocol)
        self._resume_reading()

    def close(self) -> None:
        self.transport.close()

    def cancel(self) -> None:
        """Cancel the request that is being answered."""
        if self._task is not None:
            self._task.cancel()

    @property
    def is_idle(self) -> bool:
        return self.quiet_since != float("inf")

    async def _serve(self) -> None:
        """Answer requests until the connection ends."""
        with suppress(ConnectionError):
            while not self.transport.is_closing():
                self._parse_unparsed()
                while not self._requests:
                    self._resume_reading()
                    await self._wait_for_bytes(None)
                incoming = self._requests[0]
                try:
                    reusable = await self._answer(self, incoming)
                finally:
                    incoming.release_memory()
                if self._handed_over:
                    return
                if not (reusable and incoming.keep_alive and await self._discard_body(incoming)):
                    break
                self._requests.popleft()
                if not self._requests:
                    self.limit, self.quiet_since = KEEPALIVE_TIMEOUT, self._loop.time()
        self.transport.close()

    async def _discard_body(self, incoming: IncomingRequest) -> bool:
        """Discard the rest of a body, at most DISCARD bytes. Return False if it is larger or does not arrive."""
        if incoming.complete:
            return True
        announced = incoming.header("content-length")
        keeps = announced.isdigit() and incoming.missing_body_bytes <= DISCARD and not incoming.header("expect")
        deadline = self._loop.time() + (STALL_TIMEOUT if keeps else LINGER)
        most = incoming.size + DISCARD
        while not incoming.complete and incoming.size < most:
            incoming.release_memory()
            self._resume_reading()
            if not await self._wait_for_bytes(deadline):
                return False
        if not incoming.complete:
            await asyncio.sleep(deadline - self._loop.time())
        return keeps and incoming.complete

    async def _wait_for_bytes(self, deadline: float | None) -> bool:
        """Wait until bytes arrive. Return False after the deadline."""
        self._wake = self._loop.create_future()
        timer = self._loop.call_at(deadline, self._wake_reader, False) if deadline is not None else None
        try:
            return await cast("asyncio.Future[Any]", self._wake) is not False
        finally:
            self._wake = None
            if timer is not None:
                timer.cancel()

    def _wake_reader(self, arrived: bool = True) -> None:
        if self._wake is not None and not self._wake.done():
            cast("asyncio.Future[Any]", self._wake).set_result(arrived)

    def _break_reference_cycle(self, task: object = None) -> None:
        """Break the reference cycles. A connection has 256 KiB of buffers, and full garbage collections are rare."""
        self._task = None
        self._requests.clear()
        self._unparsed.clear()
        self._receiving = None
        self._parser = cast(httptools.HttpRequestParser, None)

    def _pause_reading(self) -> None:
        if not self._paused and not self.transport.is_closing():
            self._paused = True
            self.transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._paused and not self.transport.is_closing():
            self._paused = False
            self.transport.resume_reading()

    def _close_with_status(self, status: bytes) -> None:
        """End the connection of a client that does not speak HTTP."""
        self.transport.write(b"HTTP/1.1 %b\r\nConnection: close\r\nContent-Length: 0\r\n\r\n" % status)
        self.transport.close()


class Connections:
    """All open connections. Closes those that are quiet for too long."""

    def __init__(self, most: int, turns: ChunkTurns) -> None:
        """`most`: the maximum number of open connections. Above it, the connection that has been idle for the longest time
        makes room. `turns`: of the pieces of large bodies."""
        self.turns = turns
        self._most = most
        self._open: dict[HttpConnection, None] = {}
        self._changed = asyncio.Event()

    async def empty(self) -> None:
        """Wait until all connections are closed."""
        while self._open:
            self._changed.clear()
            await self._changed.wait()

    def __iter__(self) -> Iterator[HttpConnection]:
        return iter(list(self._open))

    def add_connection(self, connection: HttpConnection) -> bool:
        """Add a connection. Return False if there is no room."""
        if len(self._open) >= self._most:
            idle = min(
                (http_connection for http_connection in self._open if http_connection.is_idle),
                key=lambda http_connection: http_connection.quiet_since,
                default=None,
            )
            if idle is None:
                return False
            self.remove_connection(idle)
            idle.transport.abort()
        self._open[connection] = None
        return True

    def remove_connection(self, connection: HttpConnection) -> None:
        self._open.pop(connection, None)
        self._changed.set()

    def close_idle(self, now: float) -> None:
        """Close the connections without a request for too long."""
        for connection in list(self._open):
            if now - connection.quiet_since > connection.limit:
                connection.transport.abort()
