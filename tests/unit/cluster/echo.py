"""A line-based echo server and its client, for tests of a proxy between them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from pinnace.cluster.links import Proxy

DEADLINE = 5.0
MOMENT = 0.05
"""Seconds after which data that is not held back has certainly arrived."""


@dataclass
class Echo:
    """A server that echoes each line and records the received bytes."""

    received: bytes = b""
    endpoint: str = ""
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
async def an_echo() -> AsyncIterator[Echo]:
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    echo.endpoint = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield echo
    server.close()


@asynccontextmanager
async def echoing() -> AsyncIterator[tuple[Echo, Proxy]]:
    """An echo behind a proxy."""
    async with an_echo() as echo, Proxy(echo.endpoint) as proxy:
        yield echo, proxy


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
async def connected(endpoint: str) -> AsyncIterator[Client]:
    host, _, port = endpoint.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    yield Client(reader, writer)
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
