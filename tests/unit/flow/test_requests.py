"""Requests that are too much are refused before anything looks at them, and the server lives."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest

from apiserver.server import MAX_REQUEST, ApiServer
from apiserver.storage.memory import MemoryStorage
from pinnace.api.pods_pb2 import CreatePodRequest
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from tests.builders import make_pod

BEGIN, END = b"\xa3\x06", b"\xa4\x06"
"""Of a group, as field 100: no message of the API has itself as a part, so only what is unknown can nest deeply."""


@pytest.fixture
async def address() -> AsyncIterator[str]:
    server = ApiServer(MemoryStorage())
    address = await server.start("127.0.0.1:0")
    running = asyncio.ensure_future(server.run())
    connection = Connection([address])
    await Client(connection).nodes.list()
    yield address
    await Client(connection).nodes.list()  # it lives
    await connection.close()
    await server.stop()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("depth", [101, 1_000_000])
async def test_what_nests_too_deeply_is_no_message(address: str, depth: int) -> None:
    """protobuf's own limit is 100."""
    code, details = await answer(address, BEGIN * depth + END * depth)
    assert code is grpc.StatusCode.INVALID_ARGUMENT and "is no message" in details


async def test_what_is_too_large_is_not_read(address: str) -> None:
    request = CreatePodRequest(object=make_pod("huge").new())
    request.object.metadata.annotations["filling"] = "x" * MAX_REQUEST
    code, details = await answer(address, request.SerializeToString())
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details


async def answer(address: str, request: bytes) -> tuple[grpc.StatusCode, str]:
    """Of a create: the code, and what is said."""
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary("/pinnace.v1.Pods/Create")(request)
        return await call.code(), await call.details()
