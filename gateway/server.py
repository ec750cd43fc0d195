"""The HTTPS server: it authenticates connections, passes requests to the dispatcher, and sends responses.

    connection --> request --> user --> dispatcher: rights, seat, body, handler --> response
    (gateway.connection)        '--unknown, denied--> paced refusal (pinnace.runtime.grpc_server)

A user gets RATE refusals per second after a burst, so a caller without rights cannot take the time of others by asking again
and again. All callers without credentials share one rate.

Bodies above GZIP_FROM bytes are compressed if the client accepts gzip, in pieces and outside of the event loop. WebSockets are
served by aiohttp, which takes over the connection.
"""

import asyncio
import logging
import resource
import secrets
import ssl
import time
import uuid
import zlib
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from http import HTTPStatus
from itertools import count
from typing import Any, cast

from aiohttp import WSMsgType, web
from aiohttp.http_exceptions import HttpProcessingError

from pinnace.gateway.authentication import IMPERSONATE_GROUP, IMPERSONATE_USER, Authenticator, parse_impersonation
from pinnace.gateway.connection import MAX_BODY, PIECE, Connections, HttpConnection, IncomingRequest
from pinnace.gateway.dispatch import Dispatcher
from pinnace.gateway.exec import WebSocketUpgrade
from pinnace.gateway.flow import ChunkTurns
from pinnace.gateway.http import ANONYMOUS, JSON, ApiStatus, PageNotFound, Request, Response, dump_json
from pinnace.gateway.listener import Listener
from pinnace.gateway.media_types import PROTOBUF, error_format
from pinnace.gateway.metrics import OPEN_STREAMS, duration_histogram, request_counter
from pinnace.gateway.watch_events import status_envelope
from pinnace.runtime.grpc_server import RefusalPacer

log = logging.getLogger(__name__)

WEBSOCKET_HEARTBEAT = 20.0
"""Seconds between two pings. A WebSocket without a pong is closed."""
DRAIN_GRACE = 5.0
"""Seconds that open requests have to finish when the gateway stops."""
SWEEP_INTERVAL = 1.0
"""Seconds between two checks for connections without a request."""
GZIP_FROM = 128 << 10
GZIP_LEVEL = 1
MAX_CONNECTIONS = 8_000
DESCRIPTOR_SHARE = 0.75
"""The share of the file descriptors for clients."""
_PACED = frozenset({401, 403, 413, 415, 429})
CACHE_CONTROL = "Cache-Control"
_LAST_GROUP = (1 << 48) - 1
"""The largest value of the last group of a UUID."""
_PHRASES = {status.value: status.phrase for status in HTTPStatus}


class Server:
    def __init__(
        self, dispatcher: Dispatcher, authenticator: Authenticator, context: ssl.SSLContext, turns: ChunkTurns | None = None
    ) -> None:
        """`turns`: of the parts of large responses; shared with the dispatcher."""
        self._dispatcher = dispatcher
        self._authenticator = authenticator
        self._context = context
        self._connections = Connections(_raise_descriptor_limit(), turns or ChunkTurns())
        self._refusals = RefusalPacer()
        self._listener: Listener | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._streams = set[HttpConnection]()
        """The connections with open watches and logs."""
        self._sockets = _WebSockets()
        self._compressed: dict[int, tuple[bytes, bytes]] = {}
        """The compressed form of static bodies, by their identity."""
        self._stopping = False

    async def start(self, host: str, port: int, *, shared: bool = False) -> tuple[str, int]:
        """Start to listen. Return the actual address. `shared`: other processes listen on the port as well. Raises OSError."""
        self._listener = Listener(self._context, lambda: HttpConnection(self._connections, self._serve_request))
        address = await self._listener.open(host, port, shared=shared)
        self._sweeping = asyncio.create_task(self._sweep(self._listener))
        return address

    async def stop(self) -> None:
        """End streams immediately, and wait for other requests."""
        self._stopping = True
        if self._listener is not None:
            self._listener.close()
        for connection in self._streams:
            connection.cancel()
        await self._sockets.close()
        for connection in self._connections:
            if connection.is_idle:
                connection.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_GRACE):
                await self._connections.empty()
        for connection in self._connections:
            connection.transport.abort()
        if self._sweeping is not None:
            self._sweeping.cancel()

    async def _sweep(self, listener: Listener) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_INTERVAL)
            self._connections.close_idle(loop.time())
            listener.sweep(loop.time())

    async def _serve_request(self, connection: HttpConnection, incoming: IncomingRequest) -> bool:
        """Answer a request. Return whether the connection can be used for another one."""
        started = time.perf_counter()
        path, query = incoming.split_target
        headers: dict[str, str] = {}
        for name, value in incoming.headers:
            headers.setdefault(name, value)
        request = Request(incoming.method, path, query, headers)
        try:
            response = await self._respond(connection, incoming, request)
        except ApiStatus as status:
            if status.code in _PACED:
                await self._refusals.wait(request.user.name if request.user is not ANONYMOUS else "", incoming.size)
            response = error_response(status, request)
        except ConnectionError:
            return False
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            response = error_response(ApiStatus(500, "InternalError", "Internal error occurred"), request)
        request_counter(request.method, response.code).inc()
        if isinstance(response, WebSocketUpgrade):
            self._sockets.serve_upgrade(connection, incoming, response)
            return False
        reusable = await self._send_response(connection, incoming, request, response)
        duration_histogram(request.method).observe(time.perf_counter() - started)
        return reusable

    async def _respond(
        self, connection: HttpConnection, incoming: IncomingRequest, request: Request
    ) -> Response | WebSocketUpgrade:
        request.user = await self._authenticator.user(_client_certificate(connection), request.headers)
        users, groups = map(incoming.all_headers, (IMPERSONATE_USER, IMPERSONATE_GROUP))
        request.impersonation = parse_impersonation(request.headers, users, groups)
        return await self._dispatcher.answer(request, incoming.body)

    async def _send_response(
        self, connection: HttpConnection, incoming: IncomingRequest, request: Request, response: Response
    ) -> bool:
        """Send a response. Return whether the connection can be used for another request. Raises ConnectionError if the client
        has left or does not read."""
        body = response.body
        large = not isinstance(body, bytes) or len(body) >= GZIP_FROM
        compressed = large and not response.is_live and "gzip" in request.headers.get("accept-encoding", "")
        if isinstance(body, bytes) and compressed:
            body = await self._compress_static(body) if response.is_static else _compress_chunks(_split_body(body))
        elif not isinstance(body, bytes) and compressed:
            body = _compress_chunks(body)
        length = len(body) if isinstance(body, bytes) else None
        reusable = incoming.keep_alive and not incoming.upgrade and not self._stopping
        reusable = reusable and response.code != 408  # the next bytes may be the rest of the body, or a new request
        reusable = reusable and (length is not None or incoming.is_chunkable)
        head = response_head(
            response,
            request.warnings,
            length,
            chunked=incoming.is_chunkable,
            keep_alive=reusable,
            compressed=compressed,
        )
        if request.method == "HEAD":
            await connection.write(head)
        elif isinstance(body, bytes):
            await connection.write_large(head + body)
        else:
            await self._send_chunks(connection, head, body, response.is_live, incoming.is_chunkable)
        return reusable

    async def _send_chunks(
        self, connection: HttpConnection, head: bytes, chunks: AsyncIterator[bytes], is_live: bool, chunked: bool
    ) -> None:
        complete = False
        if is_live:
            self._streams.add(connection)
            OPEN_STREAMS.inc()
        try:
            await connection.write(head)
            if not (is_live and self._stopping):
                async for chunk in chunks:
                    if chunk:
                        await connection.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if chunked else chunk)
            complete = True
        except asyncio.CancelledError:
            if not (is_live and self._stopping):
                raise
            complete = True
            cast("asyncio.Task[Any]", asyncio.current_task()).uncancel()
        finally:
            if is_live:
                OPEN_STREAMS.dec()
                self._streams.discard(connection)
            await cast(Any, chunks).aclose()
            if not complete:
                connection.transport.abort()  # the client must not take a part for the whole
            elif chunked and not connection.transport.is_closing():
                connection.transport.write(b"0\r\n\r\n")

    async def _compress_static(self, body: bytes) -> bytes:
        known = self._compressed.get(id(body))
        if known is None:
            compressed = b"".join([piece async for piece in _compress_chunks(_split_body(body))])
            known = self._compressed[id(body)] = body, compressed  # the reference keeps the identity unique
        return known[1]


def _raise_descriptor_limit() -> int:
    """Raise the limit of file descriptors to the maximum, and return the number of connections for which it suffices."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, int(soft * DESCRIPTOR_SHARE))


def response_head(
    response: Response, warnings: Iterable[str], length: int | None, *, chunked: bool, keep_alive: bool, compressed: bool
) -> bytes:
    """Return the status line and the headers. `length`: of the body in bytes; None if it is not known. `chunked`: whether the
    client knows chunks. A warning is a header of its own: clients such as kubectl print all of them."""
    lines = [
        f"HTTP/1.1 {response.code} {_PHRASES.get(response.code, '')}",
        f"Audit-Id: {_audit_id()}",
        *(() if CACHE_CONTROL in response.headers else (f"{CACHE_CONTROL}: no-cache, private",)),
        f"Content-Type: {response.content_type}",
    ]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    elif chunked:
        lines.append("Transfer-Encoding: chunked")
    for name, value in response.headers.items():
        lines.append(f"{name}: {value}")
    if compressed:
        lines += ["Content-Encoding: gzip", "Vary: Accept-Encoding"]
    if not keep_alive:
        lines.append("Connection: close")
    for text in warnings:
        quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ").replace("\r", " ")
        lines.append(f'Warning: 299 - "{quoted}"')
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "replace")


_AUDIT_ID_PREFIX, _audit_ids = str(uuid.uuid4())[:24], count(secrets.randbits(47))


def _audit_id() -> str:
    """Return an ID in the form of a UUID: a random part of the process, and a counter, which costs less than a new UUID."""
    return f"{_AUDIT_ID_PREFIX}{next(_audit_ids) & _LAST_GROUP:012x}"


async def _split_body(body: bytes) -> AsyncIterator[bytes]:
    view = memoryview(body)
    for start in range(0, len(body), PIECE):
        yield bytes(view[start : start + PIECE])


async def _compress_chunks(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Compress chunks, each in a thread: zlib releases the interpreter lock."""
    compressor = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    try:
        async for chunk in chunks:
            yield await asyncio.to_thread(compressor.compress, chunk)
        yield compressor.flush()
    finally:
        await cast(Any, chunks).aclose()


def _client_certificate(connection: HttpConnection) -> bytes | None:
    """Return the verified client certificate in DER, or None. It is read once for a connection."""
    if connection.identity is None:
        tls = connection.transport.get_extra_info("ssl_object")
        connection.identity = (tls.getpeercert(binary_form=True) if tls is not None else None,)
    der: bytes | None = connection.identity[0]
    return der


def error_response(status: ApiStatus, request: Request) -> Response:
    if isinstance(status, PageNotFound):
        return Response(status.code, f"{status.message}\n".encode(), "text/plain; charset=utf-8")
    headers = {"Retry-After": str(seconds)} if (seconds := _retry_seconds(status)) is not None else {}
    if error_format(request.headers.get("accept", "")) == PROTOBUF:
        return Response(status.code, status_envelope(status), PROTOBUF, headers)
    return Response(status.code, dump_json(status.document), JSON, headers)


def _retry_seconds(status: ApiStatus) -> int | None:
    """Return the seconds after which a client can retry; None: it need not. Details can come from a webhook."""
    seconds = (status.details or {}).get("retryAfterSeconds") if status.retry_after is None else status.retry_after
    return seconds if isinstance(seconds, int) and (seconds > 0 or status.retry_after is not None) else None


def tls_context(cert: str, key: str, client_ca: str) -> ssl.SSLContext:
    """Return the TLS context of a server that accepts certificates of one CA, and clients without a certificate. Raises
    OSError."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=client_ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(cert, key, password="")
    context.verify_mode = ssl.CERT_OPTIONAL
    context.num_tickets = 1  # the default of two costs a fifth of a handshake
    return context


class _WebSockets:
    """WebSockets, served by aiohttp."""

    def __init__(self) -> None:
        self._open: dict[str, WebSocketUpgrade] = {}
        self._server = web.Server(self._serve, access_log=None, logger=_protocol_log())
        self._tasks = set[asyncio.Task[Any]]()

    def serve_upgrade(self, connection: HttpConnection, incoming: IncomingRequest, upgrade: WebSocketUpgrade) -> None:
        """Let aiohttp read the request again, and serve it."""
        key = uuid.uuid4().hex
        self._open[key] = upgrade
        kept = "".join(f"{name}: {value}\r\n" for name, value in incoming.headers)
        head = f"{incoming.method} /{key} HTTP/1.1\r\n{kept}\r\n"
        handler = self._server()
        connection.hand_over(handler)
        handler.data_received(head.encode("latin-1"))

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await self._server.shutdown(DRAIN_GRACE)

    async def _serve(self, http: web.BaseRequest) -> web.StreamResponse:
        upgrade = self._open.pop(http.path[1:])
        opened = web.WebSocketResponse(protocols=upgrade.protocols, max_msg_size=MAX_BODY, heartbeat=WEBSOCKET_HEARTBEAT)
        try:
            await opened.prepare(http)
        except BaseException:
            upgrade.cancel()
            raise
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._tasks.add(task)
        OPEN_STREAMS.inc()
        try:
            await upgrade.run(_AiohttpSocket(opened))
        finally:
            OPEN_STREAMS.dec()
            self._tasks.discard(task)
            await opened.close()
        return opened


def _protocol_log() -> logging.Logger:
    """The log of aiohttp, without the tracebacks of requests that are no HTTP: any client can send them."""
    logger = logging.getLogger("gateway.http_server")
    logger.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))
    return logger


class _AiohttpSocket:
    def __init__(self, opened: web.WebSocketResponse) -> None:
        self._opened = opened

    async def receive(self) -> bytes | None:
        """Return the next message, or None at the end. The official Python client sends input as text."""
        message = await self._opened.receive()
        if message.type is WSMsgType.TEXT:
            return str(message.data).encode()
        data: bytes | None = message.data if message.type is WSMsgType.BINARY else None
        return data

    async def send(self, data: bytes) -> None:
        with suppress(ConnectionError):
            await self._opened.send_bytes(data)
