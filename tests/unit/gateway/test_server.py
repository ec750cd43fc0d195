"""Connections of HTTP clients: incomplete and oversized requests, bodies, pipelining, clients that do not read, and clients
that disconnect while their watch starts."""

import asyncio
import gc
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from pinnace.client.errors import Unavailable, unavailable_error
from pinnace.cluster import certificates
from pinnace.gateway import connection, server
from pinnace.gateway.authentication import Authenticator
from pinnace.gateway.backend import await_first_response
from pinnace.gateway.dispatch import ReadBody
from pinnace.gateway.flow import FlowControl
from pinnace.gateway.http import ApiStatus, Request, Response, User
from pinnace.gateway.server import Server, tls_context

DEADLINE = 10.0
HALF = b"GET /api HTTP/1.1\r\nHo"


class EveryRequest:
    """Answers every request after `pause` seconds."""

    pause = 0.0

    async def answer(self, request: Request, read_body: ReadBody) -> Response:
        await asyncio.sleep(self.pause)
        return Response(200, b"{}")


class Echo:
    """Returns the target and the body of each request."""

    def __init__(self) -> None:
        self.flow = FlowControl()

    async def answer(self, request: Request, read_body: ReadBody) -> Response:
        body = await read_body("admin", self.flow, connection.MAX_BODY)
        return Response(200, b"%b %b %d;" % (request.path.encode(), body[:8], len(body)))


class Unread:
    """Refuses each request without reading its body."""

    async def answer(self, request: Request, read_body: ReadBody) -> Response:
        raise ApiStatus(403, "Forbidden", "no")


class Large:
    """Sends pieces without an end. `ended` is set when the server takes no more."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def answer(self, request: Request, read_body: ReadBody) -> Response:
        return Response(200, self.chunks())

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            while True:
                yield bytes(connection.PIECE)
        finally:
            self.ended.set()


class EchoPath:
    async def answer(self, request: Request, read_body: ReadBody) -> Response:
        return Response(200, request.path.encode())


class NoTokens:
    async def review_token(self, token: str) -> User | None:
        return None


@asynccontextmanager
async def serving(folder: Path, dispatcher: Any) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection with the administrator's certificate."""
    certificates.create_certificates(folder, ["127.0.0.1:1"], {})
    shown, mine = certificates.component_files(folder, "apiserver"), certificates.component_files(folder, "admin")
    result = Server(dispatcher, Authenticator(NoTokens()), tls_context(str(shown.cert), str(shown.key), str(shown.ca)))
    address, port = await result.start("127.0.0.1", 0)
    context = ssl.create_default_context(cafile=str(mine.ca))
    context.load_cert_chain(str(mine.cert), str(mine.key))
    reader, writer = await asyncio.open_connection(address, port, ssl=context)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        await result.stop()


@pytest.mark.parametrize("sent", [b"", HALF, b"GET /api HTTP/1.1\r\nHost: a\r\n\r\n" + HALF])
async def test_incomplete_header_closes_the_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    """The server kept connections with an incomplete header forever."""
    monkeypatch.setattr(connection, "HEADER_TIMEOUT", 0.3)
    monkeypatch.setattr(server, "SWEEP_INTERVAL", 0.05)
    async with asyncio.timeout(DEADLINE), serving(tmp_path, EveryRequest()) as (reader, writer):
        if sent.count(b"GET") == 2:  # the incomplete header follows the first response
            writer.write(sent.removesuffix(HALF))
            await reader.readuntil(b"{}")
            sent = HALF
        began = time.monotonic()
        writer.write(sent)
        await reader.read()
        assert time.monotonic() - began >= 0.2


async def test_slow_request_and_idle_connection_are_not_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEADER_TIMEOUT", 0.3)
    monkeypatch.setattr(server, "SWEEP_INTERVAL", 0.05)
    dispatcher = EveryRequest()
    dispatcher.pause = 0.6
    async with asyncio.timeout(DEADLINE), serving(tmp_path, dispatcher) as (reader, writer):
        for _ in range(2):
            writer.write(b"POST /api HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}")
            assert (await reader.readuntil(b"{}")).startswith(b"HTTP/1.1 200")
            await asyncio.sleep(0.5)


POST = b"POST /api/v1/pods?a=b HTTP/1.1\r\nHost: a\r\n"


async def responses(reader: asyncio.StreamReader, count: int) -> list[bytes]:
    """The bodies of `count` responses of Echo."""
    result = []
    for _ in range(count):
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.split(b"\r\n") if line.startswith(b"Content-Length"))
        result.append(await reader.readexactly(int(length.split(b":")[1])))
    return result


async def test_pipelined_requests_are_answered_in_order(tmp_path: Path) -> None:
    async with asyncio.timeout(DEADLINE), serving(tmp_path, Echo()) as (reader, writer):
        requests = [b"POST /%d HTTP/1.1\r\nContent-Length: 2\r\n\r\n%02d" % (number, number) for number in range(50)]
        writer.write(b"".join(requests))
        assert await responses(reader, 50) == [b"/%d %02d 2;" % (number, number) for number in range(50)]


@pytest.mark.parametrize(
    "sent",
    [
        b"Content-Length: 300000\r\n\r\n" + b"x" * 300_000,
        b"Transfer-Encoding: chunked\r\n\r\n" + b"493e0\r\n" + b"x" * 300_000 + b"\r\n0\r\n\r\n",
    ],
    ids=["length", "chunks"],
)
async def test_large_body_is_read_and_the_connection_reused(tmp_path: Path, sent: bytes) -> None:
    async with asyncio.timeout(DEADLINE), serving(tmp_path, Echo()) as (reader, writer):
        for _ in range(2):
            writer.write(POST + sent)
            assert await responses(reader, 1) == [b"/api/v1/pods xxxxxxxx 300000;"]


async def test_body_is_asked_for_with_continue(tmp_path: Path) -> None:
    async with asyncio.timeout(DEADLINE), serving(tmp_path, Echo()) as (reader, writer):
        writer.write(POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"{}")
        assert await responses(reader, 1) == [b"/api/v1/pods {} 2;"]


async def test_too_large_body_is_refused_before_it_is_read(tmp_path: Path) -> None:
    async with asyncio.timeout(DEADLINE), serving(tmp_path, Echo()) as (reader, writer):
        writer.write(POST + b"Content-Length: %d\r\n\r\n" % (connection.MAX_BODY + 1))
        assert (await reader.read()).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("size", [2_900_000, 1001])
async def test_stalled_body_is_refused_and_its_connection_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """The connection was kept if little of the body was missing. The next request was taken for the rest of the body, and its
    remainder was answered with 400."""
    monkeypatch.setattr(connection, "STALL_TIMEOUT", 0.2)
    async with asyncio.timeout(DEADLINE), serving(tmp_path, Echo()) as (reader, writer):
        writer.write(POST + b"Content-Length: %d\r\n\r\n" % size + b"x" * 1000)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 408 ") and b"\r\nConnection: close\r\n" in head


async def test_small_unread_body_is_discarded(tmp_path: Path) -> None:
    async with asyncio.timeout(DEADLINE), serving(tmp_path, Unread()) as (reader, writer):
        for _ in range(2):
            writer.write(POST + b"Content-Length: 100000\r\n\r\n" + b"x" * 100_000)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 403 ")
            await reader.readuntil(b"}\n")


async def test_large_unread_body_closes_the_connection_after_the_response(tmp_path: Path) -> None:
    async with asyncio.timeout(DEADLINE), serving(tmp_path, Unread()) as (reader, writer):
        writer.write(POST + b"Content-Length: 2900000\r\n\r\n" + b"x" * 400_000)
        assert (await reader.read()).startswith(b"HTTP/1.1 403 ")


async def test_client_that_does_not_read_is_disconnected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "STALL_TIMEOUT", 0.3)
    dispatcher = Large()
    async with asyncio.timeout(DEADLINE), serving(tmp_path, dispatcher) as (reader, writer):
        writer.transport.pause_reading()
        writer.write(b"GET /api/v1/pods HTTP/1.1\r\n\r\n")
        await dispatcher.ended.wait()
        writer.transport.resume_reading()
        with suppress(OSError):
            while await reader.read(1 << 20):  # what was on its way; then the end
                pass


async def test_oversized_head_is_refused(tmp_path: Path) -> None:
    async with asyncio.timeout(DEADLINE), serving(tmp_path, EveryRequest()) as (reader, writer):
        writer.write(b"GET /api HTTP/1.1\r\n" + b"".join(b"x-%d: %b\r\n" % (number, b"y" * 1000) for number in range(90)))
        assert (await reader.read()).startswith(b"HTTP/1.1 431 ")


async def test_thousands_of_pipelined_requests_are_answered_in_order(tmp_path: Path) -> None:
    """They arrive at once, and are parsed one after the other: thousands of heads would hold the event loop."""
    requests = b"".join(b"GET /api/%d HTTP/1.1\r\nHost: a\r\n\r\n" % number for number in range(2000))
    async with asyncio.timeout(DEADLINE), serving(tmp_path, EchoPath()) as (reader, writer):
        writer.write(requests + POST + b"Content-Length: 200000\r\n\r\n" + b"x" * 200_000 + requests)
        await writer.drain()
        paths = []
        for _ in range(4001):
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            paths.append((await reader.readexactly(size)).decode())
    assert paths == [*(f"/api/{number}" for number in range(2000)), paths[2000], *(f"/api/{number}" for number in range(2000))]


@pytest.mark.parametrize("sent", [b"\x16\x03\x01", b"GET / HTTP/9.9\r\n\r\n", b"GET\r\n\r\n"])
async def test_other_protocols_are_refused(tmp_path: Path, sent: bytes) -> None:
    async with asyncio.timeout(DEADLINE), serving(tmp_path, EveryRequest()) as (reader, writer):
        writer.write(sent)
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")


async def test_http_1_0_response_ends_with_the_connection(tmp_path: Path) -> None:
    async with asyncio.timeout(DEADLINE), serving(tmp_path, EveryRequest()) as (reader, writer):
        writer.write(b"GET http://host/api HTTP/1.0\r\n\r\n")
        response = await reader.read()
        assert response.endswith(b"\r\n\r\n{}") and b"chunked" not in response


class Failing:
    """A stream whose first response is an error."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.cancelled = False

    async def read(self, silence: float | None = None) -> Any:
        await self.release.wait()
        raise unavailable_error("the API server has gone")

    def cancel(self) -> None:
        self.cancelled = True


async def test_stream_error_after_disconnect_is_retrieved() -> None:
    reported = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context["message"]))
    stream: Any = Failing()
    first = await await_first_response(stream, 0.01)
    stream.release.set()
    await asyncio.wait((first,))
    del first
    gc.collect()
    await asyncio.sleep(0)
    assert reported == []


async def test_stream_is_cancelled_if_its_start_is_cancelled_or_fails() -> None:
    stream: Any = Failing()
    starting = asyncio.create_task(await_first_response(stream, DEADLINE))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert stream.cancelled
    failing: Any = Failing()
    failing.release.set()
    with pytest.raises(Unavailable):
        await await_first_response(failing, DEADLINE)
    assert failing.cancelled


class EchoHeaders:
    """Answers with the Accept header, and the impersonated user."""

    async def answer(self, request: Request, read_body: ReadBody) -> Response:
        user = request.impersonation.user if request.impersonation else ""
        return Response(200, f"{request.headers['accept']} {user}".encode())


async def test_first_value_of_a_repeated_header_is_used_and_repeated_users_are_refused(tmp_path: Path) -> None:
    """The last value was used: a proxy in front of the gateway may have checked the first one."""
    async with asyncio.timeout(DEADLINE), serving(tmp_path, EchoHeaders()) as (reader, writer):
        head = b"GET /api HTTP/1.1\r\nHost: a\r\nAccept: first\r\nAccept: last\r\nImpersonate-User: ada\r\n"
        writer.write(head + b"\r\n")
        assert (await reader.readuntil(b"first ada")).startswith(b"HTTP/1.1 200")
        writer.write(head + b"Impersonate-User: bob\r\n\r\n")
        assert (await reader.readuntil(b'"code":400}')).startswith(b"HTTP/1.1 400")
