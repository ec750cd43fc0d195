"""A connection that swallows packets: nothing is refused, nothing breaks, nothing arrives."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import PODS
from pinnace.api.verbs_pb2 import GetRequest, WatchRequest
from pinnace.client import errors
from pinnace.client.informer import Informer
from pinnace.client.resource import ResourceClient
from tests.unit.client.fakeserver import FakeServer, WatchScript, connect, events

FOUND_WITHIN = 5.0
"""Seconds that HTTP/2 keepalive has to find out."""
METHOD = "/pinnace.v1.Pods/Get"


class Proxy:
    """Passes bytes on, both ways, until it is told to swallow them."""

    def __init__(self, target: str) -> None:
        self._host, _, self._port = target.rpartition(":")
        self._swallowing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server
        self.address = ""

    async def start(self) -> "Proxy":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def swallow(self) -> None:
        self._swallowing = True

    async def stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._host, int(self._port))
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            self._tasks.add(asyncio.ensure_future(self._pass_on(source, sink)))

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                if not self._swallowing:
                    sink.write(data)
                    await sink.drain()
        except ConnectionError:
            pass
        finally:
            sink.close()


@pytest.fixture
async def servers() -> AsyncIterator[tuple[Proxy, FakeServer]]:
    """A server behind a proxy, and one that is reached directly. Both know one pod; the first one's watch stays at 5."""
    near, far = await FakeServer().start(), await FakeServer().start()
    near.on_watch("/pinnace.v1.Pods/Watch", WatchRequest, WatchScript([events(6)]).answer)
    far.on_watch("/pinnace.v1.Pods/Watch", WatchRequest, WatchScript([events(5)]).answer)

    async def answer(request: Any, context: Any) -> Pod:
        return Pod()

    for server in (near, far):
        server.on(METHOD, GetRequest, answer)
    proxy = await Proxy(far.address).start()
    yield proxy, near
    await proxy.stop()
    for server in (near, far):
        await server.stop()


async def test_call_and_a_watch_go_on_with_another_server(servers: tuple[Proxy, FakeServer]) -> None:
    proxy, near = servers
    connection = connect(proxy.address, near)
    await connection.call(METHOD, GetRequest(), Pod)
    informer: Informer[Pod] = Informer(ResourceClient(connection, PODS))
    following = asyncio.ensure_future(informer.run())
    await informer.wait_for(5, FOUND_WITHIN)
    proxy.swallow()
    async with asyncio.timeout(FOUND_WITHIN):
        await connection.call(METHOD, GetRequest(), Pod, timeout=2 * FOUND_WITHIN)
        await informer.wait_for(6, FOUND_WITHIN)
    assert connection.endpoint == near.address
    following.cancel()
    await connection.close()


async def test_call_keeps_its_deadline(servers: tuple[Proxy, FakeServer]) -> None:
    """Also while there is no connection yet; and then it is certain that nothing happened."""
    proxy, _ = servers
    proxy.swallow()
    connection = connect(proxy.address)
    started = asyncio.get_running_loop().time()
    with pytest.raises(errors.Timeout, match="timed out connecting"):
        await connection.call(METHOD, GetRequest(), Pod, timeout=0.2, retry=False)
    assert asyncio.get_running_loop().time() - started < 1.0
    await connection.close()


async def test_server_that_accepts_and_says_nothing_is_passed_over(servers: tuple[Proxy, FakeServer]) -> None:
    proxy, near = servers
    proxy.swallow()
    connection = connect(proxy.address, near)
    async with asyncio.timeout(FOUND_WITHIN):
        await connection.call(METHOD, GetRequest(), Pod)
    assert connection.endpoint == near.address
    await connection.close()
