"""The HTTPS server. It converts requests of aiohttp for the dispatcher, and sends responses.

Request handlers do not depend on aiohttp. Responses above GZIP_FROM bytes are compressed if the client accepts gzip. Streams
are not compressed.
"""

import asyncio
import gzip
import logging
import ssl
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

from aiohttp import HttpVersion11, WSMsgType, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from gateway.authentication import IMPERSONATE_GROUP, IMPERSONATE_USER, Authenticator, impersonation
from gateway.dispatch import Dispatcher
from gateway.exec import Upgrade
from gateway.http import ANONYMOUS, JSON, ApiStatus, Request, Response, dump
from gateway.media_types import PROTOBUF, error_format
from gateway.metrics import DURATION, OPEN_STREAMS, REQUESTS
from gateway.watch_events import status_envelope

log = logging.getLogger(__name__)

MAX_BODY = 3 << 20
"""The maximum size of a request body in bytes, as in kube-apiserver."""
BODY_TIMEOUT = 30.0
"""Seconds within which a request body must be received."""
HEADER_TIMEOUT = 10.0
"""Seconds from the first byte of a request, or from the start of a connection, to the end of the header of the request."""
KEEPALIVE_TIMEOUT = 75.0
WEBSOCKET_HEARTBEAT = 20.0
"""Seconds between two pings. A WebSocket without a pong is closed."""
DRAIN_GRACE = 5.0
"""Seconds that open requests have to finish when the gateway stops."""
END_TIMEOUT = 2.0
"""Seconds in which a client must take the end of a stream."""
GZIP_FROM = 128 << 10
_GZIP_LEVEL = 1
Headers: TypeAlias = Sequence[tuple[str, str]]


class Server:
    def __init__(self, dispatcher: Dispatcher, authenticator: Authenticator, context: ssl.SSLContext) -> None:
        self._dispatcher = dispatcher
        self._authenticator = authenticator
        self._context = context
        self._server = _HttpServer(
            self._handle,
            handler_cancellation=True,
            keepalive_timeout=KEEPALIVE_TIMEOUT,
            access_log=None,
            logger=_protocol_log(),
        )
        self._runner = web.ServerRunner(self._server)
        self._stopping = False
        self._streams = set[asyncio.Task[Any]]()
        """The handlers of open watches, logs and WebSockets."""

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Start to listen. Return the actual address. Raises OSError."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, ssl_context=self._context, backlog=512)
        await site.start()
        address: tuple[str, int] = self._runner.addresses[0][:2]
        return address

    async def stop(self) -> None:
        """End streams immediately, and wait for other requests."""
        self._stopping = True
        for stream in self._streams:
            stream.cancel()
        self._server.pre_shutdown()
        await self._server.shutdown(DRAIN_GRACE)
        await self._runner.cleanup()

    async def _handle(self, http: web.BaseRequest) -> web.StreamResponse:
        started = time.perf_counter()
        request = Request(
            http.method,
            http.path,
            _query(http),
            _headers(http),
        )
        headers = {"Audit-Id": str(uuid.uuid4()), "Cache-Control": "no-cache, private"}
        try:
            response: Response | Upgrade = await self._answer(http, request)
        except ApiStatus as status:
            response = error_response(status, request)
        except asyncio.CancelledError:
            raise
        except ConnectionError:  # the client has left
            return web.Response()
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            response = error_response(ApiStatus(500, "InternalError", "Internal error occurred"), request)
        REQUESTS.labels(request.method, str(response.code)).inc()
        try:
            if isinstance(response, Upgrade):
                return await self._upgrade(http, response)
            sent = await self._send(http, request, response, headers)
        except ConnectionError:
            return web.Response()
        DURATION.labels(request.method).observe(time.perf_counter() - started)
        return sent

    async def _upgrade(self, http: web.BaseRequest, upgrade: Upgrade) -> web.StreamResponse:
        opened = web.WebSocketResponse(protocols=upgrade.protocols, max_msg_size=MAX_BODY, heartbeat=WEBSOCKET_HEARTBEAT)
        try:
            await opened.prepare(http)
        except BaseException:
            upgrade.cancel()
            raise
        with self._open_stream():
            try:
                await upgrade.run(_Socket(opened))
            finally:
                await opened.close()
        return opened

    @contextmanager
    def _open_stream(self) -> Iterator[None]:
        """A stream that ends when the gateway stops."""
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        OPEN_STREAMS.inc()
        try:
            if self._stopping:
                task.cancel()
            yield
        except asyncio.CancelledError:
            if not self._stopping:
                raise
            task.uncancel()
        finally:
            OPEN_STREAMS.dec()
            self._streams.discard(task)

    async def _answer(self, http: web.BaseRequest, request: Request) -> Response | Upgrade:
        request.user = await self._authenticator.user(_certificate(http), request.headers)
        users, groups = (http.headers.getall(name, []) for name in (IMPERSONATE_USER, IMPERSONATE_GROUP))
        request.impersonation = impersonation(request.headers, users, groups)
        if request.user is not ANONYMOUS and request.method in ("POST", "PUT", "PATCH", "DELETE"):
            request.body = await _body(http)
        return await self._dispatcher.answer(request)

    async def _send(
        self, http: web.BaseRequest, request: Request, response: Response, headers: dict[str, str]
    ) -> web.StreamResponse:
        headers |= response.headers
        headers["Content-Type"] = response.content_type
        if not isinstance(response.body, bytes):
            return await self._send_stream(http, response, _with_warnings(headers, request.warnings))
        body = response.body
        if len(body) >= GZIP_FROM and "gzip" in request.headers.get("accept-encoding", ""):
            body = await asyncio.to_thread(gzip.compress, body, _GZIP_LEVEL, mtime=0)
            headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        return web.Response(status=response.code, body=body, headers=_with_warnings(headers, request.warnings))

    async def _send_stream(self, http: web.BaseRequest, response: Response, headers: Headers) -> web.StreamResponse:
        sent = web.StreamResponse(status=response.code, headers=headers)
        if http.version == HttpVersion11:  # HTTP/1.0 has no chunks: the end of the connection ends the body
            sent.enable_chunked_encoding()
        chunks: Any = response.body
        try:
            with self._open_stream():
                await sent.prepare(http)
                async for chunk in chunks:
                    if chunk:
                        await sent.write(chunk)
        finally:
            await chunks.aclose()
        with suppress(TimeoutError):
            async with asyncio.timeout(END_TIMEOUT):
                await sent.write_eof()
        return sent


def _with_warnings(headers: Mapping[str, str], warnings: Iterable[str]) -> Headers:
    """Append a header for each warning. Clients such as kubectl print all of them."""
    quoted = (each.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") for each in warnings)
    return [*headers.items(), *(("Warning", f'299 - "{text}"') for text in quoted)]


class _HttpServer(web.Server):
    def __call__(self) -> RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Connection(RequestHandler):
    """A connection that is closed if a header is not received within HEADER_TIMEOUT seconds, because aiohttp waits forever."""

    __slots__ = ("_header_timer",)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._messages or self._request_in_progress:
            self._stop_timer()
        elif self._waits_for_request():
            self._start_timer()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _waits_for_request(self) -> bool:
        return self._waiter is not None and not self._waiter.done()

    def _start_timer(self) -> None:
        if self._header_timer is None:
            self._header_timer = self._loop.call_later(HEADER_TIMEOUT, self._end_wait)

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _end_wait(self) -> None:
        self._header_timer = None
        if self._waits_for_request() and self.transport is not None:
            log.debug("closing a connection: no header within %g s", HEADER_TIMEOUT)
            self.force_close()


def _protocol_log() -> logging.Logger:
    """The log of the HTTP server, without the tracebacks of requests that are no HTTP: any client can send them."""
    found = logging.getLogger("gateway.http_server")
    found.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))
    return found


class _Socket:
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


def _certificate(http: web.BaseRequest) -> bytes | None:
    """Return the verified client certificate in DER, or None."""
    transport = http.transport
    tls = transport.get_extra_info("ssl_object") if transport is not None else None
    return tls.getpeercert(binary_form=True) if tls is not None else None


def _headers(http: web.BaseRequest) -> Mapping[str, str]:
    """Return the first value of each header, as Go's Header.Get does."""
    headers: dict[str, str] = {}
    for name, value in http.headers.items():
        headers.setdefault(name.lower(), value)
    return headers


def _query(http: web.BaseRequest) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in http.query.items():
        found.setdefault(name, []).append(value)
    return found


async def _body(http: web.BaseRequest) -> bytes:
    """Read the request body. Raises ApiStatus: 413 if it is too large, 408 if it is not received in time."""
    if (http.content_length or 0) > MAX_BODY:
        raise _too_large()
    parts, size = list[bytes](), 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            async for part in http.content.iter_any():
                size += len(part)
                if size > MAX_BODY:
                    raise _too_large()
                parts.append(part)
    except TimeoutError:
        raise ApiStatus(408, "Timeout", "timed out reading the request body") from None
    body = b"".join(parts)
    if http.headers.get("Content-Encoding", "identity") == "gzip":
        raise ApiStatus(415, "UnsupportedMediaType", "request bodies must not be compressed")
    return body


def _too_large() -> ApiStatus:
    return ApiStatus(413, "RequestEntityTooLarge", f"Request entity too large: limit is {MAX_BODY}")


def error_response(status: ApiStatus, request: Request) -> Response:
    headers = {"Retry-After": str(status.retry_after)} if status.retry_after is not None else {}
    if error_format(request.headers.get("accept", "")) == PROTOBUF:
        return Response(status.code, status_envelope(status), PROTOBUF, headers)
    return Response(status.code, dump(status.document), JSON, headers)


def tls_context(cert: str, key: str, client_ca: str) -> ssl.SSLContext:
    """Return the TLS context of a server that accepts certificates of one CA, and clients without a certificate. Raises
    OSError."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=client_ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(cert, key, password="")
    context.verify_mode = ssl.CERT_OPTIONAL
    return context
