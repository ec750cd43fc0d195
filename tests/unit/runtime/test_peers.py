"""Peers that connect and send nothing, and too many peers: the effect of our options on gRPC."""

import asyncio
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from pinnace.runtime import grpc_server
from pinnace.runtime.tls import server_credentials
from tests.unit.client.certificates import certificates

DEADLINE = 10.0
OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)


@asynccontextmanager
async def serving(most: int, folder: Path | None = None) -> AsyncIterator[int]:
    """The port of a server without services. With a folder, the server requires client certificates."""
    server = grpc.aio.server(options=grpc_server.server_options(most))
    if folder is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", server_credentials(certificates(folder).files("server")))
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)


@contextmanager
def silent(port: int, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=DEADLINE)) for _ in range(count)]


async def connected(channel: grpc.aio.Channel) -> bool:
    """Whether the server accepts the connection."""
    async with asyncio.timeout(DEADLINE):
        while (state := channel.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
            if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                return False
            await channel.wait_for_state_change(state)
    return True


async def may_connect(port: int) -> bool:
    """Whether the server accepts one more connection."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OWN_CONNECTION) as channel:
        return await connected(channel)


async def test_client_without_a_certificate_is_disconnected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_server, "HANDSHAKE_TIMEOUT", 0.2)
    async with serving(10, tmp_path) as port:
        with silent(port, 3) as there:
            assert [await asyncio.to_thread(peer.recv, 1) for peer in there] == [b""] * 3


async def test_connections_beyond_the_limit_are_closed_and_existing_ones_stay() -> None:
    async with serving(3) as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert await connected(channel)
        with silent(port, 2):
            assert not await may_connect(port)
            assert channel.get_state() is grpc.ChannelConnectivity.READY
        async with asyncio.timeout(DEADLINE):
            while not await may_connect(port):
                pass


def test_connection_limit_reserves_file_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda number: (1024, 1024))
    assert dict(grpc_server.server_options(10_000, servers=8))["grpc.max_allowed_incoming_connections"] == 96
    assert dict(grpc_server.server_options(100))["grpc.max_allowed_incoming_connections"] == 100
    monkeypatch.setattr(resource, "getrlimit", lambda number: (resource.RLIM_INFINITY,) * 2)
    assert dict(grpc_server.server_options(10_000, servers=8))["grpc.max_allowed_incoming_connections"] == 1250
