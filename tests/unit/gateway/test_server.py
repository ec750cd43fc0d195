"""Incomplete headers, and clients that disconnect while their watch starts."""

import asyncio
import gc
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway import server
from gateway.authentication import Authenticator
from gateway.backend import opening
from gateway.http import Request, Response, User
from gateway.server import Server, tls_context
from pinnace.client.errors import Unavailable, unavailable
from pinnace.cluster import certificates

DEADLINE = 10.0
HALF = b"GET /api HTTP/1.1\r\nHo"


class EveryRequest:
    """Answers every request after `pause` seconds."""

    pause = 0.0

    async def answer(self, request: Request) -> Response:
        await asyncio.sleep(self.pause)
        return Response(200, b"{}")


class NoTokens:
    async def review_token(self, token: str) -> User | None:
        return None


@asynccontextmanager
async def serving(folder: Path, dispatcher: Any) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection with the administrator's certificate."""
    certificates.provide(folder, ["127.0.0.1:1"], {})
    shown, mine = certificates.files(folder, "apiserver"), certificates.files(folder, "admin")
    found = Server(dispatcher, Authenticator(NoTokens()), tls_context(str(shown.cert), str(shown.key), str(shown.ca)))
    address, port = await found.start("127.0.0.1", 0)
    context = ssl.create_default_context(cafile=str(mine.ca))
    context.load_cert_chain(str(mine.cert), str(mine.key))
    reader, writer = await asyncio.open_connection(address, port, ssl=context)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        await found.stop()


@pytest.mark.parametrize("sent", [b"", HALF, b"GET /api HTTP/1.1\r\nHost: a\r\n\r\n" + HALF])
async def test_incomplete_header_closes_the_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    """The server kept connections with an incomplete header forever."""
    monkeypatch.setattr(server, "HEADER_TIMEOUT", 0.3)
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
    monkeypatch.setattr(server, "HEADER_TIMEOUT", 0.3)
    dispatcher = EveryRequest()
    dispatcher.pause = 0.6
    async with asyncio.timeout(DEADLINE), serving(tmp_path, dispatcher) as (reader, writer):
        for _ in range(2):
            writer.write(b"POST /api HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}")
            assert (await reader.readuntil(b"{}")).startswith(b"HTTP/1.1 200")
            await asyncio.sleep(0.5)


class Failing:
    """A stream whose first response is an error."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.cancelled = False

    async def read(self, silence: float | None = None) -> Any:
        await self.release.wait()
        raise unavailable("the API server has gone")

    def cancel(self) -> None:
        self.cancelled = True


async def test_stream_error_after_disconnect_is_retrieved() -> None:
    reported = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context["message"]))
    stream: Any = Failing()
    first = await opening(stream, 0.01)
    stream.release.set()
    await asyncio.wait((first,))
    del first
    gc.collect()
    await asyncio.sleep(0)
    assert reported == []


async def test_stream_is_cancelled_if_its_start_is_cancelled_or_fails() -> None:
    stream: Any = Failing()
    starting = asyncio.create_task(opening(stream, DEADLINE))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert stream.cancelled
    failing: Any = Failing()
    failing.release.set()
    with pytest.raises(Unavailable):
        await opening(failing, DEADLINE)
    assert failing.cancelled


class Echo:
    """Answers with the Accept header, and the impersonated user."""

    async def answer(self, request: Request) -> Response:
        user = request.impersonation.user if request.impersonation else ""
        return Response(200, f"{request.headers['accept']} {user}".encode())


async def test_first_value_of_a_repeated_header_is_used_and_repeated_users_are_refused(tmp_path: Path) -> None:
    """The last value was used: a proxy in front of the gateway may have checked the first one."""
    async with asyncio.timeout(DEADLINE), serving(tmp_path, Echo()) as (reader, writer):
        head = b"GET /api HTTP/1.1\r\nHost: a\r\nAccept: first\r\nAccept: last\r\nImpersonate-User: ada\r\n"
        writer.write(head + b"\r\n")
        assert (await reader.readuntil(b"first ada")).startswith(b"HTTP/1.1 200")
        writer.write(head + b"Impersonate-User: bob\r\n\r\n")
        assert (await reader.readuntil(b'"code":400}')).startswith(b"HTTP/1.1 400")
