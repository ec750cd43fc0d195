"""A call that the server ends while the client writes."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest

from pinnace.api.verbs_pb2 import GetRequest
from pinnace.runtime import grpc_stream

ROUNDS = 100
REQUEST = GetRequest(name="x" * 1000)


@pytest.fixture
async def channel() -> AsyncIterator[grpc.aio.Channel]:
    """To a server that reads one request, sends two responses, and ends the call."""

    async def answer(requests: AsyncIterator[GetRequest], context: Any) -> AsyncIterator[GetRequest]:
        await anext(requests)
        yield GetRequest(name="output")
        yield GetRequest(name="exit code")
        await context.abort(grpc.StatusCode.OUT_OF_RANGE, "told")

    server = grpc.aio.server()
    handler = grpc.stream_stream_rpc_method_handler(answer, GetRequest.FromString, GetRequest.SerializeToString)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a", {"B": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    await server.stop(None)


async def test_responses_and_status_survive_a_write_after_the_end(channel: grpc.aio.Channel) -> None:
    for _ in range(ROUNDS):
        async with asyncio.timeout(10):
            call = channel.stream_stream("/a/B", GetRequest.SerializeToString, GetRequest.FromString)()
            writing = asyncio.create_task(write_until_done(call))
            assert [(await call.read()).name, (await call.read()).name] == ["output", "exit code"]
            with pytest.raises(grpc.aio.AioRpcError, match="told"):
                await call.read()
            await writing


async def write_until_done(call: Any) -> None:
    while not call.done():
        await grpc_stream.write_request(call, REQUEST)
        await asyncio.sleep(0)


async def test_cancelled_write_cancels_the_call(channel: grpc.aio.Channel) -> None:
    call = channel.stream_stream("/a/B", GetRequest.SerializeToString, GetRequest.FromString)()
    writing = asyncio.create_task(grpc_stream.write_request(call, GetRequest(name="x" * (3 << 20))))
    await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert call.cancelled()
