"""Calls in one stream, between the client library and an API server with a store in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import pytest

from pinnace.api.calls_pb2 import Call, CallBatch, ResultBatch
from pinnace.api.core_v1_pb2 import ConfigMap, Namespace
from pinnace.api.resources import CONFIG_MAPS, NAMESPACES
from pinnace.api.verbs_pb2 import GetRequest, ListRequest
from pinnace.api.wellknown import IMPERSONATE_USER_KEY, REQUEST_ID_KEY
from pinnace.apiserver.server import ApiServer
from pinnace.apiserver.services import calls
from pinnace.apiserver.services.calls import MAX_ITEMS
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from pinnace.client.errors import ApiError, Forbidden, NotFound, OutcomeUnknown, Timeout, Unavailable
from pinnace.client.exchange import EXCHANGE_METHOD, PART_SIZE, Exchange, _PendingCall
from tests.garbage import freed_at_once
from tests.storage.memory import MemoryStorage

DEADLINE = 20.0
GET = f"/{NAMESPACES.service}/Get"


class Served:
    def __init__(self, server: ApiServer, connection: Connection, channel: grpc.aio.Channel) -> None:
        self.server = server
        self.connection = connection
        self.client = Client(connection)
        self.exchange = Exchange(channel, "the server")

    async def get(self, name: str, *, timeout: float = DEADLINE, **metadata: str) -> Namespace:
        entries = [(key.replace("_", "-"), value) for key, value in metadata.items()]
        answer = await self.exchange.call(GET, GetRequest(name=name).SerializeToString(), entries, timeout)
        return Namespace.FromString(answer.data)


@asynccontextmanager
async def serving() -> AsyncIterator[Served]:
    server = ApiServer(MemoryStorage())
    address = await server.start("127.0.0.1:0")
    running = asyncio.ensure_future(server.run())
    connection = Connection([address], exchanges=True)
    async with grpc.aio.insecure_channel(address) as channel:
        served = Served(server, connection, channel)
        try:
            await served.client.namespaces.get("default")
            yield served
        finally:
            served.exchange.close()
            await connection.close()
            await server.close()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@pytest.fixture(scope="module")
async def served() -> AsyncIterator[Served]:
    async with serving() as result:
        yield result


async def test_concurrent_calls_have_their_own_results(served: Served) -> None:
    names = ["default", "none", "kube-system"] * 20
    results = await asyncio.gather(*map(served.get, names), return_exceptions=True)
    assert [result.metadata.name if isinstance(result, Namespace) else type(result) for result in results] == [
        "default", NotFound, "kube-system"
    ] * 20  # fmt: skip


async def test_large_request_and_response_travel_in_parts(served: Served) -> None:
    value = "x" * (3 * PART_SIZE)
    created = await served.client.of(CONFIG_MAPS).create(ConfigMap(metadata={"name": "large"}, data={"a": value}))
    assert created.data["a"] == value
    assert (await served.client.of(CONFIG_MAPS).get("large", "default")).data["a"] == value


async def test_messages_are_small_so_that_small_calls_wait_little(served: Served) -> None:
    """A read waited for messages with half a megabyte of other requests, and a quarter of other results."""
    large = ConfigMap(metadata={"name": "long"}, data={"a": "x" * 1_000_000})
    await served.client.of(CONFIG_MAPS).create(large)
    async with opened(served) as stream:
        listing = ListRequest(namespace="default").SerializeToString()
        lists = [Call(id=id_, method=f"/{CONFIG_MAPS.service}/List", timeout_ms=15_000, request=listing) for id_ in range(1, 5)]
        await stream.write(CallBatch(calls=[*lists, get(5)]))
        await stream.done_writing()
        batches = [batch async for batch in stream]
    assert {result.id for batch in batches for result in batch.results} == {1, 2, 3, 4, 5}
    assert max(batch.ByteSize() for batch in batches) < calls.PART_SIZE + 4096

    recorder = DeadServer()
    await recorder.server.start()
    async with asyncio.timeout(DEADLINE), grpc.aio.insecure_channel(recorder.address) as channel:
        exchange = Exchange(channel, "the server")
        waiting = [
            asyncio.create_task(exchange.call(GET, bytes(size), (), DEADLINE)) for size in (3 * PART_SIZE, 3 * PART_SIZE, 10)
        ]
        await recorder.received.wait()
        assert [len(call.request) for call in recorder.batch.calls] == [10, PART_SIZE]
        exchange.close()
        await asyncio.gather(*waiting, return_exceptions=True)
    await recorder.server.stop(0)


async def test_call_acts_as_the_user_in_its_metadata(served: Served) -> None:
    with pytest.raises(Forbidden, match='User "eve" cannot get resource "namespaces"'):
        await served.get("default", **{IMPERSONATE_USER_KEY: "eve"})
    assert (await served.get("default")).metadata.name == "default"


async def test_request_id_of_the_client_is_kept(served: Served) -> None:
    with pytest.raises(NotFound) as caught:
        await served.get("none", **{REQUEST_ID_KEY: "mine-1"})
    assert caught.value.request_id == "mine-1"


async def test_failed_call_frees_its_request_at_once(served: Served) -> None:
    """Otherwise refused objects stay in the memory of a gateway until the garbage collection."""
    with freed_at_once(_PendingCall), pytest.raises(NotFound):
        await served.get("none")


@pytest.mark.parametrize("method", ["/pinnace.v1.Pods/Fly", "/pinnace.v1.Pods/Watch"])
async def test_unknown_and_streaming_methods_are_refused(served: Served, method: str) -> None:
    with pytest.raises(ApiError, match=r"no method|is a stream"):
        await served.exchange.call(method, b"", (), DEADLINE)


async def test_call_times_out_and_the_stream_continues(served: Served) -> None:
    with pytest.raises((TimeoutError, Timeout)):
        await served.get("default", timeout=0.0)
    assert (await served.get("default")).metadata.name == "default"


async def test_cancelled_call_leaves_the_others_alone(served: Served) -> None:
    calls = [asyncio.create_task(served.get("default")) for _ in range(4)]
    await asyncio.sleep(0)
    calls[0].cancel()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError) and all(isinstance(result, Namespace) for result in results[1:])


async def test_oversized_request_is_refused_alone(served: Served) -> None:
    with pytest.raises(ApiError, match="larger than"):
        await served.exchange.call(GET, bytes(5 << 20), (), DEADLINE)
    assert (await served.get("default")).metadata.name == "default"


async def test_draining_server_answers_open_calls_and_ends_the_stream() -> None:
    async with asyncio.timeout(DEADLINE), serving() as served:
        await served.get("default")
        stopping = asyncio.create_task(served.server.stop())
        while not served.exchange.is_closed:
            results = await asyncio.gather(*(served.get("default") for _ in range(5)), return_exceptions=True)
            for result in results:
                assert isinstance(result, Namespace) or (isinstance(result, Unavailable) and result.retry_after is not None)
        with pytest.raises(Unavailable) as caught:
            await served.get("default")
        assert caught.value.retry_after == 0.0, "the call was not sent, so it may be repeated"
        await stopping


class DeadServer:
    """A server that reads calls, and dies."""

    def __init__(self) -> None:
        self.received = asyncio.Event()
        self.batch = CallBatch()
        """The first message."""
        self.server = grpc.aio.server()

        async def exchange(requests: Any, context: Any) -> Any:
            self.batch = await context.read()
            self.received.set()
            await asyncio.Event().wait()

        handler = grpc.stream_stream_rpc_method_handler(exchange, CallBatch.FromString, ResultBatch.SerializeToString)
        service, _, name = EXCHANGE_METHOD.removeprefix("/").rpartition("/")
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {name: handler}),))
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"


@pytest.mark.parametrize(("method", "error"), [("Create", OutcomeUnknown), ("Get", Unavailable)])
async def test_call_to_a_server_that_dies_has_an_unknown_outcome_if_it_writes(method: str, error: type[Exception]) -> None:
    dead = DeadServer()
    await dead.server.start()
    connection = Connection([dead.address], exchanges=True)
    path = f"/{CONFIG_MAPS.service}/{method}"
    call = asyncio.create_task(connection.call(path, GetRequest(), Namespace, timeout=5.0, retry=False))
    async with asyncio.timeout(DEADLINE):
        await dead.received.wait()
        await dead.server.stop(0)
        with pytest.raises(error):
            await call
    await connection.close()


@asynccontextmanager
async def opened(served: Served) -> AsyncIterator[Any]:
    """An Exchange stream without the client library."""
    async with grpc.aio.insecure_channel(served.connection.endpoint) as channel, asyncio.timeout(DEADLINE):
        stream = channel.stream_stream(EXCHANGE_METHOD, CallBatch.SerializeToString, ResultBatch.FromString)()
        yield stream
        stream.cancel()


def get(id_: int, *, more: bool = False) -> Call:
    return Call(id=id_, method=GET, timeout_ms=15_000, request=GetRequest(name="default").SerializeToString(), more=more)


async def test_repeated_id_does_not_replace_the_open_call(served: Served) -> None:
    """A client that reuses an ID gets one result for it."""
    async with opened(served) as stream:
        await stream.write(CallBatch(calls=[get(1), get(1)]))
        await stream.done_writing()
        results = [result async for batch in stream for result in batch.results]
        assert [result.id for result in results] == [1]


@pytest.mark.parametrize("flood", [CallBatch(calls=[Call()] * (MAX_ITEMS + 1)), CallBatch(cancelled=range(MAX_ITEMS + 1))])
async def test_message_with_too_many_items_ends_the_stream_and_no_other(served: Served, flood: CallBatch) -> None:
    """Two million empty calls fit into the 4 MiB of a message, and would occupy the event loop for seconds."""
    async with opened(served) as stream:
        await stream.write(CallBatch(calls=[get(1)]))
        assert (await stream.read()).results[0].id == 1
        await stream.write(flood)
        with pytest.raises(grpc.aio.AioRpcError, match="more than 1,000 calls"):
            await stream.read()
    assert (await served.get("default")).metadata.name == "default"


async def test_incomplete_requests_of_a_stream_are_limited(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MAX_INCOMPLETE", 1000)
    async with opened(served) as stream:
        await stream.write(
            CallBatch(calls=[Call(id=1, method=GET, request=bytes(600), more=True), get(2, more=True), Call(id=2)])
        )
        assert not (await stream.read()).results[0].error, "the requests are within the limit"
        await stream.write(CallBatch(calls=[get(3, more=True), Call(id=3, request=bytes(500), more=True), Call(id=3)]))
        assert b"all incomplete ones than" in (await stream.read()).results[0].error
        await stream.write(CallBatch(cancelled=[1]))
        await stream.write(CallBatch(calls=[get(4, more=True), Call(id=4, request=bytes(500))]))
        assert b"all incomplete ones than" not in (await stream.read()).results[0].error


async def test_stream_with_many_open_calls_is_not_read_further(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MAX_OPEN", 10)
    async with opened(served) as stream:
        for first in range(0, 100, 5):
            await stream.write(CallBatch(calls=[get(first + index) for index in range(5)]))
        await stream.done_writing()
        ids = sorted([result.id async for batch in stream for result in batch.results])
        assert ids == list(range(100)), "each call has its result as soon as there is room for it"
