"""Connections before their TLS handshake, and several processes on one port."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pinnace.cluster import certificates
from pinnace.gateway import listener
from pinnace.gateway.listener import Listener
from pinnace.gateway.server import tls_context

DEADLINE = 20.0


class Greeting(asyncio.Protocol):
    """Says hello, after the handshake."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"hello")
        transport.close()


@asynccontextmanager
async def listening(folder: Path, *, shared: bool = False, port: int = 0) -> AsyncIterator[tuple[Listener, int]]:
    certificates.create_certificates(folder, ["127.0.0.1:1"], {})
    shown = certificates.component_files(folder, "apiserver")
    made = Listener(tls_context(str(shown.cert), str(shown.key), str(shown.ca)), Greeting)
    _, port = await made.open("127.0.0.1", port, shared=shared)
    try:
        yield made, port
    finally:
        made.close()


async def greeting(folder: Path, port: int) -> bytes:
    context = ssl.create_default_context(cafile=str(certificates.component_files(folder, "admin").ca))
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        return await reader.read()
    finally:
        writer.transport.abort()


async def test_many_connections_at_once_are_all_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "PACE", 0.001)
    async with asyncio.timeout(DEADLINE), listening(tmp_path) as (_, port):
        assert await asyncio.gather(*(greeting(tmp_path, port) for _ in range(40))) == [b"hello"] * 40


async def test_handshakes_of_connections_that_arrive_one_by_one_are_paced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only connections that waited were paced. A client with a few connections at a time occupied the event loop."""
    monkeypatch.setattr(listener, "PACE", 0.1)
    async with asyncio.timeout(DEADLINE), listening(tmp_path) as (_, port):
        began = time.monotonic()
        for _ in range(4):
            assert await greeting(tmp_path, port) == b"hello"
        assert time.monotonic() - began >= 3 * 0.1


async def test_silent_connections_are_closed_and_do_not_delay_others(tmp_path: Path) -> None:
    async with asyncio.timeout(DEADLINE), listening(tmp_path) as (made, port):
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(30)]
        assert await greeting(tmp_path, port) == b"hello"
        now = asyncio.get_running_loop().time()
        made.sweep(now + 1.0)
        assert not any(reader.at_eof() for reader, _ in silent), "they may still speak"
        made.sweep(now + listener.HANDSHAKE_TIMEOUT + 1.0)
        assert [await reader.read() for reader, _ in silent] == [b""] * 30
        for _, writer in silent:
            writer.transport.abort()


async def test_oldest_silent_connection_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "MAX_SILENT", 3)
    async with asyncio.timeout(DEADLINE), listening(tmp_path) as (_, port):
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        assert await silent[0][0].read() == b""
        assert not silent[1][0].at_eof()
        for _, writer in silent:
            writer.transport.abort()


async def test_connections_above_the_limit_of_waiting_ones_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "MAX_WAITING", 3)
    monkeypatch.setattr(listener, "PACE", DEADLINE)
    async with asyncio.timeout(DEADLINE), listening(tmp_path) as (_, port):
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
        for _, writer in opened:
            writer.write(b"\x16")  # the first byte of a handshake
        ended = [asyncio.create_task(reader.read()) for reader, _ in opened]
        await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
        assert 1 <= sum(task.done() for task in ended) <= 5
        for _, writer in opened:
            writer.transport.abort()
        await asyncio.gather(*ended, return_exceptions=True)


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b"\0" * 100_000])
async def test_client_without_tls_is_disconnected(tmp_path: Path, sent: bytes) -> None:
    async with asyncio.timeout(DEADLINE), listening(tmp_path) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        with contextlib.suppress(ConnectionError):
            assert not (await reader.read()).startswith(b"HTTP")
        writer.transport.abort()
        assert await greeting(tmp_path, port) == b"hello"


async def test_processes_share_a_port_only_if_all_permit_it(tmp_path: Path) -> None:
    async with asyncio.timeout(DEADLINE), listening(tmp_path, shared=True) as (_, port):
        async with listening(tmp_path, shared=True, port=port) as (_, same):
            assert same == port
            assert await asyncio.gather(*(greeting(tmp_path, port) for _ in range(10))) == [b"hello"] * 10
        with pytest.raises(OSError, match="in use"):
            async with listening(tmp_path, port=port):
                pass


async def test_closed_listener_refuses_connections_and_closes_waiting_ones(tmp_path: Path) -> None:
    async with asyncio.timeout(DEADLINE):
        async with listening(tmp_path) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            began = time.monotonic()
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        assert time.monotonic() - began < listener.HANDSHAKE_TIMEOUT
        writer.transport.abort()
        with pytest.raises(OSError, match=r"refused|Connect call failed"):
            await asyncio.open_connection("127.0.0.1", port)
