"""Requests that are too much are refused before anything looks at them, answers that nobody reads are not added to, and the
server lives."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest
from google.protobuf.message import Message

from pinnace.api.pods_pb2 import CreatePodRequest
from pinnace.api.tables_pb2 import ListTableRequest
from pinnace.api.verbs_pb2 import ListRequest
from pinnace.apiserver.flow import control, send_budget
from pinnace.apiserver.server import MAX_REQUEST, ApiServer
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from tests.builders import make_pod
from tests.storage.memory import MemoryStorage

BEGIN, END = b"\xa3\x06", b"\xa4\x06"
"""Of a group, as field 100: no message of the API has itself as a part, so only what is unknown can nest deeply."""

PATIENCE = 10.0
CRAMPED = [("grpc.max_receive_message_length", -1), ("grpc.http2.bdp_probe", 0)]
"""Of a channel that takes no more than is read, and 64 KiB."""


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
async def test_deeply_nested_request_is_refused(address: str, depth: int) -> None:
    """protobuf's own limit is 100."""
    code, details = await answer(address, BEGIN * depth + END * depth)
    assert code is grpc.StatusCode.INVALID_ARGUMENT and "is not a message" in details


async def test_oversized_request_is_not_read(address: str) -> None:
    request = CreatePodRequest(object=make_pod("huge").new())
    request.object.metadata.annotations["filling"] = "x" * MAX_REQUEST
    code, details = await answer(address, request.SerializeToString())
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details


@pytest.mark.parametrize(
    ("path", "request_"),
    [
        ("Pods/List", ListRequest()),
        ("Tables/List", ListTableRequest(resource="pods", includeObject=ListTableRequest.METADATA)),
    ],
)
async def test_unread_lists_are_bounded(address: str, path: str, request_: Message, monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC keeps each for as long as its connection lives: one client could have all of a server's memory."""
    monkeypatch.setattr(control, "MAX_UNSENT_BYTES", 1 << 20)
    monkeypatch.setattr(send_budget, "MINIMUM", send_budget.LARGE)
    connection = Connection([address])
    pods = Client(connection).pods
    async with grpc.aio.insecure_channel(address, options=CRAMPED) as channel:
        for number in range(5):
            pod = make_pod(f"large-{number}").req(cpu="1").new()
            pod.metadata.annotations["filling"] = "x" * 200_000
            await pods.create(pod)
        calls = [channel.unary_stream(f"/pinnace.v1.{path}")(request_.SerializeToString()) for _ in range(10)]
        ends = [asyncio.ensure_future(end(call)) for call in calls]
        async with asyncio.timeout(PATIENCE):
            while sum(item.done() for item in ends) < 9:
                await asyncio.wait([item for item in ends if not item.done()], return_when=asyncio.FIRST_COMPLETED)
        for item in ends:
            if item.done():
                code, details = item.result()
                assert code is grpc.StatusCode.UNAVAILABLE and "MiB of responses are unread" in details
        for call in calls:
            call.cancel()
        await asyncio.gather(*ends)
        for _ in range(3):
            assert len((await pods.list()).items) == 5, "there is room again, also for what is read"
    await connection.close()


async def answer(address: str, request: bytes) -> tuple[grpc.StatusCode, str]:
    """Of a create: the code, and what is said."""
    async with grpc.aio.insecure_channel(address) as channel:
        return await end(channel.unary_unary("/pinnace.v1.Pods/Create")(request))


async def end(call: grpc.aio.Call) -> tuple[grpc.StatusCode, str]:
    return await call.code(), await call.details()
