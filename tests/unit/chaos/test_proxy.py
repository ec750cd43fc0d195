"""A proxy passes, delays, holds and loses what it is told to, and nothing else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest

from pinnace.chaos.proxy import Mode, Proxy

DEADLINE = 5.0
MOMENT = 0.05
"""Seconds in which what is not held back has arrived long since."""


@dataclass
class Echo:
    """A server that answers each line with the same line, and keeps what it has read."""

    received: bytes = b""
    heard: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while line := await reader.readline():
                self.received += line
                self.heard.set()
                writer.write(line)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def echoing() -> AsyncIterator[tuple[Echo, Proxy]]:
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with Proxy(f"127.0.0.1:{port}") as proxy:
        yield echo, proxy
    server.close()


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, line: bytes) -> bytes:
        self.writer.write(line)
        return await self.answer()

    async def answer(self, within: float = DEADLINE) -> bytes:
        async with asyncio.timeout(within):
            return await self.reader.readline()


@asynccontextmanager
async def connected(proxy: Proxy) -> AsyncIterator[Client]:
    host, _, port = proxy.endpoint.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    yield Client(reader, writer)
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def test_what_is_not_disturbed_passes_both_ways_and_is_counted() -> None:
    async with echoing() as (echo, proxy), connected(proxy) as client:
        assert await client.ask(b"one\n") == b"one\n"
        client.writer.write_eof()
        assert await client.answer() == b"", "the end did not get there and back"
        assert (echo.received, proxy.requests.bytes, proxy.answers.bytes) == (b"one\n", 4, 4)


async def test_what_is_held_arrives_when_it_is_let_go() -> None:
    async with echoing() as (echo, proxy), connected(proxy) as client:
        proxy.requests.set(Mode.HOLD)
        with pytest.raises(TimeoutError):
            client.writer.write(b"one\n")
            await client.answer(within=MOMENT)
        assert echo.received == b""
        proxy.requests.set(Mode.PASS)
        assert await client.answer() == b"one\n"


async def test_one_direction_can_be_held_alone() -> None:
    async with echoing() as (echo, proxy), connected(proxy) as client:
        proxy.answers.set(Mode.HOLD)
        with pytest.raises(TimeoutError):
            client.writer.write(b"one\n")
            await client.answer(within=MOMENT)
        assert echo.received == b"one\n", "the request was held, too"
        proxy.set(Mode.PASS)
        assert await client.answer() == b"one\n"


async def test_the_end_of_a_connection_is_held_as_well() -> None:
    async with echoing() as (_, proxy), connected(proxy) as client:
        await client.ask(b"one\n")
        proxy.answers.set(Mode.HOLD)
        client.writer.write_eof()
        with pytest.raises(TimeoutError):
            await client.answer(within=MOMENT)
        proxy.set(Mode.PASS)
        assert await client.answer() == b""


async def test_a_delay_counts_from_the_arrival_and_keeps_the_order() -> None:
    async with echoing() as (_, proxy), connected(proxy) as client:
        loop = asyncio.get_running_loop()
        proxy.requests.set(Mode.DELAY, 0.2)
        sent = loop.time()
        client.writer.write(b"one\n")
        client.writer.write(b"two\n")
        assert [await client.answer(), await client.answer()] == [b"one\n", b"two\n"]
        assert 0.2 <= loop.time() - sent < DEADLINE


async def test_what_is_delayed_arrives_at_once_when_the_delay_ends() -> None:
    async with echoing() as (_, proxy), connected(proxy) as client:
        proxy.requests.set(Mode.DELAY, 10 * DEADLINE)
        client.writer.write(b"one\n")
        proxy.requests.set(Mode.PASS)
        assert await client.answer() == b"one\n"


async def test_a_connection_that_has_lost_bytes_never_works_again() -> None:
    async with echoing() as (echo, proxy), connected(proxy) as client:
        proxy.requests.set(Mode.LOSE)
        with pytest.raises(TimeoutError):
            client.writer.write(b"one\n")
            await client.answer(within=MOMENT)
        proxy.requests.set(Mode.PASS)
        with pytest.raises(ConnectionResetError):
            await client.ask(b"two\n")
        assert echo.received == b""


async def test_answers_come_while_requests_are_lost() -> None:
    async with echoing() as (echo, proxy), connected(proxy) as client:
        proxy.answers.set(Mode.HOLD)
        client.writer.write(b"one\n")
        async with asyncio.timeout(DEADLINE):
            await echo.heard.wait()
        proxy.requests.set(Mode.LOSE)
        proxy.answers.set(Mode.PASS)
        assert await client.answer() == b"one\n"


async def test_a_reset_loses_what_is_held_and_new_connections_work() -> None:
    async with echoing() as (echo, proxy):
        async with connected(proxy) as client:
            await client.ask(b"one\n")
            proxy.requests.set(Mode.HOLD)
            client.writer.write(b"two\n")
            await asyncio.sleep(0)
            proxy.reset()
            with pytest.raises(ConnectionResetError):
                await client.answer()
        proxy.set(Mode.PASS)
        async with connected(proxy) as client:
            assert await client.ask(b"three\n") == b"three\n"
        assert echo.received == b"one\nthree\n"


async def test_refused_connections_and_those_that_stay() -> None:
    async with echoing() as (_, proxy), connected(proxy) as client:
        await client.ask(b"one\n")
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            async with connected(proxy):
                pass
        assert await client.ask(b"two\n") == b"two\n"
        address = proxy.endpoint
        await proxy.accept()
        assert proxy.endpoint == address
        async with connected(proxy) as another:
            assert await another.ask(b"three\n") == b"three\n"


async def test_a_server_that_is_not_there_is_a_reset() -> None:
    async with echoing() as (_, proxy):
        proxy.target = "127.0.0.1:1"
        async with connected(proxy) as client:
            with suppress(ConnectionResetError):
                assert await client.answer() == b""
